"""A problem of one's own, in the form that every script takes.

A script takes four arrays of numbers with a row for each example, a model with one input and one
output, a loss and metrics of each row. Tables, lists and sparse matrices become arrays here.
Several inputs, outputs or targets become the columns of one array, while make_model, loss and
METRICS of own_problem.py see them as they were.

A copied script imports this file instead of its region `problem`, and so reads own_problem.py. Then
adapt(globals()) puts the user's optimizer and dataset into its functions, before main() begins. In
a worker, load_data() and then make_model() return what the script takes; its gradients() draws from
the dataset, then sums --accumulate mini-batches, and then may make steps of the optimizer.
"""

import argparse
import collections
import contextlib
import functools
import importlib
import inspect
import json
import math
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

FILE = __file__  # in a run directory: the path of the user's file
SEVERAL = 64  # a longer list is rows, and not several inputs
LARGE, PIECE = 2**24, 500  # numbers in a test set that is tested in pieces, of so many rows
LARGEST = 2**24  # the first whole number beside which float32 has gaps


def load_own() -> types.ModuleType:
    """Returns the module of the user's file, whose errors name that file and its lines."""
    text = pathlib.Path(__file__).with_name("own_problem.py").read_text(encoding="utf-8")
    module = types.ModuleType("own_problem")
    module.__file__ = FILE
    sys.modules["own_problem"] = module
    exec(compile(text, FILE, "exec"), module.__dict__)
    return module


own = load_own()
# Its own name is Data, because a user who prints it sees that name.
Arrays = collections.namedtuple(  # type: ignore[name-match]
    "Data", "x_train y_train x_test y_test"
)
DATASET, DATASETS = getattr(own, "DATASET", "own"), getattr(own, "DATASETS", FILE)
# Of "x", "y" and "outputs": their Columns, where they are several.
column_layouts: dict[str, "Columns"] = {}


class Data(Arrays):
    """Holds the four arrays; `own` has the same as the user's load_data() grouped them."""

    own: Arrays


class Columns:
    """Turns several arrays, with a row for each example, into columns of one matrix, and back.

    parts: arrays or tensors in lists, tuples and dicts. The matrix is of float32.
    """

    def __init__(self, parts: Any) -> None:
        flat = keras.tree.flatten(parts)
        self.form = keras.tree.map_structure(lambda part: 0, parts)
        self.shapes = [tuple(part.shape[1:]) for part in flat]
        dtypes = [keras.backend.standardize_dtype(part.dtype) for part in flat]
        self.dtypes = ["float32" if dtype == "float64" else dtype for dtype in dtypes]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        self.columns = [slice(*pair) for pair in zip([0, *ends], ends)]

    def pack(self, parts: Any) -> Any:
        """Returns the matrix, [rows, columns].

        NumPy packs arrays: load_data() must not start TensorFlow, which a script does after it.
        """
        flat = keras.tree.flatten(parts)
        is_data = all(isinstance(part, np.ndarray) for part in flat)
        ops, cast = (np, np.asarray) if is_data else (keras.ops, keras.ops.cast)
        flat = [
            cast(ops.reshape(part, (-1, columns.stop - columns.start)), "float32")
            for part, columns in zip(flat, self.columns)
        ]
        return ops.concatenate(flat, axis=1)

    def unpack(self, matrix: Any) -> Any:
        """Returns the parts of a matrix, an array or a tensor, in their shapes and types."""
        parts = [
            keras.ops.cast(keras.ops.reshape(matrix[:, columns], (-1, *shape)), dtype)
            for columns, shape, dtype in zip(self.columns, self.shapes, self.dtypes)
        ]
        return keras.tree.pack_sequence_as(self.form, parts)


