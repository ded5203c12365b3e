"""A folder of images, with a folder for each class: folder/train/cat/1.png, folder/test/dog/7.png.

PROBLEM=images.py bash ../../HogWild/run.sh --dataset /path/to/folder
"""

import keras

DATASET, DATASETS = "images", "a folder with train and test, which have a folder for each class"
SIZE = 28, 28


def load_data(folder):
    """Returns datasets of (image [28, 28, 3], label), whose files are read when needed."""

    def dataset(part):
        batches = keras.utils.image_dataset_from_directory(
            f"{folder}/{part}", image_size=SIZE, shuffle=False, verbose=False
        )
        return batches.unbatch()

    return dataset("train"), dataset("test")


def make_model(data):
    """Makes a small convolution, whose outputs are as many as the largest label needs."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(int(data.y_test.max()) + 1),
        ]
    )


def loss(y, outputs):
    """Returns the cross-entropy of each row."""
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


METRICS = {"accuracy": ("max", keras.metrics.sparse_categorical_accuracy)}
