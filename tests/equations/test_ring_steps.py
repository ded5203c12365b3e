"""Scripts whose workers make each step together, in a ring, against their NumPy references.

Then the mistakes, as in test_equations.py, which says how a script's file is found, and what it
has. The workers are threads of this process. Their references have joint_step(those), too, and all
workers begin with the same w. Comparisons are those of test_equations.py, of w after each step, and
"ranks" where all have to keep the same w, and "bytes", those of the rows with those of the
connections.
"""

import equations
import interleaved
import numpy as np
import problem
import pytest
import ring_workers
import support
from lab import examples
from tfrun.apps import references

SCRIPTS = equations.compared(equations.RINGS)
STEPS = 12


def compare(script, n, text=None):
    """Asserts that n workers make the steps of the reference, and the bytes that they report."""
    file = equations.of(script)
    flags = problem.command_line(file.FLAGS)
    workers = ring_workers.make_steps(script, n, text, flags, STEPS)
    first = ring_workers.arrays(workers[0].w[0].astype(float))
    expected = file.REFERENCE(first, n, problem.gradient_on_digits(n), problem.LR, **file.FLAGS)
    due, due_w = [], []
    for step in range(STEPS):
        due.extend((loss, step, 0) for loss in expected.joint_step(range(n)))
        due_w.append(interleaved.flat(sum((expected.w_of(k) for k in range(n)), [])))
    first_w = np.concatenate([worker.w[0] for worker in workers])
    actual_w = [np.concatenate([worker.w[1 + step] for worker in workers]) for step in range(STEPS)]
    rows = [worker.rows for worker in workers]
    pushes = [
        (row["loss"][step], row["global_step"][step] - 1, row["staleness"][step])
        for step in range(STEPS)
        for row in rows
    ]
    interleaved.check(
        {"parameters": np.tile(first_w, STEPS)},
        {"parameters": interleaved.flat(actual_w)},
        {"parameters": due_w},
        pushes,
        due,
        least=0.01,
        more=ranks_and_bytes(workers, isinstance(expected, references.Gossip)),
    )


def ranks_and_bytes(workers, own_w):
    """Returns a line for each worker with another w than worker 0, or with wrong bytes.

    own_w: whether each worker has a w of its own, as in gossip.
    """
    wrong = []
    for k, worker in enumerate(workers):
        if not own_w and not np.array_equal(worker.w, workers[0].w):
            wrong.append(f"ranks: w of worker {k} is not bit for bit that of worker 0")
        if worker.rows["bytes"].sum() != worker.bytes:
            wrong.append(f"bytes: {worker.rows['bytes']} of worker {k}, in all {worker.bytes}")
    return wrong


@pytest.mark.parametrize("n", [4, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))])
@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_the_step_is_the_equation(script, n):
    compare(script, n)


@pytest.mark.parametrize("script, fails, changes", equations.mistakes(SCRIPTS, core=0))
def test_a_mistake_is_caught(script, fails, changes):
    """Of four workers, so that one is no neighbour of a worker in gossip."""
    with support.fails_comparison(fails):
        compare(script, 4, examples.replaced(script, changes))