def load_data(name: str) -> Data:
    """Returns Data with four arrays of numbers. Raises ValueError where that is not possible."""
    parts = [*own.load_data(name)]
    if any(isinstance(part, tf.data.Dataset) for part in parts):
        parts = first_of_datasets(parts)
    if len(parts) != 4:
        raise ValueError(
            f"load_data returns x_train, y_train, x_test and y_test, not {len(parts)} parts"
        )
    own_arrays = Arrays(*[arrays(part, where) for part, where in zip(parts, Arrays._fields)])
    flat = []
    for kind, train, test in ("x", 0, 2), ("y", 1, 3):
        column_layouts.pop(kind, None)
        if not isinstance(own_arrays[train], np.ndarray):
            layout = Columns(own_arrays[train])
            other = Columns(own_arrays[test])
            column_layouts[kind] = layout
            if (other.form, other.shapes) != (layout.form, layout.shapes):
                raise ValueError(f"{kind}_train and {kind}_test have other parts, or other shapes")
    for where, part in zip(Arrays._fields, own_arrays):
        columns = column_layouts.get(where[0])
        flat.append(columns.pack(part) if columns else part)
    data = Data(*flat)
    data.own = own_arrays
    if adapted.is_weighted:
        data.own = own_arrays._replace(
            y_train=own_arrays.y_train["y"], y_test=own_arrays.y_test["y"]
        )
    for x, y in ("x_train", "y_train"), ("x_test", "y_test"):
        rows = len(getattr(data, x)), len(getattr(data, y))
        if rows[0] != rows[1] or not rows[0]:
            raise ValueError(f"{x} has {rows[0]} rows, and {y} has {rows[1]}: each needs the same")
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    workers = sum(len(cluster.get(job, [])) for job in ("chief", "worker"))
    workers = max(workers, int(os.environ.get("HOROVOD_SIZE", 1)))
    if len(data.x_train) < workers:
        raise ValueError(f"x_train has {len(data.x_train)} rows for {workers} workers: add rows")
    keeps_order = adapted.dataset is not None or not getattr(own, "SHUFFLE", True)
    return data if keeps_order else shuffle_rows(data)


def first_of_datasets(parts: list[Any]) -> list[Any]:
    """Returns the first examples of a dataset, and the whole test, as load_data() returns arrays.

    Raises ValueError where the script takes no dataset.
    """
    if len(parts) != 2 or not all(isinstance(part, tf.data.Dataset) for part in parts):
        raise ValueError("load_data returns two datasets, for training and for the test, or arrays")
    if adapted.data is None or adapted.has_arrays_only:
        raise ValueError("this script takes arrays, and no tf.data.Dataset")
    adapted.dataset = parts[0]
    arrays = adapted.data.arrays_of(*parts)
    adapted.is_weighted = len(parts[0].element_spec) == 3
    return arrays


def shuffle_rows(data: Data) -> Data:
    """Returns the Data with its rows for training in another order, which all tasks share.

    A worker takes every n-th row: of rows that alternate between two classes it would have one.
    """
    order = np.random.RandomState(0).permutation(len(data.x_train))
    parts = {}
    for where in "x_train", "y_train":
        parts[where] = keras.tree.map_structure(lambda part: part[order], getattr(data.own, where))
    rows = {
        where: part if isinstance(part, np.ndarray) else getattr(data, where)[order]
        for where, part in parts.items()
    }
    result = data._replace(**rows)
    result.own = data.own._replace(**parts)
    return result


def arrays(part: Any, where: str) -> Any:
    """Returns one part of the data as an array, or several in the lists and dicts they came in."""
    if isinstance(part, dict):
        return {key: arrays(element, f"{where}[{key!r}]") for key, element in part.items()}
    if isinstance(part, (list, tuple)) and 0 < len(part) <= SEVERAL:
        if all(len(getattr(element, "shape", ())) for element in part):
            return [arrays(element, f"{where}[{i}]") for i, element in enumerate(part)]
    return array(part, where)


