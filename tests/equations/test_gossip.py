"""Gossip-SGD: its averages and steps, what no order of events may lose, and who is slow or gone."""

import concurrent.futures
import contextlib
import socket
import threading
import time
import types

import equations
import numpy as np
import pytest
import ring_workers
import support
from lab import examples
from tfrun import errors
from tfrun.launch import cluster

SCRIPT = examples.main_script("Further-Algorithms/Gossip-SGD")
EQUATION = equations.of(SCRIPT)
SIZE, LR = 7, 0.25
BYTES = 2 * (8 + 4 * SIZE)  # of an exchange


class Worker:
    """A worker in this process, with a vector as its model; its steps are eager."""

    def __init__(self, script, addresses, k, gradient, **flags):
        defaults = {"seed": 5, "steps": 10**6, "step_timeout": 20, "learning_rate": LR}
        self.flags = types.SimpleNamespace(**{**defaults, **flags})
        self.script, self.k, self.gradient_of = script, k, gradient
        self.addresses, self.asked = addresses, 0
        self.peers = script.Pairs(ring_workers.Cluster(addresses, k), self.flags)
        self.w = script.tf.Variable(np.full(SIZE, k, np.float32))
        self.number = script.tf.Variable(0, dtype=script.tf.int64)

    def begin(self, steps=0, alike="the same"):
        self.peers.begin(self.number, self.w, alike, steps)

    def gradient(self, w, number):
        g = self.gradient_of(self.k, int(number), w.numpy())
        return self.script.tf.constant(0.0), self.script.tf.constant(g, self.script.tf.float32)

    def step(self):
        """Makes a step; returns (staleness, bytes)."""
        result = self.script.algorithm(self.w, self.number, self.gradient, self.peers, self.flags)
        return int(result.late), int(result.moved)

    def ask(self):
        """Averages as an active worker, with one neighbour."""
        with self.peers.asking:
            self.script.average_with_one(self.peers, self.asked)
        self.asked += 1

    def run(self, count):
        """Makes so many steps; returns w after each."""
        return [(self.step(), self.w.numpy())[1] for _ in range(count)]

    def close(self):
        """Does what the end of its process does."""
        if hasattr(self.peers, "listener"):
            with contextlib.suppress(OSError):
                self.peers.listener.shutdown(2)
            self.peers.listener.close()
        for j, s in list(self.peers.open.items()):
            self.peers.finished.add(j)  # or it would tell that they are lost
            with contextlib.suppress(OSError):
                s.shutdown(2)
            self.peers.open.pop(j, None)


class Over(Exception):
    """The test ends, and with it each thread that connects."""


def prepared(text):
    """Returns the script as a module, whose listeners can be closed, and whose threads end."""
    script = examples.load(SCRIPT, text)
    connect, serve, keep = script.connect, script.Pairs.serve_all, script.Pairs.keep_connected

    def connect_unless_over(pairs, side, deadline):
        while not script.over and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return connect(pairs, side, time.monotonic() + 0.05)
        raise Over

    def keep_until_over(pairs, j, side):
        while not script.over:
            with contextlib.suppress(Over):
                keep(pairs, j, side)

    def serve_until_closed(pairs, listener):
        pairs.listener = listener
        with contextlib.suppress(OSError):
            serve(pairs, listener)

    script.over, script.connect, script.REQUIRED_WAIT_SECONDS = False, connect_unless_over, 20
    script.Pairs.serve_all, script.Pairs.keep_connected = serve_until_closed, keep_until_over
    return script


