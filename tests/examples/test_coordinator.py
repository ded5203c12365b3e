"""ParameterServerStrategy: its update, its staleness, its shards, lost tasks, and its table."""

import re
import signal
import time

import equations
import numpy as np
import pytest
import small_scripts
import support
from lab import examples
from problem import BATCH, LR, SEED, digits_like, gradient_on_digits
from tfrun import errors
from tfrun.launch import cluster
from tfrun.runs import models, summary
from tfrun.runs.data import RunData

FOLDER = support.ROOT / "Parameter-Server-Strategy"
QUICK = dict(chief=1, tasks=4)  # of the fixture quick
SCRIPT = examples.main_script("Parameter-Server-Strategy")
LAUNCHER = FOLDER / "run.sh"
STEPS = 37  # closures of 10, and a shorter one


@pytest.fixture(scope="module")
def train(quick, tmp_path_factory):
    """train(*flags, changes, ps, workers) -> the run directory, and what was printed.

    By default on the small data, with the rate and the seed of its references.
    """

    def train(*flags, changes=(), ps=1, workers=1, small=True):
        folder = tmp_path_factory.mktemp("run")
        script = folder / SCRIPT.name
        script.write_text(examples.replaced(SCRIPT, changes))
        data = dict(zip(("x_train", "y_train", "x_test", "y_test"), digits_like()))
        np.savez(folder / "small.npz", **data)
        own = ["--dataset", folder / "small.npz", "--learning-rate", LR, "--batch-size", BATCH]
        own += ["--seed", SEED, "--steps", STEPS]
        quick.ps = ps
        flags = [str(flag) for flag in [*(own if small else []), *flags]]
        codes, output = quick.run(script, folder / "out", *flags, workers=workers)
        assert not any(codes), output
        return folder / "out", output

    return train


def rows_of(directory, task):
    """{column: array} of the updates of one worker."""
    return RunData.read(directory).tasks[task].pushes


def first_values():
    """w before the first update, as Keras makes it of the seed."""
    import keras

    script = examples.load(SCRIPT)
    keras.utils.set_random_seed(SEED)
    model = script.make_model(script.Data(*digits_like()))
    return [v.numpy().astype(float) for v in model.trainable_variables]


def check_the_equation(directory):
    """w and the losses of one worker against the reference in tests/equations/."""
    expected = equations.of(SCRIPT).REFERENCE(first_values(), 1, gradient_on_digits(1), LR)
    losses = []
    for _ in range(STEPS):
        expected.pull(0)
        loss, _, _ = expected.push(0)
        losses.append(loss)
    shapes = [v.shape for v in expected.w]
    saved = models.saved_values(support.newest_checkpoint(directory), shapes)["w"]
    rows = rows_of(directory, "worker-0")
    wrong, apart = [], max(np.abs(a - b).max() for a, b in zip(saved, expected.w))
    if not apart < 1e-5:
        wrong.append(f"parameters: {apart:g} apart")
    if rows["global_step"].tolist() != list(range(1, STEPS + 1)):
        wrong.append("updates: {}".format(rows["global_step"]))
    elif not (apart := np.abs(rows["loss"] - losses).max()) < 1e-5:
        wrong.append(f"losses: {apart:g} apart")
    if rows["staleness"].any():  # there is nobody else
        wrong.append("staleness: {}".format(rows["staleness"]))
    assert not wrong, "\n".join(wrong)


def test_the_update_is_the_equation(train):
    check_the_equation(train()[0])


@pytest.mark.long
def test_a_variable_is_split_over_both_ps(train):
    """The update is the same; the checkpoint has the whole variable."""
    directory, output = train(ps=2)
    check_the_equation(directory)
    split = re.findall(r"w is split: (\d+) numbers on ps (\d)\n", output)
    size = sum(v.size for v in first_values())
    assert sorted(int(numbers) for numbers, _ in split) == [size // 2, size - size // 2], output
    assert {ps for _, ps in split} == {"0", "1"}, output


@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=0))
def test_a_mistake_is_caught(script, fails, changes, train):
    directory, _ = train(changes=changes)
    with support.fails_comparison(fails):
        check_the_equation(directory)


# Two workers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(train):
    return train("--steps", 205, workers=2, small=False)


def check_the_counter(directory, steps):
    """Every update is counted once, and is in one row."""
    updates = sorted(row["global_step"] for row in support.pushes(directory))
    assert updates == list(range(1, steps + 1)), updates


@pytest.mark.long
def test_the_counter_is_exact_without_faults(two):
    directory, output = two
    check_the_counter(directory, 205)
    assert "scheduled 205 updates, made 205\n" in output
    assert min(summary.summarize(RunData.read(directory))["pushes_per_worker"]) >= 10


