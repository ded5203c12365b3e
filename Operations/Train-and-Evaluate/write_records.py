"""Writes a data set as TFRecord files, for training and for the test.

    python write_records.py records                   scikit-learn's digits
    python write_records.py records --npz my.npz      x_train, y_train, x_test, y_test of that file

An example has "x", its inputs, and "y", its label from 0. records.json says how many there are.
"""

import argparse
import json
import os
import shutil

os.environ.update(TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0")  # no notes
import numpy as np
import tensorflow as tf


def digits():
    """x_train, y_train, x_test, y_test: the rows of the other examples of this project."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    return x[:-360], y[:-360], x[-360:], y[-360:]


def write(path, x, y):
    """Writes the rows (x, y) into one file."""
    with tf.io.TFRecordWriter(path) as file:
        for inputs, label in zip(x, y):
            feature = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=inputs.ravel())),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            file.write(example.SerializeToString())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="a new folder for the files")
    parser.add_argument("--npz", metavar="FILE", help="a data set of your own")
    parser.add_argument(
        "--files",
        type=int,
        default=8,
        metavar="N",
        help="files for training, at least one for each worker (8)",
    )
    flags = parser.parse_args()
    if flags.npz:
        with np.load(flags.npz) as file:
            data = [file[part] for part in ("x_train", "y_train", "x_test", "y_test")]
    else:
        data = digits()
    x_train, y_train, x_test, y_test = data
    if not 1 <= flags.files <= len(x_train):
        parser.error(f"--files must be from 1 to the number of rows, {len(x_train)}")

    partial = "%s.%d" % (flags.folder.rstrip("/"), os.getpid())
    os.makedirs(partial)
    try:
        for k in range(flags.files):
            path = os.path.join(partial, "train-%05d-of-%05d.tfrecord" % (k, flags.files))
            write(path, x_train[k :: flags.files], y_train[k :: flags.files])
        write(os.path.join(partial, "test-00000-of-00001.tfrecord"), x_test, y_test)
        about = {
            "shape": x_train.shape[1:],
            "classes": int(y_train.max()) + 1,
            "files": flags.files,
            "train_rows": len(x_train),
            "test_rows": len(x_test),
        }
        with open(os.path.join(partial, "records.json"), "w") as file:
            json.dump(about, file, indent=2)
        os.rename(partial, flags.folder)  # whole or not at all; raises where there is one
    except OSError:
        if not os.path.exists(os.path.join(flags.folder, "records.json")):
            raise
        print(f"there are files in {flags.folder} already, and they stay")
        return
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"wrote {len(x_train)} + {len(x_test)} examples into {flags.folder}")


if __name__ == "__main__":
    main()
