"""Sharded-Training: each stage is Adam, and holds and sends what ZeRO says; its checkpoints."""

import argparse
import collections
import os
import signal
import time
import tracemalloc

import equations
import interleaved
import numpy as np
import problem
import pytest
import ring_workers
import support
from lab import examples
from tfrun.runs import models

SCRIPT = examples.main_script("Further-Algorithms/Sharded-Training")
QUICK = dict(ps=0)  # of the fixture quick
EQUATION = equations.of(SCRIPT)
SIZE = sum(int(np.prod(shape)) for shape in ring_workers.SHAPES)
STEPS = 6

# What a training has left of one worker: w after each step, the rows of its metrics, the bytes that
# it has sent in each step, the events of the last step, and its blocks.
Worker = collections.namedtuple("Worker", "rank w rows sent events blocks")


def flags_of(**more):
    """Returns the flags of the script: those of the small problem, and `more`."""
    parts = {"steps": 99, "batch_size": problem.BATCH, "seed": problem.SEED, **EQUATION.FLAGS}
    return argparse.Namespace(**{**parts, "stage": "3", "blocks": 3, "keep_gathered": 0, **more})


def run_at_once(script, rings, flags, work):
    """Returns [work(ring, *what build() has made) of each worker], all at once."""
    data, made_models = script.Data(*problem.digits_like()), []
    for ring in rings:  # not in the threads, because there is one seed for all
        script.keras.utils.set_random_seed(flags.seed + ring.rank)
        made_models.append(script.make_model(data))

    def joined(ring):
        script.join(ring, "the same")
        script.broadcast(made_models[ring.rank].variables, ring)
        for v in made_models[ring.rank].variables:  # it may have taken the memory of a NumPy array
            v.assign(script.tf.identity(v) + 0)
        built = script.build(ring, made_models[ring.rank], data, flags)
        script.separate_masks(built[1], ring.rank)
        result = work(ring, *built)
        script.leave(ring)
        return result

    workers = ring_workers.run_at_once(rings, joined)
    assert not [worker for worker in workers if isinstance(worker, OSError)], workers
    return workers


def train(n, text=None, steps=STEPS, before=None, **more):
    """Trains n workers, each in a thread; returns a Worker of each.

    before(block): is called for each block before the first step.
    """
    flags = flags_of(**more)

    def work(ring, blocks, _, mini_batch, __):
        lanes, sent, rows = script.Lanes(blocks, ring), [], []
        for block in blocks if before else ():
            before(block)
        values = [gathered(blocks)]
        for number in range(steps):
            batch, count = mini_batch(script.tf.constant(number, script.tf.int64)), ring.sent
            lanes.events.clear()
            rows.append(script.algorithm(blocks, *batch, number, lanes, flags))
            sent.append(ring.sent - count)
            values.append(gathered(blocks))
        return Worker(ring.rank, values, rows, sent, list(lanes.events), blocks)

    with ring_workers.rings(SCRIPT, n, text) as (script, rings):
        return run_at_once(script, rings, flags, work)


def gathered(blocks):
    """Returns a copy of all parameters; all workers must call it together."""
    whole = np.concatenate([block.gather() for block in blocks]).copy()
    for block in blocks:
        block.gathered = None
    return whole


def of_owners(workers, name):
    """Returns one vector of what the owners hold: `name` is w, m or v."""
    n, parts = len(workers), []
    for i, block in enumerate(workers[0].blocks):
        for c in range(n):  # chunk c is that of worker c - 1
            vector = getattr(workers[(c - 1) % n].blocks[i], name)
            whole = vector.size == block.size and n > 1
            parts.append(np.array_split(vector, n)[c] if whole else vector)
    return np.concatenate(parts)


def check_equation(n, stage, text=None, **more):
    """The named comparisons of numbers that a mistake must fail."""
    workers, wrong = train(n, text, stage=stage, **more), []
    expected = EQUATION.REFERENCE(
        ring_workers.arrays(workers[0].w[0]),
        n,
        problem.gradient_on_digits(n),
        EQUATION.FLAGS["learning_rate"],
        **EQUATION.FLAGS,
    )
    for step in range(STEPS + 1):
        if not all(np.array_equal(worker.w[step], workers[0].w[step]) for worker in workers):
            wrong.append(f"parameters: workers have others after {step} steps")
        apart = np.abs(workers[0].w[step] - interleaved.flat(expected.w)).max()
        if not apart < 2e-6 * (step + 1):
            wrong.append(f"parameters: {apart:g} apart after {step} steps")
        if step == STEPS:
            break
        due = expected.joint_step(range(n))
        if not np.abs(np.array(due) - [worker.rows[step][5] for worker in workers]).max() < 1e-5:
            wrong.append(f"losses: others in step {step}")
    for name in "m", "v":
        apart = np.abs(of_owners(workers, name) - interleaved.flat(getattr(expected, name))).max()
        if not apart < 1e-6:
            wrong.append(f"moments: {name} is {apart:g} apart")
    assert not wrong, "\n".join(wrong)
    assert np.abs(workers[0].w[-1] - workers[0].w[0]).max() > 0.01


