"""What a model keeps, and what a run goes on with: each loss and each test, computed without it.

tests/problems/counted.py is the model. The number before the point of its loss tells the mask of
Dropout's kind, and what is behind the point the mini-batch and the penalty. Its tests tell how many
mini-batches the tested copy has seen, and whose.
"""

import collections
import functools
import json
import shutil
import sys
import types

import interleaved
import numpy as np
import problem
import pytest
import small_scripts
import support
from lab import examples, regions
from problem import BATCH, SEED, command_line
from tfrun.apps import references
from tfrun.runs import models, summary
from tfrun.runs.data import RunData

COUNTED = support.ROOT / "tests" / "problems" / "counted.py"
QUICK = dict(tasks=4)  # of the fixture quick
RATE, STEPS = 0.01, (12, 20)  # a run of 12 updates, which goes on to 20
FILE_BATCH, PER_EPOCH = 4, 5  # rows in a mini-batch of a file, and such in the file
HOGWILD = "HogWild/hogwild.py"
SYNCHRONOUS = "Synchronous-SGD/synchronous_sgd.py"
RING = "Ring-AllReduce/ring_allreduce.py"
TOWERS = "Multiple-GPUs-Single-Machine/multiple_gpus_single_machine.py"
MIRRORED = "Multiple-GPUs-Single-Machine/multiple_gpus_single_machine_mirrored.py"
COORDINATOR = "Parameter-Server-Strategy/parameter_server_strategy.py"
PLACES = "Model-Parallelism/model_parallelism.py"
ALONE = "Non-Distributed-Setup/non_distributed_setup.py"
HOROVOD = "Horovod-RingAllReduce/horovod_ringallreduce.py"
FILES = "Operations/Train-and-Evaluate/train_and_evaluate.py"
ELASTIC = "Operations/Elastic-Training/elastic_training.py"  # whose rows depend on who asks first
DIFFERENT_RATES = (
    "Synchronous-SGD-different-learning-rates/synchronous_sgd_different_learning_rates.py"
)
ONE_WORKER = [
    TOWERS,
    MIRRORED,
    ALONE,
    "Distributed-Setup/distributed_setup.py",
    "From-TensorFlow-1/Distributed-Setup-Sessions/distributed_setup_sessions.py",
    "From-TensorFlow-1/Distributed-Setup-Sessions/distributed_setup_supervisor.py",
]
# {script: why it has no such state}
WITHOUT = {
    "Sparse-Embeddings/sparse_embeddings.py": "a table of words: see test_words_go_on",
    "Horovod-RingAllReduce/horovod_embeddings.py": "the same",
}
CORE = [SYNCHRONOUS]
# By night: each has the same regions around its algorithm as another that `all` tests.
REPEATED = [
    DIFFERENT_RATES,
    "ADAG/adag.py",
    "AEAMSGD/aeamsgd.py",
    "DOWNPOUR-Easy/downpour_easy.py",
    "DynSGD/dynsgd.py",
    "Further-Algorithms/Async-Local-SGD/async_local_sgd.py",
    "Further-Algorithms/Bounded-Staleness/bounded_staleness.py",
    "Further-Algorithms/Delay-Compensation/delay_compensation.py",
    "Further-Algorithms/DiLoCo/diloco.py",
]
OTHERS = [
    name
    for name in map(examples.shown, examples.scripts())
    if name not in (*CORE, *REPEATED, HOROVOD, *WITHOUT)
]
# A name that no script has would test nothing.
assert {*CORE, *REPEATED, HOROVOD, *WITHOUT} <= set(map(examples.shown, examples.scripts()))
MICRO_BATCHES = 2


@functools.cache
def data():
    return examples.load(COUNTED).load_data("counted")


def chiefs_masks():
    """Returns the numbers of the masks that the chief may draw, in their order."""
    import keras

    module = examples.load(COUNTED)
    keras.utils.set_random_seed(SEED)
    masks = module.make_model(data()).layers[0].masks
    drawn = [keras.random.uniform((1,), seed=masks) for _ in range(4 * STEPS[1])]
    return [int(np.float32(1000) * np.float32(number[0])) for number in drawn]


