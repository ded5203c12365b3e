"""Scale-Laboratory: its numbers by hand, its committed results again, and its pictures."""

import contextlib
import io
import json
import math
import statistics
import sys

import numpy as np
import pytest
from measurements import MEASUREMENTS, Axes, committed, legend_of, lines_of, load


def test_the_laboratory():
    """Rates of equal workers by hand; what a straggler, a slow link and a lost worker leave.

    Catches: another model or its seconds for two workers, updates for mini-batches, and a
    straggler or a slow link that costs nothing.
    """
    module = load("Scale-Laboratory")
    # 4 workers, a second, 4 MB at 2 MB/s: a ring takes 3 s, of which 2/3 s can hide.
    case = module.Case(4, 1.0, 4e6, 2e6, 0.0, shape=1e-6)
    usual = module.rates(case, 4)
    slow = {name: module.rates(case, 4, name) for name in (module.STRAGGLER, module.SLOW_LINK)}
    local, added, ps = "ring, 10 local steps", "ring, 1/100 of the bytes, added up", module.PS

    def near(what, value, *due):
        assert value == pytest.approx(due, rel=0.01), f"\n{what}: {value}, not {due}"

    near("rates, ring", usual["ring"], 4 / 4, 4 / (1 + 3 - 2 / 3))
    near("rates, local", usual[local], 40 / 13, 40 / (10 + 3 - 2 / 3))
    near("rates, added up", usual[added], 4 / 1.03, 4 / 1)
    near("rates, gathered", usual["1/100 of the bytes, gathered"], 4 / 1.06, 4 / 1)
    near("rates, ps", usual[ps], 4 / (1 + 2 * 4 * 2), 1 / 2)
    near("rates, synchronous", usual["ps, synchronous"], 4 / 17, 4 / 11)
    near("straggler, ring", slow[module.STRAGGLER]["ring"], 4 / 8, 4 / (5 + 3 - 2 / 3))
    near("straggler, ps", slow[module.STRAGGLER][ps], 4 / 17, 1 / 2)
    near("link, ring", slow[module.SLOW_LINK]["ring"], 4 / 31, 4 / (31 - 2 / 3))
    near("link, synchronous", slow[module.SLOW_LINK]["ps, synchronous"], 4 / 53, 4 / 47)
    for name, due in (("ring", 0), (ps, 3 / 4), ("ps, at most 4 ahead", 0.02), ("gossip", 3 / 4)):
        value = module.remaining_share(name, 4, 1e-6)
        assert value == pytest.approx(due, abs=0.02), f"\nlost, {name}: {value}"
    laptop, layers = module.cases()["a laptop, 2 cores"], load("Benchmarks").MODELS["wide"][0]
    rates = json.loads((MEASUREMENTS / "Benchmarks" / "results.json").read_text())
    near(
        "laptop, seconds",
        (laptop.c,),
        1 / statistics.median(rates["Non-Distributed-Setup"]["wide"]),
    )
    near("laptop, bytes", (laptop.S,), 4 * sum((i + 1) * o for i, o in zip(layers, layers[1:])))
    curve = [[2, 0.8, 1.2], [4, 1.0, 2.0]]
    points = [(0.5, "measured", 2), (2.03, "published", 4)]
    labels = [module.describe_points([(n, value, source)], curve) for value, source, n in points]
    due = ["measured 0.5 at 2: outside 0.8-1.2", "published 2.03 at 4: inside"]
    assert [*labels, module.describe_points([], curve)] == [*due, "assumed"]
    for name, of in module.plan_scaling().items():
        error = of["planned"][1] / of["measured"] - 1
        assert abs(error) < 0.12, f"\nplanned, {name}: {error:+.1%}"
        if of["staleness"][0]:
            value, due = of["staleness"][::-1]
            assert value == pytest.approx(due, rel=0.05), f"\nplanned, {name}: {value}, not {due}"


def same(path, value, due):
    """Asserts that a value is what JSON has of it; losses of another machine may differ a bit."""
    if isinstance(due, dict):
        assert list(value) == list(due), path
        value, due = list(value.values()), list(due.values())
    if isinstance(due, list):
        assert len(value) == len(due), path
        for number, (part, other) in enumerate(zip(value, due)):
            same(f"{path}, {number}", part, other)
    elif isinstance(due, float):
        assert value == pytest.approx(due, rel=0.001, abs=1e-9), path
    else:
        assert value == due, path


LABORATORY = committed("Scale-Laboratory")


