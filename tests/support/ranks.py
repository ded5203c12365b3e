"""Runs scripts one after the other in the ranks of one horovodrun, and records what they do.

    horovodrun -np 2 python ranks.py FOLDER

FOLDER/jobs.json: {name: [script, *flags]}. Each rank has an OUTPUT_DIR of its own,
FOLDER/name/rank. There record.npz holds `drawn_i`, the i-th array of w before the broadcast, and
`w_i`, that array before the first step, after it, after the second, and so on. `sent` is the
number of bytes that had crossed the loopback interface by then.
"""

import importlib.util
import json
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def sent():
    """The bytes that were sent over the loopback interface, as the kernel counts them."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def load(script):
    """The module of a script."""
    spec = importlib.util.spec_from_file_location("script", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """Keeps the values of the variables: as the rank has drawn them, and at each step."""

    def __init__(self, build):
        self.build, self.values, self.sent = build, {}, {}

    def __call__(self, *arguments):
        """What the script calls instead of its build()."""
        saved, make_steps, test = self.build(*arguments)
        self.step, self.w = saved["step"], saved["w"]
        # A vector is cut into the arrays of the model.
        cut = not isinstance(self.w, list)
        self.shapes = [v.shape for v in arguments[0].trainable_variables] if cut else None
        self.drawn = self.arrays()

        def one_by_one(count):
            rows = []
            for _ in range(int(count)):
                self.keep()
                rows.append(make_steps(tf.constant(1)))
            self.keep()
            return tf.concat(rows, 0)

        return saved, one_by_one, test

    def arrays(self):
        """The present values of w."""
        if not self.shapes:
            return [v.numpy() for v in self.w]
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])[:-1]
        return [v.reshape(shape) for v, shape in zip(np.split(self.w.numpy(), ends), self.shapes)]

    def keep(self):
        """Keeps the present values."""
        if int(self.step) not in self.values:
            self.values[int(self.step)] = self.arrays()
            self.sent[int(self.step)] = sent()

    def save(self, path):
        """Writes what it has kept."""
        steps = sorted(self.values)
        assert steps == list(range(steps[0], steps[0] + len(steps))), steps
        count = len(self.drawn)
        arrays = {f"w_{i}": [self.values[s][i] for s in steps] for i in range(count)}
        drawn = {f"drawn_{i}": v for i, v in enumerate(self.drawn)}
        np.savez(path, sent=[self.sent[s] for s in steps], **arrays, **drawn)


def main():
    hvd.init()
    folder = pathlib.Path(sys.argv[1])
    for name, argv in json.loads((folder / "jobs.json").read_text()).items():
        sys.argv, module = argv, load(argv[0])
        module.build = recorder = Recorder(module.build)
        os.environ["OUTPUT_DIR"] = str(folder / name / str(hvd.rank()))
        module.main()
        recorder.save(folder / name / str(hvd.rank()) / "record.npz")
        print(f"done: {name}", flush=True)


if __name__ == "__main__":
    main()
