"""Where each part of a picture stands, against numbers by hand."""

import dataclasses

import matplotlib.colors
import numpy as np
import pytest
import run_files
from matplotlib import image
from records import three_pushes
from tfrun import formatting
from tfrun.pictures import curves, timeline
from tfrun.runs.activities import Activity
from tfrun.runs.data import RunData

pytestmark = pytest.mark.usefixtures("own_records")
BLUE, ORANGE = timeline.COLOURS[:2]


@pytest.fixture
def axes():
    """Returns axes of a figure of their own, 10 inches wide."""
    yield curves.plt.figure(figsize=(10, 5)).subplots()
    curves.plt.close("all")


def colour_of(patch):
    """Returns the colour of a bar without its alpha."""
    return matplotlib.colors.to_hex(patch.get_facecolor())


def bars(axes):
    """Returns [(middle, height, left, width)] of the bars."""
    numbers = [
        (bar.get_y() + bar.get_height() / 2, bar.get_height(), bar.get_x(), bar.get_width())
        for bar in axes.patches
    ]
    return [pytest.approx(row, abs=1e-6) for row in numbers]


def names(axes):
    """Returns {place: name} of the ticks of the lanes."""
    return dict(zip(axes.get_yticks(), (label.get_text() for label in axes.get_yticklabels())))


def moment(scale=1.0, stale=(3, 0)):
    """Returns what two workers do from 10 s on: each pulls, computes and pushes once."""

    def at(task, name, begin, end, **facts):
        return Activity(task, name, 10 + scale * begin, 10 + scale * end, facts)

    return [
        at("worker 0", "pull", 0.00, 0.01),
        at("worker 0", "compute", 0.01, 0.03),
        at("worker 0", "push", 0.03, 0.05, global_step=7, staleness=stale[0]),
        at("worker 0", "evaluation", 0.06, 0.08),
        at("worker 1", "pull", 0.00, 0.02),
        at("worker 1", "compute", 0.02, 0.06),
        at("worker 1", "push", 0.06, 0.07, global_step=8, staleness=stale[1]),
        at("worker 1", "wait", 0.07, 0.10),
    ]


@pytest.mark.parametrize("scale, unit, name", [(1, 1000, "milliseconds"), (100, 1, "seconds")])
def test_a_moment(scale, unit, name, axes):
    """Catches: another unit, a lane or a height of another task, and a line to another update."""
    seen = timeline.timeline(axes, moment(scale), 10, 10 + 0.1 * scale)
    assert len(seen) == 8 and names(axes) == {0: "worker 1", 1: "worker 0", 2: "updates of w"}
    k = unit * scale
    assert bars(axes) == [
        (1, 0.12, 0, 0.01 * k),
        (1, 0.5, 0.01 * k, 0.02 * k),
        (1, 0.5, 0.03 * k, 0.02 * k),
        (1, 0.5, 0.06 * k, 0.02 * k),
        (0, 0.12, 0, 0.02 * k),
        (0, 0.5, 0.02 * k, 0.04 * k),
        (0, 0.5, 0.06 * k, 0.01 * k),
        (0, 0.5, 0.07 * k, 0.03 * k),
    ]
    grey = timeline.EVALUATION_COLOUR
    colours = [colour_of(bar) for bar in axes.patches]
    assert colours[:7] == [BLUE, BLUE, BLUE, grey, ORANGE, ORANGE, ORANGE]
    assert [bar.get_alpha() for bar in axes.patches[:3]] == [0.6, 0.85, 0.3]
    assert axes.patches[7].get_hatch() and not axes.patches[7].get_fill()
    *to_updates, top = [(line.get_xdata(), line.get_ydata()) for line in axes.lines]
    assert [(pytest.approx(list(x)), list(y)) for x, y in to_updates] == [
        ([0.05 * k, 0.05 * k], [1, 2]),
        ([0.05 * k], [2]),
        ([0.07 * k, 0.07 * k], [0, 2]),
        ([0.07 * k], [2]),
    ]
    assert [line.get_marker() for line in axes.lines] == ["None", "v", "None", "v", "None"]
    assert list(top[1]) == [2, 2] and axes.lines[-1].get_linewidth() > 0
    texts = [(text.get_text(), *text.xy) for text in axes.texts]
    assert texts == [
        ("3", pytest.approx(0.05 * k), 1),
        ("0", pytest.approx(0.07 * k), 0),
        ("7", pytest.approx(0.05 * k), 2),
        ("8", pytest.approx(0.07 * k), 2),
    ]
    assert all(0 < offset < 9 for text in axes.texts[:2] for offset in text.xyann)
    assert axes.get_xlim() == pytest.approx((0, 0.1 * k)) and axes.get_ylim() == (-0.5, 2.8)
    assert axes.get_xlabel() == name


