"""Writes what the repository has measured as a script for the explorables: measured.js."""

import html
import json
import math
import re
import statistics

ALGORITHMS = {  # of the race
    "Non-Distributed-Setup": "one",
    "Ring-AllReduce": "ring",
    "Synchronous-SGD": "sync",
    "Synchronous-SGD, a backup": "backup",
    "Bounded-Staleness": "bounded",
    "HogWild": "async",
    "DynSGD": "dynsgd",
    "Gossip-SGD": "gossip",
    "DOWNPOUR-Easy": "alocal",
    "DOWNPOUR-Easy, T = 10": "alocal",
    "Local-SGD": "local",
}
EXAMPLES = {algorithm: name for name, algorithm in reversed(ALGORITHMS.items())}
COMPARED = {  # tasks of Compare, and what a button calls them
    "8 workers, CV 0.1": "8 workers, steady times",
    "8 workers, CV 1": "8 workers, varying times",
}
KB = 68.904  # the examples' w
LATE = "staleness_mean"


def median(values):
    """Returns the median of what is known, to four digits, or None."""
    known = [value for value in values if value is not None]
    return float(f"{statistics.median(known):.4g}") if known else None


def law(words):
    """Returns the race's settings of a law of times, by its name in a measurement."""
    if "one slow" in words:
        return {"cv": 0, "slow": 5}
    match = re.search(r"CV ([\d.]+)", words)
    return {"cv": float(match[1]) if match else 0 if "constant" in words else 1, "slow": 1}


