"""Says which rows a run of Elastic-Training has read, and checks that the account adds up.

    python account.py DIRECTORY

Each update has one mini-batch of one shard. The workers' metrics have a line for each of their
pushes, and the last checkpoint says how far each shard was read. Exits with 1 if the two differ.
While the run goes on, they may differ by an update of each worker: it has moved w, and its rows do
not count yet.
"""

import argparse
import glob
import json
import os
import re
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0")  # no notes
import numpy as np
import tensorflow as tf


def read_metrics(directory):
    """Returns {task: the numbers of its updates}, and how many rows there are to train on."""
    updates, rows = {}, 0
    for path in sorted(glob.glob(f"{glob.escape(directory)}/metrics-[cw]*.csv")):  # chief, worker
        with open(path) as file:
            text = file.read()
        task = os.path.basename(path).removeprefix("metrics-").removesuffix(".csv")
        # push_time, pull_time, global_step, local_steps, examples, loss: a test has no loss.
        lines = re.findall(r"(?m)^[\d.]+,[\d.]+,(\d+),[^,]+,[^,]+,[^,]+,.*$", text)
        updates[task] = {int(number) for number in lines}
        facts = re.findall(r"(?m)^# data (.+)$", text)
        rows = json.loads(facts[0])["x_train"][0][0] if facts else rows
    return updates, rows


def mini_batches(table, rows, size):
    """Returns how many mini-batches of `size` rows the shards have had, by the ps's table."""
    ends = rows * np.arange(len(table) + 1) // len(table)
    of_a_shard = -(-np.diff(ends) // size)
    return int(table[:, 0] @ of_a_shard - np.sum(-table[:, 1] // size))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", help="the run directory")
    directory = parser.parse_args().directory
    checkpoint = tf.train.latest_checkpoint(directory)
    if not checkpoint:
        parser.error(f"{directory} has no checkpoint: name the directory of a run")
    with open(f"{directory}/flags.json") as file:
        flags = json.load(file)["arguments"]
    table, again, step = [
        tf.train.load_variable(checkpoint, name) for name in ("leases", "again", "global_step")
    ]
    updates, rows = read_metrics(directory)
    for task, numbers in updates.items():
        print(f"{len(numbers):8,} updates of {task}")
    noted = len(set().union(*updates.values()) & set(range(1, step + 1)))
    print(f"{step - noted:8,} updates whose workers were killed before they wrote a line")
    read = mini_batches(table, rows, flags["batch_size"])
    print(f"{read:8,} mini-batches were read: each shard {table[:, 0].min()} times or more")
    print(f"{again:8,} were read again, by workers that had lost their shard to another")
    under_way = len(updates) if step < flags["steps"] else 0
    adds_up = abs(step - read - again) <= under_way
    print(f"{step:8,} updates in all: the account {'adds up' if adds_up else 'DOES NOT ADD UP'}")
    return int(not adds_up)


if __name__ == "__main__":
    sys.exit(main())
