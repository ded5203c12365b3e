"""TensorFlowOnSpark: both input modes train, no record is lost or fed twice, a failure ends it."""

import concurrent.futures

import engines
import pytest
import support

FOLDER = engines.FOLDER / "TensorFlowOnSpark"
WITHOUT_PYSPARK = (
    "import runpy, sys; sys.modules['pyspark'] = None; sys.argv[:] = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def run(directory, *flags):
    """Runs run.sh: (exit code, its lines of tfos.py); nothing of it is left."""
    code, output, _ = support.launch(FOLDER / "run.sh", directory, *flags, seconds=150)
    engines.none_is_left([], [directory], seconds=10)
    return code, [line for line in output.splitlines() if line.startswith("[tfos]")]


@pytest.mark.needs("java")
@pytest.mark.long
def test_both_modes_train(tmp_path):
    """Catches partitions that are lost or fed twice, a last mini-batch that is dropped, a test
    that the end of the ps cuts off, and updates that come after --steps."""
    modes = "tensorflow", "spark"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # each waits more than it computes
        flags = ["--steps", "800", "--epochs", "3"]
        ends = list(pool.map(lambda mode: run(tmp_path / mode, mode, *flags), modes))
    assert [code for code, _ in ends] == [0, 0], ends
    found = {mode: support.result(tmp_path / mode / mode) for mode in modes}
    assert found["tensorflow"]["examples"] == 800 * 32
    assert found["spark"]["examples"] == 3 * 1437
    assert found["spark"]["times_fed"] == [3, 3]
    for mode, (_, lines) in zip(modes, ends):
        accuracy = found[mode]["accuracy"]
        assert accuracy > 0.8, mode
        head = f"[tfos] InputMode.{mode.upper()}: test accuracy {accuracy:.1%}"
        assert any(line.startswith(head) for line in lines), lines


@pytest.mark.needs("java")
@pytest.mark.long
def test_a_failing_task_ends_the_run(tmp_path):
    """Catches an error in map_fun that nobody reports, a feed that waits for ever for a worker that
    is gone, and processes that outlive the run."""
    code, lines = run(tmp_path, "spark", "--learning-rate", "1e9", "--epochs", "2")
    assert code == 1, lines
    errors = [line for line in lines if "FloatingPointError: loss is nan at update" in line]
    assert [line.split(":")[0] for line in errors] == ["[tfos] InputMode.SPARK"], lines


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
