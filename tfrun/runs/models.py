"""The model of a run: made anew by its script, with the values of a checkpoint.

The script is imported, and its load_data() and make_model() are called. The checkpoint has the
values: w, or w_0, w_1, ..., are the model's trainable variables in their order, and state_0,
state_1, ... the others, as the chief had them. w as one vector holds all of them one after another.
A state may be a vector, too, whatever its shape in the model.
"""

import importlib.util
import math
import pathlib
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfrun.runs import run_directory

# As sessions name their variables, and as tf.train.Checkpoint does; of several towers the first.
SAVED = re.compile(r"(?:tower_0/)?(w|state)(?:[_/](\d+))?(?:/\.ATTRIBUTES/VARIABLE_VALUE)?")
# A table's rows of one ps, in a checkpoint; and the layer that a model of nothing but tables has.
TABLE = re.compile(r"table_(.+)_rows_(\d+)_of_(\d+)")
ANCHOR = re.compile(r"anchor(_\d+)?/anchor")


def load(path: pathlib.Path) -> types.ModuleType:
    """Returns the module of a script. Raises ValueError where it has no model from Keras."""
    if not path.is_file():
        raise ValueError(f"there is no script {path} any more: --script names the one to use")
    sys.path.insert(0, str(path.parent))  # where a problem of one's own has its modules
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "make_model"):
        raise ValueError(f"{path} has no make_model(): what it learns is no model from Keras")
    return module


def load_data(module: types.ModuleType, name: str) -> Any:
    """Returns the data of a run's script. Raises ValueError where load_data() fails.

    The user's code may raise anything; most often a file is not where it was in training.
    """
    try:
        return module.load_data(name)
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ValueError(
            f"load_data of the run fails here: {reason}; put the data back as they were in "
            "training, and repeat the command in the folder from which you started the run"
        ) from error


def script_of(directory: str | pathlib.Path, flags: Mapping[str, Any]) -> pathlib.Path:
    """Returns the path of a run's script; of a copy that has moved with its directory, where it is.

    flags: the content of flags.json.
    """
    path = pathlib.Path(flags.get("script", ""))
    moved = pathlib.Path(directory) / path.name
    return moved if not path.is_file() and moved.is_file() else path


def saved_values(
    checkpoint: str, shapes: Sequence[tuple[int, ...]] = (), anchors: int = 0
) -> dict[str, list[np.ndarray]]:
    """Returns {"w": [arrays], "state": [arrays]} of a checkpoint, in their order.

    shapes: those of the trainable variables, for a checkpoint in which w is one vector of them all,
    whole or in parts. Raises ValueError if that vector has another length. anchors: so many
    numbers may follow, which give each ps a part of w where a model has little beside tables.
    """
    import tensorflow as tf

    reader = tf.train.load_checkpoint(checkpoint)
    tensors: dict[str, dict[int, np.ndarray]] = {"w": {}, "state": {}}
    for name in reader.get_variable_to_shape_map():
        if match := SAVED.fullmatch(name):
            tensors[match[1]][int(match[2] or 0)] = reader.get_tensor(name)
    values = {kind: [numbered[i] for i in sorted(numbered)] for kind, numbered in tensors.items()}
    if (shapes or anchors) and values["w"] and all(value.ndim == 1 for value in values["w"]):
        vector, sizes = np.concatenate(values["w"]), [math.prod(shape) for shape in shapes]
        if anchors and len(vector) == sum(sizes) + anchors:
            vector = vector[:-anchors]
        if len(vector) != sum(sizes):
            raise ValueError(
                "this is the checkpoint of another model: "
                f"it has {len(vector)} parameters, the model {sum(sizes)}"
            )
        parts = np.split(vector, np.cumsum(sizes)[:-1]) if sizes else []
        values["w"] = [part.reshape(shape) for part, shape in zip(parts, shapes)]
    return values


