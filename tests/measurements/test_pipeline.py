"""Pipeline: what it runs, what it reads of a timeline made by hand, and its picture."""

import json
import pathlib
import types

import numpy as np
import pytest
from measurements import Axes, cells, committed, figures, load, turned


def test_what_a_pipeline_is_asked_for():
    """Its cases are those of the committed table; shown are the updates that the page shows.

    Catches: another default, cases of too few micro-batches, a machine with one core, and updates
    of one repeat.
    """
    module = load("Pipeline")
    module.os = types.SimpleNamespace(sched_getaffinity=lambda _: [0, 1])
    module.summary = lambda case, updates: ([*case, updates], updates)
    module.pack, rows = list, committed("Pipeline")
    flags, cases, repeats, one, _, results = turned(module, "Pipeline")
    due = {"micro_batches": [1, 2, 4, 8, 16], "updates": 20, "repeats": 3, "threads": 2}
    assert (vars(flags), repeats) == ({**due, "redraw": None, "anyway": False}, 3)
    assert [list(case) for case in cases] == [row[:5] for row in rows["table"]]
    runs = [[part for n in range(3) for part in (case.name, n)] for case in cases]
    assert results["table"] == [[*case, of] for case, of in zip(cases, runs)]
    assert [list(update["case"]) for update in results["updates"]] == [
        update["case"] for update in rows["updates"]
    ]
    assert [update["ops"] for update in results["updates"]] == [
        runs[cases.index(update["case"])] for update in results["updates"]
    ]
    module.measure = lambda *arguments: arguments
    assert one(cases[2], 1) == (cases[2], 20, 2)
    *_, results = turned(module, "", "--micro-batches", "2,16")
    assert [update["case"][1:4] for update in results["updates"]] == [
        (schedule, K, 16) for K in (4, 2) for schedule in ("gpipe", "1f1b")
    ]
    module.os.sched_getaffinity = lambda _: [0]
    with pytest.raises(SystemExit, match="two cores"):
        turned(module, "", "--updates", "1")
    assert [module.numbers(text) for text in ("64", "1,32")] == [[64], [1, 32]]
    for text in ("0", "3", "128", "1,-1", "1,24"):
        with pytest.raises(Exception, match="must divide 64"):
            module.numbers(text)


def test_the_runs_of_a_pipeline(tmp_path):
    """Catches: updates of the warm-up, another number of tasks, and threads of late layers."""
    module, runs = load("Pipeline"), []

    def run(command, directory, **env):
        words = list(map(str, command))
        script = pathlib.Path(words[6])
        assert (script.parent / "late.py").exists()
        runs.append((" ".join(words[:6] + words[7:]), script.read_text(), env))
        directory.mkdir()

    module.example_runs.run = run
    for case in (module.Case("", "1f1b", 2, 8, False), module.Case("", "gpipe", 4, 16, True)):
        assert module.measure(case, 20, 3) == []
    common = "--steps 50 --timeline-steps 2 "
    wide, late = runs
    assert wide[0] == "tfrun --workers 2 --timeout 300 -- " + common + (
        "--batch-size 1024 --micro-batches 8 --schedule 1f1b"
    )
    assert late[0] == "tfrun --workers 1 --timeout 300 -- " + common + (
        "--devices 4 --batch-size 64 --micro-batches 16 --schedule gpipe"
    )
    ones = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    assert wide[2] == {**ones, "TF_NUM_INTEROP_THREADS": "3"}
    assert late[2] == {**ones, "TF_NUM_INTEROP_THREADS": "7"}
    assert "sched_setaffinity" in wide[1] and "late.Late" not in wide[1]
    assert "sched_setaffinity" not in late[1] and late[1].count("late.Late(") == 4


