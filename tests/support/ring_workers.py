"""What the tests of scripts with a ring share: rings in one process, and short trainings."""

import collections
import concurrent.futures
import contextlib
import functools
import json
import pathlib
import sys
import tempfile

import interleaved
import numpy as np
import problem
import pytest
from lab import examples
from tfrun import errors
from tfrun.launch import cluster


class Cluster:
    """What the ring asks of the script's own Cluster."""

    def __init__(self, addresses, rank):
        self.addresses, self.rank = addresses, rank
        self.workers = [("worker", k) for k in range(len(addresses))]


def step_during(worker, meanwhile):
    """Makes a step of a worker, and calls meanwhile() before the worker computes its gradient."""
    gradient = worker.gradient

    def interrupted(w, number):
        meanwhile()
        return gradient(w, number)

    worker.gradient = interrupted
    try:
        return worker.step()
    finally:
        del worker.gradient


@contextlib.contextmanager
def rings(path, n, text=None, timeout=20):
    """Makes n workers of this script's ring or rings, in this process, that have not joined yet.

    Yields (the script as a module, the workers).
    """
    with tempfile.TemporaryDirectory() as folder:
        if text:  # in a file, where tf.function looks for the lines of a function
            path = pathlib.Path(folder, path.name)
            path.write_text(text)
        script = examples.load(path)
        with joining(script, n, timeout, getattr(script, "both_ways", None)) as all_rings:
            yield script, all_rings


@contextlib.contextmanager
def joining(script, n, timeout, form=None):
    """Makes n workers of a script's ring on free ports, and closes what is left of them.

    form(cluster, timeout): makes another thing than the script's Ring: a list of rings.
    """
    ports, held = cluster.hold_ports(n)
    addresses = cluster.addresses({"worker": n}, ports)["worker"]
    all_rings = [(form or script.Ring)(Cluster(addresses, k), timeout) for k in range(n)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_GRPC_REUSE_PORT", "1")
        try:
            yield all_rings
        finally:
            for ring in all_rings:
                close(ring)
            for s in held:
                s.close()


def listed(rings):
    """Returns the rings of a worker that has one, or a list of several."""
    return rings if isinstance(rings, list) else [rings]


def close(rings):
    """Does to a worker with a ring, or with several, what the end of its process does."""
    for ring in listed(rings):
        for name in "left", "right":
            if hasattr(ring, name):
                getattr(ring, name).close()


def run_at_once(all_rings, work):
    """Returns [work(ring) of each worker], all at once; where it raises, the exception."""

    def safely(ring):
        try:
            return work(ring)
        except OSError as lost:
            close(ring)
            return lost

    with concurrent.futures.ThreadPoolExecutor(len(all_rings)) as pool:
        return [done.result(timeout=60) for done in [pool.submit(safely, r) for r in all_rings]]


def with_attributes_of(graph, function):
    """Returns graph(function), which has the attributes of the function, too."""
    return functools.update_wrapper(graph(function), function, assigned=())


def together_built(script, all_rings, flags, work):
    """Returns [work(ring, *what build() has made)] of each worker, all at once, in this process.

    flags: {"--name": value}. The steps run eagerly, but for the gradient: a graph would let a
    worker that waits for its neighbour hold the thread which that one needs.
    """
    tf, gradients, graph = script.tf, script.gradients, script.tf.function
    script.gradients = lambda *more: with_attributes_of(graph, gradients(*more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", *[str(part) for flag in flags.items() for part in flag]])
        flags = script.parse_flags()
    data, built = interleaved.Data(*problem.digits_like()), []
    for ring in all_rings:
        script.keras.utils.set_random_seed(flags.seed)
        model = script.make_model(data)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tf, "function", lambda function: function)
            step, w, state, *more, make_steps, test = script.build(ring, model, data, flags)
        built.append([step, w, sum(more, state), make_steps, test])
    done = run_at_once(all_rings, lambda ring: work(ring, *built[all_rings.index(ring)]))
    assert not [result for result in done if isinstance(result, OSError)], done
    return done


# Of a worker: w as a vector before and after each step, {column: values} of its rows, and the bytes
# that have gone through its connections in all steps.
Steps = collections.namedtuple("Steps", "w rows bytes")


def make_steps(path, n, text, flags, steps):
    """Returns the Steps of n workers, which begin as main() lets them, with the w of worker 0."""

    def work(own, step, w, state, make_steps, _):
        own = listed(own)
        for ring in own:
            script.join(ring, "the same")
        script.broadcast([step, w, *state], own[0])
        script.separate_masks(state, own[0].rank)
        before, values, rows = moved(own), [w.numpy()], []
        for _ in range(steps):
            rows.extend(make_steps(script.tf.constant(1)).numpy())
            values.append(w.numpy())
        after = moved(own)
        for ring in own:
            script.leave(ring)
        return Steps(values, dict(zip(script.PUSH.split(","), np.transpose(rows))), after - before)

    def moved(own):
        return sum(ring.sent + ring.received for ring in own)

    with rings(path, n, text) as (script, all_rings):
        return together_built(script, all_rings, flags, work)


def check_refused(path, n, error):
    """Asserts that a script raises this ValueError with n workers, and that tfrun explains it."""
    config = {"cluster": {"worker": [f"a:{k}" for k in range(n)]}}
    config["task"] = {"type": "worker", "index": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(config))
        patch.setattr(sys, "argv", [path.name])
        with pytest.raises(ValueError, match=error) as raised:
            examples.load(path).main()
    assert errors.explain(f"ValueError: {raised.value}")


# Rank k begins k beside the others; each writes what w was at the start and after each step.
RANK = "json.loads(os.environ['TF_CONFIG'])['task']['index']"
IN_THE_LOOP = "        passed = metrics.step %"
RECORD = [
    (
        "    if metrics.is_chief and manager.latest_checkpoint:\n",
        f"    w.assign_add(tf.ones_like(w) * {RANK})\n"
        "    if metrics.is_chief and manager.latest_checkpoint:\n",
    ),
    (
        "    metrics.step = int(step)\n",
        "    metrics.step = int(step)\n    metrics.w, metrics.values = w, [w.numpy()]\n",
    ),
    (IN_THE_LOOP, "        metrics.values.append(metrics.w.numpy())\n" + IN_THE_LOOP),
    ("    leave(ring)\n", "    np.save('w.npy', metrics.values)\n    leave(ring)\n"),
]
SHAPES = [(6, 128), (128,), (128, 64), (64,), (64, 3), (3,)]


def arrays(vector):
    """Returns the parameters that one vector holds."""
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])
    return [part.reshape(s) for part, s in zip(np.split(vector, ends[:-1]), SHAPES)]


def train(quick, path, folder, *flags, changes=(), steps=20, n=3, calls=True):
    """Trains on the small data set, each worker in a folder of its own.

    calls: whether the script has --steps-per-call. Returns (exit codes, output).
    """
    folder.mkdir(exist_ok=True)
    data = interleaved.Data(*problem.digits_like())._asdict()
    np.savez(folder / "data.npz", **data)
    script, run = folder / path.name, folder / "run"
    script.write_text(examples.replaced(path, changes))
    settings = problem.command_line({"dataset": folder / "data.npz"})
    if calls:
        settings["--steps-per-call"] = 1
    settings["--steps"] = steps
    settings = [str(part) for flag in settings.items() for part in flag]
    return quick.run(script, run, *settings, *flags, workers=n, OUTPUT_DIR=".")


def folders(folder, n=3):
    """Returns where each worker has left its files."""
    return [folder / "run" / (f"worker-{k}") for k in range(n)]
