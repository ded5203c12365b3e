"""Equal processes, which a strategy connects: tfrun --workers 2 -- loop_strategy.py"""

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
n = strategy.num_replicas_in_sync
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential(
        [keras.Input([64]), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
    )
    optimizer = keras.optimizers.SGD(0.1 * n)
    optimizer.build(model.trainable_variables)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = tf.distribute.get_replica_context().all_reduce("MEAN", gradients)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


@tf.function
def steps(x, y):
    return strategy.run(step, (x, y))


random = np.random.RandomState(rank)
for i in range(500 // n):
    rows = random.randint(len(x), size=32)
    loss = steps(x[rows], y[rows])
    if i % 100 == 0 and rank == 0:
        print(i, float(loss), flush=True)
print("accuracy", np.mean(np.argmax(model(x), 1) == y))
