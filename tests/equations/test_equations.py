"""Each script's own graph against a NumPy reference, under a fixed interleaving of two workers.

Then the mistakes: each is put into a copy of the script, and a comparison of numbers, named here,
must fail. That the mistaken script runs all the same, and ends well, is tested, too.
"""

import interleaved
import numpy as np
import pytest
import references
import support
from problem import (
    BATCH,
    LR,
    PROSE,
    SPARSE,
    command_line,
    digits_like,
    draw,
    gradient_on_digits,
    keras_step,
)

EXAMPLES = {  # name: (its reference, its flags)
    "HogWild": (references.HogWild, {}),
    "DOWNPOUR-Easy": (references.Easy, {"local_steps": 4}),
    "ADAG": (references.Adag, {"local_steps": 4}),
    "DOWNPOUR": (
        references.Downpour,
        {"local_steps": 4, "server_lr": 0.07, "initial_accumulator": 0.2},
    ),
    "DynSGD": (references.Dyn, {"local_steps": 3}),
    "AEASGD": (references.Elastic, {"local_steps": 4, "rho": 1.5}),
    "AEAMSGD": (references.Elastic, {"local_steps": 4, "rho": 1.5, "momentum": 0.8}),
}
ALONE = [  # those of a single worker, which pulls and pushes in turn
    support.main_script("Non-Distributed-Setup"),
    support.main_script("Distributed-Setup"),
    support.ROOT / "Distributed-Setup" / "distributed_setup_supervisor.py",
]

# Who does what: < is a pull, > a push of a worker, with anything of the other in between.
SCHEDULE = [
    ({"<": "pull", ">": "push"}[what], int(k))
    for what, k in "<0 <1 >1 <1 >1 >0 <0 >0 <1 <0 >0 <0 >0 <0 >0 >1 <1 >1 <0 <1 >0 >1 <1 >1".split()
]
IN_TURN = [("pull", 0), ("push", 0)] * 12


def compare_pushes(workers, expected, schedule):
    """Asserts that the workers' pushes do what those of the reference do."""
    first, pushes, due = workers.values(), workers.follow(schedule), []
    for what, k in schedule:
        if what == "pull":
            expected.pull(k)
        else:
            due.append(expected.push(k))
    interleaved.check(first, workers.values(), expected.values(), pushes, due)


def compare(script, reference, flags, schedule=SCHEDULE, text=None):
    """Asserts that the script's graph, with w on two ps, does what the reference does."""
    n = 1 + max(k for _, k in schedule)
    with interleaved.Workers(script, n, command_line(flags), text=text, ps=2) as workers:
        expected = reference(workers.parameters(), n, gradient_on_digits(n), LR, **flags)
        compare_pushes(workers, expected, schedule)


@pytest.mark.parametrize("name", EXAMPLES)
def test_update_is_the_equation(name):
    compare(support.main_script(name), *EXAMPLES[name])


@pytest.mark.parametrize("script", ALONE, ids=lambda path: path.name)
def test_one_worker_is_plain_sgd(script):
    compare(script, references.HogWild, {}, IN_TURN)


ONE_STEP = {"local_steps": 1}


@pytest.mark.parametrize(
    "name, reference, flags, schedule",
    [
        # One worker, and one local step: plain SGD.
        ("HogWild", references.HogWild, {}, IN_TURN),
        ("DOWNPOUR-Easy", references.HogWild, ONE_STEP, IN_TURN),
        ("ADAG", references.HogWild, ONE_STEP, IN_TURN),
        ("DynSGD", references.HogWild, ONE_STEP, IN_TURN),
        # Two workers, and one local step: HogWild.
        ("DOWNPOUR-Easy", references.HogWild, ONE_STEP, SCHEDULE),
        ("ADAG", references.HogWild, ONE_STEP, SCHEDULE),
        # No staleness: DOWNPOUR-Easy.
        ("DynSGD", references.Easy, {"local_steps": 3}, IN_TURN),
    ],
)
def test_an_example_is_another_one(name, reference, flags, schedule):
    compare(support.main_script(name), reference, flags, schedule)


def test_aeamsgd_without_momentum_is_aeasgd():
    """--momentum must be above 0: this one changes no float32."""
    flags = {"local_steps": 4, "rho": 1.5, "momentum": 1e-30}
    compare(support.main_script("AEAMSGD"), references.Elastic, flags)
    values = []
    for name, momentum in ("AEASGD", {}), ("AEAMSGD", {"momentum": 1e-30}):
        flags = command_line({"local_steps": 4, "rho": 1.5, **momentum})
        with interleaved.Workers(support.main_script(name), 2, flags) as workers:
            workers.follow(SCHEDULE)
            values.append(workers.values())
    for name in "parameters", "own parameters":
        assert np.abs(values[0][name] - values[1][name]).max() < 1e-6


