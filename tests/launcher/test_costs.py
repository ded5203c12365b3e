"""The formulas of costs against seconds that somebody can work out on paper.

n = 8 workers, S = 1.4e9 bytes, B = 1e9 bytes a second and a = 0.01 s are such that every term has
a size of its own: an argument that is missing, or that stands in another's place, changes a digit.
"""

import math

import numpy as np
import pytest
from lab.measure import learn, step_cost
from tfrun.simulate import cost, plan

n, c, S, B, a = 8, 3.0, 1.4e9, 1e9, 0.01
RING = 2 * 7 / 8 * 1.4 + 14 * 0.01  # 2.59 s


def test_the_seconds_of_each_scheme():
    """Catches: a term, or an argument with a default, that one scheme of the table loses."""
    table = step_cost.schemes(n, c, S, B, a, P=2, T=5, ratio=10, inside=4, B_inside=1e10)

    def overlapped(communication):
        return pytest.approx((c + max(0, communication - 2), c + communication))

    due = {
        # alone: 3 + 2.8 + 0.02; in step: 3 + 2 * 4 * 1.4 + 0.02
        "ps, asynchronous": pytest.approx((5.82, 14.22)),  # above 8 * 1.4 / 2 = 5.6, the link's
        "ps, synchronous": pytest.approx((3 + 4.5 * 1.4 + 0.02, 3 + 8 * 1.4 + 0.02)),
        "ring": overlapped(RING),
        "halving and doubling": overlapped(2.45 + 6 * 0.01),
        "tree, 64 pieces": overlapped(2 * (3 + 63) * (1.4 / 64 + 0.01)),
        # in a machine: 2 * 3/4 * 1.4e9 / 1e10; between two: 2 * 1/2 * 1.4 and two messages
        "hierarchical": overlapped(0.21 + 1.4 + 0.02),
        "ZeRO 3": overlapped(3 * 7 / 8 * 1.4 + 21 * 0.01),
        "ring, 5 local steps": pytest.approx((3.0, 3 + RING / 5)),
        "ring, 1/10 of the bytes, added up": overlapped(0.245 + 0.14),
        "1/10 of the bytes, gathered": overlapped(7 * (0.14 + 0.01)),
    }
    assert table == due
    # What travels takes longer than the ten gradients beside which it is sent.
    longer = step_cost.schemes(n, 0.1, S, B, a, T=10)
    assert longer["ring, 10 local steps"] == pytest.approx(((1 + RING - 2 / 3) / 10, 0.1 + 0.259))


def test_defaults_of_the_table():
    """Catches: another number of servers, local steps, workers in a machine, or ratio."""
    assert step_cost.schemes(16, c, S, B, a) == step_cost.schemes(
        16, c, S, B, a, P=1, T=10, ratio=100, inside=8, B_inside=math.inf
    )
    assert step_cost.schemes(16, c, S, B) == step_cost.schemes(16, c, S, B, 0)
    assert "ring, 10 local steps" in step_cost.schemes(16, c, S, B)
    assert step_cost.schemes(4, c, S, B, inside=8)["hierarchical"] == (c, c)  # all in one machine


def test_what_layers_and_pieces_cost():
    """Catches: a default that is not one piece, one layer, one server, no latency."""
    assert step_cost.sharded(n, S, B, a) == pytest.approx(3.675 + 21 * 0.01)
    assert step_cost.sharded(n, S, B, a, 5) == pytest.approx(3.675 + 105 * 0.01)
    assert step_cost.tree(n, S, B, a) == pytest.approx(2 * 3 * (1.4 + 0.01))
    assert step_cost.tree(5, S, B, a, 4) == pytest.approx(2 * (3 + 3) * (0.35 + 0.01))
    assert step_cost.tree(1, S, B, a, 4) == 0
    assert step_cost.halving_doubling(5, S, B, a) == pytest.approx(2 * 4 / 5 * 1.4 + 6 * 0.01)
    inside = step_cost.hierarchical(3, 4, S, B, a, 7e9, 0.001)
    assert inside == pytest.approx(1.5 * 0.2 + 6 * 0.001 + 4 / 3 * 1.4 + 4 * 0.01)
    assert cost.ps_together(3, S, B, a) == pytest.approx(2 * 3 * 1.4 + 0.02)
    assert cost.ps_together(3, S, B, a, 5) == pytest.approx(2 * 1.4 + 0.02)  # a worker's own link
    assert cost.ps_in_turn(3, S, B, a) == pytest.approx(4 * 1.4 + 0.02)
    assert cost.ps_in_turn(3, S, B, a, 5) == pytest.approx(2 * 1.4 + 0.02)
    assert step_cost.ps_on_the_workers(3, S, B, a) == pytest.approx(2 * 2 * 1.4 + 0.02)
    assert step_cost.ps_on_the_workers(3, S, B, a, 2) == pytest.approx(2 * 1.4 + 0.02)
    assert step_cost.ps_asynchronous(100, 1.0, S, B, a)[0] == pytest.approx(1.4)  # the link is full
    assert step_cost.ps_asynchronous(100, 1.0, S, B, a, 4)[0] == pytest.approx(0.35)
    assert step_cost.ps_asynchronous(2, 1.0, S, B, a) == pytest.approx((3.82 / 2, (1 + 5.62) / 2))
    for function in (
        cost.ring,
        step_cost.halving_doubling,
        step_cost.tree,
        step_cost.gather,
        step_cost.sharded,
    ):
        assert function(n, S, B) == function(n, S, B, 0.0), function
    assert step_cost.fitted_step(2.0, 3.0) == pytest.approx(2.13 + 0.84)


