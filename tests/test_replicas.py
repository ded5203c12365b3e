"""Replicas without parameter servers: towers, MirroredStrategy, MultiWorkerMirroredStrategy."""

import collections
import json
import re
import signal
import socket
import sys
import time

import numpy as np
import pytest
import support

sys.path[:0] = [
    str(support.ROOT / "Measurements" / folder) for folder in ("One-Step", "Stragglers", "")
]
import one_step

TOWERS = support.main_script("Multiple-GPUs-Single-Machine")
MIRRORED = TOWERS.with_name("multiple_gpus_single_machine_mirrored.py")
COLLECTIVE = support.main_script("Collective-AllReduce")
SCRIPTS = {"towers": TOWERS, "mirrored": MIRRORED, "collective": COLLECTIVE}


@pytest.fixture(scope="module")
def as_tasks():
    """TensorFlow 2 scripts as tasks of a cluster without a ps."""
    with support.QuickCluster(COLLECTIVE, ps=0) as quick:
        yield quick


@pytest.fixture(scope="module")
def as_graphs():
    """TensorFlow 1 scripts as one process."""
    with support.Zygote() as zygote:
        yield zygote


@pytest.fixture
def run(as_tasks, as_graphs, tmp_path):
    """run(name, n, *flags, text=None, code=0, **env) -> the run directory, and what was printed."""

    def run(name, n, *flags, text=None, code=0, **env):
        folder = tmp_path / ("run-%d" % len(list(tmp_path.iterdir())))
        folder.mkdir()
        script = folder / SCRIPTS[name].name
        script.write_text(text or SCRIPTS[name].read_text())
        if name == "collective":
            codes, output = as_tasks.run(script, folder, *flags, workers=n, **env)
        else:
            flags = [*flags, "--devices", str(n)]
            (folder / "cwd").mkdir()
            one = as_graphs if name == "towers" else as_tasks.zygotes[0]
            ended = one.run(script, flags, folder / "cwd", OUTPUT_DIR=str(folder), **env)
            codes, output = [ended.returncode], ended.stderr
        assert set(codes) == {code}, "exit codes %s\n%s" % (codes, output)
        return folder, output

    return run


def union(run, name, n, text=None):
    """Asserts that a step of n replicas is the one of a single worker on the union of batches."""
    at_once = [] if name == "towers" else one_step.AT_ONCE
    folder, _ = run(name, n, *one_step.saving(n), *at_once, text=text)
    apart, moved = one_step.compare(folder, n)
    assert apart < 1e-6 < 1e-3 < moved, "union: %g apart, %g moved" % (apart, moved)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("name", SCRIPTS)
def test_replicas_are_one_worker_on_the_union_of_their_batches(name, n, run):
    union(run, name, n)


