"""What Measurements/Same-Staleness searches and counts, on runs made by hand, and its laws.

Nothing trains here.
"""

import collections
import functools
import json
import math
import re
import types

import numpy as np
import pytest
from lab import examples
from lab.measure import delays, sessions
from measurements import MEASUREMENTS, cells, figures, load, points
from tfrun.apps import perceptron

DRIVER, THEORY = "Same-Staleness", "Measurements/Same-Staleness/theory.py"


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


def test_the_search():
    """From any start to the same two rates, three seeds at both, no rate between left out.

    Catches: a search that ends while one seed learns or fails, one seed a rate, steps left
    out, and a bracket that ignores runs that diverged.
    """
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
            for step, step_runs in steps.items():
                of_three = sum(learns(step, seed) for seed in range(3))
                assert (step, len(step_runs)) == (step, 2 if of_three == 2 else 3)
            assert list(steps) == list(range(min(steps), max(steps) + 1))
            lowest, highest = (steps[edge(steps)] for edge in (min, max))
            assert sum(run["learned"] for run in lowest) == 3
            assert sum(run["learned"] for run in highest) == 0
            # Where the learning comes back above a failure, a search from below ends before it.
            if numbers != (1, 0, 2, 0) or start > -9:
                bracket = module.bracket(runs)
                assert bracket == due
    for learns, due in ((False, (None, -36)), (True, (12, None))):
        following = functools.partial(module.next_of_search, start=0, seeds=1)
        bracket = module.bracket(searched(following, lambda *_, learns=learns: learns))
        assert bracket == due  # no limit was found, and none is shown
    runs = [outcome(step, seed, step < -3) for step in (-5, -4) for seed in range(3)]
    assert module.bracket(runs) == (-4, None)
    assert module.bracket([outcome(2, 0, False)]) == (None, 2)
    runs = [outcome(step, 0, step in (-5, -3)) for step in (-5, -4, -3, -2)]
    assert module.bracket(runs) == (-3, -2)
    assert module.bracket([]) == (None, None)
    assert [module.rate_of(step) for step in (-12, -8, -9)] == pytest.approx([0.125, 0.25, 0.2102])
    assert module.search_of(8, 0.0).steps == (-12,)
    assert module.search_of(8, 1.0).steps == (-6,)


FAILS = "(search|seeds|steps|edges|bracket|rates|begins)"


def test_the_best_rate():
    """Never the lowest or highest that was tried; its runs are of other seeds.

    Catches: a best rate at an edge, a median of the runs that did not diverge, and final runs
    with the seeds that chose the rate.
    """
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
        assert final == [(best, seed) for seed in (2, 3, 4)]
        tried = {run["step"] for run in runs}
        assert min(tried) < best < max(tried)
    runs = [{"step": 0, "test_loss": loss} for loss in (None, None, 0.1)]
    assert module.loss_at(runs) == pytest.approx({0: math.inf})


