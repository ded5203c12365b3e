"""Trains a table of 16 columns by rows, and inside w, and writes what an update moves and takes.

    python tables_by_rows.py    about 8 minutes, and 3 GB of memory

HogWild with two ps and two workers trains an Embedding layer and a Dense layer. By rows, the table
lies on the ps; inside w, each update moves all of it. Both take turns. The medians are in
tables_by_rows.json, and as a table in tables_by_rows.txt.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap

import tensorflow as tf
from lab.pages import result_tables
from tfrun.runs import metrics_csv

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent
COLUMNS, BATCH_SIZE = 16, 32
STEPS = {  # (way, rows of the table): updates
    ("rows", 10**4): 1000,
    ("w", 10**4): 1000,
    ("rows", 10**5): 1000,
    ("w", 10**5): 300,
    ("rows", 10**6): 1000,
    ("w", 10**6): 60,
    ("rows", 10**7): 1000,
}
ALL_BY_ROWS, NONE_BY_ROWS = "1", str(2**31 - 1)  # --table-size
PROBLEM = '''
    """Two ids an example; whether their sum is even."""

    import atexit
    import resource

    import keras
    import numpy as np


    @atexit.register
    def say_peak():
        print("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


    def load_data(name):
        x = np.random.default_rng(0).integers(0, {rows}, [20_000, 2])
        y = x.sum(1) % 2
        return x[:-500], y[:-500], x[-500:], y[-500:]


    def make_model(data):
        layers = keras.layers
        return keras.Sequential(
            [
                keras.Input([2], dtype="int32"),
                layers.Embedding({rows}, {columns}),
                layers.Flatten(),
                layers.Dense(2),
            ]
        )


    def loss(y, outputs):
        return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


    METRICS = {{"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}}
'''


def train(folder, way, rows, steps):
    """Makes a run; returns {"bytes": of an update, "updates_per_second", "peak_bytes": by job}."""
    folder.mkdir()
    problem = folder / "problem.py"
    problem.write_text(textwrap.dedent(PROBLEM).lstrip().format(rows=rows, columns=COLUMNS))
    size = ALL_BY_ROWS if way == "rows" else NONE_BY_ROWS
    command = [sys.executable, "-m", "tfrun", "--ps", "2", "--workers", "2"]
    command += ["--problem", str(problem), "--timeout", "500"]
    command += ["--", str(ROOT / "HogWild" / "hogwild.py"), "--steps", str(steps)]
    command += ["--batch-size", str(BATCH_SIZE), "--checkpoint-steps", str(steps)]
    command += ["--table-size", size]
    directory = folder / "run"
    env = {**os.environ, "OUTPUT_DIR": str(directory), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True)
    pushes = []
    for k in range(2):
        pushes.extend(metrics_csv.read(directory / f"metrics-worker-{k}.csv").rows("pushes"))
    times = sorted(float(row["push_time"]) for row in pushes)[steps // 5 :]  # without the start
    peaks = {}
    for job in "ps", "worker":
        logs = "".join(path.read_text() for path in directory.glob(f"{job}-*.log"))
        peaks[job] = max(int(peak) for peak in re.findall(r"peak memory (\d+)", logs))
    return {
        "bytes": statistics.median(float(row["bytes"]) for row in pushes),
        "updates_per_second": (len(times) - 1) / (times[-1] - times[0]),
        "peak_bytes": peaks,
    }


def table_of(facts):
    """Returns the table in Markdown."""
    lines = []
    for row in facts["rows"]:
        runs = row["runs"]
        rates = sorted(run["updates_per_second"] for run in runs)
        peaks = [max(run["peak_bytes"][job] for run in runs) / 1e9 for job in ("ps", "worker")]
        lines.append(
            (
                f"{row['rows']:,}",
                "by rows" if row["way"] == "rows" else "in `w`",
                f"{statistics.median(run['bytes'] for run in runs) / 1000:,.1f} KB",
                f"{statistics.median(rates):,.1f} ({rates[0]:,.1f} to {rates[-1]:,.1f})",
                *[f"{peak:.2f} GB" for peak in peaks],
            )
        )
    head = ["rows", "table", "an update moves", "updates a second", "memory of a ps", "of a worker"]
    where = f"{facts['date']}, TensorFlow {facts['tensorflow']}, Python {facts['python']}"
    what = f"{facts['repeats']} runs each, which took turns: median and range; the most memory."
    return "\n".join(
        [result_tables.table(head, lines), "", f"{what} {where}, {facts['cores']} cores."]
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (%(default)s)")
    flags = parser.parse_args()
    runs = {key: [] for key in STEPS}
    with tempfile.TemporaryDirectory() as place:
        for repeat in range(flags.repeats):
            for (way, rows), steps in STEPS.items():
                folder = pathlib.Path(place) / f"{way}-{rows}-{repeat}"
                runs[way, rows].append(train(folder, way, rows, steps))
    facts = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "cores": os.cpu_count(),
        "repeats": flags.repeats,
        "rows": [{"way": way, "rows": n, "runs": of} for (way, n), of in runs.items()],
    }
    output = pathlib.Path(os.environ.get("OUTPUT_DIR") or FOLDER)
    (output / "tables_by_rows.json").write_text(json.dumps(facts, indent=1) + "\n")
    result_tables.leave(output / "tables_by_rows.txt", table_of(facts))


if __name__ == "__main__":
    main()