@pytest.mark.parametrize("name", LABORATORY["cases"])
def test_the_laboratory_simulates_what_is_committed(name):
    """Of 4,096 GPUs a few numbers of workers: of less than a machine, a machine, and some.

    Catches: another cluster, cost or law of times than that of the page's table and pictures.
    """
    module = load("Scale-Laboratory")
    assert list(module.cases()) == list(LABORATORY["cases"])
    case, due = module.cases()[name], LABORATORY["cases"][name]
    if case.n < 1000:
        same(name, module.simulate(case), due)
        return
    assert [case.n, *due["curves"]["ring"][-1][:1]] == [4096, 4096]
    for n in (2, 8, 16):
        for scheme, rates in module.rates(case, n).items():
            points = [row[1:] for row in due["curves"][scheme] if row[0] == n]
            same(f"{name}, {scheme}", [[rate * case.c for rate in rates]], points)
    left = {scheme: module.remaining_share(scheme, 64, case.shape) for scheme in due["left"]}
    same(f"{name}, lost", left, {scheme: of["one is lost"] for scheme, of in due["left"].items()})
    module.rates = lambda case, n, trouble=None: {"ring": (n / case.c,) * 2}
    module.remaining_share = lambda name, n, shape: n
    few = module.simulate(case)
    same(f"{name}, first", few["first"], due["first"])
    assert [n for n, *_ in few["curves"]["ring"]] == [2**i for i in range(1, 13)]
    assert few["left"] == {"ring": {"a straggler": 1, "a slow link": 1, "one is lost": 64}}


@pytest.mark.parametrize("n", [8, 100])
def test_the_laboratory_learns_what_is_committed(n):
    """Catches: other data, schemes, rates or moments than those of the table; a seed that counts
    twice."""
    module = load("Scale-Laboratory")
    module.SIZES, due = (n,), LABORATORY["learning"][f"{n} workers"]
    if n > 8:  # it takes long: the first seed only
        module.SEEDS = 1
    results = module.learn_all(json.loads(module.RATES.read_text()))[f"{n} workers"]
    assert list(results) == list(due)
    for name, of in due.items():
        assert results[name]["lr"] == of["lr"] and of["lr"] in module.GRID
        assert results[name]["last"] == pytest.approx(of["last"][: module.SEEDS], rel=0.02), name
        if n == 8:
            assert results[name]["median"] == pytest.approx(of["median"], rel=0.02, abs=2e-4), name
    if "own w" in due["gossip"]:
        own = due["gossip"]["own w"][: module.SEEDS]
        assert results["gossip"]["own w"] == pytest.approx(own, rel=0.02)
    assert module.GRID[0] == 45 and 0 < module.GRID[-1] < 2e-4
    steps = [one / two for one, two in zip(module.GRID, module.GRID[1:])]
    assert steps == pytest.approx([1 / 0.45] * 16, rel=0.01)


def test_the_laboratory_knows_what_is_committed():
    """Catches: runs with two workers that are read otherwise, and published points that fit
    another law."""
    module = load("Scale-Laboratory")
    same("planned", module.plan_scaling(), LABORATORY["planned"])
    assert module.check_published() == LABORATORY["trusted"]
    curve = [[2, 1.0, 2.0], [4, 2.0, 4.0]]
    two = [(2, 0.981, "a"), (4, 4.09, "b")]
    assert module.describe_points(two, curve) == "b 4.09 at 4: outside 2-4"
    assert module.describe_points(two[:1], curve) == "a 0.981 at 2: inside"
    edges = {0.979: "out", 2.039: "in", 2.041: "out"}
    for value, word in edges.items():
        assert f": {word}side" in module.describe_points([(2, value, "a")], curve)


