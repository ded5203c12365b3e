"""The loss that a script reports and the gradient by which it moves w are of one and the same loss.

tests/problems/weighted.py is the model: embeddings of padding are masked, units are dropped, rare
classes count more, and each layer has a penalty. The reference of each script moves w by the
gradient of Keras's own tape, and so each loss and all of w after some updates must be the script's.
"""

import contextlib
import functools
import sys
import types

import equations
import in_process
import interleaved
import numpy as np
import problem
import pytest
import ring_workers
import support
import test_model_parallelism
import test_sharded
from lab import examples, regions
from problem import BATCH, LR, SEED, command_line
from tfrun.apps import references

WEIGHTED = support.ROOT / "tests" / "problems" / "weighted.py"
OPTIMIZER = examples.main_script("From-TensorFlow-1/Synchronous-SGD-Optimizer")
TOWERS = examples.main_script("Multiple-GPUs-Single-Machine")
MIRRORED = TOWERS.with_name("multiple_gpus_single_machine_mirrored.py")
HOROVOD = examples.main_script("Horovod-RingAllReduce")
FILES = examples.main_script("Operations/Train-and-Evaluate")
COMPRESSED = examples.main_script("Further-Algorithms/Compressed-AllReduce")
TO_ALL = examples.main_script("Further-Algorithms/Gradients-To-All")
SHARDED, PLACES = test_sharded.SCRIPT, test_model_parallelism.SCRIPT
# Tables of words have a loss of their own, in which noise words count --noise-words times: that is
# in their references, problem.words and test_horovod.py.
TABLES = ["Sparse-Embeddings/sparse_embeddings.py", "Horovod-RingAllReduce/horovod_embeddings.py"]
SCRIPTS = [s for s in examples.scripts() if s.relative_to(support.ROOT).as_posix() not in TABLES]
UPDATES = 3  # of each worker


@functools.cache
def weighted():
    """Returns the module of the model, and its data."""
    module = examples.load(WEIGHTED)
    return module, module.load_data("words")


@pytest.fixture(autouse=True)
def small_words(monkeypatch):
    """The helpers of other tests take these words instead of their small data."""
    monkeypatch.setattr(problem, "digits_like", lambda: tuple(weighted()[1]))
    if interleaved.servers.cache_info().currsize:  # seeds have names of what others keep there
        interleaved.forget()
    yield
    if interleaved.servers.cache_info().currsize:
        interleaved.forget()


def plugged(script, changes=()):
    """Returns the script's text with these changes and with that model."""
    text, model = examples.replaced(script, changes), regions.regions(WEIGHTED)["problem"]
    own = dict(regions.split(text))
    if "problem" in own:
        return text.replace("\n".join(own["problem"]), model)
    begin, end = text.index("def make_model(data):"), text.index("# endregion: records")
    model = model[model.index("def make_model(") :].replace("Dropout(0.3)", "Dropout(0.0)")
    return f"{text[:begin]}{model}\n{text[end:]}"


