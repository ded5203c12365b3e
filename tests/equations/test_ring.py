"""Ring-AllReduce: the sum and its bytes, the training, and what goes wrong on the way."""

import collections
import concurrent.futures
import contextlib
import json
import re
import signal
import socket
import struct
import time

import equations
import interleaved
import numpy as np
import problem
import pytest
import recovery
import ring_workers
import support
from lab import examples
from tfrun import errors
from tfrun.runs import models

SCRIPT = examples.main_script("Ring-AllReduce")
QUICK = dict(ps=0)  # of the fixture quick
EQUATION = equations.of(SCRIPT)


# The equations, in NumPy.


def chunk(size, n, c):
    """Where chunk c of n is in a vector: they differ by one at most, the first are the longer."""
    small, longer = divmod(size, n)
    start = c * small + min(c, longer)
    return slice(start, start + small + (c < longer))


def ring_sum(vectors):
    """The sum as the ring makes it: chunk c begins at worker c, and goes to the right."""
    n, total = len(vectors), np.empty_like(vectors[0])
    for c in range(n):
        here = chunk(len(total), n, c)
        total[here] = vectors[c][here]
        for k in range(c + 1, c + n):
            total[here] += vectors[k % n][here]
    return total


def received_by_kernel(script, ring):
    """The bytes that have come on a worker's left connection: tcpi_bytes_received of tcp_info."""
    info = ring.left.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
    return struct.unpack_from("Q", info, 128)[0] - len(script.greeting(ring))


def check_all_reduce(n, size, text=None):
    """The named comparisons of numbers that a mistake must fail."""
    random = np.random.RandomState(size)
    vectors = [random.randn(size).astype(np.float32) for _ in range(n)]

    def work(ring):
        script.join(ring, "the same")
        before = ring.sent, ring.received
        x = vectors[ring.rank].copy()
        script.all_reduce(x, ring)
        apart = received_by_kernel(script, ring) - ring.received
        script.leave(ring)
        return x, ring.sent - before[0], ring.received - before[1], apart

    with ring_workers.rings(SCRIPT, n, text) as (script, rings):
        done = ring_workers.run_at_once(rings, work)
    wrong, expected = [], ring_sum(vectors)
    assert not [result for result in done if isinstance(result, OSError)], done
    exact = sum(v.astype(np.float64) for v in vectors)
    bound = n * 2.0**-23 * sum(np.abs(v) for v in vectors)
    for k, (x, sent, received, apart) in enumerate(done):
        if not np.all(np.abs(x - exact) <= bound):
            wrong.append(f"sum: {np.abs(x - exact).max():g} apart on worker {k}")
        if not np.array_equal(x, done[0][0]) or not np.array_equal(x, expected):
            wrong.append(f"bits: worker {k} has others than worker 0 or than the equation")
        parts = [4 * len(range(size)[chunk(size, n, c % n)]) for c in range(k, k + 3)]
        if (sent, received) != (8 * size - parts[1] - parts[2], 8 * size - parts[0] - parts[1]):
            wrong.append(f"bytes: worker {k} has sent {sent}, received {received}")
        if not 0 <= apart <= 1:  # a left neighbour that leaves already counts as one
            wrong.append(f"bytes: the kernel of worker {k} has received {apart} more")
        if size % n == 0 and sent != 2 * (n - 1) * 4 * size // n:
            wrong.append(f"bytes: worker {k} has sent {sent}, not 2 (N - 1) / N S")
    if sum(sent for _, sent, *_ in done) != 2 * (n - 1) * 4 * size:
        wrong.append("bytes: all together have not sent 2 (N - 1) S")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_sum_and_its_bytes(n):
    """Divisible sizes and others, fewer numbers than workers, none; the kernel counts the same."""
    for size in 0, 1, n - 1, n, n + 1, 60 * n, 1000, 12347:
        check_all_reduce(n, size)


@pytest.mark.parametrize("n", [2, 3])
def test_a_vector_longer_than_the_buffers(n):
    check_all_reduce(n, 3 * 10**6)