CLOSURE = 10  # updates in one: the script's default


def check_the_staleness(a, b):
    """Each staleness lies between the bounds that the numbers and times of updates give.

    At most, it has what the other made between two of ours: the numbers tell. At least, it has what
    the other made before ours in a closure that began after our pull. Nearly always it also has
    what was ready after our pull: a thread may note the times of some updates late, when these have
    long been made, but not after the end of their closure.
    """
    wrong, late, values = 0, 0, []
    for one, other in (a, b), (b, a):
        ready = other["push_time"] - other["wait_seconds"]
        first = np.arange(len(ready)) // CLOSURE * CLOSURE
        begun = np.concatenate([[-np.inf], other["push_time"]])[first]
        for i in range(1, len(one["staleness"])):
            staleness, number = one["staleness"][i], one["global_step"][i]
            before, pulled = other["global_step"] < number, one["pull_time"][i]
            arrived = other["push_time"] < one["push_time"][i] - one["wait_seconds"][i]
            low = (before & (begun > pulled)).sum()
            high = number - one["global_step"][i - 1] - 1
            wrong += not low <= staleness <= high
            late += staleness < (arrived & (ready > pulled)).sum()
            values.append(staleness)
    assert not wrong and any(values), "%d of %d are wrong" % (wrong, len(values))
    assert late <= 0.02 * len(values), "%d of %d are wrong by their times" % (late, len(values))


def rows_of_both(directory):
    return [rows_of(directory, f"worker-{k}") for k in (0, 1)]


@pytest.mark.long
def test_the_staleness_is_exact(two):
    """One less and one more are found as well, in the rows of the same run."""
    check_the_staleness(*rows_of_both(two[0]))
    for off in (-1, 1):
        rows = [{**part, "staleness": part["staleness"] + off} for part in rows_of_both(two[0])]
        with pytest.raises(AssertionError, match="are wrong"):
            check_the_staleness(*rows)


def test_a_time_that_is_noted_late_makes_no_staleness_wrong():
    """Two workers in turn; one notes late that a gradient was ready, and its next pull is late."""
    number = np.arange(200.0)
    late = 100
    rows = {
        "global_step": number + 1,
        "pull_time": number - 1.2,
        "wait_seconds": np.full(200, 0.2),
        "push_time": number + 0.6,
        "staleness": np.where(number == late + 2, 0, np.minimum(number, 1)),
    }
    rows["push_time"][late], rows["wait_seconds"][late] = late + 1.95, 0.05
    rows["pull_time"][late + 2] = late + 2.0
    check_the_staleness(*({name: v[k::2] for name, v in rows.items()} for k in (0, 1)))


def check_the_shards(directory):
    """Where w stays as it is, the loss of each update names the rows: k, k + 2, ... on worker k.

    The number of its mini-batch is that of the updates before its pull.
    """
    w, gradient = first_values(), gradient_on_digits(2)
    for k in range(2):
        rows = rows_of(directory, f"worker-{k}")
        losses, numbers = rows["loss"], rows["global_step"] - 1 - rows["staleness"]
        due = [gradient(k, int(number), w)[0] for number in numbers]
        apart = np.abs(losses - due).max()
        assert len(losses) and apart < 1e-5, f"worker {k}: {apart:g} apart"


STILL = ["--learning-rate", "1e-30", "--steps", 120]


@pytest.mark.long
def test_each_worker_has_its_own_rows(train):
    check_the_shards(train(*STILL, workers=2)[0])


@pytest.mark.plants_mistakes
@pytest.mark.long
def test_another_worker_s_rows_are_caught(train):
    directory, _ = train(*STILL, workers=2, changes=[("rows = rank + n * drawn", "rows = drawn")])
    with support.fails_comparison("worker 0"):
        check_the_shards(directory)


# Lost tasks --------------------------------------------------------------------------------------


class Lossy(support.Run):
    """A run with restarts of which a test kills tasks."""

    def __init__(self, launcher, directory, steps):
        flags = ["--steps", str(steps), "--checkpoint-steps", "100"]
        super().__init__(launcher, directory, *flags, TFRUN_RESTARTS="3")

    def trains(self):
        support.wait_until(lambda: self.step() >= 300, 60, "training")

    def lose(self, job, index):
        """Kills a task: when that was."""
        support.task(self.directory, job, index).kill()
        return time.time()

    def back(self, name, since):
        """Waits for an update of a worker after that time; returns when it was."""

        def first():
            times = rows_of(self.directory, name)["push_time"]
            return min(times[times > since + 1], default=None)

        return support.wait_until(first, 60, f"another update of {name}")

    def ends_well(self):
        """Waits for the end: the result and the output."""
        output = self.process.communicate(timeout=support.patience(110))[0]
        assert self.process.returncode == 0, output
        return support.result(self.directory), output


