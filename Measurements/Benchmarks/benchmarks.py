"""Benchmarks: mini-batches per second of the examples beside TensorFlow's strategies and PyTorch.

All programs train the same two models with two workers on this machine, by turns, one compute
thread a process. A ratio compares two programs, and its name says how often each of them talks.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import gpu
import numpy as np
from lab import examples
from lab.measure import arguments, charts, example_runs, idle, sessions, text_tables
from lab.pages import result_tables
from rich.console import Console
from rich.table import Table

PEERS_SCRIPT = pathlib.Path(__file__).resolve().with_name("peers.py")
# name: (layers, batch size, what a program's steps are multiplied by)
MODELS = {"digits": ([64, 128, 64, 10], 32, 1), "wide": ([784, 512, 512, 10], 100, 0.2)}
# What stands in an example: its hidden layers, and what takes their place.
WIDE_LAYERS = (
    'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),',
    'keras.layers.Dense(512, "relu"),\n            keras.layers.Dense(512, "relu"),',
)
PS, ALL_REDUCE = ["--ps", "1", "--workers", "2"], ["--workers", "2"]
STRATEGY, ONE_WORKER = ["--chief", *PS], ["--workers", "1"]
ONE_PROCESS, TWO_PROCESSES = "Non-Distributed-Setup", "two of Non-Distributed-Setup that never talk"
# In seconds: from the command to the first push of the last worker, and what both wait for.
START_UP, IMPORT = "start of HogWild, seconds", "import of TensorFlow, seconds"
# What leaves rate.json: the updates per second from the barrier "start" to the last update.
TIMING = [
    (
        "            saved_step = int(pulled[1])",
        "            metrics.began = time.monotonic()\n            saved_step = int(pulled[1])",
    ),
    (
        '        if metrics.is_chief:\n            wait_until(lambda: ps.report("done")',
        "        rate = flags.steps / (time.monotonic() - metrics.began)\n"
        "        with open(f'{metrics.directory}/rate.json', 'w') as file:\n"
        "            json.dump(rate, file)\n"
        '        if metrics.is_chief:\n            wait_until(lambda: ps.report("done")',
    ),
]
NO_OBSERVATION = [
    *TIMING,
    (
        "            row = push_row(pull_time, version, loss, reply, flags)\n"
        "            tf.numpy_function(metrics.push, [row], [])\n",
        "",
    ),
    ("if metrics.is_chief and metrics.step >=", "if False and metrics.step >="),  # no test
]
# The same of Parameter-Server-Strategy, from the end of the first closure.
NO_OBSERVATION_OF_CLOSURES = [
    ("written.append(tf.stack(push_row(update, step, flags)))", "written.append(update.push)"),
    (
        'tf.pad(tf.stack(written), [[0, 0], [0, 1]], constant_values=tf.cast(rank, "float64"))',
        "None",
    ),
    (
        "        if rows is None:",
        "        chief.began = getattr(chief, 'began', time.monotonic())\n        if rows is None:",
    ),
    (
        "    coordinator.join()\n",
        "    coordinator.join()\n"
        "    rate = (flags.steps - flags.closure_steps) / (time.monotonic() - chief.began)\n"
        "    with open(f'{chief.directory}/rate.json', 'w') as file:\n"
        "        json.dump(rate, file)\n",
    ),
]
TIMED_HOGWILD, UNOBSERVED_HOGWILD = "HogWild, timed", "HogWild, timed, without rows and tests"
UNOBSERVED_STRATEGY = "Parameter-Server-Strategy, without rows and tests (10)"
# An example: (its folder, changes of its script, tfrun's flags, steps on digits, its own flags).
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "HogWild (1 update a call)": ("HogWild", [], PS, 2000, "--updates-per-call", 1),
    "HogWild (10)": ("HogWild", [], PS, 4000),
    "Synchronous-SGD (10 steps a call)": ("Synchronous-SGD", [], PS, 1500),
    "DOWNPOUR-Easy (a push every 10 steps)": ("DOWNPOUR-Easy", [], PS, 1500),
    "Collective-AllReduce (10 steps a call)": ("Collective-AllReduce", [], ALL_REDUCE, 2000),
    "Ring-AllReduce (10)": ("Ring-AllReduce", [], ALL_REDUCE, 5000),
    "Parameter-Server-Strategy (1 a closure)": (
        "Parameter-Server-Strategy",
        [],
        STRATEGY,
        800,
        "--closure-steps",
        1,
    ),
    "Parameter-Server-Strategy (10)": ("Parameter-Server-Strategy", [], STRATEGY, 2000),
    ONE_PROCESS: ("Non-Distributed-Setup", [], ONE_WORKER, 15000),
    TIMED_HOGWILD: ("HogWild", TIMING, PS, 4000),
    UNOBSERVED_HOGWILD: ("HogWild", NO_OBSERVATION, PS, 4000),
    UNOBSERVED_STRATEGY: ("Parameter-Server-Strategy", NO_OBSERVATION_OF_CLOSURES, STRATEGY, 2000),
}


class Peer(NamedTuple):
    """A program that is measured beside the examples."""

    name: str  # as peers.py has it
    together: int  # steps in one call, or between two averages
    cluster: Sequence[str]  # the flags of tfrun


PEERS = {
    "ParameterServerStrategy (1 a closure)": Peer("parameter-server", 1, STRATEGY),
    "ParameterServerStrategy (10)": Peer("parameter-server", 10, STRATEGY),
    "MultiWorkerMirroredStrategy (10 steps a call)": Peer("multi-worker", 10, ALL_REDUCE),
    "DDP": Peer("ddp", 1, ALL_REDUCE),
    "PyTorch, averaged every 10 steps": Peer("averaged", 10, ALL_REDUCE),
    "two of PyTorch that never talk": Peer("alone", 10, ALL_REDUCE),
}
PYTORCH_PEERS = list(PEERS)[3:]
# The forms in which a peer was measured, as peers.py knows them: the first one is compared.
FORMS = {
    "parameter-server": ["unrolled, vector", "unrolled, vector, without run()", "unrolled", "loop"],
    "multi-worker": ["loop", "unrolled", "unrolled, vector", "unrolled, vector, one thread"],
    "ddp": ["fused, views", "plain", "fused"],
    "averaged": ["plain", "fused", "fused, flat"],
    "alone": ["plain", "fused"],
}
FORM_WORDS = (
    "*Unrolled*: a graph has each step; *loop*: it has `tf.range`; *vector*: `w` is one variable; "
    "*fused*: the fused optimizer; *views*, *flat*: gradients, or parameters, are parts of one "
    "tensor."
)
# The ratios: (one program, the other).
RATIOS = [
    ("HogWild (1 update a call)", "ParameterServerStrategy (1 a closure)"),
    ("HogWild (10)", "ParameterServerStrategy (10)"),
    ("HogWild (10)", ONE_PROCESS),
    ("Synchronous-SGD (10 steps a call)", "DDP"),
    ("DOWNPOUR-Easy (a push every 10 steps)", "PyTorch, averaged every 10 steps"),
    ("DOWNPOUR-Easy (a push every 10 steps)", TWO_PROCESSES),
    ("Collective-AllReduce (10 steps a call)", "MultiWorkerMirroredStrategy (10 steps a call)"),
    ("Ring-AllReduce (10)", "DDP"),
    ("Parameter-Server-Strategy (1 a closure)", "ParameterServerStrategy (1 a closure)"),
    ("Parameter-Server-Strategy (10)", "ParameterServerStrategy (10)"),
    ("Parameter-Server-Strategy (10)", UNOBSERVED_STRATEGY),
    (UNOBSERVED_STRATEGY, "ParameterServerStrategy (10)"),
    (TWO_PROCESSES, "two of PyTorch that never talk"),
    (TIMED_HOGWILD, UNOBSERVED_HOGWILD),
    (START_UP, IMPORT),
]
PROGRAMS = [*EXAMPLES, *PEERS, TWO_PROCESSES]
PROGRAMS.remove(TIMED_HOGWILD)
SECONDS = 3  # that a peer is measured for
ONE_THREAD: dict[str, Any] = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}


def wide_data(folder: pathlib.Path) -> pathlib.Path:
    """A file of 784 random features and 10 classes."""
    random, path = np.random.RandomState(0), pathlib.Path(folder, "wide.npz")
    x, y = random.rand(1200, 784).astype("float32"), random.randint(0, 10, 1200)
    np.savez(path, x_train=x[:1000], y_train=y[:1000], x_test=x[1000:], y_test=y[1000:])
    return path


def run_example(name: str, model: str, folder: pathlib.Path, environment: dict[str, Any]) -> float:
    """Runs an example; returns the mini-batches per second of all its workers."""
    example, changes, cluster, steps, *flags = EXAMPLES[name]
    _, batch_size, share = MODELS[model]
    script = examples.main_script(example)
    flags += ["--steps", int(steps * share), "--batch-size", batch_size]
    if model != "digits":
        changes = [*changes, WIDE_LAYERS]
        flags += ["--dataset", wide_data(folder), "--learning-rate", 0.01]
    copy, directory = folder / script.name, folder / "run"
    copy.write_text(examples.replaced(script, changes))
    example_runs.run(["tfrun", *cluster, "--", copy, *flags], directory, **environment)
    if any("rate.json" in text for _, text in changes):
        return json.loads((directory / "rate.json").read_text())
    result = json.loads((directory / "result.json").read_text())
    return result["examples_per_second"] / batch_size


def run_twice(name: str, model: str, folder: pathlib.Path, environment: dict[str, Any]) -> float:
    """Runs an example of one process twice at once; returns the sum of both."""
    folders = [folder / "first", folder / "second"]
    for subfolder in folders:
        subfolder.mkdir()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        rates = pool.map(lambda folder: run_example(name, model, folder, environment), folders)
        return sum(rates)


def run_peer(
    name: str,
    model: str,
    folder: pathlib.Path,
    environment: dict[str, Any],
    form: str | None = None,
) -> float:
    """Runs a peer, in its fastest form or in this one; returns what run_example() does."""
    peer = PEERS[name]
    layers, batch_size, _ = MODELS[model]
    flags: list[object] = ["--layers", json.dumps(layers), "--batch-size", batch_size]
    flags += ["--together", peer.together]
    flags += ["--form", form or FORMS[peer.name][0], "--seconds", SECONDS]
    command = ["tfrun", *peer.cluster, "--", PEERS_SCRIPT, peer.name, *flags]
    example_runs.run(command, folder / "run", **environment)
    return json.loads((folder / "run" / "rate.json").read_text())


def measure_start_up(folder: pathlib.Path) -> float:
    """Returns the seconds from the command to the first push of HogWild's last worker."""
    began = time.time()
    script = examples.main_script("HogWild")
    example_runs.run(["tfrun", *PS, "--", script, "--steps", 200], folder / "run", **ONE_THREAD)
    first_pushes: dict[str, float] = {}
    for push in example_runs.pushes(folder / "run"):
        first_pushes.setdefault(push["task"], push["push_time"])
    return max(first_pushes.values()) - began


