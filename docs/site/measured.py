"""Writes what the repository has measured as a script for the explorables: measured.js."""

import json
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
}
KB = 68.904  # the examples' w


def median(values):
    """Returns the median of what is known, to four digits, or None."""
    known = [value for value in values if value is not None]
    return float(f"{statistics.median(known):.4g}") if known else None


def law(words):
    """Returns the race's settings of a law of times, by its name in a measurement."""
    if "one slow" in words:
        return {"cv": 0, "slow": 5}
    found = re.search(r"CV ([\d.]+)", words)
    return {"cv": float(found[1]) if found else 0 if "constant" in words else 1, "slow": 1}


def preset(page, name, state, rows, more=None):
    """Returns a button of the race; rows: {algorithm: {rate, staleness, seconds}}."""
    return {"page": page, "name": name, "state": state, "rows": rows, "more": more}


def scaling(results):
    """Returns the presets of Scaling, and the measured rates for each number of workers."""
    mean = round(
        1000 / median(r["batches_per_second"] for r in results["1 worker, constant: HogWild"]), 1
    )
    rows, rates = {}, {}
    for key, runs in results.items():
        where, example = key.split(": ", 1)
        if example not in ALGORITHMS or "lr" in where:
            continue
        row = {"rate": median(r["batches_per_second"] for r in runs)}
        row["staleness"] = median(r["staleness_mean"] for r in runs)
        rows.setdefault(where, {})[ALGORITHMS[example]] = row
    for where, found in rows.items():
        n, words = where.split(" ", 1)
        times = json.dumps(law(words), separators=(",", ":"))  # as JavaScript writes it
        for algorithm, row in found.items():
            points = rates.setdefault(times, {}).setdefault(algorithm, [])
            points.append([int(n), row["rate"]])
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
            rows[ALGORITHMS[key.removeprefix(link)]] = {"rate": rate}
    state = {"n": 2, "cv": 0, "slow": 1, "ps": round(KB * 8 / 10, 1), "T": 10, "mean": 1}
    return preset("Slow-Network", "2 workers, 10 Mbit/s", state, rows)


def same_staleness(results):
    """Returns the preset of Same-Staleness, and what both of its runs measured."""
    said = []
    for cv in (0, 1):
        runs = results[f"same rate: 8 workers, CV {cv}"]
        late, loss = (median(r[name] for r in runs) for name in ("staleness_mean", "test_loss"))
        said.append(f"CV {cv}: staleness {late:.3g}, test loss {loss:.2g}")
    state = {"n": 8, "cv": 0, "slow": 1, "ps": 0, "mean": 100, "rate": 0.25, "batch": 64}
    state["pick"] = "async"
    return preset("Same-Staleness", "8 workers, one rate", state, {}, "; ".join(said))


def compare(results):
    """Yields a preset for each task of eight workers in Compare: seconds to 97% accuracy."""
    tasks = {}
    for key, found in results.items():
        task, example = key.split(": ", 1)
        if not task.startswith("8 workers") or example not in ALGORITHMS or "runs" not in found:
            continue
        seconds = [run.get("reached") for run in found["runs"]]  # None: never, or it failed
        late = [run["staleness_mean"] for run in found["runs"] if "staleness_mean" in run]
        row = {"staleness": median(late)} if late else {}
        if all(seconds):
            row["seconds"] = median(seconds)
        tasks.setdefault(task, {})[ALGORITHMS[example]] = row
    for task, rows in tasks.items():
        state = {"n": 8, **law(task), "ps": 0, "T": 8, "mean": 30}
        yield preset("Compare", task, state, rows)


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


def script(root):
    """Returns the text of measured.js."""

    def read(name, file="results.json"):
        return json.loads((root / "Measurements" / name / file).read_text())

    *presets, (mean, rates) = scaling(read("Scaling"))
    presets += [slow_network(read("Slow-Network")), same_staleness(read("Same-Staleness"))]
    if (root / "Measurements" / "Compare" / "results.json").exists():  # once it is measured
        presets += compare(read("Compare"))
    points = read("Scale-Laboratory", "published.json")["efficiencies"]
    points += own_points(read("Slow-Network"))
    found = {"the_race": presets, "mean": mean, "rates": rates, "points": points}
    table = read("Pipeline")["table"]  # schedule, K, M, idle share
    found["pipeline"] = [[row[1], row[2], row[3], round(row[7], 4)] for row in table]
    text = json.dumps(found, indent=1)
    return (
        f"// By docs/site/measured.py, from Measurements/*/results.json.\nvar MEASURED = {text};\n"
    )