@pytest.mark.long
def test_a_run_survives_a_killed_worker(tmp_path):
    """It makes at least --steps updates: what was cut off is made again, on any worker."""
    directory, steps = tmp_path / "run", min(12000, int(support.patience(4000)))
    with Lossy(LAUNCHER, directory, steps) as run:
        run.trains()
        killed = run.lose("worker", 1)
        result, output = run.ends_well()
    assert result["test_accuracy"] >= 0.97
    # A worker makes one closure at a time, and the rows of another may not have been fetched.
    assert steps <= result["steps"] <= steps + 40, result
    assert "scheduled %d updates, made %d\n" % (steps, result["steps"]) in output
    back = rows_of(directory, "worker-1")["push_time"]
    assert back.max() > killed + 1, "it did not take part again"


@pytest.mark.long
def test_a_run_survives_a_killed_ps_and_a_killed_chief(tmp_path):
    """Everything stands until the chief is back; it goes on from the checkpoint."""
    # So many that none of the kills comes after the last, where this test is slow to see them.
    directory, steps = tmp_path / "run", min(12000, int(support.patience(3000)))
    with Lossy(LAUNCHER, directory, steps) as run:
        run.trains()
        workers = [run.worker(index).pid for index in range(2)]
        for job in "ps", "chief":
            killed = run.lose(job, 0)
            assert run.back("worker-0", killed) - killed > 2
            rows = [row["push_time"] for row in support.pushes(directory)]
            assert not [at for at in rows if killed + 0.5 < at < killed + 2]
        assert [run.worker(index).pid for index in range(2)] == workers
        result, output = run.ends_well()
    assert result["test_accuracy"] >= 0.97 and result["steps"] == steps
    assert re.search(r"scheduled (\d+) updates, made \1\n", output)
    log = (directory / "chief-0.log").read_text()
    error = re.search(r"ConnectionError: ps 0 did not answer at 127.0.0.1:\d+", log)
    assert error and "A parameter server was lost" in errors.explain(error[0])


@pytest.mark.long
def test_a_checkpoint_fits_another_number_of_ps(quick, tmp_path):
    """It holds whole variables: the next run splits them over two ps, and goes on."""
    losses = []
    for steps, quick.ps in ((200, 1), (220, 2)):
        codes, output = quick.run(SCRIPT, tmp_path, "--steps", str(steps), workers=1)
        assert not any(codes), output
        losses.append(summary.summarize(RunData.read(tmp_path))["test_loss"])
    assert (
        "w is split: 8613 numbers on ps 1" in output and "scheduled 20 updates, made 20\n" in output
    )
    assert losses[1] == pytest.approx(losses[0], rel=0.3)
    later = [row["loss"] for row in support.pushes(tmp_path) if row["global_step"] > 200]
    assert len(later) == 20 and np.mean(later) < 1  # 2.3 at the first values


SHORT_WAIT = ('"REQUIRED_WAIT_SECONDS", 120', '"REQUIRED_WAIT_SECONDS", %d')


def alone(quick, folder, job, seconds):
    """Starts one task whose peers never come, and that waits so long: how it ended."""
    (old, new), folder = SHORT_WAIT, folder / job
    folder.mkdir()
    (folder / SCRIPT.name).write_text(examples.replaced(SCRIPT, [(old, new % seconds)]))
    jobs, (ports, held) = {"ps": 1, "chief": 1, "worker": 1}, cluster.hold_ports(3)
    env = cluster.environments(jobs, ports, folder / "output")[job, 0]
    ended = quick.zygotes[0].run(SCRIPT.name, [], folder, **env)
    for s in held:
        s.close()
    return ended, cluster.addresses(jobs, ports)


@pytest.mark.parametrize(
    "job, missing, words",
    [
        ("chief", "ps", "TimeoutError: ps 0 did not answer at %s in 1 s"),
        ("worker", "chief", "TimeoutError: the chief did not answer at %s in 1 s"),
    ],
)
def test_a_task_that_never_comes_is_named(job, missing, words, quick, tmp_path):
    ended, tasks = alone(quick, tmp_path, job, 1)
    assert ended.returncode == 1 and words % tasks[missing][0] in ended.stderr, ended.stderr
    assert errors.explain(ended.stderr)


