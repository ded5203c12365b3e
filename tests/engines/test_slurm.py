"""Slurm: TF_CONFIG from Slurm's variables, on paper and on a real Slurm of two virtual nodes."""

import collections
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys

import engines
import pytest
import support
from lab import examples

HERE = engines.FOLDER / "Slurm"
LAUNCH, VIRTUAL = HERE / "slurm_launch.py", HERE / "virtual_slurm.py"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
slurm = pytest.mark.needs("root", "slurm", "unshare")  # of virtual_slurm.py


@pytest.fixture(scope="module")
def launch():
    return examples.load(LAUNCH)


@pytest.mark.parametrize(
    "nodelist, names",
    [
        ("n[9-11],m2", ["n9", "n10", "n11", "m2"]),
        ("n[08-10,12]", ["n08", "n09", "n10", "n12"]),
        ("a[1-2]b[3,5]", ["a1b3", "a1b5", "a2b3", "a2b5"]),
        ("localhost", ["localhost"]),
        ("gpu-a,gpu-b", ["gpu-a", "gpu-b"]),
    ],
)
def test_lists_of_nodes(nodelist, names, launch):
    """Catches hosts that are sorted as text (n10 before n9), and lost zeros."""
    assert launch.hosts(nodelist) == names


@pytest.mark.parametrize(
    "counts, distribution, nodes",
    [
        ("2(x2),1", "block", [0, 0, 1, 1, 2]),
        ("2(x2),1", "cyclic", [0, 1, 2, 0, 1]),
        ("3,1,2", "cyclic:block", [0, 1, 2, 0, 2, 0]),
        ("4(x2)", "plane=2", [0, 0, 1, 1, 0, 0, 1, 1]),
        ("1(x3)", "", [0, 1, 2]),
    ],
)
def test_where_each_rank_is(counts, distribution, nodes, launch):
    """Catches ranks that are dealt out as if each node had equally many, or always in blocks."""
    assert launch.nodes_of_ranks(launch.tasks_per_node(counts), distribution) == nodes


def variables(**more):
    defaults = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1"}
    return {**defaults, "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", **more}


def test_steps_at_once_have_ports_of_their_own(launch):
    """Catches two jobs on one node that share a port, or two steps of one job or of neighbours."""
    ports = collections.Counter()
    for job in range(1000, 1200):
        addresses = launch.addresses(variables(SLURM_JOB_ID=str(job)))
        assert [address.split(":")[0] for address in addresses] == ["n1", "n1", "n2"]
        ports.update(int(address.split(":")[1]) for address in addresses)
    assert set(ports.values()) == {1} and min(ports) >= 20000 and max(ports) < 32800
    seen = collections.Counter()
    for job in range(1000, 1030):
        for step in "012":
            env = variables(SLURM_JOB_ID=str(job), SLURM_STEP_ID=step)
            seen.update(launch.addresses(env))
    assert set(seen.values()) == {1}
    again = launch.addresses(variables(SLURM_RESTART_COUNT="1"))
    assert not set(again) & set(launch.addresses(variables()))


