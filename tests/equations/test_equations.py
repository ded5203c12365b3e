"""Each script's own graph against a NumPy reference, under a fixed interleaving of two workers.

Then the mistakes: each is put into a copy of the script, and a comparison of numbers, named here,
must fail. That the mistaken script runs all the same, and ends well, is tested, too.

A script my_algorithm.py, in whatever folder, has a file tests/equations/my_algorithm.py, found by
its name. hogwild.py is a model of one, and aeamsgd.py with VARIABLES. Such a file imports nothing
of the script. tests/support/equations.py lists its fields, NEEDED and DEFAULTS.

The field `Kind:` of the script's docstring chooses the test. The tests here are for a parameter
server that is asynchronous, for a single process, and for Train-and-Evaluate. They ask for a pull
and a push: update(k, version, w_k). Those of test_synchronous.py are for a parameter server that is
synchronous, whose reference has joint_step(those), and those of test_ring_steps.py for workers in a
ring. All other kinds need COMPARED_BY, and so does synchronous_sgd_optimizer.py, whose `algorithm`
also takes k and n. test_references.py finds a script without a file.
"""

import equations
import in_process
import interleaved
import numpy as np
import pytest
import support
from lab import examples
from problem import BATCH, LR, command_line, digits_like, draw
from tfrun.apps import references

SCRIPTS = equations.compared(equations.INTERLEAVED)

IN_TURN = [("pull", 0), ("push", 0)] * 12


def compare(script, folder, reference=None, flags=None, schedule=None, text=None):
    """Asserts that the script's graph, with w on two ps, does what the reference does.

    Reference, flags and schedule are those of the script's file unless others are given.
    """
    file = equations.of(script)
    reference = reference or file.REFERENCE
    flags = file.FLAGS if flags is None else flags
    schedule = schedule or (interleaved.SCHEDULE if file.WORKERS == 2 else IN_TURN)
    n = 1 + max(k for _, k in schedule)
    data, gradient = file.PROBLEM(script, n, folder)
    with in_process.workers(script, n, command_line(flags), data, text, ps=2) as workers:
        expected = reference(workers.parameters(), n, gradient, LR, **flags)
        interleaved.compare_pushes(workers, expected, schedule)


@pytest.mark.parametrize("script", SCRIPTS, ids=equations.ids)
def test_update_is_the_equation(script, tmp_path):
    compare(script, tmp_path)


ONE_STEP = {"local_steps": 1}
STRONG, WEAK = {"compensation": 50.0}, {"compensation": 1e-30}


@pytest.mark.parametrize(
    "name, reference, flags, schedule",
    [
        # One worker, and one local step: plain SGD.
        ("From-TensorFlow-1/HogWild-Sessions", references.HogWild, {}, IN_TURN),
        ("DOWNPOUR-Easy", references.HogWild, ONE_STEP, IN_TURN),
        ("ADAG", references.HogWild, ONE_STEP, IN_TURN),
        ("DynSGD", references.HogWild, ONE_STEP, IN_TURN),
        # Two workers, and one local step: HogWild.
        ("DOWNPOUR-Easy", references.HogWild, ONE_STEP, interleaved.SCHEDULE),
        ("ADAG", references.HogWild, ONE_STEP, interleaved.SCHEDULE),
        # One worker, so that w is w_k; and a lambda that changes no float32.
        ("Further-Algorithms/Delay-Compensation", references.HogWild, STRONG, IN_TURN),
        ("Further-Algorithms/Delay-Compensation", references.HogWild, WEAK, interleaved.SCHEDULE),
        # No staleness: DOWNPOUR-Easy.
        ("DynSGD", references.Easy, {"local_steps": 3}, IN_TURN),
    ],
)
def test_an_example_is_another_one(name, reference, flags, schedule, tmp_path):
    compare(examples.main_script(name), tmp_path, reference, flags, schedule)