@pytest.mark.long
def test_a_worker_that_hangs_is_named(tmp_path):
    """One that is suspended keeps its closure: nothing in TensorFlow ends the wait for it."""
    old, new = SHORT_WAIT
    # The chief builds its graph before the first update, which takes seconds, too.
    (tmp_path / SCRIPT.name).write_text(examples.replaced(SCRIPT, [(old, new % 15)]))
    flags = ["--chief", "--ps", "1", "--workers", "2", "--timeout", "90"]
    run = small_scripts.start(tmp_path, *flags, script=SCRIPT.name, arguments=["--steps", "100000"])
    try:
        support.wait_until(lambda: len(support.pushes(tmp_path / "run")) > 100, 60, "training")
        support.task(tmp_path / "run", "worker", 1).send_signal(signal.SIGSTOP)
        output = run.communicate(timeout=support.patience(90))[0]
    finally:
        run.terminate()
        run.wait(30)
    assert run.returncode == 1, output
    assert re.search(r"no update came in 15 s; worker 1 did not answer at 127", output), output


# The table of the page: what each way can do -----------------------------------------------------


def test_the_chief_alone_runs_the_loop(two):
    """The servers of the others execute what it sends; they begin, and end by themselves."""
    servers = re.findall(r"(?m)^listening at \S+\ndone$", two[1])
    assert len(servers) == 3, two[1]


IN_ONE_PROCESS = """
import os, socket, sys
import keras, numpy as np, tensorflow as tf
held = [socket.create_server(("", 0)) for _ in range(4)]
places = ["127.0.0.1:%d" % s.getsockname()[1] for s in held]
for s in held:
    s.close()
spec = tf.train.ClusterSpec({"chief": places[:1], "ps": places[1:2], "worker": places[2:]})
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
servers = [tf.distribute.Server(spec, job, i, config=config, protocol="grpc")
           for job, i in (("ps", 0), ("worker", 0), ("worker", 1))]
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, rpc_layer="grpc", task_type="chief", task_id=0))
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def all_of(closure):
    values = [coordinator.schedule(closure) for _ in range(4)]
    coordinator.join()
    return sorted(float(value.fetch()) for value in values)

made = []

@tf.function
def count():
    if not made:
        made.append(tf.Variable(0.0))
    return made[0].assign_add(1.0, read_value=True) + 0

@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0))
    return strategy.run(one)

@tf.function
def python():
    on_chief = tf.numpy_function(lambda: np.float32(1), [], tf.float32)
    made.append(on_chief.device)
    return on_chief + 0

print("a variable of a closure:", tf.DeviceSpec.from_string((all_of(count), made[0])[1].device).job)
print("python of a closure:", tf.DeviceSpec.from_string((all_of(python), made[-1])[1]).job)
print("replicas:", strategy.num_replicas_in_sync, all_of(total))
with strategy.scope():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
    model.compile("sgd", loss="mse")
x, y = np.ones((64, 4), "f"), np.ones((64, 2), "f")

def rows():
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8)

for data in [(x, y), (rows(),), (coordinator.create_per_worker_dataset(rows),)]:
    try:
        model.fit(*data, epochs=1, steps_per_epoch=4, verbose=0)
        print("fit: works")
    except ValueError as error:
        print("fit:", error)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.long
def test_what_the_strategy_cannot_do():
    """A worker has no variable of its own, and runs no Python; no all-reduce joins workers;
    model.fit does not work."""
    done = support.python(IN_ONE_PROCESS, TF_CPP_MIN_LOG_LEVEL="3")
    lines = done.stdout.splitlines()
    assert len(lines) == 6, done.stderr
    assert lines[:2] == ["a variable of a closure: ps", "python of a closure: chief"]
    assert lines[2] == "replicas: 1 [1.0, 1.0, 1.0, 1.0]"
    for line in lines[3:]:
        assert "create_per_worker_dataset" in line or "Unrecognized data type" in line, lines


@pytest.mark.long
def test_a_partitioner_of_compat_v1():
    """With sessions a variable can be split, too; HogWild does not."""
    code = """
import tensorflow.compat.v1 as tf
with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
        v = tf.get_variable("v", [64, 128], partitioner=tf.fixed_size_partitioner(2))
    print([part.device for part in v])
"""
    done = support.python(code)
    assert done.stdout.splitlines()[-1:] == ["['/job:ps/task:0', '/job:ps/task:1']"], done.stderr


def test_the_tests_of_the_table_exist():
    rows = re.findall(
        r"(?m)^\| [^|]+\|[^|]+\|[^|]+\| (`test_[^|]+) \|$",
        (FOLDER / "DIFFERENCES.md").read_text(),
    )
    texts = "".join(path.read_text() for path in (support.ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+)", " ".join(rows))
    assert len(rows) == 12 and len(names) >= 22
    assert not [name for name in names if f"def {name}(" not in texts]
