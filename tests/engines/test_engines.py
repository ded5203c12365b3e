"""One file on every engine: HogWild's script, which nobody has changed, trains on each of them."""

import hashlib
import os
import shutil
import subprocess
import sys

import engines
import pytest
import support
from lab import examples
from tfrun.runs import summary
from tfrun.runs.data import RunData

HOGWILD = examples.main_script("HogWild")
PATH = os.pathsep.join(
    [str(support.ROOT / "tfrun" / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
)
TASKS = {("ps", 0), ("worker", 0), ("worker", 1)}
DRY_RUN = "set -e; DRY_RUN=1 tfrun --ps 1 --workers 2 -- {0} > {1}; bash {1}; tfrun summary {2}"


def run_sh(name):
    """The run.sh of a folder, with a script."""
    return lambda script, _: ["bash", engines.FOLDER / name / "run.sh", script]


def dry_run(script, directory):
    """The commands that tfrun would start, as a script of their own."""
    text = DRY_RUN.format(script, directory.with_suffix(".sh"), directory)
    return ["bash", "-c", text]


def tfrun(script, _):
    return ["tfrun", "--ps", "1", "--workers", "2", "--", script]


def pods(script, _):
    """The entry point of the image, in the place of each pod."""
    return [sys.executable, support.ROOT / "tests" / "support" / "pods.py", script]


WAYS = {
    "tfrun": (tfrun, []),
    "dry run": (dry_run, []),
    "ssh": (run_sh("SSH"), ["root", "ip", "ssh"]),
    "Spark": (run_sh("Spark-Cluster"), ["java"]),
    "Slurm": (run_sh("Slurm"), ["root", "slurm", "unshare"]),
    "Ray": (run_sh("Ray"), []),
    "Kubernetes": (pods, ["root", "ip"]),
}


SCRIPT = "../HogWild/hogwild.py"


@pytest.mark.parametrize(
    "command, env, message",
    [
        ("Spark-Cluster/spark_launch.py --ps 200 " + SCRIPT, {}, "--ps: must be from 0 to 99"),
        ("Spark-Cluster/spark_launch.py --workers 0 " + SCRIPT, {}, "needs a worker or a chief"),
        ("Spark-Cluster/spark_launch.py --attempts 0 " + SCRIPT, {}, "must be from 1 to 99, is 0"),
        ("Spark-Cluster/spark_launch.py --slots-timeout 0 " + SCRIPT, {}, "must be from 1 to 864"),
        ("Spark-Cluster/spark_launch.py nowhere.py", {}, "there is no script nowhere.py"),
        ("Spark-Cluster/standalone.py --workers 0 -- true", {}, "--workers: must be from 1 to 99"),
        ("Spark-Cluster/standalone.py", {}, "it needs a command to run"),
        ("Spark-Cluster/kills.py --steps many", {}, "invalid int value"),
        ("Ray/ray_launch.py --cpus-timeout 0 " + SCRIPT, {}, "must be from 1 to 86400, is 0"),
        ("Ray/ray_launch.py nowhere.py", {}, "there is no script nowhere.py"),
        ("Slurm/virtual_slurm.py --nodes 0 -- true", {}, "--nodes: must be from 1 to 64, is 0"),
        ("Slurm/virtual_slurm.py", {}, "it needs a command to run"),
        ("Slurm/run.sh nowhere.py", {}, "there is no script nowhere.py"),
        ("Slurm/run.sh", {"WORKERS": "a[$(id)]"}, "WORKERS must be a number from 0 to 99"),
        ("Slurm/run.sh", {"PS": "0", "WORKERS": "0"}, "a run needs a worker or a chief"),
        ("Slurm/submit.sh train.py", {"OUTPUT_DIR": ""}, "submit.sh: set OUTPUT_DIR"),
        ("start_up.py --output found.json --repeats 0 run.sh", {}, "must be above 0, is 0"),
        (
            "start_up.py --output found.json nowhere/run.sh",
            {},
            "left out: nowhere: there is no nowhere/run.sh",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_use_ends_with_one_line(command, env, message, tmp_path):
    """Before anything of an engine is needed: so also that each script can be imported without it.

    Catches what would begin a cluster first, or evaluate what a variable holds.
    """
    words = [
        engines.FOLDER / word if (engines.FOLDER / word).is_file() else word
        for word in command.split()
    ]
    done = subprocess.run(
        ["bash" if words[0].suffix == ".sh" else sys.executable, *words],
        cwd=tmp_path,
        env=support.environment(tmp_path / "run", **env),
        capture_output=True,
        text=True,
        timeout=support.patience(60),
    )
    assert done.returncode in (1, 2) and message in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            # The examples' own tests start tfrun, with and without --dry-run.
            marks=[
                pytest.mark.nightly if name in ("tfrun", "dry run") else pytest.mark.long,
                pytest.mark.needs(*needs),
            ],
        )
        for name, (_, needs) in WAYS.items()
    ],
)
def test_one_file_trains_everywhere(name, tmp_path):
    """Catches an engine that runs something else, or changes the file; facts that stay where they
    were made; an end without `tfrun summary`; and what is left running."""
    script, directory = tmp_path / "hogwild.py", tmp_path / "run"
    shutil.copy(HOGWILD, script)
    with engines.Run(WAYS[name][0](script, directory), directory, PATH=PATH) as run:
        code, text = run.end(150)
    assert code == 0, text
    tasks = {(job, index) for job, index, *command in run.tasks if str(script) in command}
    assert tasks == TASKS, tasks
    digest = hashlib.sha256(HOGWILD.read_bytes()).digest()
    assert hashlib.sha256(script.read_bytes()).digest() == digest
    result = support.result(directory)
    assert result["test_accuracy"] >= 0.97, text
    assert (result["ps"], result["workers"]) == (1, 2)
    if name == "Spark":  # the lines of each task reach the driver, without TensorFlow's notices
        assert all(f"[{task}] " in text for task in ("ps 0", "worker 0", "worker 1"))
        assert "oneDNN" not in text
    assert result == summary.summarize(RunData.read(directory))


@pytest.mark.parametrize(
    "name",
    [
        # Slurm in `all`: its job begins in bash.
        pytest.param(
            name,
            marks=[
                pytest.mark.long if name == "Slurm" else pytest.mark.nightly,
                pytest.mark.needs(*needs),
            ],
        )
        for name, (_, needs) in WAYS.items()
        if name != "Kubernetes"  # its image takes a copy that `python -m tfrun.problems` has made
    ],
)
def test_a_problem_of_ones_own_trains_everywhere(name, tmp_path):
    """Catches an engine that runs the script as it is, with PROBLEM in its environment or not."""
    script, directory = tmp_path / "hogwild.py", tmp_path / "run"
    shutil.copy(HOGWILD, script)
    problem = support.ROOT / "Your-Model" / "convolution.py"
    more = {"PATH": PATH, "PROBLEM": str(problem)}
    with engines.Run(WAYS[name][0](script, directory), directory, **more) as run:
        code, text = run.end(150)
    assert code == 0, text
    copy = str(directory / "hogwild.py")
    tasks = {(job, index) for job, index, *command in run.tasks if copy in command}
    assert tasks == TASKS, (tasks, text)
    assert (directory / "own_problem.py").read_bytes() == problem.read_bytes()
    result = support.result(directory)
    assert result["test_top_2_accuracy"] > 0.9 and (result["ps"], result["workers"]) == (1, 2), text
    assert not list(directory.glob(".host-*")), "tfrun's marks of the hosts"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(*WAYS[name][1])) for name in ("Ray", "Slurm")],
)
def test_a_worker_joins_and_leaves(name, tmp_path):
    """Catches a launcher that answers no `tfrun scale`, a worker that trains apart from the others,
    and a run that waits for one that has left."""
    directory, flags = tmp_path / "run", ["--steps", 25000, "--checkpoint-steps", 5000]
    joined = directory / "metrics-worker-2.csv"

    def scale(n):
        command = [sys.executable, "-m", "tfrun", "scale", directory, "--workers", str(n)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    command = [*WAYS[name][0](HOGWILD, directory), *flags]
    with engines.Run(command, directory, PATH=PATH) as run:
        run.says("update 1", 100)
        scale(3)
        support.wait_until(
            lambda: joined.exists() and "\n1" in joined.read_text(), 100, "it pushes"
        )
        scale(2)
        run.says("worker 2 leaves")
        support.wait_until(lambda: not support.task(directory, "worker", 2), 60, "it has left")
        left_at = len(support.pushes(directory))
        code, text = run.end(150)
    assert code == 0, text
    by_worker = {task: 0 for task in ("worker-0", "worker-1", "worker-2")}
    for row in support.pushes(directory):
        by_worker[row["task"]] += 1
    assert min(by_worker.values()) > 10 and by_worker["worker-2"] < left_at < 25000, by_worker
    assert support.result(directory)["test_accuracy"] >= 0.95, text
