"""Gradients-To-All: each gradient comes to each worker once, in both modes; and who is lost."""

import collections
import concurrent.futures
import contextlib
import functools
import json
import time
import types

import equations
import numpy as np
import pytest
import ring_workers
import support
from lab import examples
from tfrun import errors
from tfrun.runs import models

SCRIPT = examples.main_script("Further-Algorithms/Gradients-To-All")
EQUATION = equations.of(SCRIPT)
SIZE, PARTS, LR = 6, 3, 0.25
MODES = {"peers": 0, "forwarder": 1}  # {name: number of ps}


class Worker:
    """A worker in this process, with a vector as its model; its steps are eager."""

    def __init__(self, script, group, k, gradient):
        self.script, self.group, self.k, self.gradient_of = script, group, k, gradient
        group.sizes = [["w", "float32", SIZE]]
        values = np.full(SIZE, k, np.float32)
        parts = script.layout(group.sizes, 1)
        assert len(parts) == PARTS
        self.w = [script.tf.Variable(values[part.begin : part.end]) for part in parts]
        self.number = script.tf.Variable(0, dtype=script.tf.int64)

    def begin(self):
        self.group.begin(self.number, self.w, [])
        self.group.meet("start")

    def values(self):
        return np.concatenate([part.numpy() for part in self.w])

    def assign(self, values):
        for part, piece in zip(self.w, np.split(np.float32(values), PARTS)):
            part.assign(piece)

    def gradient(self, w, number):
        g = self.gradient_of(self.k, int(number), w.numpy())
        return self.script.tf.constant(0.0), self.script.tf.constant(g, self.script.tf.float32)

    def step(self):
        """Makes a step; returns (staleness, bytes)."""
        update = self.script.algorithm(
            self.w, self.number, self.gradient, self.group, self.group.flags
        )
        return int(update.late), sum(g.numpy().nbytes for g in update.pushed)

    def run(self, count):
        for _ in range(count):
            self.step()


def run_at_once(tasks, work):
    """Returns [work(task) of each], all at once."""
    with concurrent.futures.ThreadPoolExecutor(len(tasks)) as pool:
        return [done.result(60) for done in [pool.submit(work, task) for task in tasks]]


def called_here(function):
    """Returns a function whose reply has get_value(), as one that is called by rpc."""

    def call(*arguments):
        value = function(*arguments)
        return types.SimpleNamespace(get_value=lambda: value)

    return call


def served_here(script):
    """Lets the tasks of a script call one another's functions in this process, without a port."""
    servers = {}

    def listen(address, functions):
        servers[address] = types.SimpleNamespace()
        for name, function in functions.items():
            setattr(servers[address], name, called_here(function))
        return servers[address]

    def connect(address, seconds):
        support.wait_until(lambda: address in servers, seconds, "there")
        return servers[address]

    script.listen, script.connect, script.check_address = listen, connect, lambda address: None


