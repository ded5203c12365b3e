"""What the notebooks of this course share. On Colab, upload this file beside the notebook.

It starts processes, shows figures, has the digits and their network, in TensorFlow and in NumPy,
and checks answers. No algorithm is here: those stand in the notebooks.
"""

import collections
import functools
import io
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import traceback
import types

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before the import, or C++ messages fill the page
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # the one notice that the line above leaves
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same results on a machine with a GPU
os.environ["TF_GRPC_REUSE_PORT"] = "1"  # a server may listen on a port that we hold for it
os.environ["grpc_proxy"] = ""  # or servers of this machine are asked through http_proxy
os.environ["KERAS_BACKEND"] = "tensorflow"
import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

HERE = pathlib.Path(__file__).resolve().parent
BLUE, ORANGE, PURPLE, GREEN, GRAY, RED = (  # workers 0, 1, 2, ...
    "#0969da",
    "#bc4c00",
    "#8250df",
    "#1a7f37",
    "#818b98",
    "#cf222e",
)
folders = []  # the temporary folder of the notebook that runs
held = []  # sockets that keep the ports of its clusters
processes = []  # that it has started


def begin(graphs=True):
    """Makes a temporary folder the working folder. Call it first, and `end` last.

    graphs: in the notebook, TensorFlow builds graphs for sessions, as Graphs-and-Sessions explains;
    otherwise it executes each line at once.
    """
    end()  # of an earlier Run All, in the same kernel
    tf.logging.set_verbosity(tf.logging.ERROR)
    if graphs:
        tf.disable_v2_behavior()
        tf.enable_resource_variables()  # a read is a copy of the value
        tf.reset_default_graph()
    import matplotlib.pyplot as plt  # not in the processes that train

    colors = [BLUE, ORANGE, PURPLE, GREEN, RED, GRAY]
    plt.rcParams.update(
        {
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.prop_cycle": plt.cycler(color=colors),
            "legend.frameon": False,
            "figure.figsize": (7, 3),
        }
    )
    folders.append(tempfile.TemporaryDirectory())
    os.chdir(folders[0].name)


def end():
    """Ends the processes that `start` has started, frees the ports, and removes the folder."""
    stop(*processes)
    processes.clear()
    while held:
        held.pop().close()
    os.chdir(HERE)
    while folders:
        folders.pop().cleanup()


def show(figure, description):
    """Shows a figure at 150 dpi, with a description for those who cannot see it."""
    import matplotlib.pyplot as plt
    from IPython.display import display

    stored = io.BytesIO()
    figure.savefig(stored, format="png", dpi=150, bbox_inches="tight")
    plt.close(figure)
    size = {"width": round(100 * figure.get_figwidth()), "alt": description}
    shown = {"image/png": stored.getvalue(), "text/plain": description}
    display(shown, raw=True, metadata={"image/png": size})


# Clusters


def new_cluster(**counts):
    """Returns {job: addresses} at free ports, as for new_cluster(ps=1, worker=2).

    The ports are held until `end`, so that no other process takes them in the meantime.
    """
    cluster = {}
    for job, count in counts.items():
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", 0))
        cluster[job] = ["127.0.0.1:%d" % one.getsockname()[1] for one in sockets]
        held.extend(sockets)
    return cluster


# What a process runs first: it ends when its standard input does, so with this notebook.
RUN = """if True:
    import os, runpy, sys, threading
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")"""


def start(file, cluster, job, index=0, *arguments):
    """Starts a Python file as a task of a cluster, which TF_CONFIG names; returns the process.

    It ends with its standard input: by stop(), end(), or the kernel's own end, however that
    happens. What it prints goes to the file job-index.log. It can import this module.
    """
    config = {"cluster": cluster, "task": {"type": job, "index": index}}
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    with open("%s-%d.log" % (job, index), "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", RUN, file, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONPATH": path},
        )
    process.log = pathlib.Path(log.name).absolute()
    processes.append(process)
    return process


def finish(process, seconds=60):
    """Waits until a process has ended, and returns what it printed.

    Raises AssertionError with its last lines if its exit code is not 0.
    """
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        code = "none after %d s" % seconds
    printed = process.log.read_text()
    assert code == 0, "%s: exit code %s\n%s" % (process.log.stem, code, printed[-2000:])
    return printed


