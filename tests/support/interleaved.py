"""Runs a script's own graphs, one for each worker, in an order that the test decides.

The servers of a small cluster stand in this process, because TensorFlow's cannot be stopped, and
serve all tests. A pull fetches the tensors that the script has pulled; the push is then computed
from these values, which are fed in their place, whatever others have pushed in between.
"""

import collections
import concurrent.futures
import functools
import inspect
import json
import re
import sys
import threading
import types

import equations
import numpy as np
import problem
import pytest
from lab import examples
from tfrun.launch import cluster

PS, WORKERS = 3, 3
Data = collections.namedtuple("Data", "x_train y_train x_test y_test")
# Who does what: < is a pull, > a push of a worker, with anything of the other in between.
SCHEDULE = [
    ({"<": "pull", ">": "push"}[sign], int(k))
    for sign, k in "<0 <1 >1 <1 >1 >0 <0 >0 <1 <0 >0 <0 >0 <0 >0 >1 <1 >1 <0 <1 >0 >1 <1 >1".split()
]


@functools.cache
def servers():
    """(the servers of the workers, the addresses of the cluster); started at the first call."""
    import tensorflow.compat.v1 as tf

    jobs = {"ps": PS, "worker": WORKERS}
    ports, held = cluster.hold_ports(PS + WORKERS)
    addresses = cluster.addresses(jobs, ports)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_GRPC_REUSE_PORT", "1")
        started = {
            task: tf.train.Server(tf.train.ClusterSpec(addresses), *task)
            for task in cluster.tasks(jobs)
        }
    return started, addresses, held


def forget():
    """Empties the servers: variables, queues and tables of the tests before. Ends all sessions."""
    import tensorflow.compat.v1 as tf

    tf.Session.reset(servers()[0]["worker", 0].target)


def flat(arrays):
    """All numbers of some arrays as one vector: so w can be compared, however it is cut."""
    return np.concatenate([np.ravel(array) for array in arrays])


def loaded(path, text, flags):
    """Returns the module of a script, and its flags as {"--name": value} sets them."""
    with pytest.MonkeyPatch.context() as patch:
        arguments = [str(part) for flag in flags.items() for part in flag]
        patch.setattr(sys, "argv", [path.name, *arguments])
        script = examples.load(path, text)
        return script, script.parse_flags()


def check_apart(compared, most):
    """Asserts that the arrays of {name: (some, those due)} agree; a mistake fails by the name."""
    apart = {
        name: np.max([np.abs(np.array(a) - b).max() for a, b in zip(*both, strict=True)])
        for name, both in compared.items()
    }
    wrong = [f"{name}: {value:g} apart" for name, value in apart.items() if not value < most]
    assert not wrong, "\n".join(wrong)


def check(first, last, expected, pushes, due, least=0.001, more=()):
    """The named comparisons of numbers that a mistake must fail.

    first, last, expected: as values() returns them. pushes, due: [(loss, ticket, staleness)].
    least: how far the largest of each must have moved. more: lines of what else is wrong.
    """
    assert len(pushes) == len(due) >= 10
    wrong = [*more]
    for name in sorted(last.keys() ^ expected.keys()):
        lacks = "reference" if name in last else "script"
        wrong.append(f"{name}: the {lacks} has no such numbers")
    for name in sorted(last.keys() & expected.keys()):
        vector = last[name]
        apart = np.abs(vector - flat(expected[name])).max()
        moved = np.abs(vector - first[name]).max()
        if not apart < 1e-5 or not moved > least:
            wrong.append(f"{name}: {apart:g} apart, {moved:g} moved")
    for column, name in enumerate(["losses", "steps", "staleness"]):
        apart = np.abs(np.array(pushes)[:, column] - np.array(due)[:, column]).max()
        if not apart < 1e-5:
            wrong.append(f"{name}: {apart:g} apart")
    assert not wrong, "\n".join(wrong)


