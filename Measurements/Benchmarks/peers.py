"""Peers: the same training by TensorFlow's own strategies and by PyTorch, one process of it.

A peer repeats its step on mini-batches of random rows, for --seconds after a warm-up. Its first
task leaves in rate.json how many mini-batches all workers together made per second; nothing is
tested, saved or noted.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
CONFIG = json.loads(os.environ["TF_CONFIG"])
TASK = CONFIG["task"]
WORKERS = CONFIG["cluster"]["worker"]
RESULT = os.path.join(os.environ["OUTPUT_DIR"], "rate.json")
ROWS, RATE, WARM_UP = 1000, 0.01, 5  # rows of random data, the learning rate, calls before


def data(layers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns random inputs [ROWS, the first of layers], and labels below the last of them."""
    random = np.random.RandomState(0)
    x = random.rand(ROWS, layers[0]).astype("float32")
    return x, random.randint(0, layers[-1], ROWS).astype("int32")


def rate_of(call: Callable[[], object], seconds: float, batches: int) -> float:
    """Returns mini-batches per second; a call makes so many. Every process makes as many calls."""
    for _ in range(WARM_UP):
        call()
    began = time.monotonic()
    call()
    number = max(1, int(seconds / (time.monotonic() - began)))
    began = time.monotonic()
    for _ in range(number):
        call()
    return number * batches / (time.monotonic() - began)


def tensorflow_step(
    layers: list[int], batch_size: int, as_vector: bool
) -> tuple[list[Any], Callable[[], list[Any]]]:
    """Makes w, and returns a function that makes one step of SGD with it on one worker.

    as_vector: whether w is one vector, which one message carries, or a variable for each of its
    parts.
    """
    import tensorflow as tf

    # On the ps this would be one copy for all; as constants the rows are where they are needed.
    x, y = data(layers)
    values = []
    for rows, columns in itertools.pairwise(layers):
        values.append(tf.random.stateless_normal([rows, columns], (1, 2), stddev=0.05))
        values.append(tf.zeros([columns]))
    shapes = [v.shape for v in values]
    if as_vector:
        values = [tf.concat([tf.reshape(v, [-1]) for v in values], 0)]
    w = [tf.Variable(v) for v in values]

    def gradient() -> list[Any]:
        rows_drawn = tf.random.uniform([batch_size], 0, ROWS, tf.int32)
        inputs = tf.gather(tf.constant(x), rows_drawn)
        labels = tf.gather(tf.constant(y), rows_drawn)
        with tf.GradientTape() as tape:
            parts = w
            if as_vector:
                parts = tf.split(w[0], [shape.num_elements() for shape in shapes])
                parts = [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]
            for number in range(0, len(parts), 2):
                inputs = tf.matmul(inputs, parts[number]) + parts[number + 1]
                if number + 2 < len(parts):
                    inputs = tf.nn.relu(inputs)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, inputs)
            loss = tf.reduce_mean(losses)
        return tape.gradient(loss, w)

    return w, gradient


def wait_for_the_rate(_: object) -> None:
    """Returns when the chief has measured; a server, which it keeps, has no end of its own."""
    while not os.path.exists(RESULT):
        time.sleep(0.1)