@contextlib.contextmanager
def gossip(n, text=None, gradient=lambda k, number, w: 0 * w, begun=None, **flags):
    """Yields n workers, of which those in `begun`, or all, have begun, with the w of worker 0."""
    script = prepared(text)
    ports, held = cluster.hold_ports(n)
    addresses = cluster.addresses({"worker": n}, ports)["worker"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_GRPC_REUSE_PORT", "1")
        if begun is not None:
            script.OPTIONAL_WAIT_SECONDS = 0.5
        workers = [Worker(script, addresses, k, gradient, **flags) for k in range(n)]
        try:
            run_at_once(workers if begun is None else [workers[k] for k in begun], Worker.begin)
            yield workers
        finally:
            script.over = True
            for worker in workers:
                worker.close()
            for s in held:
                s.close()


def run_at_once(workers, work):
    """Returns [work(worker) of each], all at once."""
    with concurrent.futures.ThreadPoolExecutor(max(1, len(workers))) as pool:
        return [done.result(60) for done in [pool.submit(work, worker) for worker in workers]]


def starts(n):
    return np.random.RandomState(n).randn(n, SIZE).astype(np.float32)


def gradient(k, number, w):
    """Of a quadratic, another one in each worker and step."""
    return (w - k) * (1 + k + number % 3) / 8


# The equations -----------------------------------------------------------------------------------


# Worker k makes a step, or an active one asks a neighbour: at any time, or during a step of j.
STEPS = [("step", 0), ("ask", 0), ("step", 1), ("ask", 2, 3), ("step", 2), ("ask", 0, 0)]
EVENTS = [*STEPS, ("step", 3), ("ask", 2, 1), ("ask", 0, 3), ("ask", 2), ("ask", 0, 1)] * 6


def check_asynchronous(text=None):
    """The named comparisons of numbers that a mistake must fail: four workers, events in order."""
    with gossip(4, text, gradient) as workers:
        for worker, w in zip(workers, starts(4)):
            worker.w.assign(w)
            worker.peers.go = threading.Event()  # it averages where the test lets it
        asked, wrong, moved = [], [], [0] * 4
        for worker in workers[::2]:
            note_whom_it_asks(worker, asked)
        due = EQUATION.REFERENCE(starts(4), gradient, LR)
        for what, k, *during in EVENTS:
            stepping, late = (k if what == "step" else [*during, None][0]), 0
            before, n_asked = list(due.w), len(asked)
            if what == "step":
                row = workers[k].step()
            elif stepping is None:
                workers[k].ask()
            else:
                row = ring_workers.step_during(workers[stepping], workers[k].ask)
            pairs = asked[n_asked:]
            if len(pairs) != (what == "ask"):
                wrong.append(f"neighbours: worker {k} has asked {len(pairs)}")
            for pair in pairs[:1]:
                due.pair(*pair)
                moved[k] += BYTES
                late = int(stepping in pair)
            if stepping is not None:
                due.step(stepping, before[stepping])
                if row[0] != late:
                    wrong.append(f"staleness: {row[0]} instead of {late} after {what, k, during}")
                if stepping % 2 == 0 and row[1] != moved[stepping]:
                    wrong.append(f"bytes: {row[1]} instead of {moved[stepping]}")
                moved[stepping] = 0
            apart = np.abs(np.array([worker.w.numpy() for worker in workers]) - due.w).max()
            if not apart < 1e-5:
                wrong.append(f"w: {apart:g} apart after {what, k, during}")
        for k in 0, 2:
            share = np.mean([j == k + 1 for who, j in asked if who == k])
            if not 0.1 < share < 0.9:
                wrong.append(f"neighbours: worker {k} asks one of them {share:.0%} of the time")
        if (again := asked_again(workers[0])) != [j for who, j in asked if who == 0][: len(again)]:
            wrong.append("neighbours: others for the same seed")
    assert not wrong, "\n".join(wrong)


def note_whom_it_asks(worker, asked):
    exchange = worker.peers.exchange

    def noted(j, sent):
        asked.append((worker.k, int(j)))
        return exchange(j, sent)

    worker.peers.exchange = noted


def asked_again(worker):
    """Whom an active worker asks first, by its seed alone."""
    asked, script, pairs = [], worker.script, worker.peers
    value = types.SimpleNamespace(numpy=lambda: np.zeros(SIZE, np.float32))
    noting = types.SimpleNamespace(seed=pairs.seed, rank=pairs.rank, to_ask=pairs.to_ask)
    noting.step, noting.w, noting.move = value, value, lambda *_: None
    noting.exchange = lambda j, sent: asked.append(int(j)) or sent
    for number in range(10):
        script.average_with_one(noting, number)
    return asked


def check_concurrent(text=None):
    """Each step adds 1 to w: the sum of all w is that of the starts and of all steps.

    A step of a worker takes long enough that others average meanwhile.
    """

    def slow_gradient(k, number, w):
        time.sleep(0.002)
        return np.full(SIZE, -1 / LR)

    wrong = []
    with gossip(4, text, slow_gradient, steps=60) as workers:
        for worker, w in zip(workers, starts(4)):
            worker.w.assign(w)
        script, passive = workers[0].script, workers[1]
        packed = script.packed

        def slowly(step, w):
            """A message; others may come between the reading of w and its moving."""
            time.sleep(0.002)
            return packed(step, w)

        meeting = threading.Barrier(2)

        def waiting(step, w):
            """The same, which waits for the other averaging, if that one can begin before."""
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(1)
            return packed(step, w)

        script.packed = waiting
        first = [worker.w.numpy() for worker in workers]
        both = [w for k, w in enumerate(first) if k in (0, 2)]
        run_at_once(
            workers[:3:2], lambda worker: worker.peers.exchange(1, packed(0, worker.w.numpy()))
        )
        script.packed = slowly
        in_turn = [((first[1] + a) / 2 + b) / 2 for a, b in (both, both[::-1])]
        apart = min(np.abs(passive.w.numpy() - w).max() for w in in_turn)
        if not apart < 1e-6:
            wrong.append(f"at once: {apart:g} apart from one averaging after the other")
        passive.w.assign(first[1])
        run_at_once(workers, lambda worker: (worker.run(60), worker.peers.leave()))
        time.sleep(0.1)  # an active worker's thread may still average
        total = sum(worker.w.numpy().astype(float) for worker in workers)
    due = starts(4).astype(float).sum(0) + 4 * 60
    apart = np.abs(total - due).max()
    if not apart < 0.01:
        wrong.append(f"sum: {apart:g} apart")
    assert not wrong, "\n".join(wrong)


CHECKS = {
    "sum": check_concurrent,
    "at once": check_concurrent,
}


def test_averages_come_in_any_order_and_nothing_is_lost():
    """Also where an average comes between a gradient and its step."""
    check_asynchronous()
    check_concurrent()


@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=1))
def test_a_mistake_is_caught(script, fails, changes):
    with support.fails_comparison(fails):
        CHECKS.get(fails, check_asynchronous)(examples.replaced(script, changes))


