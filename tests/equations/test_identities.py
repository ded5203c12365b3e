"""What follows from the equations, on losses whose answers are known without a computer."""

import collections
import contextlib
import threading
import time

import in_process
import interleaved
import numpy as np
import problem
import pytest
import support
from lab import examples
from tfrun.apps import references

DYNSGD = examples.main_script("DynSGD")
HOGWILD = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
COMPENSATION = examples.main_script("Further-Algorithms/Delay-Compensation")
DELAYED = examples.main_script("Further-Algorithms/Async-Local-SGD")
BOUNDED = examples.main_script("Further-Algorithms/Bounded-Staleness")


def workers(path, n, loss, start=(0.0,), text=None, ps=1, **flags):
    """n workers of a script that minimise loss(tf, w, number) of w, a list of a vector per ps."""
    import tensorflow as tf2
    import tensorflow.compat.v1 as tf

    named = {"--steps": 10**6, **{"--" + k.replace("_", "-"): v for k, v in flags.items()}}
    if in_process.is_kind(path):

        def gradient_of(w, number):
            with tf2.GradientTape() as tape:
                tape.watch(w)
                value = loss(tf2, [w], number)
            return value, tape.gradient(value, w)

        return in_process.Workers(
            path, n, named, text=text, ps=ps, gradient=gradient_of, start=start
        )

    def parameters(tf):
        value, partitioner = tf.constant(start, tf.float32), tf.fixed_size_partitioner(ps)
        return list(tf.get_variable("w", initializer=value, partitioner=partitioner))

    def gradient(w, number):
        value = loss(tf, w, number)
        return value, tf.gradients(value, w)

    problem = {"gradient": gradient, "parameters": parameters}
    return interleaved.Workers(path, n, named, text=text, ps=ps, **problem)


def bowl(tf, w, _):
    """A unit quadratic around 100."""
    return 0.5 * tf.reduce_sum(tf.square(w[0] - 100))


def noisy_bowl(tf, w, number):
    """A unit quadratic around 0, with noise of its own in the gradient of each mini-batch."""
    noise = tf.random.stateless_normal([1], tf.stack([1, number]))
    return tf.reduce_sum(0.5 * tf.square(w[0]) + noise * w[0])


@pytest.mark.long
def test_the_gradients_of_a_window_differ():
    """From 0 at lr 0.1 they are -100 * 0.9^j: the sums of T differ by just these."""
    script, sums = examples.main_script("DOWNPOUR-Easy"), [0.0]
    for T in range(1, 8):
        with workers(script, 1, bowl, local_steps=T, learning_rate=0.1) as group:
            group.workers[0].push()
            sums.append(group.values()["parameters"][0] / -0.1)  # w has moved by -lr times the sum
    assert np.allclose(np.diff(sums), [-100 * 0.9**j for j in range(7)], rtol=1e-4), np.diff(sums)