def array(part: Any, where: str) -> np.ndarray:
    """Returns a part of the data as an array of numbers, in the byte order of this machine.

    Raises ValueError if it has anything but finite numbers. where: its name in the error.
    """
    for convert in "toarray", "to_numpy", "numpy":  # of scipy.sparse, of pandas, of a tensor
        if hasattr(part, convert):
            part = getattr(part, convert)()
            break
    try:
        part = np.asarray(part)
    except ValueError:
        raise ValueError(
            f"{where} has rows of different lengths: pad them in load_data, "
            "as keras.utils.pad_sequences does"
        ) from None
    others: list[Any] = []
    if part.dtype.kind == "O":
        others = [v for v in part.flat if not isinstance(v, (bool, float, int, np.number))]
        if not others:
            part = part.astype("float64")  # a table whose columns are of several kinds of numbers
    if part.dtype.kind not in "biuf" or not part.ndim:
        what = "text" if part.dtype.kind in "US" else part.dtype
        example = ""
        if others:
            line = " ".join(repr(others[0]).split())
            example = f" (such as {line:.60})"
        raise ValueError(
            f"{where} holds {what}{example}, not numbers: number words and names in load_data, as "
            "keras.layers.TextVectorization or np.unique(..., return_inverse=True) does, and turn "
            "dates into numbers of days"
        )
    if not np.isfinite(part).all():
        message = f"{where} has NaN or infinite numbers: drop or fill them in load_data"
        if where.startswith("y"):
            message += "; a loss that masks gaps needs a number there, and a second target as mask"
        raise ValueError(message)
    return part.astype(part.dtype.newbyteorder("="))


class Unpack(keras.layers.Layer):
    """Gives the model its inputs."""

    def call(self, x: Any) -> Any:
        return column_layouts["x"].unpack(x)


class Pack(keras.layers.Layer):
    """Packs the model's outputs into the columns of one matrix, [rows, columns]."""

    def call(self, outputs: Any) -> Any:
        flat = keras.tree.flatten(outputs)
        checks = [
            tf.debugging.assert_less(
                keras.ops.abs(keras.ops.cast(part, "float64")),
                tf.constant(LARGEST, "float64"),
                f"an output has whole numbers above {LARGEST}, and there are several outputs",
            )
            for part in flat
            if keras.backend.is_int_dtype(part.dtype)
        ]
        with tf.control_dependencies(checks):
            return column_layouts["outputs"].pack(outputs)


class InPieces(keras.layers.Layer):
    """Gives a model a large test set in pieces, one after another: all at once need much memory."""

    def __init__(self, model: Any) -> None:
        super().__init__(dtype="float32")
        self.model = model

    def call(self, x: Any, training: bool = False) -> Any:
        rows = x.shape[0]
        if training or not rows or rows <= PIECE:
            return self.model(x, training=training)
        whole = rows // PIECE * PIECE
        outputs = tf.map_fn(
            lambda piece: self.model(piece, training=False),
            keras.ops.reshape(x[:whole], (-1, PIECE, *x.shape[1:])),
            parallel_iterations=1,
            fn_output_signature=self.model.output.dtype,
        )
        outputs = [keras.ops.reshape(outputs, (whole, *outputs.shape[2:]))]
        if whole < rows:
            outputs.append(self.model(x[whole:], training=False))
        return keras.ops.concatenate(outputs)


def make_model(data: Data) -> Any:
    """Returns the user's model, or one around it with one input and one output.

    Raises ValueError where no script can train it.
    """
    for parts in data.own.x_train, data.own.x_test:
        refuse_large_numbers("x", "input", parts)
    for parts in data.own.y_train, data.own.y_test:
        refuse_large_numbers("y", "target", parts)
    x = keras.Input(data.x_train.shape[1:], dtype=data.x_train.dtype.name)
    with adapted.tables.of_a_model() if adapted.tables else contextlib.nullcontext():
        model = own.make_model(data.own)
        if not isinstance(model, keras.Model):
            raise ValueError(f"make_model returns no keras.Model, but {type(model).__name__}")
        for layer in model._flatten_layers():
            freeze(layer)
        # In float32, whatever policy make_model has left: half of it has gaps above 256.
        outputs = model(Unpack(dtype="float32")(x) if "x" in column_layouts else x)
    column_layouts.pop("outputs", None)
    if keras.tree.is_nested(outputs):
        column_layouts["outputs"] = Columns(outputs)
        outputs = Pack(dtype="float32")(outputs)
    has_tables = adapted.tables and adapted.tables.all
    if has_tables and adapted.dataset is not None:
        raise ValueError(
            "tables on the ps take arrays, and no tf.data.Dataset: return arrays, "
            "or make the tables smaller than --table-size"
        )
    if has_tables and adapted.place == "local":
        raise ValueError(
            "in this script make_optimizer() makes a worker's own steps, which tables on the ps "
            "cannot take: remove it, or make the tables smaller than --table-size"
        )
    is_small = adapted.tables and adapted.tables.is_too_small(model)
    if is_small:
        outputs = adapted.tables.anchor()(outputs)
    elif not model.trainable_variables:
        raise ValueError("make_model returns a model that has nothing to train")
    around = whole(model, x, outputs, data, is_small)
    if adapted.place in ("local", "mean"):
        with_slots = adapted.optimizer.WithSlots(own.make_optimizer(), around)
        around = with_slots.model(keras.Input(data.x_train.shape[1:], dtype=x.dtype))
        around.__dict__["own"] = model
    return around


