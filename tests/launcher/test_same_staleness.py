"""What Measurements/Same-Staleness searches and counts, on runs made by hand, and its laws.

Nothing trains here. As in test_measurements.py, a mistake can be put into a copy of a script.
"""

import functools
import json
import math
import re
import types

import numpy as np
import pytest
from lab import delays, drivers, examples, references
from test_measurements import MEASUREMENTS, both_tests, cells, checks, figures, load, points, same

DRIVER, THEORY = "Same-Staleness", "Measurements/Same-Staleness/theory.py"
CHECKS, check = checks()
MISTAKES = {}  # as in test_measurements.py


# The search --------------------------------------------------------------------------------------


def outcome(step, seed, learned, loss=0.5, **more):
    """Returns a run; one that has not learned has diverged."""
    return {
        "step": step,
        "seed": seed,
        "learned": learned,
        "test_loss": loss if learned else None,
        **more,
    }


def searched(following, learns):
    """Returns the runs of a search where learns(step, seed) tells who learns."""
    runs = []
    while due := following(runs):
        runs.append(outcome(*due, learns(*due)))
        assert len(runs) < 100, "\nsearch: does not end"
    return runs


@check
def check_the_search(load, tmp_path):
    """From any start to the same two rates, three seeds at both, no rate between left out."""
    module = load(DRIVER)
    laws = {  # {how many of three seeds learn at a step; below all, above none}: its bracket
        (3, 3, 0): (-9, -8),
        (3, 2, 1, 0): (-10, -7),
        (2, 3, 1, 0): (-9, -7),
        (1, 0, 2, 0): (-11, -9),
        (0, 0): (-11, -10),
    }
    for numbers, due in laws.items():
        known = dict(zip(range(-10, 0), numbers))

        def learns(step, seed, known=known):
            return seed >= 3 - known.get(step, 3 if step < -10 else 0)

        for start in (-15, -11, -10, -9, -8, -4):
            following = functools.partial(module.next_of_search, start=start, seeds=3)
            runs = searched(following, learns)
            steps = module.by_step(runs)
            for step, some in steps.items():
                of_three = sum(learns(step, seed) for seed in range(3))
                same("seeds", (step, len(some)), (step, 2 if of_three == 2 else 3))
            same("steps", list(steps), list(range(min(steps), max(steps) + 1)))
            lowest, highest = (steps[edge(steps)] for edge in (min, max))
            same("edges", sum(run["learned"] for run in lowest), 3)
            same("edges", sum(run["learned"] for run in highest), 0)
            # Where the learning comes back above a failure, a search from below ends before it.
            if numbers != (1, 0, 2, 0) or start > -9:
                found = module.bracket(runs)
                same("bracket", found, due)
    for learns, due in ((False, (None, -36)), (True, (12, None))):
        following = functools.partial(module.next_of_search, start=0, seeds=1)
        found = module.bracket(searched(following, lambda *_, learns=learns: learns))
        same("bracket", found, due)  # no limit was found, and none is shown
    runs = [outcome(step, seed, step < -3) for step in (-5, -4) for seed in range(3)]
    same("bracket", module.bracket(runs), (-4, None))
    same("bracket", module.bracket([outcome(2, 0, False)]), (None, 2))
    runs = [outcome(step, 0, step in (-5, -3)) for step in (-5, -4, -3, -2)]
    same("bracket", module.bracket(runs), (-3, -2))
    same("bracket", module.bracket([]), (None, None))
    same("rates", [module.rate_of(step) for step in (-12, -8, -9)], [0.125, 0.25, 0.2102])
    same("begins", module.search_of(8, 0.0).steps, (-12,))
    same("begins", module.search_of(8, 1.0).steps, (-6,))


