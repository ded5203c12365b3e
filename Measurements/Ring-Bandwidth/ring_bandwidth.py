"""Ring-Bandwidth: how much of TCP's bandwidth two rings use, and what an all-reduce costs.

The workers are processes that run `all_reduce` and `Ring` of Ring-AllReduce's own script, or the
ring of TensorFlow that Collective-AllReduce calls, over loopback. Raw TCP: one process sends as
many bytes to another one, which says by one byte that all have come. All cases take turns.

Kind:          driver
Run:           bash run.sh
"""

import json
import multiprocessing
import os
import pathlib
import resource
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from lab import examples
from lab.measure import arguments, charts, example_runs, sessions, text_tables
from rich.console import Console, Group
from tfrun.launch import cluster
from tfrun.launch.task import end_with_parent

SCRIPT = examples.main_script("Ring-AllReduce")
BYTES_AT_ONCE = 64 * 10**6  # bytes in one measurement, as far as 300 vectors have as many
TENSORFLOW = "TensorFlow's ring, 2 workers"
Costs = dict[tuple[str, int], list[dict[str, float]]]  # {(case, size): its repeats}
Rates = dict[tuple[str, int], list[float]]  # {(case, size): bytes a second of each repeat}


class Timed:
    """Measures what is in its `with` block."""

    def __enter__(self) -> "Timed":
        self.usage = resource.getrusage(resource.RUSAGE_SELF)
        self.began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self.began
        usage = resource.getrusage(resource.RUSAGE_SELF)
        before = self.usage
        self.cost = {
            "seconds": seconds,
            "processor": usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
            # How often a thread of this process stopped, to wait for something.
            "waits": usage.ru_nvcsw - before.ru_nvcsw,
        }

    def answer(
        self, times: int, sent: float, is_right: bool
    ) -> tuple[dict[str, float], float, bool]:
        """Returns the cost and the bytes sent of one of `times` all-reduces, and `is_right`."""
        return {name: cost / times for name, cost in self.cost.items()}, sent / times, is_right