def groups(script, n, ps, **flags):
    """Returns the Group of each task of a cluster; the last one is that of the ps."""
    flags = {"steps": 10**6, "step_timeout": 20, "learning_rate": LR, **flags}
    addresses = {"worker": [f"a:{k}" for k in range(n)], **({"ps": ["b:0"]} if ps else {})}
    all_groups = []
    for job, index in [("worker", k) for k in range(n)] + [("ps", 0)] * ps:
        config = {"cluster": addresses, "task": {"type": job, "index": index}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TF_CONFIG", json.dumps(config))
            all_groups.append(script.Group(types.SimpleNamespace(**flags)))
    return all_groups


@contextlib.contextmanager
def workers(n, mode, text=None, gradient=lambda k, number, w: 0 * w, orders=None, **flags):
    """Yields n workers that have begun, and their ps in a thread; they leave at the end.

    orders: if given, {part of a w: the gradients in their order there}. It then takes a while until
    a worker has applied one, each time another one.
    """
    script, ps = examples.load(SCRIPT, text), MODES[mode]
    script.MAX_PART_SIZE = SIZE // PARTS
    served_here(script)
    script.REQUIRED_WAIT_SECONDS = script.OPTIONAL_WAIT_SECONDS = 5
    if orders is not None:
        script.apply = functools.partial(slowly, orders, script.tf, script.apply)
    all_groups = groups(script, n, ps, **flags)
    trained = [Worker(script, group, k, gradient) for k, group in enumerate(all_groups[:n])]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = [pool.submit(group.serve_forwarder) for group in all_groups[n:]]
        run_at_once(trained, Worker.begin)
        yield trained
        run_at_once(trained, lambda worker: worker.group.leave())
        for one in served:
            one.result(60)


def slowly(orders, tf, apply, w, g, flags):
    """Applies a gradient after a while, which is another one each time."""

    def wait(g):
        orders[id(w)].append(g.tolist())
        time.sleep(np.random.RandomState(time.time_ns() % 2**32).choice([0, 0.02]))
        return g

    late = tf.numpy_function(wait, [g], g.dtype)
    apply(w, tf.ensure_shape(late, g.shape), flags)


def gradient(k, number, w):
    """Of a quadratic, another one in each worker and step."""
    return (w - k + np.arange(SIZE)) * (1 + k + number % 3) / 8


# (the worker that makes a step, the one that makes a step meanwhile, if any)
EVENTS = [(0, None), (1, 0), (2, None), (2, 1), (0, 2), (1, None), (0, 1)] * 3


def check(mode, text=None):
    """The named comparisons of numbers that a mistake must fail: three workers, steps in order."""
    wrong, n = [], 3
    begins = np.arange(SIZE) / 10
    sent = 4 * SIZE * (1 if mode == "forwarder" else n - 1)
    with workers(n, mode, text, gradient) as all_workers:
        if any(worker.values().any() for worker in all_workers):
            wrong.append("begin: not all have the w of worker 0")
        for worker in all_workers:
            worker.assign(begins)
        due = EQUATION.REFERENCE([np.float32(begins)] * n, gradient, LR)
        for k, other in EVENTS:
            before = due.w[k]
            if other is None:
                late, moved = all_workers[k].step()
            else:
                late, moved = ring_workers.step_during(all_workers[k], all_workers[other].step)
                due.step(other, due.w[other])
            due.step(k, before)
            values = np.array([worker.values() for worker in all_workers])
            apart = np.abs(values - due.w).max()
            if not apart < 1e-4:
                wrong.append(f"{mode}: w: {apart:g} apart after {k, other}")
                break
            if late != (other is not None):
                wrong.append(f"{mode}: staleness: {late} after {k, other}")
            if moved != sent:
                wrong.append(f"{mode}: bytes: {moved} instead of {sent}")
    assert not wrong, "\n".join(wrong)


def random_gradient(k, number, w):
    """Another one in each worker and step."""
    random = np.random.RandomState(1000 * k + number)
    return random.randn(SIZE)


def check_at_once(mode, text=None):
    """All make steps at once. Then all w are alike: by a forwarder to the last bit."""
    steps, n, wrong, orders = 20, 3, [], collections.defaultdict(list)
    with workers(n, mode, text, random_gradient, orders) as all_workers:
        run_at_once(all_workers, lambda worker: worker.run(steps))
        values = np.array([worker.values() for worker in all_workers])
        of_parts = zip(*[[orders[id(part)] for part in worker.w] for worker in all_workers])
        others = sum(order != first for first, *rest in of_parts for order in rest)
    all_gradients = [random_gradient(k, number, None) for k in range(n) for number in range(steps)]
    due = -LR * np.sum(all_gradients, 0)
    apart = np.abs(values - due).max()
    if not apart < 1e-2:
        wrong.append(f"{mode}: w: {apart:g} apart from the sum of all gradients")
    if mode == "forwarder" and others:
        wrong.append(f"{mode}: order: {others} parts of workers 1 and 2 have others than worker 0")
    if mode == "forwarder" and (values != values[0]).any():
        wrong.append(f"{mode}: order: {np.abs(values - values[0]).max():g} apart")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("mode", MODES)
def test_every_gradient_comes_to_every_worker_once(mode):
    """Also while a worker computes its own."""
    check(mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_all_w_are_alike_when_all_gradients_have_come(mode):
    """Catches a gradient that is lost, and in a forwarder two that come in two orders."""
    check_at_once(mode)


CHECKS = {"forwarder: order": check_at_once}


@pytest.mark.long
@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=1))
def test_a_mistake_is_caught(script, fails, changes):
    with support.fails_comparison(fails):
        CHECKS.get(fails, check)(fails.partition(":")[0], examples.replaced(script, changes))


# Runs --------------------------------------------------------------------------------------------

