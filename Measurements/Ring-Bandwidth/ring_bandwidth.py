"""Ring-Bandwidth: how much of TCP's bandwidth the ring all-reduce uses, on this machine.

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
from tfrun import cluster, drawn

SCRIPT = drivers.ROOT / "Ring-AllReduce" / "ring_allreduce.py"
AT_ONCE = 64 * 10**6  # bytes in one measurement, as far as 300 vectors have as many


def worker(script, n, rank, addresses, orders):
    """A process: all-reduces vectors of the sizes that are ordered; answers with the seconds."""
    drivers.end_with_us()
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    os.environ.update(TF_CONFIG=json.dumps(config), TF_GRPC_REUSE_PORT="1")
    ring = script.Ring(script.Cluster(), 60)
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


def draw(rates, path, source):
    """Draws the bandwidth of each case against the size of the vectors.

    rates: {(case, size): bytes per second of each repeat}, as in the file `source`.
    """
    figure, grid = plt.subplots(2, 1, figsize=(7.2, 6.4), sharex=True, layout="constrained")
    each, all_of_them = grid
    middle = {key: statistics.median(values) for key, values in rates.items()}
    sizes = sorted({size for _, size in rates})
    for number, name in enumerate(dict.fromkeys(name for name, _ in rates)):
        colour, n = "C%d" % number, workers_of(name)
        each.plot(sizes, [middle[name, size] / 1e6 for size in sizes], "-", color=colour)
        for size in sizes:
            repeats = np.array(rates[name, size]) / 1e6
            each.plot([size] * len(repeats), repeats, ".", color=colour, markersize=4)
        shares = [share(rates, name, n, size) for size in sizes]
        all_of_them.plot(sizes, shares, "o-", markersize=4, color=colour, label=name)
    each.set(ylabel="MB per second", yscale="log")
    each.set_title("What one worker sends (dot: a repeat)", size=12)
    all_of_them.set(ylabel="times raw TCP", ylim=0, xlabel="bytes of the vector")
    all_of_them.set_title("What all workers send together", size=12)
    for axes in grid:
        axes.set_xscale("log")
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    drawn.save(figure, path, draw, results=source)
    plt.close(figure)


def workers_of(case):
    """How many send in a case: "ring, 3 workers"; of raw TCP it is one."""
    return int(case.split()[1]) if case.startswith("ring") else 1


def show(rates, console):
    """Prints the table."""
    names = list(dict.fromkeys(name for name, _ in rates))
    middle = {key: statistics.median(values) for key, values in rates.items()}
    title = "MB/s that one worker sends; beside it what all send together, to raw TCP"
    table = Table("vector", *names, title=title)
    for size in sorted({size for _, size in rates}):
        cells = [
            "%5.0f   %.2f" % (middle[name, size] / 1e6, share(rates, name, workers_of(name), size))
            for name in names[1:]
        ]
        table.add_row("%g MB" % (size / 1e6), "%5.0f" % (middle["raw TCP", size] / 1e6), *cells)
    console.print(table)


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
    parser.add_argument("--redraw", **drivers.redraw(__file__))
    flags, console = parser.parse_args(), drivers.console(110)
    if flags.redraw:
        named = json.loads(flags.redraw.read_text())
        pairs = {key: key.removesuffix(" bytes").rsplit(", ", 1) for key in named}
        rates = {(name, int(size)): named[key] for key, (name, size) in pairs.items()}
        show(rates, console)
        draw(rates, drivers.picture(flags.redraw, "ring-bandwidth"), flags.redraw)
        return
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
    # By turns, so that a slow minute meets all of them.
    plan = list(rates) * flags.repeats
    for name, size in track(plan, "sending", console=console, disable=not console.is_terminal):
        rates[name, size].append(processes[name].bandwidth(size))
    show(rates, console)
    console.print(
        "medians of %d repeats; %s" % (flags.repeats, drivers.setting("NumPy " + np.__version__))
    )
    named = {"%s, %d bytes" % key: values for key, values in rates.items()}
    source = directory / "results.json"
    drivers.write(source, named)
    draw(rates, directory / "ring-bandwidth.png", source)
    drivers.leave(console, directory, "ring-bandwidth.png")


if __name__ == "__main__":
    main()
