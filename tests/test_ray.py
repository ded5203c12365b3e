"""Ray: an example as actors of a Ray on this machine, and what is killed there."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import engines
import psutil
import pytest
import support

HERE = engines.FOLDER / "Ray"
LAUNCH = HERE / "ray_launch.py"
HOGWILD, DOWNPOUR = support.main_script("HogWild"), support.main_script("DOWNPOUR")


def folders():
    """The temporary folders of Ray."""
    return set(pathlib.Path("/tmp").glob("ray-*"))


class Run:
    """A command that a test meddles with while it runs; nothing is left of it afterwards.

    Nothing: no process, no temporary folder of Ray, no file in the home folder.
    """

    def __init__(self, command, directory, **env):
        self.directory, self.text = directory, directory.with_suffix(".txt")
        self.home, self.known = directory.with_suffix(".home"), set()
        self.home.mkdir()
        own = {**engines.environment("ray"), "HOME": str(self.home), **env}
        self.before = folders()
        with open(self.text, "w") as output:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env=support.environment(directory, **own),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self):
        self.over = threading.Event()
        self.watch = threading.Thread(target=self.look)
        self.watch.start()
        return self

    def look(self):
        mine, self.chiefs = psutil.Process(self.process.pid), []
        while not self.over.wait(0.05):
            self.known |= set(engines.descendants(mine))
            found = support.processes_of(self.directory)
            chiefs = [each for each in found if support.task_type(each) == "chief"]
            # What a chief starts looks like itself until it has become another program.
            pids = {each.pid for each in chiefs}
            with contextlib.suppress(psutil.NoSuchProcess):
                chiefs = [each for each in chiefs if each.ppid() not in pids]
            if len(chiefs) > len(self.chiefs):
                self.chiefs = [
                    each.as_dict(["pid", "ppid", "cmdline", "status"]) for each in chiefs
                ]

    def __exit__(self, *_):
        self.over.set()
        self.watch.join()
        self.process.kill()
        self.process.wait()
        engines.none_is_left(self.known, [self.directory])
        support.wait_until(lambda: folders() <= self.before, 20, "no folder of Ray is left")
        assert not list(self.home.rglob("*ray*")), "Ray has written into the home folder"

    def says(self, line, seconds=60):
        """Waits until it has printed this."""
        support.wait_until(lambda: line in self.text.read_text(), seconds, "it says: " + line)

    def end(self, seconds=100):
        """(exit code, output)"""
        support.wait_until(lambda: self.process.poll() is not None, seconds, "it has ended")
        return self.process.returncode, self.text.read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--ps", "200", HOGWILD], "--ps must be from 0 to 99, is 200"),
        (["--workers", "0", HOGWILD], "a run needs a worker or a chief"),
        (["--attempts", "0", HOGWILD], "--attempts must be from 1 to 99, is 0"),
        (["--cpus-timeout", "0", HOGWILD], "--cpus-timeout must be from 1 to 86400, is 0"),
        (["nowhere.py"], "there is no script nowhere.py"),
    ],
    ids=lambda value: value.split(",")[0] if isinstance(value, str) else "",
)
def test_bad_use_ends_with_one_line(arguments, message, tmp_path):
    """Before anything of Ray is needed: so also that the script can be imported without it."""
    done = subprocess.run(
        [sys.executable, LAUNCH, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
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
                assert run.process.poll() is None, run.text.read_text()
                text = run.text.read_text().split("attempt %d: all tasks begin" % number)[-1]
                found = re.findall(r"chief 0\] update (\d+) of", text)
                return int(found[-1]) if found else 0

            first = support.wait_until(step, 100, "attempt %d trains" % number)
            support.wait_until(lambda first=first: step() > first + 200, 60, "it has checkpoints")
            process = support.task(run.directory, job, 0)
            (process if job == "worker" else process.parent()).kill()
            run.says("attempt %d: all tasks begin" % (number + 1))
        code, output = run.end()
    assert code == 0, output
    assert len(run.chiefs) == 1, run.chiefs
    assert "[ray] worker 0 was killed by signal 9\n" in output
    assert "[ray] chief 0: its Ray worker has died\n" in output
    starts = re.findall(r"all tasks begin\n(?:(?!attempt).*\n)*?.*?update (\d+) of", output)
    assert len(starts) == 3 and 100 <= int(starts[1]) < int(starts[2]), starts
    result = support.result(tmp_path / "run")
    assert result["test_accuracy"] >= 0.95 and result["steps"] == 3000
    assert "%.1f%%; everything of this run is in" % (100 * result["test_accuracy"]) in output


@pytest.mark.long
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
        address = "127.0.0.1:%d" % held.getsockname()[1]
        command = [sys.executable, LAUNCH, "--address", address, HOGWILD]
        with Run(command, tmp_path / "run") as run:
            code, output = run.end(30)
    assert code == 1 and output.startswith("[ray] there is no Ray at %s: " % address), output


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
            assert all(map(engines.alive, known)), "the cluster is not ours to end"
        finally:
            cluster.stdin.close()  # killed, it would leave Ray's agents for a minute
            try:
                cluster.wait(support.patience(30))
            finally:
                cluster.kill()
            engines.none_is_left(known)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(number, tmp_path):
    """Ctrl-C in the terminal of run.sh, and kill -9. Ray listens on the loopback address only."""
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('it trains')\ntime.sleep(600)\n")
    command = ["bash", HERE / "run.sh", script]
    with Run(command, tmp_path / "run", PS="0", WORKERS="1") as run:
        run.says("[worker 0] it trains")
        running = engines.descendants(psutil.Process(run.process.pid))
        names = " ".join(" ".join(each.cmdline()) for each in running)
        for name in ("gcs_server", "raylet", "monitor.py", "ray::Task", script):
            assert str(name) in names
        listening = {
            each.laddr.ip
            for process in running
            for each in process.net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        }
        assert listening and listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
        assert folders() > run.before
        if number == signal.SIGINT:
            os.killpg(run.process.pid, number)
            code, output = run.end(30)
            assert code == 130 and "Traceback" not in output, output
        else:
            run.process.kill()