FAILS = "(search|seeds|steps|edges|bracket|rates|begins)"
MISTAKES["the_search", FAILS, DRIVER] = {
    "ends where one seed has failed": [
        ("if any(learned[max(learned)])", "if all(learned[max(learned)])")
    ],
    "ends where one seed learns": [
        ("if not all(learned[min(learned)])", "if not any(learned[min(learned)])")
    ],
    "ends at its start": [("return (max(learned) + 1, 0) if", "return None if")],
    "one seed a rate": [("if len(some) < seeds and len(set", "if len(some) < 1 and len(set")],
    "runs that diverged do not count": [
        (
            '        found.setdefault(run["step"], []).append(run)\n',
            '        if run["test_loss"] is not None:\n'
            '            found.setdefault(run["step"], []).append(run)\n',
        )
    ],
    "two steps at once": [("return (max(learned) + 1, 0)", "return (max(learned) + 2, 0)")],
    "the least at which one fails": [("if not any(learned[step]))", "if not all(learned[step]))")],
    "none below what learns": [("if whole is None or step > whole]", "]")],
}


@check
def check_the_best_rate(load, tmp_path):
    """Never the lowest or highest that was tried; its runs are of other seeds."""
    module = load(DRIVER)
    for best, start in ((-12, -12), (-12, -20), (-16, -8)):
        runs = []
        while due := module.next_of_best(runs, start, 3):
            step, seed = due
            lost = step > best + 3
            loss = None if lost else 0.1 + abs(step - best) / 50 + seed / 1000
            runs.append({"step": step, "seed": seed, "test_loss": loss})
            assert len(runs) < 100, "\nbest: does not end"
        final = [(run["step"], run["seed"]) for run in runs if run["seed"] > 1]
        same("best", final, [(best, seed) for seed in (2, 3, 4)])
        tried = {run["step"] for run in runs}
        same("best", min(tried) < best < max(tried), True)
    runs = [{"step": 0, "test_loss": loss} for loss in (None, None, 0.1)]
    same("median", module.loss_at(runs), {0: math.inf})


MISTAKES["the_best_rate", "(best|median)", DRIVER] = {
    "the highest": [("        return best + 2, 0\n", "        pass\n")],
    "the lowest": [("        return best - 2, 0\n", "        pass\n")],
    "of those that did not diverge": [
        ('math.inf if run["test_loss"] is None', '0 if run["test_loss"] is None')
    ],
    "the seeds that chose it": [("(best, TUNING + len(chosen))", "(best, len(chosen))")],
}


@check
def check_the_rounds(load, tmp_path):
    """A run of each case in turn; a second sitting measures only what the first has left."""
    module, asked = load(DRIVER), []
    shares = iter([0.5, 0.2, *[0.01] * 99])
    module.idle = types.SimpleNamespace(
        MOST=0.1, Others=lambda: types.SimpleNamespace(share=lambda: next(shares))
    )
    cases = [module.search_of(8, cv)._replace(steps=(0,)) for cv in (0.0, 1.0)]
    limits = {cases[0].name: -1, cases[1].name: 1}

    def measure(case, step, seed, results):
        asked.append((case.name, step, seed))
        if len(asked) == stop:
            raise KeyboardInterrupt
        return outcome(step, seed, step <= limits[case.name], rate=1)

    kept, stop = tmp_path / "measured.json", 9
    with pytest.raises(KeyboardInterrupt):
        module.by_rounds([cases], 2, measure, kept, 3)
    same("tries", [name for name, *_ in asked[:4]], [cases[0].name] * 3 + [cases[1].name])
    same("turns", [name for name, *_ in asked[4:8]], [case.name for case in cases] * 2)
    same("others", drivers.others_of(kept), 0.01)
    stop = 0
    results = module.by_rounds([cases], 2, measure, kept, 1)
    same("kept", sum(map(len, results.values())), len(asked) - 3)  # two tries, and the stop
    found = {name: module.bracket(runs) for name, runs in results.items()}
    same("found", found, {cases[0].name: (-1, 0), cases[1].name: (1, 2)})
    before = len(asked)
    same("kept", module.by_rounds([cases], 2, measure, kept, 1), results)
    same("kept", len(asked), before)
    pair = module.all_groups()[0][0]
    same(
        "fixed",
        searched(lambda runs: module.next_run(pair, {pair.name: runs}, 2), lambda *_: True),
        [outcome(-9, seed, True) for seed in (0, 1)],
    )
    steps = [
        (run["step"], run["seed"])
        for run in searched(lambda runs: module.next_of_fixed(runs, (-7, -1), 2), lambda *_: False)
    ]
    same("fixed", steps, [(-1, 0), (-7, 0), (-1, 1), (-7, 1)])