def parameter_server(flags: argparse.Namespace) -> float | None:
    """ParameterServerStrategy: a coordinator schedules closures of `together` steps."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if TASK["type"] != "chief":
        cluster = resolver.cluster_spec()
        server = tf.distribute.Server(cluster, TASK["type"], TASK["index"], protocol="grpc")
        wait_for_the_rate(server)
        return None
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        w, gradient = tensorflow_step(flags.layers, flags.batch_size, "vector" in flags.form)
        step = tf.Variable(0, dtype=tf.int64)

    def step_on_replica() -> None:
        for v, g in zip(w, gradient()):
            v.assign_sub(RATE * g)
        step.assign_add(1)

    def call_directly(step: Callable[[], None]) -> None:
        step()

    run_step = call_directly if "without run()" in flags.form else strategy.run
    range_of_steps = tf.range if "loop" in flags.form else range  # of the graph, or unrolled

    @tf.function
    def closure() -> None:
        for _ in range_of_steps(flags.together):
            run_step(step_on_replica)

    closures = 40 * len(WORKERS) // flags.together + 2 * len(WORKERS)

    def call() -> None:
        for _ in range(closures):
            coordinator.schedule(closure)
        coordinator.join()

    return rate_of(call, flags.seconds, closures * flags.together)


def multi_worker(flags: argparse.Namespace) -> float:
    """MultiWorkerMirroredStrategy: `together` steps in a call of the graph."""
    import tensorflow as tf

    if "one thread" in flags.form:
        tf.config.threading.set_inter_op_parallelism_threads(1)
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with strategy.scope():
        w, gradient = tensorflow_step(flags.layers, flags.batch_size, "vector" in flags.form)

    def update(strategy: Any, gradients: Any) -> None:
        for v, g in zip(w, gradients):
            strategy.extended.update(v, lambda v, g: v.assign_sub(RATE * g), args=(g,))

    def step_on_replica() -> None:
        replica = tf.distribute.get_replica_context()
        mean = replica.all_reduce(tf.distribute.ReduceOp.MEAN, gradient())
        replica.merge_call(update, args=(mean,))

    range_of_steps = tf.range if "loop" in flags.form else range  # of the graph, or unrolled

    @tf.function
    def steps() -> None:
        for _ in range_of_steps(flags.together):
            strategy.run(step_on_replica)

    for _ in range(WARM_UP):
        steps()
    began = time.monotonic()
    steps()
    number = flags.seconds / (time.monotonic() - began)
    # All make as many calls: the mean of what each would make.
    number = max(1, int(strategy.reduce("MEAN", strategy.run(lambda: tf.constant(number)), None)))
    began = time.monotonic()
    for _ in range(number):
        steps()
    return number * flags.together * len(WORKERS) / (time.monotonic() - began)


def pytorch_model(layers: list[int]) -> Any:
    """Returns dense layers of so many units, with a ReLU between two of them."""
    from torch import nn

    modules = []
    for rows, columns in itertools.pairwise(layers):
        modules += [nn.Linear(rows, columns), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def parameters_in_one_vector(model: Any) -> Any:
    """Lets the parameters be parts of one vector, which then travels; returns it."""
    from torch import nn

    vector, begin = nn.utils.parameters_to_vector(model.parameters()).detach(), 0
    for parameter in model.parameters():
        parameter.data = vector[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    return vector


def average(model: Any, vector: Any) -> None:
    """Sets w to the mean of all workers'. vector: the one that has w, None if there is none."""
    from torch import distributed, nn

    if vector is not None:
        distributed.all_reduce(vector)
        vector.div_(len(WORKERS))
    else:
        copy = nn.utils.parameters_to_vector(model.parameters()).detach()
        distributed.all_reduce(copy)
        nn.utils.vector_to_parameters(copy / len(WORKERS), model.parameters())


def pytorch(flags: argparse.Namespace, kind: str) -> float:
    """PyTorch: DistributedDataParallel; the mean of w every `together` steps; or no exchange."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    from torch import distributed, nn

    torch.set_num_threads(1)
    meeting = f"file://{os.path.dirname(RESULT)}/meeting"
    distributed.init_process_group("gloo", meeting, rank=TASK["index"], world_size=len(WORKERS))
    x, y = (torch.from_numpy(part) for part in data(flags.layers))
    y = y.long()
    torch.manual_seed(0)
    model = pytorch_model(flags.layers)
    vector = parameters_in_one_vector(model) if "flat" in flags.form else None
    if kind == "ddp":
        views = "views" in flags.form
        model = nn.parallel.DistributedDataParallel(
            model, static_graph=views, gradient_as_bucket_view=views
        )
    optimizer = torch.optim.SGD(model.parameters(), RATE, fused="fused" in flags.form)
    loss = nn.CrossEntropyLoss()

    def steps() -> None:
        for _ in range(flags.together):
            rows = torch.randint(0, ROWS, (flags.batch_size,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
        if kind == "averaged":
            average(model, vector)

    for _ in range(WARM_UP):
        steps()
    began = time.monotonic()
    steps()
    number = torch.tensor(flags.seconds / (time.monotonic() - began))
    distributed.all_reduce(number)  # all make as many calls
    number = max(1, int(number / len(WORKERS)))
    distributed.barrier()
    began = time.monotonic()
    for _ in range(number):
        steps()
    distributed.barrier()
    return number * flags.together * len(WORKERS) / (time.monotonic() - began)


PEERS = {
    "parameter-server": parameter_server,
    "multi-worker": multi_worker,
    "ddp": lambda flags: pytorch(flags, "ddp"),
    "averaged": lambda flags: pytorch(flags, "averaged"),
    "alone": lambda flags: pytorch(flags, "alone"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--layers", type=json.loads, help="units, from inputs to outputs")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--together", type=int, help="steps in one call, or between two averages")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--form", help="how it is written: see FORMS in benchmarks.py")
    flags = parser.parse_args()
    rate = PEERS[flags.peer](flags)
    if TASK["type"] == "chief" or TASK["index"] == 0 and "chief" not in CONFIG["cluster"]:
        with open(RESULT, "w") as file:
            json.dump(rate, file)
    os._exit(0)  # a server's threads would wait for one another


if __name__ == "__main__":
    main()
