"""After: the same program on functions that the ps serves, in TensorFlow 2.

tfrun --ps 1 --workers 2 -- after.py
"""

import json
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.update(KERAS_BACKEND="tensorflow", grpc_proxy="")
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

STEPS, RATE, BATCH_SIZE, STAGGER = 300, 0.1, 32, 50
FOLDER = os.getenv("OUTPUT_DIR", "output")
W, B = tf.TensorSpec([64, 10]), tf.TensorSpec([10])

rpc = tf.distribute.experimental.rpc
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
address, workers = config["cluster"]["ps"][0], len(config["cluster"]["worker"])


def serve():
    """The ps: it holds all that is shared, and serves the functions that read and move it."""
    w, b = tf.Variable(tf.zeros([64, 10])), tf.Variable(tf.zeros([10]))
    step, done = tf.Variable(0, dtype=tf.int64), tf.Variable(0)
    # That of TensorFlow 1 adds no epsilon.
    optimizer = keras.optimizers.Adagrad(RATE, initial_accumulator_value=0.1, epsilon=0)
    optimizer.build([w, b])
    memory = [v.value for v in optimizer.variables]
    checkpoint = tf.train.Checkpoint(w=w, b=b, step=step, memory=memory)
    manager = tf.train.CheckpointManager(checkpoint, FOLDER, max_to_keep=5)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()

    @tf.function(input_signature=[])
    def pull():
        return step.read_value(), w.read_value(), b.read_value()

    @tf.function(input_signature=[W, B])
    def push(g_w, g_b):
        # StopAtStepHook: after the last step this is an OutOfRangeError.
        tf.raw_ops.ResourceCountUpTo(resource=step.handle, limit=STEPS, T=tf.int64)
        optimizer.apply([g_w, g_b], [w, b])
        return pull()

    @tf.function(input_signature=[])
    def report_done():
        return done.assign_add(1)

    server = rpc.Server.create("grpc", address)
    for function in pull, push, report_done:
        server.register(function.__name__, function)
    server.start()
    saved = int(step)
    while done < workers:
        if step >= saved + 100:  # CheckpointSaverHook
            saved = int(step)
            manager.save(saved)
        time.sleep(0.1)
    manager.save(int(step))
    time.sleep(0.5)  # the last answer is on its way


def train():
    """A worker: it pulls, computes a gradient, and pushes."""
    digits, labels = load_digits(return_X_y=True)
    digits, random = (digits / 16).astype("float32"), np.random.RandomState(index)
    ps = rpc.Client.create("grpc", address, timeout_in_ms=60_000)

    def outputs(x, w, b):
        return tf.matmul(x, w) + b

    @tf.function
    def gradient(x, y, w, b):
        with tf.GradientTape() as tape:
            tape.watch([w, b])
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, outputs(x, w, b))
            loss = tf.debugging.check_numerics(tf.reduce_mean(each), "loss")  # NanTensorHook
        return loss, tape.gradient(loss, [w, b])

    step, w, b = ps.pull().get_value()
    while step < index * STAGGER:  # GlobalStepWaiterHook
        time.sleep(0.02)
        step, w, b = ps.pull().get_value()
    summaries, mine = tf.summary.create_file_writer(f"{FOLDER}/worker-{index}"), 0
    while step < STEPS:
        rows = random.randint(len(digits), size=BATCH_SIZE)  # FeedFnHook
        loss, g = gradient(digits[rows], labels[rows], w, b)
        if mine % 50 == 0:  # LoggingTensorHook, SummarySaverHook
            print(f"loss {loss:.6f}", flush=True)
            with summaries.as_default(step=step):
                tf.summary.scalar("loss", loss)
        mine += 1
        try:
            step, w, b = ps.push(*g).get_value()
        except tf.errors.OutOfRangeError:  # others have made the last step
            break
    _, w, b = ps.pull().get_value()
    right = np.argmax(outputs(digits, w, b), 1) == labels  # FinalOpsHook
    print(f"accuracy {right.mean():.4f}")
    ps.report_done().get_value()


if __name__ == "__main__":
    serve() if job == "ps" else train()