MISTAKES["the_rounds", "(tries|turns|kept|found|fixed)", DRIVER] = {
    "once, whatever others do": [("for _ in range(tries):", "for _ in range(1):")],
    "nothing is kept": [("if kept.exists() else", "if False else")],
    "a case to its end": [
        ("for case, (step, seed) in asked:", "for case, (step, seed) in asked[:1]:")
    ],
}


@check
def check_the_groups(load, tmp_path):
    """The hardest comparison first; each cell once; a gradient takes 5 ms a worker, or 20."""
    module = load(DRIVER)
    groups = module.all_groups()
    names = [case.name for group in groups for case in group]
    same(
        "first",
        names[:4],
        [
            "same rate: 8 workers, CV 0",
            "same rate: 8 workers, CV 1",
            "8 workers, CV 0",
            "8 workers, CV 1",
        ],
    )
    same("names", len(set(names)), len(names))
    plain = {
        (case.n, case.cv)
        for group in groups
        for case in group
        if case.kind == module.SEARCH and not case.place
    }
    same("cells", plain, {(n, cv) for n in (2, 4, 8, 16) for cv in (0.0, 0.1, 0.25, 0.5, 1.0)})
    same("means", [module.mean_of(n) for n in (2, 4, 8, 16)], [0.02, 0.02, 0.04, 0.08])
    case = groups[-1][-1]
    same("names", case.name, "equal seconds: 8 workers, CV 0.1, pause of 50% before the push")
    flags = types.SimpleNamespace(updates=600, seconds=3)
    runs = [{"updates_per_second": speed} for speed in (100, None, 120)]
    results = {case.name.removeprefix(module.AFTER): runs}
    same("updates", module.updates_of(case, results, flags), 330)
    same("updates", module.updates_of(groups[0][0], results, flags), 600)


MISTAKES["the_groups", "(first|names|cells|means|updates)", DRIVER] = {
    "as many updates for all": [("if case.kind != BEST:", "if True:")],
    "the longest times for all": [("return max(0.02, 0.005 * n)", "return 0.08")],
}


# One run -----------------------------------------------------------------------------------------


def pushes_by_hand():
    """Two workers push in turn from 10 on, 1 s apart, after 1 s or 3 s; the second one is late."""
    first = [(0, "worker-0", 0), (10, "worker-1", 9)]
    later = [(10 + at, f"worker-{at % 2}", (1, 1, 3, 0)[at % 4]) for at in range(1, 21)]
    return [
        {
            "push_time": float(time),
            "pull_time": time - (1.0 if number % 2 else 3.0),
            "global_step": number + 1,
            "loss": float(number),
            "staleness": float(late),
            "task": task,
        }
        for number, (time, task, late) in enumerate(first + later)
    ]


@check
def check_what_a_run_finds(load, tmp_path):
    """Staleness, its histogram and the times from pull to push once all workers had begun."""
    module = load(DRIVER)
    pushes, samples = pushes_by_hand(), [(0, 0.0), (100, 50.0)]
    found = module.found(True, samples, pushes, [{"test_loss": 0.99}], 2)
    # From 12 on, behind the first tenth: 19 pushes, at 2 to 20.
    late = [(1, 1, 3, 0)[at % 4] for at in range(1, 21)]
    if found["histogram"] and sum(found["histogram"]) == 19:
        late = late[1:]
    same("histogram", found["histogram"], [late.count(value) for value in range(4)])
    same("staleness", found["staleness_mean"], float(np.mean(late)))
    same("staleness", found["staleness_sd"], float(np.std(late)))
    taken = [1.0 if number % 2 else 3.0 for number in range(2, 22)][-len(late) :]
    same("cv", found["cv"], float(np.std(taken) / np.mean(taken)))
    same("seconds", (found["seconds"], found["updates_per_second"], found["cores"]), (20, 1, 0.5))
    same("learned", (found["learned"], found["test_loss"]), (True, 0.99))
    for whole, tests, due in (
        (True, [{"test_loss": 1.0}], (False, 1.0)),
        (False, [{"test_loss": 0.1}], (False, None)),
        (True, [{"test_loss": math.nan}], (False, None)),
        (True, [], (False, None)),
        (True, [{"test_loss": 3.0}, {"test_loss": 0.2}], (True, 0.2)),
    ):
        found = module.found(whole, samples, pushes, tests, 2)
        same("learned", (found["learned"], found["test_loss"]), due)
    for few in (pushes[:1], pushes[:9], [push for push in pushes if push["task"] == "worker-0"]):
        found = module.found(False, [], few, [], 2)
        same("few", {found[key] for key in module.STEADY}, {None})
    same("curve", module.loss_curve(pushes[::-1]), [9.5])
    same("curve", module.loss_curve([dict(push, loss=math.inf) for push in pushes]), [None])


