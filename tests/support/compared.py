"""What the tests of Measurements/Compare use: its scripts, and its tries and results by hand."""

FOLDER = "Measurements/Compare/"
SEARCH, ONE_RUN, REPORT = (FOLDER + name for name in ("search.py", "one_run.py", "report.py"))
VERDICT, TABLES, DRAWING = (FOLDER + name for name in ("verdict.py", "tables.py", "drawing.py"))
EQUAL, DIFFERENT = "8 workers, CV 0.1", "8 workers, CV 1"
ONE = "Non-Distributed-Setup"
SOON, LATER = [2.0, 2.1, 2.2, 2.3, 2.4], [3.0, 3.1, 3.2, 3.3, 3.4]


def tried(point, seed, stage, reached, loss, limit=None, **more):
    """Returns a try that would reach the target so late, or never, with this loss at its end."""
    known = {"point": list(point), "seed": seed, "stage": stage, "curve": [[1, 6], [2, loss]]}
    if reached is not None and limit is not None and reached > limit:
        end = {"ended": "late", "reached": None, "at": 1.02 * limit}
    elif reached is not None:
        end = {"ended": "reached", "reached": reached, "at": reached}
    else:
        end = {"ended": "diverged" if loss is None else "time", "reached": None, "at": 6}
    return {**known, **end, "loss": loss, "words": f"--x {point}", "others": 0.0, **more}


def result(numbers, setting="--learning-rate 0.1", target=("accuracy", 0.97), **more):
    """Returns a row of results.json: seconds of its runs, None: never, "x": failed."""
    runs = []
    for seed, at in enumerate(numbers):
        if at == "x":
            runs.append({"seed": seed, "failed": "no port", "others": 0.2})
            continue
        runs.append(
            {
                **{"seed": seed, "reached": at, "first_look": 0.5, "loss": 0.1 * (seed + 1)},
                **{"accuracy": 0.98, "training": 0.05, "others": 0.01, "tests": 2},
                **{"examples_to": at and 100 * at, "megabytes_to": at and 2 * at, "cv": 0.1},
                **{"megabytes": 9.0, "staleness_mean": 3.0, "seconds_to": []},
            }
        )
    known = {"setting": setting, "seconds": 6, "target": list(target), "edge": False, "tries": []}
    known |= {"measured": "2026-11-27, 2 cores", "most_others_of_tries": 0.0, "runs": runs}
    known |= {"losses": [1.5, 0.15], "tasks": {"ps": 1, "workers": 8}}
    return {**known, **more}


def in_task(task, **rows):
    """Returns results of a task; a name is that of a row, or stands for the A/A row."""
    names = {"A": "HogWild", "AA": "HogWild, A/A", "one": ONE, "D": "Further-Algorithms/DiLoCo"}
    return {f"{task}: {names.get(name, name)}": row for name, row in rows.items()}