def mean_target(k, n, number):
    """The mean target of mini-batch `number` of worker k of n."""
    y = data().y_train[k::n]
    return y[problem.draw(k, number, BATCH, len(y))].mean()


class Ranks:
    """Runs a script as horovodrun does, in the place of a QuickCluster."""

    def run(self, script, directory, *flags, workers):
        command = [*small_scripts.TFRUN, "--timeout", "150", "--", "horovodrun", "--gloo", "-np"]
        command += [str(workers), sys.executable, script, *flags]
        done = support.run_to_end(*command, env=support.environment(directory), seconds=160)
        return [done.returncode], done.stdout + done.stderr


def write_files(folder):
    """Writes the rows of two workers as Train-and-Evaluate reads them, with targets as floats."""
    import tensorflow as tf

    parts = {f"train-{k}": (data().x_train[k::2], data().y_train[k::2]) for k in (0, 1)}
    parts["test-0"] = data().x_test, data().y_test
    for name, rows in parts.items():
        with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord")) as writer:
            for row in zip(*rows):
                features = {
                    key: tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))
                    for key, value in zip("xy", row)
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    about = {"files": 2, "test_rows": len(data().x_test), "shape": [1], "classes": 1}
    (folder / "records.json").write_text(json.dumps(about))


def plug_files(script, folder):
    """Copies a script that reads files, with this model and targets that are floats."""
    text, model = script.read_text(), COUNTED.read_text()
    begin, end = text.index("def make_model(data):"), text.index("# endregion: records")
    model = model[model.index("class Counted") : model.index("# endregion: problem")]
    model = model.replace("data.x_train.shape[1:]", "data.shape")
    text = text[:begin] + model + text[end:]
    changes = [
        ("FixedLenFeature([], tf.int64)", "FixedLenFeature([], tf.float32)"),
        ('tf.cast(example["y"], tf.int32)', 'example["y"]'),
    ]
    path = folder / script.name
    path.write_text(examples.replaced(text, changes))
    return path


def train(script, changes, quick, folder):
    """Runs the script on this problem, and goes on; returns (the directory, its pushes).

    The pushes are {task: rows}; a row also has the `version` that its mini-batch has for a number.
    """
    name = script.relative_to(support.ROOT).as_posix()
    kind = examples.kind_of(script)
    source = folder / "changed" / script.name
    source.parent.mkdir(parents=True)
    source.write_text(examples.replaced(script, changes))
    rate = RATE if exact(script) else 1e-30
    flags = ["--seed", SEED, "--batch-size", FILE_BATCH if name == FILES else BATCH]
    flags += {
        DIFFERENT_RATES: ["--learning-rates", f"{0.4 * RATE},{0.6 * RATE}"],  # a step has their sum
        HOROVOD: ["--learning-rate", RATE / 2],  # and here both
    }.get(name, ["--learning-rate", rate])
    flags += ["--local-steps", local_steps(script)] if local_steps(script) else []
    flags += ["--server-lr", rate] if '"server-lr"' in script.read_text() else []
    flags += ["--updates-per-call", 1] if '"updates-per-call"' in script.read_text() else []
    flags += ["--devices", 2] if name in (TOWERS, MIRRORED) else []
    flags += ["--micro-batches", MICRO_BATCHES] if name == PLACES else []
    if name == FILES:
        write_files(folder)
        flags += ["--dataset", folder]
        path = plug_files(source, folder)
    else:
        path = folder / script.name
        shutil.copy(source, path)
        regions.fix(COUNTED, path)
    quick.ps = int(kind.startswith(("parameter server", "coordinator", "train")))
    quick.chief = int(kind == "coordinator")
    quick.evaluator = int(name == FILES)
    rows = {}
    for steps in STEPS:
        words = map(str, [*flags, "--steps", steps])
        workers = 1 if name in ONE_WORKER else 2
        codes, output = quick.run(path, folder / "run", *words, workers=workers)
        assert not any(codes), output
        pushes = RunData.read(folder / "run").rows("pushes")
        for row in pushes[sum(map(len, rows.values())) :]:
            task = rows.setdefault(row["task"], [])
            row["version"] = row["global_step"] - 1 - row["staleness"]
            if kind == "gossip, asynchronous":  # what came between is no mini-batch
                row["version"] = row["global_step"] - 1
            task.append(row)
    return folder / "run", rows