class Tape:
    """gradient(k, number, w) of n workers by Keras's tape: (the loss, a list as w is).

    Each worker has seeds of its own, and they move with each mini-batch.
    """

    def __init__(self, n, parts=1, models=1, drops=True):
        import keras

        module, data = weighted()
        keras.utils.set_random_seed(SEED)
        all_models = [module.make_model(data) for _ in range(models)]
        self.model, self.loss, self.n, self.parts = all_models[0], module.loss, n, parts
        self.x, self.y = data.x_train, data.y_train
        self.shapes = [tuple(v.shape) for v in self.model.trainable_variables]
        first = [[v.numpy() for v in model.non_trainable_variables] for model in all_models]
        alone = models == 1  # else each tower has a model, with seeds that were drawn for it
        self.states = [[v + k * alone for v in first[k * (not alone)]] for k in range(n)]
        if not drops:
            self.model.layers[2].rate = 0.0

    order = staticmethod(problem.order)

    def rows(self, k, number):
        if np.ndim(number):  # the script says which rows come next
            return number
        here = np.arange(len(self.x))[k :: self.n]
        return here[problem.draw(k, number, BATCH, len(here))]

    def __call__(self, k, number, w):
        import tensorflow as tf

        w, loss = [tf.Variable(v, dtype=tf.float32) for v in w], 0.0
        with tf.GradientTape() as tape:
            for rows in np.split(self.rows(k, number), self.parts):
                outputs, state, penalties = self.model.stateless_call(
                    w, self.states[k], self.x[rows], training=True, return_losses=True
                )
                self.states[k] = [v.numpy() for v in state]
                mean = tf.reduce_mean(self.loss(self.y[rows], outputs))
                loss += (mean + tf.add_n(penalties)) / self.parts
        g = [tf.convert_to_tensor(d).numpy().astype(float) for d in tape.gradient(loss, w)]
        return float(loss), g

    def cut(self, vector):
        """Returns the parameters that one vector holds."""
        ends = np.cumsum([np.prod(shape) for shape in self.shapes])[:-1]
        return [part.reshape(s) for part, s in zip(np.split(vector, ends), self.shapes)]


def agree(losses, due, last, expected, first):
    """The named comparisons of numbers that a mistake must fail."""
    flat = [interleaved.flat(arrays) for arrays in (last, expected, first)]
    compared = {"losses": ([losses], [due]), "parameters": (flat[:1], flat[1:2])}
    interleaved.check_apart(compared, 1e-5)
    assert np.abs(flat[0] - flat[2]).max() > 0.001


def parameters(tf):
    """Returns the variables of w in a graph without a ps."""
    return [v for v in tf.global_variables() if v.op.name.startswith("w_")]


def loaded(script, text, folder, flags):
    """Returns the module of this text, in a file, where tf.function looks for it, and its flags."""
    path = folder / script.name
    path.write_text(text)
    return interleaved.loaded(path, None, flags)


# Each kind of script ------------------------------------------------------------------------------


def in_turn(script, text, folder):
    """Workers that push one after the other, or a single one, beside a ps."""
    file = equations.of(script)
    n = file.WORKERS
    turns = [0, 1, 1, 0] if n > 1 else [0, 0, 0]
    data, flags, tape = None, command_line(file.FLAGS), Tape(n, drops=script != FILES)
    if script == FILES:  # each mini-batch is all of a worker's file
        data, _ = problem.records(script, n, folder)
        tape.rows = lambda k, _: np.arange(k * BATCH, (k + 1) * BATCH)
    with in_process.workers(script, n, flags, data, text, ps=2) as workers:
        first = workers.parameters()
        expected, due = file.REFERENCE(first, n, tape, LR, **file.FLAGS), []
        losses = [workers.workers[k].push()[0] for k in turns]
        for k in turns:
            expected.pull(k)
            due.append(expected.push(k)[0])
        agree(losses, due, workers.parameters(), expected.w, first)


def alone(script, text, folder):
    """A process that makes one update after the other."""
    module, flags = loaded(script, text, folder, command_line({}))
    tf, tape, losses, due = module.tf, Tape(1), [], []
    module.keras.utils.set_random_seed(flags.seed)
    data = module.Data(*problem.digits_like())
    model = module.make_model(data)
    first = [v.numpy() for v in model.trainable_variables]
    expected, w = first, tf.Variable(interleaved.flat(first))
    x, y = map(tf.constant, data[:2])
    gradient = module.gradients(model, model.non_trainable_variables, x, y, flags, 0)
    make = tf.function(lambda number: module.update(w, number, gradient, flags)[0])
    for number in range(UPDATES):
        losses.append(float(make(tf.constant(number, tf.int64))))
        loss, g = tape(0, number, expected)
        due.append(loss)
        expected = [v - LR * d for v, d in zip(expected, g)]
    agree(losses, due, tape.cut(w.numpy()), expected, first)