def whole(model: Any, x: Any, outputs: Any, data: Data, is_needed: bool) -> Any:
    """Returns the user's model, or one from x to outputs where a script needs that."""
    known = (keras.Sequential, keras.src.models.Functional)
    large = data.x_test.size > LARGE
    is_needed = is_needed or large
    if not is_needed and not column_layouts.keys() & {"x", "outputs"} and isinstance(model, known):
        return model
    around = keras.Model(x, outputs)
    if large:
        around = keras.Model(x, InPieces(around)(x))
    around.__dict__["own"] = model  # what `tfrun export` writes; not a second time a layer
    return around


def refuse_large_numbers(kind: str, name: str, parts: Any) -> None:
    """Raises ValueError where a column of float32 cannot hold a whole number.

    Fractions are rounded to seven digits, as in any float32; whole numbers tell rows apart.
    """
    if kind not in column_layouts:
        return
    for part in keras.tree.flatten(parts):
        values = part.astype("float64")
        large = np.abs(values) >= LARGEST
        if part.dtype.kind == "f":  # of those, any that float32 would change
            large &= (values == np.round(values)) & (values != part.astype("float32"))
        if large.any():
            raise ValueError(
                f"{'an' if kind == 'x' else 'a'} {name} has whole numbers above {LARGEST}, and "
                f"there are several {name}s: number them from 0 in load_data"
            )


def freeze(layer: Any) -> None:
    """Turns what a layer has learned before training into arrays, as a graph takes no tensor.

    Raises ValueError where a layer cannot be trained here.
    """
    if hasattr(layer, "get_vocabulary"):
        raise ValueError(f"the layer {layer.name} looks words up in a table: use it in load_data")
    if getattr(layer, "stateful", False):
        raise ValueError(
            f"the layer {layer.name} is stateful, and mini-batches are drawn at random: "
            "make it without stateful=True"
        )
    if isinstance(layer, keras.layers.Normalization) and getattr(layer, "mean", None) is not None:
        layer.mean, layer.variance = np.asarray(layer.mean), np.asarray(layer.variance)


def unpack_values(kind: str, values: Any) -> Any:
    """Returns targets or outputs as the user's functions take them."""
    parts = column_layouts[kind].unpack(values) if kind in column_layouts else values
    return parts["y"] if kind == "y" and adapted.is_weighted else parts


def to_float32(values: Any) -> Any:
    """Returns values of float16 or bfloat16 in float32, which a mean over rows needs."""

    def wide(part: Any) -> Any:
        half = keras.backend.standardize_dtype(part.dtype) in ("float16", "bfloat16")
        return keras.ops.cast(part, "float32") if half else part

    return keras.tree.map_structure(wide, values)


def of_each_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a user's loss or metric as a function of y and outputs, the arrays of a script."""

    def value(y: Any, outputs: Any) -> Any:
        values = function(unpack_values("y", y), to_float32(unpack_values("outputs", outputs)))
        refuse_other_rows(function, y, outputs, values)
        return to_float32(values)

    return value


