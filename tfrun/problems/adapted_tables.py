"""Embedding layers whose tables lie on the ps, by rows.

A worker's model has no variable for such a table. For each update, a worker asks the ps for those
rows that its mini-batches need, and puts them behind w, as one longer vector. So the update of the
script moves w and these rows by the same equation, and what it pushes of the rows goes to the ps
that has them, in the message of its part of w. It pulls rows after w, so they may be newer.

Of n ps, ps k has the rows whose id is k modulo n. A row's key, k * ceil(rows / n) + id // n, orders
them by ps: what lies on ps k has the keys from k * ceil(rows / n) on.
"""

import contextlib
import functools
import math
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

TABLE_SIZE = 1_000_000  # numbers in an Embedding layer above which its table lies on the ps
MESSAGE = 900_000  # numbers in a message: gRPC refuses one of more than 4 MB
BLOCK = 65_536  # rows that are drawn, or read from a checkpoint, at once
PREFIX = "table_"  # of a table's name among the sizes of a run, and in its checkpoints
IDS, ROWS = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 1], tf.float32)  # in a message
PART_OF_TABLE = re.compile(rf"({PREFIX}.+)_(\d+)_of_(\d+)")
# What an optimizer may have, and what has no sense for some rows of a table.
REFUSED = (
    *("momentum", "amsgrad", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm"),
    *("use_ema", "gradient_accumulation_steps"),
)
# Initializers of which a part of a table is drawn as the whole would be.
INITIALIZERS = ("RandomUniform", "RandomNormal", "TruncatedNormal", "Constant", "Zeros", "Ones")


class Table(NamedTuple):
    """A table of [rows, columns] numbers on n ps."""

    name: str
    rows: int
    columns: int
    initializer: dict[str, Any]  # as keras.initializers.serialize() writes it
    n: int

    @property
    def rows_of_ps(self) -> int:
        """The number of keys for each ps."""
        return -(-self.rows // self.n)

    def keys(self, ids: Any) -> Any:
        """Returns the keys of ids, a tensor or an array of int64."""
        return ids % self.n * self.rows_of_ps + ids // self.n


class AtHand(threading.local):
    """What the layers of a model find when they are called in this thread."""

    recorded: list[list[tf.Tensor]] | None = None  # ids of each table, while only they count
    keys: Sequence[tf.Tensor] = ()  # of the rows at hand, in their order
    rows: Sequence[tf.Tensor] = ()  # these rows of each table, [keys, columns]


class Tables:
    """The tables of a model, and what the model's layers do when they are called."""

    def __init__(self, names: dict[str, int] | None, n: int) -> None:
        """names: {layer: rows} that TABLES has; None for all above `size` numbers. n: ps."""
        self.names, self.n = names, n
        self.size = TABLE_SIZE
        self.all: list[Table] = []
        self.now = AtHand()

    def are_of(self, layer: Any) -> bool:
        """Returns whether a layer's table lies on the ps."""
        if self.names is not None:
            return layer.name in self.names
        return layer.input_dim * layer.output_dim > self.size

    def add(self, layer: Any) -> None:
        """Takes a layer's table. Raises ValueError where that cannot be."""
        kind = layer.embeddings_initializer.__class__.__name__
        for what, is_bad in {
            "has a regularizer": layer.embeddings_regularizer,
            "has a constraint": layer.embeddings_constraint,
            "has LoRA": layer.lora_rank,
            "is quantized": layer.quantization_mode,
            "is not trainable": not layer.trainable,
            f"has numbers of {layer.variable_dtype}": layer.variable_dtype != "float32",
            f"begins with {kind}, which needs the whole table": kind not in INITIALIZERS,
        }.items():
            if is_bad:
                raise ValueError(f"the layer {layer.name} {what}: its table cannot lie on the ps")
        if any(table.name == layer.name for table in self.all):
            raise ValueError(f"two Embedding layers are called {layer.name}: give each a name")
        if self.names and self.names[layer.name] != layer.input_dim:
            raise ValueError(
                f"TABLES has {self.names[layer.name]} rows for {layer.name}, "
                f"whose input_dim is {layer.input_dim}"
            )
        initializer = keras.initializers.serialize(layer.embeddings_initializer)
        initializer["config"].pop("seed", None)  # a ps draws by --seed
        place = len(self.all)
        self.all.append(Table(layer.name, layer.input_dim, layer.output_dim, initializer, self.n))
        layer.call = functools.partial(self.look_up, layer, place)

    @contextlib.contextmanager
    def of_a_model(self) -> Iterator[None]:
        """While a model is made: Embedding layers whose table lies on the ps make no variable."""
        build = keras.layers.Embedding.build

        def build_or_add(layer: Any, input_shape: Any = None) -> None:
            if self.are_of(layer):
                self.add(layer)
            else:
                build(layer, input_shape)

        self.all.clear()
        keras.layers.Embedding.build = build_or_add
        try:
            yield
        except AttributeError as error:
            if "_embeddings" not in str(error):
                raise
            raise ValueError(
                "make_model reads the table of an Embedding layer, which lies on the ps: "
                "look rows up by calling the layer, or name your tables in TABLES without this one"
            ) from None
        finally:
            keras.layers.Embedding.build = build
        known = {table.name for table in self.all}
        if missing := sorted(self.names.keys() - known if self.names else ()):
            raise ValueError(f"TABLES has {missing[0]}, but no Embedding layer has that name")

    def look_up(self, layer: Any, place: int, inputs: Any) -> Any:
        """Takes the place of a layer's call(inputs); place: its table's, among all."""
        table, ids = self.all[place], tf.cast(inputs, tf.int64)
        shape, static = tf.concat([tf.shape(ids), [table.columns]], 0), [*ids.shape, table.columns]
        if self.now.recorded is not None:
            self.now.recorded[place].append(tf.reshape(ids, [-1]))
        if self.now.recorded is not None or not self.now.rows:  # then only shapes count
            return tf.ensure_shape(tf.zeros(shape, layer.compute_dtype), static)
        where = tf.searchsorted(self.now.keys[place], tf.reshape(table.keys(ids), [-1]))
        rows = tf.cast(tf.gather(self.now.rows[place], where), layer.compute_dtype)
        return tf.ensure_shape(tf.reshape(rows, shape), static)

    def ids_in(self, model: Any, x: Any) -> list[tf.Tensor]:
        """Returns the ids of each table that the model asks for, of inputs x; none is unique.

        In a graph, TensorFlow computes only what gives these ids.
        """
        self.now.recorded = [[] for _ in self.all]
        try:
            values = [v.value for v in model.trainable_variables]
            state = [v.value for v in model.non_trainable_variables]
            model.stateless_call(values, state, x, training=True)
            return [tf.concat(ids or [tf.zeros([0], tf.int64)], 0) for ids in self.now.recorded]
        finally:
            self.now.recorded = None

    def keys_of(self, ids: list[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sorted keys of each table's ids, each once."""
        keys = []
        for table, some in zip(self.all, ids):
            text = f"the layer {table.name} has the rows 0 to {table.rows - 1}, and gets other ids"
            checks = [
                tf.debugging.assert_non_negative(some, text),
                tf.debugging.assert_less(some, np.int64(table.rows), text),
            ]
            with tf.control_dependencies([check for check in checks if check is not None]):
                keys.append(tf.sort(tf.unique(table.keys(some)).y))
        return keys

    def in_messages(self, keys: list[tf.Tensor]) -> list[list[tf.Tensor]]:
        """Returns keys as a list of some of each table, whose rows fit into a message."""
        most = [MESSAGE // (len(self.all) * table.columns) or 1 for table in self.all]
        count = max(-(-len(some) // size) for some, size in zip(keys, most)) or 1
        return [
            [some[i * size : (i + 1) * size] for some, size in zip(keys, most)]
            for i in range(count)
        ]

    def divide(self, vector: tf.Tensor, size: int, keys: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns [w, rows [keys, columns] of each table], from the vector of them all.

        size: of w.
        """
        counts = [tf.size(some) * table.columns for some, table in zip(keys, self.all)]
        w, *flat = tf.split(vector, [size, *counts], num=1 + len(counts))
        return [tf.ensure_shape(w, [size])] + [
            tf.reshape(rows, [-1, table.columns]) for rows, table in zip(flat, self.all)
        ]

    @contextlib.contextmanager
    def at_hand(self, keys: list[tf.Tensor], rows: list[tf.Tensor]) -> Iterator[None]:
        """While it lasts, layers find these rows."""
        self.now.keys, self.now.rows = keys, rows
        try:
            yield
        finally:
            self.now.keys = self.now.rows = ()

    def is_too_small(self, model: Any) -> bool:
        """Returns whether w, without the tables, has no part for each ps, as rows need."""
        size = sum(math.prod(v.shape) for v in model.trainable_variables)
        return bool(self.all) and size < self.n

    def anchor(self) -> keras.layers.Layer:
        """Returns a layer that gives each ps a number of w, and has no effect."""
        return Anchor(self.n)

    def sizes(self) -> list[list[Any]]:
        """Returns [[name, initializer, [rows, columns]]], which a ps finds behind sizes_of()."""
        return [
            [PREFIX + table.name, table.initializer, [table.rows, table.columns]]
            for table in self.all
        ]


class Anchor(keras.layers.Layer):
    """Has a number of w for each ps, and returns what it is given."""

    def __init__(self, n: int) -> None:
        super().__init__(dtype="float32")
        self.n = n

    def build(self, input_shape: Any) -> None:
        self.add_weight(shape=[self.n], initializer="zeros", name="anchor")

    def call(self, outputs: Any) -> Any:
        return outputs


def tables_of(sizes: list[Any], n: int) -> list[Table]:
    """Returns the tables among the sizes of a run, which n ps have."""
    return [
        Table(name.removeprefix(PREFIX), shape[0], shape[1], initializer, n)
        for name, initializer, shape in sizes
        if name.startswith(PREFIX)
    ]


# On a worker --------------------------------------------------------------------------------------


class Drawn(Exception):
    """Carries the inputs of a mini-batch out of a script's gradient()."""


class Draw:
    """Stands for the model in gradients(), to learn which inputs a mini-batch has."""

    def __init__(self) -> None:
        self.trainable_variables: list[Any] = []

    def stateless_call(self, values: Any, state: Any, x: Any, **_: Any) -> Any:
        raise Drawn(x)


class Rows:
    """The rows of one update: which they are, and what becomes of a vector that has them behind w.

    It stands for ps in a script's update().
    """

    def __init__(self, ps: Any, tables: Tables, keys: list[tf.Tensor]) -> None:
        self.ps, self.tables, self.keys = ps, tables, keys
        self.rank = ps.rank
        self.size = ps.parts["w"][-1].end

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self.call(name, *arguments)

    def of_each_ps(self, rows: list[tf.Tensor]) -> list[list[tf.Tensor]]:
        """Returns, for each ps, its piece of the rows (or of the keys) of each table."""
        pieces = []
        for table, keys, some in zip(self.tables.all, self.keys, rows):
            ends = tf.searchsorted(
                keys, np.arange(1, table.n + 1, dtype=np.int64) * table.rows_of_ps
            )
            counts = ends - tf.concat([[0], ends[:-1]], 0)
            pieces.append(tf.split(some, counts, num=table.n))
        return [list(of_ps) for of_ps in zip(*pieces)]

    def message_of_ids(self, ps: int) -> tf.Tensor:
        """Returns how many rows of each table are asked of a ps, and then their places there."""
        pieces = self.of_each_ps(self.keys)[ps]
        places = [piece - ps * table.rows_of_ps for piece, table in zip(pieces, self.tables.all)]
        counts = tf.stack([tf.size(piece, tf.int64) for piece in pieces])
        return tf.concat([counts, *places], 0)

    def pull(self) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns (the rows of each table, the bytes of both messages)."""
        parts = self.ps.parts["w"][: self.tables.n]
        ids = [self.message_of_ids(part.ps) for part in parts]
        pending = [self.ps.call_one("rows", part, message) for part, message in zip(parts, ids)]
        columns = [table.columns for table in self.tables.all]
        replies = []
        for message, reply in zip(ids, pending):
            flat = reply.get_value()[0][:, 0]
            counts = message[: len(columns)] * columns
            pieces = tf.split(flat, counts, num=len(columns))
            replies.append([tf.reshape(p, [-1, width]) for p, width in zip(pieces, columns)])
        rows = [tf.concat(of_table, 0) for of_table in zip(*replies)]
        size = tf.add_n([8 * tf.size(message, tf.int64) for message in ids])
        return rows, size + tf.add_n([4 * tf.size(some, tf.int64) for some in rows])

    def call(self, name: str, *arguments: Any, **others: Any) -> Any:
        """Calls the function of each part of w; to the first part on each ps go its rows, too."""
        sent, pieces = [], None
        for argument in arguments:
            if argument.shape.rank == 1:
                argument, *rows = self.tables.divide(argument, self.size, self.keys)
                pieces = self.of_each_ps(rows)
            sent.append(argument)
        if pieces:
            count = len(self.ps.parts["w"])
            none = [tf.zeros([0], tf.int64)] * (count - self.tables.n)
            flat = [
                tf.concat([tf.reshape(piece, [-1, 1]) for piece in of_ps], 0) for of_ps in pieces
            ]
            sent.append([self.message_of_ids(k) for k in range(self.tables.n)] + none)
            sent.append(flat + [tf.zeros([0, 1])] * len(none))
        return self.ps.call(name, *sent, **others)


def update_with(tables: Tables, update: Callable[..., Any]) -> Callable[..., Any]:
    """Returns update(), which moves the rows of its mini-batches as it moves w."""

    def wrapped(ps: Any, version: Any, w_k: Any, gradient: Any, flags: Any) -> tuple[Any, Any]:
        if not tables.all:
            return update(ps, version, w_k, gradient, flags)
        count = getattr(flags, "local_steps", 1) * getattr(flags, "accumulate", 1)
        ids = gradient.ids_of_batches(version * count + np.arange(count, dtype=np.int64))
        rows_of_update = Rows(ps, tables, tables.keys_of(ids))
        rows, size = rows_of_update.pull()
        w = tf.concat([w_k, *[tf.reshape(some, [-1]) for some in rows]], 0)
        with tables.at_hand(rows_of_update.keys, rows):
            loss, reply = update(rows_of_update, version, w, gradient, flags)
        return loss, reply._replace(bytes=reply.bytes + size)

    return wrapped


def unpack_with(tables: Tables, unpack: Callable[..., Any]) -> Callable[..., Any]:
    """Returns unpack(model, w), which puts the rows behind w to where layers find them."""

    def wrapped(model: Any, w: tf.Tensor) -> list[tf.Tensor]:
        if isinstance(model, Draw):
            return []
        if tables.now.rows:
            size = sum(math.prod(v.shape) for v in model.trainable_variables)
            w, *tables.now.rows = tables.divide(w, size, tables.now.keys)
        return unpack(model, w)

    return wrapped


def gradients_with(tables: Tables, gradients: Callable[..., Any]) -> Callable[..., Any]:
    """Returns gradients(), which also tells the tables the ids of mini-batches by their numbers."""

    @functools.wraps(gradients)
    def wrapped(
        model: Any, state: Any, x: Any, y: Any, flags: Any, rank: int
    ) -> Callable[..., Any]:
        gradient = gradients(model, state, x, y, flags, rank)
        inputs = gradients(Draw(), [], x, y, flags, rank)

        def ids_of(number: tf.Tensor) -> list[tf.Tensor]:
            try:
                inputs(tf.zeros([0]), number)
            except Drawn as drawn:
                return tables.ids_in(model, drawn.args[0])
            raise AssertionError("gradient() has called no model")

        def ids_of_batches(numbers: tf.Tensor) -> list[tf.Tensor]:
            if numbers.shape[0] == 1:
                return ids_of(numbers[0])
            several = [tf.TensorSpec([None], tf.int64)] * len(tables.all)
            ids = tf.map_fn(ids_of, numbers, fn_output_signature=several)
            return [tf.reshape(some, [-1]) for some in ids]

        setattr(gradient, "ids_of_batches", ids_of_batches)  # noqa: B010 - for update_with()
        return gradient

    return wrapped


def evaluation_with(tables: Tables, evaluation: Callable[..., Any]) -> Callable[..., Any]:
    """Returns evaluation(), which pulls the rows that the test needs."""

    def wrapped(model: Any, x: Any, y: Any, ps: Any = None) -> Callable[..., Any]:
        inner = evaluation(model, x, y, ps)
        if not tables.all:
            return inner
        ids = tf.function(lambda: tables.ids_in(model, x), autograph=False)()
        keys = tables.keys_of(ids)
        messages = tables.in_messages(keys)

        @tf.function(autograph=False)
        def evaluate(w: tf.Tensor) -> list[tf.Tensor]:
            pulled = [Rows(ps, tables, some).pull()[0] for some in messages]
            rows = [tf.concat(of_table, 0) for of_table in zip(*pulled)]
            w = tf.concat([w, *[tf.reshape(some, [-1]) for some in rows]], 0)
            with tables.at_hand(keys, rows):
                return inner(w)

        return evaluate

    return wrapped


# On a ps ------------------------------------------------------------------------------------------


class ServedTable:
    """A ps's rows of a table: those whose id is k modulo n."""

    def __init__(self, table: Table, k: int, seed: int, optimizer: Any) -> None:
        """Draws the first values. optimizer: the user's, or None."""
        self.table, self.k = table, k
        shape = [len(range(k, table.rows, table.n)), table.columns]
        self.v = tf.Variable(tf.zeros(shape))
        self.step = RowStep(optimizer, shape) if optimizer else None
        for begin in range(0, table.rows, BLOCK):
            self.put(begin, 1, draw_block(table, seed, begin), self.v)

    def put(self, first: int, stride: int, block: Any, v: tf.Variable) -> None:
        """Assigns rows of which this ps has some; their ids are first, first + stride, ..."""
        ids = first + stride * np.arange(len(block))
        mine = (ids % self.table.n == self.k) & (ids < self.table.rows)
        v.scatter_update(tf.IndexedSlices(tf.boolean_mask(block, mine), ids[mine] // self.table.n))

    def variables(self) -> dict[str, tf.Variable]:
        """Returns {name in a checkpoint: variable} of the rows and the optimizer's slots."""
        named = {"rows": self.v} | (self.step.slots if self.step else {})
        own = f"{self.k}_of_{self.table.n}"
        return {f"{PREFIX}{self.table.name}_{name}_{own}": v for name, v in named.items()}

    def subtract(self, places: tf.Tensor, delta: tf.Tensor, part: Any) -> Any:
        """Moves the rows at these places, each of which occurs once. Returns what is there then."""
        if self.step:
            move = functools.partial(self.step.apply, self.v, places, delta / part.rate, part.count)
            return part.lock.execute(move) if part.lock else move()
        return self.v.scatter_sub(tf.IndexedSlices(delta, places))

    def restore(self, checkpoint: str, name: str, v: tf.Variable) -> None:
        """Reads what v has of a checkpoint, which any number of ps may have written, in blocks."""
        base = name.removesuffix(f"_{self.k}_of_{self.table.n}")
        for other, shape in tf.train.list_variables(checkpoint):
            match = PART_OF_TABLE.fullmatch(other)
            if not match or match[1] != base:
                continue
            k, n = int(match[2]), int(match[3])
            if n == self.table.n and k != self.k:
                continue
            for begin in range(0, shape[0], BLOCK):
                count = min(BLOCK, shape[0] - begin)
                (block,) = tf.raw_ops.RestoreV2(
                    prefix=checkpoint,
                    tensor_names=[other],
                    shape_and_slices=[f"{shape[0]} {shape[1]} {begin},{count}:0,{shape[1]}"],
                    dtypes=[tf.float32],
                )
                self.put(k + n * begin, n, block, v)


def draw_block(table: Table, seed: int, begin: int) -> tf.Tensor:
    """Returns the first values of up to BLOCK rows from a row on, whatever ps has them."""
    config = dict(table.initializer["config"])
    if table.initializer["class_name"].startswith(("Random", "Truncated")):
        text = f"{seed} {table.name} {begin}"
        config["seed"] = zlib.crc32(text.encode()) % 2**31
    initializer = keras.initializers.deserialize({**table.initializer, "config": config})
    count = min(BLOCK, table.rows - begin)
    return tf.convert_to_tensor(initializer([count, table.columns], "float32"))


class RowStep:
    """Makes steps of an optimizer on the rows of a push alone; the other rows keep their slots.

    So it is what TensorFlow calls lazy: a row's moments do not decay while nobody asks for it.
    """

    def __init__(self, optimizer: Any, shape: list[int]) -> None:
        """Raises ValueError for all but SGD without momentum, Adagrad and Adam of Keras."""
        optimizers = keras.optimizers
        steps: dict[type, tuple[Callable[..., Any], tuple[str, ...]]] = {
            optimizers.SGD: (self.sgd, ()),
            optimizers.Adagrad: (self.adagrad, ("accumulator",)),
            optimizers.Adam: (self.adam, ("m", "v")),
        }
        name = type(optimizer).__name__
        if type(optimizer) not in steps:
            raise ValueError(
                f"{name} has no step for the rows of a table: take SGD, Adagrad or Adam"
            )
        for what in REFUSED:
            if getattr(optimizer, what, None):
                raise ValueError(f"{name} has {what}, which rows of a table cannot have: remove it")
        self.optimizer = optimizer
        self.delta, slots = steps[type(optimizer)]
        first = getattr(optimizer, "initial_accumulator_value", 0.0)
        self.slots = {slot: tf.Variable(tf.fill(shape, first)) for slot in slots}

    def apply(self, v: tf.Variable, places: tf.Tensor, g: tf.Tensor, count: tf.Tensor) -> Any:
        """Moves rows by their gradients g, after `count` updates."""
        rate = self.optimizer._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = rate(count)
        slots = {name: tf.gather(slot, places) for name, slot in self.slots.items()}
        delta, slots = self.delta(keras.ops.cast(rate, "float32"), g, count, **slots)
        written = [
            self.slots[name].scatter_update(tf.IndexedSlices(value, places))
            for name, value in slots.items()
        ]
        written.append(v.scatter_sub(tf.IndexedSlices(delta, places)))
        with tf.control_dependencies(written):
            return tf.identity(count)

    def sgd(self, rate: tf.Tensor, g: tf.Tensor, count: tf.Tensor) -> tuple[Any, ...]:
        return rate * g, {}

    def adagrad(
        self, rate: tf.Tensor, g: tf.Tensor, count: tf.Tensor, accumulator: tf.Tensor
    ) -> tuple[Any, ...]:
        accumulator = accumulator + g**2
        delta = rate * g / tf.sqrt(accumulator + self.optimizer.epsilon)
        return delta, {"accumulator": accumulator}

    def adam(
        self, rate: tf.Tensor, g: tf.Tensor, count: tf.Tensor, m: tf.Tensor, v: tf.Tensor
    ) -> tuple[Any, ...]:
        beta_1, beta_2 = self.optimizer.beta_1, self.optimizer.beta_2
        t = tf.cast(count + 1, tf.float32)
        m, v = m + (g - m) * (1 - beta_1), v + (g**2 - v) * (1 - beta_2)
        rate = rate * tf.sqrt(1 - beta_2**t) / (1 - beta_1**t)
        return rate * m / (tf.sqrt(v) + self.optimizer.epsilon), {"m": m, "v": v}


class PartWithRows:
    """Stands for w in server(): what is subtracted from it has rows behind it, which move, too."""

    def __init__(self, w: Any, served: list[ServedTable]) -> None:
        """w: this part's variable, or what stands for it. served: of a ps's first part only."""
        self.w, self.served, self.shape, self.dtype = w, served, w.shape, w.dtype
        self.read_value = w.read_value
        # Of the call that is being traced: the places of the rows that come behind w.
        self.places: Sequence[tf.Tensor] = []
        self.slots: WorkerSlots | None = None  # where all workers make a step together

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        return tf.convert_to_tensor(self.w, dtype, name=name)

    def columns(self) -> list[int]:
        return [served.table.columns for served in self.served]

    def read(self) -> Callable[..., Any]:
        """Returns rows(ids) -> the numbers [numbers, 1] of the rows that a message asks for."""

        def rows(ids: tf.Tensor) -> tf.Tensor:
            rows = [tf.gather(s.v, some) for s, some in zip(self.served, self.split_ids(ids))]
            return tf.concat([tf.reshape(some, [-1, 1]) for some in rows], 0)

        rows.__annotations__ = {"ids": IDS}  # from which checked_function() has the signature
        return rows

    def split_ids(self, ids: tf.Tensor) -> list[tf.Tensor]:
        """Returns the places of the rows of each table that a message names."""
        count = len(self.served)
        return tf.split(ids[count:], ids[:count], num=count) if count else []

    def split_rows(self, places: Sequence[tf.Tensor], flat: tf.Tensor) -> list[tf.Tensor]:
        """Returns the rows [places, columns] of each table, from their numbers [numbers]."""
        counts = [tf.size(some) * width for some, width in zip(places, self.columns())]
        pieces = tf.split(flat, counts, num=len(counts)) if counts else []
        return [tf.reshape(piece, [-1, width]) for piece, width in zip(pieces, self.columns())]

    def assign_sub(self, delta: tf.Tensor) -> tf.Tensor:
        """Subtracts from w and from the rows; returns a tensor that is there when both moved."""
        size = self.w.shape[0]
        moved = [self.w.assign_sub(tf.ensure_shape(delta[:size], [size]))]
        rows = self.split_rows(self.places, delta[size:])
        moved += [
            served.subtract(places, some, self.w)
            for served, places, some in zip(self.served, self.places, rows)
        ]
        with tf.control_dependencies(moved):
            return tf.constant(0)

    def with_rows(self, function: Callable[..., Any], step: Any) -> Callable[..., Any]:
        """Returns a function of server() that takes, behind its arguments, ids and their rows."""
        if not any(spec.shape.rank == 1 for spec in function.__annotations__.values()):
            return function

        def wrapped(*arguments: Any) -> Any:
            *own, ids, rows = arguments
            if self.slots:
                with tf.control_dependencies(self.slots.store(step.worker, ids, rows)):
                    return function(*[tf.identity(argument) for argument in own])
            self.places = self.split_ids(ids)
            return function(
                *[tf.concat([a, rows[:, 0]], 0) if a.shape.rank == 1 else a for a in own]
            )

        wrapped.__annotations__ = {**function.__annotations__, "ids": IDS, "rows": ROWS}
        return wrapped


class WorkerSlots:
    """What each worker has sent of rows for a step that all make together, by rank."""

    def __init__(self, workers: int) -> None:
        self.ids = [tf.Variable(tf.zeros([0], tf.int64), shape=[None]) for _ in range(workers)]
        self.rows = [tf.Variable(tf.zeros([0, 1]), shape=[None, 1]) for _ in range(workers)]

    def store(self, worker: tf.Tensor, ids: tf.Tensor, rows: tf.Tensor) -> list[Any]:
        """Returns ops that keep a worker's message."""
        return [
            tf.raw_ops.AssignVariableOp(
                resource=tf.gather(tf.stack([v.handle for v in variables]), worker), value=value
            )
            for variables, value in ((self.ids, ids), (self.rows, rows))
        ]

    def sums(self, part: PartWithRows, ranks: tf.Tensor) -> tuple[list[Any], list[Any]]:
        """Returns ([places], [rows]) of each table: the sum over these workers, each row once."""
        handles = [tf.stack([v.handle for v in variables]) for variables in (self.ids, self.rows)]

        def add(i: tf.Tensor, places: list[Any], rows: list[Any]) -> tuple[Any, ...]:
            ids, flat = (
                tf.raw_ops.ReadVariableOp(resource=tf.gather(handle, ranks[i]), dtype=dtype)
                for handle, dtype in zip(handles, (tf.int64, tf.float32))
            )
            own_places = part.split_ids(tf.reshape(ids, [-1]))
            own_rows = part.split_rows(own_places, tf.reshape(flat, [-1]))
            join = functools.partial(map, lambda *pair: tf.concat(pair, 0))
            return i + 1, [*join(places, own_places)], [*join(rows, own_rows)]

        columns = part.columns()
        start = [0, [tf.zeros([0], tf.int64) for _ in columns], [tf.zeros([0, d]) for d in columns]]
        shapes = [
            tf.TensorShape([]),
            [tf.TensorShape([None]) for _ in columns],
            [tf.TensorShape([None, d]) for d in columns],
        ]
        _, places, rows = tf.while_loop(
            lambda i, *_: i < tf.size(ranks), add, start, shape_invariants=shapes
        )
        unique = [tf.unique(some) for some in places]
        return [some.y for some in unique], [
            tf.math.unsorted_segment_sum(of_table, some.idx, tf.size(some.y))
            for of_table, some in zip(rows, unique)
        ]


def together_with(steps_together: Callable[..., Any]) -> Callable[..., Any]:
    """Returns steps_together(), which sums the rows of all workers, and moves them with w."""

    def wrapped(w: Any, step: Any, backups: int, move: Callable[..., Any]) -> Any:
        if not isinstance(w, PartWithRows):
            return steps_together(w, step, backups, move)
        slots = w.slots = WorkerSlots(step.most)

        def move_with_rows(steps: tf.Tensor, N: tf.Tensor, g: tf.Tensor) -> Any:
            w.places, rows = slots.sums(w, step.summed)
            return move(steps, N, tf.concat([g, *[tf.reshape(some, [-1]) for some in rows]], 0))

        return steps_together(w.w, step, backups, move_with_rows)

    return wrapped


class Server:
    """Puts tables into the functions of a script's ps, by the script's globals."""

    def __init__(self, script: dict[str, Any], make_optimizer: Callable[[], Any] | None) -> None:
        self.make_optimizer = make_optimizer
        self.tables: list[Table] = []
        self.served: list[ServedTable] = []  # what this process has of them
        for name in "layout", "server", "restore":
            script[name] = getattr(self, name)(script[name])

    def layout(self, layout: Callable[..., Any]) -> Callable[..., Any]:
        """Returns layout(), which deals no table to parts of w, but tells which there are."""

        def wrapped(sizes: list[Any], ps: int) -> Any:
            self.tables, self.served = tables_of(sizes, ps), []
            return layout([size for size in sizes if not size[0].startswith(PREFIX)], ps)

        return wrapped

    def server(self, server: Callable[..., Any]) -> Callable[..., Any]:
        """Returns server(), whose functions also take rows."""

        @functools.wraps(server)
        def wrapped(w: Any, step: Any, flags: Any) -> Any:
            if not self.tables:
                return server(w, step, flags)
            served = []
            if is_first := step.part.index == step.part.ps:
                for table in self.tables:
                    optimizer = self.make_optimizer() if self.make_optimizer else None
                    served.append(ServedTable(table, step.part.ps, flags.seed, optimizer))
                self.served.extend(served)
            part = PartWithRows(w, served)
            functions, beside = server(part, step, flags)
            functions = {
                name: part.with_rows(function, step) for name, function in functions.items()
            }
            if is_first:
                functions["rows"] = part.read()
            for rows in served:
                beside = beside | rows.variables()
            return functions, beside

        return wrapped

    def restore(self, restore: Callable[..., Any]) -> Callable[..., Any]:
        """Returns restore(), which reads tables that any number of ps have written."""

        def wrapped(directory: str, entries: list[Any]) -> None:
            restore(directory, [entry for entry in entries if not entry[0].startswith(PREFIX)])
            checkpoint = tf.train.latest_checkpoint(directory)
            for served in self.served:
                for name, v in served.variables().items():
                    served.restore(checkpoint, name, v)

        return wrapped


def adapt_tables(script: dict[str, Any], own: Any, n: int) -> Tables:
    """Puts tables by rows into a script, by its globals; n: the number of ps. Returns Tables."""
    tables = Tables(getattr(own, "TABLES", None), n)
    Server(script, getattr(own, "make_optimizer", None))
    sizes_of = script["sizes_of"]
    script["sizes_of"] = lambda model: [*sizes_of(model), *tables.sizes()]
    for name, with_tables in {
        "update": update_with,
        "unpack": unpack_with,
        "gradients": gradients_with,
        "evaluation": evaluation_with,
    }.items():
        script[name] = with_tables(tables, script[name])
    help_text = "numbers in an Embedding layer above which its table lies on the ps, by rows"
    script["MORE_FLAGS"].append(("table-size", TABLE_SIZE, help_text))
    return tables