def at_once(script, text, folder, n=3):
    """Workers that make each step together."""
    if script == OPTIMIZER:
        return accumulated(script, text, n)
    file, tape, losses, due = equations.of(script), Tape(n), [], []
    with in_process.Workers(script, n, command_line(file.FLAGS), text=text) as workers:
        first = workers.parameters()
        expected = file.REFERENCE(first, n, tape, LR, **file.FLAGS)
        for _ in range(UPDATES):
            losses += [loss for loss, *_ in workers.joint_step()]
            due += expected.joint_step(range(n))
        agree(losses, due, workers.parameters(), expected.w, first)


def accumulated(script, text, n):
    """What workers send to the accumulators: the steps need a thread of the chief."""
    tape, w, losses, due, expected = Tape(n), [], [], [], []
    interleaved.forget()
    with interleaved.Workers(script, n, command_line({}), text=text, ps=2) as workers:
        first = workers.parameters()
        for k, worker in enumerate(workers):
            loss, g = worker.session.run([worker.update.loss, worker.update.pushed])
            losses.append(loss)
            w.extend(workers.unpacked(-interleaved.flat(g)))
            loss, g = tape(k, 0, first)
            due.append(loss)
            expected.extend(-d for d in g)
        agree(losses, due, w, expected, [0 * v for v in w])


def rings(script, text, folder, n=3):
    """Workers in a ring, which make each step together."""
    file, tape = equations.of(script), Tape(n)
    if script == COMPRESSED:  # all is sent
        reference, flags = references.Synchronous, {"compress": "top-k", "top": 1.0}
    else:
        reference, flags = file.REFERENCE, file.FLAGS
    workers = ring_workers.make_steps(script, n, text, command_line(flags), UPDATES)
    first, due = tape.cut(workers[0].w[0].astype(float)), []
    expected = reference(first, n, tape, LR, **flags)
    for _ in range(UPDATES):
        due += expected.joint_step(range(n))
    losses = np.array([worker.rows["loss"] for worker in workers]).T
    for k, worker in enumerate(workers):
        agree(losses.ravel(), due, [worker.w[-1]], expected.w_of(k), first)


def pairs(script, text, folder, n=3):
    """Workers of whom nobody answers: each makes steps of its own."""
    module, _ = loaded(script, text, folder, command_line({}))

    def work(alone, step, w, state, make_steps, _):
        module.separate_masks(state, alone.rank)
        first, rows = w.numpy(), make_steps(module.tf.constant(UPDATES)).numpy()
        return first, rows, w.numpy()

    def alone(k):
        averagings = module.tf.Variable(0, dtype=module.tf.int64)
        more = {"averagings": averagings, "let_average": lambda _: np.int64(0)}
        return types.SimpleNamespace(rank=k, n=n, **more)

    done = ring_workers.together_built(module, [alone(k) for k in range(n)], command_line({}), work)
    tape, due = Tape(n), []

    def g(k, number, w):
        loss, parts = tape(k, number, tape.cut(w))
        due.append(loss)
        return interleaved.flat(parts)

    expected = equations.of(script).REFERENCE([first for first, *_ in done], g, LR)
    for _ in range(UPDATES):
        for k in range(n):
            expected.step(k, expected.w[k])
    losses = np.array([rows[:, 5] for _, rows, _ in done]).T
    agree(losses.ravel(), due, [w for *_, w in done], expected.w, [done[0][0]] * n)