def test_the_rounds(tmp_path):
    """A run of each case in turn; a second session measures only what the first has left.

    Catches: a run that is not repeated when others disturb it, results that are not kept, those of
    another script that are, and a case measured to its end before the next.
    """
    module, asked = load(DRIVER), []
    shares = iter([0.5, 0.2, *[0.01] * 99])
    module.idle = types.SimpleNamespace(
        MOST_SHARE=0.1, Others=lambda: types.SimpleNamespace(share=lambda: next(shares))
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
    assert [name for name, *_ in asked[:4]] == [cases[0].name] * 3 + [cases[1].name]
    assert [name for name, *_ in asked[4:8]] == [case.name for case in cases] * 2
    assert sessions.other_processes_share(kept) == pytest.approx(0.01)
    stop = 0
    results = module.by_rounds([cases], 2, measure, kept, 1)
    assert sum(map(len, results.values())) == len(asked) - 3  # two tries, and the stop
    brackets = {name: module.bracket(runs) for name, runs in results.items()}
    assert brackets == {cases[0].name: (-1, 0), cases[1].name: (1, 2)}
    before = len(asked)
    assert module.by_rounds([cases], 2, measure, kept, 1) == results
    assert len(asked) == before
    for digest, times in (("today's", 1), ("today's", 1), ("tomorrow's", 2)):
        assert module.by_rounds([cases], 2, measure, kept, 1, digest).keys() == results.keys()
        again = collections.Counter(asked[before:])
        assert set(again) >= set(asked[3:8]) and set(again.values()) == {times}
    pair = module.all_groups()[0][0]
    assert searched(lambda runs: module.next_run(pair, {pair.name: runs}, 2), lambda *_: True) == [
        outcome(-9, seed, True) for seed in (0, 1)
    ]
    steps = [
        (run["step"], run["seed"])
        for run in searched(lambda runs: module.next_of_fixed(runs, (-7, -1), 2), lambda *_: False)
    ]
    assert steps == [(-1, 0), (-7, 0), (-1, 1), (-7, 1)]


def test_the_groups():
    """The hardest comparison first; each cell once; a gradient takes 5 ms a worker, or 20.

    Catches: as many updates for all comparisons, and the longest times for all workers.
    """
    module = load(DRIVER)
    groups = module.all_groups()
    names = [case.name for group in groups for case in group]
    assert names[:4] == [
        "same rate: 8 workers, CV 0",
        "same rate: 8 workers, CV 1",
        "8 workers, CV 0",
        "8 workers, CV 1",
    ]
    assert len(set(names)) == len(names)
    plain = {
        (case.n, case.cv)
        for group in groups
        for case in group
        if case.kind == module.SEARCH and not case.place
    }
    assert plain == {(n, cv) for n in (2, 4, 8, 16) for cv in (0.0, 0.1, 0.25, 0.5, 1.0)}
    assert [module.mean_of(n) for n in (2, 4, 8, 16)] == pytest.approx([0.02, 0.02, 0.04, 0.08])
    case = groups[-1][-1]
    assert case.name == "equal seconds: 8 workers, CV 0.1, pause of 50% before the push"
    flags = types.SimpleNamespace(updates=600, seconds=3)
    runs = [{"updates_per_second": speed} for speed in (100, None, 120)]
    results = {case.name.removeprefix(module.EQUAL_SECONDS): runs}
    assert module.updates_of(case, results, flags) == 330
    assert module.updates_of(groups[0][0], results, flags) == 600


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


def test_what_a_run_finds():
    """Staleness, its histogram and the times from pull to push once all workers had begun.

    Catches: pushes of the start, the time between two pushes, a spread without its mean, and
    the first test for the last.
    """
    module = load(DRIVER)
    pushes, samples = pushes_by_hand(), [(0, 0.0), (100, 50.0)]
    facts = module.summarize_run(True, samples, pushes, [{"test_loss": 0.99}], 2)
    # From 12 on, behind the first tenth: 19 pushes, at 2 to 20.
    late = [(1, 1, 3, 0)[at % 4] for at in range(1, 21)]
    if facts["histogram"] and sum(facts["histogram"]) == 19:
        late = late[1:]
    assert facts["histogram"] == [late.count(value) for value in range(4)]
    assert facts["staleness_mean"] == pytest.approx(float(np.mean(late)))
    assert facts["staleness_sd"] == pytest.approx(float(np.std(late)))
    taken = [1.0 if number % 2 else 3.0 for number in range(2, 22)][-len(late) :]
    assert facts["cv"] == pytest.approx(float(np.std(taken) / np.mean(taken)))
    assert (facts["seconds"], facts["updates_per_second"], facts["cores"]) == (20, 1, 0.5)
    assert (facts["learned"], facts["test_loss"]) == (True, 0.99)
    for whole, tests, due in (
        (True, [{"test_loss": 1.0}], (False, 1.0)),
        (False, [{"test_loss": 0.1}], (False, None)),
        (True, [{"test_loss": math.nan}], (False, None)),
        (True, [], (False, None)),
        (True, [{"test_loss": 3.0}, {"test_loss": 0.2}], (True, 0.2)),
    ):
        facts = module.summarize_run(whole, samples, pushes, tests, 2)
        assert (facts["learned"], facts["test_loss"]) == due
    for few in (pushes[:1], pushes[:9], [push for push in pushes if push["task"] == "worker-0"]):
        facts = module.summarize_run(False, [], few, [], 2)
        assert {facts[key] for key in module.STEADY_NUMBERS} == {None}
    assert module.loss_curve(pushes[::-1]) == pytest.approx([9.5])
    assert module.loss_curve([dict(push, loss=math.inf) for push in pushes]) == [None]


def test_what_is_changed():
    """Where a worker pauses; one test, at the end; the seeds of all that is random.

    Catches: a test every few updates, a pause at the other place or of a whole gradient, and
    the same times for all seeds.
    """
    module, calls = load(DRIVER), []
    script = examples.main_script(module.EXAMPLE)

    def text(place):
        case = module.search_of(8, 0.1, place, 0.25)
        return examples.replaced(script, module.changes_of(case, 2))

    late = "delays.late(outputs, 0.1, 0.04, 8, 3)"
    after = "delays.late(delays.late(outputs, 1.0, 0.01, 8, 103), 0.1, 0.04, 8, 3)"
    assert [text(place).count(late) for place in (None, module.PULL)] == [1, 1]
    assert text(module.PUSH).count(after) == 1
    pause = "    with tf.control_dependencies([delays.pause(1.0, 0.01, 8, 103)]), "
    pause += "tf.device(step.device):\n"
    assert [
        text(place).count(pause + "        version = step.read_value()\n")
        for place in (None, module.PULL, module.PUSH)
    ] == [0, 1, 0]
    module.forked = types.SimpleNamespace(
        train=lambda script, jobs, arguments, place: calls.append((jobs, arguments)) or (True, [])
    )
    module.RunData = types.SimpleNamespace(
        read=lambda place: types.SimpleNamespace(rows=lambda kind: [])
    )
    module.summarize_run = lambda *_: {"learned": False}
    flags = types.SimpleNamespace(updates=600, seconds=3, repeats=3)
    run = module.measure(module.search_of(4, 1.0), -8, 2, {}, flags)
    assert (run["rate"], run["seed"], run["final"], run["sharpness"]) == (0.25, 2, False, None)
    jobs, arguments = calls[0]
    arguments = dict(zip(arguments[::2], arguments[1::2]))
    assert jobs == {"ps": 1, "worker": 4}
    assert [arguments[f"--{name}"] for name in ("steps", "seed", "learning-rate")] == pytest.approx(
        [600, 2, 0.25]
    )
    assert arguments["--checkpoint-steps"] > 600

    def ends(message):
        def train(*_):
            raise SystemExit(message)

        module.forked = types.SimpleNamespace(train=train)
        return module.train(None, None, None, None)

    assert ends("chief failed: w : Tensor had NaN values") == (False, [])
    with pytest.raises(SystemExit, match="no memory"):
        ends("chief failed: no memory")


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


def test_the_laws():
    """Each limit is where that of n + 1 numbers, one for w and each worker, begins to grow.

    Catches: a delay of n for n - 1, the w before the push, independent copies, and growth in
    the mean.
    """
    theory = load(THEORY)
    for n in (2, 3, 8):
        for factor, grows in ((0.99, False), (1.01, True)):
            in_turn = np.linalg.multi_dot(pushes_of(n, factor * theory.constant(n)))
            assert (radius(in_turn) > 1 + 1e-9) == grows
            # All copies have the same mean, by which w and one of them move.
            mean = np.mean(pushes_of(n, factor * theory.mean_only(n)), axis=0)
            mean = np.array([[1, mean[0, 1:].sum()], [mean[1, 0], mean[1, 1:].sum()]])
            assert (radius(mean) > 1 + 1e-9) == grows
            # The covariance of all n + 1 numbers moves by the mean of A (x) A.
            pairs = [np.kron(a, a) for a in pushes_of(n, factor * theory.mean_square(n))]
            assert (radius(np.mean(pairs, axis=0)) > 1 + 1e-9) == grows
        h = theory.mean_square(n)
        assert abs(n * h**2 - h - 2) < 1e-6
    h, n, four = 0.7, 3, np.ones(4)
    covariance = np.ones((n + 1, n + 1))
    for _ in range(5):
        covariance = np.mean([a @ covariance @ a.T for a in pushes_of(n, h)], axis=0)
        four = theory.moments(n, h) @ four
        due = [covariance[at] for at in ((0, 0), (0, 1), (1, 1), (1, 2))]
        assert list(four) == pytest.approx(list(map(float, due)))
    driver = load(DRIVER)
    for n in (2, 4, 8, 16):
        assert abs(float(driver.closed_mean_square(n)) - theory.mean_square(n)) < 1e-6


def test_the_sharpness():
    """The largest eigenvalue of a Hessian of which all entries are known.

    Catches: half of the difference, and the largest eigenvalue without its sign.
    """
    theory, random = load(THEORY), np.random.RandomState(3)
    shapes = [(3, 4), (4,), (4, 3), (3,)]
    x, y = random.rand(20, 3), random.randint(0, 3, 20)
    for scale in (1, 3):
        w = [scale * random.randn(*shape) for shape in shapes]
        flat, cuts = np.concatenate([v.ravel() for v in w]), np.cumsum([v.size for v in w])[:-1]

        def gradient(vector, cuts=cuts):
            own = [part.reshape(shape) for part, shape in zip(np.split(vector, cuts), shapes)]
            return np.concatenate([d.ravel() for d in perceptron.loss_and_gradient(own, x, y)[1]])

        rows = np.eye(flat.size) * 1e-5
        hessian = np.array([(gradient(flat + e) - gradient(flat - e)) / 2e-5 for e in rows])
        values = np.linalg.eigvalsh((hessian + hessian.T) / 2)
        own = theory.sharpness(w, x, y, 40)
        assert own == pytest.approx(values[-1], rel=1e-3), f"\nsharpness: {own}, not {values[-1]}"
        few = theory.sharpness(w, x, y, 12)
        assert few == pytest.approx(values[-1], rel=0.05), f"\nsharpness: {few}, not {values[-1]}"


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
        for step, step_runs in losses.items()
        for seed, loss in enumerate(step_runs)
    ]


