"""TensorFlowOnSpark: both input modes train, no record is lost or fed twice, a failure ends it."""

import concurrent.futures
import types

import engines
import interleaved
import problem
import pytest
import support
from lab import examples

FOLDER = engines.FOLDER / "TensorFlowOnSpark"
WITHOUT_PYSPARK = (
    "import runpy, sys; sys.modules['pyspark'] = None; sys.argv[:] = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def run(directory, *flags):
    """Runs run.sh: (exit code, its lines of tfos.py); nothing of it is left."""
    code, output, _ = support.launch(
        FOLDER / "run.sh", directory, *flags, seconds=150, WARM_SOCKET=""
    )
    engines.none_is_left([], [directory], seconds=10)
    return code, [line for line in output.splitlines() if line.startswith("[tfos]")]


@pytest.mark.needs("java")
@pytest.mark.nightly
def test_both_modes_train(tmp_path):
    """Catches partitions that are lost or fed twice, a last mini-batch that is dropped, a test
    that the end of the ps cuts off, and updates that come after --steps."""
    modes = "tensorflow", "spark"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # each waits more than it computes
        flags = ["--steps", "800", "--epochs", "3"]
        ends = list(pool.map(lambda mode: run(tmp_path / mode, mode, *flags), modes))
    assert [code for code, _ in ends] == [0, 0], ends
    results = {mode: support.result(tmp_path / mode / mode) for mode in modes}
    assert results["tensorflow"]["examples"] == 800 * 32
    assert results["spark"]["examples"] == 3 * 1437
    assert results["spark"]["times_fed"] == [3, 3]
    for mode, (_, lines) in zip(modes, ends):
        accuracy = results[mode]["accuracy"]
        assert accuracy > 0.8, mode
        head = f"[tfos] InputMode.{mode.upper()}: test accuracy {accuracy:.1%}"
        assert any(line.startswith(head) for line in lines), lines


@pytest.mark.needs("java")
@pytest.mark.nightly
def test_a_failing_task_ends_the_run(tmp_path):
    """Catches an error in map_fun that nobody reports, a feed that waits for ever for a worker that
    is gone, and processes that outlive the run."""
    code, lines = run(tmp_path, "spark", "--learning-rate", "1e9", "--epochs", "2")
    assert code == 1, lines
    errors = [line for line in lines if "FloatingPointError: loss is nan at update" in line]
    assert [line.split(":")[0] for line in errors] == ["[tfos] InputMode.SPARK"], lines


def test_fed_mini_batches_train_a_model_as_with_keras():
    """Catches a loss without the model's penalties, and a state that fed mini-batches leave alone.

    The model has both: batch normalisation, dropout and an L2 penalty.
    """
    tfos = examples.load(FOLDER / "tfos.py")
    hogwild = examples.load(examples.main_script("From-TensorFlow-1/HogWild-Sessions"))
    tf, layers, data = hogwild.tf, hogwild.keras.layers, problem.digits_like()
    penalty = hogwild.keras.regularizers.L2(0.1)
    model = hogwild.keras.Sequential(
        [
            hogwild.keras.Input([6]),
            layers.BatchNormalization(momentum=0.5),
            layers.Dropout(0.4),
            layers.Dense(3, kernel_regularizer=penalty),
        ]
    )
    batches, inputs, losses = [(data[0][:20], data[1][:20]), (data[0][20:], data[1][20:])], [], []
    with tf.Graph().as_default(), tf.Session() as session:
        vector, state = hogwild.shared_variables(model, 1)
        own = hogwild.copy_of_state(model, state, 0)
        x, y = map(tf.constant, batches[0])
        gradients = tfos.fed_gradients(
            hogwild, inputs, model, own, x, y, types.SimpleNamespace(), 0
        )
        loss, (g,) = gradients([v.read_value() for v in vector], 0)
        push = vector[0].assign_sub(problem.LR * g)
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        w, on_ps = session.run([hogwild.unpack(model, vector), state])
        for batch in batches:
            losses.append(session.run([loss, push], dict(zip(inputs, batch)))[0])
        last, kept = session.run([hogwild.unpack(model, vector), own])
    due = []
    for batch in batches:
        mean, w, on_ps = problem.keras_step(model, w, on_ps, [batch])
        due.append(mean)
    compared = {"losses": (losses, due), "parameters": (last, w), "state": (kept, on_ps)}
    interleaved.check_apart(compared, 1e-5)


def test_flags_need_no_spark():
    """Catches an import of pyspark before the flags are read, and flags that nobody checks."""

    def tfos(*flags):
        return support.python(WITHOUT_PYSPARK, str(FOLDER / "tfos.py"), *flags)

    assert "--record-rows" in tfos("--help").stdout
    for flags in (
        ["--mode", "both-of-them"],
        ["--workers", "0"],
        ["--epochs", "many"],
        ["--learning-rate", "-1"],
        ["--no-such-flag"],
    ):
        done = tfos(*flags)
        errors = [line for line in done.stderr.splitlines() if "tfos.py: error: " in line]
        assert done.returncode == 2 and len(errors) == 1, done.stderr