def tables_of(model: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns {name: variable} of the tables that the ps had by rows. Raises ValueError."""
    tables = {}
    for name in names:
        of_layer = [
            v for v in model.trainable_variables if f"/{v.path}".endswith(f"/{name}/embeddings")
        ]
        if len(of_layer) != 1:
            raise ValueError(f"the model has no Embedding layer {name}, whose table the ps had")
        tables[name] = of_layer[0]
    return tables


def untrained_model(
    directory: str | pathlib.Path, script: str | pathlib.Path | None = None
) -> tuple[Any, Any, types.ModuleType]:
    """Returns (the model of a run with its first values, its data, the module of its script).

    directory: the run directory. script: the path of a script instead of the one that ran.
    Raises ValueError where its data cannot be loaded, or the script makes another model than that
    of the run.
    """
    import keras

    run_directory.refuse_patterns(directory)
    flags = run_directory.read_flags(directory)
    module = load(pathlib.Path(script) if script else script_of(directory, flags))
    keras.utils.clear_session()  # so that layers without a name are numbered as in the run
    keras.utils.set_random_seed(flags["arguments"]["seed"])  # and data drawn as there
    data = load_data(module, flags["arguments"]["dataset"])
    model = module.make_model(data)
    if "variables" not in flags:
        raise ValueError(f"{directory} has a checkpoint of an older version of its script")
    names = [size[0] for size in flags.get("sizes", []) if size[0].startswith("table_")]
    tables = tables_of(model, [name.removeprefix("table_") for name in names])
    due = [
        [path, shape]
        for path, shape in flags["variables"]
        if not tables or not ANCHOR.fullmatch(path)
    ]
    on_ps = {v.path for v in tables.values()}
    if due != [[v.path, list(v.shape)] for v in model.trainable_variables if v.path not in on_ps]:
        raise ValueError(
            f"{directory} has a checkpoint of another model "
            f"than make_model() in {module.__file__} makes"
        )
    return model, data, module


def restore(model: Any, checkpoint: str) -> None:
    """Gives a model the values of a checkpoint. Raises ValueError where they do not fit."""
    on_ps, ps = restore_tables(model, checkpoint)
    trained = [v for v in model.trainable_variables if v.path not in on_ps]
    saved = saved_values(checkpoint, [tuple(v.shape) for v in trained], ps)
    variables = {"w": trained, "state": model.non_trainable_variables}
    for kind, values in saved.items():
        shapes = [tuple(v.shape) for v in variables[kind]]
        if len(shapes) != len(values) or not all(map(has_shape, values, shapes)):
            raise ValueError(f"{checkpoint} is a checkpoint of another model")
        for v, value, shape in zip(variables[kind], values, shapes):
            v.assign(value.reshape(shape))


def restore_tables(model: Any, checkpoint: str) -> tuple[set[str], int]:
    """Gives Embedding layers the rows that all ps have saved.

    Returns (the paths of their variables, the number of ps), or (set(), 0) without such tables.
    """
    import tensorflow as tf

    matches = [TABLE.fullmatch(name) for name, _ in tf.train.list_variables(checkpoint)]
    parts = [match for match in matches if match]
    tables = tables_of(model, list(dict.fromkeys(match[1] for match in parts)))
    reader = tf.train.load_checkpoint(checkpoint)
    for match in parts:
        rows, (k, n) = reader.get_tensor(match[0]), (int(match[2]), int(match[3]))
        ids = np.arange(k, tables[match[1]].shape[0], n)
        tables[match[1]].value.scatter_update(tf.IndexedSlices(rows, ids))
    return {v.path for v in tables.values()}, max((int(match[3]) for match in parts), default=0)


def has_shape(value: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Returns whether a saved array has this shape, or is the vector of an array that has."""
    return value.shape in (shape, (math.prod(shape),))


def step_of(checkpoint: str) -> int:
    """Returns the number of updates that a checkpoint has seen, by its name."""
    return int(checkpoint.rpartition("-")[2])


def trained_model(
    directory: str | pathlib.Path, script: str | pathlib.Path | None = None
) -> tuple[Any, Any, types.ModuleType, int]:
    """Returns (the model of a run's last checkpoint, its data, the module of its script, the step).

    The arguments are those of untrained_model. Raises ValueError, also without a checkpoint.
    """
    import tensorflow as tf

    run_directory.refuse_patterns(directory)
    checkpoint = tf.train.latest_checkpoint(directory)
    if not checkpoint:
        raise ValueError(f"there is no checkpoint in {directory} yet")
    model, data, module = untrained_model(directory, script)
    restore(model, checkpoint)
    return model, data, module, step_of(checkpoint)


def evaluate(model: Any, data: Any, module: types.ModuleType) -> dict[str, float]:
    """Returns {"test_loss": ..., "test_<metric>": ...}: the means over the test rows."""
    outputs = model.predict(data.x_test, verbose=0)
    functions = {"loss": module.loss}
    functions |= {name: function for name, (_, function) in module.METRICS.items()}
    return {
        f"test_{name}": float(function(data.y_test, outputs).numpy().mean())
        for name, function in functions.items()
    }
