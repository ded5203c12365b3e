"""The rows of a script with sockets of its own, for one, three and four workers.

Each worker makes its steps in this process, with a model whose parameters no number of workers
divides. What a row says is compared with the bytes that the kernel has counted at its connections,
with the mini-batches that it has drawn, and with its own part of a step.
"""

import contextlib
import threading
import time
import types

import interleaved
import problem
import pytest
import ring_workers
import support
from lab import examples
from problem import BATCH, SEED, command_line
from test_loss_and_gradient import HOROVOD, TOWERS, last_rank, loaded
from test_ring import received_by_kernel
from tfrun.runs import metrics_csv

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
    with ring_workers.rings(script, n, examples.replaced(script, [*own, *changes])) as (
        module,
        rings,
    ):
        assert module.PUSH.split(",") == metrics_csv.PUSH
        done = ring_workers.together_built(module, rings, command_line(form), work)
    came, size, wrong = [part for *_, part in done], len(done[0][0]), []
    assert all(size % workers for workers in (2, 3, 4))
    gradient = problem.gradient_on_digits(n)
    for k, (first, rows, _) in enumerate(done):
        columns = dict(zip(metrics_csv.PUSH, rows.T))
        moved = came[k] + came[(k + 1) % n]
        if moved != columns["bytes"].sum():
            wrong.append(f"bytes: {columns['bytes'].sum():g} of worker {k}, {moved} at its sockets")
        if columns["bytes"][0] != columns["bytes"][1]:
            wrong.append(f"bytes: {columns['bytes']} of worker {k} in two equal steps")
        due = {"global_step": [1, 2], "local_steps": [1, 1], "examples": [BATCH] * 2}
        for name, values in {**due, "staleness": [0, 0]}.items():
            if list(columns[name]) != values:
                wrong.append(f"{name}: {columns[name]} of worker {k}")
        loss, _ = gradient(k, 0, ring_workers.arrays(first.astype(float)))
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
ROW = "examples=local_steps * flags.batch_size"
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
    (RING, "examples"): {"those of all workers": [(ROW, ROW.replace("=", "=3 * "))]},
    (RING, "loss"): {
        "the loss of rank 0's rows": [("flags.seed * 65536 + rank", "flags.seed * 65536 + 0")]
    },
    (COMPRESSED, "bytes"): {
        "one direction": [("ring.sent + ring.received - before\n", "2 * ring.sent - before\n")],
    },
}


@pytest.mark.parametrize("script, fails, changes", support.mistakes(MISTAKES, core=0))
def test_a_mistake_is_caught(script, fails, changes):
    with support.fails_comparison(fails):
        check(script, FORMS[script][0], 3, changes)


# Times --------------------------------------------------------------------------------------------

LATE = 0.3  # seconds by which a gradient comes later


def check_times(script, folder, changes=(), **flags):
    """A step whose loss is late has read w before it, and is not said to wait for others."""
    with last_rank(1) if script == HOROVOD else contextlib.nullcontext():
        text = examples.replaced(script, changes)
        module, flags = loaded(script, text, folder, command_line(flags))
        tf, loss = module.tf, module.loss

        def slow(outputs):
            time.sleep(LATE)
            return outputs

        @tf.custom_gradient
        def late(outputs):
            # Without a state, or TensorFlow would let what tells the time wait for it.
            slowly = tf.numpy_function(slow, [outputs], outputs.dtype, stateful=False)
            return tf.ensure_shape(slowly, outputs.shape), lambda d: d

        module.loss = lambda y, outputs: loss(y, late(outputs))
        module.keras.utils.set_random_seed(SEED)
        data = interleaved.Data(*problem.digits_like())
        model = module.make_model(data)
        if script == TOWERS:
            _, make_steps, _ = module.build([model], data, flags, ["/CPU:0"])
        elif script == HOROVOD:
            _, make_steps, _ = module.build(model, data, flags)
        else:
            ring = types.SimpleNamespace(rank=0, n=1, sent=0, received=0)
            *_, make_steps, _ = module.build(ring, model, data, flags)
        make_steps(tf.constant(1))
        wrong = []
        for _ in range(3):  # on a busy machine something else may be late, too
            began = time.time()
            row = dict(zip(metrics_csv.PUSH, make_steps(tf.constant(1)).numpy()[0]))
            pulled, pushed = row["pull_time"] - began, row["push_time"] - began
            right = 0 <= pulled < LATE / 2 and pushed >= LATE and row["wait_seconds"] < LATE / 2
            if right:
                return
            wrong.append(f"pulled after {pulled:.3f}, pushed after {pushed:.3f}: {row}")
    raise AssertionError("times: " + ", ".join(wrong))


TIMED = {"towers": (TOWERS, {}), "horovod": (HOROVOD, {})}
TIMED |= {"ring": (RING, {}), "ring in buckets": (RING, {"buckets": 3})}


@pytest.mark.long
@pytest.mark.parametrize("name", TIMED)
def test_a_late_gradient_is_in_the_times_of_its_row(name, tmp_path):
    """Catches a time of the pull that TensorFlow takes after the gradient."""
    script, flags = TIMED[name]
    check_times(script, tmp_path, **flags)


@pytest.mark.plants_mistakes
def test_a_time_that_is_taken_late_is_caught(tmp_path):
    """An op with a state in the backward pass: what tells the time waits for it."""
    stateful = ("self.add, [i, d], d.dtype, stateful=False)", "self.add, [i, d], d.dtype)")
    with support.fails_comparison("times"):
        check_times(RING, tmp_path, [stateful], buckets=3)