MISTAKES["what_a_run_finds", "(histogram|staleness|cv|seconds|learned|few|curve)", DRIVER] = {
    "the pushes of the start, too": [
        (
            '    inside = [push for push in pushes if push["push_time"] > began]\n',
            "    inside = pushes\n",
        )
    ],
    "the time between two pushes": [
        (
            '[push["push_time"] - push["pull_time"] for push in inside]',
            '[b["push_time"] - a["push_time"] for a, b in zip(inside, inside[1:])]',
        )
    ],
    "the spread without the mean": [
        ("statistics.pstdev(taken) / statistics.fmean(taken)", "statistics.pstdev(taken)")
    ],
    "a run that diverged has learned": [("whole = bool(whole and tests", "whole = bool(tests")],
    "the first test": [('loss = tests[-1]["test_loss"]', 'loss = tests[0]["test_loss"]')],
    "in the order of arrival": [('sorted(pushes, key=lambda push: push["global_step"])', "pushes")],
}


@check
def check_what_is_changed(load, tmp_path):
    """Where a worker pauses; one test, at the end; the seeds of all that is random."""
    module, calls = load(DRIVER), []
    script = examples.main_script(module.EXAMPLE)

    def text(place):
        case = module.search_of(8, 0.1, place, 0.25)
        return examples.replaced(script, module.changes_of(case, 2))

    late = "delays.late(outputs, 0.1, 0.04, 8, 3)"
    after = "delays.late(delays.late(outputs, 1.0, 0.01, 8, 103), 0.1, 0.04, 8, 3)"
    same("late", [text(place).count(late) for place in (None, module.PULL)], [1, 1])
    same("late", text(module.PUSH).count(after), 1)
    pause = "    with tf.control_dependencies([delays.pause(1.0, 0.01, 8, 103)]), "
    pause += "tf.device(step.device):\n"
    same(
        "pause",
        [
            text(place).count(pause + "        version = step.read_value()\n")
            for place in (None, module.PULL, module.PUSH)
        ],
        [0, 1, 0],
    )
    module.forked = types.SimpleNamespace(
        train=lambda script, jobs, words, place: calls.append((jobs, words)) or (True, [])
    )
    module.RunData = types.SimpleNamespace(
        read=lambda place: types.SimpleNamespace(rows=lambda kind: [])
    )
    module.found = lambda *_: {"learned": False}
    flags = types.SimpleNamespace(updates=600, seconds=3, repeats=3)
    run = module.measure(module.search_of(4, 1.0), -8, 2, {}, flags)
    same("run", (run["rate"], run["seed"], run["final"], run["sharpness"]), (0.25, 2, False, None))
    jobs, words = calls[0]
    words = dict(zip(words[::2], words[1::2]))
    same("run", jobs, {"ps": 1, "worker": 4})
    same("run", [words[f"--{name}"] for name in ("steps", "seed", "learning-rate")], [600, 2, 0.25])
    same("run", words["--checkpoint-steps"] > 600, True)

    def ends(words):
        def train(*_):
            raise SystemExit(words)

        module.forked = types.SimpleNamespace(train=train)
        return module.train(None, None, None, None)

    same("run", ends("chief failed: w : Tensor had NaN values"), (False, []))
    with pytest.raises(SystemExit, match="no memory"):
        ends("chief failed: no memory")


