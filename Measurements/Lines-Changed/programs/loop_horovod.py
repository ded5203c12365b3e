"""Equal processes, which Horovod connects: horovodrun -np 2 python loop_horovod.py"""

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

hvd.init()
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input([64]), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.1 * hvd.size())
hvd.broadcast_variables([v.value for v in model.variables], root_rank=0)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    optimizer.apply(gradients, model.trainable_variables)
    return loss


random = np.random.RandomState(hvd.rank())
for i in range(500 // hvd.size()):
    rows = random.randint(len(x), size=32)
    loss = step(x[rows], y[rows])
    if i % 100 == 0 and hvd.rank() == 0:
        print(i, float(loss), flush=True)
if hvd.rank() == 0:
    print("accuracy", np.mean(np.argmax(model(x), 1) == y))
