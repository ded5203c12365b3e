"""The training function of this folder: a small Keras model, on digits or on Fashion-MNIST."""


def load(dataset):
    """(x, y, x_test, y_test): rows of pixels from 0 to 1, and labels."""
    import numpy as np

    if dataset == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        order = np.random.RandomState(0).permutation(len(x))
        x, y = x[order] / 16, y[order]
        x, y, x_test, y_test = x[:-360], y[:-360], x[-360:], y[-360:]
    elif dataset in ("mnist", "fashion_mnist"):
        import keras

        (x, y), (x_test, y_test) = getattr(keras.datasets, dataset).load_data()
        x, x_test = [images.reshape(len(images), -1) / 255 for images in (x, x_test)]
    else:
        raise ValueError(f"dataset must be digits, mnist or fashion_mnist, is {dataset!r}")
    return x.astype("float32"), y.astype("int32"), x_test.astype("float32"), y_test.astype("int32")


def train(
    learning_rate, dropout=0.0, epochs=8, batch_size=32, dataset="digits", seed=0, logdir=None
):
    """Trains one model; returns {"accuracy": ..., "loss": ...} of the test rows."""
    import keras  # here, because the process that deals out the runs needs no TensorFlow
    import tensorflow as tf

    if not learning_rate > 0 or not 0 <= dropout < 1:
        raise ValueError("learning_rate must be above 0, and dropout at least 0 and below 1")
    # The same seed gives the same result: on Spark, here, and when a run is repeated.
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    x, y, x_test, y_test = load(dataset)
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(int(y.max()) + 1),
        ]
    )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [keras.callbacks.TensorBoard(logdir, write_graph=False)] if logdir else []
    model.fit(
        x,
        y,
        batch_size,
        epochs,
        verbose=2 if logdir else 0,
        validation_data=(x_test, y_test),
        callbacks=callbacks,
    )
    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
    return {"accuracy": accuracy, "loss": loss}