def test_how_published_points_fit(tmp_path):
    """Points made by hand, just inside and just outside of each range.

    Catches: a point that fits although it does not, a fit with the points that it comes from, and
    the smallest error for the worst.
    """
    module = load("Scale-Laboratory")
    # A second each, of which 0.602 s are messages: from 1 / 1.602 to 1, and 2 points allowed.
    usual = {"by": "ring", "n": 2, "c": 1, "megabytes": 75.25, "gigabits": 1}
    shares = [0.605, 0.604, 1.019, 1.021, 0.8, 0.7721, 0.7719]
    efficiencies = [{**usual, "case": f"x {share}", "efficiency": share} for share in shares]
    # Of two ps each has half: 4 * 1 s.
    ps = {"case": "x ps", "by": "ps_together", "n": 4, "c": 4, "P": 2, "efficiency": 0.51}
    efficiencies += [{**ps, "megabytes": 125, "gigabits": 1}]
    efficiencies += [{**usual, "case": "x 128 GPUs", "efficiency": 0.1}]
    names = "compute", "communication", "T", "seconds"
    steps = [dict(zip(names, values)) for values in ((1, 2, 4, 1.25), (1, 2, 1, 4))]
    servers = [
        {"n": n, "c": 1, "megabytes": 125, "gigabits": 1, "P": 4, "times_one_gpu": times}
        for n, times in ((2, 0.4), (8, 0.5))
    ]
    points_ = {"efficiencies": efficiencies, "steps": steps, "servers": servers}
    (tmp_path / "published.json").write_text(json.dumps(points_))
    module.FOLDER = tmp_path
    fitted = 1 / (1.065 + 0.28 * 0.602)
    errors = [abs(fitted / share - 1) for share in shares] + [4 / (4.26 + 1.12) / 0.51 - 1]
    assert module.check_published() == {
        "9 efficiencies, none to full overlap": "6 inside, 2 points allowed; "
        "the range is 38 points wide in the median",
        "8 of them, by the two fitted numbers": f"median error {statistics.median(errors):.1%}, "
        f"2 within 5%, worst +{errors[-1]:.0%}: x ps",
        "2 steps with local steps or one peer": "errors +20%, -25%",
        "2 speed-ups with four ps": "simulated to published 2.0, 4.0",
    }


def test_rates_are_tuned_by_the_worst_end():
    """The largest loss behind three quarters of the time decides, with a seed that is not shown.

    Catches: the last loss, the largest of all, a rate at which it is no number, and another seed.
    """
    module, calls = load("Scale-Laboratory"), []
    ends = {8.0: [9, 9, 1, math.inf], 4.0: [9, 9, 3, 1], 2.0: [9, 9, 2, 2], 1.0: [0, 0, 2.5, 0]}

    def learners(n, seed):
        calls.append((n, seed))
        return {"a": lambda lr: (list(zip((0, 30, 30.5, 40), ends[lr])), None)}

    module.GRID, module.learners = list(ends), learners
    assert module.tune_rates(7) == {"a": 2.0}
    assert calls == [(7, 0)]


def test_a_case_of_ones_own(tmp_path, monkeypatch):
    """Each flag alone or all together; what is not given is as the help says. Then it is written.

    Catches: bits for bytes, a flag in another's place, a limit that does not hold, and results
    that are simulated although only one case was asked for.
    """
    module = load("Scale-Laboratory")

    def case(*words):
        monkeypatch.setattr(sys, "argv", ["a script", *words])
        return module.parse_flags().case

    assert case() is None and case("--tune") is None
    usual = (64, 0.26, 4 * 25.6e6, 1.25e9, 5e-5, 1, 1e10, math.inf, 0.1, ())
    assert case("--workers", "64") == usual
    for flag, value, place, due in (
        ("--workers", "4096", 0, 4096),
        ("--parameters", "1e6", 2, 4e6),
        ("--compute", "0.5", 1, 0.5),
        ("--variation", "0.5", 8, 0.5),
        ("--latency", "0.1", 4, 0.1),
        ("--inside", "8", 5, 8),
    ):
        assert case(flag, value) == (*usual[:place], due, *usual[place + 1 :]), flag
    assert case("--gigabits", "8")[3:7] == (1e9, 5e-5, 1, 8e9)
    for wrong in ("4097", "0"):
        with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            case("--workers", wrong)
    simulated, drawn = [], []
    module.simulate = lambda one: simulated.append(one.n) or {"of": [one.n, np.float64(0.5)]}
    module.table_of, module.draw = (lambda results: "a table"), lambda *given: drawn.append(given)
    module.example_runs.output_directory = lambda name: tmp_path
    monkeypatch.setattr(sys, "argv", ["a script", "--workers", "8"])
    module.main()
    assert simulated == [8]
    text = (tmp_path / "results.json").read_text()
    # The numbers of a list share a line.
    assert text == '{\n "cases": {\n  "your case, 8 workers": {\n   "of": [ 8, 0.5 ]\n  }\n }\n}\n'
    ((results, path, source),) = drawn
    assert list(results["cases"]) == ["your case, 8 workers"]
    assert (path, source) == (tmp_path / "scale-laboratory.png", tmp_path / "results.json")
    lines = (tmp_path / "table.txt").read_text().splitlines()
    assert lines == ["a table", "simulated, not measured; loss: median (range) of 5 seeds"]
    module.RATES, module.tune_rates = tmp_path / "rates.json", lambda n: {"a": n}
    module.learn_all = lambda rates: rates
    module.plan_scaling, module.check_published = dict, dict
    monkeypatch.setattr(sys, "argv", ["a script", "--tune"])
    module.main()
    assert list(drawn[-1][0]["cases"]) == list(LABORATORY["cases"])
    assert drawn[-1][0]["learning"] == {"8": {"a": 8}, "100": {"a": 100}, "1000": {"a": 1000}}
    assert "planned" in drawn[-1][0] and "trusted" in drawn[-1][0]