def exact(script):
    """Whether each step is known: those of workers that wait for one another, but for Adam's."""
    kinds = ("single process", "model parallel")
    return script.stem not in ("diloco", "sharded_training") and (
        support.synchronous(script) or examples.kind_of(script) in kinds
    )


def local_steps(script):
    """Returns how many mini-batches of a worker a push has, 0 for a script without the flag."""
    if '"local-steps"' not in script.read_text():
        return 0
    return 1 if exact(script) else 3


def check(script, changes, quick, folder):
    """The named comparisons of numbers that a mistake must fail."""
    for number in range(5):  # a coordinator may give all mini-batches to one worker
        directory, rows = train(script, changes, quick, folder / str(number))
        if len(rows) > 1 or not quick.chief:
            break
    assert len(rows) > 1 or not quick.chief, "five times one worker had all mini-batches"
    name = script.relative_to(support.ROOT).as_posix()
    result = summary.summarize(RunData.read(directory))
    wrong, masks = [], {}
    # Whose mini-batches' mean a row has, and among how many workers the rows are dealt out.
    means = {TOWERS: [0, 1], PLACES: MICRO_BATCHES * [0]}.get(name)
    n = 1 if name in ONE_WORKER[2:] or name == PLACES else 2
    T = local_steps(script) or 1
    batches = T * (MICRO_BATCHES if name == PLACES else 1)  # that a push counts

    def mask_of(row, version, own):
        penalty = 0.5 * (1 - RATE * exact(script)) ** (2 * version)
        known = sum(mean_target(k, n, version * T + T - 1) + penalty for k in own)
        return row["loss"] * len(own) - known

    for task, pushes in rows.items():
        own = means or [int(task.removeprefix("worker-"))]
        for row in pushes:
            version = int(row["version"])
            mask = mask_of(row, version, own)
            if name in (FILES, ELASTIC):  # which rows these are tells the whole epoch
                mask = np.floor(row["loss"] - 0.5)
            elif abs(mask - round(mask)) > 0.01:
                wrong.append(f"losses: {row['loss']:g} of {task} at mini-batch {version}")
            masks.setdefault(task, []).append(round(mask))
        if name == FILES:
            wrong += epochs_wrong(task, pushes)
    # The steps: all of them once, of each worker or of all together.
    due = list(range(1, STEPS[1] + 1))
    of_each = exact(script) or support.counts_alone(script)
    push_lists = list(rows.values()) if of_each else [sum(rows.values(), [])]
    for pushes in push_lists:
        if sorted(row["global_step"] for row in pushes) != due:
            wrong.append(f"steps: {sorted(row['global_step'] for row in pushes)}")
    # The masks: nobody else has the chief's, and it has each of them once.
    first = chiefs_masks()
    if name == TOWERS:
        if all(mask % 2 == 0 for mask in masks["worker-0"]):
            wrong.append("masks: those of both towers are the same")
    elif name == PLACES:
        sums = np.reshape(first, [-1, MICRO_BATCHES]).sum(1)[: STEPS[1]]
        if masks["worker-0"] != sums.tolist():
            wrong.append("masks: the micro-batches have others than the whole model")
    else:
        for task, masks_of_task in masks.items():
            shared = sum(mask in first for mask in masks_of_task) / len(masks_of_task)
            if task == "worker-0" and shared < 1 or task != "worker-0" and shared > 0.5:
                wrong.append(f"masks: {shared:.0%} of those of {task} are the chief's")
            if (exact(script) or task == "worker-0") and not quick.chief:
                if len(set(masks_of_task)) < len(masks_of_task) - 2:
                    wrong.append(f"masks: {task} has drawn some again")
    # What is tested: of the chief, whose mini-batches count as 1; a last call may be void. Where
    # all rows are one worker's, half of them count by 1000 more, which the mean of a batch tells.
    count, low = result["test_count"], batches * len(rows["worker-0"])
    high = low + (0 if exact(script) and name != ALONE else T * len(STEPS))
    if n == 1 or name == ELASTIC:
        count %= 1000 / BATCH
    if quick.chief:  # all workers share it, and some may overwrite what others have counted
        low, high = 1, sum(len(rows[f"worker-{k}"]) * (1 + 1000 * k) for k in range(2))
    if not low <= count <= high:
        wrong.append(f"count: {count:g} instead of {low} to {high}")
    scale = (1 - RATE * exact(script)) ** STEPS[1]
    if not abs(result["test_scale"] - scale) < 1e-4:
        wrong.append(f"scale: {result['test_scale']:g} instead of {scale:g}")
    if not wrong:
        model, rows, module, _ = models.trained_model(directory)
        for metric, value in models.evaluate(model, rows, module).items():
            if not abs(value - result[metric]) < 1e-3:
                wrong.append(f"export: {metric} is {value:g}, and was {result[metric]:g}")
    assert not wrong, "\n".join(wrong)