def test_what_pays_first_on_paper():
    """Catches: a gain that loses the latency or the bytes, or compares with another step."""
    now = 3 + RING
    due = {
        "a link twice as fast": now / (3 + 1.225 + 0.14),
        "a tenth of the latency": now / (3 + 2.45 + 0.014),
        "full overlap": now / (3 + 0.59),
        "10 local steps": now / (3 + 0.259),
        "1/100 of the bytes": now / (3 + 0.0245 + 0.14),
        "halving and doubling": now / (3 + 2.45 + 0.06),
        "a worker twice as fast": now / (1.5 + RING),
    }
    gains = step_cost.first_to_change(n, c, S, B, a)
    assert gains == pytest.approx(due)
    assert list(gains) == sorted(due, key=due.get, reverse=True)
    assert step_cost.first_to_change(n, c, S, B) == step_cost.first_to_change(n, c, S, B, 0.0)


@pytest.mark.parametrize(
    "text, units, due",
    [
        ("2 s", plan.LATENCY, 2),
        ("3ms", plan.LATENCY, 0.003),
        (" .5us ", plan.LATENCY, 5e-7),
        ("8bit/s", plan.BANDWIDTH, 1),
        ("8kbit/s", plan.BANDWIDTH, 1e3),
        ("1.6Mbit/s", plan.BANDWIDTH, 2e5),
        ("10Gbit/s", plan.BANDWIDTH, 1.25e9),
        ("3B/s", plan.BANDWIDTH, 3),
        ("3kB/s", plan.BANDWIDTH, 3e3),
        ("3MB/s", plan.BANDWIDTH, 3e6),
        ("3GB/s", plan.BANDWIDTH, 3e9),
    ],
)
def test_every_unit_of_a_plan(text, units, due):
    """Catches: one unit of the table that is another's."""
    assert plan.quantity(text, units) == pytest.approx(due)


def rows(tasks=2, steps=40, is_synchronous=False, send=0.02, waits=(0.03, 0.05)):
    """Returns the rows of workers: a gradient of 0.1 s, a pull 0.04 s after each push."""
    result = {}
    for k in range(tasks):
        wait = np.full(steps, waits[k] if is_synchronous else send)
        pull = np.arange(steps) * (0.14 + wait[0])
        step = np.arange(steps) if is_synchronous else np.arange(steps) * tasks + k
        columns = {"pull_time": pull, "push_time": pull + 0.1 + wait, "wait_seconds": wait}
        columns |= {"global_step": step + 1, "bytes": np.full(steps, 8e6)}
        result[f"worker-{k}"] = columns | {"local_steps": np.full(steps, 3)}
    return result


def test_what_a_plan_measures():
    """Catches: a field of the run that takes another's place, and times that count the start."""
    early = rows()
    for columns in early.values():
        columns["push_time"][:4] += 5  # the first tenth
    run = plan.measure_run(early, 1, 2, 4)
    assert (run.n, run.servers, run.together, run.backups, run.lead) == (2, 1, False, 2, 4)
    assert run.compute == pytest.approx(np.full(72, 0.1))
    numbers = [run.pull, run.send, run.bytes, run.batches]
    assert numbers == pytest.approx([0.04, 0.02, 8e6, 3])
    run = plan.measure_run(rows(is_synchronous=True), 0)
    assert (run.together, run.backups, run.lead) == (True, 0, 0)
    assert run.send == pytest.approx(0.03)  # of who came last
    plan.measure_run(rows(steps=20), 1)
    with pytest.raises(ValueError, match="at least 20 updates"):
        plan.measure_run(rows(steps=19), 1)


def test_the_way_of_more_workers():
    """Catches: half of the bytes, the queue of the others, and a ring's own share of the bytes."""
    run = plan.MeasuredRun(2, 1, False, np.array([0.1]), 0.04, 0.02, 8e6, 1)
    # a pull and a push of 4 MB each over 1e8 B/s, of 6 workers: together 12, in turn 7 times
    assert plan.way_seconds(run, 6, 1e8, a) == pytest.approx((0.06 + 0.3, 0.06 * 3 + 0.5))
    assert plan.way_seconds(run._replace(servers=2), 6, 1e8, 0) == pytest.approx((0.2, 0.18 + 0.24))
    assert plan.way_seconds(run, 1, 1e8, 0)[1] == pytest.approx(
        0.06 + 0.08
    )  # no less work than measured
    ring = run._replace(servers=0, n=3)  # 4 MB are 2 * 2/3 of w each way: w has 3 MB
    due = 2 * 5 / 6 * 0.03 + 10 * 0.01
    assert plan.way_seconds(ring, 6, 1e8, a) == pytest.approx((0.06 + due, 0.06 * 2.5 + due))


