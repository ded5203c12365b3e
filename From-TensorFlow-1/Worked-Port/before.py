"""Before: asynchronous Adagrad with a parameter server and the hooks of TensorFlow 1.

tfrun --ps 1 --workers 2 -- before.py
"""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

STEPS, RATE, BATCH_SIZE, STAGGER = 300, 0.1, 32, 50
FOLDER = os.getenv("OUTPUT_DIR", "output")

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.INFO)  # LoggingTensorHook and StepCounterHook need it
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
cluster = tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job, index)
if job == "ps":
    server.join()  # it never returns

digits, labels = load_digits(return_X_y=True)
random = np.random.RandomState(index)

with tf.device(
    tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{job}/task:{index}")
):
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    w = tf.get_variable("w", [64, 10], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [10], initializer=tf.zeros_initializer())
    outputs = tf.matmul(x, w) + b
    loss = tf.losses.sparse_softmax_cross_entropy(y, outputs)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(outputs, 1), y), tf.float32))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdagradOptimizer(RATE).minimize(loss, global_step=step)
    tf.summary.scalar("loss", loss)


def mini_batch():
    rows = random.randint(len(digits), size=BATCH_SIZE)
    return {x: digits[rows] / 16, y: labels[rows]}


last = tf.train.FinalOpsHook(accuracy, {x: digits / 16, y: labels})
hooks = [
    tf.train.StopAtStepHook(last_step=STEPS),
    tf.train.GlobalStepWaiterHook(index * STAGGER),  # worker k starts after k * STAGGER steps
    tf.train.FeedFnHook(mini_batch),
    tf.train.LoggingTensorHook({"loss": loss}, every_n_iter=50),
    tf.train.NanTensorHook(loss),
    last,
]
# On the chief it adds a CheckpointSaverHook, a SummarySaverHook and a StepCounterHook.
with tf.train.MonitoredTrainingSession(
    server.target,
    is_chief=index == 0,
    checkpoint_dir=FOLDER,
    hooks=hooks,
    save_checkpoint_steps=100,
    save_checkpoint_secs=None,
    save_summaries_steps=100,
    log_step_count_steps=100,
) as session:
    while not session.should_stop():
        session.run(train)
print(f"accuracy {last.final_ops_values:.4f}")