def compare_pushes(workers, reference, schedule):
    """Asserts that the workers' pushes in this order do what those of the reference do.

    schedule: [("pull" or "push", k)].
    """
    first, pushes, due = workers.values(), workers.follow(schedule), []
    for action, k in schedule:
        if action == "pull":
            reference.pull(k)
        else:
            due.append(reference.push(k))
    check(first, workers.values(), reference.values(), pushes, due)


def start(work):
    """Calls work() in a thread that ends with this process; returns a Future.

    A pool would wait for its threads, and so for ever where a session hangs.
    """
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(work())
        except BaseException as error:  # whatever it is, it belongs to whoever asks
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def metrics_of(script, tasks, variables, flags, folder, ps=3):
    """Returns the Metrics of the first of these tasks, of a script of either kind."""
    if not hasattr(script, "serve_part"):
        return script.Metrics(tasks[0], tasks, variables, flags, ps)
    cluster = types.SimpleNamespace(
        directory=str(folder), rank=0, task=tasks[0], workers=tasks, ps=["a:1"] * ps
    )
    model = types.SimpleNamespace(trainable_variables=variables, non_trainable_variables=[])
    metrics = script.Metrics(cluster, model, flags)
    metrics.begin(*tasks[0], types.SimpleNamespace(_asdict=dict))  # no data
    return metrics


def ended(pushes, seconds):
    """Returns what pushes have returned. Fails if one waits longer than so many seconds."""
    # A session ends a wait by itself, and may hear of no time-out; a function ends none.
    done = concurrent.futures.wait(pushes, seconds).done
    hang = [push for push in pushes if push not in done or timed_out(push)]
    assert not hang, f"steps: {len(hang)} of {len(pushes)} workers wait for one after {seconds} s"
    return [push.result() for push in pushes]


def timed_out(push):
    """Returns whether a session has ended the wait of a push."""
    return "DeadlineExceeded" in type(push.exception()).__name__


