"""Benchmarks on a GPU: each example beside itself on the processor of the same machine, by turns.

bash run.sh --gpu measures them.
"""

import argparse
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

from lab import examples
from lab.measure import arguments, example_runs, idle, sessions, text_tables
from lab.pages import result_tables
from tfrun.launch.cluster import gpus, nvidia_smi

PLACES: dict[str, dict[str, Any]] = {"GPU": {}, "processor": {"CUDA_VISIBLE_DEVICES": "-1"}}
# A task, mini-batch: (its problem file or None, mini-batch, {place: steps}).
TASKS = {
    "digits, 32": (None, 32, {"GPU": 4000, "processor": 4000}),
    "GPT, 32": ("Your-Model/gpt.py", 32, {"GPU": 1000, "processor": 200}),
    "GPT, 1,024": ("Your-Model/gpt.py", 1024, {"GPU": 300, "processor": 40}),
}
ONE_WORKER, TWO_WORKERS = ["--workers", "1"], ["--workers", "2"]
PS = ["--ps", "1", *TWO_WORKERS]
TOWERS = "Multiple-GPUs-Single-Machine"
# A program: (its script below the project, tfrun's flags, its own). Two workers share one GPU.
PROGRAMS: dict[str, tuple[Any, ...]] = {
    "one process": ("Non-Distributed-Setup/non_distributed_setup.py", ONE_WORKER),
    "towers": (f"{TOWERS}/multiple_gpus_single_machine.py", ONE_WORKER, "--devices", 1),
    "MirroredStrategy": (
        f"{TOWERS}/multiple_gpus_single_machine_mirrored.py",
        ONE_WORKER,
        "--devices",
        1,
    ),
    "Collective-AllReduce, 1 worker": ("Collective-AllReduce/collective_allreduce.py", ONE_WORKER),
    "Collective-AllReduce, 2 workers": (
        "Collective-AllReduce/collective_allreduce.py",
        TWO_WORKERS,
    ),
    "HogWild, 2 workers": ("HogWild/hogwild.py", PS),
}
ONE_PROCESS, LAST_TASK = "one process", list(TASKS)[-1]
CASES = [
    *((task, ONE_PROCESS) for task in TASKS),
    *((LAST_TASK, name) for name in PROGRAMS if name != ONE_PROCESS),
]


def measure_rate(task: str, program: str, place: str, folder: pathlib.Path) -> float:
    """Returns the examples per second of all workers, in the second half of a run's updates."""
    script, cluster, *flags = PROGRAMS[program]
    problem, batch_size, steps_in = TASKS[task]
    steps = steps_in[place]
    command: list[object] = ["tfrun"]
    if problem:
        command += ["--problem", examples.ROOT / problem]
    command += cluster
    flags += ["--steps", steps, "--checkpoint-steps", steps, "--batch-size", batch_size]
    flags += ["--learning-rate", 0.01]
    example_runs.run([*command, "--", examples.ROOT / script, *flags], folder, **PLACES[place])
    rows = example_runs.pushes(folder)
    second_half = rows[len(rows) // 2 :]
    seconds = second_half[-1]["push_time"] - second_half[0]["push_time"]
    return sum(row["examples"] for row in second_half[1:]) / seconds


def table(results: dict[str, Any]) -> str:
    """Returns the table of the page: examples per second in each place, and their ratio."""
    rows = []
    for task, program in CASES:
        rates = [results["rates"][f"{task}; {program}; {place}"] for place in PLACES]
        ratios = [gpu / processor for gpu, processor in zip(*rates)]
        values = [text_tables.spread(place_rates, "{:,.0f}") for place_rates in rates]
        rows.append([task, program, *values, text_tables.spread(ratios, "{:.2f}")])
    return result_tables.table(["task", "program", *PLACES, "ratio"], rows, results["about"])


def measure(flags: argparse.Namespace, setting: Iterable[str]) -> None:
    """Measures all programs, --rounds times; leaves gpu.json and gpu.txt.

    setting: the versions. Ends with a line if there is no GPU. A second call goes on.
    """
    if not gpus():
        sys.exit("benchmarks: there is no GPU: nvidia-smi lists none")
    directory, others = example_runs.output_directory("Benchmarks"), idle.wait(flags.anyway)
    plan = [
        (f"{task}; {program}; {place}", task, program, place)
        for task, program in CASES
        for place in PLACES
    ]

    def measure_case(case: arguments.Case, _: object) -> float:
        with tempfile.TemporaryDirectory() as folder:
            _, task, program, place = case
            return measure_rate(task, program, place, pathlib.Path(folder))

    kept = directory / "measured-gpu.json"
    rates = sessions.measure_round_robin(
        text_tables.table_console(120), plan, flags.rounds, measure_case, kept=kept
    )
    name = ", ".join(nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader"))
    about = f"{name}; {text_tables.setting(*setting)}; {idle.words(others.share())}"
    results = {"rates": rates, "about": about}
    (directory / "gpu.json").write_text(json.dumps(results, indent=1) + "\n")
    result_tables.leave(directory / "gpu.txt", table(results))
    print(f"gpu.txt is in {directory}")