def test_what_a_place_stores_and_how_long_it_is_idle(tmp_path):
    """From a timeline made by hand, of two places of one process, in microseconds.

    Catches: another device's events, a micro-batch that is back before its backward pass has ended.
    """
    pipeline = load("Pipeline")
    device = "/job:localhost/replica:0/task:0/device:CPU:%d Compute"
    events = [
        {"ph": "M", "pid": 7 + k, "args": {"name": device % k if k < 2 else "Tensors"}}
        for k in range(3)
    ]

    def op(place, name, begin, end):
        events.append(
            {
                "ph": "X",
                "pid": 7 + place,
                "name": "MatMul",
                "ts": 1000 + begin,
                "dur": end - begin,
                "args": {"name": name},
            }
        )

    for begin, name in enumerate(("forward/micro_batch_0/a", "forward/micro_batch_1/a")):
        op(0, name, 10 * begin, 10 * begin + 10)
        op(1, name + "_1", 10 * begin + 10, 10 * begin + 20)
    op(0, "backward/micro_batch_0/b", 30, 40)
    op(0, "backward/micro_batch_0/c", 40, 50)
    op(0, "forward/micro_batch_2/a", 45, 50)  # while micro-batch 0 is not back
    op(0, "backward/micro_batch_1/b", 50, 60)
    op(1, "backward/micro_batch_0/b", 30, 40)
    op(1, "Assign", 90, 100)
    op(2, "forward/micro_batch_3/a", 0, 100)
    path = tmp_path / "timeline-6.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ops = pipeline.read(path)
    assert [pipeline.most_stored(ops, k) for k in range(2)] == [3, 2]
    seconds, shares = pipeline.idle_shares(ops, 2)
    assert seconds == pytest.approx(1e-4)
    assert shares == pytest.approx([1 - 0.5, 1 - 0.4])
    assert sorted(pipeline.unpack(pipeline.pack(ops))) == [
        op._replace(begin=pytest.approx(op.begin), end=pytest.approx(op.end)) for op in sorted(ops)
    ]


def test_the_updates_of_a_pipeline():
    """Those after the warm-up, in their order; medians, and the update that is nearest to them.

    Every second update has a timeline.

    Catches: an update of the warm-up, the least that is stored, another update than the
    nearest, and a bubble of M - 1.
    """
    module = load("Pipeline")

    def run(command, directory, **env):
        directory.mkdir()
        for step in range(2, 2 * (5 + 6) + 1, 2):
            (directory / f"timeline-{step}.json").write_text(str(step))

    module.example_runs.run, module.read = run, lambda path: int(path.read_text())
    case = module.Case("a", "gpipe", 2, 4, False)
    assert module.measure(case, 6, 2) == [12, 14, 16, 18, 20, 22]
    Op, updates = module.Op, []
    for seconds, busy in ((4, 2), (2, 1), (3, 1.8), (10, 10)):  # of the second place half as much
        updates.append(
            [
                Op(0, "forward", 0, 0, busy),
                Op(1, "forward", 0, 0, busy / 2),
                Op(0, "update", None, seconds, seconds),
            ]
        )
        updates[-1] += [Op(1, "forward", n, 0, busy / 4) for n in range(1, len(updates))]
    line, nearest = module.summary(case, updates)
    assert line[:5] == tuple(case)
    assert [line[5], line[7]] == pytest.approx([3.5, np.median([0.625, 0.625, 0.55, 0.25])])
    assert line[6] == pytest.approx(
        [np.median([0.5, 0.5, 0.4, 0]), np.median([0.75, 0.75, 0.7, 0.5])]
    )
    assert line[8] == [1, 4]
    assert nearest is updates[0]
    rows = [
        ["", "gpipe", 1, 1, False, 0.1, [0], 0, [1]],
        ["", "1f1b", 2, 4, False, 0.08, [0.25, 0.5], 0.375, [2, 1]],
    ]
    (_, row) = cells(module.table_of({"table": rows}))
    assert row == ["1F1B", "2", "4", "80", "25% 50%", "38%", "20%", "2 1", "1.25"]


