"""Slow-Network: the examples on links of 10 Mbit/s to 1 Gbit/s, with one and two ps.

Each task has a host of its own: a network namespace whose link to a switch has that rate, both
ways. The scripts are the examples' own, with the changes that a case names.

Kind:          driver
Run:           bash run.sh
"""

import math
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import hosts
from lab import examples
from lab.measure import arguments, charts, example_runs, forked, sessions, text_tables
from rich.table import Table

LAYERS = 'keras.layers.Dense(128, "relu"),\n            keras.layers.Dense(64, "relu"),'
WIDE_MODEL = [(LAYERS, '*[keras.layers.Dense(1024, "relu") for _ in range(3)],')]
DEEP_MODEL = [(LAYERS, '*[keras.layers.Dense(512, "relu") for _ in range(8)],')]
HALF_PRECISION = [  # both ways, w stays in single precision
    ("return version, w.read_value()", "return version, tf.cast(w.read_value(), tf.float16)"),
    (
        "tf.ensure_shape(tf.concat(w, 0)",
        "tf.ensure_shape(tf.cast(tf.concat(w, 0), tf.float32)",
    ),
    ("def push(delta: VECTOR):", "def push(delta: tf.TensorSpec([None], tf.float16)):"),
    ("w.assign_sub(delta)", "w.assign_sub(tf.cast(delta, tf.float32))"),
    (
        "ps.push(flags.learning_rate * g)",
        "ps.push(tf.cast(flags.learning_rate * g, tf.float16))",
    ),
]
MEAN_OF_W = [("version, a / flags.local_steps)", "version, a)")]
LATENCY = 0.02  # seconds: of a message there and one back
CALL = "control_dependencies([ready])"  # before each call of a ps
DELAY = (
    "STEPS, BATCH_SIZE,",
    "def delayed(number, seconds):\n"
    "    return tf.numpy_function(lambda x: time.sleep(seconds) or x, [number], number.dtype)\n"
    "\n\nSTEPS, BATCH_SIZE,",
)
LATE_PULL = [(CALL, CALL.replace("ready", f"delayed(ready, {LATENCY})")), DELAY]
COMPRESSED = "Further-Algorithms/Compressed-AllReduce"
LARGE_BATCHES, BUCKETS = ["--batch-size", 8192, "--steps-per-call", 1], ["--buckets", 4]


class Program(NamedTuple):
    """What is trained."""

    example: str
    ps: int  # how many; 0 where there is none
    flags: Sequence[object]
    changes: Sequence[tuple[str, str]]  # of the example's script


PROGRAMS = {
    "HogWild": Program("HogWild", 1, [], []),
    "HogWild, 2 ps": Program("HogWild", 2, [], []),
    "HogWild, sent as float16": Program("HogWild", 1, [], HALF_PRECISION),
    "HogWild, a pull 20 ms later": Program("HogWild", 1, [], LATE_PULL),
    "Synchronous-SGD": Program("Synchronous-SGD", 1, [], []),
    "Synchronous-SGD, 2 ps": Program("Synchronous-SGD", 2, [], []),
    "HogWild, 4 workers": Program("HogWild", 1, [], []),
    "HogWild, 4 workers, 2 ps": Program("HogWild", 2, [], []),
    "Ring-AllReduce": Program("Ring-AllReduce", 0, [], []),
    "Ring-AllReduce, 4 workers": Program("Ring-AllReduce", 0, [], []),
    "Ring-AllReduce, batches of 8192": Program("Ring-AllReduce", 0, LARGE_BATCHES, []),
    "Ring-AllReduce, batches of 8192, 4 buckets": Program(
        "Ring-AllReduce", 0, [*LARGE_BATCHES, *BUCKETS], []
    ),
    "Collective-AllReduce": Program("Collective-AllReduce", 0, [], []),
    "Collective-AllReduce, not packed": Program(
        "Collective-AllReduce", 0, ["--bytes-per-pack", 1], []
    ),
    "DOWNPOUR-Easy, T = 10": Program("DOWNPOUR-Easy", 1, ["--local-steps", 10], []),
    "DOWNPOUR-Easy, T = 50": Program("DOWNPOUR-Easy", 1, ["--local-steps", 50], []),
    "DOWNPOUR-Easy, T = 10, a pull 20 ms later": Program(
        "DOWNPOUR-Easy",
        1,
        ["--local-steps", 10],
        LATE_PULL,
    ),
    "SAGN, T = 10": Program("SAGN", 1, ["--local-steps", 10], []),
    "SAGN, T = 10, lr 0.5": Program("SAGN", 1, ["--local-steps", 10, "--learning-rate", 0.5], []),
    "SAGN, T = 10, lr 1": Program("SAGN", 1, ["--local-steps", 10, "--learning-rate", 1], []),
    "SAGN, T = 10, mean of the w_k": Program("SAGN", 1, ["--local-steps", 10], MEAN_OF_W),
    "AEASGD, T = 10": Program("AEASGD", 1, ["--local-steps", 10], []),
    "AEASGD, T = 10, alpha 0.45": Program("AEASGD", 1, ["--local-steps", 10, "--rho", 4.5], []),
    "Compressed-AllReduce, rank 1": Program(COMPRESSED, 0, ["--rank", 1], []),
    "Compressed-AllReduce, top 1%": Program(
        COMPRESSED, 0, ["--compress", "top-k", "--top", 0.01], []
    ),
    "Compressed-AllReduce, sign": Program(COMPRESSED, 0, ["--compress", "sign"], []),
}
SYNCHRONOUS_EXAMPLES = (
    "Synchronous-SGD",
    "SAGN",
    "Ring-AllReduce",
    "Collective-AllReduce",
    COMPRESSED,
)
COMPARED = [
    name for name in PROGRAMS if "T =" not in name and "," not in name.replace(", 2 ps", "")
]
WITH_LOCAL_STEPS = [name for name in PROGRAMS if "T =" in name and "later" not in name]
WITH_FEW_BYTES = [*WITH_LOCAL_STEPS, *(name for name in PROGRAMS if name.startswith("Compressed"))]
WITH_LATE_PULLS = [name for name in PROGRAMS if "later" in name]
WITH_FOUR_WORKERS = [name for name in PROGRAMS if "4 workers" in name]
WITH_LARGE_BATCHES = [name for name in PROGRAMS if "batches of" in name]
SMALL, LARGE, EIGHT_LAYERS = "69 KB", "8.7 MB", "7.5 MB"
MODELS = {SMALL: [], LARGE: WIDE_MODEL, EIGHT_LAYERS: DEEP_MODEL}
HOSTS = 6  # 2 ps, 4 workers