def in_a_ring(path, n, rounds, random=None, text=None, **flags):
    """The largest |w| in the last half of the run, when n workers push in turn or at random.

    One graph stands for all n: what tells them apart is only when they have pulled.
    """
    with workers(path, 1, noisy_bowl, [1.0], text, **flags) as (one, *_):
        held, seen = [one.pull() for _ in range(n)], []
        for push in range(rounds * n):
            k = random.randint(n) if random else push % n
            one.push(held[k])
            held[k] = one.pull()
            seen.append(abs(float(held[k][1][0])))
            if not seen[-1] < 1e6:
                break
        return max(seen[len(seen) // 2 :])


@pytest.mark.long
@pytest.mark.parametrize(
    "folder, n, random, grows",
    [
        pytest.param("DOWNPOUR-Easy", 3, False, False, marks=pytest.mark.long),
        ("DOWNPOUR-Easy", 8, False, True),
        pytest.param("DOWNPOUR-Easy", 20, True, True, marks=pytest.mark.nightly),
        pytest.param("ADAG", 8, False, False, marks=pytest.mark.long),
        pytest.param("ADAG", 20, False, False, marks=pytest.mark.long),
        pytest.param("ADAG", 20, True, False, marks=pytest.mark.nightly),
    ],
)
def test_the_sum_diverges_with_many_workers_and_the_mean_does_not(folder, n, random, grows):
    """T = 10, lr = 0.05. In turn, a step of s = 1 - 0.95^T = 0.40, n - 1 late, is stable where
    s < 2 sin(pi / (4 n - 2)): up to n = 4. The mean's step is a tenth, stable up to n = 39."""
    script, random = examples.main_script(folder), np.random.RandomState(0) if random else None
    largest = in_a_ring(script, n, 40, random, local_steps=10, learning_rate=0.05)
    assert (largest > 10) == grows, largest


def test_the_elastic_move_conserves_the_sum():
    """Without a gradient w + w_0 + w_1 + w_2 stays what it is, however they interleave."""

    def flat(tf, w, _):
        return 0.0 * tf.reduce_sum(w[0])

    with workers(
        examples.main_script("AEASGD"), 3, flat, [5.0, 1.0], local_steps=3, rho=3
    ) as group:
        for k, worker in enumerate(group):
            worker.own = worker.tf.constant([k**2, -3.0 * k])

        def everything():
            values = group.values()
            return values["parameters"] + sum(np.split(values["own parameters"], 3))

        before, values = everything(), group.values()
        schedule = "pull 0, pull 1, push 1, pull 2, push 0, push 2".split(", ")
        turns = [turn.split() for turn in 4 * schedule]
        group.follow([(what, int(k)) for what, k in turns])
        moved = np.abs(group.values()["own parameters"] - values["own parameters"])
        least = min(one.max() for one in np.split(moved, 3))
        assert np.allclose(everything(), before, atol=1e-5) and least > 0.3


@pytest.mark.long
@pytest.mark.parametrize("factor, grows", [(0.97, False), (1.03, True)])
def test_where_elastic_averaging_stops_to_be_stable(factor, grows):
    """Three workers in turn, T = 1: stable for alpha <= (4 - 2 lr) / (4 - lr)."""
    lr = 0.4
    alpha = factor * (4 - 2 * lr) / (4 - lr)

    def unit(tf, w, _):
        return 0.5 * tf.reduce_sum(tf.square(w[0]))

    flags = dict(local_steps=1, learning_rate=lr, rho=alpha / lr)
    with workers(examples.main_script("AEASGD"), 3, unit, [1.0], **flags) as group:
        for push in range(300):
            group.workers[push % 3].push()
        last = abs(group.values()["parameters"][0])
    assert last > 2 if grows else last < 0.5, last


class LateForce(references.Elastic):
    """Sends E after the gradient, so that all others have moved w since the pull."""

    def update(self, k, version, pulled):
        force = [
            self.lr * self.hyperparameters["rho"] * (p - c) for p, c in zip(self.own[k], pulled)
        ]
        _, g = self.gradient(k, version, self.own[k])
        self.w = [c + e for c, e in zip(self.w, force)]
        self.own[k] = [p - self.lr * d - e for p, d, e in zip(self.own[k], g, force)]


def test_a_force_that_is_a_gradient_late_diverges_where_the_papers_order_does_not():
    """The figures of the page: eight workers in turn, T = 1, on w^2 / 2."""
    last = []
    for reference in LateForce, references.Elastic:
        flags = {"local_steps": 1, "rho": 0.225 / 0.4}
        those = reference([np.ones(1)], 8, lambda k, number, w: (0.0, w), 0.4, **flags)
        for k in range(8):
            those.pull(k)
        for push in range(200 * 8):
            those.push(push % 8)
            those.pull(push % 8)
        last.append(abs(those.w[0][0]))
    assert last[0] > 1e6 and last[1] < 1e-35, last


@pytest.mark.long
@pytest.mark.parametrize(
    "speeds, expected",
    [
        pytest.param([1, 1], np.log(2), marks=pytest.mark.long),
        pytest.param([1] * 4, np.log(4) / 3, marks=pytest.mark.long),
        ([1, 3], 0.761),
    ],
)
def test_the_mean_step_of_dynsgd(speeds, expected):
    """E[1 / (tau + 1)] is ln n / (n - 1) for n workers alike, whose steps take exponential times
    and who pull again at once; not so when one of two is three times as fast."""
    n, pushes, random = len(speeds), 700, np.random.RandomState(3)

    def slope(tf, w, _):
        return -tf.reduce_sum(w[0])

    with workers(DYNSGD, 1, slope, learning_rate=1.0) as group:
        (one,) = group
        held = [one.pull() for _ in range(n)]
        for _ in range(pushes):
            k = random.choice(n, p=np.array(speeds) / sum(speeds))  # who is next, without a memory
            one.push(held[k])
            held[k] = one.pull()
        steps = group.values()["parameters"][0]  # each moved w by 1 / (tau + 1)
    assert abs(steps / pushes - expected) < 0.03, steps / pushes


def all_ones(tf, w, _):
    """A slope of 1 in each number; not quite, or its gradient would be known before the pull."""
    return tf.add_n([tf.reduce_sum(v) + 1e-12 * tf.reduce_sum(tf.square(v)) for v in w])


def push_at_once(text=None):
    """Three threads push at once to DynSGD; every gradient is 1, so each step tells its tau.

    On each of two ps all numbers of w move alike. The first one has the clock.
    """
    Push = collections.namedtuple("Push", "version ticket low high")
    pushes = []
    run = workers(DYNSGD, 3, all_ones, np.zeros(30000), text, ps=2, learning_rate=1.0)
    with run as group:

        def work(worker):
            for _ in range(60):
                version, w_k = worker.pull()
                _, ticket, _ = worker.push((version, w_k))
                numbers = w_k.numpy()[:15000]
                pushes.append(Push(int(version), ticket, numbers.min(), numbers.max()))

        threads = [threading.Thread(target=work, args=[worker]) for worker in group]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        last = group.values()["parameters"]
    pushes.sort(key=lambda push: push.ticket)
    assert [push.ticket for push in pushes] == list(range(180)), "tickets"
    late = [push.ticket - push.version for push in pushes]
    assert max(late) >= 1, "staleness: nothing was late"
    after = -np.cumsum([0] + [1 / (tau + 1) for tau in late])  # w after so many updates
    apart = np.abs(last - after[-1]).max()
    assert apart < 1e-3, f"steps: {apart:g} apart"
    torn = max(
        abs(number - after[push.version]) for push in pushes for number in (push.low, push.high)
    )
    assert torn < 1e-3, f"pulls: {torn:g} apart from w after as many updates as the clock says"


def test_clock_and_update_of_dynsgd_are_one():
    push_at_once()


MOVED = """            with tf.control_dependencies([ticket]):
                moved = w.assign_sub(flags.learning_rate / (tau + 1) * a)
            with tf.control_dependencies([moved]):
                return ticket, *read()  # w after this update: the next pull comes with the push

        return lock.execute(move)
"""
MOVED_LATER = """            return ticket, tau

        ticket, tau = lock.execute(move)
        late = tf.numpy_function(lambda x: time.sleep(0.002) or x, [ticket], tf.int64)
        with tf.control_dependencies([late]):
            moved = w.assign_sub(flags.learning_rate / (tau + 1) * a)
        with tf.control_dependencies([moved]):
            return ticket, *read()
"""
# (the comparison that fails,): {the mistake: [(text, what replaces it)]}
OUTSIDE = {
    ("steps",): {
        "the clock is read before the lock is taken": [
            ("        def move():\n", "        seen = step.read()\n\n        def move():\n"),
            ("tf.cast(ticket - version,", "tf.cast((seen if step.is_first else ticket) - version,"),
        ],
    },
    ("pulls",): {
        "the update comes after the lock is given back": [(MOVED, MOVED_LATER)],
        "a pull takes no lock": [
            ("lambda: lock.execute(read)", "read"),
            (
                "            with tf.control_dependencies([ticket]):\n                moved",
                "            late = tf.numpy_function(lambda x: time.sleep(0.002) or x, [ticket], "
                "tf.int64)\n"
                "            with tf.control_dependencies([late]):\n                moved",
            ),
            (
                "        return step.read(), w.read_value()",
                "        version = step.read()\n        with tf.control_dependencies([version]):\n"
                "            return version, w.read_value()",
            ),
        ],
    },
}


@pytest.mark.long
@pytest.mark.parametrize("fails, changes", support.mistakes(OUTSIDE, core=2))
def test_a_clock_apart_from_its_update_is_caught(fails, changes):
    with support.fails_comparison(fails):
        push_at_once(examples.replaced(DYNSGD, changes))


def delay_between_parts(changes=()):
    """Worker 0 is late between two parts: its step on the second has the staleness of the first."""
    text = examples.replaced(DYNSGD, changes)
    with workers(DYNSGD, 2, all_ones, [0.0, 0.0], text, ps=2, learning_rate=1.0) as group:
        one, other = group
        version, _ = one.pull()
        first, second = one.ps.parts["w"]
        a = one.tf.ones([1])
        ticket, after, _ = one.ps.call_one("push", first, version, a).get_value()
        for _ in range(3):
            other.push()
        before = group.values()["parameters"]
        one.ps.call_one("push", second, version, a, counts=(ticket, after)).get_value()
        moved = group.values()["parameters"] - before
    assert np.allclose(moved, [0, -1], atol=1e-6), f"moved: {moved}, not the second part by 1"


def test_a_push_has_one_staleness_on_all_parts():
    """Catches a part that counts by itself: three updates came between this push's two messages."""
    delay_between_parts()
    with support.fails_comparison("moved"):
        delay_between_parts(
            [
                (
                    "    lock = tf.Crit",
                    "    own = tf.Variable(0, dtype=tf.int64)\n    lock = tf.Crit",
                ),
                ("tf.cast(ticket - version,", "tf.cast(own.assign_add(1) - 1 - version,"),
            ]
        )


# Half an update: each ps has a part of w, which it updates as a whole, but apart from the others.


def moved_by_the_first_part(ps, changes=()):
    """The share of w that has moved when one worker pulls in the midst of another one's push.

    The push has reached one part of w, the first, and none of the others.
    """
    text, flags = examples.replaced(HOGWILD, changes), problem.command_line({})
    with interleaved.Workers(HOGWILD, 2, flags, text=text, ps=ps) as (one, other):
        before = other.session.run(other.update.pulled)
        ops = one.session.graph.get_operations()
        first = next(op for op in ops if op.type == "AssignSubVariableOp")
        one.session.run(first)
        after = other.session.run(other.update.pulled)
    moved = [np.abs(a - b).max() > 0 for a, b in zip(before, after)]
    return np.average(moved, weights=[len(part) for part in before])


def check_halves(changes=()):
    """With one ps a pull sees all of an update or nothing, with two perhaps a half."""
    shares = [moved_by_the_first_part(ps, changes) for ps in (1, 2)]
    assert np.allclose(shares, [1, 0.5], atol=0.01), f"moved: {shares} of w, not all and half"


MORE_PARTS = ("fixed_size_partitioner(ps)", "fixed_size_partitioner(2 * ps)")


def test_a_pull_sees_half_an_update_only_with_two_ps():
    check_halves()
    with support.fails_comparison("moved"):
        check_halves([MORE_PARTS])


def check_pulls(changes=()):
    """No pull from one ps has numbers of different updates, while another worker pushes.

    Each update moves all numbers by the same.
    """
    over, torn, text = threading.Event(), 0, examples.replaced(HOGWILD, changes)
    run = workers(HOGWILD, 2, all_ones, np.zeros(300000), text, learning_rate=1.0)
    with run as (one, other):

        def push():
            while not over.is_set():
                one.push()

        thread = threading.Thread(target=push)
        thread.start()
        try:
            for _ in range(100):
                numbers = interleaved.flat(other.session.run(other.update.pulled))
                torn += int(numbers.min() != numbers.max())
        finally:
            over.set()
            thread.join()
        assert np.abs(numbers).max() > 5, f"only {np.abs(numbers).max():g} updates meanwhile"
    assert torn == 0, f"torn: {torn} of 100 pulls"


IN_HALVES = [
    ("v.assign_sub(d)", "in_halves(v, d)"),
    (
        "def algorithm(",
        """def in_halves(v, d):
    first = tf.one_hot(0, tf.size(d))
    with tf.control_dependencies([v.assign_sub(d * first)]):
        pause = tf.numpy_function(lambda: time.sleep(0.01), [], [])
    with tf.control_dependencies([pause]):
        return v.assign_sub(d * (1 - first))


def algorithm(""",
    ),
]


def test_a_part_of_w_is_pulled_and_updated_as_a_whole():
    check_pulls()
    with support.fails_comparison("torn"):
        check_pulls(IN_HALVES)


# Delay compensation.


def test_compensation_is_exact_where_the_squared_gradient_is_the_hessian():
    """On h/2 (w - c)^2 with g^2 = h at the pull, a late push steps as a fresh gradient does."""
    h, c, lr = np.array([4.0, 0.25]), np.array([1.0, -3.0]), 0.1
    start = c + 1 / np.sqrt(h)

    def bowls(tf, w, _):
        return 0.5 * tf.reduce_sum(tf.square(w[0] - c) * h)

    flags = dict(learning_rate=lr, compensation=1.0)
    with workers(COMPENSATION, 2, bowls, start, **flags) as group:
        late, other = group
        held = late.pull()
        other.push()
        other.push()
        late.push(held)
        last = group.values()["parameters"]
    before = start - (1 - (1 - lr * h) ** 2) * (start - c)
    assert np.allclose(last, before - lr * h * (before - c), atol=1e-6), last
    assert np.abs(last - (before - lr * h * (start - c))).max() > 0.01, "that is HogWild's step"


# Momentum on the ps, moved at every N-th push.


def test_n_pushes_together_are_one_step_of_nesterov():
    """On their mean, as Keras makes it, whoever pushes first. Three workers, N = 3, five times."""
    import keras

    rate, beta, T, orders = 0.3, 0.9, 2, [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)]
    flags = {"local_steps": T, "momentum_delay": 3, "outer_rate": rate, "outer_momentum": beta}
    gradient = problem.gradient_on_digits(3)
    with in_process.workers(DELAYED, 3, problem.command_line(flags), ps=2) as group:
        w = [keras.Variable(v, dtype="float64") for v in group.parameters()]
        nesterov = keras.optimizers.SGD(rate, beta, nesterov=True)
        for number, order in enumerate(orders):
            held = [worker.pull() for worker in group]
            for k in order:
                group.workers[k].push(held[k])
            before, ends = [v.numpy() for v in w], []
            for k in order:
                w_k = before
                for t in range(T):
                    _, g = gradient(k, 3 * number * T + t, w_k)
                    w_k = [v - problem.LR * d for v, d in zip(w_k, g)]
                ends.append(w_k)
            d = [v - sum(parts) / 3 for v, parts in zip(before, zip(*ends))]
            nesterov.apply([keras.ops.convert_to_tensor(e) for e in d], w)
        apart = max(np.abs(a - b.numpy()).max() for a, b in zip(group.parameters(), w))
    assert apart < 1e-5, f"{apart} apart"


def nth_on_two_parts(changes=()):
    """Worker 0 is late between two parts; meanwhile the other one makes the N-th push, N = 2."""
    text = examples.replaced(DELAYED, changes)
    flags = dict(local_steps=1, learning_rate=1.0, outer_rate=1.0, outer_momentum=0.5)
    run = workers(DELAYED, 2, all_ones, [0.0, 0.0], text, ps=2, momentum_delay=2, **flags)
    with run as group:
        one, other = group
        first, second = one.ps.parts["w"]
        d = one.tf.ones([1])
        counts = one.ps.call_one("push", first, d).get_value()[:2]
        other.push()
        one.ps.call_one("push", second, d, counts=counts).get_value()
        values = group.values()
    # On the second part the late push waits in the buffer for the next N-th one.
    for name, due in {"velocity": [1, 0.5], "buffer": [0, 1]}.items():
        assert np.allclose(values[name], due, atol=1e-6), f"{name}: {values[name]}, not {due}"


def test_all_parts_agree_which_push_is_the_nth():
    """Catches a part that counts by itself, and so moves its velocity at another push."""
    nth_on_two_parts()
    with support.fails_comparison("velocity"):
        nth_on_two_parts(
            [
                ("    N, beta, lock", "    own = tf.Variable(0)\n    N, beta, lock"),
                ("tf.equal((ticket + 1) % N, 0)", "tf.equal(own.assign_add(1) % N, 0)"),
            ]
        )


def check_delay(delay, grows, changes=()):
    """Eight workers push in turn, each seven late, on a quadratic of curvature 1.

    Each push moves w at once as far, whatever the delay of the momentum.
    """
    flags = dict(local_steps=1, learning_rate=0.2, outer_momentum=0.9)
    flags |= dict(momentum_delay=delay, outer_rate=0.125 * delay)
    text = examples.replaced(DELAYED, changes)
    largest = in_a_ring(DELAYED, 8, 60, text=text, **flags)
    assert (largest > 10) == grows, f"largest: |w| = {largest}"


@pytest.mark.long
@pytest.mark.parametrize(
    "delay, grows", [pytest.param(1, True, marks=pytest.mark.long), (8, False)]
)
def test_delaying_the_momentum_makes_late_pushes_stable(delay, grows):
    check_delay(delay, grows)


@pytest.mark.plants_mistakes
@pytest.mark.long
def test_momentum_at_every_push_is_caught():
    """It makes all N of them grow."""
    at_once = [("tf.equal((ticket + 1) % N, 0)", "ticket >= 0")]
    with support.fails_comparison("largest"):
        check_delay(8, False, at_once)


# Bounded staleness: every gradient is 1, so w says how many updates it has had.

PUSH = "        with tf.control_dependencies([ticket]):\n            moved = w"
SLOW_PUSH = """        late = tf.numpy_function(lambda x: time.sleep(0.01) or x, [ticket], tf.int64)
        with tf.control_dependencies([late]):
            moved = w"""


def run_bounded(lead, changes=()):
    """Runs three workers at once, of which worker 0 is slow, and each push takes 10 ms.

    Returns [(ticket, worker, its clock before the update, updates in the w that it pulled)].
    """
    text, pushes = examples.replaced(BOUNDED, [(PUSH, SLOW_PUSH), *changes]), []
    flags = dict(steps=60, learning_rate=1.0, max_lead=lead)
    with workers(BOUNDED, 3, all_ones, [0.0], text, **flags) as group:
        errors = group.tf.errors
        first = [worker.pull() for worker in group]  # all are known before any has pushed

        def work(k, worker):
            for clock in range(60):
                time.sleep(0.05 * (k == 0))
                with contextlib.suppress(errors.OutOfRangeError):
                    held = worker.pull() if clock else first[k]
                    _, ticket, _ = worker.push(held)
                    pushes.append((ticket, k, clock, round(-float(held.w[0]))))

        threads = [threading.Thread(target=work, args=arguments) for arguments in enumerate(group)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    return sorted(pushes)


def check_bound(lead, changes=()):
    """No worker is more than `lead` updates ahead; one is by as many; each pulls what it must."""
    clocks, apart, lacks = np.zeros(3, int), 0, 0
    pushes = run_bounded(lead, changes)
    assert [ticket for ticket, *_ in pushes] == list(range(60)), "tickets"
    for _, k, clock, pulled in pushes:
        assert clocks[k] == clock, "clocks"
        clocks[k] += 1
        apart = max(apart, np.ptp(clocks))
        lacks = max(lacks, clock + 2 * max(0, clock - lead + 1) - pulled)
    assert apart == lead, f"apart: {apart} updates, where {lead} are allowed"
    assert lacks <= 0, f"pulled: w lacks {lacks} updates that it must have had"


@pytest.mark.parametrize("lead", [pytest.param(1, marks=pytest.mark.long), 4])
def test_no_worker_is_too_far_ahead(lead):
    check_bound(lead)


NOTED = (
    "        self.seconds = seconds\n",
    "        self.seconds = seconds\n        MADE.append(self)\n",
)


def check_the_idle(changes=()):
    """Worker 2 pauses: after a time the others go on without it; then it has the slowest's clock.

    Before, all push for longer than that, and each counts.
    """
    limit = round(support.patience(3))
    edits = [NOTED, ("class Clocks:", "MADE = []\n\n\nclass Clocks:"), *changes]
    text = examples.replaced(BOUNDED, edits)
    flags = dict(learning_rate=1.0, max_lead=2, step_timeout=limit)
    with workers(BOUNDED, 3, all_ones, [0.0], text, **flags) as group:
        one, two, paused = group
        for worker in group:  # all are known before any has pushed
            worker.script.ask_first(worker.ps, "lead")
        for _ in range(3):
            time.sleep(0.4 * limit)
            for worker in group:
                worker.push()
        one.push()
        one.push()
        push = interleaved.start(one.push)  # three updates ahead, if nothing holds it
        time.sleep(0.4)
        waits = not push.done()
        two.push()
        two.push()
        began = time.monotonic()
        push.result(60)
        for _ in range(8):
            one.push()
            two.push()
        seconds = time.monotonic() - began
        one.push()
        paused.push()
        keys, rows = (part.numpy() for part in group.script.MADE[0].table.export())
    clocks = {int(key): int(clock) for key, (clock, _) in zip(keys, rows)}
    assert waits, "too far: worker 0 is 3 updates ahead"
    assert seconds < limit + 5, f"updates: {seconds:.0f} s for nine that need not wait"
    assert clocks == {0: 15, 1: 13, 2: 14}, f"clocks: {clocks}"


@pytest.mark.long
def test_a_worker_without_an_update_stops_nobody_and_goes_on_with_the_slowest():
    check_the_idle()


def check_four(changes=()):
    check_bound(4, changes)


def check_one(changes=()):
    check_bound(1, changes)


LEAD = "lambda lead, _: lead >= flags.max_lead"
PULLED = """    with tf.control_dependencies(waited):
        pulled = ps.pull()
"""
# (the check, the comparison that fails): {the mistake: [(text, what replaces it)]}
CORE_BOUNDS = {
    (check_four, "apart"): {
        "one update too far": [(LEAD, LEAD.replace(">=", ">"))],
        "nobody waits for the slowest, but for the fastest": [
            ("tf.minimum(fastest, tf.reduce_min(tf.where(counts, clock, fastest)))", "fastest")
        ],
        "one update too strict": [(LEAD, LEAD + " - 1")],
    },
}
BOUNDS = {
    (check_one, "pulled"): {
        "the push waits, not the pull": [
            ("    start = [ask_first", "    pulled = ps.pull()\n    start = [ask_first"),
            (PULLED, ""),
        ],
        "the clock moves before the push": [
            (
                "        late = tf.numpy_function(lambda x: time.sleep(0.01) or x, [ticket]",
                "        with tf.control_dependencies([clocks.count(step.worker)]):\n"
                "            now = tf.identity(ticket)\n"
                "        late = tf.numpy_function(lambda x: time.sleep(0.01) or x, [now]",
            ),
            (
                "            clocks.count(step.worker)\n        return",
                "            pass\n        return",
            ),
        ],
    },
    (check_the_idle, "updates"): {
        "a worker without an update counts": [
            ("- seen < self.seconds", "- seen < 4 * self.seconds")
        ]
    },
    (check_the_idle, "too far"): {
        "the time of an update is not noted": [("[[clock, tf.timestamp()]]", "[[clock, 0.0]]")]
    },
    (check_the_idle, "(too far|clocks)"): {
        "it goes on with the fastest": [
            (
                "tf.maximum(self.table.lookup(worker)[0], self.slowest())",
                "tf.maximum(tf.reduce_max(self.table.export()[1][:, 0]), 0)",
            )
        ],
    },
    (check_the_idle, "clocks"): {
        "it goes on from its old clock": [
            (
                "tf.maximum(self.table.lookup(worker)[0], self.slowest())",
                "self.table.lookup(worker)[0]",
            )
        ],
    },
}


@pytest.mark.long
@pytest.mark.parametrize(
    "check, fails, changes",
    [*support.mistakes(CORE_BOUNDS, core=1), *support.mistakes(BOUNDS, core=0)],
)
def test_a_mistake_about_the_bound_is_caught(check, fails, changes):
    with support.fails_comparison(fails):
        check(changes)


@pytest.mark.plants_mistakes
@pytest.mark.nightly
def test_the_mistaken_scripts_run(tmp_path):
    slow = examples.replaced(BOUNDED, [(PUSH, SLOW_PUSH)])
    texts = support.changed(DYNSGD, OUTSIDE) | support.changed(slow, CORE_BOUNDS | BOUNDS)
    texts["in halves"] = examples.replaced(HOGWILD, IN_HALVES)
    texts["in more parts"] = examples.replaced(HOGWILD, [MORE_PARTS])
    support.run_well(texts, tmp_path)
