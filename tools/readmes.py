"""Writes the parts of the README files that follow from the code.

    python tools/readmes.py          check; exits with 1 and the names of what is out of date
    python tools/readmes.py --fix    write them

Such a part stands between <!-- generated: NAME --> and <!-- end -->; NAME is a key of PARTS.
"""

import ast
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

import notebooks
import regions

ROOT = pathlib.Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: (\w+)(?: ([^ ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)

# The examples in the order in which to read them, in groups.
GROUPS = {
    "One worker": ["Non-Distributed-Setup", "Distributed-Setup"],
    "Asynchronous, with a parameter server": [
        *("HogWild", "Sparse-Embeddings", "DOWNPOUR-Easy", "DOWNPOUR", "ADAG", "DynSGD"),
        *("AEASGD", "AEAMSGD"),
    ],
    "Synchronous, with a parameter server": [
        *("Synchronous-SGD", "Synchronous-SGD-different-learning-rates", "SAGN"),
    ],
    "Without a parameter server": [
        *("Multiple-GPUs-Single-Machine", "Collective-AllReduce", "Ring-AllReduce"),
        "Horovod-RingAllReduce",
    ],
    "A model in several places": ["Model-Parallelism"],
    "TensorFlow 2's own parameter servers": ["Parameter-Server-Strategy"],
    "In operation": ["Operations/Train-and-Evaluate", "Operations/Fault-Tolerance"],
    "Measurements": [
        "Measurements/" + name
        for name in ("Compare", "Stragglers", "Late-Workers", "One-Step", "Messages", "Packing")
        + ("Ring-Bandwidth", "Pipeline")
    ],
    "Beyond one machine": [
        "Beyond-One-Machine/" + name
        for name in ("Spark-Cluster", "TensorFlowOnSpark", "Parallel-Experiments", "SSH", "Slurm")
        + ("Kubernetes", "Ray")
    ],
}
ORDER = sum(GROUPS.values(), [])
# The pages of examples, which have the same sections in the same order.
EXAMPLES = [
    name for group in list(GROUPS)[: list(GROUPS).index("In operation")] for name in GROUPS[group]
]
MEASURED = [*EXAMPLES, "Synchronous-SGD/run_optimizer.sh", "Operations/Train-and-Evaluate"]
SECTIONS = (
    *("Why", "The algorithm", "What changes", "When to use it, and when not", "What it costs"),
    *("Run it", "Flags", "Result", "Pitfalls", "Verified by", "Three things to try"),
    *("Notebook", "References"),
)
FOLDED = ("In operation", "Measurements", "Beyond one machine")  # on the root page


def script(folder):
    """The main script of a folder: the folder's name in snake case, or the one that has a kind."""
    named = folder / (folder.name.replace("-", "_").lower() + ".py")
    if named.exists():
        return named
    return next(path for path in sorted(folder.glob("*.py")) if field(path, "Kind"))


def docstring(path):
    return ast.get_docstring(ast.parse(path.read_text()))


def field(path, name):
    """What the docstring says after `name:`, also on indented lines below it, or an empty text."""
    found = re.search(r"^%s: +(.+(?:\n {15}\S.*)*)$" % name, docstring(path), re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


# The terms of the classic API, in an order in which each follows from those before it.
GLOSSARY = {
    "ClusterSpec": "The jobs of a cluster and the addresses of their tasks.",
    "Server": (
        "The server of one task, in its process: sessions connect to it, it runs the parts of "
        "their graphs that are placed on it, and it exchanges tensors with the other tasks' "
        "servers."
    ),
    "Coordinator": (
        "Ends several threads together: one asks to stop, or fails, the others look at "
        "`should_stop()`, and `join()` waits for them and raises what the first that failed "
        "raised."
    ),
    "Scaffold": (
        "The parts that a session needs to begin: initial ops, ops that tell whether the model "
        "is ready, a Saver. What is not given gets a default; then the graph is finalized."
    ),
    "SessionManager": (
        "Makes a session whose model is ready: the chief's restores a checkpoint or runs the "
        "initial op; the others' waits until that is done (it looks every 30 s by default)."
    ),
    "Supervisor": (
        "The older way: a SessionManager, a Coordinator, a Saver and threads that save and "
        "write summaries by the clock. Deprecated in favour of MonitoredTrainingSession."
    ),
    "SessionCreator": (
        "What a MonitoredSession calls for a session, at first and again after it was lost. "
        "ChiefSessionCreator makes or restores the model, WorkerSessionCreator waits for it."
    ),
    "MonitoredSession": (
        "A session with hooks around every `run`. It makes a new session when a call fails with "
        "Aborted or Unavailable (a lost ps), and takes OutOfRange for the end of its block."
    ),
    "MonitoredTrainingSession": (
        "A function that returns a MonitoredSession for a chief or a worker, with the hooks "
        "that save checkpoints, write summaries and count steps."
    ),
    "CheckpointSaverHook": (
        "Saves a checkpoint every so many steps or seconds, and one at the start and at the end."
    ),
    "SummarySaverHook": "Writes a summary for TensorBoard every so many steps or seconds.",
    "StepCounterHook": "Measures the steps a second, and writes them as a summary.",
    "LoggingTensorHook": "Prints the values of tensors every so many steps or seconds.",
    "StopAtStepHook": (
        "Asks the loop to stop at a global step, or after a number of steps. Several workers "
        "can overshoot it by some steps; `tf.count_up_to` cannot."
    ),
    "NanTensorHook": "Stops, or raises an error, when a tensor (the loss) is NaN.",
    "GlobalStepWaiterHook": "Holds a worker back until the global step has reached a number.",
    "FinalOpsHook": "Runs ops when the session ends, and keeps their values.",
    "FeedFnHook": "Calls a function for the `feed_dict` of every `run`.",
    "SyncReplicasOptimizer": (
        "Wraps an optimizer: gradients gather in accumulators on the ps, the chief applies the "
        "mean of so many, and a queue of tokens lets the workers go on."
    ),
}
METHODS = {"ClusterSpec": r"\.cluster_spec\("}  # what makes one without its name


def glossary(folder, _):
    """The terms of the classic API, each with the first line of ours that uses it."""
    rows = ["| `tf.train.` | what it is | see |", "| --- | --- | --- |"]
    for term, meaning in GLOSSARY.items():
        rows.append("| `%s` | %s | %s |" % (term, meaning, usage(term, folder)))
    return "\n".join(rows)


def usage(term, folder):
    """Links from a folder to the first line of an example, or the first notebook, with a term."""
    pattern = METHODS.get(term, r"tf\.train\.%s\b" % term)
    for name in ORDER:
        for path in sorted((ROOT / name).glob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line.split("  #")[0]) and "(" in line:
                    return "[%s](%s#L%d)" % (path.stem, os.path.relpath(path, folder), number)
    for path in notebooks.sources():
        if re.search(r"^[^#\n]*tf\.train\.%s\(" % term, path.read_text(), re.MULTILINE):
            link = os.path.relpath(path.with_suffix(".ipynb"), folder)
            return "[%s](%s)" % (notebooks.name_of(path), link)
    raise ValueError("neither a script nor a notebook uses %s" % term)


def table(_, __):
    """The examples in reading order, a table for each group."""
    parts = []
    for group, names in GROUPS.items():
        rows = ["| example | what it shows | paper |", "| --- | --- | --- |"]
        for name in names:
            what = docstring(script(ROOT / name)).splitlines()[0].split(": ", 1)[1]
            paper = field(script(ROOT / name), "Paper")
            rows.append("| [%s](%s/) | %s | %s |" % (name.split("/")[-1], name, what, paper))
        folded = "<details>\n<summary>%s</summary>\n\n%s\n\n</details>"
        form = folded if group in FOLDED else "**%s**\n\n%s"
        parts.append(form % (group, "\n".join(rows)))
    return "\n\n".join(parts)


COMPARE = ROOT / "Measurements" / "Compare" / "results.json"


def results(folder, _):
    """The results of Measurements/Compare: the median and range of the seeds."""
    return compared(folder, json.loads(COMPARE.read_text()))


def compare(folder, more):
    """The same, of this example, HogWild and one process; and of more: AEASGD,DynSGD.

    From the example's own compare.json, where it has one.
    """
    own = folder / "compare.json"
    runs = json.loads((own if own.exists() else COMPARE).read_text())
    others = more.split(",") if more else []
    names = dict.fromkeys(("Non-Distributed-Setup", "HogWild", folder.name, *others))
    return compared(folder, {name: runs[name] for name in names})


def compared(folder, runs):
    rows = ["| example | test accuracy, % | test loss | seconds | mean staleness |"]
    rows.append("| --- | --- | --- | --- | --- |")

    def column(made, name, form, times=1):
        values = [times * run[name] for run in made]
        found = (statistics.median(values), min(values), max(values))
        return (form + " (" + form + " to " + form + ")") % found

    for name, made in runs.items():
        link = os.path.relpath(ROOT / name, folder)
        rows.append(
            "| %s | %s | %s | %s | %.2f |"
            % (
                "**%s**" % name if link == "." else "[%s](%s/)" % (name, link),
                *(column(made, "test_accuracy", "%.1f", 100),),
                *(column(made, "test_loss", "%.3f"), column(made, "wall_seconds", "%.1f")),
                statistics.median(run["staleness_mean"] for run in made),
            )
        )
    first = next(iter(runs.values()))
    rows += [
        "",
        "Median (range) of %d seeds; %d mini-batches of %d each."
        % (len(first), first[0]["steps"], first[0]["arguments"]["batch_size"]),
    ]
    return "\n".join(rows)


def late_workers(folder, more):
    """The results of Measurements/Late-Workers for this example, HogWild, and the example `more`.

    HogWild's are those with as many workers and at the same rate, or `all`.
    """
    path = ROOT / "Measurements" / "Late-Workers" / "results.json"
    rows = ["| workers | example | test loss | mean staleness | largest | late pushes |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    found = json.loads(path.read_text())
    for name, runs in found.items():
        workers, example = name.split(": ")
        here = more == "all" or "%s: %s" % (workers, folder.name) in found
        if example not in ("HogWild", folder.name, more) or not here:
            continue
        losses = [run["test_loss"] for run in runs if run["test_loss"] is not None]
        words = []
        if losses:
            middle = statistics.median(losses)
            words.append("%.3f (%.3f to %.3f)" % (middle, min(losses), max(losses)))
        if len(losses) < len(runs):
            words.append("%d of %d diverged" % (len(runs) - len(losses), len(runs)))
        rows.append(
            "| %s | %s | %s | %.2f | %d | %.0f%% |"
            % (
                *(workers, "**%s**" % example if example == folder.name else example),
                *("; ".join(words), statistics.median(run["staleness_mean"] for run in runs)),
                max(run["staleness_max"] for run in runs),
                100 * statistics.median(run["late"] for run in runs),
            )
        )
    rows += ["", "Median (range) of %d seed%s." % (len(runs), "s" * (len(runs) > 1))]
    return "\n".join(rows)


def text(folder, name):
    """The table that a measurement has printed, and left as a file."""
    return "```\n%s```" % (folder / name).read_text()


def links(folder, _):
    """Links to the previous and the next example in reading order."""
    place = ORDER.index(folder.relative_to(ROOT).as_posix())
    up = "../" * len(folder.relative_to(ROOT).parts)
    around = [
        (ORDER[place - 1], "Previous") if place else None,
        (ORDER[place + 1], "Next") if place + 1 < len(ORDER) else None,
    ]
    return " · ".join(
        "%s: [%s](%s%s/)" % (word, name, up, name) for name, word in filter(None, around)
    )


def diff(folder, neighbour):
    """What the example's own part changes in its neighbour's: the shared regions are folded.

    neighbour: a folder, or a script in one.
    """
    other = ROOT / neighbour if neighbour.endswith(".py") else script(ROOT / neighbour)
    lines = regions.difference(other, script(folder))
    changed = sum(line.startswith(("+", "-")) for line in lines) - 2
    return (
        "<details>\n<summary>The diff of the algorithm against %s: %d lines</summary>\n\n"
        "```diff\n%s\n```\n\n</details>" % (other.name, changed, "\n".join(lines))
    )


def flags(folder, _):
    """Returns the flags of the script, from its list all_flags, with the defaults above it."""
    rows = ["| flag | default | meaning |", "| --- | --- | --- |"]
    constants = {}
    for node in ast.walk(ast.parse(script(folder).read_text())):
        if isinstance(node, ast.Assign):
            constants.update(assigned(node))

    def value(node):
        if isinstance(node, ast.Name):
            node = constants[node.id]
        return ast.literal_eval(node)

    for entry in constants["all_flags"].elts:
        more = constants[entry.value.id].elts if isinstance(entry, ast.Starred) else [entry]
        for one in more:
            name, default, text = map(value, one.elts)
            rows.append("| `--%s` | %s | %s |" % (name, default, text))
    return "\n".join(rows)


def assigned(node):
    """Returns {name: its node} of an assignment, also of several names at once."""
    target = node.targets[0]
    if isinstance(target, ast.Name):
        return {target.id: node.value}
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(target.elts, node.value.elts)
        return {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return {}


def drills(folder, _):
    """The promises of Fault-Tolerance's drills, and what the committed runs have found."""
    run = [sys.executable, folder / "fault_tolerance.py", "--list"]
    listed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    with_, without = (
        json.loads((folder / name).read_text())
        for name in ("results.json", "without-recovery.json")
    )
    rows = [
        "| fault | promise | no update for | the task is away for | updates lost | made twice | "
        "accuracy at the end | without recovery |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, promise in (line.split(": ", 1) for line in listed.splitlines()):
        found, off = with_[name], without[name]
        kept = "**broken**: " + ", ".join(found["broken"]) if found["broken"] else "kept"
        rows.append(
            "| %s | %s: **%s** | %s | %s | %d | %d | %.1f%% | %s |"
            % (
                *(name, promise, kept, "%.1f s" % found["still"]),
                "" if found["away"] is None else "%.1f s" % found["away"],
                *(found["lost"], found["twice"], 100 * found["accuracy"]),
                ("%d lost" % off["lost"] if "lost" in off["broken"] else "")
                or ("the run ends" if "codes" in off["broken"] else "")
                or ("no update for %.0f s" % off["still"]),
            )
        )
    return "\n".join(rows)


TO_DO = "@@MEASURE@@"  # by tools/results.py; a test fails while this is on a page
# What a page reports of its runs: a name in results.json, its words, and how many of its unit.
REPORTED = {
    "test_accuracy": ("test accuracy, %", "%.1f", 100),
    "test_loss": ("test loss", "%.3f", 1),
    "seconds": ("the whole run, s", "%.0f", 1),
    "training_seconds": ("of these, first to last update, s", "%.1f", 1),
    "rate": ("updates per second", "%.0f", 1),
    "staleness": ("mean staleness of a push", "%.2f", 1),
    "bytes": ("KB that one update moves", "%.1f", 1e-3),
    "wait_seconds": ("from the gradient to its arrival, ms", "%.2f", 1e3),
}


def measured_runs(folder, launcher):
    """results.json of a run.sh: of run_optimizer.sh it is results_optimizer.json."""
    name = (launcher or "run.sh").replace("run", "results").replace(".sh", ".json")
    return json.loads((folder / name).read_text()) if (folder / name).exists() else None


def result(folder, launcher):
    """The median and range of the runs that tools/results.py has made."""
    found = measured_runs(folder, launcher)
    if not found:
        return TO_DO
    rows = ["| %d runs | median | range |" % len(found["runs"]), "| --- | --- | --- |"]
    for run in found["runs"]:
        run["rate"] = run["updates"] / run["training_seconds"]
    for name, (words, form, times) in REPORTED.items():
        values = [times * run[name] for run in found["runs"] if name in run]
        if any(values):
            row = (statistics.median(values), min(values), max(values))
            middle, low, high = (form % each for each in row)
            rows.append("| %s | %s | %s to %s |" % (words, middle, low, high))
    rows += [
        "",
        "`%s` with S from 0 to %d, on %s: TensorFlow %s, Python %s, %d cores (%s), load %.1f."
        % (
            *(found["command"], len(found["runs"]) - 1, found["date"]),
            *(found["versions"]["tensorflow"], found["versions"]["python"]),
            *(found["cores"], found["machine"], found["load"]),
        ),
    ]
    return "\n".join(rows)


def output(folder, launcher):
    """What the first of these runs has printed."""
    found = measured_runs(folder, launcher)
    return "```\n%s\n```" % "\n".join(found["output"]) if found else TO_DO


def vocabulary(folder, _):
    """What an update of Sparse-Embeddings moves against the number of words: vocabulary.json."""
    rows = [
        "| different words | pairs in a mini-batch | rows that it touches | an update moves, KB | "
        "with whole tables, MB | times as much | rows also touched by the next mini-batch |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in json.loads((folder / "vocabulary.json").read_text()):
        moved, whole = each["bytes"] / 1e3, each["whole_bytes"] / 1e6
        rows.append(
            "| %s | %d | %.0f | %.0f | %s | %s | %.0f%% |"
            % (
                *("{:,}".format(each["words"]), each["batch_size"], each["rows"], moved),
                *("{:,.1f}".format(whole), "{:,.0f}".format(1e3 * whole / moved)),
                100 * each["shared"],
            )
        )
    return "\n".join(rows)


def rates(folder, which):
    """A table of rates.json, which the script rates.py beside the page makes: ways, or alone."""
    code = (
        "import json, rates, sys; "
        "print(rates.tables(json.load(open('rates.json')))[sys.argv[1]], end='')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, which], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def compare_rates(folder, _):
    """The table of compare_rates.json, as the script compare_rates.py beside the page prints it."""
    code = (
        "import json, compare_rates; "
        "print(compare_rates.table(json.load(open('compare_rates.json'))))"
    )
    run = [sys.executable, "-c", code]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, check=True).stdout[:-1]


def spread(values):
    """A median and its range."""
    return "%.1f (%.1f to %.1f)" % (statistics.median(values), min(values), max(values))


def kills(folder, _):
    """What the runs of kills.py have found: kills.json."""
    runs = json.loads((folder / "kills.json").read_text())
    rows = ["| killed | new tasks after, s | the next update after, s |", "| --- | --- | --- |"]
    for victim in runs[0]["kills"]:
        tasks, update = (
            spread([run["kills"][victim][key] for run in runs])
            for key in ("tasks_after", "update_after")
        )
        rows.append("| %s | %s | %s |" % (victim, tasks, update))
    loads = [run["load"] for run in runs]
    rows += [
        "",
        "Median (and range) of %d runs on %s; %d cores, with a load of %.0f to %.0f."
        % (len(runs), runs[-1]["date"], runs[0]["cores"], min(loads), max(loads)),
    ]
    return "\n".join(rows)


def batch_sizes(folder, _):
    """What the run of batch_sizes.py has found: batch-sizes.json."""
    found = json.loads((folder / "batch-sizes.json").read_text())
    names = [rule["name"] for rule in found["rules"]]
    rows = ["| batch | updates | error, %%: %s |" % " | ".join(names), "| --- " * 5 + "|"]
    for batch in map(str, found["batches"]):
        errors = [[100 * error for error in rule["errors"][batch]] for rule in found["rules"]]
        updates = found["examples"] // int(batch)
        rows.append("| %s | %d | %s |" % (batch, updates, " | ".join(map(spread, errors))))
    numbers = [found[name] for name in ("seeds", "examples", "lr", "command", "date", "tensorflow")]
    rows += [
        "",
        "Median (and range) of %d seeds, each after %d examples; lr = %g, and k is the "
        "batch divided by %d. `%s` on %s, TensorFlow %s."
        % (*numbers[:3], found["batches"][0], *numbers[3:]),
    ]
    return "\n".join(rows)


def retries(folder, _):
    """What the runs of retries.py have found: retries.json."""
    runs = json.loads((folder / "retries.json").read_text())
    rows = ["| %d runs of %d updates | median | range |" % (len(runs), runs[0]["scheduled"])]
    rows.append("| --- | --- | --- |")
    for name, words, form, times in (
        ("more", "updates made, less those scheduled", "%d", 1),
        ("without_a_row", "updates without a row in the metrics", "%d", 1),
        ("test_accuracy", "test accuracy, %", "%.1f", 100),
    ):
        values = [times * run[name] for run in runs]
        found = (form % each for each in (statistics.median(values), min(values), max(values)))
        rows.append("| %s | %s | %s to %s |" % (words, *found))
    back = sorted(run["back_after_seconds"] for run in runs if run["back_after_seconds"])
    form = (
        "In %d of the runs the killed worker took part again before the end, %s s after the kill."
    )
    rows += ["", form % (len(back), ", ".join("%.1f" % each for each in back))]
    return "\n".join(rows)


def measured(folder, _):
    """What the run of measure.py has found: measured.json."""
    found = json.loads((folder / "measured.json").read_text())
    rows = ["| the 2×2 grid | seconds |", "| --- | --- |"]
    rows += ["| %s | %s |" % (way, spread(each)) for way, each in found["seconds"].items()]
    n = len(next(iter(found["seconds"].values())))
    rows += [
        "",
        "Median (and range) of %d runs on %s; %d cores, with a load of %.0f."
        % (n, found["date"], found["cores"], found["load"]),
    ]
    return "\n".join(rows)


def start_up(folder, _):
    """What the run of start_up.py has found: start_up.json."""
    found = json.loads((folder / "start_up.json").read_text())
    rows = ["| engine | to the first update, s | from the last update to the end, s |"]
    rows.append("| --- | --- | --- |")
    for engine, each in found["engines"].items():
        name = engine if engine == "tfrun" else "[%s](%s/)" % (engine, engine)
        rows.append("| %s | %s | %s |" % (name, spread(each["first"]), spread(each["end"])))
    n = len(next(iter(found["engines"].values()))["first"])
    runs = "Median (and range) of %d runs" % n if n > 1 else "One run"
    versions = ", ".join(
        each if name in found["engines"] else "%s %s" % (name, each)
        for name, each in found["versions"].items()
    )
    rows += [
        "",
        "%s on %s: HogWild with %d updates, 1 ps and 2 workers; %d cores, with a load of "
        "%.0f. %s."
        % (runs, found["date"], found["steps"], found["cores"], found["load"], versions),
    ]
    return "\n".join(rows)


PARTS = {
    "table": table,
    "results": results,
    "compare": compare,
    "late_workers": late_workers,
    "glossary": glossary,
    "links": links,
    "text": text,
    "diff": diff,
    "flags": flags,
}
PARTS.update(
    result=result,
    output=output,
    drills=drills,
    rates=rates,
    batch_sizes=batch_sizes,
    vocabulary=vocabulary,
    compare_rates=compare_rates,
    kills=kills,
    retries=retries,
    measured=measured,
    start_up=start_up,
)


def updated(path):
    """The text of a README with its generated parts as they should be."""

    def part(found):
        return "%s%s\n%s" % (found[1], PARTS[found[2]](path.parent, found[3]), found[4])

    return PART.sub(part, path.read_text())


def files():
    """All pages of the project."""
    return regions.tracked("*.md")


def main():
    stale = [path for path in files() if updated(path) != path.read_text()]
    if "--fix" in sys.argv:
        for path in stale:
            path.write_text(updated(path))
    for path in stale:
        print(
            ("written: " if "--fix" in sys.argv else "out of date: ") + str(path.relative_to(ROOT))
        )
    return bool(stale) and "--fix" not in sys.argv


if __name__ == "__main__":
    sys.exit(main())