@pytest.mark.long
def test_aeamsgd_without_momentum_is_aeasgd(tmp_path):
    """--momentum must be above 0: this one changes no float32."""
    flags = {"local_steps": 4, "rho": 1.5, "momentum": 1e-30}
    compare(examples.main_script("AEAMSGD"), tmp_path, references.Elastic, flags)
    values = []
    for name, momentum in ("AEASGD", {}), ("AEAMSGD", {"momentum": 1e-30}):
        flags = command_line({"local_steps": 4, "rho": 1.5, **momentum})
        with in_process.workers(examples.main_script(name), 2, flags) as workers:
            workers.follow(interleaved.SCHEDULE)
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
    text = examples.replaced(script, changes)
    start, end = text.index("def make_model("), text.index("def loss(y, outputs):")
    return text[:start] + KEEPING + text[end:]


def state_of(worker):
    """[the state of this worker, the chief's on the ps], each as arrays."""
    own = [v for v in worker.locals if v.op.name.startswith("own_")]
    kept = [v for v in worker.globals if v.op.name.startswith("state_")]
    return worker.session.run([own, kept])


def state_in_process(script, flags, text):
    """The same of a script whose ps has functions, after three pushes of one worker."""
    with in_process.Workers(script, 1, command_line(flags), text=text) as workers:
        (worker,) = workers
        for _ in range(3):
            worker.push()
        worker.ps.set_values(workers.script.state_of(worker.model))  # as before each checkpoint
        own = [v.numpy() for v in worker.model.non_trainable_variables]
        kept = [worker.ps.get_values(f"state_{i}").reshape(v.shape) for i, v in enumerate(own)]
        return own, kept


def compare_state(script, changes=()):
    """Asserts that one worker's state has moved once for each mini-batch, in their order."""
    flags = equations.of(script).FLAGS
    text = keeping(script, changes)
    if in_process.is_kind(script):
        own, kept = state_in_process(script, flags, text)
    else:
        with interleaved.Workers(script, 1, command_line(flags), text=text) as (worker, *_):
            for _ in range(3):  # the push alone, which must wait for the state: no loss is fetched
                worker.session.run(worker.pushed)
            worker.session.run(worker.test)  # which brings the chief's state to the ps
            own, kept = state_of(worker)
    expected, batches = np.zeros(6), 3 * flags.get("local_steps", 1)
    for number in range(batches):
        rows = draw(0, number, BATCH, 41)
        expected = 0.5 * expected + 0.5 * digits_like()[0][rows].mean(0)
    mean, _, seed = own  # the _ is the moving variance
    compared = {
        "moving mean": (mean, expected),
        "draws from the seed": ([seed[1]], [batches]),
        "state on the ps": (kept, own),
    }
    interleaved.check_apart(compared, 1e-5)


@pytest.mark.parametrize(
    "folder", support.some_in_core(equations.asynchronous(), ["DOWNPOUR", "AEAMSGD"])
)
def test_the_state_of_the_model_moves_with_each_step(folder):
    compare_state(examples.main_script(folder))


MOVES = "        for v, value in zip(state, after):\n            v.assign(value)\n"


@pytest.mark.plants_mistakes
@pytest.mark.parametrize("folder", ["HogWild", "DOWNPOUR"])
def test_a_state_that_does_not_move_is_caught(folder):
    """In DOWNPOUR it would be lost between local steps."""
    with support.fails_comparison("moving mean"):
        compare_state(examples.main_script(folder), [(MOVES, "")])


@pytest.mark.plants_mistakes
def test_a_state_that_does_not_reach_the_ps_is_caught():
    with support.fails_comparison("state on the ps"):
        moves = "map(tf.assign, state, local_state)"
        compare_state(examples.main_script("From-TensorFlow-1/HogWild-Sessions"), [(moves, "[]")])


@pytest.mark.parametrize("script, fails, changes", equations.mistakes(SCRIPTS, core=1))
def test_a_mistake_is_caught(script, fails, changes, tmp_path):
    text = examples.replaced(script, changes)
    with support.fails_comparison(fails):
        compare(script, tmp_path, text=text)