def test_a_plan_of_workers_that_vary_little():
    """Catches: rates of another number of mini-batches, wrong shares, and who waits."""
    run = plan.MeasuredRun(2, 0, True, np.array([0.1]), 0.04, 0.02, 8e6, 3)
    planned = plan.predict(run, 4)
    assert planned["rate"] == pytest.approx([12 / (0.1 + 0.06 * 3), 12 / 0.16], rel=1e-3)
    shares = planned["shares"]
    assert shares["computing"] == pytest.approx(0.1 / 0.28, rel=1e-3)
    assert shares["on the way"] == pytest.approx(0.18 / 0.28, rel=1e-3)
    assert shares["waiting"] == pytest.approx(0, abs=1e-3)
    assert planned["staleness"] == [0, 0]
    served = run._replace(servers=1, together=False, send=0.01, pull=0.01, batches=1, n=1)
    planned = plan.predict(served, 1)
    assert planned["rate"] == pytest.approx([1 / 0.12] * 2, rel=0.02)
    gains = plan.first_to_change(served, 1)
    assert gains["a gradient in half the time"] == pytest.approx(0.12 / 0.07, rel=0.02)
    assert gains["twice as many ps"] == pytest.approx(0.12 / 0.11, rel=0.02)
    assert gains["ten times the local steps"] == pytest.approx(10 * 0.12 / 1.02, rel=0.02)
    assert gains["times that do not vary"] == pytest.approx(1)
    assert gains["half the bytes"] == gains["a tenth of the latency"] == pytest.approx(1)
    assert "twice as many ps" not in plan.first_to_change(run, 4)


def test_the_words_of_a_plan():
    """Catches: a number in another unit, and words of a ps for a ring."""
    run = plan.MeasuredRun(2, 1, False, np.array([0.1, 0.3]), 0.04, 0.02, 8e6, 1)
    planned = {"rate": [1234, 5678.25], "staleness": [3, 1.26], "shares": {"computing": 0.256}}
    lines = plan.report_lines(
        run, "HogWild", 7, planned, {"one": 2.0, "two": 1.5, "three": 1}, "a link"
    )
    assert lines == [
        "measured:  HogWild, 2 workers, 1 ps; a gradient takes 200 ms (±35.4%), varying by 50%, "
        "and its way to the ps and back 60 ms and 8,000 KB",
        "assumed:   each worker on a machine as fast, its times by the same law; a link",
        "simulated: 7 workers make 1,234.0 to 5,678.2 mini-batches/s, staleness 1.3 to 3.0",
        "a worker's time at 1,234.0: 26% computing for the ps",
        "to change first, for speed alone: one (2.00 times as fast), then two (1.50 times as fast)",
    ]
    ring = run._replace(servers=0, together=True)
    lines = plan.report_lines(ring, "Ring", 7, planned, {"one": 2.0, "two": 1.5}, "a link")
    assert "its way around the ring and back" in lines[0]
    assert lines[2].endswith("mini-batches/s, none stale")
    assert lines[3].endswith("for the others")


def test_the_rows_of_a_worker_are_its_own():
    """Catches: rows that repeat those of another purpose, worker or seed, or depend on n."""
    few, many = learn.rows_of(2, 6, 50, seed=1), learn.rows_of(3, 6, 50, seed=1)
    assert few.shape == (2, 6, learn.BATCH) and few.min() >= 0 and few.max() < 50
    np.testing.assert_array_equal(few, many[:2])
    assert (few[0] != few[1]).any() and (few != learn.rows_of(2, 6, 50)).any()
    np.testing.assert_array_equal(learn.rows_of(2, 6, 50), learn.rows_of(2, 6, 50, seed=0))


def test_an_update_of_the_learners_by_hand():
    """Catches: a mean over another number, a step of another size, and a copy that moves too early.

    Two rows of one feature, two classes; at w = 0 the gradient of a row is (p - 1) x or p x.
    """
    x, y = np.array([[1.0], [3.0]], np.float32), np.array([0, 1])
    gradient = learn.gradient(np.zeros((1, 2), np.float32), x, y)
    np.testing.assert_allclose(gradient, [[(-0.5 + 1.5) / 2, (0.5 - 1.5) / 2]], rtol=1e-6)
    assert learn.loss(np.zeros((1, 2)), x, y) == pytest.approx(math.log(2))
    w = np.array([[1.0, 0.0]])
    due = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(3))) / 2
    assert learn.loss(w, x, y) == pytest.approx(due)
    assert learn.loss(1000 * w, x, y) == pytest.approx(1500)  # without an overflow
    order = learn.earlier_entries(np.array([1, 0, 1, 1, 0]), 3)
    assert order.tolist() == [0, 0, 1, 2, 1]