CASES = [(2, "3"), (3, "1"), (3, "3"), (2, "0"), (2, "1"), (2, "2"), (3, "0"), (3, "2"), (1, "3")]


@pytest.mark.parametrize(
    "n, stage",
    [pytest.param(*c, marks=[pytest.mark.long] if i > 2 else []) for i, c in enumerate(CASES)],
)
def test_each_stage_is_adam(n, stage):
    check_equation(n, stage)


# The factor of |w| (n - 1) / n that each worker sends.
FACTORS = {"0": 2, "1": 2, "2": 2, "3": 3}


def check_bits_and_bytes(n, text=None):
    """All stages end with the same bits, and send what ZeRO says."""
    wrong, bits = [], {}
    for stage, keep in ("0", 0), ("1", 0), ("2", 0), ("3", 0), ("3", 1):
        workers = train(n, text, steps=3, stage=stage, keep_gathered=keep)
        bits[stage, keep] = workers[0].w[-1]
        if not np.array_equal(bits[stage, keep], bits["0", 0]):
            wrong.append(f"bits: stage {stage} has others than stage 0")
        due = (2 if keep else FACTORS[stage]) * (n - 1) * 4 * SIZE
        for step in range(3):
            if sum(worker.sent[step] for worker in workers) != due:
                wrong.append(f"bytes: stage {stage} sends {[w.sent[step] for w in workers]}")
            if sum(worker.rows[step][7] for worker in workers) != 2 * due:
                wrong.append(f"bytes: stage {stage} reports {[w.rows[step][7] for w in workers]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.long)])
def test_all_stages_have_the_same_bits_and_send_what_zero_says(n):
    check_bits_and_bytes(n)


@pytest.mark.long
def test_other_chunks_round_otherwise():
    """Of two workers a sum has one order, however w is cut; of three it has another in each cut."""
    for n, same in (2, True), (3, False):
        one, other = (train(n, stage="3", blocks=blocks)[0].w[-1] for blocks in (1, 3))
        assert np.array_equal(one, other) == same
        assert np.abs(one - other).max() < 1e-6


# Memory -----------------------------------------------------------------------------------------


WIDE = [("Dense(128,", "Dense(2048,"), ("Dense(64,", "Dense(512,")]


def per_parameter(n):
    """What a worker holds in bytes for each parameter: (when most is held, after the step)."""
    return {
        "0": (16, 16),
        "1": (8 + 8 / n, 4 + 12 / n),
        "2": (4 + 12 / n, 4 + 12 / n),
        "3": (16 / n, 16 / n),
    }


def check_memory(n, stage, text=None):
    """What NumPy has allocated, by tracemalloc, and what the events of a step say."""
    text, wrong = examples.replaced(SCRIPT, WIDE) if text is None else text, []
    numpy_s = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    examples.load(SCRIPT)  # to import TensorFlow under tracemalloc takes long
    tracemalloc.start()
    try:
        workers = train(n, text, steps=2, stage=stage)
        workers = [worker._replace(w=None) for worker in workers]
        traces = tracemalloc.take_snapshot().filter_traces([numpy_s]).traces
        allocated = sum(trace.size for trace in traces)
    finally:
        tracemalloc.stop()
    sizes = [block.size for block in workers[0].blocks]
    most, after = per_parameter(n)[stage]
    average = allocated / n / sum(sizes)
    if not after <= average < 1.01 * after:
        wrong.append(f"memory: {average:.3f} bytes a parameter are allocated, not {after:.3f}")
    for worker in workers:
        held = [event[5] for event in worker.events]
        # Between both a worker has whole blocks: two of w that were gathered, one gradient.
        extra = 4 * sum(sorted(sizes)[-2:]) * (stage == "3") + 4 * max(sizes) * (stage >= "2")
        if not most * sum(sizes) <= max(held) + n * 8 <= most * sum(sizes) + extra + n * 16:
            wrong.append(f"memory: at most {max(held) / sum(sizes):.3f} a parameter, not {most}")
        if abs(held[-1] - after * sum(sizes)) > 16 * len(sizes):
            wrong.append(f"memory: {held[-1] / sum(sizes):.3f} a parameter at the end, not {after}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "n, stage", [(2, "3"), *(pytest.param(4, s, marks=pytest.mark.long) for s in "0123")]
)
def test_a_worker_holds_what_zero_says(n, stage):
    check_memory(n, stage)


# The timeline ------------------------------------------------------------------------------------


def slow(block):
    """Lets a block compute for 50 ms longer in each direction."""

    def later(function):
        def waits(*arguments):
            time.sleep(0.05)
            return function(*arguments)

        return waits

    block.forward, block.backward = later(block.forward), later(block.backward)


def check_overlap(stage, text=None):
    """While a block computes, the ring gathers the next one, and reduces the one before."""
    wrong, last = [], 2
    for worker in train(2, text, steps=2, before=slow, stage=stage):
        spans = {event[:3]: event[3:5] for event in worker.events if event[1] != "gather"}
        gathers = [event for event in worker.events if event[1] == "gather"]
        forward, back = gathers[: last + 1], gathers[last + 1 :]
        pairs = [("backward", i - 1, "reduce", spans["ring", "reduce", i]) for i in (2, 1)]
        if stage == "3":
            pairs += [("forward", e[2] - 1, "gather", e[3:5]) for e in forward[1:]]
            pairs += [("backward", e[2] + 1, "gather", e[3:5]) for e in back[1:]]
        for what, i, work, (begin, end) in pairs:
            computed = spans["compute", what, i]
            if not computed[0] - 0.01 < begin < end < computed[1]:
                wrong.append(f"overlap: no {work} while block {i} goes {what}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("stage", ["3", pytest.param("2", marks=pytest.mark.long)])
def test_the_ring_works_while_a_block_computes(stage):
    check_overlap(stage)


# Mistakes ----------------------------------------------------------------------------------------


def check(fails, text):
    """The comparison of this name, in those stages in which a mistake can show."""
    if fails in ("parameters", "moments"):
        check_equation(3, "1", text)
        check_equation(3, "3", text)
    elif fails == "bytes":
        check_bits_and_bytes(2, text)
    elif fails == "memory":
        check_memory(2, "3", text)
    else:
        check_overlap("3", text)


@pytest.mark.long
@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=1))
def test_a_mistake_is_caught(script, fails, changes):
    more = WIDE if fails == "memory" else []
    with support.fails_comparison(fails):
        check(fails, examples.replaced(script, [*changes, *more]))