def all_cases() -> list[arguments.Case]:
    """Returns [(what a case is called, the program, the model, Mbit/s, mini-batches)]."""
    elsewhere = (*COMPARED, *WITH_LATE_PULLS, *WITH_LARGE_BATCHES)
    others = [name for name in PROGRAMS if name not in elsewhere]  # those with four workers, too
    cases = [
        (name, SMALL, 10, 2000 if name in WITH_FEW_BYTES else 120) for name in (*COMPARED, *others)
    ]
    cases += [(name, SMALL, 100, 1000) for name in (*COMPARED, *WITH_FOUR_WORKERS)]
    cases += [(name, SMALL, 1000, 3000) for name in COMPARED]
    cases += [(name, SMALL, 1000, 800) for name in WITH_LATE_PULLS]
    cases += [(name, LARGE, 100, 16) for name in COMPARED]
    cases += [(name, EIGHT_LAYERS, 100, 40) for name in WITH_LARGE_BATCHES]
    cases += [(name, LARGE, 1000, 60) for name in COMPARED]
    return [
        (f"{model}, {rate} Mbit/s: {name}", name, model, rate, n) for name, model, rate, n in cases
    ]


ONE_PS = [name for name in COMPARED if "2 ps" not in name]
QUICK = [f"{SMALL}, {rate} Mbit/s: {name}" for rate in (10, 100, 1000) for name in ONE_PS]


def local_steps(name: str) -> int:
    """Returns the mini-batches of an update of one worker."""
    return int(name.split("T = ")[1].split(",")[0]) if "T = " in name else 1


def workers(name: str) -> int:
    """Returns how many workers a program has."""
    return 4 if name in WITH_FOUR_WORKERS else 2