MISTAKES["what_is_changed", "(late|pause|run)", DRIVER] = {
    "a test every few updates": [
        ('"--checkpoint-steps", 10 * updates', '"--checkpoint-steps", 100')
    ],
    "the place is the other": [("if case.place == PUSH:", "if case.place == PULL + PUSH:")],
    "a whole gradient's time": [("{mean * case.share}", "{mean}")],
    "times of one seed": [("case.n, seed + 1)", "case.n, 1)")],
}


# The laws ----------------------------------------------------------------------------------------


def pushes_of(n, h):
    """Returns the matrices of (w, w_1 ... w_n), one for each worker that may push."""
    matrices = []
    for k in range(1, n + 1):
        matrix = np.eye(n + 1)
        matrix[0, k] = -h
        matrix[k] = matrix[0]  # it pulls what it has pushed
        matrices.append(matrix)
    return matrices


def radius(matrix):
    """Returns the spectral radius."""
    return max(abs(np.linalg.eigvals(matrix)))


@check
def check_the_laws(load, tmp_path):
    """Each limit is where that of n + 1 numbers, one for w and each worker, begins to grow."""
    theory = load(THEORY)
    for n in (2, 3, 8):
        for factor, grows in ((0.99, False), (1.01, True)):
            in_turn = np.linalg.multi_dot(pushes_of(n, factor * theory.constant(n)))
            same("constant", radius(in_turn) > 1 + 1e-9, grows)
            # All copies have the same mean, by which w and one of them move.
            mean = np.mean(pushes_of(n, factor * theory.mean_only(n)), axis=0)
            mean = np.array([[1, mean[0, 1:].sum()], [mean[1, 0], mean[1, 1:].sum()]])
            same("mean", radius(mean) > 1 + 1e-9, grows)
            # The covariance of all n + 1 numbers moves by the mean of A (x) A.
            pairs = [np.kron(a, a) for a in pushes_of(n, factor * theory.mean_square(n))]
            same("square", radius(np.mean(pairs, axis=0)) > 1 + 1e-9, grows)
        h = theory.mean_square(n)
        same("root", abs(n * h**2 - h - 2) < 1e-6, True)
    h, n, four = 0.7, 3, np.ones(4)
    covariance = np.ones((n + 1, n + 1))
    for _ in range(5):
        covariance = np.mean([a @ covariance @ a.T for a in pushes_of(n, h)], axis=0)
        four = theory.moments(n, h) @ four
        due = [covariance[at] for at in ((0, 0), (0, 1), (1, 1), (1, 2))]
        same("moments", list(four), list(map(float, due)))
    driver = load(DRIVER)
    for n in (2, 4, 8, 16):
        same("root", abs(float(driver.closed_mean_square(n)) - theory.mean_square(n)) < 1e-6, True)


MISTAKES["the_laws", "(constant|mean|square|root|moments)", THEORY] = {
    "late by n": [("np.pi / (4 * n - 2)", "np.pi / (4 * n + 2)")],
    "the w before the push": [
        ("        p * square + (1 - p) * kept,\n", "        p * np.eye(4)[0] + (1 - p) * kept,\n")
    ],
    "one of two workers": [("2 * p * other + (1 - 2 * p) * both", "p * other + (1 - p) * both")],
    "independent copies": [("np.array([0, 1, 0, -h])  #", "np.array([0, 1, -h, 0])  #")],
    "growth in the mean": [("    return 2 * (2 - p) / p\n", "    return 2 / p\n")],
}


