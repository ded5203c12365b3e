"""Replicas without parameter servers: towers, MirroredStrategy, MultiWorkerMirroredStrategy."""

import collections
import contextlib
import functools
import json
import re
import signal
import socket
import time

import equations
import numpy as np
import pytest
import support
from lab import examples
from tfrun.launch import cluster

one_step = examples.load(examples.main_script("Measurements/One-Step"))
TOWERS = examples.main_script("Multiple-GPUs-Single-Machine")
MIRRORED = TOWERS.with_name("multiple_gpus_single_machine_mirrored.py")
COLLECTIVE = examples.main_script("Collective-AllReduce")
SCRIPTS = {"towers": TOWERS, "mirrored": MIRRORED, "collective": COLLECTIVE}


@pytest.fixture(scope="module")
def as_tasks():
    """Scripts as tasks of a cluster without a ps."""
    with support.QuickCluster(ps=0) as quick:
        yield quick


@pytest.fixture
def run(as_tasks, tmp_path):
    """run(name, n, *flags, text=None, code=0, **env) -> the run directory, and what was printed."""

    def run(name, n, *flags, text=None, code=0, **env):
        folder = tmp_path / (f"run-{len(list(tmp_path.iterdir()))}")
        folder.mkdir()
        script = folder / SCRIPTS[name].name
        script.write_text(text or SCRIPTS[name].read_text())
        if name == "collective":
            codes, output = as_tasks.run(script, folder, *flags, workers=n, **env)
        else:
            flags = [*flags, "--devices", str(n)]
            (folder / "cwd").mkdir()
            cwd = folder / "cwd"
            ended = as_tasks.zygotes[0].run(script, flags, cwd, OUTPUT_DIR=str(folder), **env)
            codes, output = [ended.returncode], ended.stderr
        assert set(codes) == {code}, f"exit codes {codes}\n{output}"
        return folder, output

    return run


def union(run, name, n, text=None):
    """Asserts that a step of n replicas is the one of a single worker on the union of batches."""
    folder, _ = run(name, n, *one_step.saving_flags(n), *one_step.ONE_STEP_A_CALL, text=text)
    apart, moved = one_step.compare(folder, n)
    assert apart < 1e-6 < 1e-3 < moved, f"union: {apart:g} apart, {moved:g} moved"


@pytest.mark.parametrize("name", SCRIPTS)
def test_replicas_are_one_worker_on_the_union_of_their_batches(name, run):
    union(run, name, 3)


@pytest.mark.long
@pytest.mark.parametrize("script, fails, changes", equations.mistakes(SCRIPTS.values(), core=1))
def test_a_mistake_is_caught(script, fails, changes, run):
    """The mistaken script runs to exit 0, and the comparison fails on it by name."""
    name = next(name for name, path in SCRIPTS.items() if path == script)
    text = examples.replaced(script, changes)
    with support.fails_comparison(fails):
        union(run, name, 2, text)


def test_w_is_the_same_to_the_last_bit_on_all_workers(run):
    """After 20 steps, and the first values, which are broadcast, before them."""
    text = examples.replaced(
        COLLECTIVE,
        [
            (
                "    return step, make_steps, test, manager\n",
                "    def save(when):\n"
                "        path = os.path.join(directory, 'w-%s-%d' % (when, ranks[0]))\n"
                "        np.savez(path, *[v.numpy() for v in w])\n"
                "    save('first')\n"
                "    manager.save_w = save\n"
                "    return step, make_steps, test, manager\n",
            ),
            ("    # Nobody leaves", "    manager.save_w('last')\n    # Nobody leaves"),
            # Each would begin elsewhere; the strategy sends what the chief has.
            ("set_random_seed(flags.seed)", "set_random_seed(flags.seed + cluster.rank)"),
        ],
    )
    folder, _ = run("collective", 3, "--steps", "20", text=text)
    for when in ("first", "last"):
        ranks = [np.load(folder / (f"w-{when}-{rank}.npz")) for rank in range(3)]
        assert len(ranks[0].files) == 6
        for name in ranks[0].files:
            for other in ranks[1:]:
                assert ranks[0][name].tobytes() == other[name].tobytes(), (when, name)
    assert np.abs(ranks[0]["arr_0"]).max() > 0