def measure(
    all_hosts: Sequence[tuple[str, pathlib.Path]], case: arguments.Case, repeat: int
) -> dict[str, Any]:
    """Trains once; returns the numbers of the run."""
    _, name, model, rate, batches = case
    program = PROGRAMS[name]
    script, n = examples.main_script(program.example), workers(name)
    batches_per_update = local_steps(name)  # of w
    if program.example in SYNCHRONOUS_EXAMPLES:
        batches_per_update *= n
    updates = max(10, batches // batches_per_update)
    flags = ["--steps", updates, "--seed", repeat, *program.flags]
    jobs = {"ps": program.ps, "worker": n} if program.ps else {"worker": n}
    hosts.limit(len(all_hosts), rate)
    changes = [*program.changes, *MODELS[model]]

    def sample() -> list[int]:
        return [number for k in range(program.ps + n) for number in hosts.bytes_moved(k)]

    with examples.changed_copy(script, changes) as (copy, directory):
        trained, samples = forked.train(copy, jobs, flags, directory, sample, all_hosts)
        return summarize_run(trained, samples, directory, batches_per_update, rate)


def summarize_run(
    trained: bool,
    samples: list[tuple[float, Any]],
    directory: pathlib.Path,
    batches: float,
    rate: float,
) -> dict[str, Any]:
    """Returns the numbers of a run that has ended; batches: mini-batches of an update of w."""
    pushes, tests = example_runs.pushes(directory), example_runs.test_rows(directory)
    began, ended, updates = forked.window(pushes)
    numbers = range(len(samples[0][1]))
    bits = [
        8 * forked.per_second([(time, counts[i]) for time, counts in samples], began, ended)
        for i in numbers
    ]
    has_loss = trained and math.isfinite(tests[-1]["test_loss"])
    return {
        "batches_per_second": updates * batches,
        # The fuller direction of each host's link, to its rate: the ps first.
        "links": [max(bits[i : i + 2]) / rate / 1e6 for i in numbers[::2]],
        "test_loss": tests[-1]["test_loss"] if has_loss else None,  # None: it has diverged
    }


def parts(case: str) -> tuple[str, str]:
    """Returns (the model and the link in words, the program) of a case's name."""
    setting, program = case.split(": ", 1)
    return setting, program


def link_shares(runs: list[dict[str, Any]], ps: int) -> list[str]:
    """Returns how full the fullest link of the ps is, and that of the workers: medians."""
    shares_of_ps = [max(run["links"][:ps], default=0) for run in runs]
    shares_of_workers = [max(run["links"][ps:], default=0) for run in runs]
    return [
        f"{statistics.median(shares):.0%}" if any(shares) else ""
        for shares in (shares_of_ps, shares_of_workers)
    ]


def table_of(results: dict[str, Any]) -> Table:
    """Returns the table, a section for each model and link."""
    table = text_tables.plain_table(
        "model, link", "program", "mini-batches/s", "ps' link", "workers'", "test loss"
    )
    previous = ""
    for case, runs in results.items():
        setting, name = parts(case)
        if previous != setting:
            table.add_section()
        rates = [run["batches_per_second"] for run in runs]
        loss = ""
        if name in WITH_LOCAL_STEPS:
            loss = text_tables.spread([run["test_loss"] for run in runs], "{:.2f}") or "diverged"
        table.add_row(
            setting if previous != setting else "",
            name,
            text_tables.spread(rates, "{:.0f}" if statistics.median(rates) >= 50 else "{:.2f}"),
            *link_shares(runs, PROGRAMS[name].ps),
            loss,
        )
        previous = setting
    return table


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the rates of the programs without local steps, for each model against the link.

    Results of the overlap alone have one link: they become bars.
    """
    models = [model for model in (SMALL, LARGE) if any(case.startswith(model) for case in results)]
    if not models:
        rates = {
            parts(case)[1].replace(", ", "\n"): [run["batches_per_second"] for run in runs]
            for case, runs in results.items()
        }
        colours = dict.fromkeys(rates, "C0")
        title = f"Model of {EIGHT_LAYERS}, 100 Mbit/s"
        label = "mini-batches per second"
        charts.bars(title, label, rates, colours, "{:.2f}".format, path, source)
        return
    figure, axes = charts.subplots(3.6, 1, len(models), squeeze=False, sharex=True)
    links = {case: int(parts(case)[0].split()[2]) for case in results}
    for model, panel in zip(models, axes[0]):
        measured = {link for case, link in links.items() if case.startswith(model)}
        for link in set(links.values()) - measured:
            style = {"transform": panel.get_xaxis_transform(), "rotation": 90, "color": "grey"}
            panel.text(link, 0.5, "not measured", ha="center", va="center", **style)
        for number, name in enumerate(COMPARED):
            rates_of_link = {
                links[case]: [run["batches_per_second"] for run in runs]
                for case, runs in results.items()
                if case.startswith(model) and parts(case)[1] == name
            }
            if not rates_of_link:
                continue
            medians = [statistics.median(rates) for rates in rates_of_link.values()]
            panel.plot(list(rates_of_link), medians, color=f"C{number}", linewidth=1, label=name)
            for link, rates_there in rates_of_link.items():
                panel.plot([link] * len(rates_there), rates_there, ".", color=f"C{number}")
        panel.set(xscale="log", xlabel="link, Mbit/s", title=f"model of {model}")
        panel.set_yscale("log", nonpositive="clip")
        for axis in panel.xaxis, panel.yaxis:
            axis.set_major_formatter("{x:,g}")
        panel.grid(alpha=0.25)
    axes[0][0].set_ylabel("mini-batches per second")
    handles = axes[0][0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    charts.save(figure, path, source)


def main() -> None:
    parser = arguments.Parser(__doc__)
    parser.full("all cases; without it few, once each")
    parser.redraw(__file__)
    flags, cases = parser.only(all_cases(), QUICK)
    all_hosts = []
    if not flags.redraw:
        try:
            hosts.enter()
            all_hosts = hosts.make(HOSTS)
        except hosts.Unavailable as error:
            print(f"slow_network: this machine cannot make slow links: {error}", file=sys.stderr)
            sys.exit(2)

    session = sessions.Session(
        flags=flags,
        cases=cases,
        examples=[PROGRAMS[name].example for _, name, *_ in cases],
        measure=lambda case, repeat: measure(all_hosts, case, repeat),
        words="2 workers and batches of 32, unless a row says otherwise",
    )
    report = sessions.Report(script=__file__, flags=flags, width=120, table_of=table_of, draw=draw)
    report.make(session.measure_all)


if __name__ == "__main__":
    main()
