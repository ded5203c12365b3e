"""One process, a loop of one's own."""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input([64]), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.1)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


random = np.random.RandomState(0)
for i in range(500):
    rows = random.randint(len(x), size=32)
    loss = step(x[rows], y[rows])
    if i % 100 == 0:
        print(i, float(loss), flush=True)
print("accuracy", np.mean(np.argmax(model(x), 1) == y))
