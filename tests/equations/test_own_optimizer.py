"""An optimizer of the user's in the place of each script's own step, against NumPy.

The other tests of equations have SGD in that place. These put Adam with a schedule, or momentum,
there: into the step of a ps, of a worker alone, and of all by the mean. They catch an optimizer
that sees learning rate times gradient, counts other updates than its own, or shares its slots.
"""

import pathlib
import re
import types

import equations
import in_process
import interleaved
import keras
import numpy as np
import problem
import pytest
import ring_workers
import support
import tensorflow as tf
import test_sharded
from lab import examples
from test_equations import IN_TURN
from tfrun import problems
from tfrun.apps import references
from tfrun.problems import adapted_optimizer

STEPS = 12


class Momentum:
    """v <- 0.9 v - lr g,  w <- w + v, with lr = 0.05 / (1 + t / 4), t from 0; Keras's SGD."""

    TEXT = """keras.optimizers.SGD(
        keras.optimizers.schedules.InverseTimeDecay(0.05, 4, 1.0), momentum=0.9)"""

    def __init__(self):
        self.v = None

    def __call__(self, w, g, t):
        rate = 0.05 / (1 + t / 4)
        self.v = [0.9 * v - rate * d for v, d in zip(self.v or [0 * p for p in w], g)]
        return [p + v for p, v in zip(w, self.v)]


class Adam:
    """Kingma, Ba 2015, section 2, with epsilon beside the root of v as in the formula before
    section 2.1; each number of a gradient is clipped to 0.05 first."""

    TEXT = "keras.optimizers.Adam(0.01, epsilon=0.01, clipvalue=0.05)"

    def __init__(self):
        self.m = self.v = None

    def __call__(self, w, g, t):
        g = [np.clip(d, -0.05, 0.05) for d in g]
        zeros = [0 * p for p in w]
        self.m = [0.9 * m + 0.1 * d for m, d in zip(self.m or zeros, g)]
        self.v = [0.999 * v + 0.001 * d * d for v, d in zip(self.v or zeros, g)]
        rate = 0.01 * np.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
        return [p - rate * m / (np.sqrt(v) + 0.01) for p, m, v in zip(w, self.m, self.v)]


OPTIMIZERS = [Adam, Momentum]


def for_all(base, optimizer):
    """Returns a reference whose step of w is the optimizer's, by the gradient of `base`."""

    class Reference(base):
        def __init__(self, *arguments, **hyperparameters):
            super().__init__(*arguments, **hyperparameters)
            self.optimizer = optimizer()

        def stepped(self, function, *arguments):
            before, step = self.copy(), self.step
            result = function(*arguments)
            g = [(old - new) / self.lr for old, new in zip(before, self.w)]
            self.w = self.optimizer(before, g, step)
            return result

        def update(self, *arguments):
            return self.stepped(super().update, *arguments)

        def joint_step(self, those):
            return self.stepped(super().joint_step, those)

    return Reference


def alone(base, optimizer):
    """Returns a reference in whose local steps each worker has such an optimizer."""

    class Reference(base):
        def __init__(self, w, n, gradient, lr, **hyperparameters):
            own, counts = [optimizer() for _ in range(n)], [0] * n

            def direction(k, number, w_k):
                loss, g = gradient(k, number, w_k)
                moved = own[k](w_k, g, counts[k])
                counts[k] += 1
                return loss, [(old - new) / lr for old, new in zip(w_k, moved)]

            super().__init__(w, n, direction, lr, **hyperparameters)

    return Reference


PS = """
server = adapted_optimizer.server_with(make_optimizer, server)
if "adagrad" in globals():
    adagrad = adapted_optimizer.adagrad
if "steps_together" in globals():
    steps_together = adapted_optimizer.counted(steps_together)
"""
WORKER = """
gradients = adapted_optimizer.gradients_with(OPTIMIZER, gradients)
make_plain_model = make_model
if "adamw_steps" in globals():
    adamw_steps = adapted_optimizer.adamw_steps


def make_model(data):
    model = make_plain_model(data)
    x = keras.Input(data.x_train.shape[1:])
    return adapted_optimizer.WithSlots(make_optimizer(), model).model(x)


if OPTIMIZER == "mean":
    algorithm = adapted_optimizer.algorithm_with(algorithm)
"""
SHARD = "Block.adam = adapted_optimizer.adam_of_shards(make_optimizer)\n"
PLACES = {"ps": PS, "local": WORKER, "mean": WORKER, "shard": SHARD}