def test_each_tower_is_on_its_device(run):
    """A loss and its gradient are on the device of their tower, and w moves where it is."""
    build = "    saved, make_steps, test = build(models, data, flags, devices)\n"
    note = """    graph = make_steps.get_concrete_function(tf.constant(1)).graph.as_graph_def()
    ops = [[node.op, node.device] for f in graph.library.function for node in f.node_def]
    with open(os.path.join(os.environ["OUTPUT_DIR"], "ops.json"), "w") as file:
        json.dump(ops, file)
"""
    text = examples.replaced(TOWERS, [(build, build + note)])
    folder, _ = run("towers", 2, "--steps", "20", text=text)
    counts = collections.Counter(map(tuple, json.loads((folder / "ops.json").read_text())))
    counts_of_kind = {}
    for (kind, device), count in counts.items():
        counts_of_kind.setdefault(kind, {})[device] = count
    due = {
        # Forward 3 and backward 6.
        "MatMul": {"/device:CPU:0": 9, "/device:CPU:1": 9},
        "SparseSoftmaxCrossEntropyWithLogits": {"/device:CPU:0": 1, "/device:CPU:1": 1},
        "AssignSubVariableOp": {"/job:localhost/replica:0/task:0/device:CPU:0": 1},
    }
    assert {kind: counts_of_kind[kind] for kind in due} == due


@pytest.mark.parametrize(
    "name, flag, value, words",
    [
        ("towers", "--devices", "-1", "must be at least"),
        ("mirrored", "--steps-per-call", "0", "must be above 0"),
        ("collective", "--bytes-per-pack", "-1", "must be at least 0"),
        ("collective", "--step-timeout", "0", "must be above 0"),
    ],
)
def test_a_wrong_flag(name, flag, value, words, as_tasks, tmp_path):
    ended = as_tasks.zygotes[0].run(SCRIPTS[name], [flag, value], tmp_path)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2 and f"{flag}: {words}" in last, ended.stderr


def with_limit(seconds, *changes):
    """The text of Collective-AllReduce where a worker waits only so long for the others."""
    limit = ('"REQUIRED_WAIT_SECONDS", 120', f'"REQUIRED_WAIT_SECONDS", {seconds}')
    return examples.replaced(COLLECTIVE, [limit, *changes])


def test_a_worker_that_never_comes(as_tasks, tmp_path):
    """The other ends, and names it."""
    script = tmp_path / COLLECTIVE.name
    script.write_text(with_limit(2))
    with socket.create_server(("", 0)) as s:
        tasks = [f"127.0.0.1:{s.getsockname()[1]}", "127.0.0.1:9"]
    config = {"cluster": {"worker": tasks}, "task": {"type": "worker", "index": 0}}
    ended = as_tasks.zygotes[0].run(script, [], tmp_path, TF_CONFIG=json.dumps(config))
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last == "TimeoutError: worker 1 did not answer at 127.0.0.1:9 in 2 s"


@pytest.mark.long
@pytest.mark.parametrize("ipv6", [True, False])
def test_addresses_of_ipv6(ipv6, run, monkeypatch):
    """Workers at [::1] train, and those of a machine without IPv6. Catches a wait on one of both.

    Where a machine has no ::1 the first case takes 127.0.0.1, too.
    """
    host, text = "127.0.0.1", None
    if ipv6:
        with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
            host = "[::1]"
    else:
        text = examples.replaced(COLLECTIVE, [("socket.has_dualstack_ipv6()", "False")])
    addresses = functools.partial(cluster.addresses, names=[host] * 2)
    monkeypatch.setattr(cluster, "addresses", addresses)
    print("the workers are at", host)
    run("collective", 2, "--steps", "20", text=text)


@pytest.mark.long
@pytest.mark.parametrize(
    "where, words",
    [
        ("    strategy = tf.dist", "Timeout (0:00:15)!"),  # where no thread of Python runs
        ("        built = build(", "ConnectionError: worker 1 did not answer at "),
    ],
)
def test_a_worker_that_is_lost_before_the_first_step(where, words, as_tasks, tmp_path):
    """While the strategy and the first values of w are made: the other ends in bounded time."""
    script = tmp_path / COLLECTIVE.name
    indent = where[: len(where) - len(where.lstrip())]
    dies = (
        f"{indent}if cluster.rank == 1:\n"
        f"{indent}    if 'strategy' not in locals():\n"  # it stays until the other has seen it
        f"{indent}        port = int(cluster.addresses['worker', 1].rsplit(':', 1)[1])\n"
        f"{indent}        with socket.create_server(('', port), reuse_port=True):\n"
        f"{indent}            time.sleep(3)\n"
        f"{indent}    os._exit(3)\n"
    )
    script.write_text(with_limit(15, (where, dies + where)))
    began = time.monotonic()
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20")
    assert codes == [1, 3] and words in output, (codes, output)
    assert time.monotonic() - began < 60


