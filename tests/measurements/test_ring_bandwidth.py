"""Ring-Bandwidth: what it asks for, what an all-reduce costs, and its picture."""

import concurrent.futures
import contextlib
import io
import itertools
import json
import multiprocessing
import types
from unittest import mock

import numpy as np
import pytest
from measurements import Clock, asked, committed, figures, legend_of, lines_of, load, turned


def test_what_ring_bandwidth_asks_for():
    """Catches: another default, sizes or cases than those of the page, and a ring that goes on."""
    module, rings, ended = load("Ring-Bandwidth"), [], []

    def start(script, n, *more):
        rings.append((script, n, *more))
        return types.SimpleNamespace(cost=lambda size: (n, more, size), end=lambda: ended.append(n))

    module.start = start
    script = types.SimpleNamespace(tf=types.SimpleNamespace(__version__="2"))
    module.examples.load = lambda path: script
    with mock.patch.dict("os.environ"):
        flags, cases, repeats, one, _, results = turned(module, "", "--repeats", "9")
    assert list(results) == list(committed("Ring-Bandwidth"))
    tensorflow = (None, 2, module.tensorflow_worker, "spawn")
    assert rings == [(script, 1), (script, 2), (script, 3), (script, 4), tensorflow]
    assert ended == [1, 2, 3, 4, 2]
    assert [one(case, 0) for case in cases[:5]] == [
        *((n, (), 1000) for n in (1, 2, 3, 4)),
        (2, tensorflow[2:], 1000),
    ]
    due = {"megabytes": [0.001, 0.01, 0.069, 1, 8.7, 100], "workers": [2, 3, 4], "repeats": 9}
    assert (vars(flags), repeats) == ({**due, "redraw": None, "anyway": False}, 9)
    assert asked(module)[0].flags.repeats == 15
    asked(module, "--megabytes", "0.000004", "--workers", "2")
    for wrong in (["--workers", "2", "1"], ["--megabytes", "1", "0.0000039"]):
        with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as error:
            asked(module, *wrong)
        assert "--workers must be at least 2, --megabytes" in error.getvalue()


class Orders:
    """Stands for a process's end of a pipe: gives these orders, and keeps the answers."""

    def __init__(self, *orders):
        self.orders, self.answers = list(orders), []
        self.send = self.answers.append

    def recv(self):
        if not self.orders:
            raise EOFError
        return self.orders.pop(0)


def obey(target, *arguments, orders):
    """Runs the target of a process until it has no orders; returns what it answered."""
    orders = Orders(*orders)
    with mock.patch.dict("os.environ"), contextlib.suppress(EOFError):
        target(*arguments, orders)
    return orders.answers


def test_what_an_all_reduce_costs():
    """A process's own seconds, processor seconds and waits, of one of its all-reduces.

    Catches: the first call that counts, the cost of all calls for one, and a wrong sum that passes.
    """
    module, calls = load("Ring-Bandwidth"), []
    module.time, used = Clock(), types.SimpleNamespace(ru_utime=5.0, ru_stime=7.0, ru_nvcsw=11)
    module.resource = types.SimpleNamespace(
        RUSAGE_SELF=0, getrusage=lambda who: types.SimpleNamespace(**vars(used))
    )
    module.example_runs.end_with_us = lambda: None
    module.end_with_parent = lambda: None

    def work(seconds):
        module.time.tick(seconds)
        used.ru_utime, used.ru_stime = used.ru_utime + seconds / 4, used.ru_stime + seconds / 8
        used.ru_nvcsw += 3

    ring = types.SimpleNamespace(sent=100)

    def all_reduce(x, ring):
        calls.append((x.copy(), x.dtype))
        work(100 if len(calls) == 1 else 2)
        ring.sent += 1000 if len(calls) == 1 else 40
        x[:] = 6 if not x.size or x[0] == 2 else 5

    joined = []
    script = types.SimpleNamespace(
        Ring=lambda cluster, seconds: ring,
        Cluster=lambda: joined.append(json.loads(module.os.environ["TF_CONFIG"])),
        join=lambda *given: joined.append(given),
        all_reduce=all_reduce,
    )
    cost = {"seconds": 2, "processor": 0.75, "waits": 3}
    answers = obey(module.worker, script, 3, 1, ["a:1", "b:2"], orders=[(8, 4), (0, 2)])
    assert answers == [(cost, 40, True), (cost, 40, True)]
    task = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    assert joined == [task, (ring, "bandwidth")]
    assert [len(x) for x, _ in calls] == [2] * 5 + [0] * 3
    assert calls[0][0].tolist() == [2, 2] and calls[1][0].tolist() == [0, 0]
    assert {kind for _, kind in calls} == {np.dtype("float32")}
    wrong = obey(module.worker, script, 3, 0, [], orders=[(8, 1)])
    assert [right for _, _, right in wrong] == [False]