LOOP = "for s in range(%s):\n        mine, theirs = chunk[(k %s"
SCATTER = "chunk[(k - s) % N], chunk[(k - s - 1) % N]"
NEXT = "chunk[(k + 1 - s) % N], chunk[(k - s) % N]"
GATHER = "        ring.exchange(mine, theirs)\n"
RECEIVED = "        ring.exchange(mine, received[: theirs.size])\n"
ADDED = """        came = np.empty_like(theirs)
        ring.exchange(mine, came)
        theirs += came
"""
WHOLE = """        came = np.concatenate(chunk)
        ring.exchange(came.copy(), came)
        received[: theirs.size] = np.array_split(came, N)[(k - s - 1) % N]
"""
# (the comparison that fails,): {the mistake: [(text, what replaces it)]}
MISTAKES = {
    ("sum",): {
        "reduce-scatter begins with the next chunk": [(SCATTER, NEXT)],
        "all-gather begins with the chunk of the worker's number": [(NEXT, SCATTER)],
        "reduce-scatter makes a step too few": [
            (LOOP % ("N - 1", "- s)"), LOOP % ("N - 2", "- s)"))
        ],
        "what comes is not added": [("theirs += received[", "theirs[:] = received[")],
        "all-gather adds, too": [(GATHER, ADDED)],
    },
    ("bits",): {
        "all-gather makes a step too few": [(LOOP % ("N - 1", "+ 1"), LOOP % ("N - 2", "+ 1"))],
    },
    ("bytes",): {
        "reduce-scatter makes a step too many": [(LOOP % ("N - 1", "- s)"), LOOP % ("N", "- s)"))],
        "every worker sends the whole vector": [(RECEIVED, WHOLE)],
        "bytes that come are not counted": [("self.received += len(into)", "pass")],
    },
}


@pytest.mark.parametrize("fails, changes", support.mistakes(MISTAKES, core=3))
def test_a_mistake_in_the_sum_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_all_reduce(3, 60, examples.replaced(SCRIPT, changes))


def test_who_sends_first_and_then_receives_waits_for_ever():
    """Where the vector is longer than the buffers; shorter ones get through."""
    first = [("if into else [self.right]", "if not out else [self.right]")]
    check_all_reduce(3, 60, examples.replaced(SCRIPT, first))
    with ring_workers.rings(SCRIPT, 2, examples.replaced(SCRIPT, first), timeout=1) as (
        script,
        rings,
    ):

        def work(ring):
            script.join(ring, "the same")
            script.all_reduce(np.ones(10**7, np.float32), ring)

        for lost in ring_workers.run_at_once(rings, work):
            assert "silent" in str(lost) or "closed" in str(lost)


# Training, by processes of its own.


def check_training(quick, folder, changes=(), flags=(), n=3):
    """The named comparisons of numbers that a mistake must fail."""
    codes, output = ring_workers.train(
        quick, SCRIPT, folder, *flags, changes=[*changes, *ring_workers.RECORD], n=n
    )
    assert codes == [0] * n, output
    values = [np.load(path / "w.npy") for path in ring_workers.folders(folder, n)]
    assert [len(history) for history in values] == [21] * n
    first, gradient = ring_workers.arrays(values[0][0]), problem.gradient_on_digits(n)
    expected = EQUATION.REFERENCE(first, n, gradient, problem.LR)
    wrong, union = [], [v.astype(np.float64) for v in first]
    losses = [
        [row["loss"] for row in support.pushes(path)] for path in ring_workers.folders(folder, n)
    ]
    for step in range(21):
        if not all(np.array_equal(history[step], values[0][step]) for history in values):
            wrong.append(f"ranks: not bit for bit the same after {step} steps")
        w = values[0][step]
        if not (apart := np.abs(w - interleaved.flat(expected.w)).max()) < 1e-5:
            wrong.append(f"parameters: {apart:g} apart after {step} steps")
        if not (apart := np.abs(w - interleaved.flat(union)).max()) < 1e-6 * (step + 1):
            wrong.append(f"union: {apart:g} apart after {step} steps")
        if step == 20:
            break
        due = expected.joint_step(range(n))
        if not np.abs(np.array(due) - [history[step] for history in losses]).max() < 1e-5:
            wrong.append(f"losses: others in step {step}")
        _, union = problem.union_step(union, n, step)
    assert np.abs(values[0][20] - values[0][0]).max() > 0.01
    assert not wrong, "\n".join(wrong)