# A model that keeps something beside w, and has a penalty on w.
KEEPING = """def make_model(data):
    return keras.Sequential([
        keras.Input(data.x_train.shape[1:]), keras.layers.BatchNormalization(momentum=0.5),
        keras.layers.Dropout(0.4),
        keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.1))])


"""


def keeping(script, changes=()):
    """The script's text with that model in it, and with these changes."""
    text = support.replaced(script, changes)
    start, end = text.index("def make_model("), text.index("def loss(y, outputs):")
    return text[:start] + KEEPING + text[end:]


def state_of(worker):
    """[the state of this worker, the chief's on the ps], each as arrays."""
    own = [v for v in worker.locals if v.op.name.startswith("own_")]
    kept = [v for v in worker.globals if v.op.name.startswith("state_")]
    return worker.session.run([own, kept])


def compare_state(name, changes=()):
    """Asserts that one worker's state has moved once for each mini-batch, in their order."""
    script, (_, flags) = support.main_script(name), EXAMPLES[name]
    text = keeping(script, changes)
    with interleaved.Workers(script, 1, command_line(flags), text=text) as (worker, *_):
        for _ in range(3):
            worker.push()
        worker.session.run(worker.test)  # which brings the chief's state to the ps
        (mean, _, seed), kept = state_of(worker)  # the _ is the moving variance
    expected, batches = np.zeros(6), 3 * flags.get("local_steps", 1)
    for number in range(batches):
        rows = draw(0, number, BATCH, 41)
        expected = 0.5 * expected + 0.5 * digits_like()[0][rows].mean(0)
    compared = {
        "moving mean": (mean, expected),
        "draws from the seed": ([seed[1]], [batches]),
        "state on the ps": ([kept[0], kept[2]], [mean, seed]),
    }
    interleaved.check_apart(compared, 1e-5)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_state_of_the_model_moves_with_each_step(name):
    compare_state(name)


def compare_keeping(changes=()):
    """Asserts that HogWild trains that model as Keras does: state, masks and penalty included.

    Each push has pulled just before.
    """
    script, schedule = support.main_script("HogWild"), [0, 1, 1, 0, 0, 1, 0, 1]
    text = keeping(script, changes)
    with interleaved.Workers(script, 2, command_line({}), text=text) as workers:
        one, two = workers
        w, on_ps = workers.parameters(), state_of(one)[1]
        mean, variance, seed = on_ps
        states = [on_ps, [mean, variance, seed + 1]]  # + the rank, for other masks of Dropout
        losses = [workers.workers[k].push()[0] for k in schedule]
        one.session.run(one.test)  # which brings the chief's state to the ps
        last, kept = workers.parameters(), state_of(one)[1]
        owned = [state_of(one)[0], state_of(two)[0]]
        data, due = interleaved.Data(*digits_like()), []
        x, y, model = data.x_train, data.y_train, one.script.make_model(data)
        for number, k in enumerate(schedule):
            rows = draw(k, number, BATCH, len(x[k::2]))
            batch = x[k::2][rows], y[k::2][rows]
            loss, w, states[k] = keras_step(model, w, states[k], [batch])
            due.append(loss)
    compared = {
        "parameters": (last, w),
        "state of worker 0": (owned[0], states[0]),
        "state of worker 1": (owned[1], states[1]),
        "state on the ps": (kept, states[0]),
        "losses": (losses, due),
    }
    interleaved.check_apart(compared, 1e-5)


def test_a_model_with_state_and_a_penalty_trains_as_with_keras():
    compare_keeping()


FROZEN = [("[v.assign(new) for v, new in zip(local_state, after)]", "[]")]


@pytest.mark.parametrize(
    "fails, changes",
    [
        ("state of worker 0", FROZEN),
        ("parameters", [(", *penalties])", "])")]),
        ("parameters", [("tf.cast(rank, v", "tf.cast(0, v")]),
        ("state on the ps", [("[v.assign(new) for v, new in zip(state, local_state)]", "[]")]),
    ],
    ids=["frozen", "no penalties", "the same masks for all", "it does not reach the ps"],
)
def test_a_mistake_about_the_state_is_caught(fails, changes):
    with support.caught(fails):
        compare_keeping(changes)


