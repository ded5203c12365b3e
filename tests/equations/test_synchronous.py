"""Synchronous updates: who takes part in a step, and what the step is."""

import collections
import contextlib
import re
import signal
import time

import equations
import in_process
import interleaved
import numpy as np
import problem
import pytest
import support
from lab import examples
from tfrun.apps import perceptron, references
from tfrun.runs import summary
from tfrun.runs.data import RunData

SYNC = examples.main_script("Synchronous-SGD")
SAGN = examples.main_script("SAGN")
RATES = examples.main_script("Synchronous-SGD-different-learning-rates")
LOCAL = examples.main_script("Further-Algorithms/Local-SGD")
DILOCO = examples.main_script("Further-Algorithms/DiLoCo")
SCRIPTS = equations.compared(equations.TOGETHER)


def group(script, n, flags, text=None, ps=2):
    """Its workers, with w on two ps."""
    return in_process.Workers(script, n, problem.command_line(flags), text=text, ps=ps)


def check(workers, first, expected, pushes, due):
    """The named comparisons of numbers that a mistake must fail."""
    last, due_values = workers.values(), expected.values()
    if not isinstance(expected, equations.of(workers.path).REFERENCE):  # an identity: w alone
        last = {name: last[name] for name in due_values}
    interleaved.check(first, last, due_values, pushes, due, least=0.01)


def compare(script, n=2, reference=None, flags=None, text=None, seconds=20):
    """Asserts that n workers make the steps of the reference, in all that the reference has.

    Reference and flags are those of the script's file unless others are given. seconds: in which a
    step must end.
    """
    file = equations.of(script)
    reference = reference or file.REFERENCE
    flags = file.FLAGS if flags is None else flags
    with group(script, n, flags, text) as workers:
        first, pushes, due = workers.values(), [], []
        gradient = problem.gradient_on_digits(n)
        expected = reference(workers.parameters(), n, gradient, problem.LR, **flags)
        for step in range(12):
            pushes += workers.joint_step(seconds=seconds)
            due += [(loss, step, 0) for loss in expected.joint_step(range(n))]
        check(workers, first, expected, pushes, due)


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_the_step_is_the_equation(script, n):
    compare(script, n)


def warm_up(text=None, n=3):
    """The rate grows from lr / N to lr."""
    compare(SYNC, n, flags={"warmup_steps": 5}, text=text)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3])
def test_a_warm_up(n):
    warm_up(n=n)


@pytest.mark.long
@pytest.mark.parametrize("script", [SAGN, LOCAL], ids=equations.ids)
def test_one_local_step_is_synchronous_sgd(script):
    compare(script, reference=references.Synchronous, flags={"local_steps": 1})


class Alone(references.Synchronous):
    """Plain SGD, T steps at a time."""

    def joint_step(self, those):
        T = self.hyperparameters["local_steps"]
        for number in range(self.step * T, self.step * T + T):
            loss, g = self.gradient(0, number, self.w)
            self.w = [v - self.lr * d for v, d in zip(self.w, g)]
        self.step += 1
        return [loss]


@pytest.mark.parametrize("T", [1, pytest.param(5, marks=pytest.mark.long)])
def test_local_sgd_of_one_worker_is_plain_sgd(T):
    compare(LOCAL, n=1, reference=Alone, flags={"local_steps": T})


class KerasAdamW(references.Synchronous):
    """AdamW of Keras, with a warm-up, T steps at a time."""

    def __init__(self, w, *more, **hyperparameters):
        import keras

        super().__init__(w, *more, **hyperparameters)
        self.variables = [keras.Variable(v, dtype="float64") for v in w]
        self.optimizer = keras.optimizers.AdamW(0.0, hyperparameters["weight_decay"])
        self.optimizer.build(self.variables)

    def joint_step(self, those):
        T, hyperparameters = self.hyperparameters["local_steps"], self.hyperparameters
        for number in range(self.step * T, self.step * T + T):
            loss, g = self.gradient(0, number, [v.numpy() for v in self.variables])
            warm = min(1, (number + 1) / hyperparameters["warmup_steps"])
            self.optimizer.learning_rate = hyperparameters["learning_rate"] * warm
            # Keras adds epsilon before it corrects the second moment, the paper afterwards.
            self.optimizer.epsilon = hyperparameters["epsilon"] * np.sqrt(1 - 0.999 ** (number + 1))
            self.optimizer.apply(g, self.variables)
        self.w = [v.numpy() for v in self.variables]
        self.step += 1
        return [loss]