def test_the_ring_of_tensorflow():
    """The bytes that a ring of n sends, in one graph of so many all-reduces, by its own ring.

    Catches: bytes of all workers, a wrong sum that passes, and calls from Python that count.
    """
    import tensorflow as tf

    module, sums = load("Ring-Bandwidth"), []
    module.end_with_parent = lambda: None
    with mock.patch.object(tf, "distribute") as distribute:
        context = distribute.get_replica_context.return_value
        context.all_reduce = lambda kind, x, how: sums.append((kind, how)) or x * 2 + 2
        strategy = distribute.MultiWorkerMirroredStrategy.return_value
        strategy.run = lambda total, arguments: total(*arguments)
        orders = [(8, 3), (0, 2)]
        answers = obey(module.tensorflow_worker, None, 3, 1, ["a:1"], orders=orders)
        wrong = obey(module.tensorflow_worker, None, 3, 0, ["a:1"], orders=orders[:1])
        how = distribute.experimental.CommunicationOptions
        ring = distribute.experimental.CommunicationImplementation.RING
    assert [answer[1:] for answer in answers] == [(pytest.approx(2 * 2 / 3 * 8), True), (0, True)]
    assert all(answer[0]["seconds"] > 0 for answer in answers)
    assert not wrong[0][2]
    assert set(sums) == {("SUM", how.return_value)}
    assert all(call.kwargs == {"implementation": ring} for call in how.call_args_list)


def test_raw_tcp():
    """Through a socket of this machine: each byte arrives, and each vector is answered for.

    Catches: a vector that is cut, bytes of all vectors for one, and a receiver that takes any.
    """
    module, ends = load("Ring-Bandwidth"), []
    module.example_runs.end_with_us = lambda: ends.append("each ends with this process")
    listener = module.socket.create_server(("127.0.0.1", 0))
    orders = [(300_000, 3), (0, 1), (1, 2)]
    with listener, concurrent.futures.ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(obey, module.receiver, None, listener, orders=orders[::2])
        ours = obey(module.sender, None, listener.getsockname(), orders=orders[::2])
        taken = theirs.result(60)
    assert [answer[1:] for answer in ours] == [(300_000, True), (1, True)]
    assert [answer[1:] for answer in taken] == [(0, True), (0, True)]
    assert len(ends) == 2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ring_bandwidth_counts_what_one_worker_sends(n, monkeypatch):
    """One second passes in the timed part. Catches: the first call counted, or bytes of all n."""
    bandwidth = load("Ring-Bandwidth")

    class Ring:
        def __init__(self, cluster, seconds):
            self.rank, self.sent = json.loads(cluster)["task"]["index"], 0

    def all_reduce(x, ring):
        """Sends 1,000 bytes to the right, or 500 from the last worker."""
        ring.sent += 500 if ring.rank == n - 1 else 1000
        x[:] = n * (n + 1) / 2

    script = types.SimpleNamespace(
        Ring=Ring,
        Cluster=lambda: bandwidth.os.environ["TF_CONFIG"],
        join=lambda ring, name: None,
        all_reduce=all_reduce,
    )
    seconds = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: next(seconds))
    monkeypatch.setattr(bandwidth, "time", clock)
    before = multiprocessing.active_children()
    try:
        processes = bandwidth.start(script, n)
        for size, times in (8, 300), (16 * 10**6, 4), (10**8, 1):
            # In that one second: so many times 1,000 bytes; raw TCP sends all of the vector.
            cost = processes.cost(size)
            assert cost["rate"] == pytest.approx((size if n == 1 else 1000) * times)
            assert cost["seconds"] == pytest.approx(1 / times)
    finally:
        for process in set(multiprocessing.active_children()) - set(before):
            process.terminate()
            process.join()
        for socket in getattr(processes, "sockets", []):
            socket.close()