def test_what_is_shown(tmp_path):
    """The rates of a table and of a picture are those of the search; what a pause costs.

    Catches: runs that chose the rate, pauses among the searches, runs that learned counted as
    lost, and the law of the other delays.
    """
    module = load(DRIVER)
    paused = "8 workers, CV 0.1, pause of 25% before the pull"
    results = {
        "same rate: 8 workers, CV 0": [shown_run(-9, seed, None) for seed in (0, 1)],
        "same rate: 8 workers, CV 1": [shown_run(-9, seed, 0.1 + seed / 10) for seed in (0, 1)],
        "8 workers, CV 0": search_by_hand(-12, -11, late=[0] * 7 + [3, 1]),
        "8 workers, CV 0.1": search_by_hand(-12, -10),
        "2 workers, CV 1": search_by_hand(-4, -2),
        paused: search_by_hand(-8, -6, speed=80.0, mean=5.0),
        module.EQUAL_SECONDS + paused: [
            shown_run(-12, 0, 0.05),
            *[shown_run(-10, seed, seed / 10, final=True) for seed in (3, 5)],
        ],
    }
    results = json.loads(json.dumps(results))
    first, pair, pauses = module.table_of(results).renderables
    rows = {tuple(row[:2]): row[2:] for row in cells(first)}
    assert [row[:2] for row in cells(first)] == [["2", "1"], ["8", "0"], ["", "0.1"]]
    assert rows["8", "0"][6:] == ["4", "2", "0.125", "0.149", "0.50", "0.21"]
    assert rows["2", "1"][6:] == ["6", "2", "0.500", "0.707", "2.00", "1.28"]
    assert [rows["8", "0"][3], rows["2", "1"][3]] == ["75%", "50%"]
    assert [row[-1] for row in cells(pair)] == ["2 diverged", "0.150 (0.100-0.200)"]
    assert [row[0] for row in cells(pauses)] == ["no pause", "pause of 25% before the pull"]
    due = ["5.00", "1.50", "80", "20%", "0.250", "0.354", "0.177", "0.400 (0.300-0.500)"]
    assert cells(pauses)[1][1:] == due
    drawn = figures(module)
    module.draw(results, tmp_path / "x.png", None)
    left, right = drawn[0].axes
    spans = [segment[:, 1] for lines in left.collections for segment in lines.get_segments()]
    spans = sorted((float(low), float(high)) for low, high in spans)
    assert spans == [(0.125, 0.1487), (0.125, 0.1768), (0.5, 0.7071)]
    scale = module.sharpness_fitted(results)
    assert scale == pytest.approx(2 * math.sin(math.pi / 30) / 2 ** (-11.5 / 4))
    curve = left.lines[0].get_ydata()
    assert float(curve[0]) == pytest.approx(1 / scale)
    counts = [patch.get_data().values.tolist() for patch in drawn[1].axes[0].patches]
    assert counts == [[0.25, 0.5, 0.25]] * 2
    left, right = drawn[2].axes
    spans = [lines.get_segments()[0].tolist() for lines in left.collections]
    assert spans == [[[0, 0.125], [0, 0.1768]], [[24, 0.25], [24, 0.3536]]]
    assert [text.get_text() for text in left.texts] == ["", "-20%"]
    dots = [points(line) for line in right.lines if len(line.get_xdata())]
    assert dots == [[(24, 0.3), (24, 0.5)]]