def test_a_part_of_a_moment(axes):
    """From 10.02 s to 10.0605 s. Catches: what has ended before, and a number at the edge.

    A push that ends just outside has none, and neither has one that ends where the picture ends.
    """
    seen = timeline.timeline(axes, moment(), 10.02, 10.0605)
    assert [(a.task, a.name) for a in seen] == [
        ("worker 0", "compute"),
        ("worker 0", "push"),
        ("worker 0", "evaluation"),
        ("worker 1", "pull"),
        ("worker 1", "compute"),
        ("worker 1", "push"),
    ]
    assert [(text.get_text(), text.xy[1]) for text in axes.texts] == [("3", 1), ("7", 2)]
    assert axes.get_xlim() == pytest.approx((0, 40.5))
    short = curves.plt.figure().subplots()
    timeline.timeline(short, moment(), 10, 10.0505)
    assert [text.xy[1] for text in short.texts] == [2]  # its number has room, its staleness has not


def test_where_nothing_is_stale(axes):
    """Catches a 0 at each push, and a number of another width than its letters."""
    timeline.timeline(axes, moment(stale=(0, 0)), 10, 10.1)
    assert [text.get_text() for text in axes.texts] == ["7", "8"]
    # A picture of 720 points has 640 beside the names, and a digit 6.5 of them. So 1 s of 100 s,
    # 6.4 points, is too little for a number of 3 digits and the gap behind it, and 5 s are enough.
    for gap, due in (1, ["100"]), (3.9, ["100"]), (4.2, ["100", "101"]):
        axes.clear()
        pushes = [
            Activity("worker 0", "push", 50 + k * gap, 50 + k * gap, {"global_step": 100 + k})
            for k in range(2)
        ]
        timeline.timeline(axes, pushes, 0, 100)
        assert [text.get_text() for text in axes.texts] == due, gap


def test_what_the_legend_names():
    """Catches: what does not occur, and a share of time by the last activity of a kind alone."""
    labels = [patch.get_label() for patch in timeline.legend(moment())]
    assert labels == [*timeline.LABELS.values()]
    assert timeline.legend([Activity("worker 0", "compute", 1, 1, {})]) == []
    # Ten local steps: computing takes 2 s of pulls' 10 s, but only 0.5 s at the end.
    steps = [
        Activity("worker 0", name, begin, end, {"local_steps": 10})
        for name, begin, end in (
            *(("compute", 0, 1.5), ("pull", 1.5, 6.5), ("push", 6.5, 7)),
            *(("compute", 7, 7.5), ("pull", 7.5, 12.5)),
        )
    ]
    assert timeline.legend(steps)[0].get_label() == timeline.LABELS["pull"]


def test_the_turns_of_stages(axes):
    """Two workers: three turns in the upper row, one below. Catches another lane, row or colour."""
    spans = [
        (0, 0, "forward", 0, 0.0, 0.1),
        (0, 1, "backward", 1, 0.2, 0.5),
        (1, 0, "gather", 4, 0.5, 1.0),
        (1, 0, "reduce", 9, 1.0, 1.01),
    ]
    timeline.draw_stages(axes, spans)
    boxes = [collection.get_paths()[0].get_extents().bounds for collection in axes.collections]
    assert boxes == [
        pytest.approx((0, 1.02, 100, 0.38)),
        pytest.approx((200, 0.6, 300, 0.38)),
        pytest.approx((500, 0.02, 500, 0.38)),
        pytest.approx((1000, 0.02, 10, 0.38)),
    ]
    shades = [
        [tuple(rgba) for rgba in collection.get_facecolor()] for collection in axes.collections
    ]
    # Pairs 2, 3, 6, and 11, which begins again: 1; the lighter one for what goes forward.
    assert shades == [[curves.plt.cm.tab20(number)] for number in (5, 6, 13, 2)]
    texts = [(text.get_text(), pytest.approx(text.get_position())) for text in axes.texts]
    assert texts == [("f0", (50, 1.21)), ("b1", (350, 0.79)), ("g4", (750, 0.21))]
    assert names(axes) == {0: "worker 1", 1: "worker 0"} and axes.get_ylim() == (-0.5, 1.5)
    axes.clear()
    timeline.draw_stages(axes, [(0, 0, "forward", 0, 0.0, 0.03), (0, 0, "forward", 1, 1.9, 2.0)])
    assert [text.get_text() for text in axes.texts] == ["f1"]  # a fiftieth of 2 s has no room