def epochs_wrong(task, pushes):
    """In each epoch of a worker's file its mini-batches have each row once, also if it goes on.

    The first part of the run, of 12 updates, ends within the epoch of one worker or both.
    """
    k, wrong = int(task.removeprefix("worker-")), []
    means = [row["loss"] % 1 - 0.5 for row in pushes]  # the mean target, and the penalty
    mean = data().y_train[k::2].mean()
    assert len(data().y_train[k::2]) == FILE_BATCH * PER_EPOCH
    for begin in range(0, len(means), PER_EPOCH):
        epoch, number = means[begin : begin + PER_EPOCH], begin // PER_EPOCH
        complete = len(epoch) == PER_EPOCH
        twice = np.diff(np.sort(epoch)).min(initial=1) < 0.0015
        if twice or (complete and not abs(np.mean(epoch) - mean) < 0.003):
            wrong.append(f"losses: epoch {number} of {task} has not each row once: {epoch}")
    return wrong


@pytest.mark.parametrize(
    "name",
    [
        *CORE,
        *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS),
        *(pytest.param(name, marks=pytest.mark.nightly) for name in REPEATED),
    ],
)
def test_the_state_is_the_chiefs(name, quick, tmp_path):
    """Of a run that goes on. Catches: a copy of another worker that is tested, saved or exported;
    masks that two workers share; a penalty that is left out; mini-batches that come again."""
    check(support.ROOT / name, [], quick, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(support.BUILD_SECONDS + 300)
def test_the_state_is_that_of_rank_0(tmp_path):
    support.build(support.ROOT / HOROVOD)
    check(support.ROOT / HOROVOD, [], Ranks(), tmp_path)


def words_of(script, path, folder):
    """Returns all pairs, and the vectors of words and of neighbours in a checkpoint."""
    import tensorflow as tf

    module, saved = examples.load(path), tf.train.load_checkpoint(str(folder / "run"))
    if script.stem == "horovod_embeddings":
        names = [f"w/{i}/.ATTRIBUTES/VARIABLE_VALUE" for i in (0, 1)]
        w = [saved.get_tensor(name).astype(float) for name in names]
        return module.load_data(str(folder / "prose.txt")).train, w
    data, e = module.load_data(str(folder / "prose.txt"), 21), saved.get_tensor("e_0_of_1")
    assert np.abs(saved.get_tensor("w")[:16].reshape(4, 4) - np.eye(4)).max() < 1e-20, "w: moved"
    return problem.pairs_of(data), [e[:21].astype(float), e[21:]]


def check_words(script, changes, cluster, folder):
    """Of a run that goes on: each loss is that of the worker's next mini-batch of words."""
    (folder / "prose.txt").write_text(problem.PROSE)
    # All vectors begin at random, because neighbours that are 0 make all losses equal.
    horovod = script.stem == "horovod_embeddings"
    random = [("tf.zeros_like(start)", "tf.random.normal(start.shape)")]
    if not horovod:
        random = [("tf.Variable(tf.zeros([both", "tf.Variable(tf.random.normal([both")]
    path = folder / script.name
    path.write_text(examples.replaced(script, [*random, *changes]))
    flags = ["--dataset", folder / "prose.txt", "--dimensions", 4, "--noise-words", 6]
    flags += ["--seed", SEED, "--batch-size", BATCH, "--learning-rate", 1e-30]
    flags += [] if horovod else ["--row-rate", 1e-30, "--words", 21]
    cluster.ps, cluster.chief, cluster.evaluator = 1, 0, 0
    for steps in STEPS:
        words = map(str, [*flags, "--steps", steps])
        codes, output = cluster.run(path, folder / "run", *words, workers=2)
        assert not any(codes), output
    train, w = words_of(script, path, folder)
    rows, wrong, last = RunData.read(folder / "run").rows("pushes"), [], {}
    for row in rows:
        k, version = int(row["task"].removeprefix("worker-")), row["global_step"] - 1
        numbers = [int(version - row["staleness"])]
        if not horovod:  # its last update's, or that of a look at the ps since then
            numbers = range(last.get(k, 0), numbers[0] + 1)
            last[k] = int(row["global_step"])
        due = []
        for number in numbers:
            drawn = train[k::2][problem.draw(k, number, BATCH + 6, len(train[k::2]))]
            due.append(references.skip_gram(w, drawn[:BATCH], drawn[BATCH:, 1], weight=5)[0])
        if not np.abs(np.subtract(due, row["loss"])).min() < 1e-4:
            wrong.append(f"losses: {row['loss']:g}, not {due}, of {k} at mini-batch {version}")
    due = sorted((1 + exact(script)) * list(range(1, STEPS[1] + 1)))
    if sorted(row["global_step"] for row in rows) != due:
        wrong.append(f"steps: {sorted(row['global_step'] for row in rows)}")
    assert len({round(row["loss"], 3) for row in rows}) > 10 and not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.timeout(support.BUILD_SECONDS + 300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly if name.startswith("Horovod") else [])
        for name in WITHOUT
    ],
)
def test_words_go_on(name, quick, tmp_path):
    script, ranks = support.ROOT / name, name.startswith("Horovod")
    if ranks:
        support.build(script)
    check_words(script, [], Ranks() if ranks else quick, tmp_path)


