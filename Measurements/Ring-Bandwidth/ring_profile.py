"""What two workers spend an all-reduce on, with TensorFlow's ring and the ring in NumPy.

    source activate.sh && python Measurements/Ring-Bandwidth/ring_profile.py > profile.txt

Linux's `perf` looks, some 2,000 times a second, at what the processors of both workers are doing.
It takes a minute, and needs the right to profile: root, or kernel.perf_event_paranoid at 1.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import ring_bandwidth
from lab import examples
from lab.measure import example_runs, text_tables

SIZES = {"69 KB": 69_000, "8.7 MB": 8_700_000}
SECONDS = 6  # of all-reduces, for each ring and size
LEAST_PERCENT = 1.0  # percent: what is shown


def shares(data: pathlib.Path, key: str) -> list[tuple[float, str]]:
    """Returns [(percent, a library or a function)] of what perf has recorded, the largest first."""
    command = ["perf", "report", "-i", str(data), "--no-children", "--stdio", "-g", "none"]
    command += ["--sort", key]
    report = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = []
    for line in report.stdout.splitlines():
        match = re.match(r"\s*([\d.]+)%\s+(?:\[([.k])\] )?(\S.*?)(?:\s+-\s+-)?\s*$", line)
        if match and float(match[1]) >= LEAST_PERCENT:
            name = match[3].replace("[kernel.kallsyms]", "the kernel")
            if match[2] == "k":
                name += " (kernel)"
            rows.append((float(match[1]), name))
    return rows


def profile(processes: ring_bandwidth.Processes, size: int, data: pathlib.Path) -> None:
    """Records what the workers do while they all-reduce vectors of `size` bytes."""
    processes.cost(size)  # once before, for the set-up of the graph
    pids = ",".join(str(process.pid) for process in processes.processes)
    command = ["perf", "record", "-e", "cpu-clock", "-F", "1999", "-o", str(data), "-p", pids]
    perf = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=example_runs.end_with_us,
    )
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and perf.poll() is None:
        processes.cost(size)
    perf.send_signal(signal.SIGINT)  # it writes what it has, and ends
    _, error = perf.communicate(timeout=60)
    if not os.path.exists(data) or b"Permission" in error:
        sys.exit("ring_profile: perf may not look: " + error.decode().strip().splitlines()[0])


def main() -> None:
    if not shutil.which("perf"):
        print("ring_profile: it needs perf: install linux-perf", file=sys.stderr)
        sys.exit(2)
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it says so; nothing is computed with it here
    script = examples.load(ring_bandwidth.SCRIPT)
    versions = f"TensorFlow {script.tf.__version__}", f"NumPy {ring_bandwidth.np.__version__}"
    print("Percent of all samples: first by library, then the functions above 1%.")
    print(text_tables.setting(*versions))
    rings: dict[str, tuple[Any, ...]] = {
        "the ring in NumPy": (script, 2),
        "TensorFlow's ring": (None, 2, ring_bandwidth.tensorflow_worker, "spawn"),
    }
    for name, start in rings.items():
        processes = ring_bandwidth.start(*start)
        for size, number in SIZES.items():
            with tempfile.TemporaryDirectory() as folder:
                data = pathlib.Path(folder, "perf.data")
                profile(processes, number, data)
                print(f"\n{name}, {size}")
                for key in ("dso", "symbol"):
                    for percent, place in shares(data, key):
                        print(f"{percent:6.1f}%  {place[:88]}", flush=True)
        processes.end()


if __name__ == "__main__":
    main()