def measure_import() -> float:
    """Returns the seconds that a process takes which imports TensorFlow."""
    began = time.time()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
    return time.time() - began


def measure(name: str, model: str, environment: dict[str, Any]) -> float:
    """Returns the mini-batches per second of all workers of a program."""
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        if name == TWO_PROCESSES:
            return run_twice(ONE_PROCESS, model, folder, environment)
        if name == START_UP:
            return measure_start_up(folder)
        if name == IMPORT:
            return measure_import()
        if name in EXAMPLES:
            return run_example(name, model, folder, environment)
        return run_peer(name, model, folder, environment)


def ratios(results: dict[str, Any]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Returns {(one program, the other): {model: the ratio of each round}} of RATIOS."""
    ratios_of_pairs: dict[tuple[str, str], dict[str, list[float]]] = {}
    for program, other in RATIOS:
        rates, other_rates = results.get(program, {}), results.get(other, {})
        for model in MODELS:
            if rates.get(model) and other_rates.get(model):  # the rounds that both have
                values = [a / b for a, b in zip(rates[model], other_rates[model])]
                ratios_of_pairs.setdefault((program, other), {})[model] = values
    return ratios_of_pairs


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table: of each program the rates, and below them the ratios of the rounds."""
    table = text_tables.plain_table("", *MODELS)
    for name, rates in results.items():
        table.add_row(name, *(words(rates.get(model, [])) for model in MODELS))
    table.add_section()
    for pair, values in ratios(results).items():
        table.add_row(" ÷ ".join(pair), *(words(values.get(model, [])) for model in MODELS))
    return table


def words(values: Sequence[float]) -> str:
    """Returns the median of values, and their range."""
    is_large = values and statistics.median(values) >= 100
    return text_tables.spread(values, "{:,.0f}" if is_large else "{:.2f}")


def forms_table(results: dict[str, Any]) -> str:
    """Returns the table of the page: of each peer its forms, the fastest first, and their rates."""
    rows = [
        [name, form, words(rates)]
        for name, forms in results["rates"].items()
        for form, rates in sorted(forms.items(), key=lambda pair: -statistics.median(pair[1]))
    ]
    return result_tables.table(
        ["peer", "form", "mini-batches per second"], rows, f"{FORM_WORDS}\n\n{results['about']}"
    )


def measure_forms(names: Iterable[str], flags: argparse.Namespace) -> None:
    """Measures each form of these peers by turns; leaves forms.json and forms.txt."""
    directory = example_runs.output_directory("Benchmarks")
    results: dict[str, dict[str, list[float]]] = {}
    others = idle.wait(flags.anyway)
    plan = [(f"{name}: {form}", name, form) for name in names for form in FORMS[PEERS[name].name]]

    def rate(case: arguments.Case, _: object) -> float:
        _, name, form = case
        with tempfile.TemporaryDirectory() as folder:
            return run_peer(name, "digits", pathlib.Path(folder), ONE_THREAD, form)

    kept = directory / "measured-forms.json"
    rates = sessions.measure_round_robin(text_tables.table_console(120), plan, 3, rate, kept=kept)
    for key, name, form in plan:
        results.setdefault(name, {})[form] = rates[key]
    about = f"{text_tables.setting(*versions())}; {idle.words(others.share())}"
    document = {"rates": results, "about": about}
    (directory / "forms.json").write_text(json.dumps(document, indent=1) + "\n")
    result_tables.leave(directory / "forms.txt", forms_table(document))
    print(f"forms.txt is in {directory}")


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the ratios of rates, a dot for each round, a bar at the median."""
    pairs = {
        (program, other): rows
        for (program, other), rows in ratios(results).items()
        if program in PROGRAMS
    }
    figure, axes = charts.subplots(1.1 + 0.42 * len(pairs))
    colours = dict(zip(MODELS, charts.COLOURS))
    for y, models in enumerate(pairs.values()):
        for number, (model, values) in enumerate(models.items()):
            height, colour = [y + 0.4 * number - 0.2], colours[model]
            axes.plot(values, height * len(values), ".", color=colour)
            axes.plot(statistics.median(values), height, "|", color=colour, markersize=12)
    for model, colour in colours.items():
        axes.plot([], [], ".", color=colour, label=model)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    axes.minorticks_off()
    axes.set_yticks(range(len(pairs)), [" ÷\n".join(pair) for pair in pairs], size=8)
    axes.invert_yaxis()
    axes.set_xlabel("ratio of mini-batches per second")
    axes.legend(frameon=False)
    charts.save(figure, path, source)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.number("--rounds", 5, "in which each program runs once")
    parser.add_argument("--quick", action="store_true", help="one round, the smaller model only")
    parser.add_argument("--forms", action="store_true", help="the forms of the peers instead")
    parser.add_argument("--gpu", action="store_true", help="examples on a GPU and a CPU instead")
    parser.redraw(__file__)
    programs = [*EXAMPLES, *PEERS, TWO_PROCESSES, START_UP, IMPORT]
    if not importlib.util.find_spec("torch"):
        programs = [name for name in programs if name not in PYTORCH_PEERS]
    flags, cases = parser.only([(name,) for name in programs])
    if flags.forms:
        measure_forms([name for (name,) in cases if name in PEERS], flags)
        return
    if flags.gpu:
        gpu.measure(flags, versions())
        return

    def measure_all(console: Console, directory: pathlib.Path) -> tuple[dict[str, Any], str]:
        models = list(MODELS)[:1] if flags.quick else list(MODELS)
        rounds = 1 if flags.quick else flags.rounds
        plan = [
            (f"{name}; {model}", name, model)
            for model in models
            for (name,) in cases
            if model == "digits" or name not in (START_UP, IMPORT)
        ]
        kept = directory / "measured.json"  # what an earlier session has measured
        rates = sessions.measure_round_robin(
            console, plan, rounds, lambda case, _: measure(case[1], case[2], ONE_THREAD), kept=kept
        )
        results: dict[str, dict[str, list[float]]] = {}
        for key, name, model in plan:
            results.setdefault(name, {})[model] = rates[key]
        setting = text_tables.setting(*versions())
        return results, f"mini-batches per second, {rounds} rounds, medians (range); {setting}"

    report = sessions.Report(script=__file__, flags=flags, width=120, table_of=table_of, draw=draw)
    report.make(measure_all)


def versions() -> list[str]:
    """Returns the names and versions of what is compared."""
    by_name = {
        distribution.name.lower().replace("_", "-"): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    names = ["tensorflow", "tensorflow-cpu", "torch"]
    return [f"{name} {by_name[name]}" for name in names if name in by_name]


if __name__ == "__main__":
    main()