@pytest.mark.long
def test_diloco_of_one_worker_without_momentum_is_adamw():
    """Its moments last from round to round, as if there were no rounds."""
    flags = {**equations.of(DILOCO).FLAGS, "outer_rate": 1, "outer_momentum": 1e-30}
    compare(DILOCO, n=1, reference=KerasAdamW, flags=flags)


def test_equal_rates_that_add_up_to_lr_are_synchronous_sgd():
    lr = problem.LR
    with group(RATES, 2, {"learning_rate": None, "learning_rates": [lr / 2, lr / 2]}) as workers:
        first, gradient = workers.parameters(), problem.gradient_on_digits(2)
        expected = references.Synchronous(first, 2, gradient, lr)
        for _ in range(12):
            workers.joint_step()
            expected.joint_step([0, 1])
        assert max(np.abs(a - b).max() for a, b in zip(workers.parameters(), expected.w)) < 1e-5


@pytest.mark.long
def test_several_workers_are_one_on_the_union_of_their_batches():
    with group(SYNC, 3, {}) as workers:
        w = [np.array(v, np.float64) for v in workers.parameters()]
        for step in range(10):
            workers.joint_step()
            _, w = problem.union_step(w, 3, step)
            apart = max(np.abs(a - b).max() for a, b in zip(workers.parameters(), w))
            assert apart < 1e-6 * (step + 1), apart


def late(text=None, **more):
    """With one backup worker the first two of three make the steps; the third comes too late."""
    hyperparameters = {"backup_workers": 1, **more}
    with group(SYNC, 3, hyperparameters, text) as workers:
        first, pushes, due = workers.values(), [], []
        gradient = problem.gradient_on_digits(3)
        expected = references.Synchronous(
            workers.parameters(), 3, gradient, problem.LR, **hyperparameters
        )
        for step in range(0, 12, 2):
            slow = step // 2 % 3
            fast = [k for k in range(3) if k != slow]
            held = workers.workers[slow].pull()
            was = [v.copy() for v in expected.w]
            for number in (step, step + 1):
                pushes += workers.joint_step(those=fast)
                due += [(loss, number, 0) for loss in expected.joint_step(fast)]
            pushes.append(workers.workers[slow].push(held))
            due.append((gradient(slow, step, was)[0], step + 2, 2))
        check(workers, first, expected, pushes, due)


def test_a_late_gradient_is_dropped_and_counted():
    late()


def late_and_warm(text=None):
    """The warm-up counts the gradients that make a step, without the backup's."""
    late(text, warmup_steps=5)


@pytest.mark.long
def test_a_warm_up_with_a_backup_worker():
    late_and_warm()


def wait(text=None):
    """Workers that have reported go on only when the last has, too."""
    with group(SYNC, 3, {}, text) as workers:
        workers.joint_step()  # it traces the functions, which may take a second
        pushes, wrong = workers.started([0, 1]), []
        time.sleep(1)
        if on := sum(push.done() for push in pushes):
            wrong.append(f"steps: {on} of two go on before the third")
        if (global_step := workers.servers.vector("global_step")[0]) != 1:
            wrong.append(f"steps: two of three made {global_step - 1}")
        if not wrong:
            pushes += workers.started([2])
            steps = [step for _, step, _ in interleaved.ended(pushes, 20)]
            if steps != [1, 1, 1] or workers.servers.vector("global_step")[0] != 2:
                wrong.append(f"steps: all of three made {steps}")
        assert not wrong, "\n".join(wrong)


def test_nobody_goes_on_before_the_step():
    wait()


ZEROS = "tf.Variable(w[:0], shape=[None])", "tf.Variable(tf.zeros_like(w))"  # none is empty
WARM_UP = "(1 / N + (1 - 1 / N) * done)"
# Of Synchronous-SGD, beside those of its file.
# (the check, the comparison that fails): {the mistake: [(text, what replaces it)]}
MISTAKES = {
    (late_and_warm, "parameters"): {
        "the warm-up counts the backup workers, too": [
            ("warmed_up(steps, N, flags)\n", "warmed_up(steps, N + 1, flags)\n")
        ]
    },
    (late, "parameters"): {
        "all slots count, whoever is there": [
            ("move_by(step.read(), ranks)", "move_by(step.read(), tf.range(3))"),
            ZEROS,
        ],
        "another part takes all slots, whoever is there": [
            ("move_by(step.version - 1, step.ranks)", "move_by(step.version - 1, tf.range(3))"),
            ZEROS,
        ],
    },
    (wait, "steps"): {
        "a worker goes on before the step": [("lambda t: t <= version", "lambda t: t < version")]
    },
    (warm_up, "parameters"): {
        "the warm-up begins at zero": [(WARM_UP, "done")],
        "the warm-up begins at lr": [(WARM_UP, "1.0")],
    },
}