def text_with(script, optimizer, changes=()):
    """Returns the text of a script with an optimizer. changes: replacements in the script."""
    text = examples.replaced(script, changes)
    place = PLACES[re.search('(?m)^OPTIMIZER = "(.+?)"', text)[1]]
    lines = f"""from tfrun.problems import adapted_optimizer


def make_optimizer():
    return {optimizer.TEXT}

{place}

if __name__ == "__main__":
"""
    assert text.count('if __name__ == "__main__":\n') == 1
    return text.replace('if __name__ == "__main__":\n', lines)


def compare(script, folder, optimizer, changes=(), reference=None):
    """Asserts that the script with the optimizer, and w on two ps if any, does what NumPy does."""
    file, text = equations.of(script), text_with(script, optimizer, changes)
    local = 'OPTIMIZER = "local"' in text
    due_reference = (alone if local else for_all)(reference or file.REFERENCE, optimizer)
    if script in equations.compared(equations.RINGS):
        return compare_ring(script, file, text, due_reference)
    n = file.WORKERS
    data, gradient = file.PROBLEM(script, n, folder)
    with in_process.workers(script, n, problem.command_line(file.FLAGS), data, text, ps=2) as all:
        expected = due_reference(all.parameters(), n, gradient, problem.LR, **file.FLAGS)
        first, pushes, due = all.values(), [], []
        if hasattr(expected, "joint_step") and script in equations.compared(equations.TOGETHER):
            for step in range(STEPS):
                pushes.extend(all.joint_step())
                due.extend((loss, step, 0) for loss in expected.joint_step(range(n)))
        else:
            schedule = interleaved.SCHEDULE if n == 2 else IN_TURN
            pushes = all.follow(schedule)
            for what, k in schedule:
                if what == "pull":
                    expected.pull(k)
                else:
                    due.append(expected.push(k))
        last, due_values = all.values(), expected.values()
        names = last.keys() & due_values.keys()
        interleaved.check(
            first,
            {name: last[name] for name in names},
            {name: due_values[name] for name in names},
            pushes,
            due,
        )


def compare_ring(script, file, text, reference, n=3):
    """The same of workers in a ring."""
    flags = problem.command_line(file.FLAGS)
    workers = ring_workers.make_steps(script, n, text, flags, STEPS)
    first = ring_workers.arrays(workers[0].w[0].astype(float))
    expected = reference(first, n, problem.gradient_on_digits(n), problem.LR, **file.FLAGS)
    due = []
    for step in range(STEPS):
        due.extend((loss, step, 0) for loss in expected.joint_step(range(n)))
    due_w = interleaved.flat(sum((expected.w_of(k) for k in range(n)), []))
    rows = [worker.rows for worker in workers]
    pushes = [
        (row["loss"][step], row["global_step"][step] - 1, row["staleness"][step])
        for step in range(STEPS)
        for row in rows
    ]
    interleaved.check(
        {"parameters": np.concatenate([worker.w[0] for worker in workers])},
        {"parameters": np.concatenate([worker.w[-1] for worker in workers])},
        {"parameters": [due_w]},
        pushes,
        due,
        least=0.01,
    )


def scripts(place):
    """Returns the scripts with this place that the tests here can run."""
    kinds = equations.INTERLEAVED, equations.TOGETHER, equations.RINGS
    known = [path for kind in kinds for path in equations.compared(kind)]
    return [
        pytest.param(path, id=path.stem, marks=[] if path.stem in CORE else pytest.mark.long)
        for path in known
        if f'OPTIMIZER = "{place}"' in path.read_text()
    ]


CORE = ["hogwild", "synchronous_sgd", "local_sgd"]


class Outer(references.Synchronous):
    """DiLoCo with other local steps: d <- mean of w - w_k after T of them; Nesterov by d.

    u <- beta u + d,  w <- w - outer (d + beta u): Douillard et al. 2023, algorithm 1, with the
    outer optimizer of its section 3.
    """

    def __init__(self, w, *more, **hyperparameters):
        super().__init__(w, *more, **hyperparameters)
        self.u = [np.zeros_like(v) for v in self.w]

    def joint_step(self, those):
        T, own, losses = self.hyperparameters["local_steps"], [], []
        for k in those:
            w_k = self.copy()
            for t in range(T):
                loss, direction = self.gradient(k, self.step * T + t, w_k)
                w_k = [v - self.lr * d for v, d in zip(w_k, direction)]
            own.append(w_k)
            losses.append(loss)
        beta, outer = (self.hyperparameters[name] for name in ("outer_momentum", "outer_rate"))
        d = [v - sum(parts) / len(those) for v, parts in zip(self.w, zip(*own))]
        self.u = [beta * u + move for u, move in zip(self.u, d)]
        self.w = [v - outer * (move + beta * u) for v, move, u in zip(self.w, d, self.u)]
        self.step += 1
        return losses

    def values(self):
        return {**super().values(), "velocity": self.u}