def test_where_the_time_goes(axes):
    """Catches: bars that do not follow one another, and a height or a style of another part."""
    colours = {"worker 0": BLUE, "worker 1": ORANGE}
    trace = [a._replace(task="worker 0") for a in moment()] + moment()[:4]
    curves.draw_parts(axes, trace, colours, ["worker 0", "worker 1"])
    # Worker 0 has three pushes now, and worker 1 no activity at all.
    pull, compute, push, wait, test = (1000 * s / 3 for s in (0.04, 0.08, 0.05, 0.03, 0.04))
    assert bars(axes)[5:] == [
        (1, 0.25, 0, pull),
        (1, 0.7, pull, compute),
        (1, 0.7, pull + compute, push),
        (1, 0.7, pull + compute + push, wait),
        (1, 0.7, pull + compute + push + wait, test),
    ]
    assert bars(axes)[:5] == [(0, 0.25 if k == 0 else 0.7, 0, 0) for k in range(5)]
    assert axes.patches[8].get_hatch() and colour_of(axes.patches[6]) == BLUE
    assert names(axes) == {0: "worker 1", 1: "worker 0"}
    assert axes.get_title() == "Where the time goes"
    assert axes.get_xlabel() == "milliseconds per update, mean"
    labels = [label.get_color() for label in axes.get_yticklabels()]
    assert labels == [ORANGE, BLUE]
    assert axes.get_xlim() == pytest.approx((0, 1.05 * 80)) and axes.get_ylim() == (-0.5, 1.5)
    for n, due in (1, (-1, 1)), (4, (-0.5, 3.5)):
        axes.clear()
        curves.draw_parts(axes, [], dict.fromkeys("abcd", BLUE), [*"abcd"[:n]])
        assert axes.get_ylim() == due and axes.get_xlim() == (0, 1)


def test_bins(axes):
    """Catches: bins of another width, a bar without room above it, and one bin for equal times."""
    curves.draw_counts(axes, {"worker 0": np.array([1.0, 1, 2])}, {"worker 0": BLUE}, whole=True)
    assert sum(bar.get_height() for bar in axes.patches) == 3 and not axes.texts
    assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == [1, 2, 3]
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] == pytest.approx(1.15 * 1.05 * 2)
    for times, last in ([0.0, 0, 0], 1), ([5.0, 10, 10], 10.2):
        axes.clear()
        curves.draw_counts(axes, {"worker 0": np.array(times)}, {"worker 0": BLUE}, whole=False)
        assert len(axes.patches) == 39 and sum(bar.get_height() for bar in axes.patches) == 3
        middles = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
        assert middles[-1] == pytest.approx(last * (1 - 1 / 78))
    axes.clear()
    curves.draw_counts(axes, {"worker 0": np.zeros(0)}, {"worker 0": BLUE}, whole=True)
    assert not axes.patches
    values = np.array([1] * 400 + [40])
    curves.draw_counts(axes, {"worker 0": values}, {"worker 0": BLUE}, whole=True)
    assert axes.texts[0].get_text() == "1 beyond, up to 40"


@pytest.mark.parametrize("least, due", [(0.5, [0.5, 1, 2, 5, 10]), (1e-4, [1e-3, 0.01, 0.1, 1])])
def test_the_axis_of_the_loss(least, due, axes):
    """Catches 1, 2 and 5 of each of many decades, or 1 alone of one, and letters between them."""
    columns = {"push_time": np.array([1.0, 2, 3]), "loss": np.array([10, 1, least])}
    curves.draw_loss(axes, {"worker 0": columns}, {"worker 0": BLUE}, 1.0)
    low, high = axes.get_ylim()
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert set(due) <= set(shown) and len(shown) <= len(due) + 2
    assert axes.yaxis.get_major_formatter()(0.5, 0) == "0.5"
    assert {label.get_text() for label in axes.get_yticklabels(minor=True)} <= {""}


@pytest.fixture
def drawn(monkeypatch):
    """Returns a function that draws a run, and returns the figure."""

    def draw(run):
        monkeypatch.setattr(curves.plt, "close", lambda figure: None)
        assert curves.draw(run)
        return curves.plt.gcf()

    yield draw
    monkeypatch.undo()
    curves.plt.close("all")