LEAVE = "    group.leave()\n\n\n# From here"
VALUES = "np.concatenate([part.numpy() for part in w])"
RECORD = [
    # Worker k begins k beside the others; w is in parts.
    ("MAX_PART_SIZE = 900_000", "MAX_PART_SIZE = 3_000"),
    (
        "    group.begin(step, w, state)\n",
        "    [part.assign_add(tf.ones_like(part) * group.rank) for part in w]\n"
        f"    group.begin(step, w, state)\n    first = {VALUES}\n",
    ),
    (LEAVE, LEAVE.replace("()\n", f"()\n    np.save('w.npy', [first, {VALUES}])\n", 1)),
]
LOST = [  # worker 1 ends, in the middle of a run
    (
        "        update = algorithm(",
        "        if group.rank == 1:\n"
        "            tf.numpy_function(lambda n: None if n < 20 else os._exit(9), [step], [])\n"
        "        update = algorithm(",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_a_run_ends_with_one_w(mode, tmp_path):
    """Through the ports of three workers, of a w in parts, with a checkpoint that has all parts."""
    with support.QuickCluster(ps=MODES[mode], tasks=3 + MODES[mode]) as quick:
        codes, output = ring_workers.train(quick, SCRIPT, tmp_path, changes=RECORD, steps=60)
    assert not any(codes), output
    first, last = zip(*[np.load(folder / "w.npy") for folder in ring_workers.folders(tmp_path)])
    assert all((w == first[0]).all() for w in first), "not all begin with the w of worker 0"
    apart = np.abs(np.array(last) - last[0]).max()
    assert apart == 0 if mode == "forwarder" else apart < 1e-4
    assert np.abs(last[0] - first[0]).max() > 0.01
    shapes = [np.empty(shape).shape for shape in ring_workers.SHAPES]
    chief = ring_workers.folders(tmp_path)[0]
    saved = models.saved_values(support.newest_checkpoint(chief), shapes)["w"]
    assert (np.concatenate([np.ravel(part) for part in saved]) == last[0]).all()
    sent = 4 * last[0].size * (1 if mode == "forwarder" else 2)
    for folder in ring_workers.folders(tmp_path):
        rows = support.pushes(folder)
        assert len(rows) == 60 and {row["bytes"] for row in rows} == {sent}


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=pytest.mark.long) for mode in MODES])
def test_a_lost_worker_is_named(mode, tmp_path):
    """No other worker goes on without it, and none waits for ever."""
    with support.QuickCluster(ps=MODES[mode], tasks=3 + MODES[mode]) as quick:
        codes, output = ring_workers.train(
            quick, SCRIPT, tmp_path, "--step-timeout", "5", changes=LOST, steps=10000
        )
    workers = codes[MODES[mode] :]
    assert workers == [1, 9, 1], output
    assert "ConnectionError: worker 1 was lost, or did not answer in time" in output
    (line,) = {line for line in output.splitlines() if "Error: worker 1 was lost" in line}
    assert "has not reached all workers" in errors.explain(line)


def test_who_is_not_alike_is_refused():
    """A worker with other flags; then one of an earlier run, which changes no w."""
    script = examples.load(SCRIPT)
    script.MAX_PART_SIZE = SIZE // PARTS
    served_here(script)
    script.REQUIRED_WAIT_SECONDS = 1
    first, second = groups(script, 2, 0)
    workers = [Worker(script, group, k, gradient) for k, group in enumerate((first, second))]
    second.flags.learning_rate = 2 * LR
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(workers[0].begin)
        with pytest.raises(ConnectionError, match="worker 0 has another script, TF_CONFIG"):
            workers[1].begin()
        with pytest.raises(TimeoutError, match="worker 1 did not answer in 1 s") as raised:
            waits.result(60)
    assert errors.explain(f"TimeoutError: {raised.value}")
    late = script.tf.constant(first.run.numpy() - 1)
    with pytest.raises(script.tf.errors.InvalidArgumentError, match=script.OTHER_RUN):
        workers[0].group.applying(0, workers[0].w[0])(late, script.tf.ones([SIZE // PARTS]))
    assert not workers[0].values().any()


def test_what_a_stranger_can_do():
    """As SECURITY.md says. Catches a function that nobody meant to serve."""
    parts = {f"apply_{i}" for i in range(PARTS)}
    values = {f"get_{i}" for i in range(1 + PARTS)}  # the step, and each part of w
    with workers(2, "forwarder") as all_workers:
        script = all_workers[0].script
        chief, other, ps = (script.connect(address, 1) for address in ("a:0", "a:1", "b:0"))
        assert vars(chief).keys() == parts | values | {"report", "status"}
        assert vars(other).keys() == parts
        assert vars(ps).keys() == {f"forward_{i}" for i in range(PARTS)}
        status = json.loads(chief.status().get_value().numpy())
        run = script.tf.constant(status["run"], script.tf.int64)
        other.apply_0(run, script.tf.ones([SIZE // PARTS])).get_value()
        assert (all_workers[1].w[0].numpy() == -LR).all()
        assert not chief.get_1().get_value().numpy().any()
        done = script.tf.constant("done")
        missing = chief.report(run, done, np.int64(1)).get_value().numpy().tolist()
        assert 0 in missing and 1 not in missing


@pytest.mark.parametrize("n, ps", [(1, 0), (2, 2)])
def test_a_wrong_number_of_tasks_is_refused(n, ps):
    script = examples.load(SCRIPT)
    config = {"cluster": {"worker": ["a:1"] * n, "ps": ["b:1"] * ps}}
    config["task"] = {"type": "worker", "index": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(config))
        with pytest.raises(ValueError, match="two workers at least, and at most one ps") as raised:
            script.Group(None)
    assert "two different orders" in errors.explain(f"ValueError: {raised.value}")