def run_launch(folder, flags, env):
    (folder / "train.py").write_text("import os\nprint('it ran', os.environ['TF_CONFIG'])\n")
    return subprocess.run(
        [sys.executable, LAUNCH, *flags, "train.py"],
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(
    "flags, env, message",
    [
        ([], {}, "this is no task of Slurm: start it with srun"),
        (["--ps", "100"], variables(), "--ps must be from 0 to 99, is 100"),
        (["--ps", "3"], variables(), "3 tasks are too few for 3 ps and a worker"),
        ([], variables(SLURM_DISTRIBUTION="arbitrary"), "the distribution 'arbitrary' is neither"),
        ([], variables(SLURMD_NODENAME="n2"), "rank 0 is on n2, not on n1"),
        ([], variables(SLURM_STEP_TASKS_PER_NODE="65(x2)"), "130 tasks are more than 64"),
        ([], {"SLURM_STEP_NODELIST": "n1"}, "Slurm's SLURM_STEP_TASKS_PER_NODE is missing"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_bad_use_ends_with_one_line(flags, env, message, tmp_path):
    """Catches a traceback, a cluster that nobody forms, and a script that starts all the same."""
    done = run_launch(tmp_path, flags, env)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr
    assert not done.stdout


def test_a_port_that_is_taken(launch, tmp_path):
    """Catches a cluster that waits for a ps whose port another process has; one line says so."""
    address = launch.addresses(variables())[0]
    with socket.create_server(("", int(address.split(":")[1]))):
        done = run_launch(tmp_path, [], variables())
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.count("\n") == 1 and "Address already in use" in done.stderr, done.stderr
    done = run_launch(tmp_path, [], variables())
    assert done.returncode == 0 and address in done.stdout, done.stderr


@pytest.mark.long
def test_the_resolver_of_tensorflow():
    """Tells when TensorFlow has mended what the README says of its SlurmClusterResolver."""
    code = """
import os, sys
import tensorflow as tf
os.environ.update(SLURM_STEP_NUM_TASKS="3", SLURM_STEP_TASKS_PER_NODE="1(x3)",
                  SLURM_STEP_NODELIST="n[9-11]", SLURM_PROCID="0", PATH="/nowhere")
for gpus in {}, dict(gpus_per_node=0, gpus_per_task=0), dict(gpus_per_node=1, gpus_per_task=1):
    try:
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            {"worker": 3}, auto_set_gpu=False, **gpus)
        print("FOUND", *resolver.cluster_spec().task_address("worker", 0).split(":"))
    except Exception as error:
        print("FOUND", type(error).__name__, error)
"""
    done = support.python(code)
    texts = re.findall("FOUND (.*)", done.stdout)
    assert len(texts) == 3, done.stderr
    on_cpus, no_gpus, first = texts
    mended = "TensorFlow has mended its resolver, at least in part: change the README. " + on_cpus
    assert "FileNotFoundError" in on_cpus and "nvidia-smi" in on_cpus, mended
    assert "ValueError" in no_gpus, mended + no_gpus
    assert first.split()[0] == "n10", mended + first  # Slurm's rank 0 is on n9


def on_slurm(text, directory, **env):
    """Runs a text of bash on a Slurm of two virtual nodes: (exit code, output)."""
    command = [sys.executable, VIRTUAL, "--cpus", "3", "--", "bash", "-ec", text]
    with engines.Run(command, directory, PATH=PATH, **env) as run:
        return run.end(60)


@pytest.mark.long
@slurm
def test_a_real_slurm_deals_out_the_ranks_as_we_think(tmp_path):
    """Catches variables that Slurm sets otherwise than the tests above say; and ports in common."""
    (tmp_path / "train.py").write_text(
        "import os\nprint('RANK', os.environ['SLURM_PROCID'], os.environ['TF_CONFIG'])\n"
    )
    launch = f"{sys.executable} {LAUNCH} --ps 2 --chief train.py"
    steps = [f"srun -N2 -n5 -m {m} {launch}" for m in ("block", "cyclic", "plane=2")]
    # Two steps of one job, at once.
    steps.append("salloc -N2 -n5 bash -c '%s & %s; wait'" % (2 * ("srun --overlap " + launch,)))
    code, output = on_slurm("\n".join(steps), tmp_path / "run")
    assert code == 0, output
    matches = re.findall(r"RANK (\d) (.*)", output)
    assert len(matches) == 25, output
    clusters = {json.dumps(json.loads(text)["cluster"]) for _, text in matches}
    assert len(clusters) == 5
    ports = [set(re.findall(r":(\d+)", cluster)) for cluster in clusters]
    assert len(set.union(*ports)) == 25
    hosts = {"".join(re.findall(r"n(\d):", cluster)) for cluster in clusters}
    assert hosts == {"11122", "12121", "11221"}, hosts
    for rank, text in matches:
        place = {
            "type": ["ps", "ps", "chief", "worker", "worker"][int(rank)],
            "index": [0, 1, 0, 0, 1][int(rank)],
        }
        config = json.loads(text)
        assert config["task"] == place
        sizes = {job: len(tasks) for job, tasks in config["cluster"].items()}
        assert sizes == {"ps": 2, "chief": 1, "worker": 2}


@pytest.mark.nightly
@slurm
def test_a_job_trains_and_goes_on_after_a_kill(tmp_path):
    """ps, chief and worker by run.sh: the worker is killed, the job begins again and ends well.

    Catches a job that starts from the beginning, in another folder, or that nobody begins again.
    """
    directory = tmp_path / "run"
    command = ["bash", HERE / "run.sh", examples.main_script("HogWild")]
    flags = ["--steps", 3000, "--checkpoint-steps", 100]
    with engines.Run([*command, *flags], directory, PATH=PATH, CHIEF="1", WORKERS="1") as run:
        support.wait_until(
            lambda: len(support.pushes(directory)) > 500 or run.process.poll() is not None,
            90,
            "it trains",
        )
        support.task(directory, "worker", 0).kill()
        code, output = run.end(150)
    assert code == 0, output
    assert output.count("the job begins again") == 1 and "COMPLETED" in output, output
    result = support.result(directory)
    assert result["steps"] == 3000 and result["test_accuracy"] >= 0.97
    assert result["workers"] == 2 and result["restarts"] and "missing" not in result
    first = re.findall(r"\n1: update (\d+) of", output.split("the job begins again")[1])[0]
    assert int(first) > 100, output
    steps = {row["global_step"] for row in support.pushes(directory)}
    assert len(set(range(1, 3001)) - steps) <= 2


@pytest.mark.long
@slurm
def test_a_job_begins_again_so_often_and_no_more(tmp_path):
    """At the signal near the end of its time, and where a task fails; not where its use is bad.

    Catches a job that Slurm runs for ever, and an output in which the error cannot be found.
    """
    (tmp_path / "train.py").write_text(
        "import os, time\n"
        "if os.environ.get('SLURM_RESTART_COUNT'):\n"
        "    raise SystemExit('there is no data')\n"
        "print('it trains')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "bad_use.py").write_text("raise SystemExit(2)\n")
    directory = tmp_path / "run"
    submit = "bash {} --ntasks=2 -- {}".format(HERE / "submit.sh", tmp_path)
    code, output = on_slurm(
        """
        (
            timeout 60 bash -c 'until grep -q "it trains" "$1"; do sleep 0.2; done' bash {}
            scancel --batch --signal USR1 "$(squeue --noheader --format %i)"
        ) &
        ! {}/train.py
        ! {}/bad_use.py
        """.format(shlex.quote(str(directory / "slurm.txt")), submit, submit),
        directory,
        RESTARTS="1",
    )
    assert code == 0, output
    assert output.count(": FAILED") == 2, output
    train, bad_use = output.split(": FAILED")[:2]
    assert train.count("the job begins again") == 1, output
    assert "its time is nearly over: the job begins again" in train, output
    failed, *last = train.split("[slurm]")[-3:]
    assert "Exited with exit code 1; the job has begun 2 times, and ends" in failed + last[0], (
        output
    )
    assert re.search(r" the last lines of task (\d):\n\1: there is no data\n$", last[-2]), output
    assert "begins again" not in bad_use and "of task" in bad_use, output


@pytest.mark.long
@slurm
@engines.one_kill(signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
def test_nothing_is_left_of_a_run_that_is_ended(number, tmp_path):
    """Ctrl-C in the terminal of run.sh, or its kill: Catches a slurmd or a task that lives on."""
    directory = tmp_path / "run"
    (tmp_path / "train.py").write_text("import time\nprint('it trains')\ntime.sleep(600)\n")
    command = ["bash", HERE / "run.sh", tmp_path / "train.py"]
    names = ["munged", "slurmctld", "slurmd", "unshare", "submit.sh"]
    with engines.Run(command, directory, PATH=PATH) as run:
        run.says("2: it trains")
        tasks = support.processes_of(directory)
        assert sum("train.py" in support.command_line(task) for task in tasks) >= 3
        run.known.update(tasks)
        commands = run.stop(number, names)
    folder = re.search(r"--inside (/tmp/slurm-\w+)", commands)[1]
    assert number == signal.SIGKILL or not os.path.exists(folder)