def one_applies(script, text, folder, n=3):
    """The last of n workers, whose gradients go nowhere: it applies them all."""
    module, flags = loaded(script, text, folder, command_line({}))
    tf, tape, due = module.tf, Tape(n), []
    module.keras.utils.set_random_seed(flags.seed)
    data = module.Data(*problem.digits_like())
    model, applied = module.make_model(data), module.tf.Variable(0, dtype=module.tf.int64)
    group = types.SimpleNamespace(
        rank=n - 1,
        n=n,
        sizes=module.sizes_of(model),
        applied=applied,
        forwarders=0,
        receivers={"nobody": None},
        take=lambda: applied.assign_add(1) - 1,
        send=lambda *_: tf.constant(0, tf.int64),
    )
    _, w, state, make_steps, _ = module.build(group, model, data, flags)
    module.separate_masks(state, n - 1)
    first = tape.cut(np.concatenate([part.numpy() for part in w]).astype(float))
    expected = first
    losses = make_steps(tf.constant(UPDATES)).numpy()[:, 5]
    last = tape.cut(np.concatenate([part.numpy() for part in w]))
    for number in range(UPDATES):
        loss, g = tape(n - 1, number, expected)
        due.append(loss)
        expected = [v - LR * d for v, d in zip(expected, g)]
    agree(losses, due, last, expected, first)


def shards(script, text, folder, n=3):
    """Each stage, and blocks of which one has no parameters."""
    file = equations.of(script)
    for stage in "0123":
        workers, tape = test_sharded.train(n, text, steps=UPDATES, stage=stage), Tape(n)
        first, due = tape.cut(workers[0].w[0].astype(float)), []
        rate = file.FLAGS["learning_rate"]
        expected = file.REFERENCE(first, n, tape, rate, **file.FLAGS)
        for _ in range(UPDATES):
            due += expected.joint_step(range(n))
        losses = [worker.rows[step][5] for step in range(UPDATES) for worker in workers]
        agree(losses, due, [workers[0].w[-1]], expected.w, first)


def schedules(script, text, folder):
    """Each schedule, and each number of micro-batches and of places."""
    layouts = ("two workers", 4), ("three workers", 2), ("two devices", 1)
    for schedule in "gpipe", "1f1b":
        for layout, parts in layouts:
            tape = Tape(1, parts)
            with test_model_parallelism.Model(layout, parts, text, schedule=schedule) as model:
                first = w = model.parameters()
                losses, last, due = model.make_updates(UPDATES), model.parameters(), []
            for number in range(UPDATES):
                loss, g = tape(0, number, w)
                due.append(loss)
                w = [v - LR * d for v, d in zip(w, g)]
            agree(losses, due, last, w, first)


def towers(script, text, folder, n=2):
    """The mean of the losses and gradients of all towers."""
    module, flags = loaded(script, text, folder, command_line({"devices": n}))
    tf, tape, due = module.tf, Tape(n, models=n), []
    module.keras.utils.set_random_seed(flags.seed)
    data = module.Data(*problem.digits_like())
    models = [module.make_model(data) for _ in range(n)]
    saved, make_steps, _ = module.build(models, data, flags, ["/CPU:0"] * n)
    first = tape.cut(saved.w.numpy().astype(float))
    expected = first
    losses = make_steps(tf.constant(UPDATES)).numpy()[:, 5]
    last = tape.cut(saved.w.numpy())
    for number in range(UPDATES):
        results = [tape(k, number, expected) for k in range(n)]
        due.append(np.mean([loss for loss, _ in results]))
        g = [sum(d) / n for d in zip(*(g for _, g in results))]
        expected = [v - LR * d for v, d in zip(expected, g)]
    agree(losses, due, last, expected, first)


def replicas(script, text, folder):
    """A replica alone: test_replicas.py has several."""
    module, flags = loaded(script, text, folder, command_line({}))
    tf, tape, due = module.tf, Tape(1), []
    module.keras.utils.set_random_seed(flags.seed)
    data = module.Data(*problem.digits_like())
    strategy, model = tf.distribute.OneDeviceStrategy("/cpu:0"), module.make_model(data)
    all_w = []
    algorithm = module.algorithm
    module.algorithm = lambda w, *more: all_w.append(w) or algorithm(w, *more)
    first = w = [v.numpy() for v in model.trainable_variables]
    _, steps, *_ = module.build(strategy, model, data, flags, [0], 1, str(folder))
    losses = steps(tf.constant(UPDATES)).numpy()[:, 5]
    for number in range(UPDATES):
        loss, g = tape(0, number, w)
        due.append(loss)
        w = [v - LR * d for v, d in zip(w, g)]
    agree(losses, due, [v.numpy() for v in all_w[0]], w, first)


