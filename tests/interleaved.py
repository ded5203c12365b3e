"""Runs a script's own graphs, one for each worker, in an order that the test decides.

The servers of a small cluster stand in this process, because TensorFlow's cannot be stopped, and
serve all tests. A pull fetches the tensors that the script has pulled; the push is then computed
from these values, which are fed in their place, whatever others have pushed in between.
"""

import concurrent.futures
import functools
import inspect
import json
import os
import sys

import numpy as np
import support
from tfrun import cluster

PS, WORKERS = 2, 3


@functools.cache
def servers():
    """(the servers of the workers, the addresses of the cluster); started at the first call."""
    import tensorflow.compat.v1 as tf

    jobs = {"ps": PS, "worker": WORKERS}
    ports, held = cluster.hold_ports(PS + WORKERS)
    addresses = cluster.addresses(jobs, ports)
    before = os.environ.get("TF_GRPC_REUSE_PORT")
    os.environ["TF_GRPC_REUSE_PORT"] = "1"
    try:
        made = {
            task: tf.train.Server(tf.train.ClusterSpec(addresses), *task)
            for task in cluster.tasks(jobs)
        }
    finally:
        if before is None:
            del os.environ["TF_GRPC_REUSE_PORT"]
    return made, addresses, held


def forget():
    """Empties the servers: variables, queues and tables of the tests before. Ends all sessions."""
    import tensorflow.compat.v1 as tf

    tf.Session.reset(servers()[0]["worker", 0].target)


class Worker:
    """One worker's graph of a script, and its session."""

    def __init__(self, path, text, k, n, flags, data, ps=1, batch_loss=None, parameters=None):
        made, addresses, _ = servers()
        jobs = {"ps": addresses["ps"][:ps], "worker": addresses["worker"][:n]}
        argv = sys.argv
        sys.argv = [path.name, *(str(part) for flag in flags.items() for part in flag)]
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": jobs, "task": {"type": "worker", "index": k}}
        )
        try:
            self.script = support.load(path, text)
            tf = self.tf = self.script.tf
            flags = self.script.parse_flags()
            model = None
            if hasattr(self.script, "make_model") and batch_loss is None:
                self.script.keras.utils.set_random_seed(flags.seed)
                model = self.script.make_model(data)
            with tf.Graph().as_default() as graph:
                if hasattr(self.script, "Cluster"):
                    here = self.script.Cluster()
                    target, config = made["worker", k].target, here.config
                else:
                    here, target, config = None, "", None
                if batch_loss is None:
                    given = [part for part in (here, model, data, flags) if part is not None]
                    self.update = self.script.build(*given)[1]
                else:
                    with tf.device(here.placement()):
                        step = tf.train.get_or_create_global_step()
                        w = parameters(tf)
                    with tf.device(here.device):
                        algorithm = self.script.algorithm
                        more = (k, n) if "n" in inspect.signature(algorithm).parameters else ()
                        self.update = algorithm(w, step, batch_loss, flags, *more)
                with tf.control_dependencies([self.update.push]):
                    self.pushed = tf.no_op()
                self.start = [
                    tf.global_variables_initializer(),
                    tf.local_variables_initializer(),
                ]
                self.globals, self.locals = tf.global_variables(), tf.local_variables()
            self.session = tf.Session(target, graph=graph, config=config)
        finally:
            sys.argv = argv
            del os.environ["TF_CONFIG"]

    def pull(self):
        """What a worker holds between its pull and its push."""
        tensors = [self.update.version, *self.update.pulled]
        return dict(zip(tensors, self.session.run(tensors)))

    def push(self, held=None, seconds=60):
        """Pushes from what `pull` returned, or pulls now: (loss, ticket, staleness)."""
        loss, ticket, version, _ = self.session.run(
            [self.update.loss, self.update.ticket, self.update.version, self.pushed],
            held or {},
            self.tf.RunOptions(timeout_in_ms=1000 * seconds),
        )
        return loss, int(ticket), int(ticket - version)


class Workers:
    """n workers of a script, initialised."""

    def __init__(self, path, n, flags, data=None, text=None, **more):
        self.workers = [Worker(path, text, k, n, flags, data, **more) for k in range(n)]
        self.workers[0].session.run(self.workers[0].start[0])
        for worker in self.workers:
            worker.session.run(worker.start[1])

    def __enter__(self):
        return self

    def __iter__(self):
        return iter(self.workers)

    def __exit__(self, *_):
        for worker in self.workers:
            worker.session.close()

    def values(self):
        """The values of all that lasts, by the names of the references, sorted as they are."""
        found = {"parameters": [], "accumulators": [], "own parameters": [], "velocities": []}
        for v in self.workers[0].globals:
            if "Adagrad" in v.op.name:
                found["accumulators"].append((0, v))
            elif v.op.name != "global_step":
                found["parameters"].append((0, v))
        for k, worker in enumerate(self.workers):
            for v in worker.locals:
                if v.op.name.endswith("_k"):
                    found["own parameters"].append((k, v))
                elif v.op.name.endswith("_v"):
                    found["velocities"].append((k, v))
        return {
            name: [np.array(self.workers[k].session.run(v)) for k, v in where]
            for name, where in found.items()
            if where
        }

    def together(self, those=None, seconds=20):
        """These, or all, pull and push at once, as synchronous updates need it; their pushes."""
        those = range(len(self.workers)) if those is None else those
        with concurrent.futures.ThreadPoolExecutor(len(those)) as pool:
            pushes = [pool.submit(self.workers[k].push, seconds=seconds) for k in those]
        ends = [push.exception() for push in pushes]
        hang = sum("DeadlineExceeded" in type(end).__name__ for end in ends)
        assert not hang, "steps: %d of %d workers wait for one after %d s" % (
            hang,
            len(those),
            seconds,
        )
        return [push.result() for push in pushes]

    def follow(self, schedule):
        """Lets them pull and push as the schedule says, [("pull" or "push", k)]; the pushes."""
        held, pushes = {}, []
        for what, k in schedule:
            if what == "pull":
                held[k] = self.workers[k].pull()
            else:
                pushes.append(self.workers[k].push(held.pop(k)))
        return pushes