# Of scripts that have an optimizer of their own, with another one in its place.
REPLACED = {"diloco": Outer, "downpour": references.Easy}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("script", scripts("ps"))
def test_on_a_ps(script, optimizer, tmp_path):
    compare(script, tmp_path, optimizer, reference=REPLACED.get(script.stem))


@pytest.mark.parametrize("optimizer", support.some_in_core(OPTIMIZERS, ["Adam"]))
@pytest.mark.parametrize("script", scripts("local") + scripts("mean"))
def test_on_a_worker(script, optimizer, tmp_path):
    compare(script, tmp_path, optimizer, reference=REPLACED.get(script.stem))


@pytest.mark.parametrize("optimizer", support.some_in_core(OPTIMIZERS, ["Adam"]))
def test_on_towers(optimizer):
    """Both towers are on the CPU. Catches slots of one tower each, and a step for each tower."""
    path = examples.main_script("Multiple-GPUs-Single-Machine")
    flags = {"steps": 99}
    script, flags = interleaved.loaded(
        path, text_with(path, optimizer), problem.command_line(flags)
    )
    data, models = script.Data(*problem.digits_like()), []
    for _ in range(2):
        keras.utils.set_random_seed(flags.seed)
        models.append(script.make_model(data))
    saved, make_steps, _ = script.build(models, data, flags, ["/CPU:0"] * 2)
    first = saved.w.numpy()
    expected = for_all(references.Synchronous, optimizer)(
        ring_workers.arrays(first.astype(float)), 2, problem.gradient_on_digits(2), problem.LR
    )
    rows = [script.Push(*row) for row in make_steps(tf.constant(STEPS)).numpy()]
    due = [(np.mean(expected.joint_step(range(2))), step, 0) for step in range(STEPS)]
    interleaved.check(
        {"parameters": first},
        {"parameters": saved.w.numpy()},
        {"parameters": expected.w},
        [(row.loss, row.global_step - 1, row.staleness) for row in rows],
        due,
    )


@pytest.mark.parametrize("stage", support.some_in_core(["3", "1", "0"], ["3"]))
@pytest.mark.parametrize("optimizer", support.some_in_core(OPTIMIZERS, ["Adam"]))
def test_on_shards(optimizer, stage):
    """Catches an optimizer that loses its slots, counts from another step, or moves all of w."""
    text = text_with(test_sharded.SCRIPT, optimizer)
    workers = test_sharded.train(2, text, steps=STEPS, stage=stage)
    expected = for_all(references.Synchronous, optimizer)(
        ring_workers.arrays(workers[0].w[0].astype(float)), 2, problem.gradient_on_digits(2), 1.0
    )
    for step in range(STEPS):
        expected.joint_step(range(2))
        for worker in workers:
            apart = np.abs(worker.w[step + 1] - interleaved.flat(expected.w)).max()
            assert apart < 1e-5, f"parameters: {apart:g} apart after {step + 1} steps"


LOCAL = "Further-Algorithms/Local-SGD"


def compare_mistaken(script, folder, before, after):
    """Compares a script whose adapter has a mistake: a text of it is replaced by another one."""
    path = pathlib.Path(adapted_optimizer.__file__)
    with pytest.MonkeyPatch.context() as patch:
        text = examples.replaced(path, [(before, after)])
        patch.setattr(adapted_optimizer, "Step", None)  # it must come from the mistaken text
        mistaken = types.ModuleType(adapted_optimizer.__name__)
        exec(compile(text, str(path), "exec"), mistaken.__dict__)
        patch.setattr(problems, "adapted_optimizer", mistaken)
        compare(script, folder, Adam)


MISTAKES = {  # {name: (example, text of the adapter, what replaces it)}; core has the first three
    "a ps takes lr times the gradient": ("HogWild", "[delta / self.rate]", "[delta]"),
    "the schedule does not go on": (
        "HogWild",
        "tf.cast(self.count, iterations.dtype)",
        "tf.zeros_like(iterations)",
    ),
    "one part of two does not move": (
        "HogWild",
        "[delta / self.rate]",
        "[delta / self.rate * float(self.shape[0] % 2)]",
    ),
    "a step counts from one": ("Synchronous-SGD", "w.count = steps", "w.count = steps + 1"),
    "a worker moves by lr times its step": (LOCAL, "moved], 0)) / self.rate", "moved], 0))"),
    "a worker steps from elsewhere": (
        LOCAL,
        "zip(self.step.variables, values):",
        "zip(self.step.variables, g):",
    ),
    "slots are not kept": (
        "Ring-AllReduce",
        "own.assign(kept.read_value())",
        "own.assign(0 * kept.read_value())",
    ),
}