def test_a_state_that_is_lost_between_local_steps_is_caught():
    with support.caught("moving mean"):
        compare_state("DOWNPOUR", FROZEN)


def compare_late(changes=()):
    """Asserts that a worker of AEASGD that begins anew draws the mini-batches of now."""
    script = support.main_script("AEASGD")
    flags, text = command_line({"local_steps": 1, "rho": 1.5}), support.replaced(script, changes)
    with interleaved.Workers(script, 2, flags, text=text) as workers:
        one, late = workers
        for _ in range(3):
            one.push()
        late.session.run(late.start[1])
        own = late.session.run([v for v in late.locals if v.op.name.endswith("_k")])
        due, _ = gradient_on_digits(2)(1, 3, workers.unpacked(np.float64(own[0])))
        loss, *_ = late.push()
    assert abs(loss - due) < 1e-5, f"losses: {abs(loss - due):g} apart"


def test_a_worker_that_comes_later_does_not_begin_with_the_first_batches():
    compare_late()
    clock = '"clock", initializer=%s)'
    with support.caught("losses"):
        compare_late([(clock % "step.read_value()", clock % "tf.constant(0, tf.int64)")])


# Sparse-Embeddings has a problem of its own.
def compare_sparse(folder, text=None):
    """Sparse-Embeddings on two ps against HogWild's rule with dense gradients of the same model."""
    (folder / "prose.txt").write_text(PROSE)
    script = support.load(SPARSE)
    data = script.load_data(str(folder / "prose.txt"))
    flags = {"--dimensions": 5, "--noise-words": 6, **command_line({})}

    def gradient(k, number, w):
        pairs = data.train[k::2]
        drawn = pairs[draw(k, number, BATCH + 6, len(pairs))]
        return references.skip_gram(w, drawn[:BATCH], drawn[BATCH:, 1], weight=5)

    with interleaved.Workers(SPARSE, 2, flags, data, text, ps=2) as workers:
        tables = workers.parameters()
        assert [len(table) for table in tables] == [10, 9, 10, 9], "19 words in two parts"
        expected = references.HogWild(tables, 2, gradient, LR)
        compare_pushes(workers, expected, SCHEDULE)


def test_sparse_update_is_the_equation(tmp_path):
    compare_sparse(tmp_path)