CORE = [SAGN]  # of their mistakes the tier core has some


@pytest.mark.parametrize(
    "script, fails, changes",
    [
        *equations.mistakes(CORE, core=1),
        *equations.mistakes([script for script in SCRIPTS if script not in CORE], core=0),
    ],
)
def test_a_mistake_is_caught(script, fails, changes):
    """On three workers."""
    text = examples.replaced(script, changes)
    with support.fails_comparison(fails):
        compare(script, n=3, text=text, seconds=support.patience(8))


@pytest.mark.long
@pytest.mark.parametrize("check, fails, changes", support.mistakes(MISTAKES, core=1))
def test_a_mistake_in_who_takes_part_is_caught(check, fails, changes):
    text = examples.replaced(SYNC, changes)
    with support.fails_comparison(fails):
        check(text)


@pytest.mark.plants_mistakes
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_mistaken_scripts_run(tmp_path):
    support.run_well(support.changed(SYNC, MISTAKES), tmp_path)


@contextlib.contextmanager
def three_workers(directory, *flags, folder=SYNC.parent, **env):
    """A run of Synchronous-SGD whose workers are told to stop and go on, once it trains."""
    env = {"WORKERS": "3", **env}
    with support.Run(folder / "run.sh", directory, "--steps", "100000", *flags, **env) as run:
        support.wait_until(lambda: run.step() >= 20, 60, "it trains")
        yield run


@pytest.mark.long
@pytest.mark.parametrize(
    "folder", ["Synchronous-SGD", "From-TensorFlow-1/Synchronous-SGD-Optimizer"]
)
def test_a_paused_worker_and_a_backup(folder, tmp_path):
    """With a backup worker the others go on."""
    with three_workers(
        tmp_path / "run", "--backup-workers", "1", folder=support.ROOT / folder
    ) as run:
        run.worker(2).send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        before = run.step()
        support.wait_until(lambda: run.step() >= before + 50, 20, "50 steps by two of three")


@pytest.mark.long
def test_a_worker_that_is_slow_from_the_start_and_a_backup(tmp_path):
    """Catches workers that wait for it at the start, while its step needs one of them."""
    copy = tmp_path / "copy"
    copy.mkdir()
    push = "    def push(self, row):\n"
    slow = "        time.sleep(0.3 * self.file.name.endswith('worker-2.csv'))\n"
    (copy / SYNC.name).write_text(examples.replaced(SYNC, [(push, push + slow)]))
    (copy / "run.sh").write_text((SYNC.parent / "run.sh").read_text())
    (tmp_path / "activate.sh").write_text(f"source '{support.ROOT}/activate.sh'\n")
    flags = ["--steps", "200", "--backup-workers", "1"]
    code, output, _ = support.launch(copy / "run.sh", tmp_path / "run", *flags, WORKERS="3")
    assert code == 0, output
    times = sorted(row["push_time"] for row in support.pushes(tmp_path / "run"))
    assert max(np.diff(times)) < 15, "they waited at the start, for up to 30 s"


@pytest.mark.long
def test_a_paused_worker_and_no_backup(tmp_path):
    """The others wait, and go on afterwards."""
    with three_workers(tmp_path / "run") as run:
        run.worker(2).send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        before = run.step()
        time.sleep(3)
        assert run.step() <= before + 1, "a step without the third"
        run.worker(2).send_signal(signal.SIGCONT)
        support.wait_until(lambda: run.step() >= before + 20, 20, "all go on")


@pytest.mark.long
def test_a_slow_worker_takes_part_in_every_step(tmp_path):
    """Stopped two thirds of the time: each step has one gradient of each worker all the same."""
    with three_workers(tmp_path / "run") as run:
        slow = run.worker(1)
        for _ in range(30):
            slow.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            slow.send_signal(signal.SIGCONT)
            time.sleep(0.05)
    rows = support.pushes(tmp_path / "run")
    of_step = collections.Counter(row["global_step"] for row in rows)
    whole = [of_step[step] for step in range(1, int(max(of_step)) - 1)]
    assert len(whole) > 30 and set(whole) == {3}