def refuse_other_rows(function: Callable[..., Any], y: Any, outputs: Any, values: Any) -> None:
    """Raises ValueError unless the values of a function have a number for each row of y.

    If y has the shape [rows] and outputs have [rows, 1], for example, y - outputs is a matrix.
    """
    shape, rows = getattr(values, "shape", ()), outputs.shape[0]
    if not shape or rows is None:  # a mean of all rows; or known later
        return
    shape = tuple(shape)
    # A row of targets or outputs may have as many columns as there are rows.
    columns = {*y.shape[1:], *outputs.shape[1:]}
    if shape[0] != rows or rows in shape[1:] and rows > 1 and rows not in columns:
        name = getattr(function, "__name__", "a function")
        raise ValueError(
            f"{name} returns {shape}, not a number for each of {rows} rows: targets have "
            f"{tuple(y.shape)}, outputs {tuple(outputs.shape)}; give both the same shape"
        )


def adapt_metrics(metrics: dict[str, tuple[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Returns METRICS as scripts take them. Raises ValueError for a bad name or no function."""
    for name, pair in metrics.items():
        if not re.fullmatch(r"(?!loss$)[\w %@.-]+", name):
            raise ValueError(
                f"METRICS has {name!r}: use another name than loss, of letters, digits and _"
            )
        if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
            raise ValueError(f"METRICS[{name!r}] must be ('max' or 'min', a function)")
    return {
        # An object with update_state() goes on as it is: the script says what is wrong with it.
        name: (better, function if hasattr(function, "update_state") else of_each_row(function))
        for name, (better, function) in metrics.items()
    }


METRICS = adapt_metrics(own.METRICS)
loss_of_each_row = of_each_row(own.loss)


def loss(y: Any, outputs: Any) -> Any:
    """Returns the user's loss of each row, times the weight that an element of a dataset has."""
    values = loss_of_each_row(y, outputs)
    if adapted.is_weighted:
        values = values * column_layouts["y"].unpack(y)["weight"]
    return values


# What a script gets besides ----------------------------------------------------------------------

# The modules adapted_optimizer and adapted_data, where a script has a place for them; where that is
# for an optimizer; the dataset to train on; whether its elements have weights; whether the script
# says by ARRAYS_ONLY that it takes no dataset; the tables of adapted_tables, where a ps can have
# them.
adapted = types.SimpleNamespace(
    optimizer=None,
    place="",
    data=None,
    dataset=None,
    is_weighted=False,
    has_arrays_only=False,
    tables=None,
)


def adapt(script: dict[str, Any]) -> None:
    """Adds the flag --accumulate, datasets and the user's optimizer to a script, by its globals.

    Raises ValueError where the script cannot take that optimizer.
    """
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if script.get("TABLES_BY_ROWS") and "ps" in cluster:
        tables_module = importlib.import_module("adapted_tables")
        adapted.tables = tables_module.adapt_tables(script, own, len(cluster["ps"]))
    if has_gradients(script):
        adapted.data = importlib.import_module("adapted_data")  # beside this file
        help_text = "mini-batches whose mean gradient is that of an update"
        script["MORE_FLAGS"].append(("accumulate", 1, help_text))
        adapted.has_arrays_only = script.get("ARRAYS_ONLY", False)
        script["parse_flags"] = parse_more(script["parse_flags"])
        script["gradients"] = accumulated(of_dataset(script, script["gradients"]))
    if hasattr(own, "make_optimizer"):
        adapt_optimizer(script)
    if adapted.tables and "steps_together" in script:
        script["steps_together"] = tables_module.together_with(script["steps_together"])


def adapt_optimizer(script: dict[str, Any]) -> None:
    """Puts the user's optimizer into a script. Raises ValueError where it does not fit."""
    optimizer = importlib.import_module("adapted_optimizer")
    adapted.optimizer, adapted.place = optimizer, script["OPTIMIZER"]
    for name in {"adamw_steps", "adagrad"} & script.keys():  # a script's own optimizer
        script[name] = getattr(optimizer, name)
    if adapted.place == "shard":
        script["Block"].adam = optimizer.adam_of_shards(own.make_optimizer)
        return
    if adapted.place == "whole":
        script["make_optimizer"] = optimizer.optimizer_of_whole(own.make_optimizer)
        return
    if adapted.place == "ps":
        optimizer.refuse_what_needs_all(own.make_optimizer)
        script["server"] = optimizer.server_with(own.make_optimizer, script["server"])
        if "steps_together" in script:
            script["steps_together"] = optimizer.counted(script["steps_together"])
        return
    script["gradients"] = optimizer.gradients_with(adapted.place, script["gradients"])
    if adapted.place == "mean":
        name = "algorithm" if "algorithm" in script else "update"
        script[name] = optimizer.algorithm_with(script[name])


def of_dataset(script: dict[str, Any], gradients: Callable[..., Any]) -> Callable[..., Any]:
    """Returns gradients(), whose mini-batches come from the user's dataset, if there is one."""

    @functools.wraps(gradients)
    def wrapped(
        model: Any, state: Any, x: Any, y: Any, flags: Any, rank: int
    ) -> Callable[..., Any]:
        if adapted.dataset is None:
            return gradients(model, state, x, y, flags, rank)
        types_of = x.dtype, y.dtype

        def pack(element: tuple[Any, ...]) -> tuple[Any, ...]:
            x, y, *weight = element
            parts = {"x": x, "y": {"y": y, "weight": weight[0]} if weight else y}
            packed = [
                column_layouts[kind].pack(part) if kind in column_layouts else part
                for kind, part in parts.items()
            ]
            return tuple(tf.cast(part, dtype) for part, dtype in zip(packed, types_of))

        shuffle = getattr(own, "SHUFFLE", True)
        return adapted.data.gradients_of(
            script, adapted.dataset, pack, shuffle, model, state, flags, rank
        )

    return wrapped


def has_gradients(script: dict[str, Any]) -> bool:
    """Returns whether a script draws its mini-batches in gradients(model, state, x, y, flags).

    Where update.rows says which rows a worker has, others say which of them come next.
    """
    function = script.get("gradients")
    if not isinstance(function, types.FunctionType) or hasattr(script.get("update"), "rows"):
        return False
    return [*inspect.signature(function).parameters][:5] == ["model", "state", "x", "y", "flags"]


def parse_more(parse_flags: Callable[..., Any]) -> Callable[..., Any]:
    """Returns parse_flags(), whose --batch-size counts the rows of all accumulated mini-batches.

    Which tables lie on the ps depends on --table-size.
    """

    @functools.wraps(parse_flags)
    def wrapped() -> argparse.Namespace:
        flags = parse_flags()
        flags.batch_size *= flags.accumulate
        if adapted.tables:
            adapted.tables.size = flags.table_size
        return flags

    return wrapped


def accumulated(gradients: Callable[..., Any]) -> Callable[..., Any]:
    """Returns gradients(), where a gradient is the mean of those of --accumulate mini-batches."""

    @functools.wraps(gradients)
    def wrapped(
        model: Any, state: Any, x: Any, y: Any, flags: Any, rank: int
    ) -> Callable[..., Any]:
        count = flags.accumulate
        if count == 1:
            return gradients(model, state, x, y, flags, rank)
        if getattr(flags, "buckets", 1) > 1:
            raise ValueError("--accumulate needs --buckets 1: no part is complete before the last")
        part_flags = argparse.Namespace(**vars(flags))
        part_flags.batch_size = flags.batch_size // count
        one_gradient = gradients(model, state, x, y, part_flags, rank)

        @functools.wraps(one_gradient)  # with the attributes that it has
        def gradient(w: Any, number: tf.Tensor, *_: Any) -> tuple[Any, ...]:
            w = tf.nest.map_structure(tf.convert_to_tensor, w)

            def add(i: tf.Tensor, sums: Any, w: Any) -> tuple[Any, ...]:
                new = one_gradient(w, number * count + i)
                return i + 1, tf.nest.map_structure(tf.add, sums, (new[0], new[1])), w

            zeros = tf.zeros([], "float32"), tf.nest.map_structure(tf.zeros_like, w)
            start = [tf.constant(0, tf.int64), zeros, w]
            sums = tf.while_loop(lambda i, *_: i < count, add, start, parallel_iterations=1)[1]
            return tf.nest.map_structure(lambda total: total / count, sums)

        return gradient

    return wrapped