def closures(script, text, folder, n=2):
    """What a coordinator lets two workers execute in turn, who share the state."""
    module, flags = loaded(script, text, folder, command_line({}))
    tf, tape, losses, due = module.tf, Tape(n), [], []
    module.keras.utils.set_random_seed(flags.seed)
    data = module.Data(*problem.digits_like())
    model = module.make_model(data)
    first = expected = [v.numpy() for v in model.trainable_variables]
    step, w = tf.Variable(0, dtype=tf.int64), tf.Variable(np.concatenate([*map(np.ravel, first)]))
    state = [tf.Variable(v.numpy()) for v in model.non_trainable_variables]

    @tf.function
    def update(k):
        gradient = module.gradients(model, state, data, flags, k, n)
        return module.algorithm([w], step, gradient, flags).loss

    for number in range(2 * UPDATES):
        k, (seed,) = number % n, state
        tape.states[k] = [seed.numpy() + k]
        losses.append(float(update(tf.constant(k))))
        loss, g = tape(k, number, expected)
        due.append(loss)
        expected = [v - LR * d for v, d in zip(expected, g)]
    agree(losses, due, tape.cut(w.numpy()), expected, first)


@contextlib.contextmanager
def last_rank(n):
    """Lets scripts import a Horovod whose last rank of n is alone: nothing adds up."""
    stub = types.ModuleType("horovod.tensorflow")
    stub.rank, stub.size, stub.allreduce = lambda: n - 1, lambda: n, lambda g: g
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "horovod", types.ModuleType("horovod"))
        patch.setitem(sys.modules, "horovod.tensorflow", stub)
        sys.modules["horovod"].tensorflow = stub
        yield


def ranks(script, text, folder, n=3):
    """Rank 2 of Horovod, in whose place nothing adds up: it moves by n times its own gradient."""
    with last_rank(n):
        module, flags = loaded(script, text, folder, command_line({}))
        tape, due = Tape(n), []
        module.keras.utils.set_random_seed(flags.seed)
        data = module.Data(*problem.digits_like())
        saved, make_steps, _ = module.build(module.make_model(data), data, flags)
        module.separate_masks(saved["state"], n - 1)
        first = tape.cut(saved["w"].numpy().astype(float))
        w = first
        losses = make_steps(module.tf.constant(UPDATES)).numpy()[:, 5]
        last = tape.cut(saved["w"].numpy())
    for number in range(UPDATES):
        loss, g = tape(n - 1, number, w)
        due.append(loss)
        w = [v - n * LR * d for v, d in zip(w, g)]
    agree(losses, due, last, w, first)


WAYS = {
    "parameter server, asynchronous": in_turn,
    "single process": alone,
    "train and evaluate": in_turn,
    "parameter server, synchronous": at_once,
    "all-reduce": rings,
    "gossip, synchronous": rings,
    "gossip, asynchronous": pairs,
    "model parallel": schedules,
    "coordinator": closures,
    SHARDED: shards,
    TOWERS: towers,
    MIRRORED: replicas,
    examples.main_script("Collective-AllReduce"): replicas,
    HOROVOD: ranks,
    TO_ALL: one_applies,
}


def check(script, folder, changes=()):
    """The named comparisons of numbers that a mistake must fail."""
    way = WAYS.get(script) or WAYS[examples.kind_of(script)]
    way(script, plugged(script, changes), folder)


