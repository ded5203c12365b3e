"""Each script's own graph against a NumPy reference, under a fixed interleaving of two workers.

Then the mistakes: each is put into a copy of the script, and a comparison of numbers, named here,
must fail. That the mistaken script runs all the same, and ends well, is tested, too.
"""

import collections

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
)

Example = collections.namedtuple("Example", "script reference flags")


def example(folder, reference, **flags):
    return Example(support.main_script(folder), reference, flags)


EXAMPLES = {
    each.script.parent.name: each
    for each in [
        example("HogWild", references.HogWild),
        example("DOWNPOUR-Easy", references.Easy, local_steps=4),
        example("ADAG", references.Adag, local_steps=4),
        example(
            "DOWNPOUR",
            references.Downpour,
            local_steps=4,
            server_lr=0.07,
            initial_accumulator=0.2,
        ),
        example("DynSGD", references.Dyn, local_steps=3),
        example("AEASGD", references.Elastic, local_steps=4, rho=1.5),
        example("AEAMSGD", references.Elastic, local_steps=4, rho=1.5, momentum=0.8),
    ]
}
ALONE = [  # those of a single worker, which pulls and pushes in turn
    support.ROOT / "Non-Distributed-Setup" / "non_distributed_setup.py",
    support.ROOT / "Distributed-Setup" / "distributed_setup.py",
    support.ROOT / "Distributed-Setup" / "distributed_setup_supervisor.py",
]

# Who does what: < is a pull, > a push of a worker, with anything of the other in between.
SCHEDULE = [
    ({"<": "pull", ">": "push"}[what], int(k))
    for what, k in "<0 <1 >1 <1 >1 >0 <0 >0 <1 <0 >0 <0 >0 <0 >0 >1 <1 >1 <0 <1 >0 >1 <1 >1".split()
]
IN_TURN = [("pull", 0), ("push", 0)] * 12


def compare(script, reference, flags, schedule=SCHEDULE, text=None):
    """Asserts that the script's graph, with w on two ps, does what the reference does."""
    n = 1 + max(k for _, k in schedule)
    # Built by hand, because the script's namedtuple is known only once it is loaded.
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    with interleaved.Workers(script, n, command_line(flags), data, text, ps=2) as workers:
        expected = reference(workers.parameters(), n, gradient_on_digits(n), LR, **flags)
        first = workers.values()
        pushes, due = workers.follow(schedule), []
        for what, k in schedule:
            if what == "pull":
                expected.pull(k)
            else:
                due.append(expected.push(k))
        check(first, workers.values(), expected.values(), pushes, due)


def check(first, last, expected, pushes, due):
    """The named comparisons of numbers that a mistake must fail."""
    assert len(pushes) == len(due) >= 10
    wrong = []
    for name, vector in last.items():
        apart = np.abs(vector - interleaved.flat(expected[name])).max()
        moved = np.abs(vector - first[name]).max()
        if not apart < 1e-5 or not moved > 0.001:
            wrong.append("%s: %g apart, %g moved" % (name, apart, moved))
    for column, name in enumerate(["losses", "tickets", "staleness"]):
        apart = np.abs(np.array(pushes)[:, column] - np.array(due)[:, column]).max()
        if not apart < 1e-5:
            wrong.append("%s: %g apart" % (name, apart))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", EXAMPLES)
def test_update_is_the_equation(name):
    compare(*EXAMPLES[name])


@pytest.mark.parametrize("script", ALONE, ids=lambda path: path.name)
def test_one_worker_is_plain_sgd(script):
    compare(script, references.HogWild, {}, IN_TURN)


@pytest.mark.parametrize("name", ["HogWild", "DOWNPOUR-Easy", "ADAG", "DynSGD"])
def test_with_one_local_step_and_one_worker_it_is_plain_sgd(name):
    flags = {"local_steps": 1} if EXAMPLES[name].flags else {}
    compare(EXAMPLES[name].script, references.HogWild, flags, IN_TURN)


