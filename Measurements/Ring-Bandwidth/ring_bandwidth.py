"""Ring-Bandwidth: what the ring all-reduce makes of the bandwidth of raw TCP, on this machine.

The workers are processes that run `all_reduce` and `Ring` of Ring-AllReduce's own script, over
loopback. Raw TCP: one process sends as many bytes to another one, which says by one byte that all
have come. All cases take turns.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import pathlib
import socket
import statistics
import sys
import time

import matplotlib
import numpy as np
from rich.progress import track
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[1:3])
import drivers
from tfrun import cluster

SCRIPT = drivers.ROOT / "Ring-AllReduce" / "ring_allreduce.py"
AT_ONCE = 64 * 10**6  # bytes in one measurement, as far as 300 vectors have as many


def worker(script, n, rank, addresses, orders):
    """A process: all-reduces vectors of the sizes that are ordered; answers with the seconds."""
    drivers.end_with_us()
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    os.environ.update(TF_CONFIG=json.dumps(config), TF_GRPC_REUSE_PORT="1")
    ring = script.Ring(script.Cluster(), timeout=60)
    ring.join("bandwidth")
    while True:
        size, times = orders.recv()
        x = np.full(size // 4, rank + 1, np.float32)
        script.all_reduce(x, ring)  # once before, for all begin at once then
        right = x.size == 0 or x.min() == x.max() == n * (n + 1) / 2
        x[:], before = 0, ring.sent
        began = time.perf_counter()
        for _ in range(times):
            script.all_reduce(x, ring)
        orders.send(((time.perf_counter() - began) / times, (ring.sent - before) / times, right))


def sender(_, address, orders):
    """A process: sends as many bytes as are ordered; answers with the seconds."""
    drivers.end_with_us()
    with socket.create_connection(address, timeout=60) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            size, times = orders.recv()
            x = np.ones(size, np.uint8)
            began = time.perf_counter()
            for _ in range(times):
                s.sendall(x)
                s.recv(1)
            orders.send(((time.perf_counter() - began) / times, size, True))


def receiver(_, listener, orders):
    """A process: takes what the sender sends, and says so."""
    drivers.end_with_us()
    s, _ = listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        size, times = orders.recv()
        x = np.full(size, 2, np.uint8)
        for _ in range(times):
            view = memoryview(x)
            while view:
                view = view[s.recv_into(view) :]
            s.send(b"!")
        orders.send((0, 0, x.size == 0 or x.min() == x.max() == 1))


class Processes:
    """Processes that do the same at once, each with a pipe for its orders."""

    def __init__(self, targets):
        fork, self.pipes = multiprocessing.get_context("fork"), []
        for target, *arguments in targets:
            ours, theirs = fork.Pipe()
            self.pipes.append(ours)
            fork.Process(target=target, args=[*arguments, theirs], daemon=True).start()

    def bandwidth(self, size):
        """The bytes that a process sends a second, of vectors of `size` bytes."""
        for pipe in self.pipes:
            pipe.send((size, min(300, max(1, AT_ONCE // max(1, size)))))
        answers = []
        for pipe in self.pipes:
            if not pipe.poll(60):
                sys.exit("ring_bandwidth: a process did not answer for 60 s")
            answers.append(pipe.recv())
        if not all(right for _, _, right in answers):
            sys.exit("ring_bandwidth: a sum is wrong")
        return max(sent for _, sent, _ in answers) / max(seconds for seconds, _, _ in answers)


def start(script, n):
    """The processes of a ring of n workers; of a sender and a receiver for n = 1."""
    if n == 1:
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        return Processes([(receiver, script, listener), (sender, script, address)])
    ports, held = cluster.hold_ports(n)
    addresses = cluster.addresses({"worker": n}, ports)["worker"]
    made = Processes([(worker, script, n, rank, addresses) for rank in range(n)])
    made.held = held
    return made


def share(rates, name, n, size):
    """What n workers send together, to raw TCP: the median over the repeats, each with its own."""
    pairs = zip(rates[name, size], rates["raw TCP", size])
    return statistics.median(n * rate / raw for rate, raw in pairs)


def draw(directory, cases, sizes, rates):
    """Draws the bandwidth of each case against the size of the vectors."""
    figure, (each, all_of_them) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    middle = {key: statistics.median(values) for key, values in rates.items()}
    for number, (name, n) in enumerate(cases.items()):
        lines = dict(color="C%d" % number, label=name)
        each.plot(sizes, [middle[name, size] / 1e6 for size in sizes], "-", **lines)
        for size in sizes:
            each.plot(
                [size] * len(rates[name, size]),
                np.array(rates[name, size]) / 1e6,
                ".",
                color="C%d" % number,
                markersize=4,
            )
        shares = [share(rates, name, n, size) for size in sizes]
        all_of_them.plot(sizes, shares, "o-", markersize=4, **lines)
    each.set(title="What one worker sends; a dot is a repeat", ylabel="MB/s", yscale="log")
    all_of_them.set(title="What all workers send together, raw TCP is 1", ylim=0)
    for axes in (each, all_of_them):
        axes.set(xscale="log", xlabel="bytes of the vector")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    each.legend()
    figure.savefig(directory / "ring-bandwidth.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabytes",
        type=drivers.positive(float),
        nargs="+",
        default=[0.001, 0.01, 0.1, 1, 10, 100],
        metavar="MB",
        help="sizes of the vectors (%(default)s)",
    )
    parser.add_argument(
        "--workers",
        type=drivers.positive(int),
        nargs="+",
        default=[2, 3, 4],
        metavar="N",
        help="numbers of workers (%(default)s)",
    )
    parser.add_argument(
        "--repeats", type=drivers.positive(int), default=15, help="of each (%(default)d)"
    )
    flags = parser.parse_args()
    if min(flags.workers) < 2 or min(flags.megabytes) * 1e6 < 4:
        parser.error("--workers must be at least 2, --megabytes at least 0.000004")
    directory = drivers.output_directory("Ring-Bandwidth")
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it says so; nothing is computed with it here
    spec = importlib.util.spec_from_file_location("ring_allreduce", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    cases = {"raw TCP": 1, **{"ring, %d workers" % n: n for n in flags.workers}}
    processes = {name: start(script, n) for name, n in cases.items()}
    sizes = [4 * int(megabytes * 1e6 / 4) for megabytes in flags.megabytes]
    rates = {(name, size): [] for size in sizes for name in cases}
    console = drivers.console(110)
    # By turns, so that a slow minute meets all of them.
    plan = list(rates) * flags.repeats
    for name, size in track(plan, "sending", console=console, disable=not console.is_terminal):
        rates[name, size].append(processes[name].bandwidth(size))
    middle = {key: statistics.median(values) for key, values in rates.items()}
    table = Table(
        "vector",
        "raw TCP",
        *list(cases)[1:],
        title="MB/s that one worker sends; beside it what all send together, to raw TCP",
    )
    for size in sizes:
        cells = [
            "%5.0f   %.2f" % (middle[name, size] / 1e6, share(rates, name, n, size))
            for name, n in list(cases.items())[1:]
        ]
        table.add_row("%g MB" % (size / 1e6), "%5.0f" % (middle["raw TCP", size] / 1e6), *cells)
    console.print(table)
    console.print(
        "medians of %d repeats; %s" % (flags.repeats, drivers.setting("NumPy " + np.__version__))
    )
    named = {"%s, %d bytes" % key: values for key, values in rates.items()}
    (directory / "results.json").write_text(json.dumps(named, indent=1))
    draw(directory, cases, sizes, rates)
    drivers.leave(console, directory, "ring-bandwidth.png")


if __name__ == "__main__":
    main()