@pytest.mark.parametrize(
    "mistake", support.some_in_core(MISTAKES, list(MISTAKES)[:3]), ids=list(MISTAKES)
)
def test_a_mistake_is_caught(mistake, tmp_path):
    name, before, after = MISTAKES[mistake]
    with support.fails_comparison("parameters"):
        compare_mistaken(examples.main_script(name), tmp_path, before, after)


def optimizer(text):
    """Returns make_optimizer() of a text."""
    return eval(f"lambda: keras.optimizers.{text}", {"keras": keras})


EXCLUDING = optimizer("AdamW(weight_decay=0.1)")


def excluding():
    new_optimizer = EXCLUDING()
    new_optimizer.exclude_from_weight_decay(var_names=["bias"])
    return new_optimizer


@pytest.mark.parametrize(
    "make, error",
    [
        (optimizer("Adam(clipnorm=1.0)"), "Adam has clipnorm, and a ps has only a part of w"),
        (optimizer("SGD(global_clipnorm=1.0)"), "SGD has global_clipnorm"),
        (excluding, "AdamW has exclude_from_weight_decay, and a ps has only a part of w"),
        (optimizer("Lamb()"), "Lamb needs all of w"),
        (
            optimizer("Lamb(keras.optimizers.schedules.PolynomialDecay(0.0, 1000, 0.01))"),
            "Lamb needs all of w",
        ),
        (optimizer("Adafactor()"), "Adafactor needs all of w"),
        (optimizer("Muon(0.1)"), "Muon needs all of w"),
        (optimizer("Adam(gradient_accumulation_steps=2)"), "use the flag --accumulate"),
        (optimizer("LossScaleOptimizer(keras.optimizers.SGD())"), "LossScaleOptimizer"),
        (lambda: "adam", "make_optimizer returns no optimizer of Keras, but str"),
    ],
)
def test_what_a_part_of_w_cannot_have_is_refused(make, error):
    with pytest.raises(ValueError, match=error):
        adapted_optimizer.refuse_what_needs_all(make)


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Ftrl", "Lion"]
)
def test_what_moves_each_number_by_itself_is_not_refused(name):
    adapted_optimizer.refuse_what_needs_all(optimizer(f"{name}()"))


def test_what_a_ps_saves_has_one_name_in_every_process():
    """Catches names by which a ps that makes its parts again finds no slots in the checkpoint."""
    names = []
    for _ in range(2):
        w = tf.Variable(np.zeros(3, np.float32))
        new_optimizer = keras.optimizers.Adam(0.1)
        names.append(list(adapted_optimizer.PsPart(w, 0.1, new_optimizer, None).slots))
    assert names[0] == names[1] and len(set(names[0])) == 2, names


def test_nadam_is_refused_where_it_would_forget_its_product():
    part = keras.src.backend.Variable(np.zeros(3)).value
    with pytest.raises(ValueError, match="Nadam keeps .*, which is no vector like w"):
        adapted_optimizer.PsPart(part, 0.1, keras.optimizers.Nadam(), None)


def test_norms_shapes_and_names_are_those_of_the_model_on_a_worker():
    """Fails where a worker's optimizer sees one vector, as a ps does."""
    for make in optimizer("Adam(clipnorm=0.1)"), excluding, optimizer("Muon(0.1)"):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(2)])
        first = [v.numpy() for v in model.trainable_variables]
        random = np.random.default_rng(0)
        steps = [[random.normal(size=v.shape).astype("float32") for v in first] for _ in range(3)]
        due = make()
        for g in steps:
            due.apply([tf.constant(d) for d in g], model.trainable_variables)
        expected = [v.numpy() for v in model.trainable_variables]
        with_slots = adapted_optimizer.WithSlots(make(), model)
        own = adapted_optimizer.OwnStep(with_slots.step, with_slots.step.slots, 0.1)
        w = tf.concat([np.ravel(v) for v in first], 0)
        for g in steps:
            w = w - 0.1 * own.direction(w, tf.concat([np.ravel(d) for d in g], 0))
        assert np.allclose(w, np.concatenate([np.ravel(v) for v in expected]), atol=1e-5)


def test_a_moving_average_is_kept_and_put_into_w():
    """Fails where the average is of other values than those after each step."""
    w = tf.Variable([1.0, -2.0])
    part = adapted_optimizer.PsPart(
        w,
        1.0,
        keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
        None,
    )
    values, average = np.array([1.0, -2.0]), None
    for t in range(3):
        part.count = tf.constant(t, tf.int64)
        g = np.array([1.0, 2.0]) * (t + 1)
        part.assign_sub(tf.constant(g, tf.float32))
        values = values - 0.5 * g
        average = values if t == 0 else 0.9 * average + 0.1 * values
    assert np.allclose(w, average), "parameters: not the average after three steps"
    assert any("average" in name for name in part.slots)