# {(script, the comparison that fails): {the mistake: [(text, what replaces it)]}}
MISTAKES = {
    (HOGWILD, "masks"): {"all have the same": [("value + k if", "value + 0 * k if")]},
    (HOGWILD, "(count|export)"): {
        "the state does not reach the ps": [("        ps.set_values(state_of(model))\n", "")]
    },
    (SYNCHRONOUS, "losses"): {"no penalty": [("outputs)), *penalties])", "outputs))])")]},
    (RING, "count"): {"the state is not saved": [("w=w, state=state)", "w=w)")]},
    (TOWERS, "count"): {"the last tower's state is tested": [("w, states[0]", "w, states[-1]")]},
    ("AEASGD/aeasgd.py", "losses"): {
        "a window begins with the batch of the one before": [
            ("version * flags.local_steps + t", "version * (flags.local_steps - 1) + t")
        ]
    },
    (PLACES, "masks"): {
        "the state of the first micro-batch": [
            ("values[k], after[k], h[k, m], training", "values[k], state[k], h[k, m], training")
        ]
    },
    (FILES, "losses"): {
        "an epoch begins again": [
            (
                "tf.where(epoch > first_epoch, tf.constant(0, tf.int64), read)",
                "tf.constant(0, tf.int64)",
            )
        ]
    },
    (FILES, "count"): {
        "the state is not saved": [("        ps.set_values(state_of(model))\n", "")]
    },
    (COORDINATOR, "masks"): {
        "all have the same": [
            ("v + k if seed", "v + 0 * k if seed"),
            ("v.assign(new - k if seed else new)", "v.assign(new)"),
        ]
    },
    (COORDINATOR, "count"): {
        "the state does not move": [("v.assign(new - k if seed else new)", "v.assign(v)")]
    },
}


