"""Ray: an example as actors of a Ray on this machine, and what is killed there."""

import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

import engines
import psutil
import pytest
import support
from lab import examples

HERE = engines.FOLDER / "Ray"
LAUNCH = HERE / "ray_launch.py"
HOGWILD, DOWNPOUR = examples.main_script("HogWild"), examples.main_script("DOWNPOUR")


def folders():
    """The temporary folders of Ray."""
    return set(pathlib.Path("/tmp").glob("ray-*"))


class Run(engines.Run):
    """Nothing is left of it: no temporary folder of Ray, no file in the home folder."""

    def __init__(self, command, directory, **env):
        self.home, self.before = directory.with_suffix(".home"), folders()
        self.home.mkdir()
        own = {**engines.environment("ray"), "HOME": str(self.home), **env}
        super().__init__(command, directory, **own)

    def __exit__(self, *_):
        super().__exit__()
        support.wait_until(lambda: not self.left(), 20, "no folder of Ray is left")
        assert not list(self.home.rglob("*ray*")), "Ray has written into the home folder"

    def left(self):
        """The new folders that no process works in: another test may run Ray beside this one."""
        running = " ".join(support.command_line(process) for process in psutil.process_iter())
        return [path for path in folders() - self.before if str(path) not in running]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_killed_processes_come_back(tmp_path):
    """It trains to the accuracy, though a worker and then the chief's Ray worker are killed.

    All tasks begin again from a checkpoint, not from the start, and there are never two chiefs.
    """
    command = [sys.executable, LAUNCH, "--chief", "--workers", "1", HOGWILD, "--steps", 3000]
    command += ["--checkpoint-steps", 100]
    with Run(command, tmp_path / "run") as run:
        for number, job in enumerate(("worker", "chief"), 1):

            def step(number=number):
                assert run.process.poll() is None, run.file.read_text()
                text = run.file.read_text().split(f"attempt {number}: all tasks begin")[-1]
                updates = re.findall(r"chief 0\] update (\d+) of", text)
                return int(updates[-1]) if updates else 0

            first = support.wait_until(step, 100, f"attempt {number} trains")
            support.wait_until(lambda first=first: step() > first + 200, 60, "it has checkpoints")
            process = support.task(run.directory, job, 0)
            (process if job == "worker" else process.parent()).kill()
            run.says(f"attempt {number + 1}: all tasks begin")
        code, output = run.end()
    assert code == 0, output
    assert run.chiefs == 1
    for message in "worker 0 was killed by signal 9", "chief 0: its Ray worker has died":
        assert f"[ray] {message}\n" in output
    starts = re.findall(r"all tasks begin\n(?:(?!attempt).*\n)*?.*?update (\d+) of", output)
    steps_at_start = list(map(int, starts))
    assert len(starts) == 3 and steps_at_start[1] >= 100, starts
    assert steps_at_start[1:] == sorted(set(steps_at_start[1:])), starts
    result = support.result(tmp_path / "run")
    assert result["test_accuracy"] >= 0.95 and result["steps"] == 3000
    assert "%.1f%%; everything of this run is in" % (100 * result["test_accuracy"]) in output


@pytest.mark.nightly
def test_a_script_that_always_fails(tmp_path):
    """Its last lines are the error, after as many attempts as were allowed."""
    script = tmp_path / "train.py"
    script.write_text("print('one line')\nraise SystemExit('there is no data')\n")
    command = [sys.executable, LAUNCH, "--ps", "0", "--workers", "1", "--attempts", "2", script]
    with Run(command, tmp_path / "run") as run:
        code, output = run.end()
    assert code == 1, output
    assert re.findall(r"attempt (\d+): all tasks begin", output) == ["1", "2"]
    end = "[ray] worker 0 failed with exit code 1\none line\nthere is no data\n"
    assert output.endswith(end), output


@pytest.mark.long
def test_no_cluster(tmp_path):
    """One line at once; Ray itself would try for many minutes."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        command = [sys.executable, LAUNCH, "--address", address, HOGWILD]
        with Run(command, tmp_path / "run") as run:
            code, output = run.end(30)
    assert code == 1 and output.startswith(f"[ray] there is no Ray at {address}: "), output


@pytest.mark.long
def test_too_few_cpus_of_a_cluster_that_runs(tmp_path):
    """One line, not a wait for what does not come; the cluster goes on."""
    code = (
        "import os, ray, sys; folder = sys.argv[1]; ray.init('local', num_cpus=1, _temp_dir=folder,"
        "include_dashboard=False, object_store_memory=10**8, logging_level='ERROR');"
        "print(ray.get_runtime_context().gcs_address, flush=True); sys.stdin.read()"
    )
    token = {
        **{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": 64 * "a", "RAY_USAGE_STATS_ENABLED": "0"},
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    # The paths of Ray's sockets must be short.
    with (
        tempfile.TemporaryDirectory(prefix="ray_", dir="/tmp") as folder,
        subprocess.Popen(
            [sys.executable, "-c", code, folder],
            env={**engines.environment("ray"), **token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as cluster,
    ):
        known = set()
        try:
            address = cluster.stdout.readline().strip()
            assert address.startswith("127.0.0.1:")
            known |= set(engines.descendants(psutil.Process(cluster.pid)))
            command = [sys.executable, LAUNCH, "--address", address, "--cpus-timeout", "2", HOGWILD]
            with Run(command, tmp_path / "run", **token) as run:
                code, output = run.end()
            assert code == 1, output
            end = "no CPU for each of the 3 tasks after 2 s (it has 1 in all)"
            assert end in output.splitlines()[-1], output
            assert all(map(support.is_running, known)), "the cluster is not ours to end"
        finally:
            cluster.stdin.close()  # killed, it would leave Ray's agents for a minute
            try:
                cluster.wait(support.patience(30))
            finally:
                cluster.kill()
            engines.none_is_left(known)


@pytest.mark.nightly
@engines.one_kill(signal.SIGKILL, signal.SIGINT)
def test_nothing_is_left_of_a_run_that_is_ended(number, tmp_path):
    """Ctrl-C in the terminal of run.sh, and kill -9. Ray listens on the loopback address only."""
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('it trains')\ntime.sleep(600)\n")
    command = ["bash", HERE / "run.sh", script]
    with Run(command, tmp_path / "run", PS="0", WORKERS="1") as run:
        run.says("[worker 0] it trains")
        assert folders() > run.before
        listening = {
            connection.laddr.ip
            for process in engines.descendants(psutil.Process(run.process.pid))
            for connection in support.safely(process.net_connections, [])
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening and listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
        run.stop(number, ["gcs_server", "raylet", "monitor.py", "ray::Task", str(script)])