@pytest.mark.parametrize("name", ["DOWNPOUR-Easy", "ADAG"])
def test_with_one_local_step_it_is_hogwild(name):
    compare(EXAMPLES[name].script, references.HogWild, {"local_steps": 1})


def test_dynsgd_without_staleness_is_downpour_easy():
    compare(EXAMPLES["DynSGD"].script, references.Easy, {"local_steps": 3}, IN_TURN)


def test_aeamsgd_without_momentum_is_aeasgd():
    """The velocities are then the last steps, which AEASGD does not keep.

    --momentum must be above 0: this one changes no float32.
    """
    flags = {"local_steps": 4, "rho": 1.5, "momentum": 1e-30}
    compare(EXAMPLES["AEAMSGD"].script, references.Elastic, flags)
    values = []
    for name, flags in ("AEASGD", {}), ("AEAMSGD", {"--momentum": 1e-30}):
        flags = {**command_line({"local_steps": 4, "rho": 1.5}), **flags}
        data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
        with interleaved.Workers(EXAMPLES[name].script, 2, flags, data) as workers:
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
    script, _, flags = EXAMPLES[name]
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    text = keeping(script, changes)
    with interleaved.Workers(script, 1, command_line(flags), data, text) as (worker, *_):
        for _ in range(3):
            worker.push()
        worker.session.run(worker.test)  # which brings the chief's state to the ps
        (mean, _, seed), kept = state_of(worker)  # the _ is the moving variance
    expected, batches = np.zeros(6), 3 * flags.get("local_steps", 1)
    for number in range(batches):
        rows = draw(0, number, BATCH, 41)
        expected = 0.5 * expected + 0.5 * data.x_train[rows].mean(0)
    wrong = []
    if not np.abs(mean - expected).max() < 1e-5:
        wrong.append("moving mean: %s apart" % np.abs(mean - expected).max())
    if seed[1] != batches:
        wrong.append("seed: drawn from %d times, not %d" % (seed[1], batches))
    if not np.abs(kept[0] - mean).max() < 1e-7 or (kept[2] != seed).any():
        wrong.append("state on the ps: %s, not %s" % (kept, [mean, seed]))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_state_of_the_model_moves_with_each_step(name):
    compare_state(name)


def by_keras(script, first, states, pushes):
    """The same pushes by Keras and its own tape: (w, the state of each worker, the losses).

    first: the parameters. states: of each worker. pushes: whose push it is, in order; each of them
    has pulled just before.
    """
    import tensorflow as tf

    x, y = digits_like()[:2]
    data = collections.namedtuple("Data", "x_train y_train")(x, y)
    model, w, losses = script.make_model(data), [tf.Variable(v) for v in first], []
    for number, k in enumerate(pushes):
        rows = draw(k, number, BATCH, len(x[k::2]))
        mean, variance, seed = states[k]
        with tf.GradientTape() as tape:
            outputs, after, penalties = model.stateless_call(
                w, [mean, variance, seed], x[k::2][rows], training=True, return_losses=True
            )
            of_rows = tf.nn.sparse_softmax_cross_entropy_with_logits(y[k::2][rows], outputs)
            loss = tf.reduce_mean(of_rows) + tf.add_n(penalties)
        for v, d in zip(w, tape.gradient(loss, w)):
            v.assign_sub(LR * d)
        states[k] = [after[0].numpy(), after[1].numpy(), after[2].numpy()]
        losses.append(float(loss))
    return [v.numpy() for v in w], states, losses