@pytest.mark.long
def test_workers_that_see_other_checkpoints(as_tasks, tmp_path):
    """They would go on from different steps: all end, with a line that says why."""
    script = tmp_path / COLLECTIVE.name
    own = 'os.getenv("OUTPUT_DIR") or "output"'
    change = own, own + " if task == ('worker', 0) else 'own'"
    script.write_text(examples.replaced(COLLECTIVE, [change]))
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20")
    assert codes == [0, 0], output
    codes, output = as_tasks.run(script, tmp_path, "--steps", "40")
    assert codes == [1, 1], output
    for step in 20, 0:
        assert f"RuntimeError: This worker begins at step {step}, others elsewhere" in output


def test_each_worker_leaves_its_metrics_and_the_chief_alone_a_checkpoint(run):
    folder, _ = run("collective", 2, "--steps", "20", "--checkpoint-steps", "10")
    steps = sorted(path.name for path in folder.rglob("*.index"))
    assert steps == ["model.ckpt-10.index", "model.ckpt-20.index"]
    rows = support.pushes(folder)
    assert sorted(row["global_step"] for row in rows) == sorted([*range(1, 21)] * 2)
    assert len({row["loss"] for row in rows}) == 40  # of its own mini-batch
    assert [path.name for path in folder.glob("flags.json")]


@pytest.mark.long
def test_an_error_of_its_own_is_not_that_of_another(as_tasks, tmp_path):
    script = tmp_path / COLLECTIVE.name
    g = "    loss, g = gradient(w_k, version)\n"
    wrong = g + "    g = [tf.gather(d[None], 9) for d in g]\n"
    script.write_text(examples.replaced(COLLECTIVE, [(g, wrong)]))
    codes, output = as_tasks.run(script, tmp_path, "--steps", "20")
    assert codes == [1, 1], output
    assert "InvalidArgumentError" in output and "ConnectionError" not in output, output


def collective(directory, *flags, **env):
    """A run of Collective-AllReduce with two workers, under tfrun."""
    return support.Run(COLLECTIVE.parent / "run.sh", directory, *flags, **env)


@pytest.mark.long
def test_a_long_run_needs_no_more_threads_and_one_that_hangs_is_named(tmp_path):
    """TensorFlow's own limit on an all-reduce leaves a thread for each: 1,378 after 638 steps."""
    with collective(tmp_path / "run", "--steps", "1000000", "--step-timeout", "4") as run:
        threads = []
        for step in 200, 800:
            support.wait_until(lambda step=step: run.step() >= step, 60, f"{step} steps")
            threads.append(run.worker(0).num_threads())
        assert threads[1] < threads[0] + 50, threads
        run.worker(1).send_signal(signal.SIGSTOP)
        began = time.monotonic()
        output = run.process.communicate(timeout=90)[0]
    assert run.process.returncode not in (0, 124) and time.monotonic() - began < 40, output
    line = r"^\[worker 0\] TimeoutError: No step was made in 4 s; worker 1 did not answer at "
    assert re.search(line, output, re.MULTILINE), output


@pytest.mark.long
def test_all_end_where_one_waits_for_something_else(as_tasks, tmp_path):
    """TensorFlow's servers all answer, so that nobody is named."""
    script = tmp_path / COLLECTIVE.name
    hangs = "            for row in make_steps("
    sleep = "            time.sleep(1000 * (metrics.step > 20 and not metrics.is_chief))\n"
    script.write_text(examples.replaced(COLLECTIVE, [(hangs, sleep + hangs)]))
    codes, output = as_tasks.run(script, tmp_path, "--steps", "100000", "--step-timeout", "4")
    assert codes == [1, 1], output
    assert "TimeoutError: No step was made in 4 s; " in output


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
    assert "worker 1 was killed by SIGKILL" in output
    result = support.result(tmp_path / "run")
    assert result["steps"] == 900 and result["restarts"] == 2
    steps = [row["global_step"] for row in support.pushes(tmp_path / "run")]
    # A kill right after a checkpoint has cost no step.
    assert sorted(set(steps)) == list(range(1, 901)) and len(steps) >= 2 * 900


@pytest.mark.long
def test_a_cluster_that_was_killed_goes_on(tmp_path):
    flags = ["--steps", "600", "--checkpoint-steps", "100"]
    with collective(tmp_path / "run", *flags) as run:
        support.wait_until(lambda: run.step() >= 250, 60, "it trains")
        run.process.kill()
        support.wait_until(lambda: not support.processes_of(tmp_path / "run"), 10, "all ended")
    code, output, _ = support.launch(COLLECTIVE.parent / "run.sh", tmp_path / "run", *flags)
    assert code == 0, output
    assert support.result(tmp_path / "run")["steps"] == 600
    steps = [row["global_step"] for row in support.pushes(tmp_path / "run")]
    assert sorted(set(steps)) == list(range(1, 601)) and steps.count(100) == 2
