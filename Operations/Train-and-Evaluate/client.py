"""Asks an exported model for the labels of the test rows.

    python client.py DIRECTORY/saved_model records

It needs neither the training script nor Keras.
"""

import argparse
import json
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0")  # no notes
import tensorflow as tf


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="the folder saved_model of a run")
    parser.add_argument("records", help="the folder of the files")
    flags = parser.parse_args()
    with open(os.path.join(flags.records, "records.json")) as file:
        about = json.load(file)
    files = tf.io.gfile.glob(os.path.join(flags.records, "test-*.tfrecord"))
    rows = next(iter(tf.data.TFRecordDataset(files).batch(about["test_rows"])))
    example = tf.io.parse_example(
        rows,
        {
            "x": tf.io.FixedLenFeature(about["shape"], tf.float32),
            "y": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    model = tf.saved_model.load(flags.model)
    predictions = tf.argmax(model.serve(example["x"]), axis=1)
    print("the first labels:     ", *example["y"][:10].numpy())
    print("what the model says:  ", *predictions[:10].numpy())
    right = int(tf.math.count_nonzero(predictions == example["y"]))
    print("right: %d of %d, %.1f%%" % (right, len(predictions), 100 * right / len(predictions)))


if __name__ == "__main__":
    main()