@pytest.mark.long
def test_those_who_wait_say_for_whom(tmp_path):
    """Worker 2 hangs: the others end in bounded time, and name it; tfrun says what that means."""
    with three_workers(tmp_path / "run", "--step-timeout", "15") as run:
        run.worker(2).send_signal(signal.SIGSTOP)
        output = run.process.communicate(timeout=support.patience(60))[0]
    assert run.process.returncode == 1
    named = re.findall(r"TimeoutError: no gradient of (.*) came in 15 s", output)
    assert named and set(named) == {"worker 2"}, output
    assert "[tfrun] A synchronous step waits for that worker, which is slow or gone" in output


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lost_worker_and_a_lost_ps_change_no_step(tmp_path):
    """Both are killed and start again: the parameters end as if nothing had happened."""
    flags = ["--steps", "600", "--checkpoint-steps", "50"]
    for name in ("whole", "lost"):
        with support.Run(
            SYNC.parent / "run.sh", tmp_path / name, *flags, TFRUN_RESTARTS="2"
        ) as run:
            for job, step in [("worker", 150), ("ps", 300)] if name == "lost" else []:
                support.wait_until(lambda s=step: run.step() >= s, 60, f"step {step}")
                support.task(run.directory, job, 1 if job == "worker" else 0).kill()
            assert run.process.wait(support.patience(90)) == 0, run.process.communicate()[0]
    whole, lost = (support.result(tmp_path / name) for name in ("whole", "lost"))
    assert whole["steps"] == lost["steps"] == 600
    assert abs(whole["test_loss"] - lost["test_loss"]) < 1e-3, (whole, lost)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_ps_ends_although_a_worker_is_stopped(tmp_path):
    """A copy of the example, whose tasks wait for others 1 s instead of 30, its ps ten times so."""
    copy, change = tmp_path / "copy", ("OPTIONAL_WAIT_SECONDS = 30", "OPTIONAL_WAIT_SECONDS = 1")
    copy.mkdir()
    (copy / SYNC.name).write_text(examples.replaced(SYNC, [change]))
    (copy / "run.sh").write_text((SYNC.parent / "run.sh").read_text())
    (tmp_path / "activate.sh").write_text(f"source '{support.ROOT}/activate.sh'\n")
    directory, flags = tmp_path / "run", ["--backup-workers", "1", "--steps", "400"]
    with three_workers(directory, *flags, folder=copy) as run:
        run.worker(2).send_signal(signal.SIGSTOP)
        support.wait_until(lambda: not support.task(directory, "ps", 0), 60, "the ps ends")
        assert not support.task(directory, "worker", 0), "the chief ends before the ps"
    assert summary.summarize(RunData.read(directory))["steps"] == 400


DRIVER = RATES.with_name("compare_rates.py")
# Of the driver that compares pairs of rates: {the mistake: [(text, what replaces it)]}
OF_PAIRS = {
    "both workers have the first rate": [("rates[k] * gradient", "rates[0] * gradient")],
    "all mini-batches have 32 examples": [("batch_size=size if k else ", "batch_size=")],
    "w stays as it is between two steps": [
        ("return number + 1, w - ", "return number + 1, first - ")
    ],
}


def compare_pairs(changes=()):
    """The driver's last losses are the reference's; worker 1 has mini-batches of 4."""
    driver = examples.load(DRIVER, examples.replaced(DRIVER, changes))
    example, steps = examples.load(RATES), 5
    losses = driver.measure(example, "mini-batches of 4", problem.SEED, steps)
    data = example.load_data("digits")
    example.keras.utils.set_random_seed(problem.SEED)
    start = [v.numpy() for v in example.make_model(data).trainable_variables]
    apart = {}
    for rates in driver.RATES:

        def gradient(k, number, w):
            x, y = data.x_train[k::2], data.y_train[k::2]
            rows = problem.draw(k, number, [32, 4][k], len(x))
            return perceptron.loss_and_gradient(w, x[rows], y[rows])

        reference = references.DifferentRates(start, 2, gradient, None, learning_rates=rates)
        for _ in range(steps):
            reference.joint_step([0, 1])
        due, _ = perceptron.loss_and_gradient(reference.w, data.x_test, data.y_test)
        name = "{:g}, {:g}".format(*rates)
        apart[name] = abs(losses[name]["test_loss"] - due)
    assert max(apart.values()) < 1e-4, f"losses: {apart}"


def test_pairs_of_rates_are_compared_by_the_equation():
    compare_pairs()


@pytest.mark.plants_mistakes
@pytest.mark.parametrize("mistake", OF_PAIRS)
def test_a_mistake_in_the_comparison_of_rates_is_caught(mistake):
    with support.fails_comparison("losses"):
        compare_pairs(OF_PAIRS[mistake])