@check
def check_the_sharpness(load, tmp_path):
    """The largest eigenvalue of a Hessian of which all entries are known."""
    theory, random = load(THEORY), np.random.RandomState(3)
    shapes = [(3, 4), (4,), (4, 3), (3,)]
    x, y = random.rand(20, 3), random.randint(0, 3, 20)
    for scale in (1, 3):
        w = [scale * random.randn(*shape) for shape in shapes]
        flat, cuts = np.concatenate([v.ravel() for v in w]), np.cumsum([v.size for v in w])[:-1]

        def gradient(vector, cuts=cuts):
            own = [part.reshape(shape) for part, shape in zip(np.split(vector, cuts), shapes)]
            return np.concatenate([d.ravel() for d in references.perceptron(own, x, y)[1]])

        rows = np.eye(flat.size) * 1e-5
        hessian = np.array([(gradient(flat + e) - gradient(flat - e)) / 2e-5 for e in rows])
        values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
        own = theory.sharpness(w, x, y, 40)
        assert own == pytest.approx(values[-1], rel=1e-3), f"\nsharpness: {own}, not {values[-1]}"
        few = theory.sharpness(w, x, y, 12)
        assert few == pytest.approx(values[-1], rel=0.05), f"\nsharpness: {few}, not {values[-1]}"


MISTAKES["the_sharpness", "sharpness", THEORY] = {
    "half of the difference": [("/ (2 * step)", "/ step")],
    "the largest without its sign": [
        (
            "    return float(np.linalg.eigvalsh(projected)[-1])",
            "    return float(-np.linalg.eigvalsh(projected)[0])",
        ),
        (
            "eigvalsh(projected[: number + 1, : number + 1])[-1]",
            "eigvalsh(projected[: number + 1, : number + 1])[0]",
        ),
    ],
}


# What is shown -----------------------------------------------------------------------------------


def shown_run(step, seed, loss, rate=None, late=(1, 2, 1), final=False, speed=100.0, mean=7.0):
    """Returns a run as results.json has it."""
    return {
        "step": step,
        "rate": rate or round(2 ** (step / 4), 4),
        "seed": seed,
        "final": final,
        "learned": loss is not None and loss < 1,
        "test_loss": loss,
        "losses": [2.0, loss],
        "updates_per_second": speed,
        "seconds": 3.0,
        "cores": 0.5,
        "cv": 0.25,
        "staleness_mean": mean,
        "staleness_sd": 1.5,
        "histogram": list(late),
        "sharpness": 4.0 if loss is not None and loss < 1 else None,
    }


def search_by_hand(whole, none, **more):
    """The runs of a search with this bracket, two seeds a rate; those at the last one diverge."""
    losses = {whole: (0.2, 0.3), **{step: (0.2, 1.5) for step in range(whole + 1, none)}}
    losses[none] = None, None
    return [
        shown_run(step, seed, loss, **more)
        for step, some in losses.items()
        for seed, loss in enumerate(some)
    ]


@check
def check_what_is_shown(load, tmp_path):
    """The rates of a table and of a picture are those of the search; what a pause costs."""
    module = load(DRIVER)
    paused = "8 workers, CV 0.1, pause of 25% before the pull"
    results = {
        "same rate: 8 workers, CV 0": [shown_run(-9, seed, None) for seed in (0, 1)],
        "same rate: 8 workers, CV 1": [shown_run(-9, seed, 0.1 + seed / 10) for seed in (0, 1)],
        "8 workers, CV 0": search_by_hand(-12, -11, late=[0] * 7 + [3, 1]),
        "8 workers, CV 0.1": search_by_hand(-12, -10),
        "2 workers, CV 1": search_by_hand(-4, -2),
        paused: search_by_hand(-8, -6, speed=80.0, mean=5.0),
        module.AFTER + paused: [
            shown_run(-12, 0, 0.05),
            *[shown_run(-10, seed, seed / 10, final=True) for seed in (3, 5)],
        ],
    }
    results = json.loads(json.dumps(results))
    first, pair, pauses = module.table_of(results).renderables
    rows = {tuple(row[:2]): row[2:] for row in cells(first)}
    same("rows", [row[:2] for row in cells(first)], [["2", "1"], ["8", "0"], ["", "0.1"]])
    same("limits", rows["8", "0"][6:], ["4", "2", "0.125", "0.149", "0.50", "0.21"])
    same("limits", rows["2", "1"][6:], ["6", "2", "0.500", "0.707", "2.00", "1.28"])
    same("at", [rows["8", "0"][3], rows["2", "1"][3]], ["75%", "50%"])
    same("pair", [row[-1] for row in cells(pair)], ["2 diverged", "0.150 (0.100-0.200)"])
    same("pauses", [row[0] for row in cells(pauses)], ["no pause", "pause of 25% before the pull"])
    due = ["5.00", "1.50", "80", "20%", "0.250", "0.354", "0.177", "0.400 (0.300-0.500)"]
    same("pauses", cells(pauses)[1][1:], due)
    drawn = figures(module)
    module.draw(results, tmp_path / "x.png", None)
    left, right = drawn[0].axes
    spans = [segment[:, 1] for lines in left.collections for segment in lines.get_segments()]
    spans = sorted((float(low), float(high)) for low, high in spans)
    same("drawn", spans, [(0.125, 0.1487), (0.125, 0.1768), (0.5, 0.7071)])
    scale = module.sharpness_fitted(results)
    same("fitted", scale, 2 * math.sin(math.pi / 30) / 2 ** (-11.5 / 4))
    curve = left.lines[0].get_ydata()
    same("fitted", float(curve[0]), 1 / scale)
    counts = [patch.get_data().values.tolist() for patch in drawn[1].axes[0].patches]
    same("histogram", counts, [[0.25, 0.5, 0.25]] * 2)
    left, right = drawn[2].axes
    spans = [lines.get_segments()[0].tolist() for lines in left.collections]
    same("pauses", spans, [[[0, 0.125], [0, 0.1768]], [[24, 0.25], [24, 0.3536]]])
    same("pauses", [text.get_text() for text in left.texts], ["", "-20%"])
    found = [points(line) for line in right.lines if len(line.get_xdata())]
    same("pauses", found, [[(24, 0.3), (24, 0.5)]])


