"""What the picture of a run shows, and tfrun curves, from metrics made by hand."""

import numpy as np
import pytest
import run_files
from records import three_pushes
from tfrun.commands import curves as curves_command
from tfrun.pictures import curves
from tfrun.runs import activities
from tfrun.runs.data import RunData

pytestmark = pytest.mark.usefixtures("own_records")


@pytest.fixture
def drawn(monkeypatch):
    """Returns a function that draws a run, by this module, and returns the axes of its picture."""

    def draw(run, module=curves):
        monkeypatch.setattr(curves.plt, "close", lambda figure: None)
        path = module.draw(run)
        assert path.stat().st_size > 10000
        return curves.plt.gcf().axes

    yield draw
    monkeypatch.undo()
    curves.plt.close("all")


def widths(axes):
    """Returns {name of a lane: the widths of its bars}."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = {name: [] for name in names}
    for bar in axes.patches:
        name = names[round(bar.get_y() + bar.get_height() / 2)]
        bars[name].append(pytest.approx(bar.get_width(), abs=1e-4))
    return bars


def test_what_the_picture_shows(drawn):
    """Catches: milliseconds by the pushes of all tasks or in another unit, accuracy for error,

    times that do not begin with the first push, staleness in the neighbour's bin.
    """
    loss, tests, counts, parts, moment = drawn(three_pushes())
    dots = [line for line in loss.lines if line.get_marker() == "."]
    assert [list(line.get_xdata()) for line in dots] == [[0, 1, 2], [1.5]]
    (error,) = tests.lines
    assert list(error.get_xdata()) == [1.25, 3.0]
    assert list(error.get_ydata()) == [0.25, 0]  # which a log scale would not show
    ticks = [label.get_text() for label in tests.get_yticklabels()]
    assert ticks == ["0.0%", "25.0%"] and not tests.get_yticks(minor=True).size
    assert "100.0%" in tests.get_legend().get_texts()[0].get_text()
    bins = {bar.get_x() + bar.get_width() / 2: 0 for bar in counts.patches}
    for bar in counts.patches:
        bins[bar.get_x() + bar.get_width() / 2] += bar.get_height()
    assert {x: n for x, n in bins.items() if n} == pytest.approx({0: 1, 1: 2, 3: 1})
    assert counts.get_title() == "Staleness, mean 1.25"  # not the mean of the means of workers
    # Worker 0 pulls for 0.85 s and 0.6 s, and evaluates for 0.125 s and 0.5 s.
    assert widths(parts) == {
        "worker 1": [0, 100, 50, 0, 0],
        "worker 0": [1450 / 3, 100, 50, 0, 625 / 3],
    }
    assert moment.get_title() == "A moment of the run"


def test_the_times_of_updates_in_the_picture(drawn):
    """Where nothing is stale. Catches seconds for milliseconds, and gaps between tasks."""
    run_files.flags("r", ["worker-0"], steps=3)
    pushes = [run_files.push(at, k) for k, at in enumerate((1.0, 1.004, 1.010), 1)]
    run_files.metrics("r", "worker-0", *pushes)
    counts = drawn(RunData.read("r"))[2]
    filled = [bar for bar in counts.patches if bar.get_height()]
    inside = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in filled]
    assert len(filled) == 2
    for (left, right), gap in zip(inside, (4, 6)):
        assert left - 0.1 < gap < right + 0.1


def test_losses_around_a_stall(drawn):
    """No line crosses a stall, and a loss that is no number is a cross.

    Catches: a line or a mean across a stall, and a loss of infinity that is not drawn.
    """
    run_files.flags("r", ["worker-0"], steps=160)
    losses = [*[1] * 80, *[0.1] * 78, "nan", "inf"]
    times = [1 + k / 100 + (k > 80) for k in range(1, 161)]
    pushes = [run_files.push(at, k, loss=losses[k - 1]) for k, at in enumerate(times, 1)]
    run_files.metrics("r", "worker-0", *pushes)
    axes = drawn(RunData.read("r"))[0]
    means = [line for line in axes.lines if line.get_marker() == "None"]
    assert len(means) == 2
    before, after = [line.get_ydata() for line in means]
    assert list(before) == [1] * 80 and list(after[:70]) == pytest.approx([0.1] * 70)
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [pytest.approx([2.58, 2.59])]
    assert "x: no number" in axes.get_xlabel()
    for at in crosses[0].get_transform().transform(crosses[0].get_xydata()):
        assert axes.get_window_extent().contains(*at)


def test_errors_of_the_tests(drawn):
    """Errors stand between 0 and the legend, with ticks at some of them.

    There are 5, 6 or 15 in 360 examples; a second metric ends with none.

    Catches: ticks beside whole examples, minor ticks, a legend on a curve or with room for one
    metric, and an axis of time that differs from the loss's.
    """
    names = ["test_accuracy", "test_top_5_accuracy", "test_loss"]
    wrong = [(6, 15), (5, 5), (6, 1), (15, 0), (5, 0)]
    tests = [
        run_files.test(2 + k, k, 1 - some / 360, 1 - others / 360, 0.5, tests=names)
        for k, (some, others) in enumerate(wrong)
    ]
    pushes = [run_files.push(at, at, tests=names) for at in (1, 9)]
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", *pushes, *tests, tests=names)
    axes = drawn(RunData.read("r"))[1]
    axes.figure.canvas.draw()
    legend, inside = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert len(axes.lines) == 2 and legend.y1 <= inside.y1
    for line in axes.lines:
        curve = axes.transData.transform(line.get_xydata())
        assert len(curve) == 5 and inside.y0 - 0.01 < min(curve[:, 1])
        assert max(curve[:, 1]) < legend.y0
    counts = [360 * tick for tick in axes.get_yticks()]
    assert counts == pytest.approx([0, 1, 5, 15]) and not axes.get_yticks(minor=True).size
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["0.0%", "0.3%", "1.4%", "4.2%"]
    assert axes.get_xlim()[0] < 0 and axes.get_xlim()[1] > 8


def test_a_long_time_in_words():
    """Catches 1.04e+03 ms."""
    axes = curves.plt.figure().subplots()
    times = {"worker 0": np.array([1.0] * 400 + [1040.4])}
    curves.draw_counts(axes, times, {"worker 0": "C0"}, whole=False)
    assert axes.texts[0].get_text() == "1 beyond, up to 1,040 ms"


def test_the_parts_of_a_pipeline_are_not_drawn(drawn, monkeypatch):
    """Catches worker 0 of a pipeline, which calls all others, as computing while it waits."""
    spans = [(0, 0, "forward", 0, 0, 0.01), (1, 0, "forward", 0, 0.02, 0.03)]
    monkeypatch.setattr(curves, "stages", lambda directory: spans)
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", run_files.push(1, 1), run_files.push(2, 2))
    *_, counts, moment = drawn(RunData.read("r"))
    assert counts.get_title() == "Time of an update" and not moment.figure.legends
    assert (
        moment.get_title() == "What each worker did in one update" and len(moment.collections) == 2
    )


def test_the_running_mean():
    """Catches a mean that is shifted, or lower at the ends."""
    values = np.array([1.0, 2, 3, 4, 10])
    assert list(curves.smooth(values, 1)) == list(values)
    assert list(curves.smooth(values, 3)) == pytest.approx([4 / 3, 2, 3, 17 / 3, 8])
    assert list(curves.smooth(values, 3, 2)) == pytest.approx([4 / 3, 3, 8])


def test_a_long_run_is_drawn_from_its_middle(drawn, monkeypatch):
    """Catches an Activity for each push of a million, a part of another time, a mean over both."""
    monkeypatch.setattr(activities, "MOST", 10)
    monkeypatch.setattr(curves, "MOST_DOTS", 10)
    run_files.flags("r", ["worker-0"])
    run_files.metrics("r", "worker-0", *(run_files.push(at, at) for at in range(1, 101)))
    run = RunData.read("r")

    def steps(*around):
        spans = activities.activities(run, *around)
        return [int(span.facts["global_step"]) for span in spans if span.name == "push"]

    assert steps() == list(range(56, 66)) and steps(0) == list(range(1, 11))
    assert steps(200) == list(range(91, 101))
    loss, _, _, parts, moment = drawn(run)
    dots, mean = loss.lines
    assert 0 < len(dots.get_xdata()) == len(mean.get_xdata()) <= 10
    assert dots.get_xdata()[-1] >= 90 and moment.get_title() == "A moment of the run"
    widths = {patch.get_width() for patch in parts.patches}
    assert max(widths) <= 1000, "milliseconds an update: they are a second apart"


def test_each_directory_has_its_picture(capsys, monkeypatch):
    """Catches the first one alone, or one picture for all."""
    monkeypatch.setattr(curves, "draw", lambda run: run.directory / "curves.png")
    for name in "a", "b":
        run_files.flags(name)
    assert curves_command.command(["a", "b"]) == 0
    assert capsys.readouterr().out.split() == ["a/curves.png", "b/curves.png"]
    assert curves_command.command(["a", "none"]) == 1
