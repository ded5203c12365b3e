"""Runs a script's own functions in this process, in an order that the test decides.

Each ps is the tf.functions that the script would register at a server, and each worker calls them
through the script's own class Ps: no server, no port. A worker pulls; its push is then computed
from what it holds, whatever others have pushed in between.
"""

import functools
import inspect
import re
import types

import equations
import interleaved
import keras
import numpy as np
import problem
from interleaved import Data, flat, loaded, start


class Pulled(Exception):
    """Ends an update that has pulled, with the reply."""


class Client:
    """Calls the functions of one ps by name, as a client of its server does."""

    def __init__(self, functions):
        self.functions = functions
        self.crossed = []  # the bytes of each vector that went there or came back

    def __getattr__(self, name):
        def call(*arguments):
            value = self.functions[name](*arguments)
            came = [t for t in flat_list(value) if t.dtype.is_floating]
            vectors = [t for t in [*arguments[1:], *came] if t.shape.rank]  # without the header
            self.crossed += [t.dtype.size * t.shape[0] for t in vectors]
            return types.SimpleNamespace(get_value=lambda: value)

        return call


def flat_list(value):
    """Returns what a function has returned as a list: one tensor, or several."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


class Servers:
    """The functions and variables of all ps of a script."""

    def __init__(self, script, flags, sizes, ps, workers):
        tf = script.tf
        self.age = tf.Variable(1, dtype=tf.int64)
        self.functions, self.saved = [{} for _ in range(ps)], []
        script.Clock.most = workers
        server, first = script.server, next(iter(inspect.signature(script.server).parameters))
        if first in ("ps", "n"):  # it has a table, or a place for each worker
            server = functools.partial(server, {"ps": ps, "n": workers}[first])
        for part in script.layout(sizes, ps):
            functions, saved = script.serve_part(part, server, self.age, flags)
            self.functions[part.ps] |= functions
            self.saved += saved
        if count := self.functions[0].get("reports_0"):
            count(tf.constant([1, 0, 0, 0], tf.int64), np.int64(workers))

    def vector(self, name):
        """Returns the values of what the ps save under a name, in the order of their parts."""
        parts = {}
        for saved, place, variable in self.saved:
            if saved == name:
                begin = int(place.split()[1].split(",")[0]) if place else 0
                parts[begin] = np.ravel(variable.numpy())
        return np.concatenate([parts[begin] for begin in sorted(parts)] or [np.empty(0)])

    def tables(self):
        """Returns tables, of which a ps has every n-th row, and saves them as <name>_<i>_of_<n>."""
        tables_by_name = {}
        for saved, _, variable in self.saved:
            if match := re.fullmatch(r"(\w+)_(\d+)_of_(\d+)", saved):
                name, i, n = match[1], int(match[2]), int(match[3])
                tables_by_name.setdefault((name, n), {})[i] = variable.numpy()
        tables = []
        for (_, n), parts in tables_by_name.items():
            table = np.empty([sum(map(len, parts.values())), parts[0].shape[1]])
            for i, rows in parts.items():
                table[i::n] = rows
            tables.append(table)
        return tables


class Worker:
    """A worker: it pulls and pushes by the script's own functions.

    What it keeps for itself from push to push is `own`, where the script's update has a `begin`.
    """

    def __init__(self, script, servers, k, flags, sizes, gradient, model, pulls):
        self.script, self.tf, self.flags, self.rank = script, script.tf, flags, k
        self.gradient, self.model = gradient, model
        self.ps = script.Ps.__new__(script.Ps)
        self.ps.cluster = types.SimpleNamespace(ps=["in process"] * len(servers.functions))
        self.ps.sizes, self.ps.rank = sizes, k
        self.ps.age = script.tf.Variable(1, dtype=script.tf.int64)
        self.ps.clients = [Client(functions) for functions in servers.functions]
        self.ps.parts = {}
        for part in script.layout(sizes, len(servers.functions)):
            self.ps.parts.setdefault(part.vector, []).append(part)
        self.begin = getattr(script.update, "begin", None)
        self.own = self.reply = None  # reply: to its last push
        self.pulls = pulls

    def pull(self):
        """What a worker holds between its pull and its push: (version, w), or the reply to its own.

        An update that pulls by itself is begun for that, and goes no further.
        """
        if not self.pulls:
            reply = self.ps.pull()
            return reply.version, reply.w

        def pull_and_stop(*arguments):
            raise Pulled(self.ps.call(self.pulls, *arguments))

        try:
            self.update(pull_and_stop)
        except Pulled as pulled:
            return pulled.args[0]

    def pull_again(self):
        """Returns what a worker has of the reply to its push, or pulls where that has none."""
        return self.pull() if self.pulls else (self.reply.version, self.reply.w)

    def update(self, pull, w_k=None):
        """Makes an update that pulls by this function."""
        version = self.reply.version if self.reply else self.tf.constant(0, self.tf.int64)
        setattr(self.ps, self.pulls, pull)
        try:
            return self.script.update(self.ps, version, w_k, self.gradient, self.flags)
        finally:
            delattr(self.ps, self.pulls)

    def push(self, held=None, seconds=None):
        """Pushes from what `pull` returned, or pulls now: (loss, ticket, staleness).

        seconds: has no effect; only a session can end a wait.
        """
        held = held or self.pull()
        if self.pulls:
            version = None  # the reply has it
            loss, self.reply = self.update(lambda *_: held)
        else:
            version, w_k = held
            if self.begin:
                w_k = self.own = self.begin(w_k) if self.own is None else self.own
            loss, self.reply = self.script.update(self.ps, version, w_k, self.gradient, self.flags)
            if self.begin:
                self.own = self.reply.w
        row = self.script.push_row(0.0, version, loss, self.reply, self.flags).numpy()
        row = self.script.Push(*row)
        return float(loss), int(row.global_step) - 1, int(row.staleness)


class Workers(interleaved.Harness):
    """n workers of a script without sessions, and its ps.

    gradient, start: of another problem than the script's own: gradient(w, number), and first
    values of the vector w.
    """

    slack = 0

    def __init__(
        self, path, n, flags, data=None, text=None, ps=2, largest=None, gradient=None, start=None
    ):
        self.path = path
        self.script, self.flags = loaded(path, text, flags)
        self.variables, pulls = equations.variables(path), equations.pulls(path)
        script, self.tf = self.script, self.script.tf
        if largest:
            script.MAX_PART_SIZE = largest
        models, gradients = [None] * n, [gradient] * n
        self.make_gradients = {}
        if gradient is None:
            data = data or Data(*problem.digits_like())
            for k in range(n):
                script.keras.utils.set_random_seed(self.flags.seed)
                if hasattr(script, "make_layer"):
                    models[k] = script.make_layer(self.flags.dimensions)
                else:
                    models[k] = script.make_model(data)
                if hasattr(script, "gradients_of_files"):
                    place = self.tf.zeros([2], self.tf.int64)
                    rows = script.mini_batches(data.files[k::n], data.shape, place, self.flags)
                    gradients[k] = script.gradients_of_files(models[k], iter(rows))
                    continue
                own = getattr(script.update, "rows", slice(k, None, n))  # of all
                x, y = (script.tf.constant(part[own]) for part in (data.x_train, data.y_train))
                state = models[k].non_trainable_variables
                self.make_gradients[k] = functools.partial(
                    script.gradients, models[k], state, x, y, self.flags, k
                )
                gradients[k] = self.make_gradients[k]()
            self.shapes = [tuple(v.shape) for v in models[0].trainable_variables]
            self.first_values, sizes = script.vectors_of(models[0]), script.sizes_of(models[0])
        else:
            self.shapes, self.first_values = [np.shape(start)], {"w": np.float32(start)}
            sizes = [["w", "float32", len(start)]]
        self.servers = Servers(script, self.flags, sizes, ps, n)
        self.workers = [
            Worker(script, self.servers, k, self.flags, sizes, gradients[k], models[k], pulls)
            for k in range(n)
        ]
        self.empty = [variable.numpy() for *_, variable in self.servers.saved]
        self.begin()

    def renew(self, k):
        """Lets worker k begin as a new process: what it has kept for itself is gone."""
        self.workers[k].own = None
        if isinstance(self.workers[k].gradient, tuple):  # with the rows that it has leased
            self.workers[k].gradient = self.make_gradients[k]()

    def begin(self):
        """Lets training begin, or begin again: no update is counted, and w has its first values."""
        for (*_, variable), value in zip(self.servers.saved, self.empty):
            variable.assign(value)
        self.workers[0].ps.set_values(self.first_values)
        for k, worker in enumerate(self.workers):
            self.renew(k)
            worker.reply = None
            for i, v in enumerate(worker.model.non_trainable_variables if worker.model else []):
                value = np.reshape(self.first_values[f"state_{i}"], v.shape)
                v.assign(value + k if v.name == "seed_generator_state" else value)

    def __exit__(self, *_):
        if hasattr(self.script, "end_waits"):  # of threads
            self.script.end_waits(9)
        keras.backend.clear_session()

    def parameters(self):
        """w on the ps, as arrays of the shapes that the variables of the model have; and tables."""
        return [*self.unpacked(self.servers.vector("w")), *self.servers.tables()]

    def values(self):
        """Returns all that lasts, by the names of the references: vectors, as `flat` makes them."""
        values = {"parameters": flat(self.parameters())}
        for name, where in self.variables.items():
            if isinstance(where, str):  # beside w, on the ps
                values[name] = self.servers.vector(where)
            else:  # on each worker; before its first push it is as it begins
                own = [w.begin(w.pull()[1]) if w.own is None else w.own for w in self]
                values[name] = flat([where(one) for one in own])
        return values

    def started(self, ranks, seconds=None):
        """Lets these pull, then push, each in a thread; returns their Futures of pushes."""
        held = [self.workers[k].pull() for k in ranks]
        return [start(functools.partial(self.workers[k].push, h)) for k, h in zip(ranks, held)]


def is_kind(path):
    """Returns whether a script's ps has functions that this module can call."""
    return "\ndef server(" in path.read_text()


def workers(path, *arguments, **more):
    """Returns the Workers of a script of either kind: of this module, or with sessions."""
    kind = Workers if is_kind(path) else interleaved.Workers
    return kind(path, *arguments, **more)