def compare_keeping(changes=()):
    """Asserts that HogWild trains that model as Keras does: state, masks and penalty included."""
    script, schedule = EXAMPLES["HogWild"].script, [0, 1, 1, 0, 0, 1, 0, 1]
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    text = keeping(script, changes)
    with interleaved.Workers(script, 2, command_line({}), data, text) as workers:
        one, two = workers
        first, on_ps = workers.parameters(), state_of(one)[1]
        mean, variance, seed = on_ps
        states = [on_ps, [mean, variance, seed + 1]]  # + the rank, for other masks of Dropout
        pushes = [workers.workers[k].push() for k in schedule]
        one.session.run(one.test)  # which brings the chief's state to the ps
        last, kept = workers.parameters(), state_of(one)[1]
        owned = [state_of(one)[0], state_of(two)[0]]
        due_w, due_states, due = by_keras(one.script, first, states, schedule)
    compared = {
        "parameters": (last, due_w),
        "state of worker 0": (owned[0], due_states[0]),
        "state of worker 1": (owned[1], due_states[1]),
        "state on the ps": (kept, due_states[0]),
        "losses": ([loss for loss, *_ in pushes], due),
    }
    apart = {
        name: max(np.abs(np.array(a) - b).max() for a, b in zip(*both))
        for name, both in compared.items()
    }
    wrong = ["%s: %g apart" % each for each in apart.items() if not each[1] < 1e-5]
    assert not wrong, "\n".join(wrong)


def test_a_model_with_state_and_a_penalty_trains_as_with_keras():
    compare_keeping()


STATE_MISTAKES = {  # name -> ([(text, what replaces it)], the comparison that fails)
    "the state is frozen": (
        [("[v.assign(new) for v, new in zip(local_state, after)]", "[]")],
        "state of worker 0",
    ),
    "the penalties are dropped": ([(", *penalties])", "])")], "parameters"),
    "all workers have the same masks": ([("tf.cast(rank, v", "tf.cast(0, v")], "parameters"),
    "the chief's state does not reach the ps": (
        [("[v.assign(new) for v, new in zip(state, local_state)]", "[]")],
        "state on the ps",
    ),
}


@pytest.mark.parametrize("name", STATE_MISTAKES)
def test_a_mistake_about_the_state_is_caught(name):
    changes, what = STATE_MISTAKES[name]
    with pytest.raises(AssertionError, match="(?m)^ *%s: " % what):
        compare_keeping(changes)


@pytest.mark.parametrize("name", ["DOWNPOUR"])
def test_a_state_that_is_lost_between_local_steps_is_caught(name):
    with pytest.raises(AssertionError, match="moving mean: "):
        compare_state(name, STATE_MISTAKES["the state is frozen"][0])


def compare_late(changes=()):
    """Asserts that a worker of AEASGD that begins anew draws the mini-batches of now."""
    script = EXAMPLES["AEASGD"].script
    data = collections.namedtuple("Data", "x_train y_train x_test y_test")(*digits_like())
    flags = command_line({"local_steps": 1, "rho": 1.5})
    with interleaved.Workers(script, 2, flags, data, support.replaced(script, changes)) as workers:
        one, late = workers
        for _ in range(3):
            one.push()
        late.session.run(late.start[1])
        own = late.session.run([v for v in late.locals if v.op.name.endswith("_k")])
        due, _ = gradient_on_digits(2)(1, 3, workers.unpacked(np.float64(own[0])))
        loss, *_ = late.push()
    assert abs(loss - due) < 1e-5, "losses: %g apart" % abs(loss - due)


def test_a_worker_that_comes_later_does_not_begin_with_the_first_batches():
    compare_late()
    change = (
        '"clock", initializer=step.read_value())',
        '"clock", initializer=tf.constant(0, tf.int64))',
    )
    with pytest.raises(AssertionError, match="^losses: "):
        compare_late([change])


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
        tables, first = workers.parameters(), workers.values()
        assert [len(table) for table in tables] == [10, 9, 10, 9], "19 words in two parts"
        expected = references.HogWild(tables, 2, gradient, LR)
        pushes, due = workers.follow(SCHEDULE), []
        for what, k in SCHEDULE:
            if what == "pull":
                expected.pull(k)
            else:
                due.append(expected.push(k))
        check(first, workers.values(), expected.values(), pushes, due)


def test_sparse_update_is_the_equation(tmp_path):
    compare_sparse(tmp_path)