# One with each form of the regions that compute gradients.
SESSIONS = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
HOGWILD = examples.main_script("HogWild")
RING = examples.main_script("Ring-AllReduce")
COORDINATOR = examples.main_script("Parameter-Server-Strategy")
CORE = [HOGWILD, SESSIONS, RING]


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=[] if s in CORE else [support.beyond_core(s)]) for s in SCRIPTS],
    ids=equations.ids,
)
def test_the_loss_and_the_gradient_are_those_of_keras(script, tmp_path):
    """Catches: a penalty, a mask of padding, or a weight of a class that is in one of the two only,
    or more than once; also where a layer stands on one worker alone, or in micro-batches."""
    check(script, tmp_path)


IN_TAPE = "[tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])\n"
TAPED = "        return mean, tape.gradient(mean, w)\n"
MEAN = "        mean = tf.add_n([tf.reduce_mean(loss(tf.gather(y, rows), outputs)), *penalties])\n"
BOTH = "        return mean, tf.gradients(mean, w)%s\n"
ALL = "tf.add_n([h[K, m] for m in range(M)] + sum(penalties.values(), [])) / M"
ONCE = "tf.add_n([h[K, m] for m in range(M)]) / M + tf.add_n(sum(penalties.values(), []))"
ENDS = "[outputs, *penalties], [w, h], [d, *[None] * len(penalties)]"
MISTAKES = {
    (HOGWILD, "losses"): {
        "the penalty is in the gradient only": [
            (TAPED, TAPED.replace("mean,", "mean - tf.add_n(penalties),", 1))
        ],
        "a class has no weight": [
            (IN_TAPE, IN_TAPE.replace("loss(", "keras.losses.sparse_categorical_crossentropy("))
        ],
        "the masks are those of the mini-batch before": [
            ("        for v, value in zip(state, after):\n            v.assign(value)\n", "")
        ],
    },
    (HOGWILD, "parameters"): {
        "the penalty is in the loss only": [
            (IN_TAPE, IN_TAPE.replace(", *penalties])", "])")),
            (TAPED, TAPED.replace("mean,", "mean + tf.add_n(penalties),", 1)),
        ],
    },
    (SESSIONS, "losses"): {
        "all have the same masks": [("v + rank if", "v + 0 if")],
        "the penalty is in the gradient only": [
            (BOTH % "", "        return mean - tf.add_n(penalties), tf.gradients(mean, w)\n")
        ],
        "a class has no weight": [
            (MEAN, MEAN.replace("loss(", "keras.losses.sparse_categorical_crossentropy("))
        ],
    },
    (SESSIONS, "parameters"): {
        "the penalty is in the loss only": [
            (BOTH % "", "        return mean, tf.gradients(mean - tf.add_n(penalties), w)\n")
        ],
    },
    (RING, "parameters"): {
        "each worker has a share of the penalty": [
            (BOTH % "[0]", "        return mean, tf.gradients(mean - 2 / 3 * penalties[0], w)[0]\n")
        ],
    },
    (SHARDED, "parameters"): {
        "the penalty is in the loss only": [(ENDS, "[outputs], [w, h], [d]")],
    },
    (SHARDED, "losses"): {
        "the penalty of the last block": [("penalties += penalty\n", "penalties = penalty\n")],
        "a share of the penalty": [("float(loss + p", "float(loss + 1 / lanes.ring.n * p")],
    },
    (PLACES, "losses"): {
        "a penalty counts in each micro-batch": [(ALL, ONCE)],
        "the penalties of the last place": [
            ("sum(penalties.values(), [])", "sum([penalties[K - 1, m] for m in range(M)], [])")
        ],
    },
    (COORDINATOR, "parameters"): {
        "the penalty is in the loss only": [
            (BOTH % "", "        return mean, tf.gradients(mean - tf.add_n(penalties), w)\n")
        ],
    },
    (HOROVOD, "losses"): {
        "rank 0's masks": [("tf.cast(tf.fill(v.shape, rank), v.dtype)", "tf.zeros_like(v)")],
    },
}


@pytest.mark.parametrize("script, fails, changes", support.mistakes(MISTAKES, core=0))
def test_a_mistake_is_caught(script, fails, changes, tmp_path):
    with support.fails_comparison(fails):
        check(script, tmp_path, changes)