def test_the_strips_of_the_laboratory():
    """A strip is the share of the workers; 0.8 of a row is all of it; a cross is a known speed-up.

    Catches: the speed-up for a share, a range the other way round, numbers of fewer workers, and a
    cross of another scheme.
    """
    module, axes = load("Scale-Laboratory"), Axes()
    curve = [[2, 0.5, 1.5], [4, 1.0, 3.0]]
    module.draw_strip(axes, 3, curve, [(2, 1.0)])
    assert axes.of("axhline") == [[3], [3.8]]
    (n, base, bottom), (other, low, top) = axes.of("fill_between")
    assert [list(n), base, list(other)] == [[2, 4], 3, [2, 4]]
    assert list(bottom) == list(low) == pytest.approx([3.2, 3.2])
    assert list(top) == pytest.approx([3.6, 3.6])
    (line, cross) = axes.of("plot")
    assert list(line[1]) == list(top) and cross == [2, pytest.approx(3.4), "kx"]
    assert axes.of("text") == [[1.05, pytest.approx(3.4), "25-75%"]]
    ranges = (0.5, 0.5), (0.25, 0.5), (0.0052, 0.01), (0.0017, 0.0049)
    words = [module.shares_in_words(*shares) for shares in ranges]
    assert words == ["50%", "25-50%", "0.5-1%", "0.2-0.5%"]
    ranges = (0.5, 0.5), (9.994, 10), (2, 100), (1500, 1500.2)
    words = [module.range_in_words(*rates) for rates in ranges]
    assert words == ["0.50", "10.0", "2-100", "1,500"]


def test_the_pictures_of_the_laboratory(tmp_path):
    """A column for each case, a row for each scheme of any; beside it the losses over seconds.

    Catches: a scheme in another's row, points of another scheme, and losses in updates.
    """
    module, strips = load("Scale-Laboratory"), []
    saved = []
    module.charts.save = lambda figure, path, source: saved.append((figure, path, source))
    module.draw_strip = lambda axes, *more: strips.append((axes.get_title(), *more))
    one, two, three = [[2, 1, 2], [4, 2, 3]], [[2, 1, 1], [4, 1, 1]], [[4, 0, 1]]
    few = {"curves": {"ring": one}, "points": []}
    points_ = [("gossip", 4, 0.5, "measured"), ("ring", 2, 1.5, "published")]
    all_ = {"curves": {"ring": two, "ps": one, "gossip": three}, "points": points_}
    results = {"cases": {"a, b": few, "8 GPUs in a machine": all_}}
    module.draw(results, tmp_path / "x.png", "a source")
    assert strips == [
        ("", 2, one, []),
        ("", 0, three, [(4, 0.5)]),
        ("", 1, one, []),
        ("", 2, two, [(2, 1.5)]),
    ]
    ((figure, *paths),) = saved
    first, second = figure.axes
    assert paths == [tmp_path / "x.png", "a source"]
    assert [axes.get_title() for axes in figure.axes] == ["a\nb", "8 GPUs\nin a machine"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["gossip", "ps", "ring"]
    assert list(first.get_yticks()) == pytest.approx([0.4, 1.4, 2.4])
    for axes in first, second:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["2", "4"]
        assert (axes.get_xscale(), axes.get_ylim()) == ("log", (-0.15, 3))
    losses = {"ring": {"median": [2.0, 1.0, 0.5]}, "gossip": {"median": [2.0, 3.0, 4.0]}}
    results["learning"] = {"8 workers": losses, "100 workers": dict(list(losses.items())[:1])}
    module.draw(results, tmp_path / "x.png", "a source")
    figure, *paths = saved[-1]
    assert len(saved) == 3 and paths == [tmp_path / "loss-over-seconds.png", "a source"]
    eight, hundred = figure.axes
    ring = ("None", "ring", [(0, 2), (20, 1), (40, 0.5)])
    assert lines_of(eight) == [ring, ("None", "gossip", [(0, 2), (20, 3), (40, 4)])]
    assert lines_of(hundred) == [ring] and eight.get_yscale() == "log"
    assert [axes.get_title() for axes in figure.axes] == ["8 workers", "100 workers"]
    assert legend_of(figure) == ["ring", "gossip"]
