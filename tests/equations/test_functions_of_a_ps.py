"""What a ps of the new kind promises: one clock for all parts, refusals, real threads, the end."""

import threading

import in_process
import interleaved
import numpy as np
import pytest
import support
from common import examples, references
from problem import LR, command_line, gradient_on_digits

HOGWILD = examples.main_script("HogWild")
SCRIPTS = [path for path in examples.scripts() if in_process.is_kind(path)]
ORDER = "<0 <1 >1 <1 >1 >0 <0 >0 <1 <0 >0 <0 >0 <0 >0 >1 <1 >1 <0 <1 >0 >1 <1 >1".split()
SCHEDULE = [({"<": "pull", ">": "push"}[what], int(k)) for what, k in ORDER]


def compare(text=None, largest=5, ps=2):
    """Asserts that HogWild in many parts is its equation."""
    flags = command_line({})
    with in_process.Workers(HOGWILD, 2, flags, text=text, ps=ps, largest=largest) as workers:
        parts = [part for part in workers.workers[0].ps.parts["w"]]
        assert len(parts) > 2 and len({part.ps for part in parts}) == ps
        expected = references.HogWild(workers.parameters(), 2, gradient_on_digits(2), LR)
        first, pushes, due = workers.values(), workers.follow(SCHEDULE), []
        for what, k in SCHEDULE:
            if what == "pull":
                expected.pull(k)
            else:
                due.append(expected.push(k))
        interleaved.check(first, workers.values(), expected.values(), pushes, due)


@pytest.mark.parametrize("ps", [1, 2])
def test_w_in_many_parts_is_the_same_algorithm(ps):
    compare(ps=ps)


def test_parts_that_overlap_are_caught():
    """No other test has parts of different sizes: a part one number too far would move twice."""
    late = [("ends[i], ends[i + 1], size, i % ps)", "ends[i], ends[i + 1], size, (i + 1) % ps)")]
    compare(text=examples.replaced(HOGWILD, late))  # on other ps: nothing changes
    swapped = [("pieces = [tf.split(v, [", "pieces = [tf.split(v[::-1], [")]
    with support.caught("parameters"):
        compare(text=examples.replaced(HOGWILD, swapped))


def two_parts(script=HOGWILD, text=None, steps=99):
    """Returns Workers with a part of w on each of two ps."""
    return in_process.Workers(script, 2, command_line({"steps": steps}), text=text)


def test_the_first_part_counts_for_all_when_a_worker_is_late():
    """Delays worker 0 between two parts, by calling them one at a time."""
    with two_parts() as workers:
        tf, worker = workers.script.tf, workers.workers[0]
        first, second = worker.ps.parts["w"]
        move = [tf.ones([part.end - part.begin]) for part in (first, second)]
        before = workers.servers.vector("w")
        ticket, version, _ = worker.ps.ask("push", first, move[0]).get_value()
        others = [workers.workers[1].push()[1] for _ in range(3)]
        told = worker.ps.ask("push", second, ticket, version, move[1]).get_value()
        assert int(ticket) == 0 and others == [1, 2, 3]
        assert [int(count) for count in told[:2]] == [0, 1], "the second part counts for itself"
        step = worker.ps.pull().version
        assert int(step) == 4, f"steps: {int(step)} instead of 4"
        assert np.abs(workers.servers.vector("w") - before).max() > 0.5


def refused(worker, name, arguments, error):
    """Asserts that a call is refused, and that no part and no count has changed."""
    before = worker.ps.pull()
    with pytest.raises(error):
        worker.ps.clients[0].functions[name](*arguments)
    after = worker.ps.pull()
    assert int(before.version) == int(after.version), "a ticket was taken"
    np.testing.assert_array_equal(before.w, after.w)


def check_refusals(text=None):
    with two_parts(text=text) as workers:
        tf, worker = workers.script.tf, workers.workers[0]
        age, size = tf.constant(1, tf.int64), worker.ps.parts["w"][0].end
        wrong = tf.errors.InvalidArgumentError
        refused(worker, "push_0", [age, tf.ones([size + 1])], wrong)
        refused(worker, "push_0", [age, tf.ones([1, size])], (wrong, TypeError))
        refused(worker, "push_0", [age + 1, tf.ones([size])], wrong)
        refused(worker, "push_0", [age, tf.ones([size], tf.int32)], (wrong, TypeError))
        refused(worker, "set_w_0", [age - 1, tf.zeros([size])], wrong)


def test_a_wrong_size_type_or_age_takes_no_ticket_and_moves_nothing():
    check_refusals()


@pytest.mark.parametrize(
    "old, new",
    [
        ("[known, *arguments]", "[known]"),
        ("[known, *arguments]", "arguments"),
    ],
    ids=["the size is not checked", "the age is not checked"],
)
def test_a_call_that_is_not_refused_is_caught(old, new):
    """Without the check the call takes a ticket, or is not refused at all."""
    text = examples.replaced(HOGWILD, [(old, new)])
    if new == "[known]":
        text = examples.replaced(
            text, [("tf.ensure_shape(a, [size] if a.shape.rank else [])", "a")]
        )
    else:
        text = examples.replaced(text, [("tf.equal(age_of_client, age)", "True")])
    with pytest.raises((AssertionError, pytest.fail.Exception, Exception)) as caught:
        check_refusals(text)
    assert "DID NOT RAISE" in str(caught.value) or "ticket" in str(caught.value)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_two_threads_push_at_once(script):
    """Real threads: each ticket is given once, all steps are made, and w is the sum of pushes."""
    steps, moved, tickets = 400, 2.0**-12, [[], []]
    with two_parts(script, steps=steps) as workers:
        tf, before = workers.script.tf, workers.servers.vector("w")
        delta = tf.fill([len(before)], moved)

        def push(k):
            ps = workers.workers[k].ps
            try:
                while True:
                    tickets[k].append(int(ps.push(delta).ticket))
            except tf.errors.OutOfRangeError:
                pass

        threads = [threading.Thread(target=push, args=[k]) for k in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.patience(60))
        after = workers.servers.vector("w")
    assert sorted(tickets[0] + tickets[1]) == list(range(steps)), (
        "a ticket is missing, or was twice"
    )
    assert min(map(len, tickets)) > 0, "one thread has made all pushes"
    np.testing.assert_allclose(before - after, steps * moved, atol=1e-4)