def test_a_lane_of_a_pipeline():
    """Two ops at once share the height of the lane; a number stands where its op is largest.

    Catches: seconds for milliseconds, ops of another place, an op that is drawn twice, and the
    number of an update.
    """
    module, axes = load("Pipeline"), Axes()
    Op = module.Op
    ops = [
        Op(1, "forward", 3, 0.0, 0.004),
        Op(1, "backward", 2, 0.002, 0.008),
        Op(1, "update", None, 0.009, 0.010),
        Op(0, "forward", 0, 0.0, 0.1),
        Op(1, "forward", 9, 0.005, 0.005),
    ]
    module.draw_lane(axes, ops, 1, 10, 0.8)
    bars = [(*at, *heights) for (at,), heights in axes.of("broken_barh")]
    due = [(0, 2, 10, 0.8), (2, 2, 10, 0.4), (2, 2, 10.4, 0.4), (4, 4, 10, 0.8), (9, 1, 10, 0.8)]
    assert bars == [pytest.approx(bar) for bar in due]
    assert axes.of("text") == [
        [pytest.approx(1), pytest.approx(10.4), "3"],
        [pytest.approx(6), pytest.approx(10.4), "2"],
    ]
    light, dark, rest = map(module.colour, ops[:3])
    assert rest == "0.35" and sum(light) > sum(dark)
    assert light == module.colour(Op(0, "forward", 13, 0, 1)) != dark
    pairs = {module.colour(Op(0, what, n, 0, 1)) for n in range(10) for what in ("forward", "back")}
    assert len(pairs) == 20


def test_the_picture_of_a_pipeline():
    """Lanes from the first place on top to the last; the title has what the table has.

    Catches: another place's lane, one axis of time for two and four places, and shares of a place.
    """
    module, lanes = load("Pipeline"), []
    drawn, Op, Case = figures(module), module.Op, module.Case
    module.draw_lane = lambda axes, ops, *more: lanes.append((len(ops), *more))
    two = [
        Op(0, "forward", 0, 0, 0.05),
        Op(1, "forward", 0, 0, 0.1),
        Op(1, "update", None, 0.1, 0.2),
    ]
    four = [Op(k, "forward", k % 2, 0, 0.25 if k else 0.5) for k in range(4)]
    longer = [op._replace(end=op.end + 0.3) for op in two]
    cases = Case("", "gpipe", 2, 4, False), Case("", "1f1b", 4, 8, True), Case("", "1f1b", 2, 1, 0)
    updates = [
        {"case": case, "ops": module.pack(ops)} for case, ops in zip(cases, (two, four, longer))
    ]
    module.draw({"updates": updates}, None, None)
    axes = drawn[0].axes
    assert lanes == [
        (len(ops), k, len(range(K)) - 1 - k, 0.8)
        for ops, K in ((two, 2), (four, 4), (longer, 2))
        for k in range(K)
    ]
    assert [panel.get_title(loc="left") for panel in axes] == [
        "GPipe, 2 workers, 4 micro-batches: 200 ms, idle 38%, stored 1, 1",
        "1F1B, 4 places, 8 micro-batches: 500 ms, idle 38%, stored 1, 1, 1, 1",
        "1F1B, 2 workers, 1 micro-batches: 500 ms, idle 15%, stored 1, 1",
    ]
    assert [panel.get_xlim() for panel in axes] == [(0, 500)] * 3
    module.draw({"updates": updates[:1]}, None, None)
    assert drawn[1].axes[0].get_xlim() == (0, 200)
    names = [[text.get_text() for text in panel.get_yticklabels()] for panel in axes]
    assert names[0] == ["worker 1", "worker 0"] and names[1][0] == "place 3"
    assert list(axes[1].get_yticks()) == [0.4, 1.4, 2.4, 3.4]
    heights = [panel.get_subplotspec().get_gridspec().get_height_ratios() for panel in axes]
    assert heights[0] == [2.6, 4.6, 2.6]
