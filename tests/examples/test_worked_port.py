"""The worked port of From-TensorFlow-1: a program before and after, run as its docstring says."""

import re

import numpy as np
import pytest
import support
from small_scripts import TFRUN

TERMS = """
    ClusterSpec Server Coordinator SessionManager SessionCreator Scaffold Supervisor
    MonitoredSession MonitoredTrainingSession SyncReplicasOptimizer Saver
    CheckpointSaverHook FeedFnHook FinalOpsHook GlobalStepWaiterHook LoggingTensorHook
    NanTensorHook StepCounterHook StopAtStepHook SummarySaverHook
    get_or_create_global_step replica_device_setter
"""  # that a program of TensorFlow 1 has
FOLDER = support.ROOT / "From-TensorFlow-1" / "Worked-Port"


def run(name, folder, workers):
    """The losses of worker 0, and the accuracies of all, that a program prints."""
    command = [*TFRUN, "--ps", "1", "--workers", str(workers), "--timeout", "150", "--"]
    env = support.environment(folder / name)
    done = support.run_to_end(*command, FOLDER / f"{name}.py", env=env, seconds=160)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.findall(r"(?m)^\[worker 0\] .*?loss =? ?([\d.]+)", done.stdout)
    return list(map(float, losses)), re.findall(r"accuracy ([\d.]+)", done.stdout)


@pytest.mark.long
def test_losses_before_and_after_a_port_are_the_same(tmp_path):
    """Catches a rate, a start, a seed or an epsilon that is another one after the port."""
    before, after = [run(name, tmp_path, 1) for name in ("before", "after")]
    assert len(before[0]) == 6 and np.allclose(before[0], after[0], atol=1e-5), (before, after)
    assert before[1] == after[1] and float(after[1][0]) > 0.9


@pytest.mark.long
def test_two_workers_of_a_port_end_after_all_steps(tmp_path):
    """Catches a worker, or a ps, that waits for ever because another made the last step."""
    losses, accuracies = run("after", tmp_path, 2)
    assert losses[0] > losses[-1] and len(accuracies) == 2


def test_each_term_of_tensorflow_1_has_a_line():
    """Catches a name of an old program for which its reader finds no replacement."""
    lines = (FOLDER.parent / "README.md").read_text().splitlines()
    cells = [line.split(" | ") for line in lines if line.startswith("| `")]
    old = tuple(re.findall(r"\w+", " ".join(line[0] for line in cells if line[1].strip(" |"))))
    programs = [path.read_text() for path in FOLDER.parent.glob("*/*.py")]
    text = " ".join(program for program in programs if "tensorflow.compat.v1" in program)
    used = set(re.findall(r"\btf\.train\.([A-Z]\w+)", text))
    assert {"MonitoredTrainingSession", "Supervisor"} < used
    # A ChiefSessionCreator is a SessionCreator.
    assert not [name for name in {*used, *TERMS.split()} if not name.endswith(old)]