# Who is slow, gone, or new -----------------------------------------------------------------------


@pytest.mark.parametrize("slow", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_slow_worker_slows_nobody(slow):
    """An active one, or a passive one: it makes no step before the others have made all theirs."""
    over = threading.Event()

    def gradient_of(k, number, w):
        if k == slow and number:
            assert over.wait(60)
        return 0 * w

    with gossip(4, gradient=gradient_of, steps=50) as workers:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(worker.run, 50) for worker in workers]
            for worker, run in zip(workers, runs):
                if worker.k != slow:
                    run.result(60)
            steps = [int(worker.number) for worker in workers]
            over.set()
            runs[slow].result(60)
            run_at_once(workers, lambda worker: worker.peers.leave())  # each waits for the slow one
    assert steps == [1 if k == slow else 50 for k in range(4)]


def check_leaving(slow, text=None):
    """Asserts that the neighbours of a slow worker stay until it is done; the other one goes."""
    over = threading.Event()

    def gradient_of(k, number, w):
        if k == slow and number:
            assert over.wait(60)
        return 0 * w

    with gossip(4, text=text, gradient=gradient_of, steps=20) as workers:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(lambda w=w: (w.run(20), w.peers.leave())) for w in workers]
            others = [k for k in range(4) if k != slow]
            try:
                support.wait_until(lambda: all(workers[k].number == 20 for k in others), 30, "20")
                concurrent.futures.wait([runs[slow - 2]], support.patience(2))
                neighbours = [runs[(slow + side) % 4] for side in (-1, 1)]
                concurrent.futures.wait(neighbours, 0.5, "FIRST_COMPLETED")
                left = {k for k in others if runs[k].done()}
            finally:
                over.set()
            ended = concurrent.futures.wait(runs, support.patience(10)).done
            for worker in workers:  # or those who wait would never end
                worker.peers.finished.update(worker.peers.sides)
        lost = [worker.k for worker in workers if worker.peers.lost]
    wrong = [f"leaves: {k}, while worker {slow} needs it" for k in left - {(slow + 2) % 4}]
    if not left or len(ended) < 4:
        wrong.append(f"waits: {left} leave meanwhile, and {len(ended)} of 4 after the last step")
    assert not wrong, "\n".join(wrong)
    assert not lost, f"lost: by {lost}"


LEAVING = {
    "leaves": {
        "when one neighbour is done": [
            ("len(self.finished) == len(self.sides)", "len(self.finished) > 0")
        ],
        "a neighbour counts as done when this worker is": [
            ("min(own, other) >= self.steps", "max(own, other) >= self.steps")
        ],
    },
    "waits": {
        "for one step more": [("min(own, other) >= self.steps", "min(own, other) > self.steps")]
    },
}


