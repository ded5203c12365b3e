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


def sent():
    """The bytes that were sent over the loopback interface, as the kernel counts them."""
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


class Recorder(tf.train.SessionRunHook):
    """Keeps the values of the variables; it is the first of the hooks."""

    def begin(self):
        self.w, self.step = tf.trainable_variables(), tf.train.get_global_step()
        self.drawn, self.values, self.sent = [], {}, {}

    def after_create_session(self, session, coord):
        self.drawn = session.run(self.w)

    def before_run(self, run_context):
        self.keep(run_context.session)

    def end(self, session):
        self.keep(session)

    def keep(self, session):
        step, values = session.run([self.step, self.w])
        self.values.setdefault(int(step), values)
        self.sent.setdefault(int(step), sent())

    def save(self, path):
        """Writes what it has kept."""
        steps = sorted(self.values)
        assert steps == list(range(len(steps))), steps
        arrays = {"w_%d" % i: [self.values[s][i] for s in steps] for i in range(len(self.w))}
        drawn = {"drawn_%d" % i: v for i, v in enumerate(self.drawn)}
        np.savez(path, sent=[self.sent[s] for s in steps], **arrays, **drawn)


def main():
    hvd.init()
    folder = pathlib.Path(sys.argv[1])
    session = tf.train.MonitoredTrainingSession
    for name, argv in json.loads((folder / "jobs.json").read_text()).items():
        recorder, sys.argv = Recorder(), argv

        def recorded(*args, hooks, recorder=recorder, **more):
            return session(*args, hooks=[recorder, *hooks], **more)

        tf.train.MonitoredTrainingSession = recorded
        os.environ["OUTPUT_DIR"] = str(folder / name / str(hvd.rank()))
        runpy.run_path(argv[0], run_name="__main__")
        recorder.save(folder / name / str(hvd.rank()) / "record.npz")
        print("done: %s" % name, flush=True)


if __name__ == "__main__":
    main()
