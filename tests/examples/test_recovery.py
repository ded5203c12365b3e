"""What a run does when its tasks die, come late, or all of it is killed."""

import concurrent.futures
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time

import equations
import pytest
import support
from lab import examples
from recovery import LAUNCHER, STEPS, begin, check_the_end, checkpoint
from tfrun.launch import cluster
from tfrun.runs import summary
from tfrun.runs.data import RunData

LAUNCHERS = [support.ROOT / folder / "run.sh" for folder in equations.asynchronous()]


def by_hand(folder, order, delay, steps, script=LAUNCHER.parent / "hogwild.py"):
    """Starts the tasks in this order, `delay` seconds apart; returns when all have ended well."""
    ports, held = cluster.hold_ports(3)
    environments = cluster.environments({"ps": 1, "worker": 2}, ports, folder)
    processes = []
    try:
        for task in order:
            if processes:
                time.sleep(delay)
            own = {name: environments[task][name] for name in ("TF_CONFIG", "TF_GRPC_REUSE_PORT")}
            processes.append(
                subprocess.Popen(
                    [sys.executable, script, "--steps", str(steps)],
                    env={**support.warm_environment(folder), **own},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        for process in processes:
            output = process.communicate(timeout=support.patience(110))[0]
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for s in held:
            s.close()


ORDERS = [
    [("worker", 1), ("worker", 0), ("ps", 0)],
    [("worker", 0), ("ps", 0), ("worker", 1)],
    [("ps", 0), ("worker", 1), ("worker", 0)],
]


@pytest.mark.long
def test_tasks_come_in_any_order(tmp_path):
    """4 s apart: all take part all the same, because the start is a common one."""
    by_hand(tmp_path, ORDERS[0], 4, 2000)  # which take longer than the news of the start
    result = summary.summarize(RunData.read(tmp_path))
    assert result["steps"] == 2000 and min(result["pushes_per_worker"]) >= 400


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tasks_come_after_the_others_stop_waiting_for_them(tmp_path):
    """In three orders, all at once. They wait 9 s, instead of half a minute, and 10 s pass."""
    script = tmp_path / "hogwild.py"
    change = ("OPTIONAL_WAIT_SECONDS = 30", "OPTIONAL_WAIT_SECONDS = 9")
    script.write_text(examples.replaced(LAUNCHER.parent / "hogwild.py", [change]))
    folders = [tmp_path / str(number) for number in range(len(ORDERS))]
    with concurrent.futures.ThreadPoolExecutor(len(ORDERS)) as pool:
        list(pool.map(by_hand, folders, ORDERS, [10] * 3, [9000] * 3, [script] * 3))
    for folder in folders:
        result = summary.summarize(RunData.read(folder))
        assert result["steps"] == 9000 and min(result["pushes_per_worker"]) > 0, result


JOINED = '        ps.report("joined", k)\n'
LOST_ONCE = """        if k == 1 and lost_at is None:  # as a reply while a ps listens anew
            raise tf.errors.CancelledError(None, None, "lost")
"""


@pytest.mark.long
def test_a_call_is_lost_before_the_first_update(tmp_path):
    """Catches a worker whose first call fails, and for which the others then don't wait."""
    script = tmp_path / "hogwild.py"
    change = JOINED, JOINED + LOST_ONCE
    script.write_text(examples.replaced(LAUNCHER.parent / "hogwild.py", [change]))
    with support.QuickCluster(ps=1, tasks=3) as quick:
        codes, output = quick.run(script, tmp_path / "run", "--steps", "60", workers=2)
    assert not any(codes), output
    result = summary.summarize(RunData.read(tmp_path / "run"))
    assert "a ps was lost" in output
    assert min(result["pushes_per_worker"]) > 0, result["pushes_per_worker"]


TASKS = {"a worker": ("worker", 1), "the chief": ("worker", 0), "the last ps": ("ps", -1)}
KILLS = [("HogWild", 2, "the last ps"), ("HogWild", 1, "the chief")]  # while the other ps lives
KILLS += [("Synchronous-SGD", 1, "a worker"), ("Synchronous-SGD", 1, "the last ps")]
KILLS += [
    pytest.param(*kill, marks=pytest.mark.nightly)
    for kill in itertools.product(["HogWild", "Synchronous-SGD"], [1, 2], TASKS)
    if kill not in KILLS
]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("example, ps, victim", KILLS)
def test_a_task_that_is_killed_comes_back(example, ps, victim, tmp_path):
    """After a checkpoint: the run ends well, with every update, and none that is counted twice."""
    directory, launcher = tmp_path / "run", support.ROOT / example / "run.sh"
    job, index = TASKS[victim]
    process = begin(directory, launcher=launcher, TFRUN_RESTARTS="1", PS=str(ps))
    support.wait_until(lambda: checkpoint(directory) >= 300, 60, "a checkpoint")
    support.task(directory, job, index % ps if job == "ps" else index).kill()
    result, output = check_the_end(process, directory)
    assert "was killed by SIGKILL; it starts again" in output
    assert checkpoint(directory) == STEPS
    if job == "ps":
        # A worker may try several times. A synchronous one that waits on the other ps may notice
        # only after --step-timeout.
        lost = "training goes on from the last checkpoint"
        lines = [line for line in output.splitlines() if lost in line]
        noticed = {line.partition("]")[0] for line in lines}
        assert len(noticed) >= (1 if example == "Synchronous-SGD" else result["workers"]), noticed
        assert len(lines) <= 10 * result["workers"], lines
    else:
        steps = [row["global_step"] for row in support.pushes(directory)]
        most = result["workers"] if example == "Synchronous-SGD" else 1
        assert max(steps.count(step) for step in set(steps)) <= most


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "example, flags",
    [
        pytest.param("HogWild", [], marks=pytest.mark.long),
        pytest.param("Collective-AllReduce", ["--step-timeout", "5"], marks=pytest.mark.nightly),
    ],
)
def test_a_machine_that_stands_still_goes_on(example, flags, tmp_path):
    """All processes are stopped for longer than a call may last, as a container is paused.

    Catches a limit on waiting, of ours or of TensorFlow, that ends a run in which nothing is wrong.
    """
    directory, launcher = tmp_path / "run", support.ROOT / example / "run.sh"
    process = begin(directory, 4000, launcher, flags, REQUIRED_WAIT_SECONDS="8")
    support.wait_until(lambda: checkpoint(directory) >= 300, 60, "a checkpoint")
    tasks = support.processes_of(directory)
    programs = [support.program_of(task) for task in tasks]  # in which their scripts run
    for one in [*tasks, *programs]:
        one.suspend()
    time.sleep(13)
    for one in [*tasks, *programs]:
        one.resume()
    check_the_end(process, directory, 4000)
    # Whether a worker begins again depends on what it was doing; test_supervisor.py has the words.
    times = sorted(row["push_time"] for row in support.pushes(directory))
    assert max(later - time for time, later in itertools.pairwise(times)) > 12


FURTHER = sorted((support.ROOT / "Further-Algorithms").glob("*/run.sh"))


@pytest.mark.parametrize(
    "launcher",
    [
        # Every second one, and those that all tests leave to the night.
        pytest.param(path, marks=pytest.mark.nightly if n % 2 else support.beyond_core(path))
        for n, path in enumerate(FURTHER)
    ],
    ids=lambda path: path.parent.name,
)
def test_a_further_algorithm_learns_with_four_workers_of_which_one_is_killed(launcher, tmp_path):
    """With its own number of updates, once half of them are made.

    Where workers do not wait for the chief, which saves often here, they are far ahead of it: such
    a run is ten times as long, so that the one that is killed has not made all its steps.
    """
    script, directory = examples.script_of(launcher), tmp_path / "run"
    steps = int(re.search(r"(?m)^STEPS, .* = (\d+),", script.read_text())[1])
    enough = steps // 2
    if examples.kind_of(script) == "gossip, asynchronous":
        steps *= 10
    process = begin(directory, steps, launcher, TFRUN_RESTARTS="1", WORKERS="4")
    support.wait_until(lambda: checkpoint(directory) >= enough, 60, "enough updates")
    support.task(directory, "worker", 2).kill()
    _, output = check_the_end(process, directory, steps, accuracy=0.97)
    assert "worker 2 was killed by SIGKILL; it starts again" in output


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.nightly)])
def test_kills_at_random_moments(kills, tmp_path):
    """0 hangs, 0 orphans, 0 lost checkpoints; the seed is printed. KILLS=20 makes more of them."""
    seed = int(os.environ.get("SEED", time.time_ns() % 2**32))
    print(f"SEED={seed}")
    dice = random.Random(seed)
    for number in range(int(os.environ.get("KILLS", kills))):
        directory = tmp_path / (f"run {number}")
        launcher = dice.choice(LAUNCHERS)
        process = begin(directory, 600, launcher, TFRUN_RESTARTS="2")
        time.sleep(dice.uniform(0.5, 12))
        victim = dice.choice([("ps", 0), ("worker", 0), ("worker", 1), "tfrun"])
        print(number, launcher.parent.name, victim, checkpoint(directory), flush=True)
        if victim == "tfrun":
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            support.wait_until(lambda d=directory: not support.processes_of(d), 10, "all gone")
            saved = checkpoint(directory)
            process = begin(directory, 600, launcher)
            assert process.wait(60) != 0 or (directory / "result.json").exists()
            assert checkpoint(directory) >= saved
        elif running := support.task(directory, *victim):
            running.kill()
        check_the_end(process, directory, steps=600, accuracy=0.9)
        assert checkpoint(directory) == 600