# Checkpoints of shards ---------------------------------------------------------------------------


def run_and_save(folder, n, stage, restoring, text=None):
    """Trains n workers and saves, or restores what others have saved; returns a Worker of each."""
    flags = flags_of(stage=stage)

    def work(ring, blocks, state, mini_batch, _):
        facts = argparse.Namespace(directory=str(folder), is_chief=ring.rank == 0, step=STEPS)
        if restoring:
            assert script.restore(blocks, state, facts, ring) == STEPS
        else:
            lanes = script.Lanes(blocks, ring)
            for step in range(STEPS):
                batch = mini_batch(script.tf.constant(step, script.tf.int64))
                script.algorithm(blocks, *batch, step, lanes, flags)
            script.save(blocks, state, facts, ring)
        return Worker(ring.rank, [gathered(blocks)], [], [], [], blocks)

    with ring_workers.rings(SCRIPT, n, text) as (script, rings):
        return run_at_once(script, rings, flags, work)


def check_checkpoint(folder, before, after, text=None):
    """What was saved by `before` is what `after` has: all of w, m and v, to the last bit."""
    one, wrong = run_and_save(folder, *before, False, text), []
    other = run_and_save(folder, *after, True, text)
    for name in "w", "m", "v":
        if not np.array_equal(of_owners(one, name), of_owners(other, name)):
            wrong.append(f"shards: {name} differs")
    w = models.saved_values(support.newest_checkpoint(folder), ring_workers.SHAPES)["w"]
    if not np.array_equal(interleaved.flat(w), other[0].w[0]):
        wrong.append("shards: `tfrun export` would read another w")
    assert sorted(os.listdir(folder))[0] == "checkpoint"
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "before, after",
    [
        ((2, "3"), (3, "3")),
        pytest.param((3, "3"), (2, "1"), marks=pytest.mark.long),
        pytest.param((4, "2"), (1, "0"), marks=pytest.mark.long),
        pytest.param((1, "0"), (5, "3"), marks=pytest.mark.long),
    ],
)
def test_a_checkpoint_of_shards_loads_with_another_number_of_workers(before, after, tmp_path):
    check_checkpoint(tmp_path, before, after)


@pytest.mark.plants_mistakes
@pytest.mark.long
def test_a_shard_that_is_read_from_another_place_is_caught(tmp_path):
    first = [("first = shard[0] if shard.size else begin", "first = begin")]
    with support.fails_comparison("shards"):
        check_checkpoint(tmp_path, (1, "0"), (3, "3"), examples.replaced(SCRIPT, first))


def test_a_worker_that_dies(quick, tmp_path):
    """Catches: a ring's thread that keeps the process of another worker alive."""
    at = "        lanes.events.clear()\n"
    kill = f"        if metrics.step == 9 and ring.rank == 1: os.kill(os.getpid(), 9)\n{at}"
    began = time.monotonic()
    codes, output = ring_workers.train(
        quick, SCRIPT, tmp_path, changes=[(at, kill)], steps=10**6, calls=False
    )
    assert time.monotonic() < began + support.patience(30)
    assert codes == [1, -signal.SIGKILL, 1], output
    assert "ConnectionError: worker 1, the" in output