PUSH = "flags.learning_rate * s"
CACHE = (  # the parameters of the next push are read before this one's has arrived
    """    with tf.control_dependencies([version]):
        pulled = [v.read_value() for v in w]
""",
    """    kept = [tf.get_local_variable(v.op.name + "_c", initializer=v.read_value()) for v in w]
    with tf.control_dependencies([version]):
        pulled = [tf.identity(v.read_value()) for v in kept]
""",
)
CACHED = (
    "    with tf.control_dependencies([ticket]):\n",
    """    with tf.control_dependencies([ticket]):
        news = [tf.identity(v.read_value()) for v in w]
    with tf.control_dependencies(news):
        cached = tf.group(*[k.assign(v) for k, v in zip(kept, news)])
    with tf.control_dependencies([cached]):
""",
)
NOW = """    now = [v.read_value() for v in w]
    loss, g = gradient(now, version)
"""
RANK = 'json.loads(os.environ["TF_CONFIG"])["task"]["index"]'
SGD_STEP = "v - flags.learning_rate * d for v, d in zip(w_k, g)"
ADAGRAD_STEP = (
    "v - flags.learning_rate * d / tf.sqrt(flags.initial_accumulator + s * s) "
    "for v, d, s in zip(w_k, g, a)"
)
ADAGRAD = "AdagradOptimizer(flags.server_lr, flags.initial_accumulator)"
OWN = "initializer=%s) for"
ONCE = "once, place = %s"
ROWS = (
    "v.scatter_update(tf.IndexedSlices("
    "tf.gather(v, change.indices) - change.values, change.indices))"
)
# (the example, the comparison that fails): {the mistake: [(text, what replaces it)]}
MISTAKES = {
    ("HogWild", "parameters"): {
        "the rate is not the flag's": [("[flags.learning_rate * d for", "[0.1 * d for")],
        # To the first parameters: to all of w, the loss would soon be NaN.
        "the push adds": [("v.assign_sub(d)", "v.assign_sub(tf.concat([-d[:9], d[9:]], 0))")],
        "the gradient is not at the pulled w": [("    loss, g = gradient(w_k, version)\n", NOW)],
        "constant data": [("(w_k, version)\n", "(w_k, 0)\n")],
        "all draw the same batches": [("flags.seed * 65536 + rank", "flags.seed * 65536")],
        "the push leaves out one ps": [("zip(w, delta)])", "zip(w[1:], delta[1:])])")],
    },
    ("HogWild", "staleness"): {
        "it counts the worker's own push": [("g, version, ticket", "g, version - 1, ticket")]
    },
    ("DOWNPOUR-Easy", "parameters"): {
        "a pull that is not ordered after the push": [CACHE, CACHED],
        "one forward pass for all T steps": [(f"w_k = [{SGD_STEP}]", "")],
        "one mini-batch for all T steps": [("first + t)", "first)")],
        "no last local step": [("t < flags.local_steps", "t < flags.local_steps - 1")],
        "the mean instead of the sum": [(PUSH, PUSH + " / flags.local_steps")],
        "the rate counts twice in the push": [(PUSH, "flags.learning_rate * " + PUSH)],
        "a rate that is the worker's index": [(PUSH, PUSH + " * " + RANK)],
    },
    ("ADAG", "parameters"): {"the sum instead of the mean": [(" / flags.local_steps", "")]},
    ("DOWNPOUR", "accumulators"): {
        "the mean": [("send(w, a)", "send(w, [s / flags.local_steps for s in a])")],
        "one gradient of the T": [("[s + d for s, d in zip(a, g)]", "g")],
    },
    ("DOWNPOUR", "parameters"): {
        "Adagrad on both sides": [(SGD_STEP, ADAGRAD_STEP)],
        "plain SGD on the ps": [(ADAGRAD, "GradientDescentOptimizer(flags.server_lr)")],
        "Adagrad with the worker's rate": [
            (ADAGRAD, ADAGRAD.replace("server_lr", "learning_rate"))
        ],
    },
    ("DynSGD", "parameters"): {
        "no division by the staleness": [(" / tf.to_float(ticket - version + 1)", "")],
        "its own update twice": [("ticket - version + 1", "ticket - version + 2")],
    },
    ("AEASGD", "own parameters"): {
        "a worker starts from its own random point": [
            (OWN % "v.read_value()", OWN % "tf.random_normal(v.shape, 0, 0.1)")
        ],
        "nothing depends on the local step: it is pruned": [
            ("*[v.assign(m - e) for v, m, e in zip(own, moved, force)],", "")
        ],
        "the force has the wrong sign": [("v.assign(m - e)", "v.assign(m + e)")],
        "the force does not move w_k": [("v.assign(m - e)", "v.assign(m)")],
    },
    ("AEASGD", "parameters"): {
        "the force is that of the w_k after the step": [
            ("zip(w_k, pulled)]", "zip(move(last, w_k)[1], pulled)]")
        ],
        "the force before the local steps": [("zip(w_k, pulled)]", "zip(own, pulled)]")],
    },
    ("AEAMSGD", "velocities"): {
        "the look-ahead has the wrong sign": [("p + flags.momentum", "p - flags.momentum")],
        "no look-ahead": [("p + flags.momentum * v for", "tf.identity(p) for")],
        "it is lost": [("*[v.assign(new) for v, new in zip(own_v, v_k)],", "")],
    },
    ("AEAMSGD", "own parameters"): {
        "the rate counts twice": [("[p + v for p, v", "[p + flags.learning_rate * v for p, v")]
    },
    ("Sparse-Embeddings", "parameters"): {
        "the sparse push adds": [("v.scatter_sub(", "v.scatter_add(")],
        "a row that comes twice moves once": [
            (ONCE % "tf.unique(words)", ONCE % "words, tf.range(tf.size(words))"),
            ("v.scatter_sub(change)", ROWS),
        ],
        "the noise has no weight": [("WEIGHT * tf.reduce_mean", "tf.reduce_mean")],
    },
}


@pytest.mark.parametrize("name, fails, changes", support.mistakes(MISTAKES, core=3))
def test_a_mistake_is_caught(name, fails, changes, tmp_path):
    script = support.main_script(name)
    text = support.replaced(script, changes)
    with support.caught(fails):
        if script == SPARSE:
            compare_sparse(tmp_path, text)
        else:
            compare(script, *EXAMPLES[name], text=text)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_mistaken_scripts_run(tmp_path):
    """A mistake counts only if nothing but a number gives it away: `--steps 20` ends well."""
    texts = {
        name: support.replaced(support.main_script(example), changes)
        for (example, _), named in MISTAKES.items()
        for name, changes in named.items()
    }
    support.run_well(texts, tmp_path)
