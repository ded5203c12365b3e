"""Slurm: TF_CONFIG from Slurm's variables, on paper and on a real Slurm of two virtual nodes."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import engines
import pytest
import support

HERE = engines.FOLDER / "Slurm"
LAUNCH, VIRTUAL = HERE / "slurm_launch.py", HERE / "virtual_slurm.py"
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
REAL = not os.geteuid() and all(
    shutil.which(name, path=PATH) for name in ("munged", "slurmctld", "slurmd", "sbatch", "unshare")
)
slurm = pytest.mark.skipif(not REAL, reason="no root, or no Slurm")


@pytest.fixture(scope="module")
def launch():
    return support.load(LAUNCH)


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
    found = {"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1"}
    return {**found, "SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", **more}


def test_steps_at_once_have_ports_of_their_own(launch):
    """Catches two jobs on one node that share a port; the first 200 jobs after one do not."""
    ports = collections.Counter()
    for job in range(1000, 1200):
        made = launch.addresses(variables(SLURM_JOB_ID=str(job)))
        assert [address.split(":")[0] for address in made] == ["n1", "n1", "n2"]
        ports.update(int(address.split(":")[1]) for address in made)
    assert set(ports.values()) == {1} and min(ports) >= 20000 and max(ports) < 32800
    one, two = (launch.addresses(variables(SLURM_STEP_ID=step)) for step in "01")
    assert not set(one) & set(two)


@pytest.mark.parametrize(
    "flags, env, message",
    [
        ([], None, "this is no task of Slurm: start it with srun"),
        (["--ps", "100"], {}, "--ps must be from 0 to 99, is 100"),
        (["--ps", "3"], {}, "3 tasks are too few for 3 ps and a worker"),
        ([], {"SLURM_DISTRIBUTION": "arbitrary"}, "the distribution 'arbitrary' is neither"),
        ([], {"SLURMD_NODENAME": "n2"}, "rank 0 is on n2, not on n1"),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_bad_use_ends_with_one_line(flags, env, message, tmp_path):
    (tmp_path / "train.py").write_text("print('it ran')\n")
    done = subprocess.run(
        [sys.executable, LAUNCH, *flags, "train.py"],
        env={**os.environ, **(variables(**env) if env is not None else {})},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr
    assert not done.stdout


def on_slurm(command, seconds=100, **env):
    """Runs a command on a Slurm of two virtual nodes: (exit code, output)."""
    done = subprocess.run(
        [sys.executable, VIRTUAL, "--nodes", "2", "--", *map(str, command)],
        env={**os.environ, "PATH": PATH, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=support.patience(seconds),
    )
    return done.returncode, done.stdout


@pytest.mark.long
@slurm
def test_a_real_slurm_deals_out_the_ranks_as_we_think(tmp_path):
    """Catches variables that Slurm sets otherwise than the tests above say."""
    (tmp_path / "train.py").write_text(
        "import os\nprint('RANK', os.environ['SLURM_PROCID'], os.environ['TF_CONFIG'])\n"
    )
    steps = [
        "srun -N2 -n5 -m %s %s %s --ps 2 --chief %s" % (m, sys.executable, LAUNCH, "train.py")
        for m in ("block", "cyclic", "plane=2")
    ]
    code, output = on_slurm(["bash", "-ec", "cd %s; %s" % (tmp_path, "; ".join(steps))])
    assert code == 0, output
    found = re.findall(r"RANK (\d) (.*)", output)
    assert len(found) == 15, output
    clusters = {json.dumps(json.loads(text)["cluster"]) for _, text in found}
    assert len(clusters) == 3  # one for each step
    for rank, text in found:
        config = json.loads(text)
        jobs = ["ps", "ps", "chief", "worker", "worker"]
        place = {"type": jobs[int(rank)], "index": [0, 1, 0, 0, 1][int(rank)]}
        assert config["task"] == place
        assert {job: len(tasks) for job, tasks in config["cluster"].items()} == {
            **{"ps": 2, "chief": 1, "worker": 2}
        }


@pytest.mark.long
@slurm
def test_a_job_trains_and_goes_on_after_a_kill(tmp_path):
    """A worker is killed: the job is requeued, goes on from its checkpoint, and reaches the end."""
    directory = tmp_path / "run"
    script = support.main_script("HogWild")
    flags = [script, "--steps", 3000, "--checkpoint-steps", 100]
    command = ["bash", HERE / "submit.sh", *flags]
    # Slurm would let a requeued job wait for two minutes.
    impatient = "while sleep 0.5; do scontrol update JobId=1 StartTime=now; done >/dev/null 2>&1 &"
    process = subprocess.Popen(
        [sys.executable, VIRTUAL, "--", "bash", "-c", impatient + ' "$@"', "bash"]
        + list(map(str, command)),
        env=support.environment(directory, PATH=PATH),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        support.wait_until(
            lambda: directory.exists() and len(support.pushes(directory)) > 500, 90, "it trains"
        )
        support.task(directory, "worker", 1).kill()
        output = process.communicate(timeout=support.patience(120))[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    assert "the job begins again" in output and "COMPLETED" in output
    result = support.result(directory)
    assert result["steps"] == 3000 and result["test_accuracy"] >= 0.97
    assert result["restarts"], "nobody went on"
    made = {row["global_step"] for row in support.pushes(directory)}
    assert len(set(range(1, 3001)) - made) <= 2
    assert not support.processes_of(pathlib.Path(directory))
