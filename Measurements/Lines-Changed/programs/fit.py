"""One process, Keras' own loop."""

import keras
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
model.fit(x / 16, y, batch_size=32, epochs=10, verbose=2)
print("accuracy", model.evaluate(x / 16, y, verbose=0)[1])
