"""A ps and workers that do not wait for each other: tfrun --ps 1 --workers 2 -- loop_ps.py"""

import time

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

rpc = tf.distribute.experimental.rpc
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
address = resolver.cluster_spec().job_tasks("ps")[0]
n = resolver.cluster_spec().num_tasks("worker")
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input([64]), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.1)
if resolver.task_type == "ps":
    optimizer.build(model.trainable_variables)
    done = tf.Variable(0)
    specs = [tf.TensorSpec(v.shape) for v in model.trainable_variables]

    @tf.function(input_signature=[])
    def pull():
        return [tf.identity(v) for v in model.trainable_variables]

    @tf.function(input_signature=specs)
    def push(*gradients):
        optimizer.apply(gradients, model.trainable_variables)
        return pull()

    @tf.function(input_signature=[])
    def report_done():
        return done.assign_add(1)

    server = rpc.Server.create("grpc", address)
    for function in pull, push, report_done:
        server.register(function.__name__, function)
    server.start()
    while done < n:
        time.sleep(0.1)
    time.sleep(0.5)  # the last answer is on its way
    raise SystemExit


@tf.function
def gradient(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    return loss, tape.gradient(loss, model.trainable_variables)


def take(w):
    for v, value in zip(model.trainable_variables, w):
        v.assign(value)


ps = rpc.Client.create("grpc", address, timeout_in_ms=60_000)
take(ps.pull().get_value())
random = np.random.RandomState(resolver.task_id)
for i in range(500 // n):
    rows = random.randint(len(x), size=32)
    loss, gradients = gradient(x[rows], y[rows])
    take(ps.push(*gradients).get_value())
    if i % 100 == 0:
        print(i, float(loss), flush=True)
print("accuracy", np.mean(np.argmax(model(x), 1) == y))
ps.report_done().get_value()