def stop(*some):
    """Ends processes that still run."""
    for process in some:  # all at once: a worker that has lost its ps would end slowly
        process.stdin.close()
    for process in some:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def task(threads=0):
    """Begins the program of a task of TF_CONFIG, as Sessions does it: graphs, and a server.

    threads: with how many it computes an operation, by default with one for each core.

    Returns its cluster, job and number k, its device `me`, its server, how many workers there are,
    n, and `limits`: the session sees the ps and this task, and a call may take a minute.
    """
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    tf.enable_resource_variables()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, job, k = config["cluster"], config["task"]["type"], config["task"]["index"]
    me = "/job:%s/task:%d" % (job, k)
    limits = tf.ConfigProto(device_filters=["/job:ps", me], operation_timeout_in_ms=60_000)
    pool = tf.ConfigProto(intra_op_parallelism_threads=threads)
    server = tf.train.Server(cluster, job_name=job, task_index=k, config=pool)
    n = len(cluster["worker"])
    return types.SimpleNamespace(
        cluster=cluster, job=job, k=k, n=n, me=me, server=server, limits=limits
    )


def attempt(call):
    """Returns what a call gives, or the name of its error."""
    try:
        return call()
    except (tf.errors.OpError, ValueError) as error:
        return type(error).__name__


def transfers(session, fetches, feed=None):
    """Runs fetches once, and reads from its trace what each task did and what it sent to others.

    Returns {task: [types of its operations]} and {(sender, receiver): bytes}, with tasks named as
    "ps 0". What this program, the client, feeds and fetches is not counted.
    """
    trace, options = tf.RunMetadata(), tf.RunOptions(output_partition_graphs=True)
    options.trace_level = tf.RunOptions.FULL_TRACE
    session.run(fetches, feed, options=options, run_metadata=trace)
    results = {  # (name of an operation, which of its outputs): what it was in this run
        (node.node_name, output.slot): output.tensor_description
        for device in trace.step_stats.dev_stats
        for node in device.node_stats
        for output in node.output
    }

    def task(device):  # /job:ps/replica:0/task:1/device:CPU:0 is ps 1
        return "%s %s" % re.search(r"job:(\w+)/.*task:(\d+)", device).groups()

    operations, sent = collections.defaultdict(list), collections.Counter()
    for node in [node for part in trace.partition_graphs for node in part.node]:
        operations[task(node.device)].append(node.op)
        if node.op != "_Send" or node.attr["client_terminated"].b:
            continue
        ends = node.attr["send_device"], node.attr["recv_device"]
        sender, receiver = (task(end.s.decode()) for end in ends)
        if sender != receiver:
            name, _, slot = node.input[0].partition(":")
            tensor = results[name.lstrip("^"), int(slot or 0)]
            numbers = tf.TensorShape(tensor.shape).num_elements()
            sent[sender, receiver] += numbers * tf.as_dtype(tensor.dtype).size
    return operations, sent


def moments(began, pulled, computed, pushed, versions):
    """Returns when each ticket was taken, and when each version was read.

    The pushes stand in the order of their tickets. A ticket is taken somewhere within its push, and
    a version is read somewhere within its pull. Their order is known, which narrows both down; of
    what remains this is the middle.
    """
    earliest, latest = np.array(computed, float), np.array(pushed, float)
    for push, v in enumerate(versions):  # read after ticket v - 1 was taken, and before ticket v
        earliest[v] = max(earliest[v], began[push])
        if v > 0:
            latest[v - 1] = min(latest[v - 1], pulled[push])
    earliest = np.maximum.accumulate(earliest)
    latest = np.minimum.accumulate(latest[::-1])[::-1]
    taken = (earliest + latest) / 2
    before, after = np.append(-np.inf, taken)[versions], taken[versions]
    return taken, (np.maximum(before, began) + np.minimum(after, pulled)) / 2


# The digits, and a network 64 - 32 - 10


def load():
    """Returns 1,437 rows for training and 360 for the test, as x, y, x, y.

    x: [rows, 64], float32 from 0 to 1. y: [rows], int32.
    """
    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
    return x[:-360], y[:-360], x[-360:], y[-360:]


def first_values(seed=0):
    """Returns where training begins: {name: weights or biases}, 2,410 numbers in all.

    W1 [64, 32], b1 [32], W2 [32, 10], b2 [10].
    """
    random = np.random.RandomState(seed)
    values = {
        "W1": random.normal(0, (2 / 64) ** 0.5, [64, 32]),
        "b1": np.zeros(32),
        "W2": random.normal(0, (2 / 32) ** 0.5, [32, 10]),
        "b2": np.zeros(10),
    }
    return {name: value.astype("float32") for name, value in values.items()}


