"""`tfrun export DIR`: the trained model of a run as a .keras file and as a SavedModel.

The script of the run says what the model is: it is imported, and its load_data() and make_model()
are called. The checkpoint has the values: w, or w_0, w_1, ..., are the model's trainable variables
in their order, and state_0, state_1, ... the others, as the chief had them.
"""

import argparse
import importlib.util
import math
import os
import pathlib
import re
import shutil
import sys

import numpy as np

from tfrun import formatting
from tfrun.arguments import Parser, fail
from tfrun.runs import run_directory

# As sessions name their variables, and as tf.train.Checkpoint does; of several towers the first.
SAVED = re.compile(r"(?:tower_0/)?(w|state)[_/](\d+)(?:/\.ATTRIBUTES/VARIABLE_VALUE)?")
VECTORS = ("w", "w/.ATTRIBUTES/VARIABLE_VALUE")


def load(path):
    """The module of a script. Raises ValueError where it has no model from Keras."""
    if not path.is_file():
        raise ValueError("there is no script %s any more: --script names the one to use" % path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "make_model"):
        raise ValueError("%s has no make_model(): what it learns is no model from Keras" % path)
    return module


def saved_values(checkpoint, shapes=()):
    """Returns {"w": [arrays], "state": [arrays]} of a checkpoint, in their order.

    shapes: those of the trainable variables, for a checkpoint in which w is one vector of them all.
    """
    import tensorflow as tf

    reader, found = tf.train.load_checkpoint(checkpoint), {"w": {}, "state": {}}
    for name in reader.get_variable_to_shape_map():
        if match := SAVED.fullmatch(name):
            found[match[1]][int(match[2])] = reader.get_tensor(name)
    values = {kind: [numbered[i] for i in sorted(numbered)] for kind, numbered in found.items()}
    for name in VECTORS:
        if reader.has_tensor(name):
            values["w"] = split(reader.get_tensor(name), shapes)
    return values


def split(vector, shapes):
    """Returns arrays of these shapes, which the vector holds one after the other."""
    sizes = [math.prod(shape) for shape in shapes]
    if len(vector) != sum(sizes):
        raise ValueError(
            "this is the checkpoint of another model: "
            f"it has {len(vector)} parameters, the model {sum(sizes)}"
        )
    parts = np.split(vector, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes)]


def untrained_model(directory, script=None):
    """Returns (the model of a run with its first values, its data, the module of its script).

    directory: the run directory. script: the path of a script instead of the one that ran.
    Raises ValueError where the script makes another model than that of the run.
    """
    import keras

    flags = run_directory.read_flags(directory)
    module = load(pathlib.Path(script or flags.get("script", "")))
    data = module.load_data(flags["arguments"]["dataset"])
    keras.utils.clear_session()  # so that layers without a name are numbered as in the run
    keras.utils.set_random_seed(flags["arguments"]["seed"])
    model = module.make_model(data)
    if "variables" not in flags:
        raise ValueError("%s has a checkpoint of an older version of its script" % directory)
    if flags["variables"] != [[v.path, list(v.shape)] for v in model.trainable_variables]:
        raise ValueError(
            "%s has a checkpoint of another model than make_model() in %s makes"
            % (directory, module.__file__)
        )
    return model, data, module


def restore(model, checkpoint):
    """Gives a model the values of a checkpoint. Raises ValueError where they do not fit."""
    saved = saved_values(checkpoint, [tuple(v.shape) for v in model.trainable_variables])
    for kind, variables in (
        ("w", model.trainable_variables),
        ("state", model.non_trainable_variables),
    ):
        if [tuple(v.shape) for v in variables] != [value.shape for value in saved[kind]]:
            raise ValueError(f"{checkpoint} is a checkpoint of another model")
        for v, value in zip(variables, saved[kind]):
            v.assign(value)


def step_of(checkpoint):
    """Returns the number of updates that a checkpoint has seen, by its name."""
    return int(checkpoint.rpartition("-")[2])


def trained_model(directory, script=None):
    """Returns (the model of a run's last checkpoint, its data, the module of its script, the step).

    The arguments are those of untrained_model. Raises ValueError, also without a checkpoint.
    """
    import tensorflow as tf

    checkpoint = tf.train.latest_checkpoint(directory)
    if not checkpoint:
        raise ValueError("there is no checkpoint in %s yet" % directory)
    model, data, module = untrained_model(directory, script)
    restore(model, checkpoint)
    return model, data, module, step_of(checkpoint)


def evaluate(model, data, module):
    """{"test_loss": ..., "test_<metric>": ...}: the means over the test rows."""
    outputs = model.predict(data.x_test, verbose=0)
    metrics = {"loss": module.loss, **{name: each for name, (_, each) in module.METRICS.items()}}
    return {
        "test_" + name: float(each(data.y_test, outputs).numpy().mean())
        for name, each in metrics.items()
    }


def write(model, directory):
    """Writes model.keras and saved_model/, each whole or not at all; returns their paths."""
    paths = directory / "model.keras", directory / "saved_model"
    partial = [path.with_name(".%d-%s" % (os.getpid(), path.name)) for path in paths]
    try:
        model.save(partial[0])
        model.export(partial[1], verbose=False)
        shutil.rmtree(paths[1], ignore_errors=True)
        for new, path in zip(partial, paths):
            new.replace(path)
    finally:
        partial[0].unlink(missing_ok=True)
        shutil.rmtree(partial[1], ignore_errors=True)
    return paths


def parser(name, description):
    """Returns the parser of a command that imports the script of a run."""
    made = Parser(
        prog=f"tfrun {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("directory", metavar="DIR", type=pathlib.Path, help="the run directory")
    made.add_argument("--script", metavar="FILE", help="instead of the script that ran")
    return made


def exit_code(command, flags):
    """Calls command(flags); returns 0, or 1 after one line that says what does not work."""
    try:
        command(flags)
    except (OSError, ValueError, ImportError) as error:
        return fail(error, 1)
    return 0


def run(flags):
    """Exports the model. Raises OSError, ValueError, ImportError."""
    directory = flags.directory.resolve()
    model, data, module, step = trained_model(directory, flags.script)
    tests = [formatting.test(*test) for test in evaluate(model, data, module).items()]
    print(f"after {step} updates: {', '.join(tests)}")
    for path in write(model, directory):
        print(f"wrote {path}")


def main(arguments=None):
    """Runs the command; returns its exit code."""
    return exit_code(run, parser("export", __doc__).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
