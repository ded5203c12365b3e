"""Runs a script's own functions in this process, in an order that the test decides.

Each ps is the tf.functions that the script would register at a server, and each worker calls them
through the script's own class Ps: no server, no port. A worker pulls; its push is then computed
from what it holds, whatever others have pushed in between.
"""

import types

import keras
import numpy as np
import problem
from interleaved import Data, flat, loaded


class Client:
    """Calls the functions of one ps by name, as a client of its server does."""

    def __init__(self, functions):
        self.functions = functions
        self.crossed = []  # the bytes of each vector that went there or came back

    def __getattr__(self, name):
        def call(*arguments):
            value = self.functions[name](*arguments)
            vectors = [t for t in [*arguments, *flat_list(value)] if len(t.shape)]
            self.crossed += [t.dtype.size * t.shape[0] for t in vectors]
            return types.SimpleNamespace(get_value=lambda: value)

        return call


def flat_list(value):
    """Returns what a function has returned as a list: one tensor, or several."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


class Servers:
    """The functions and variables of all ps of a script."""

    def __init__(self, script, flags, sizes, ps):
        tf = script.tf
        self.age = tf.Variable(1, dtype=tf.int64)
        self.functions, self.saved = [{} for _ in range(ps)], []
        for part in script.layout(sizes, ps):
            functions, saved = script.serve_part(part, script.server, self.age, flags)
            self.functions[part.ps] |= functions
            self.saved += saved

    def vector(self, name):
        """Returns the values of what the ps save under a name, in the order of their parts."""
        found = {}
        for saved, place, variable in self.saved:
            if saved == name:
                begin = int(place.split()[1].split(",")[0]) if place else 0
                found[begin] = np.ravel(variable.numpy())
        return np.concatenate([found[begin] for begin in sorted(found)])


class Worker:
    """A worker: it pulls and pushes by the script's own functions."""

    def __init__(self, script, servers, k, n, flags, data, sizes, ps):
        self.script, self.tf, self.flags, self.rank = script, script.tf, flags, k
        script.keras.utils.set_random_seed(flags.seed)
        self.model = script.make_model(data)
        self.ps = script.Ps.__new__(script.Ps)
        self.ps.cluster = types.SimpleNamespace(ps=["in process"] * ps)
        self.ps.sizes, self.ps.age = sizes, script.tf.Variable(1, dtype=script.tf.int64)
        self.ps.clients = [Client(functions) for functions in servers.functions]
        self.ps.parts = {}
        for part in script.layout(sizes, ps):
            self.ps.parts.setdefault(part.vector, []).append(part)
        x, y = (script.tf.constant(part[k::n]) for part in (data.x_train, data.y_train))
        self.gradient = script.gradients(self.model, x, y, flags, k)
        self.reply = None  # to its last push

    def pull(self):
        """What a worker holds between its pull and its push."""
        reply = self.ps.pull()
        return reply.version, reply.w

    def push(self, held=None, seconds=None):
        """Pushes from what `pull` returned, or pulls now: (loss, ticket, staleness).

        seconds: has no effect, because nobody here waits for others.
        """
        version, w_k = held or self.pull()
        loss, reply = self.script.update(self.ps, version, w_k, self.gradient, self.flags)
        self.reply = reply
        row = self.script.push_row(0.0, 0.0, version, loss, reply, self.flags).numpy()
        return float(loss), int(row[2]) - 1, int(row[6])


class Workers:
    """n workers of a script, and its ps."""

    def __init__(self, path, n, flags, data=None, text=None, ps=2, largest=None):
        self.script, self.flags = loaded(path, text, flags)
        script, self.tf = self.script, self.script.tf
        if largest:
            script.LARGEST = largest
        data = data or Data(*problem.digits_like())
        script.keras.utils.set_random_seed(self.flags.seed)
        model = script.make_model(data)
        self.shapes = [tuple(v.shape) for v in model.trainable_variables]
        self.first_values, sizes = script.vectors_of(model), script.sizes_of(model)
        self.servers = Servers(script, self.flags, sizes, ps)
        self.workers = [
            Worker(script, self.servers, k, n, self.flags, data, sizes, ps) for k in range(n)
        ]
        self.begin()

    def begin(self):
        """Lets training begin, or begin again: no update is counted, and w has its first values."""
        for name, _, variable in self.servers.saved:
            if name == "global_step":
                variable.assign(0)
        self.workers[0].ps.set_values(self.first_values)
        for k, worker in enumerate(self.workers):
            for i, v in enumerate(worker.model.non_trainable_variables):
                value = np.reshape(self.first_values[f"state_{i}"], v.shape)
                v.assign(value + k if v.name == "seed_generator_state" else value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        keras.backend.clear_session()

    def __iter__(self):
        return iter(self.workers)

    def unpacked(self, vector):
        """The arrays of which the vector has all numbers, one array after the other."""
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        return [part.reshape(s) for part, s in zip(np.split(vector, ends[:-1]), self.shapes)]

    def parameters(self):
        """w on the ps, as arrays of the shapes that the variables of the model have."""
        return self.unpacked(self.servers.vector("w"))

    def values(self):
        """Returns all that lasts, by the names of the references: vectors, as `flat` makes them."""
        return {"parameters": flat(self.parameters())}

    def follow(self, schedule):
        """Lets them pull and push as the schedule says, [("pull" or "push", k)]; the pushes.

        A pull right after a push of the same worker is the reply to it, as while a script trains.
        """
        held, pushes, last = {}, [], None
        for what, k in schedule:
            worker = self.workers[k]
            if what == "push":
                pushes.append(worker.push(held.pop(k)))
            elif last == ("push", k):
                held[k] = worker.reply.version, worker.reply.w
            else:
                held[k] = worker.pull()
            last = what, k
        return pushes


def is_kind(path):
    """Returns whether a script's ps has functions that this module can call."""
    return "\ndef server(" in path.read_text()


def workers(path, *arguments, **more):
    """Returns the Workers of a script of either kind: of this module, or with sessions."""
    import interleaved

    kind = Workers if is_kind(path) else interleaved.Workers
    return kind(path, *arguments, **more)