@pytest.mark.parametrize("name, fails, changes", support.mistakes(MISTAKES, core=0))
def test_a_mistake_is_caught(name, fails, changes, quick, tmp_path):
    with support.fails_comparison(fails):
        check(support.ROOT / name, changes, quick, tmp_path)


# An early end -------------------------------------------------------------------------------------

ACCURACIES = [0.1, 0.5, 0.4, 0.5, 0.3, 0.2, 0.1, 0.1]


@pytest.mark.parametrize("patience, tests", [(1, 3), (2, 4), (3, 5), (4, 6), (0, 8)])
def test_so_many_tests_without_a_better_one_end_training(patience, tests, tmp_path, monkeypatch):
    """The best is the second test; an equal one is no better. Catches: one test more, or less."""
    script = examples.load(examples.main_script("Operations/Train-and-Evaluate"))
    accuracies, done = iter(ACCURACIES), []

    def next_checkpoint(*_):
        if (tmp_path / "stop").exists() or len(done) == len(ACCURACIES):
            return None
        return f"model.ckpt-{10 * len(done) + 10}"

    def evaluation(*_):
        def measure(_):
            done.append(next(accuracies))
            return [1.0, done[-1]]

        return measure

    for name, value in {
        "next_checkpoint": next_checkpoint,
        "evaluation": evaluation,
        "copy_checkpoint": lambda *_: None,
        "remove_all_but": lambda *_: None,
        "restored": lambda *_: None,
    }.items():
        assert hasattr(script, name)
        monkeypatch.setattr(script, name, value)
    rows = collections.namedtuple("Rows", "x_test y_test")(np.zeros(1), np.zeros(1))
    flags = types.SimpleNamespace(steps=1000, early_stopping=patience)
    cluster = types.SimpleNamespace(directory=str(tmp_path), rank=None, workers=[], ps=[])
    best = script.judge(cluster, None, rows, flags)
    assert len(done) == tests and best.endswith("model.ckpt-20")
    assert (tmp_path / "stop").exists() == (patience > 0)


# Who makes the model ------------------------------------------------------------------------------


def test_the_chief_alone_makes_the_model(tmp_path):
    """Catches a worker that makes it before the chief does, from values of its own."""
    script = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
    interleaved.forget()
    workers = [interleaved.Worker(script, None, k, 2, command_line({}), None) for k in range(2)]

    def prepare(k):
        """What worker k does before it trains."""
        worker = workers[k]
        worker.script.REQUIRED_WAIT_SECONDS = 1
        metrics = types.SimpleNamespace(is_chief=k == 0, directory=str(tmp_path))
        with worker.session.graph.as_default():
            worker.script.prepare(worker.session, None, metrics)

    try:
        for _ in range(2):
            with pytest.raises(TimeoutError, match="the chief made no model"):
                prepare(1)
        prepare(0)
        prepare(1)
        assert np.isfinite(workers[1].push()[0])
    finally:
        for worker in workers:
            worker.session.close()


# Tables -------------------------------------------------------------------------------------------


def check_rows(text=None):
    """No two words begin with the same vector, on whatever ps; neighbours begin with 0."""
    script = examples.load(problem.SPARSE, text)
    flags, e = types.SimpleNamespace(words=19, dimensions=4, seed=SEED), np.empty([38, 4])
    for i in range(3):
        e[i::3] = script.Rows(i, 3, flags).table.numpy()
    assert len(set(map(tuple, e[:19]))) == 19, "rows: two words begin as one"
    assert np.abs(e[:19]).max() < 0.5 / 4 and not e[19:].any(), "rows: not between -1/8 and 1/8, 0"


def test_no_two_words_begin_as_one():
    check_rows()
    with support.fails_comparison("rows"):
        check_rows(examples.replaced(problem.SPARSE, [("begin * ps + index]", "begin * ps]")]))