def variables(prefix="", seed=0, get_variable=tf.get_variable):
    """Returns the four variables prefix + W1, b1, W2 and b2."""
    values = first_values(seed)
    return [get_variable(prefix + name, initializer=values[name]) for name in values]


def outputs(w, x):
    """Returns a score for each of the ten digits: [rows, 10]. w: four tensors."""
    W1, b1, W2, b2 = w
    return tf.nn.relu(x @ W1 + b1) @ W2 + b2


def loss(w, x, y):
    """Returns the mean cross-entropy of these rows."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=outputs(w, x))
    )


def accuracy(w, x, y):
    """Returns the share of rows whose digit has the highest score."""
    right = tf.equal(tf.argmax(outputs(w, x), 1, output_type=tf.int32), y)
    return tf.reduce_mean(tf.cast(right, tf.float32))


def batch(x, y, number, worker=0, size=32):
    """Returns mini-batch `number` of a worker: rows drawn by (worker, number), as in each run."""
    seed = tf.stack([tf.cast(worker, tf.int64), tf.cast(number, tf.int64)])
    rows = tf.random.stateless_uniform([size], seed, 0, len(x), tf.int32)
    return tf.gather(x, rows), tf.gather(y, rows)


# The same network in NumPy, also for many models at once: then each of the four arrays w has axes
# before its own, which say which model it is; x has the shape [..., rows, 64], y [..., rows].


def numpy_outputs(w, x):
    """Returns the hidden units and the scores: [..., rows, 32] and [..., rows, 10]."""
    W1, b1, W2, b2 = w
    hidden = np.maximum(x @ W1 + b1[..., None, :], 0)
    return hidden, hidden @ W2 + b2[..., None, :]


def numpy_loss(w, x, y):
    """Returns the mean cross-entropy of these rows, of each model."""
    return cross_entropy(numpy_outputs(w, x)[1], y)


def cross_entropy(scores, y):
    """Returns the mean cross-entropy of scores [..., rows, 10] against labels [..., rows]."""
    scores = scores - scores.max(axis=-1, keepdims=True)
    labels = np.broadcast_to(y, scores.shape[:-1])[..., None]
    right = np.take_along_axis(scores, labels, -1)[..., 0]
    return (np.log(np.exp(scores).sum(axis=-1)) - right).mean(axis=-1)


def numpy_gradient(w, x, y):
    """Returns the gradient of the mean cross-entropy of these rows: four arrays, as w."""
    hidden, scores = numpy_outputs(w, x)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    d_scores = (p - np.eye(10, dtype="float32")[y]) / np.float32(x.shape[-2])
    d_hidden = d_scores @ np.swapaxes(w[2], -1, -2) * (hidden > 0)
    return [
        np.swapaxes(x, -1, -2) @ d_hidden,
        d_hidden.sum(axis=-2),
        np.swapaxes(hidden, -1, -2) @ d_scores,
        d_scores.sum(axis=-2),
    ]


# Exercises


def what_failed(answer, error):
    """Returns in words whose error ended a check: the answer's, or one by what the answer is."""
    words = "%s: %s" % (type(error).__name__, error)
    if not callable(answer):
        return (
            "the check cannot read your answer: does it have the form that its cell asks for? "
            + words
        )
    code = getattr(answer, "__code__", None)  # a class has none
    raised_in = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if code is not None and code not in raised_in:
        return "the check cannot use what your answer returns: is there a `return`? " + words
    return "your answer raised " + words


def exercise(check):
    """Makes check_1(answer), which returns what is wrong in words or None, say it to the reader.

    The new function prints its verdict, and returns True, False, or None where there is no answer
    yet: it is `...`, or a function that raises NotImplementedError.
    """
    number = check.__name__.removeprefix("check_")

    @functools.wraps(check)
    def said(answer):
        try:
            wrong = NotImplemented if answer is ... else check(answer)
        except (Exception, SystemExit) as error:
            wrong = what_failed(answer, error)
            if type(error) is NotImplementedError and not error.args:  # it is still to be written
                wrong = NotImplemented
        if wrong is NotImplemented:
            print("Exercise %s: no answer yet." % number)
            return None
        print("Exercise %s: %s" % (number, "not yet: %s" % wrong if wrong else "right."))
        return not wrong

    return said