def worker(script: Any, n: int, rank: int, addresses: Sequence[str], orders: Connection) -> None:
    """A process: all-reduces vectors of the sizes that are ordered; answers with the seconds."""
    example_runs.end_with_us()
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    os.environ.update(TF_CONFIG=json.dumps(config), TF_GRPC_REUSE_PORT="1")
    ring = script.Ring(script.Cluster(), 60)
    script.join(ring, "bandwidth")
    while True:
        size, times = orders.recv()
        x = np.full(size // 4, rank + 1, np.float32)
        script.all_reduce(x, ring)  # once before, for all begin at once then
        is_right = x.size == 0 or x.min() == x.max() == n * (n + 1) / 2
        x[:] = 0
        before = ring.sent
        with Timed() as timed:
            for _ in range(times):
                script.all_reduce(x, ring)
        orders.send(timed.answer(times, ring.sent - before, is_right))


def tensorflow_worker(
    _: object, n: int, rank: int, addresses: Sequence[str], orders: Connection
) -> None:
    """A process: does the same with TensorFlow's ring, in a loop of the graph."""
    end_with_parent()
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    os.environ.update(TF_CONFIG=json.dumps(config), TF_GRPC_REUSE_PORT="1")
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    import tensorflow as tf

    distribute = tf.distribute.experimental
    options = distribute.CommunicationOptions(
        implementation=distribute.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def add_up(x: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(x), options)

    @tf.function
    def sums(x: Any, times: Any) -> Any:
        for _ in tf.range(times):
            x = strategy.run(add_up, [x])
        return x

    while True:
        size, times = orders.recv()
        x = sums(tf.fill([size // 4], rank + 1.0), tf.constant(1)).numpy()
        is_right = x.size == 0 or x.min() == x.max() == n * (n + 1) / 2
        x, count = tf.zeros([size // 4]), tf.constant(times)
        with Timed() as timed:
            sums(x, count).numpy()
        orders.send(timed.answer(times, times * 2 * (n - 1) / n * size, is_right))


def sender(_: object, address: Any, orders: Connection) -> None:
    """A process: sends as many bytes as are ordered; answers with the seconds."""
    example_runs.end_with_us()
    with socket.create_connection(address, timeout=60) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            size, times = orders.recv()
            x = np.ones(size, np.uint8)
            with Timed() as timed:
                for _ in range(times):
                    s.sendall(x.data)
                    s.recv(1)
            orders.send(timed.answer(times, times * size, True))


def receiver(_: object, listener: socket.socket, orders: Connection) -> None:
    """A process: takes what the sender sends, and says so."""
    example_runs.end_with_us()
    s, _ = listener.accept()
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        size, times = orders.recv()
        x = np.full(size, 2, np.uint8)
        with Timed() as timed:
            for _ in range(times):
                view = x.data
                while view:
                    view = view[s.recv_into(view) :]
                s.send(b"!")
        orders.send(timed.answer(times, 0, x.size == 0 or x.min() == x.max() == 1))


class Processes:
    """Processes that do the same at once, each with a pipe for its orders."""

    def __init__(self, targets: Sequence[tuple[Any, ...]], method: str = "fork") -> None:
        """targets: a function of each process, and its arguments before the pipe."""
        context: Any = multiprocessing.get_context(method)
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.sockets: list[socket.socket] = []  # that hold the ports of the processes
        for target, *values in targets:
            pipe, other_end = context.Pipe()
            self.pipes.append(pipe)
            process = context.Process(target=target, args=[*values, other_end], daemon=True)
            self.processes.append(process)
            process.start()

    def end(self) -> None:
        """Ends them."""
        for process in self.processes:
            process.kill()
            process.join()

    def cost(self, size: int) -> dict[str, float]:
        """Returns what a vector of `size` bytes costs the process to which it costs most.

        seconds and processor seconds, how often a thread waited, and the bytes sent a second.
        """
        for pipe in self.pipes:
            pipe.send((size, min(300, max(1, BYTES_AT_ONCE // max(1, size)))))
        answers = []
        for pipe in self.pipes:
            if not pipe.poll(60):
                sys.exit("ring_bandwidth: a process did not answer for 60 s")
            answers.append(pipe.recv())
        if not all(is_right for _, _, is_right in answers):
            sys.exit("ring_bandwidth: a sum is wrong")
        costs = [cost for cost, _, _ in answers]
        greatest = {name: max(cost[name] for cost in costs) for name in costs[0]}
        rate = max(sent for _, sent, _ in answers) / greatest["seconds"]
        return {**greatest, "rate": rate}


def start(
    script: Any, n: int, target: Callable[..., None] = worker, method: str = "fork"
) -> Processes:
    """Returns the Processes of a ring of n workers; of a sender and a receiver for n = 1."""
    if n == 1:
        listener = socket.create_server(("127.0.0.1", 0))
        address = listener.getsockname()
        return Processes([(receiver, script, listener), (sender, script, address)])
    ports, sockets = cluster.hold_ports(n)
    addresses = cluster.addresses({"worker": n}, ports)["worker"]
    processes = Processes([(target, script, n, rank, addresses) for rank in range(n)], method)
    processes.sockets = sockets
    return processes


def read(results: dict[str, Any]) -> tuple[Costs, list[int]]:
    """Returns {(case, size): its repeats} of {"case, size bytes": its repeats}, and all sizes."""
    pairs = {key: key.removesuffix(" bytes").rsplit(", ", 1) for key in results}
    costs = {(name, int(size)): results[key] for key, (name, size) in pairs.items()}
    return costs, sorted({size for _, size in costs})


def rates_of(costs: Costs) -> Rates:
    """Returns {(case, size): the rates of the repeats}."""
    return {case: [cost["rate"] for cost in repeats] for case, repeats in costs.items()}


def share(rates: Rates, name: str, size: int) -> float:
    """What n workers send together, to raw TCP: the median over the repeats, each with its own."""
    n = int(name.split()[-2]) if name.endswith("workers") else 1  # "ring, 3 workers", or "raw TCP"
    pairs = zip(rates[name, size], rates["raw TCP", size])
    return statistics.median(n * rate / raw for rate, raw in pairs)


def in_units(size: int) -> str:
    """Returns a number of bytes as text: 69 KB, 8.7 MB."""
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{size / 1e3:g} KB"


def draw(results: dict[str, Any], path: pathlib.Path, source: pathlib.Path) -> None:
    """Draws the bandwidth of each case against the size of the vectors."""
    figure, (rate_axes, share_axes) = charts.subplots(6.4, 2, 1, sharex=True)
    costs, sizes = read(results)
    rates = rates_of(costs)
    for number, name in enumerate(dict.fromkeys(name for name, _ in rates)):
        colour = f"C{number}"
        rate_axes.plot(
            sizes, [statistics.median(rates[name, size]) / 1e6 for size in sizes], color=colour
        )
        for size in sizes:
            repeats = np.array(rates[name, size]) / 1e6
            rate_axes.plot([size] * len(repeats), repeats, ".", color=colour, markersize=4)
        shares = [share(rates, name, size) for size in sizes]
        share_axes.plot(sizes, shares, "o-", markersize=4, color=colour, label=name)
    rate_axes.set(
        ylabel="MB per second", yscale="log", title="What one worker sends (dot: a repeat)"
    )
    share_axes.set(ylabel="times raw TCP", ylim=0, xlabel="vector")
    share_axes.set_title("What all workers send together")
    for axes in (rate_axes, share_axes):
        axes.set_xscale("log")
        axes.set_xticks(sizes, [in_units(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
    rate_axes.yaxis.set_major_formatter("{x:,g}")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    charts.save(figure, path, source)


def table_of(results: dict[str, Any]) -> Group:
    """Returns the tables: rates, and what an all-reduce by two workers costs one of them."""
    costs, sizes = read(results)
    rates, names = rates_of(costs), list(dict.fromkeys(name for name, _ in costs))
    table = text_tables.plain_table("vector", *names)
    table.title = "MB/s that one worker sends; beside it what all send together, to raw TCP"
    for size in sizes:
        sent = {name: f"{statistics.median(rates[name, size]) / 1e6:5.0f}" for name in names}
        cells = [f"{sent[name]}   {share(rates, name, size):.2f}" for name in names[1:]]
        table.add_row(f"{size / 1e6:g} MB", sent["raw TCP"], *cells)
    rings_of_two = [name for name in names if name.endswith(" 2 workers")]
    cost_table = text_tables.plain_table("vector", *rings_of_two)
    cost_table.title = (
        "an all-reduce: milliseconds, of which one worker computes, and how often it waits"
    )
    for size in sizes:
        row = []
        for name in rings_of_two:
            repeats = costs[name, size]
            medians = {key: statistics.median(cost[key] for cost in repeats) for key in repeats[0]}
            milliseconds = [f"{1000 * medians[key]:7.2f}" for key in ("seconds", "processor")]
            row.append("".join([*milliseconds, f"{medians['waits']:6.0f}"]))
        cost_table.add_row(f"{size / 1e6:g} MB", *row)
    return Group(table, cost_table)


def main() -> None:
    parser = arguments.Parser(__doc__)
    megabytes, workers = [0.001, 0.01, 0.069, 1, 8.7, 100], [2, 3, 4]
    parser.number("--megabytes", megabytes, "sizes of the vectors", float, nargs="+", metavar="MB")
    parser.number("--workers", workers, "numbers of workers", nargs="+", metavar="N")
    parser.number("--repeats", 15, "of each")
    parser.redraw(__file__)
    flags = parser.parse_args()
    if min(flags.workers) < 2 or min(flags.megabytes) * 1e6 < 4:
        parser.error("--workers must be at least 2, --megabytes at least 0.000004")

    def measure_all(console: Console, _: object) -> tuple[dict[str, Any], str]:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # or it says so; nothing is computed with it here
        script = examples.load(SCRIPT)
        rings = {"raw TCP": 1, **{f"ring, {n} workers": n for n in flags.workers}}
        processes = {name: start(script, n) for name, n in rings.items()}
        rings[TENSORFLOW] = 2
        processes[TENSORFLOW] = start(None, 2, tensorflow_worker, "spawn")
        sizes = [4 * int(megabytes * 1e6 / 4) for megabytes in flags.megabytes]
        cases = [(f"{name}, {size} bytes", name, size) for size in sizes for name in rings]

        def cost(case: arguments.Case, _: object) -> dict[str, float]:
            _, name, size = case
            return processes[name].cost(size)

        results = sessions.measure_round_robin(console, cases, flags.repeats, cost)
        for ring in processes.values():
            ring.end()
        setting = text_tables.setting(
            f"NumPy {np.__version__}", f"TensorFlow {script.tf.__version__}"
        )
        return results, f"medians of {flags.repeats} repeats; {setting}"

    report = sessions.Report(script=__file__, flags=flags, width=110, table_of=table_of, draw=draw)
    report.make(measure_all)


if __name__ == "__main__":
    main()
