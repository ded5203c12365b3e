"""Runs scripts one after the other in the ranks of one horovodrun, and records what they do.

    horovodrun -np 2 python ranks.py FOLDER

FOLDER/jobs.json: {name: [script, *flags]}. Each rank has an OUTPUT_DIR of its own,
FOLDER/name/rank. There record.npz holds `drawn_i`, the i-th variable before the broadcast, and
`w_i`, that variable before the first step, after it, after the second, and so on. `sent` is the
number of bytes that had crossed the loopback interface by then.
"""

import json
import os
import pathlib
import runpy
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

ORIGINAL = tf.Session


def sent():
    """The bytes that were sent over the loopback interface, as the kernel counts them."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


class Recorder:
    """Keeps the values of the variables: as the rank has drawn them, and at each step."""

    def __init__(self):
        self.drawn, self.values, self.sent = [], {}, {}

    def broadcast(self, root, broadcast=hvd.broadcast_global_variables):
        """What the script calls instead of Horovod's function, after it has drawn its values."""
        self.drawn = tf.get_default_session().run(tf.trainable_variables())
        return broadcast(root)

    def keep(self, session):
        """Keeps the present values."""
        w, step = tf.trainable_variables(), tf.train.get_global_step()
        if not self.drawn:
            self.drawn = session.run(w)
        step, values = session.run([step, w])
        self.values[int(step)] = values
        self.sent[int(step)] = sent()

    def save(self, path):
        """Writes what it has kept."""
        steps = sorted(self.values)
        assert steps == list(range(len(steps))), steps
        count = len(self.drawn)
        arrays = {"w_%d" % i: [self.values[s][i] for s in steps] for i in range(count)}
        drawn = {"drawn_%d" % i: v for i, v in enumerate(self.drawn)}
        np.savez(path, sent=[self.sent[s] for s in steps], **arrays, **drawn)


def recording_session(recorder):
    """Returns a session class with which the recorder keeps the values before each step."""

    class Session(ORIGINAL):
        def run(self, fetches, *args, **more):
            if isinstance(fetches, tf.Tensor):  # the row of a step
                recorder.keep(self)
            return super().run(fetches, *args, **more)

    return Session


def main():
    hvd.init()
    folder = pathlib.Path(sys.argv[1])
    for name, argv in json.loads((folder / "jobs.json").read_text()).items():
        recorder, sys.argv = Recorder(), argv
        tf.Session = recording_session(recorder)
        hvd.broadcast_global_variables = recorder.broadcast
        os.environ["OUTPUT_DIR"] = str(folder / name / str(hvd.rank()))
        runpy.run_path(argv[0], run_name="__main__")
        recorder.save(folder / name / str(hvd.rank()) / "record.npz")
        print("done: %s" % name, flush=True)


if __name__ == "__main__":
    main()