def number(x):
    """Returns a number with three digits, as the race shows it."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def row(rate=None, staleness=None, more=None):
    """Returns what a preset says of an algorithm, as words; None is left out."""
    words = [] if rate is None else [f"{number(rate)}/s"]
    if staleness is not None:
        words.append(f"staleness {number(staleness)}")
    return ", ".join([*words, *filter(None, [more])])


def preset(page, name, state, rows, sentence=""):
    """Returns a button of the race. rows: {algorithm: words}; sentence: it follows the page."""
    sentence = sentence or (
        "measured what stands in the table's last column, for another problem (digits): "
        "compare gradients a second, and the order."
    )
    return {"page": page, "name": name, "state": state, "rows": rows, "said": sentence}


def scaling(results):
    """Returns the presets of Scaling, and the measured rates for each number of workers."""
    mean = round(
        1000 / median(r["batches_per_second"] for r in results["1 worker, constant: HogWild"]), 1
    )
    rows, rates = {}, {}
    for key, runs in results.items():
        where, example = key.split(": ", 1)
        if example not in ALGORITHMS or "lr" in where or "heavy" in where:
            continue
        rate, late = (median(r[what] for r in runs) for what in ("batches_per_second", LATE))
        rows.setdefault(where, {})[ALGORITHMS[example]] = row(rate, late)
        n, words = where.split(" ", 1)
        times = json.dumps(law(words), separators=(",", ":"))  # as JavaScript writes it
        rates.setdefault(times, {}).setdefault(ALGORITHMS[example], []).append([int(n), rate])
    shown = ["8 workers, constant", "16 workers, exponential", "8 workers, one slow"]
    for where in shown:
        state = {"n": int(where.split()[0]), **law(where), "ps": 0, "T": 10, "mean": mean}
        yield preset("Scaling", where, state, rows[where])
    yield mean, rates


def slow_network(results):
    """Returns the preset of Slow-Network: two workers whose w takes 55 ms over a link."""
    link, rows = "69 KB, 10 Mbit/s: ", {}
    for key, runs in results.items():
        if key.startswith(link) and key.removeprefix(link) in ALGORITHMS:
            rate = median(r["batches_per_second"] for r in runs)
            rows[ALGORITHMS[key.removeprefix(link)]] = row(rate)
    state = {"n": 2, "cv": 0, "slow": 1, "ps": round(KB * 8 / 10, 1), "T": 10, "mean": 1}
    return preset("Slow-Network", "2 workers, 10 Mbit/s", state, rows)


def same_staleness(results):
    """Returns the preset of Same-Staleness, and what both of its runs measured."""
    phrases = []
    for cv in (0, 1):
        runs = results[f"same rate: 8 workers, CV {cv}"]
        late, loss = (median(r[name] for r in runs) for name in (LATE, "test_loss"))
        phrases.append(f"CV {cv}: staleness {late:.3g}, test loss {loss:.2g}")
    state = {"n": 8, "cv": 0, "slow": 1, "ps": 0, "mean": 100, "rate": 0.25, "batch": 64}
    state["pick"] = "async"
    text = "; ".join(phrases)
    name = "8 workers, one rate"
    return preset("Same-Staleness", name, state, {"async": text}, f"measured: {text}.")


def compare(results):
    """Yields a preset for each law of Compare that has rows: seconds to 97% accuracy.

    As in Compare's tables, a run that fails or never arrives is later than any other, and a row
    without runs found no setting that trains.
    """
    for task, name in COMPARED.items():
        rows, taken = {}, []
        for example, algorithm in ALGORITHMS.items():
            keys = (f"{task}: {example}", f"{task}: Further-Algorithms/{example}")
            runs = next((results[key]["runs"] for key in keys if key in results), None)
            if runs is None:
                continue
            times = [(run.get("reached"), run.get("first_look")) for run in runs]
            times = sorted((math.inf if at is None else at, at == first) for at, first in times)
            seconds = statistics.median(at for at, _ in times) if times else math.inf
            words = "97% never"
            if seconds < math.inf:
                early = "≤ " * times[len(times) // 2][1]
                words = f"97% in {early}{number(seconds)} s"
            late = median(run.get(LATE) for run in runs)
            rows[algorithm] = row(None, None if algorithm == "one" else late, words)
            taken += [run.get("gradient_seconds") for run in runs]
        mean = round(1000 * (median(taken) or 0.03), 1)  # one process does not write its own
        state = {"n": 8, **law(task), "ps": 0, "T": 8, "mean": mean}
        if rows:
            text = "measured the seconds in the table's last column, to 97% accuracy on digits, "
            text += "another problem, so the order may differ."
            yield preset("Compare", name, state, rows, text)


def own_points(results):
    """Yields the measured seconds of a step on slow links, where computing takes almost none."""
    kinds = {"HogWild": "ps_asynchronous", "Synchronous-SGD": "ps", "Ring-AllReduce": "ring"}
    for link, megabytes, gigabits, c in (
        ("69 KB, 10 Mbit/s", KB / 1e3, 0.01, 0.001),
        ("8.7 MB, 100 Mbit/s", 8.7, 0.1, 0.01),
    ):
        for key, runs in results.items():
            where, program = key.split(": ", 1)
            example, *more = program.split(", ")
            if where != link or example not in kinds or "float16" in program:
                continue
            counts = dict(reversed(words.split()) for words in more)
            n, servers = int(counts.get("workers", 2)), int(counts.get("ps", 1))
            rate, by = median(r["batches_per_second"] for r in runs), kinds[example]
            point = {
                "source": "Slow-Network",
                "mark": "measured here",
                "case": f"{where}: {program}",
            }
            point |= {"by": by, "n": n, "P": servers, "c": c, "megabytes": megabytes}
            seconds = (1 if by == "ps_asynchronous" else n) / rate
            yield {**point, "gigabits": gigabits, "seconds": float(f"{seconds:.4g}")}


def everything(root):
    """Returns all that measured.js tells the explorables."""

    def read(name, file="results.json"):
        return json.loads((root / "Measurements" / name / file).read_text())

    *presets, (mean, rates) = scaling(read("Scaling"))
    presets += [slow_network(read("Slow-Network")), same_staleness(read("Same-Staleness"))]
    if (root / "Measurements" / "Compare" / "results.json").exists():  # once it is measured
        presets += compare(read("Compare"))
    points = read("Scale-Laboratory", "published.json")["efficiencies"]
    points += own_points(read("Slow-Network"))
    table = read("Pipeline")["table"]  # schedule, K, M, idle share
    pipeline = [[row[1], row[2], row[3], round(row[7], 4)] for row in table]
    numbers = {"mean": mean, "rates": rates, "points": points, "pipeline": pipeline}
    return {"the_race": presets, **numbers}


def script(known):
    """Returns the text of measured.js."""
    text = json.dumps(known, indent=1)
    return (
        f"// By docs/site/measured.py, from Measurements/*/results.json.\nvar MEASURED = {text};\n"
    )


def table(presets):
    """Returns the presets' numbers as a table, for browsers that run no scripts."""
    rows = [
        [f"{button['page']}: {button['name']}", EXAMPLES[algorithm], words]
        for button in presets
        for algorithm, words in button["rows"].items()
    ]
    rows = "".join("<tr><td>" + "<td>".join(map(html.escape, row)) + "\n" for row in rows)
    head = "<caption>Measured here</caption><thead><tr><th>cluster<th>example<th>found"
    return (
        '<noscript><div class="table-wrapper"><table class="docutils">'
        f"{head}\n<tbody>\n{rows}</table></div></noscript>\n"
    )