def test_who_is_done_stays_for_a_slow_neighbour():
    """Catches one who leaves too early, or never: whoever is slow needs its neighbours only."""
    check_leaving(2)


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "fails, changes",
    [
        pytest.param(fails, changes, id=name, marks=pytest.mark.long)
        for fails, named in LEAVING.items()
        for name, changes in named.items()
    ],
)
def test_a_mistake_in_leaving_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_leaving(1, examples.replaced(SCRIPT, changes))


@pytest.mark.long
def test_a_neighbour_hangs_or_is_gone_and_comes_again(capfd):
    """An active worker goes on with the other one, and then with none."""
    # On a busy machine a worker that is closed would come again, had it timed out before.
    with gossip(4, step_timeout=3) as workers:
        for worker, w in zip(workers, starts(4)):
            worker.w.assign(w)
        first, middle, _, last = workers
        with middle.peers.lock:  # it answers nobody
            step_until(first, lambda: 1 in first.peers.lost)
        last.close()
        step_until(first, lambda: 3 in first.peers.lost)
        step_until(first, lambda: 1 in first.peers.open)
        output = capfd.readouterr().err
        for words in (
            "goes on without worker 1: timed out",
            "goes on without worker 3: ",
            "has worker 1 again",
        ):
            assert f"worker 0 {words}" in output, output
        step_until(first, lambda: np.abs(first.w.numpy() - middle.w.numpy()).max() < 1e-6)


def step_until(worker, condition):
    """Lets a worker make steps, none of which waits."""
    support.wait_until(lambda: worker.run(1) and condition(), 20, "it")


@pytest.mark.parametrize("new", [1, *(pytest.param(k, marks=pytest.mark.long) for k in (0, 2))])
def test_who_restarts_takes_the_w_of_a_neighbour(new):
    """Also the chief; and it gives nothing of the w with which it starts."""
    others = [k for k in range(4) if k != new]
    # The chief lets all others begin; so the one that takes its place is a new worker.
    with gossip(4, begun=others if new else None) as workers:
        if not new:
            workers[0].close()
            old = workers[0]
            workers[0] = Worker(old.script, old.addresses, 0, old.gradient_of)
        for k in others:
            workers[k].w.assign(np.full(SIZE, 10.0 + k))
        workers[new].w.assign(np.full(SIZE, 1000.0))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            begun = pool.submit(workers[new].begin, 30)
            while not begun.done():
                for k in others:
                    if k % 2 == 0:
                        workers[k].step()
                time.sleep(0.01)
            begun.result()
        assert int(workers[new].number) == 30, "it goes on with its own steps"
        parameters = np.array([worker.w.numpy() for worker in workers])
        assert 10 <= parameters.min() and parameters.max() <= 13, parameters


def test_a_stranger_and_who_is_not_alike(capfd):
    """What they say is not read as w."""
    with gossip(2) as (active, passive):
        passive.w.assign(np.full(SIZE, 3.0))
        here = passive.script.address(passive.peers, 0)
        for text in b"GET / HTTP/1.1\r\n\r\n" * 20, b"x" * 10**5:
            with socket.create_connection(here, timeout=10) as s, contextlib.suppress(OSError):
                s.sendall(text)
                s.shutdown(1)
                assert s.recv(1000) == b""
        active.ask()
        assert np.abs(passive.w.numpy() - 1.5).max() == 0
        refusals = [line for line in capfd.readouterr().err.splitlines() if "refused" in line]
        assert len(refusals) == 2 and refusals[0].startswith(
            "worker 1 refused a connection from 127.0.0.1"
        )
        other = Worker(active.script, active.addresses, 0, active.gradient_of)
        with pytest.raises(ConnectionError, match="worker 1 has another script, TF_CONFIG"):
            other.begin(alike="other flags")


@pytest.mark.parametrize("k, names", [(0, "worker [13] and worker [13]"), (1, "worker [02] and")])
def test_nobody_answers(k, names):
    """The first start of a worker whose neighbours do not come: it waits, and then says so."""
    with gossip(4, begun=()) as workers:
        workers[k].script.REQUIRED_WAIT_SECONDS = 0.5
        with pytest.raises(TimeoutError, match=names) as raised:
            workers[k].begin()
    assert "did not start, has failed" in errors.explain(f"TimeoutError: {raised.value}")


def test_an_odd_number_of_workers_is_refused():
    ring_workers.check_refused(SCRIPT, 3, "Gossip-SGD needs an even number of workers, and has 3")
