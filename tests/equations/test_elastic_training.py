"""Elastic-Training's table of shards: who reads which rows, also when workers vanish or are slow.

The clock is the test's. test_equations.py compares what the updates do to w.
"""

import equations
import in_process
import numpy as np
import problem
import pytest
import support
from interleaved import check_apart
from lab import examples

SCRIPT = examples.main_script("Operations/Elastic-Training")
N, SHARDS, SECONDS, ACTIONS = 4, 2, 10, 80
FLAGS = {**equations.of(SCRIPT).FLAGS, "shards": SHARDS, "lease_seconds": float(SECONDS)}


def play(seed, text=None):
    """Lets N workers push, pause and vanish, as the seed decides.

    Returns the script's tables after each push, with the count of what came again, the same of the
    reference, and the reference.
    """
    import tensorflow as tf

    random, now = np.random.RandomState(seed), 1000
    flags = problem.command_line(FLAGS)
    clock = tf.Variable(now, dtype=tf.float64)
    tables, due = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf, "timestamp", clock.read_value)
        _, gradient = problem.rows_in_turn(SCRIPT, N, None)
        with in_process.workers(SCRIPT, N, flags, text=text, ps=2) as workers:
            reference = equations.of(SCRIPT).ElasticTraining(
                workers.parameters(), N, gradient, problem.LR, **FLAGS
            )
            reference.shards.seconds = SECONDS
            for _ in range(ACTIONS):
                k, worker = (chosen := random.randint(N)), workers.workers[chosen]
                now += int(random.choice([0, 1, 2, SECONDS]))
                clock.assign(now)
                reference.now = now
                if (chance := random.rand()) < 0.2:
                    # It vanishes, perhaps with a new lease: a new process knows nothing of it.
                    if not reference.own.pop(k, None) and chance < 0.1:
                        worker.gradient[0](worker.ps)
                        reference.shards.lease(k, now)
                    workers.renew(k)
                    continue
                worker.push()
                reference.pull(k)
                reference.push(k)
                saved = {name: v.numpy() for name, _, v in workers.servers.saved}
                tables.append([*np.ravel(saved["leases"]), saved["again"]])
                due.append([*np.ravel(reference.shards.values()), reference.shards.again])
    return tables, due, reference


def compare(text=None):
    """Asserts that the script's table goes as the reference's, over two random plays."""
    for seed in range(2):
        tables, due, reference = play(seed, text)
        assert reference.shards.again and reference.counted[-1][1] > 0  # both have happened
        check_apart({"table": (tables, due)}, 0.5)


def test_the_table_of_shards():
    compare()


MISTAKES = {
    "table": {
        "a push does not move the deadline on": [
            ("tf.cast(1000 * tf.timestamp(), tf.int64) + milliseconds", "table[shard][3]")
        ],
        "a lost shard is read from its first row": [
            ("rows_read[shard], step.worker,", "0 * rows_read[shard], step.worker,")
        ],
        "the rows of one who lost the shard count": [
            ("(row[2] == step.worker) & (row[1] == before)", "row[1] == before")
        ],
        "two epochs ahead": [(" & (epochs <= tf.reduce_min(epochs) + 1)", "")],
        "one whose push is the newest loses the shard": [
            ("tf.where(is_free, epochs, leased)", "tf.where(is_free, epochs, 2**62 - leased)")
        ],
        "a lease has no end": [("now + milliseconds]", "now + 1000 * milliseconds]")],
    }
}


@pytest.mark.parametrize(
    "fails, changes",
    support.mistakes({(fails,): named for fails, named in MISTAKES.items()}, core=1),
)
def test_a_mistake_of_the_table_is_caught(fails, changes):
    with support.fails_comparison(fails):
        compare(examples.replaced(SCRIPT, changes))


def test_each_row_counts_once_in_an_epoch():
    """Catches a table, as the reference has it, that leaves rows out, and a wrong account of it."""
    tables, _, reference = play(seed=2)
    counted = {}
    for number, epoch, rows in reference.counted:
        counted.setdefault((number, epoch), []).extend(rows)
    for number, shard in enumerate(reference.shards.table):
        for epoch in range(shard.epoch):
            rows = problem.order(epoch)[shard.begin : shard.end]
            assert sorted(counted[number, epoch]) == sorted(rows)
    *table, again = tables[-1]
    table = np.reshape(table, [SHARDS, 4])
    account = examples.load(SCRIPT.with_name("account.py"))
    read = account.mini_batches(table, reference.rows, problem.BATCH)
    assert (read, read + again) == (len(reference.counted), len(tables))


def test_an_order_has_each_row_once():
    """Catches an order with a row twice, and one that is the same in two epochs."""
    rows = len(problem.digits_like()[0])
    orders = [problem.order(epoch) for epoch in range(4)]
    assert all(sorted(numbers) == [*range(rows)] for numbers in orders)
    assert len({tuple(numbers) for numbers in orders}) == 4