def test_the_waits():
    """A pause draws from its own times; a worker's two waits are not the same numbers."""
    assert next(delays.draws(0.0, 0.04, 1, 8, 3)) == pytest.approx(0.04)
    first, second = (next(delays.draws(1.0, 0.01, 1, 8, seed)) for seed in (3, 103))
    assert first != second


def test_the_brackets_on_the_page():
    """Catches: ratios on the page that are not those of the results, or do not hold the law's."""
    module, folder = load(DRIVER), MEASUREMENTS / "Same-Staleness"
    results = json.loads((folder / "results.json").read_text())
    text = " ".join((folder / "README.md").read_text().split())
    laws, measured = re.search(r"the ratios `([^`]*)`; .* them, with `([^`]*)`", text).groups()
    for n, law, ratio in zip((2, 4, 8, 16), laws.split(", "), measured.split(", "), strict=True):
        brackets = [module.bracket(results[module.name_of(n, cv)]) for cv in (0.0, 1.0)]
        (low, high), (least, most) = [map(module.rate_of, bracket) for bracket in brackets]
        due = module.theory.mean_square(n) / module.theory.constant(n)
        assert (law, ratio) == (f"{due:.1f}", f"{least / high:.1f}-{most / low:.1f}")
        assert least / high < due < most / low