def test_training_is_one_worker_on_the_union_of_the_batches(quick, tmp_path):
    """Also: bit for bit the same on all ranks after the broadcast and in each step; the bytes;
    and rank 0 alone writes a checkpoint, with w as one vector."""
    check_training(quick, tmp_path)

    size = 4 * sum(np.prod(shape) for shape in ring_workers.SHAPES)
    moved = [
        {row["bytes"] for row in support.pushes(folder)}
        for folder in ring_workers.folders(tmp_path)
    ]
    chunks = [4 * len(range(size // 4)[chunk(size // 4, 3, c)]) for c in range(3)]
    # Sent: twice all but the next one, or the one after it; received: the own one, or the next.
    due = [4 * size - chunks[k] - 2 * chunks[(k + 1) % 3] - chunks[(k + 2) % 3] for k in range(3)]
    assert moved == [{float(bytes)} for bytes in due]

    checkpoint = support.newest_checkpoint(ring_workers.folders(tmp_path)[0])
    saved = models.saved_values(checkpoint, ring_workers.SHAPES)["w"]
    last = ring_workers.arrays(np.load(ring_workers.folders(tmp_path)[0] / "w.npy")[20])
    assert all(np.array_equal(a, b) for a, b in zip(saved, last, strict=True))

    left = [{path.name for path in folder.glob("*")} for folder in ring_workers.folders(tmp_path)]
    for k in 1, 2:
        assert left[k] == {f"metrics-worker-{k}.csv", "w.npy"}
    assert {"checkpoint", "model.ckpt-20.index", "flags.json"} < left[0]


CUT = ("self.ends[mine[-1] + 1]]", "self.ends[mine[-1]]]")


def test_buckets_change_no_bit(quick, tmp_path):
    """Catches buckets that are not all of the gradient, or other ones on another worker."""
    values = []
    for buckets in "1", "3":
        check_training(quick, tmp_path / buckets, flags=["--buckets", buckets], n=2)
        values.append(np.load(ring_workers.folders(tmp_path / buckets)[0] / "w.npy"))
    assert np.array_equal(*values)
    with support.fails_comparison("(ranks|parameters)"):
        check_training(quick, tmp_path / "cut", [CUT], ["--buckets", "3"], n=2)


class Slow(collections.Counter):
    """A count at which each look takes a moment, so that another thread comes in between."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        time.sleep(0.002)
        return value


def check_threads(changes=()):
    """Asserts that each bucket goes around once and whole, where gradients come all at a time."""
    script = examples.load(SCRIPT, examples.replaced(SCRIPT, changes))
    sizes = [40, 4, 30, 3, 20, 2]
    x = np.arange(sum(sizes), dtype=np.float32)
    pieces, sent = np.split(x, np.cumsum(sizes)[:-1]), []
    buckets = script.Buckets(None, sizes, 3)
    buckets.all_reduce = lambda part: sent.append(part.copy())
    buckets.x[:], buckets.missing = np.nan, Slow(buckets.missing)
    with concurrent.futures.ThreadPoolExecutor(len(sizes)) as pool:
        list(pool.map(buckets.add, range(len(sizes)), pieces))
    buckets.pool.shutdown()
    due = [x[first:end] for first, end in ((74, 99), (40, 74), (0, 40))]
    assert len(sent) == 3 and all(map(np.array_equal, sent, due)), sent


def test_gradients_of_two_threads(tmp_path):
    """Catches a bucket that leaves before it is whole: add() may run in two threads at a time."""
    check_threads()
    with pytest.raises(AssertionError):
        check_threads([("with self.lock:", "if True:")])


# Of a whole training; test_ring_steps.py has the mistakes in a step.
IN_TRAINING = {
    ("ranks",): {"no broadcast": [("    broadcast([step, w, *state], ring)\n", "")]},
    ("union",): {
        "all ranks have the same shard": [("k, n = ring.rank, ring.n", "k, n = 0, ring.n")]
    },
}


@pytest.mark.parametrize("fails, changes", support.mistakes(IN_TRAINING, core=0))
def test_a_mistake_in_the_training_is_caught(fails, changes, quick, tmp_path):
    """The mistaken script ends well."""
    with support.fails_comparison(fails):
        check_training(quick, tmp_path, changes, n=2)


@pytest.mark.plants_mistakes
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_scripts_with_a_mistake_in_the_sum_run(tmp_path):
    support.run_well(support.changed(SCRIPT, MISTAKES), tmp_path, ps=0)


# What goes wrong on the way.


HURRIED = ('"REQUIRED_WAIT_SECONDS", 120', '"REQUIRED_WAIT_SECONDS", 2')


def at_step(step, what):
    """A change by which a worker does something after so many steps."""
    return [
        (
            ring_workers.IN_THE_LOOP,
            f"        if metrics.step == {step} and {what}\n{ring_workers.IN_THE_LOOP}",
        )
    ]


def test_a_worker_that_dies(quick, tmp_path):
    """Each other one ends at once, with an error that names it."""
    began = time.monotonic()
    kill = at_step(50, ring_workers.RANK + " == 1: os.kill(os.getpid(), 9)")
    codes, output = ring_workers.train(quick, SCRIPT, tmp_path, changes=kill, steps=10**6)
    assert time.monotonic() < began + support.patience(30)
    assert codes == [1, -signal.SIGKILL, 1], output
    assert re.search(r"ConnectionError: worker 1, the (left|right) neighbour: ", output), output
    assert "The ring is broken" in errors.explain(output)


@pytest.mark.long
def test_the_whole_cluster_dies_and_goes_on(quick, tmp_path):
    """From the last checkpoint, which rank 0 alone has."""
    kill = at_step(27, "True: os.kill(os.getpid(), 9)")
    flags = ["--checkpoint-steps", "10"]
    codes, output = ring_workers.train(quick, SCRIPT, tmp_path, *flags, changes=kill, steps=40)
    assert set(codes) <= {1, -signal.SIGKILL} and not any(
        (folder / "result.json").exists() for folder in ring_workers.folders(tmp_path)
    )
    killed = time.time()
    codes, output = ring_workers.train(
        quick, SCRIPT, tmp_path, *flags, changes=ring_workers.RECORD, steps=40
    )
    assert codes == [0] * 3, output
    for folder in ring_workers.folders(tmp_path):
        steps = [r["global_step"] for r in support.pushes(folder) if r["push_time"] > killed]
        assert steps == list(range(21, 41)), folder
        w = np.load(folder / "w.npy")
        assert len(w) == 21 and np.array_equal(
            w, np.load(ring_workers.folders(tmp_path)[0] / "w.npy")
        )


def test_one_of_five_is_gone():
    """Who ends first names it; the others end, too, each because of a neighbour."""
    with ring_workers.rings(SCRIPT, 5) as (script, rings):

        def work(ring):
            script.join(ring, "the same")
            for number in range(100):
                if (ring.rank, number) == (2, 50):
                    return ring_workers.close(ring)
                script.all_reduce(np.ones(1000), ring)

        began = time.monotonic()
        lost = [str(result) for result in ring_workers.run_at_once(rings, work)]
        assert time.monotonic() < began + 10
    assert lost[2] == "None" and all(
        "closed" in message or "Errno" in message for message in lost if message != "None"
    )
    # The end of worker 1 may go around the ring before worker 3 looks, or the other way.
    assert "worker 2, the right neighbour" in lost[1] or "worker 2, the left" in lost[3], lost
    for k in 0, 1, 3, 4:
        assert re.match(
            r"worker (%d, the left|%d, the right) n" % ((k - 1) % 5, (k + 1) % 5), lost[k]
        )


def test_one_of_three_hangs():
    """The others wait for --step-timeout, then each names a neighbour."""
    with ring_workers.rings(SCRIPT, 3, timeout=1) as (script, rings):

        def work(ring):
            script.join(ring, "the same")
            if ring.rank == 1:
                return time.sleep(3)
            script.all_reduce(np.ones(1000), ring)

        began = time.monotonic()
        lost = [str(result) for result in ring_workers.run_at_once(rings, work)]
        assert time.monotonic() < began + 10
    # The first of them says for how long; the other one may see first that this one has gone.
    assert any("silent, or waits itself, for 1 s now" in message for message in lost), lost
    assert all(re.match(r"worker \d, the (left|right) neighbour: ", lost[k]) for k in (0, 2)), lost


def test_strangers_are_sent_away(capfd):
    """What they say is not read as data; the ring forms, and sums, as if they had not been."""
    with ring_workers.rings(SCRIPT, 2) as (script, rings):
        rings[0].hash = 64 * "0"
        other = script.greeting(rings[0], -1)

        def say(text):
            s = socket.create_connection(script.address(rings[0], 0), timeout=10)
            with contextlib.suppress(OSError):  # it is closed before all has been read
                s.sendall(text)
                s.shutdown(socket.SHUT_WR)
            return s

        def answer(s):
            with contextlib.suppress(OSError), s:  # a reset, where not all was read
                return script.receive(s, 1000)
            return b""

        def listens():
            with contextlib.suppress(OSError):
                return say(b"").close() is None

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(script.join, rings[0], "the same")
            support.wait_until(listens, 20, "worker 0 listens")
            strangers = [say(text) for text in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 10**5, other)]
            script.join(rings[1], "the same")
            first.result(timeout=20)
        answers = [answer(s) for s in strangers]
        vectors = [np.arange(5, dtype=np.float32), np.ones(5, np.float32)]
        ring_workers.run_at_once(rings, lambda ring: script.all_reduce(vectors[ring.rank], ring))
    assert answers[:2] == [b"", b""] and answers[2] == script.greeting(rings[0])
    assert np.array_equal(vectors, [[1, 2, 3, 4, 5]] * 2)
    refusals = [line for line in capfd.readouterr().err.splitlines() if "refused" in line]
    assert len(refusals) == 3
    for line in refusals:
        assert line.startswith("worker 0 refused a connection from 127.0.0.1: it is not worker 1")


def test_workers_that_do_not_match(quick, tmp_path):
    """Other flags, or another model: all end, the first one because of that."""
    other = [("join(ring, [vars(flags), ", "join(ring, [vars(flags), cluster.rank, "), HURRIED]
    codes, output = ring_workers.train(quick, SCRIPT, tmp_path, changes=other)
    assert codes == [1] * 3, output
    words = r"worker \d has another script, TF_CONFIG, flags or model than worker \d"
    assert re.search("ConnectionError: " + words, output), output


def test_a_worker_of_another_example(capfd):
    """Catches a greeting that says nothing of the example: with equal flags it would be let in."""
    other = examples.load(examples.main_script("Further-Algorithms/D-PSGD"))
    with ring_workers.rings(SCRIPT, 2) as (script, rings):
        own = [script, other]
        lost = ring_workers.run_at_once(rings, lambda ring: own[ring.rank].join(ring, "the same"))
    assert any(f"worker {k} has another script" in str(lost[1 - k]) for k in (0, 1)), lost
    assert "refused a connection from 127.0.0.1: it is not worker" in capfd.readouterr().err


def config(*addresses):
    """The TF_CONFIG of worker 0."""
    tasks = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
    return {"TF_CONFIG": json.dumps(tasks)}


# (flags, what is set besides, words of the error, exit code); IN_USE: a port that a program has.
IN_USE = "127.0.0.1:%d"
WRONG = [
    (["--step-timeout", "0"], {}, "--step-timeout: must be above 0", 2),
    ([], {}, "(None, None) is not in list", 1),
    ([], {"TF_CONFIG": "{"}, "JSONDecodeError", 1),
    ([], {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "(None, None) is not in list", 1),
    ([], {"TF_CONFIG": config("a:1")["TF_CONFIG"].replace("0}", "5}")}, "is not in list", 1),
    ([], config("a", "b:1"), "not enough values to unpack (expected 2, got 1)", 1),
    ([], config(IN_USE, "127.0.0.1:9"), "Address already in use", 1),
    ([], config("192.0.2.1:0", "127.0.0.1:9"), "Cannot assign requested address", 1),
    (
        *([], config("127.0.0.1:0", "127.0.0.1:9")),
        *("worker 1 did not answer at 127.0.0.1:9 in 2 s", 1),
    ),
]


def test_bad_input_is_raised_and_explained(quick, tmp_path):
    wrong = []
    for number, (flags, env, words, code) in enumerate(WRONG):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "ring_allreduce.py").write_text(examples.replaced(SCRIPT, [HURRIED]))
        with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
            port = IN_USE % server.getsockname()[1]
            env = {name: value.replace(IN_USE, port) for name, value in env.items()}
            process = quick.zygotes[0].run("ring_allreduce.py", flags, folder, **env)
        if process.returncode != code or words not in process.stderr:
            wrong.append(f"not {words}: {process.returncode}, {process.stderr}")
        elif not errors.explain(process.stderr):
            wrong.append(f"not explained: {process.stderr}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_a_worker_that_dies_is_restarted(tmp_path):
    """All end, all start again, and go on from the checkpoint."""
    directory = tmp_path / "run"
    process = recovery.begin(directory, launcher=SCRIPT.parent / "run.sh", TFRUN_RESTARTS="2")
    support.wait_until(lambda: recovery.checkpoint(directory) >= 300, 60, "a checkpoint")
    support.task(directory, "worker", 1).kill()
    result, output = recovery.check_the_end(process, directory)
    assert "worker 1 was killed by SIGKILL; it starts again" in output
    assert "worker 0 failed with exit code 1; it starts again" in output
    assert "worker 1, the" in output