MISTAKES["what_is_shown", "(rows|limits|at|pair|pauses|drawn|fitted|histogram)", DRIVER] = {
    "what is faster is lost": [('f"{1 - speed / fastest:.0%}" if', 'f"{speed / fastest:.0%}" if')],
    "the runs that chose the rate, too": [
        (
            '[run for run in results.get(AFTER + name, []) if run["final"]]',
            "results.get(AFTER + name, [])",
        )
    ],
    "pauses among the searches": [("        if pause:\n            continue\n", "")],
    "those that learned are lost": [
        (
            '        lost = sum(run["test_loss"] is None for run in runs)\n        row',
            '        lost = sum(run["learned"] for run in runs)\n        row',
        )
    ],
    "all of them at n - 1": [("at = sum(each[staleness]", "at = sum(each[0]")],
    "the lambda of the lower rate": [("GRID ** ((whole + none) / 2)", "GRID**whole")],
    "the law of the other": [
        (
            "{0.0: theory.constant, 1.0: theory.mean_square}",
            "{1.0: theory.constant, 0.0: theory.mean_square}",
        )
    ],
}


@check
def check_the_waits(load, tmp_path):
    """A pause draws from its own times; a worker's two waits are not the same numbers."""
    same("draws", next(delays.draws(0.0, 0.04, 1, 8, 3)), 0.04)
    first, second = (next(delays.draws(1.0, 0.01, 1, 8, seed)) for seed in (3, 103))
    same("draws", first != second, True)


def test_the_brackets_on_the_page():
    """Catches: ratios on the page that are not those of the results, or do not hold the law's."""
    module, folder = load(DRIVER), MEASUREMENTS / "Same-Staleness"
    results = json.loads((folder / "results.json").read_text())
    text = " ".join((folder / "README.md").read_text().split())
    laws, found = re.search(r"the ratios `([^`]*)`; .* them, with `([^`]*)`", text).groups()
    for n, law, words in zip((2, 4, 8, 16), laws.split(", "), found.split(", "), strict=True):
        brackets = [module.bracket(results[module.name_of(n, cv)]) for cv in (0.0, 1.0)]
        (low, high), (least, most) = [map(module.rate_of, each) for each in brackets]
        due = module.theory.mean_square(n) / module.theory.constant(n)
        assert (law, words) == (f"{due:.1f}", f"{least / high:.1f}-{most / low:.1f}")
        assert least / high < due < most / low


# The tests of all checks -------------------------------------------------------------------------

test_what_is_counted, test_a_mistake_is_caught = both_tests(CHECKS, MISTAKES)