def test_the_whole_picture(drawn):
    """Catches the title of another run, and a grid or a height for another number of tasks."""
    result = {"ps": 1, "workers": 2, "dataset": "digits", "steps": 4, "wall_seconds": 3.0}
    run = dataclasses.replace(three_pushes(), result=result)
    figure = drawn(run)
    title = "HogWild, 1 ps, 2 workers\n4 updates on digits in 3.0 s"
    assert figure.get_suptitle() == formatting.run_text(run.example, result) == title
    assert tuple(figure.get_size_inches()) == pytest.approx((7.2, 7.9 + 1.5 * 0.7))
    loss, tests, counts, parts, moment = figure.axes
    shown = [
        [any(line.get_visible() for line in axis.get_gridlines()) for axis in (a.xaxis, a.yaxis)]
        for a in figure.axes
    ]
    assert shown == [[True, True]] * 3 + [[True, False]] * 2
    assert counts.get_ylabel() == "pushes" and tests.get_title() == "Test error"
    assert tests.get_ylim()[0] == 0
    places = [a.get_subplotspec() for a in figure.axes]
    assert [(place.rowspan.start, [*place.colspan]) for place in places] == [
        *((0, [0]), (0, [1]), (1, [0]), (1, [1]), (2, [0, 1])),
    ]
    heights = [a.get_subplotspec().get_gridspec().get_height_ratios() for a in figure.axes]
    assert heights == [pytest.approx([2.4, 2.1 + 0.35, 1.6 + 0.7])] * 5
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        timeline.LABELS[name] for name in ("pull", "compute", "push", "evaluation")
    ]


def test_the_picture_of_one_worker(drawn):
    """Of other metrics than accuracy. Catches: pushes, errors, a name too few, a best that hides.

    Its updates are 10 ms and 20 ms apart.
    """
    tests = ["test_f1", "test_loss"]
    rows = [run_files.push(1 + at, k, tests=tests) for k, at in enumerate((0, 0.01, 0.03), 1)]
    rows += [run_files.test(1.02, 2, 0.5, 1.5, tests=tests)]
    rows += [run_files.test(1.04, 3, 0.25, 1.0, tests=tests)]
    more = {"metrics": {"test_f1": "max", "test_loss": "min"}}
    run_files.flags("r", ["worker-0"], steps=3, **more)
    run_files.metrics("r", "worker-0", *rows, tests=tests)
    result = {"ps": 0, "workers": 1, "dataset": None, "steps": 3, "wall_seconds": 0}
    run = dataclasses.replace(RunData.read("r"), result={**result, "best": {"test_f1": 0.5}})
    _, of_tests, counts, *_ = drawn(run).axes
    assert counts.get_ylabel() == "updates" and of_tests.get_title() == "Test f1"
    (line,) = of_tests.lines
    assert list(line.get_ydata()) == [0.5, 0.25] and line.get_color() == "#333333"
    end, best = of_tests.get_legend().get_texts()[0].get_text().split("\n")
    assert "0.25" in end and best.startswith("best: ") and "0.5" in best
    edges = np.linspace(0, 1.02 * np.quantile([10, 20], 0.995), 40)
    filled = [bar.get_x() + bar.get_width() / 2 for bar in counts.patches if bar.get_height()]
    middles = (edges[1:] + edges[:-1]) / 2
    bins = np.searchsorted(edges, [10, 20]) - 1
    assert [np.abs(middles - x).argmin() for x in filled] == list(bins[bins < 39])


def test_a_little_staleness(drawn):
    """Catches times of updates where some lacked one update of others."""
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", run_files.push(1, 1), run_files.push(2, 2, staleness=1))
    assert drawn(RunData.read("r")).axes[2].get_title() == "Staleness, mean 0.50"


def test_the_size_of_a_moment(tmp_path):
    """Catches a height for another number of tasks, and a figure that stays in memory."""
    timeline.draw(tmp_path / "a.png", "title", moment(), 10, 10.1)
    assert image.imread(tmp_path / "a.png").shape[:2] == (round(110 * (1.5 + 0.9)), 1100)
    assert not curves.plt.get_fignums()


def test_two_metrics_of_a_test(drawn):
    """Catches one colour for both, and the name of the first as the title."""
    tests = ["test_f1", "test_recall", "test_loss"]
    rows = [run_files.push(1 + k, k, tests=tests) for k in (1, 2)]
    rows += [run_files.test(2.5, 2, 0.5, 0.75, 1, tests=tests)]
    run_files.flags("r", ["worker-0"], metrics={"test_f1": "max", "test_recall": "max"})
    run_files.metrics("r", "worker-0", *rows, tests=tests)
    axes = drawn(RunData.read("r")).axes[1]
    assert axes.get_title() == "Metrics of the test"
    assert [line.get_color() for line in axes.lines] == ["#333333", timeline.COLOURS[4]]
