"""Trains on more data than a worker may hold in memory: as a dataset, and then as arrays.

    python larger_than_memory.py                    about 6 minutes, and 4 GB of disk
    python larger_than_memory.py --gigabytes 1      smaller

It writes TFRecord files of noisy images, [64, 64, 3] bytes, which have more bytes than `tfrun
--memory` allows a worker. Two workers of HogWild read each of them once, from a tf.data.Dataset.
The same two then load them as arrays, and are killed. What came out is in larger_than_memory.json,
and as a table in larger_than_memory.txt.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import tensorflow as tf
from lab.pages import result_tables
from tfrun.launch import resources

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
SHAPE, CLASSES, FILES, TEST_ROWS, BATCH_SIZE = (64, 64, 3), 10, 8, 500, 32
PROBLEM = '''
    """Noisy images in TFRecord files, as a dataset or as arrays."""

    import atexit
    import glob
    import resource

    import keras
    import numpy as np
    import tensorflow as tf

    FOLDER, WAY, SHAPE = {folder!r}, {way!r}, {shape}


    @atexit.register
    def say_peak():
        print("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)


    def parse(record):
        features = {{
            "x": tf.io.FixedLenFeature([], tf.string),
            "y": tf.io.FixedLenFeature([], tf.int64),
        }}
        example = tf.io.parse_single_example(record, features)
        return tf.reshape(tf.io.decode_raw(example["x"], tf.uint8), SHAPE), example["y"]


    def dataset(name):
        files = sorted(glob.glob(f"{{FOLDER}}/{{name}}-*.tfrecord"))
        return tf.data.TFRecordDataset(files).map(parse)


    def arrays(name):
        pairs = dataset(name).as_numpy_iterator()
        rows = [(x, y) for x, y in pairs]
        return np.stack([x for x, _ in rows]), np.array([y for _, y in rows], "int32")


    def load_data(name):
        if WAY == "dataset":
            return dataset("train"), dataset("test")
        return *arrays("train"), *arrays("test")


    def make_model(data):
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.AveragePooling2D(8)]
        return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense({classes})])


    def loss(y, outputs):
        return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


    METRICS = {{"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}}
'''


def write_records(path, rows, seed):
    """Writes so many rows: the mean of a class, and noise, as bytes."""
    random = np.random.default_rng(seed)
    means = np.random.default_rng(0).integers(96, 160, (CLASSES, 8, 8, 3))
    means = means.repeat(8, 1).repeat(8, 2)  # to SHAPE
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(rows):
            y = int(random.integers(CLASSES))
            x = (means[y] + random.integers(-96, 96, SHAPE)).astype(np.uint8)
            features = {
                "x": tf.train.Feature(bytes_list=tf.train.BytesList(value=[x.tobytes()])),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[y])),
            }
            features = tf.train.Features(feature=features)
            writer.write(tf.train.Example(features=features).SerializeToString())


def write_data(folder, gigabytes):
    """Writes the files; returns how many rows there are to train on, and their bytes."""
    rows = int(gigabytes * 1e9 / np.prod(SHAPE)) // FILES
    for number in range(FILES):
        write_records(folder / f"train-{number}.tfrecord", rows, number + 1)
        print(f"wrote {number + 1} of {FILES} files", flush=True)
    write_records(folder / "test-0.tfrecord", TEST_ROWS, 0)
    return rows * FILES, rows * FILES * int(np.prod(SHAPE))


def train(folder, way, rows, limit):
    """Trains as long as all rows need; returns what came out."""
    texts = {"folder": str(folder), "way": way, "shape": SHAPE, "classes": CLASSES}
    problem = folder / f"{way}.py"
    problem.write_text(textwrap.dedent(PROBLEM).lstrip().format(**texts))
    steps = -(-rows // BATCH_SIZE)
    command = [sys.executable, "-m", "tfrun", "--ps", "1", "--workers", "2"]
    command += ["--memory", f"worker={limit}", "--problem", str(problem), "--timeout", "1800"]
    command += ["--", str(ROOT / "HogWild" / "hogwild.py"), "--steps", str(steps)]
    command += ["--batch-size", str(BATCH_SIZE), "--checkpoint-steps", str(steps)]
    directory = folder / f"run-{way}"
    env = {**os.environ, "OUTPUT_DIR": str(directory), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    print(done.stdout, done.stderr, flush=True)
    logs = "".join(path.read_text() for path in directory.glob("worker-*.log"))
    peaks = [int(peak) for peak in re.findall(r"peak memory (\d+)", logs)]
    killed = re.findall(r"\[tfrun\] (worker .* and was killed)", done.stdout)
    result = {}
    if (directory / "result.json").exists():
        result = json.loads((directory / "result.json").read_text())
    return {
        "way": way,
        "exit_code": done.returncode,
        "examples": result.get("steps", 0) * BATCH_SIZE,
        "test_accuracy": result.get("test_accuracy"),
        "examples_per_second": result.get("examples_per_second"),
        "peak_bytes": max(peaks, default=None),
        "said": killed[0] if killed else "",
    }


def table_of(facts):
    """Returns the table in Markdown."""
    limit, data = facts["limit_bytes"], facts["data_bytes"]
    lines = [f"Data of {data / 1e9:.2f} GB, {data / limit:.1f} times what a worker may use.", ""]
    rows = []
    for row in facts["rows"]:
        trained = f"{row['examples']:,} examples" if row["examples"] else row["said"]
        peak = f"{row['peak_bytes'] / 1e9:.2f} GB" if row["peak_bytes"] else ""
        accuracy = f"{row['test_accuracy']:.1%}" if row["test_accuracy"] else ""
        rows.append((row["way"], trained, peak, accuracy))
    table = result_tables.table(["way", "trained", "most memory of a worker", "accuracy"], rows)
    where = f"{facts['date']}, TensorFlow {facts['tensorflow']}, Python {facts['python']}"
    return "\n".join([*lines, table, "", f"{where}, {facts['cores']} cores."])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=3.6, help="of data (%(default)s)")
    parser.add_argument("--limit", default="900M", help="of a worker's memory (%(default)s)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        rows, data = write_data(folder, flags.gigabytes)
        results = [train(folder, way, rows, flags.limit) for way in ("dataset", "arrays")]
    facts = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "cores": os.cpu_count(),
        "data_bytes": data,
        "limit_bytes": resources.size(flags.limit),
        "rows": results,
    }
    output = pathlib.Path(os.environ.get("OUTPUT_DIR") or FOLDER)
    (output / "larger_than_memory.json").write_text(json.dumps(facts, indent=1) + "\n")
    result_tables.leave(output / "larger_than_memory.txt", table_of(facts))
    first, second = results
    return int(bool(first["exit_code"]) or not second["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
