"""The rows of a script with sockets of its own, for one, three and four workers.

Each worker makes its steps in this process, with a model whose parameters no number of workers
divides. What a row says is compared with the bytes that the kernel has counted at its connections,
with the mini-batches that it has drawn, and with its own part of a step.
"""

import threading

import problem
import pytest
import ringed
import support
from common import examples
from problem import BATCH, command_line
from test_ring import received_by_kernel

# {script: the flags of each of its forms}; a script with a ring of its own has a form at least.
FORMS = {
    examples.main_script("Ring-AllReduce"): [{}],
    examples.main_script("Further-Algorithms/Compressed-AllReduce"): [
        {"compress": name} for name in ("power", "top-k", "sign", "qsgd")
    ],
}
STEPS = 2
# Without a graph the number of a step is an array.
EAGER = "compress(p, layers, number)", "compress(p, layers, int(number))"
PUSH = "push_time,pull_time,global_step,local_steps,examples,loss,staleness,bytes,wait_seconds"


def check(script, form, n, changes=()):
    """The named comparisons of numbers that a mistake must fail."""

    def work(ring, step, w, state, make_steps, _):
        module.join(ring, "the same")
        module.broadcast([step, w, *state], ring)
        first = w.numpy()
        before = counted(ring)
        rows = make_steps(module.tf.constant(STEPS)).numpy()
        came = counted(ring) - before
        module.leave(ring)
        return first, rows, came

    def counted(ring):
        """What has come, while nobody sends."""
        all_here.wait(60)
        number = received_by_kernel(module, ring) if n > 1 else 0
        all_here.wait(60)
        return number

    all_here = threading.Barrier(n)

    own = [EAGER] if form.get("compress") == "qsgd" else []
    with ringed.rings(script, n, examples.replaced(script, [*own, *changes])) as (module, made):
        assert module.PUSH == PUSH
        done = ringed.together_built(module, made, command_line(form), work)
    came, size, wrong = [part for *_, part in done], len(done[0][0]), []
    assert all(size % workers for workers in (2, 3, 4))
    gradient = problem.gradient_on_digits(n)
    for k, (first, rows, _) in enumerate(done):
        columns = dict(zip(PUSH.split(","), rows.T))
        moved = came[k] + came[(k + 1) % n]
        if moved != columns["bytes"].sum():
            wrong.append(f"bytes: {columns['bytes'].sum():g} of worker {k}, {moved} at its sockets")
        if columns["bytes"][0] != columns["bytes"][1]:
            wrong.append(f"bytes: {columns['bytes']} of worker {k} in two equal steps")
        due = {"global_step": [1, 2], "local_steps": [1, 1], "examples": [BATCH] * 2}
        for name, values in {**due, "staleness": [0, 0]}.items():
            if list(columns[name]) != values:
                wrong.append(f"{name}: {columns[name]} of worker {k}")
        loss, _ = gradient(k, 0, ringed.arrays(first.astype(float)))
        if not abs(columns["loss"][0] - loss) < 1e-5:
            wrong.append(f"loss: {columns['loss'][0]:g} of worker {k}, not {loss:g}")
        if not (columns["pull_time"] <= columns["push_time"]).all():
            wrong.append(f"times: {columns['pull_time']} is no pull before {columns['push_time']}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "script, form, n",
    [
        pytest.param(script, form, n, marks=[] if n == 3 and not form else [pytest.mark.long])
        for script, forms in FORMS.items()
        for form in forms
        for n in (1, 3, 4)
    ],
    ids=lambda value: getattr(value, "stem", None) or (str(value) if value else "alone"),
)
def test_a_row_says_what_a_worker_has_done(script, form, n):
    """Catches: bytes of n instead of n - 1 parts, of one direction, of other types of number."""
    check(script, form, n)


RING, COMPRESSED = FORMS
COUNT = "        return self.ring.sent + self.ring.received - before\n"
ROW = "local_steps * flags.batch_size, update.loss]"
MISTAKES = {
    (RING, "bytes"): {
        "what comes is not in it": [
            (COUNT, COUNT.replace("self.ring.sent + self.ring.received", "self.ring.sent"))
        ],
        "each row counts all": [(COUNT, COUNT.replace(" - before", ""))],
        "the size of w, twice, by n": [
            (COUNT, "        return 4 * (self.ring.n - 1) * part.nbytes // self.ring.n\n")
        ],
    },
    (RING, "examples"): {"those of all workers": [(ROW, "3 * " + ROW)]},
    (RING, "loss"): {
        "the loss of rank 0's rows": [("flags.seed * 65536 + rank", "flags.seed * 65536 + 0")]
    },
    (COMPRESSED, "bytes"): {
        "one direction": [("ring.sent + ring.received - before\n", "2 * ring.sent - before\n")],
    },
}


@pytest.mark.parametrize("script, fails, changes", support.mistakes(MISTAKES, core=0))
def test_a_mistake_is_caught(script, fails, changes):
    with support.caught(fails):
        check(script, FORMS[script][0], 3, changes)
