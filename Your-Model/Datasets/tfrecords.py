"""TFRecord files: --dataset is a folder that Train-and-Evaluate's write_records.py has written.

python ../../Operations/Train-and-Evaluate/write_records.py /tmp/records
PROBLEM=tfrecords.py bash ../../HogWild/run.sh --dataset /tmp/records
"""

import glob
import json

import keras
import tensorflow as tf

DATASET, DATASETS = "/tmp/records", "a folder of TFRecord files"
SHUFFLE = 2000  # examples among which the next one is drawn


def load_data(folder):
    """Returns datasets of (inputs [features], label): a worker gets its part of the first."""
    with open(f"{folder}/records.json") as file:
        shape = json.load(file)["shape"]

    def parse(record):
        features = {
            "x": tf.io.FixedLenFeature(shape, tf.float32),
            "y": tf.io.FixedLenFeature([], tf.int64),
        }
        example = tf.io.parse_single_example(record, features)
        return example["x"], tf.cast(example["y"], tf.int32)

    def dataset(name):
        files = sorted(glob.glob(f"{glob.escape(folder)}/{name}-*.tfrecord"))
        return tf.data.TFRecordDataset(files).map(parse, tf.data.AUTOTUNE)

    return dataset("train"), dataset("test")


def make_model(data):
    """Makes a network for the ten digits."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(10),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