# The mistakes: name -> (script, [(text, what replaces it)]).
MISTAKES = {
    "towers: the sum": (
        "towers",
        [("tf.reduce_mean(tf.stack(of_all)", "tf.reduce_sum(tf.stack(of_all)")],
    ),
    "towers: the first alone": (
        "towers",
        [("[tf.reduce_mean(tf.stack(of_all), axis=0) for", "[of_all[0] for")],
    ),
    "towers: one shard for all": ("towers", [("flags.seed * 65536 + rank", "flags.seed * 65536")]),
    "mirrored: the sum": ("mirrored", [('all_reduce("MEAN", g)', 'all_reduce("SUM", g)')]),
    "mirrored: no all-reduce": (
        "mirrored",
        [('tf.distribute.get_replica_context().all_reduce("MEAN", g)', "g")],
    ),
    "collective: the sum": ("collective", [('all_reduce("MEAN", g, ', 'all_reduce("SUM", g, ')]),
    "collective: no all-reduce": (
        "collective",
        [('tf.distribute.get_replica_context().all_reduce("MEAN", g, options(flags))', "g")],
    ),
    "collective: one shard for all": (
        "collective",
        [("flags.seed * 65536 + rank", "flags.seed * 65536")],
    ),
    "collective: the rate of each counts for all": (
        "collective",
        [("v.assign_sub(flags.learning_rate * d)", "v.assign_sub(2 * flags.learning_rate * d)")],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake, run):
    """The mistaken script runs to exit 0, and the comparison fails on it by name."""
    name, changes = MISTAKES[mistake]
    text = support.replaced(SCRIPTS[name], changes)
    with pytest.raises(AssertionError, match="^union: "):
        union(run, name, 2, text)


def test_w_is_the_same_to_the_last_bit_on_all_workers(run):
    """After 20 steps, and the first values, which are broadcast, before them."""
    text = support.replaced(
        COLLECTIVE,
        [
            ("        begin()\n", "        keep('first')\n        begin()\n"),
            (
                "        report.end()\n    if rank",
                "        report.end()\n    keep('last')\n    if rank",
            ),
            (
                "    # All save, because",
                "    def keep(when):\n"
                "        path = os.path.join(report.directory, '%s-%d.npz' % (when, rank))\n"
                "        np.savez(path, *[v.numpy() for v in w])\n"
                "    # All save, because",
            ),
            # Each would begin elsewhere; the strategy sends what the chief has.
            ("tf.random.set_seed(flags.seed)", "tf.random.set_seed(flags.seed + ranks[0])"),
        ],
    )
    folder, _ = run("collective", 3, "--steps", "20", text=text)
    for when in ("first", "last"):
        ranks = [np.load(folder / ("%s-%d.npz" % (when, rank))) for rank in range(3)]
        assert len(ranks[0].files) == 6
        for name in ranks[0].files:
            for other in ranks[1:]:
                assert ranks[0][name].tobytes() == other[name].tobytes(), (when, name)
    assert np.abs(np.load(folder / "last-0.npz")["arr_0"]).max() > 0


def test_each_tower_is_on_its_device(run):
    """A loss and its gradient are on the device of their tower, and all that no GPU takes is not.

    That is what Python makes (PyFunc), and variables of int32, which only the CPU has kernels for.
    """
    text = support.replaced(
        TOWERS,
        [
            (
                "    train(step, update, test, report, len(devices))\n",
                "    ops = tf.get_default_graph().get_operations()\n"
                "    ops = [[op.type, op.device] for op in ops]\n"
                "    ops += [['variable', v.device] for v in tf.global_variables()]\n"
                "    json.dump(ops, open(os.path.join(report.directory, 'ops.json'), 'w'))\n"
                "    train(step, update, test, report, len(devices))\n",
            )
        ],
    )
    folder, _ = run("towers", 2, "--steps", "20", text=text)
    made = collections.Counter(map(tuple, json.loads((folder / "ops.json").read_text())))
    found = {
        kind: {device: count for (each, device), count in made.items() if each == kind}
        for kind in (
            *("variable", "MatMul", "SparseSoftmaxCrossEntropyWithLogits"),
            *("PyFunc", "VarHandleOp"),
        )
    }
    assert found == {
        "variable": {"/device:CPU:0": 7},
        # Forward 3 and backward 6; the test of w is where TensorFlow likes.
        "MatMul": {"/device:CPU:0": 9, "/device:CPU:1": 9, "": 6},
        "SparseSoftmaxCrossEntropyWithLogits": {"/device:CPU:0": 1, "/device:CPU:1": 1, "": 1},
        "PyFunc": {"/device:CPU:0": 4, "": 2},
        "VarHandleOp": {"/device:CPU:0": 11, "": 2},
    }


# What is wrong: (the script, flags, words of the line).
WRONG = {
    "towers: fewer than no device": ("towers", ["--devices", "-1"], "--devices: must be at least"),
    "mirrored: fewer than no device": ("mirrored", ["--devices", "-1"], "--devices: must be at"),
    "mirrored: no step": ("mirrored", ["--steps-per-call", "0"], "--steps-per-call: must be at"),
    "collective: no step": ("collective", ["--steps-per-call", "0"], "--steps-per-call: must be"),
    "collective: a pack of less than nothing": (
        *("collective", ["--bytes-per-pack", "-1"]),
        "--bytes-per-pack: must be at least 0",
    ),
    "collective: no patience": ("collective", ["--patience", "0"], "--patience: must be at least"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_flag(name, as_tasks, as_graphs, tmp_path):
    script, flags, words = WRONG[name]
    zygote = as_graphs if script == "towers" else as_tasks.zygotes[0]
    config = {"cluster": {"worker": ["127.0.0.1:0"]}, "task": {"type": "worker", "index": 0}}
    ended = zygote.run(SCRIPTS[script], flags, tmp_path, TF_CONFIG=json.dumps(config))
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2 and len(lines) == 1 and words in lines[0], ended.stderr


def test_a_worker_that_never_comes(as_tasks, tmp_path):
    """The other ends, and names it."""
    script = tmp_path / COLLECTIVE.name
    script.write_text(support.replaced(COLLECTIVE, [("GIVE_UP = 120", "GIVE_UP = 2")]))
    with socket.create_server(("", 0)) as s:
        tasks = ["127.0.0.1:%d" % s.getsockname()[1], "127.0.0.1:9"]
    config = {"cluster": {"worker": tasks}, "task": {"type": "worker", "index": 0}}
    ended = as_tasks.zygotes[0].run(script, [], tmp_path, TF_CONFIG=json.dumps(config))
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1 and len(lines) == 1, ended.stderr
    assert "worker 1 did not answer at 127.0.0.1:9: [Errno 111] Connection refused" in lines[0]


@pytest.mark.long
def test_a_worker_that_is_lost_before_the_first_step(as_tasks, tmp_path):
    """While the strategy and the first values of w are made: the other ends in bounded time."""
    script = tmp_path / COLLECTIVE.name
    dies = [
        ("GIVE_UP = 120", "GIVE_UP = 15"),
        (
            "        step, w, steps_at_once, test = build(",
            "        if peers.rank == 1:\n            os._exit(3)\n"
            "        step, w, steps_at_once, test = build(",
        ),
    ]
    script.write_text(support.replaced(COLLECTIVE, dies))
    began = time.monotonic()
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20", "--patience", "4")
    assert codes[1] == 3 and codes[0] in (1, -signal.SIGALRM), (codes, output)
    assert time.monotonic() - began < 40 and "Traceback" not in output


def test_workers_that_see_other_checkpoints(as_tasks, tmp_path):
    """They would go on from different steps: all end, with a line that says why."""
    script = tmp_path / COLLECTIVE.name
    own = [('os.environ.get("OUTPUT_DIR") or', '(not rank and os.environ["OUTPUT_DIR"]) or')]
    script.write_text(support.replaced(COLLECTIVE, own))
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20")
    assert codes == [0, 0], output
    (tmp_path / "result.json").unlink()
    codes, output = as_tasks.run(script, tmp_path, "--steps", "40")
    assert codes == [1, 1], output
    for step in 20, 0:
        assert "This worker begins at step %d, others elsewhere; OUTPUT_DIR must" % step in output


def test_the_chief_alone_leaves_a_checkpoint(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    flags = ["--steps", "20", "--checkpoint-steps", "10"]
    folder, _ = run("collective", 2, *flags, TMPDIR=str(tmp_path / "elsewhere"))
    steps = sorted(path.name for path in folder.glob("model.ckpt-*.index"))
    assert steps == ["model.ckpt-10.index", "model.ckpt-20.index"]
    assert not list((tmp_path / "elsewhere").rglob("*ckpt*"))


def collective(directory, *flags, **env):
    """A run of Collective-AllReduce with two workers, under tfrun."""
    return support.Run(COLLECTIVE.parent / "run.sh", directory, *flags, **env)


def test_an_error_of_its_own_is_not_that_of_another(as_tasks, tmp_path):
    """Where all workers answer the error is shown; who comes later may find that one gone."""
    script = tmp_path / COLLECTIVE.name
    wrong = [
        ("    g = gradients(loss, w_k)\n", "    g = gradients(tf.gather(loss[None], 9), w_k)\n")
    ]
    script.write_text(support.replaced(COLLECTIVE, wrong))
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20")
    assert codes == [1, 1], output
    assert "InvalidArgumentError" in output and "above; all workers answer" in output


@pytest.mark.long
@pytest.mark.parametrize(
    "number, words",
    [
        (signal.SIGKILL, "worker 1 did not answer at "),
        (signal.SIGSTOP, "no step was made in 4 s, --patience"),
    ],
)
def test_a_worker_that_is_lost_is_noticed(number, words, tmp_path):
    """One clear line of the other worker, in bounded time, and nothing is left."""
    with collective(tmp_path / "run", "--steps", "1000000", "--patience", "4") as run:
        support.wait_until(lambda: run.step() >= 20, 60, "it trains")
        run.worker(1).send_signal(number)
        began = time.monotonic()
        output = run.process.communicate(timeout=40)[0]
    assert run.process.returncode not in (0, 124) and time.monotonic() - began < 20
    lines = re.findall(r"^\[worker 0\] (Another worker was lost.*)$", output, re.MULTILINE)
    assert lines and words in lines[0], output
    assert "Traceback" not in output


@pytest.mark.long
def test_a_lost_worker_and_restarts(tmp_path):
    """All start again from the last checkpoint, and the run ends as if nothing had been."""
    with collective(
        tmp_path / "run", "--steps", "900", "--checkpoint-steps", "100", TFRUN_RESTARTS="2"
    ) as run:
        support.wait_until(lambda: run.step() >= 150, 60, "it trains")
        run.worker(1).kill()
        output = run.process.communicate(timeout=90)[0]
    assert run.process.returncode == 0, output
    assert support.result(tmp_path / "run")["steps"] == 900
    steps = [row["global_step"] for row in support.pushes(tmp_path / "run")]
    assert sorted(set(steps)) == list(range(1, 901)) and len(steps) > 2 * 900


@pytest.mark.long
def test_a_cluster_that_was_killed_goes_on(tmp_path):
    flags = ["--steps", "600", "--checkpoint-steps", "100"]
    with collective(tmp_path / "run", *flags) as run:
        support.wait_until(lambda: run.step() >= 250, 60, "it trains")
        run.process.kill()
    code, output, _ = support.launch(COLLECTIVE.parent / "run.sh", tmp_path / "run", *flags)
    assert code == 0, output
    assert support.result(tmp_path / "run")["steps"] == 600
    steps = [row["global_step"] for row in support.pushes(tmp_path / "run")]
    assert sorted(set(steps)) == list(range(1, 601)) and steps.count(100) == 2