def test_the_cost_of_the_slowest():
    """So many vectors at once as have 64 MB, at most 300; the process to which it costs most.

    Catches: the cost of the first process, a rate of the fastest, and an answer that is wrong or
    does not come and nobody says so.
    """
    module = load("Ring-Bandwidth")
    processes, sent = module.Processes.__new__(module.Processes), []

    def pipe(seconds, bytes_, right=True, there=True):
        cost = {"seconds": seconds, "waits": 1 / seconds}
        answer = cost, bytes_, right
        return types.SimpleNamespace(
            send=sent.append, poll=lambda limit: there and limit == 60, recv=lambda: answer
        )

    processes.pipes = [pipe(2, 100), pipe(4, 80)]
    assert processes.cost(10**6) == {"seconds": 4, "waits": 0.5, "rate": 25}
    for size in (8, 0, 10**8, 64 * 10**6 // 299):
        processes.cost(size)
    due = [(10**6, 64), (8, 300), (0, 300), (10**8, 1), (64 * 10**6 // 299, 299)]
    assert sent[::2] == sent[1::2] == due
    for broken, words in (
        (pipe(1, 1, right=False), "sum is wrong"),
        (pipe(1, 1, there=False), "60 s"),
    ):
        processes.pipes[1] = broken
        with pytest.raises(SystemExit, match=words):
            processes.cost(8)


def test_the_picture_of_a_ring(monkeypatch):
    """MB a second and the share of raw TCP, against the size of a vector in its unit.

    Catches: bytes for MB, the best repeat for the median, a ratio of medians, the share of one
    worker, and a size in another unit.
    """
    module = load("Ring-Bandwidth")
    drawn = figures(module)
    results = {
        f"{name}, {size} bytes": [{"rate": rate * 1e6 * n} for rate in rates]
        for n, size in enumerate((69_000, 8_700_000), 1)
        for name, rates in (("raw TCP", (1, 2, 8)), ("ring, 3 workers", (3, 1, 4)))
    }
    module.draw(results, None, None)
    one, shares = drawn[0].axes
    raw = [("None", [(69e3, 2), (87e5, 4)])]
    raw += [(".", [(size, n * rate) for rate in (1, 2, 8)]) for n, size in ((1, 69e3), (2, 87e5))]
    ring = [("None", [(69e3, 3), (87e5, 6)])]
    ring += [(".", [(size, n * rate) for rate in (3, 1, 4)]) for n, size in ((1, 69e3), (2, 87e5))]
    assert [(marker, known) for marker, _, known in lines_of(one)] == raw + ring
    assert lines_of(shares) == [
        ("o", "raw TCP", [(69e3, 1), (87e5, 1)]),
        ("o", "ring, 3 workers", [(69e3, 1.5), (87e5, 1.5)]),  # 3 * the median of 3, 1/2, 1/2
    ]
    assert [text.get_text() for text in shares.get_xticklabels()] == ["69 KB", "8.7 MB"]
    assert [module.in_units(size) for size in (10**6, 999_000)] == ["1 MB", "999 KB"]
    assert one.get_yscale() == "log" and shares.get_ylim()[0] == 0
    assert legend_of(drawn[0]) == ["raw TCP", "ring, 3 workers"]
    rates = {("ring, 4 workers", 8): [1, 2], ("raw TCP", 8): [2, 8]}
    assert module.share(rates, "ring, 4 workers", 8) == 1.5
    assert module.share(rates, "raw TCP", 8) == 1