# The mistakes: name -> (example, [(text, what replaces it)], the comparison that fails).
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
RANK = 'json.loads(os.environ["TF_CONFIG"])["task"]["index"]'
MISTAKES = {
    "the rate is not the flag's": (
        "HogWild",
        [("[flags.learning_rate * d for", "[0.1 * d for")],
        "parameters",
    ),
    "the push adds to the first parameters": (  # to all of w, the loss would soon be NaN
        "HogWild",
        [("v.assign_sub(d)", "v.assign_sub(tf.concat([-d[:9], d[9:]], 0))")],
        "parameters",
    ),
    "the gradient is not at the pulled parameters": (
        "HogWild",
        [
            (
                "    loss, g = gradient(w_k, version)\n",
                "    now = [v.read_value() for v in w]\n    loss, g = gradient(now, version)\n",
            ),
        ],
        "parameters",
    ),
    "constant data": ("HogWild", [("(w_k, version)\n", "(w_k, 0)\n")], "parameters"),
    "all workers draw the same batches": (
        "HogWild",
        [("flags.seed * 65536 + rank", "flags.seed * 65536")],
        "parameters",
    ),
    "what one ps has of w is left out of the push": (
        "HogWild",
        [("zip(w, delta)])", "zip(w[1:], delta[1:])])")],
        "parameters",
    ),
    "staleness counts the worker's own push": (
        "HogWild",
        [("g, version, ticket", "g, version - 1, ticket")],
        "staleness",
    ),
    "a pull that is not ordered after the push": ("DOWNPOUR-Easy", [CACHE, CACHED], "parameters"),
    "one forward pass for all T steps": (
        "DOWNPOUR-Easy",
        [("w_k = [v - flags.learning_rate * d for v, d in zip(w_k, g)]", "")],
        "parameters",
    ),
    "one mini-batch for all T steps": (
        "DOWNPOUR-Easy",
        [("first + t)", "first)")],
        "parameters",
    ),
    "the last local step is lost": (
        "DOWNPOUR-Easy",
        [("t < flags.local_steps", "t < flags.local_steps - 1")],
        "parameters",
    ),
    "the mean instead of the sum": (
        "DOWNPOUR-Easy",
        [(PUSH, PUSH + " / flags.local_steps")],
        "parameters",
    ),
    "the sum instead of the mean": ("ADAG", [(" / flags.local_steps", "")], "parameters"),
    "the rate counts twice in the push": (
        "DOWNPOUR-Easy",
        [(PUSH, "flags.learning_rate * " + PUSH)],
        "parameters",
    ),
    "a rate that is the worker's index": (
        "DOWNPOUR-Easy",
        [(PUSH, PUSH + " * " + RANK)],
        "parameters",
    ),
    "Adagrad on both sides": (
        "DOWNPOUR",
        [
            (
                "v - flags.learning_rate * d for v, d in zip(w_k, g)",
                "v - flags.learning_rate * d / tf.sqrt(flags.initial_accumulator + s * s) "
                "for v, d, s in zip(w_k, g, a)",
            )
        ],
        "parameters",
    ),
    "Adagrad gets the mean": (
        "DOWNPOUR",
        [("send(w, a)", "send(w, [s / flags.local_steps for s in a])")],
        "accumulators",
    ),
    "Adagrad gets one gradient of the T": (
        "DOWNPOUR",
        [("[s + d for s, d in zip(a, g)]", "g")],
        "accumulators",
    ),
    "plain SGD on the ps": (
        "DOWNPOUR",
        [
            (
                "AdagradOptimizer(flags.server_lr, flags.initial_accumulator)",
                "GradientDescentOptimizer(flags.server_lr)",
            )
        ],
        "parameters",
    ),
    "Adagrad with the worker's rate": (
        "DOWNPOUR",
        [("AdagradOptimizer(flags.server_lr", "AdagradOptimizer(flags.learning_rate")],
        "parameters",
    ),
    "the step is not divided by the staleness": (
        "DynSGD",
        [(" / tf.to_float(ticket - version + 1)", "")],
        "parameters",
    ),
    "the staleness counts the own update twice": (
        "DynSGD",
        [("ticket - version + 1", "ticket - version + 2")],
        "parameters",
    ),
    "a worker starts from its own random point": (
        "AEASGD",
        [
            (
                "initializer=v.read_value()) for",
                "initializer=tf.random_normal(v.shape, 0, 0.1)) for",
            )
        ],
        "own parameters",
    ),
    "the local step is pruned, for nothing depends on it": (
        "AEASGD",
        [("*[v.assign(m - e) for v, m, e in zip(own, moved, force)],", "")],
        "own parameters",
    ),
    "the force is that of the w_k after the step": (
        "AEASGD",
        [("zip(w_k, pulled)]", "zip(move(last, w_k)[1], pulled)]")],
        "parameters",
    ),
    "the force has the wrong sign": (
        "AEASGD",
        [("v.assign(m - e)", "v.assign(m + e)")],
        "own parameters",
    ),
    "the force does not move w_k": (
        "AEASGD",
        [("v.assign(m - e)", "v.assign(m)")],
        "own parameters",
    ),
    "the force is that of the w_k before the local steps": (
        "AEASGD",
        [("zip(w_k, pulled)]", "zip(own, pulled)]")],
        "parameters",
    ),
    "the look-ahead has the wrong sign": (
        "AEAMSGD",
        [("p + flags.momentum * v for", "p - flags.momentum * v for")],
        "velocities",
    ),
    "no look-ahead": (
        "AEAMSGD",
        [("p + flags.momentum * v for", "tf.identity(p) for")],
        "velocities",
    ),
    "the rate counts twice": (
        "AEAMSGD",
        [("[p + v for p, v", "[p + flags.learning_rate * v for p, v")],
        "own parameters",
    ),
    "the velocity is lost": (
        "AEAMSGD",
        [("*[v.assign(new) for v, new in zip(own_v, v_k)],", "")],
        "velocities",
    ),
    "the sparse push adds": (
        "Sparse-Embeddings",
        [("v.scatter_sub(", "v.scatter_add(")],
        "parameters",
    ),
    "a row that comes twice moves once": (
        "Sparse-Embeddings",
        [
            ("once, place = tf.unique(words)", "once, place = words, tf.range(tf.size(words))"),
            (
                "v.scatter_sub(change)",
                "v.scatter_update(tf.IndexedSlices("
                "tf.gather(v, change.indices) - change.values, change.indices))",
            ),
        ],
        "parameters",
    ),
    "the noise has no weight": (
        "Sparse-Embeddings",
        [("WEIGHT * tf.reduce_mean", "tf.reduce_mean")],
        "parameters",
    ),
}


def mistaken(name):
    """(the script of the example, its text with the mistake in it)."""
    folder, changes, _ = MISTAKES[name]
    path = support.main_script(folder)
    return path, support.replaced(path, changes)


def three_each():
    """The mistakes, of which the tier core has three of each example."""
    count = collections.Counter()
    for name, (folder, *_) in MISTAKES.items():
        count[folder] += 1
        yield pytest.param(name, marks=[pytest.mark.long] if count[folder] > 3 else [])


@pytest.mark.parametrize("name", list(three_each()))
def test_a_mistake_is_caught(name, tmp_path):
    path, text = mistaken(name)
    with pytest.raises(AssertionError, match="(?m)^ *%s: " % MISTAKES[name][2]):
        if path == SPARSE:
            compare_sparse(tmp_path, text)
        else:
            compare(*EXAMPLES[path.parent.name], text=text)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_mistaken_scripts_run(tmp_path):
    """A mistake counts only if nothing but a number gives it away: `--steps 20` ends well."""
    assert len(MISTAKES) >= 14
    support.run_well({name: mistaken(name)[1] for name in MISTAKES}, tmp_path)