class Harness:
    """n workers of a script, of which a test says when each pulls and pushes.

    workers: each has pull(), pull_again() and push(held, seconds). shapes: of the parameters.
    slack: the seconds after a limit of time in which a session ends a wait by itself.
    """

    def __enter__(self):
        return self

    def __iter__(self):
        return iter(self.workers)

    def unpacked(self, vector):
        """The arrays of which the vector has all numbers, one array after the other."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        assert len(vector) == ends[-1], f"{len(vector)} numbers for the shapes {self.shapes}"
        parts = np.split(vector, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes)]

    def started(self, ranks, seconds):
        """Lets these pull and push, each in a thread; returns their Futures of pushes."""
        pushes = [functools.partial(self.workers[k].push, seconds=seconds) for k in ranks]
        return [start(push) for push in pushes]

    def joint_step(self, those=None, seconds=20):
        """These, or all, pull and push at once, as synchronous updates need it; their pushes."""
        ranks = range(len(self.workers)) if those is None else those
        return ended(self.started(ranks, seconds), seconds + self.slack)

    def follow(self, schedule):
        """Lets them pull and push as the schedule says, [("pull" or "push", k)]; the pushes.

        A pull right after a push of the same worker is the reply to it, where a ps replies to one.
        """
        held, pushes, last = {}, [], None
        for action, k in schedule:
            worker = self.workers[k]
            if action == "push":
                pushes.append(worker.push(held.pop(k)))
            else:
                held[k] = worker.pull_again() if last == ("push", k) else worker.pull()
            last = action, k
        return pushes


class Worker:
    """One worker's graph of a script, and its session.

    data: None for the small problem's. gradient, parameters: of another problem than the script's
    own: gradient(w, number), and a function that makes w.
    """

    def __init__(self, path, text, k, n, flags, data, ps=1, gradient=None, parameters=None):
        started, addresses, _ = servers()
        jobs = {"ps": addresses["ps"][:ps], "worker": addresses["worker"][:n]}
        config = {"cluster": jobs, "task": {"type": "worker", "index": k}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TF_CONFIG", json.dumps(config))
            self.script, flags = loaded(path, text, flags)
            tf = self.tf = self.script.tf
            data = data or Data(*problem.digits_like())
            model = self.shapes = here = config = None
            target = ""
            if hasattr(self.script, "make_model") and gradient is None:
                self.script.keras.utils.set_random_seed(flags.seed)
                model = self.script.make_model(data)
                self.shapes = [tuple(v.shape) for v in model.trainable_variables]
            with tf.Graph().as_default() as graph:
                if hasattr(self.script, "Cluster"):
                    here = self.script.Cluster()
                    target, config = started["worker", k].target, here.config
                if gradient is None:
                    given = [part for part in (here, model, data, flags) if part is not None]
                    _, self.update, self.test, *_ = self.script.build(*given)
                    if callable(self.update):
                        with tf.device(here.device):
                            self.update = self.update()
                else:
                    setter = tf.train.replica_device_setter(
                        cluster=here.spec, worker_device=here.device
                    )
                    with tf.device(setter):
                        step = tf.train.get_or_create_global_step()
                        w = parameters(tf)
                    with tf.device(here.device):
                        algorithm = self.script.algorithm
                        needs_k = "k" in inspect.signature(algorithm).parameters
                        more = (k, n) if needs_k else ()
                        self.update = algorithm(w, step, gradient, flags, *more)
                with tf.control_dependencies([self.update.push]):
                    self.pushed = tf.no_op()
                operations = tf.get_default_graph().get_operations()
                readers = [op for op in operations if op.type == "MakeIterator"]
                own = tf.group(tf.local_variables_initializer(), *readers)
                self.start = [tf.global_variables_initializer(), own]
                self.globals, self.locals = tf.global_variables(), tf.local_variables()
            self.session = tf.Session(target, graph=graph, config=config)

    def pull(self):
        """What a worker holds between its pull and its push."""
        tensors = [self.update.version, *self.update.pulled]
        return dict(zip(tensors, self.session.run(tensors)))

    pull_again = pull

    def push(self, held=None, seconds=60):
        """Pushes from what `pull` returned, or pulls now: (loss, ticket, staleness)."""
        loss, ticket, version, _ = self.session.run(
            [self.update.loss, self.update.ticket, self.update.version, self.pushed],
            held or {},
            self.tf.RunOptions(timeout_in_ms=1000 * seconds),
        )
        return loss, int(ticket), int(ticket - version)


class Workers(Harness):
    """n workers of a script with sessions, initialised."""

    slack = 60

    def __init__(self, path, n, flags, data=None, text=None, **more):
        self.path, self.variables = path, equations.variables(path)
        self.workers = [Worker(path, text, k, n, flags, data, **more) for k in range(n)]
        self.workers[0].session.run(self.workers[0].start[0])
        for worker in self.workers:
            worker.session.run(worker.start[1])
        self.shapes = self.workers[0].shapes

    def __exit__(self, *_):
        for worker in self.workers:
            worker.session.close()

    def parameters(self):
        """w, as arrays of the shapes that the variables of the model have."""
        worker = self.workers[0]
        names = re.compile(r"w(_\d+|/part_\d+)?|(words|neighbours)_\d+")
        arrays = worker.session.run([v for v in worker.globals if names.fullmatch(v.op.name)])
        if worker.shapes and any(v.op.name == "w/part_0" for v in worker.globals):
            return self.unpacked(np.concatenate(arrays))
        return arrays

    def values(self):
        """Returns all that lasts, by the names of the references: vectors, as `flat` makes them.

        That is w, and VARIABLES of the script's file: some on the ps, or those of each worker.
        """
        values = {"parameters": self.parameters()}
        for name, pattern in self.variables.items():
            for worker in self.workers:
                there = [*worker.locals, *(worker.globals if worker is self.workers[0] else [])]
                named = [v for v in there if re.fullmatch(pattern, v.op.name)]
                if named:
                    values.setdefault(name, []).extend(worker.session.run(named))
        return {name: flat(arrays) for name, arrays in values.items()}
