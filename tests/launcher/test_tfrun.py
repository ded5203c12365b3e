"""tfrun with small scripts in place of training: fast, and able to misbehave on purpose."""

import json
import os
import shlex
import signal
import socket
import subprocess
import time

import bottlenecks
import joins
import psutil
import pytest
import support
from small_scripts import TFRUN, fake_nvidia_smi, run, start, tasks, write

GRANDCHILD = """
import subprocess
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])
"""


def test_tasks_environment_and_logs(tmp_path):
    """An evaluator of the script's own gets no flag more, and is not in the cluster."""
    write(tmp_path, "print(json.dumps([job, index, sys.argv[1:], dict(os.environ)]))")
    flags = ["--ps", "2", "--workers", "2", "--chief", "--own-evaluator"]
    code, lines = run(tmp_path, *flags, arguments=["--steps", "a b"])
    assert code == 0, lines
    assert "1 chief, 2 ps, 2 workers, 1 evaluator" in lines[0]
    seen, ports = {}, set()
    for line in lines:
        prefix, _, text = line.partition("] ")
        if prefix != "[tfrun":
            job, index, arguments, env = json.loads(text)
            assert prefix == f"[{job} {index}" and arguments == ["--steps", "a b"]
            assert (tmp_path / "run" / f"{job}-{index}.log").read_text() == text + "\n"
            seen[job, index] = env
            config = json.loads(env["TF_CONFIG"])
            assert config["task"] == {"type": job, "index": index}
            sizes = {job: len(tasks) for job, tasks in config["cluster"].items()}
            assert sizes == {"chief": 1, "ps": 2, "worker": 2}
            ports |= {address for tasks in config["cluster"].values() for address in tasks}
            assert env["OUTPUT_DIR"] == str(tmp_path / "run") and env["TF_GRPC_REUSE_PORT"] == "1"
    assert len(seen) == 6 and len(ports) == 5
    assert seen["ps", 0]["CUDA_VISIBLE_DEVICES"] == seen["ps", 1]["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.mark.long
def test_checkpoints_that_are_far_apart(tmp_path):
    """One line, once, where none comes while the run trains; none where they come in time.

    Two seconds stand for the five minutes.
    """
    body = """
out = os.environ["OUTPUT_DIR"]
with open(os.path.join(out, "flags.json"), "w") as file:
    facts = {"example": "train", "tasks": ["worker 0"], "ps": 0, "versions": {}}
    json.dump({**facts, "arguments": {"checkpoint_steps": 700}}, file)
for _ in range(45):
    if sys.argv[1] == "often":
        open(os.path.join(out, "checkpoint"), "w").close()
    time.sleep(0.1)
"""
    patch = "from tfrun.runs import progress; progress.CHECKPOINT_SECONDS = 2"
    for how, count in ("often", 0), ("never", 1):
        write(tmp_path / how, body)
        _, lines = run(tmp_path / how, arguments=[how], patch=patch)
        warnings = [line for line in lines if "no checkpoint came" in line]
        assert len(warnings) == count, lines
    assert "lower --checkpoint-steps (now 700)" in warnings[0]


def test_gpus_are_dealt_out(tmp_path):
    """With a stand-in for nvidia-smi that lists two GPUs."""
    write(tmp_path, "print(job, index, os.environ.get('CUDA_VISIBLE_DEVICES'))")
    path = fake_nvidia_smi(tmp_path, 2)

    def dealt(*jobs):
        code, lines = run(tmp_path, *jobs, PATH=path, OUTPUT_DIR=str(tmp_path / jobs[-1]))
        assert code == 0, lines
        return sorted(line.split("] ")[1] for line in lines if not line.startswith("[tfrun]"))

    assert dealt("--ps", "1", "--workers", "3") == ["ps 0 -1", "worker 0 0", "worker 1 1"] + [
        "worker 2 0"
    ]
    assert dealt("--workers", "1") == ["worker 0 {}".format(os.environ.get("CUDA_VISIBLE_DEVICES"))]


def horovodrun(folder, body, *more):
    """tfrun with a stand-in for horovodrun that goes on as `body`: (exit code, lines of output)."""
    (folder / "horovodrun").write_text(
        f"""#!/usr/bin/env python
import os, subprocess, sys
print("[0]<stdout>:threads", os.environ["OMP_NUM_THREADS"], *sys.argv[1:])
print("[1]<stderr>:I0000 port.cc:153] oneDNN custom operations are on.")
# As the real one does for each rank: not in its process group.
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"], start_new_session=True)
{body}"""
    )
    (folder / "horovodrun").chmod(0o755)
    arguments = ["--gloo", "-np", "2", "python", "a script.py", *more]
    path = "{}:{}".format(folder, os.environ["PATH"])
    return run(folder, script="horovodrun", arguments=arguments, PATH=path)


def test_horovodrun_starts_the_workers(tmp_path):
    """Its ranks are the workers, its arguments its own; what it leaves behind ends."""
    code, lines = horovodrun(tmp_path, "")
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert code == 0 and "2 workers" in lines[0], lines
    assert lines[1:] == [f"[worker 0] threads {threads} --gloo -np 2 python a script.py"]
    log = (tmp_path / "run" / "horovodrun.log").read_text()
    assert log.startswith("[0]<stdout>:threads") and "oneDNN" in log


FAILURE = """print('''[1]<stderr>:Traceback (most recent call last):
[1]<stderr>:  File "x.py"
[1]<stderr>:ValueError: no luck
[1]<stderr>:Killed
Process 1 exit with status code 137.
Terminating remaining workers after failure of Process 1.
[0]<stderr>:Terminated
Process 0 exit with status code 143.''')
raise RuntimeError("Horovod detected that one or more processes exited")
"""


def test_a_rank_of_horovodrun_ends_with_a_code_that_is_no_signal(tmp_path):
    """255, as after sys.exit(-1), or where ssh has failed."""
    body = "print('Process 1 exit with status code 255.'); sys.exit(1)"
    code, lines = horovodrun(tmp_path, body)
    assert code == 1 and any("worker 1 has exit code 255" in line for line in lines), lines


def test_a_rank_of_horovodrun_fails(tmp_path):
    """The rank is named, its traceback shown, and that of horovodrun left to the log."""
    code, lines = horovodrun(tmp_path, FAILURE)
    assert code == 1
    texts = ["Traceback (most recent call last):", '  File "x.py"', "ValueError: no luck"]
    assert lines[2:5] == ["[worker 1] " + text for text in texts], lines
    assert lines[5].startswith("[tfrun] horovodrun failed: worker 1 was killed by SIGKILL; the run")
    assert "ends a task by force" in lines[6], "not its last lines again"
    assert lines[7].startswith("[tfrun] all that it printed: ") and len(lines) == 8, lines
    assert "Terminating remaining" in (tmp_path / "run" / "horovodrun.log").read_text()


def test_a_wrong_flag_under_horovodrun(tmp_path):
    """The error of one rank, once; the exit code of the rank."""
    body = """for rank in 0, 1:
    for line in "usage: a.py [--steps N]", "    [--seed S]", "a.py: error: argument --steps: no":
        print("[%d]<stderr>:%s" % (rank, line))
    print("Process %d exit with status code 2." % rank)
sys.exit(1)"""
    code, lines = horovodrun(tmp_path, body)
    assert code == 2 and not any("usage" in line or "seed" in line for line in lines), lines
    assert lines.count("[worker 0] a.py: error: argument --steps: no") == 1
    assert not any(line.startswith("[worker 1] a.py") for line in lines), lines


def test_help_of_a_script_under_horovodrun(tmp_path):
    """Neither horovodrun nor a second rank is started."""
    (tmp_path / "a script.py").write_text("import sys; print(sys.argv[1:])")
    code, lines = horovodrun(tmp_path, "print('never')", "--help")
    assert code == 0 and lines == ["['--help']"]


def test_ports_are_held(tmp_path):
    """While the run lasts nobody else gets a port, although no task listens on it."""
    write(tmp_path, "time.sleep(60)")
    process = start(tmp_path, "--ps", "1", "--workers", "2")
    try:
        ports = support.wait_until(
            lambda: support.ports_of(support.processes_of(tmp_path / "run")), 10, "started"
        )
        assert len(ports) == 3
        for port in ports:
            with socket.socket() as thief, pytest.raises(OSError):
                thief.bind(("127.0.0.1", port))
            # As TensorFlow does it, with TF_GRPC_REUSE_PORT.
            socket.create_server(("127.0.0.1", port), reuse_port=True).close()
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize(
    "job, index, how, code, words",
    [
        ("worker", 1, "sys.exit(7)", 7, "failed with exit code 7"),
        ("worker", 1, "os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL"),
        ("worker", 1, "raise ValueError('bad luck')", 1, "failed with exit code 1"),
        ("ps", 0, "sys.exit(3)", 3, "failed with exit code 3"),
    ],
)
def test_a_failure_stops_the_run(tmp_path, job, index, how, code, words):
    write(
        tmp_path,
        f"""
if (job, index) == {job, index}:
    print("my last line", flush=True)
    {how}
time.sleep(60)""",
    )
    began = time.monotonic()
    got, lines = run(tmp_path, "--ps", "1", "--workers", "2")
    assert time.monotonic() - began < 10
    assert got == code
    assert any(f"{job} {index} {words}" in line for line in lines), lines
    assert lines.count(f"[{job} {index}] my last line") == 1, lines
    assert lines[-1].endswith(f"{tmp_path}/run/{job}-{index}.log")


def test_the_first_failure_gives_the_exit_code(tmp_path):
    """Worker 1 is let go with 3, then the chief ends with 5, and the ps, when it is stopped, 9."""
    write(
        tmp_path,
        """
import signal
log = os.path.join(os.environ["OUTPUT_DIR"], "worker-1-ended")
if job == "ps":
    signal.signal(15, lambda *_: os._exit(9))
if (job, index) == ("worker", 1):
    if os.path.exists(log + "-once"):
        open(log, "w").close()
    open(log + "-once", "w").close()
    sys.exit(3)
while job == "ps" or not os.path.exists(log):
    time.sleep(0.05)
time.sleep(0.3)
sys.exit(5)""",
    )
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2", "--restarts", "1")
    assert any("worker 1 failed with exit code 3, has no restart left" in line for line in lines)
    assert any("worker 0 failed with exit code 5; the run is stopped" in line for line in lines)
    assert code == 3, lines


def test_a_task_that_ends_leaves_nothing_running(tmp_path):
    """Worker 1 ends by itself, with a child; worker 0 looks half a second later."""
    write(
        tmp_path,
        """
import psutil, subprocess
path = os.path.join(os.environ["OUTPUT_DIR"], "child")
if index == 1:
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'])
    open(path + ".new", "w").write(str(child.pid))
    os.rename(path + ".new", path)
    sys.exit()
while not os.path.exists(path):
    time.sleep(0.05)
child, end = int(open(path).read()), time.monotonic() + 5
while psutil.pid_exists(child) and time.monotonic() < end:
    time.sleep(0.05)
print("the child runs:", psutil.pid_exists(child))""",
    )
    code, lines = run(tmp_path, "--workers", "2")
    assert code == 0 and "[worker 0] the child runs: False" in lines, lines


def test_the_command_that_goes_on_runs_in_any_shell(tmp_path):
    """Ctrl-C prints it; a shell without an environment of ours runs it."""
    write(tmp_path, "print('ready', sys.argv[1:], flush=True); time.sleep(60)")
    command = [support.ROOT / "tfrun" / "bin" / "tfrun", "train.py", "--steps", "a b"]
    env = support.environment(tmp_path / "run")
    process = subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    )
    try:
        log = tmp_path / "run" / "worker-0.log"
        support.wait_until(lambda: log.exists() and "ready" in log.read_text(), 20, "ready")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=support.patience(20))[0]
    finally:
        process.kill()
    write(tmp_path, "print('goes on', sys.argv[1:])")
    resume = output.splitlines()[-1].partition(" with: ")[2]
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = support.run_to_end("bash", "-c", resume, cwd=tmp_path, env=bare)
    assert "[worker 0] goes on ['--steps', 'a b']" in done.stdout, resume + done.stderr


def test_time_out(tmp_path):
    write(tmp_path, GRANDCHILD + "time.sleep(60)")
    code, lines = run(tmp_path, "--ps", "1", "--workers", "1", "--timeout", "2")
    assert code == 124
    assert any(
        "not done after 2 s (--timeout); still running: ps 0, worker 0" in line for line in lines
    ), lines


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_nothing(tmp_path, number, code):
    """Not even a grandchild, nor a task that ignores being asked."""
    write(tmp_path, GRANDCHILD + "import signal; signal.signal(15, signal.SIG_IGN)\ntime.sleep(60)")
    process = start(tmp_path, "--ps", "1", "--workers", "2")
    try:
        support.wait_until(lambda: len(tasks(tmp_path)) == 6, 10, "6 processes")
        began = time.monotonic()
        process.send_signal(number)
        output = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    assert time.monotonic() - began < 10
    assert process.returncode == code and f"stopped by {number.name}" in output
    assert not support.processes_of(tmp_path / "run")


def test_kill_9_of_tfrun_leaves_nothing(tmp_path):
    write(tmp_path, GRANDCHILD + "time.sleep(60)")
    process = start(tmp_path, "--ps", "1", "--workers", "2")
    support.wait_until(lambda: len(tasks(tmp_path)) == 6, 10, "6 processes")
    watchdog = [
        p for p in psutil.Process(process.pid).children() if "watchdog" in support.command_line(p)
    ]
    process.kill()
    process.communicate(timeout=10)
    support.wait_until(lambda: not support.processes_of(tmp_path / "run"), 10, "all gone")
    psutil.wait_procs(watchdog, timeout=10)
    assert len(watchdog) == 1 and not watchdog[0].is_running()


def test_a_reader_that_goes_away(tmp_path):
    """`bash run.sh | head -1` ends the run."""
    write(tmp_path, "for i in range(100000): print(i, flush=True); time.sleep(0.01)")
    process = start(tmp_path, "--workers", "1")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 141
    assert not support.processes_of(tmp_path / "run")


def test_a_ps_that_does_not_end(tmp_path):
    """It is stopped some time after the last worker; that is no failure."""
    write(tmp_path, "time.sleep(60 if job == 'ps' else 0)")
    patch = "from tfrun.launch import supervisor; supervisor.PS_GRACE = 1"
    code, lines = run(tmp_path, "--ps", "1", patch=patch)
    assert code == 0 and any("ps 0 did not end by itself: stopped" in line for line in lines), lines


def test_noise_is_in_the_log_only(tmp_path):
    write(
        tmp_path,
        """
print("I0000 00:00:1.1 1 port.cc:153] oneDNN custom operations are on. You may see")
print("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")
print("W a warning of another kind")
print("no end of line", end="")""",
    )
    code, lines = run(tmp_path, "--workers", "1")
    shown = [line for line in lines if line.startswith("[worker 0]")]
    assert shown == ["[worker 0] W a warning of another kind", "[worker 0] no end of line"]
    assert "oneDNN" in (tmp_path / "run" / "worker-0.log").read_text()


def test_a_task_that_closes_its_output(tmp_path):
    """It may run on in silence; tfrun sleeps meanwhile."""
    write(
        tmp_path,
        "print('bye', end='', flush=True); os.close(1); os.close(2); time.sleep(3); os._exit(4)",
    )
    process = start(tmp_path, "--workers", "1")
    try:
        support.wait_until(lambda: tasks(tmp_path), 10, "started")
        time.sleep(2)
        spent = sum(psutil.Process(process.pid).cpu_times()[:2])
        output = process.communicate(timeout=20)[0]
    finally:
        process.kill()
    assert process.returncode == 4 and "[worker 0] bye" in output and spent < 1


def test_a_flood_of_output(tmp_path):
    """Nothing is lost of 200,000 lines from two tasks."""
    write(tmp_path, "for i in range(100000): print(job, index, i)")
    code, lines = run(tmp_path, "--workers", "2")
    assert code == 0
    for index in (0, 1):
        expected = [f"worker {index} {i}" for i in range(100000)]
        assert (tmp_path / "run" / (f"worker-{index}.log")).read_text().splitlines() == expected
        assert [line[11:] for line in lines if line.startswith(f"[worker {index}]")] == expected


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--ps", "-1", "--", "train.py"], "must be from 0 to 99"),
        (["--ps", "x", "--", "train.py"], "invalid count value"),
        (["--workers", "0", "--", "train.py"], "needs a worker"),
        (["--timeout", "0", "--", "train.py"], "must be above 0"),
        (["--wrong", "--", "train.py"], "wrong"),
        (["--", "missing.py"], "there is no script missing.py"),
        (["--", "/nowhere/horovodrun", "-np", "2"], "there is no horovodrun"),
        (["--", "./horovodrun", "-np", "0"], "horovodrun needs -np"),
        (["--", "./horovodrun", "--gloo", "python", "a.py"], "horovodrun needs -np"),
        (["--evaluator", "--own-evaluator", "--", "train.py"], "a run has one evaluator"),
        ([], "script"),
        # Each of these would start tasks where they cannot be, or without what they were to have.
        (["--hosts", "host1:0", "--", "train.py"], "is not like host:2"),
        (["--hosts", "-oProxyCommand=true", "--", "train.py"], "expected one argument"),
        (["--hosts=-oProxyCommand=true", "--", "train.py"], "is not like host:2"),
        (["--hosts", "a;b", "--", "train.py"], "is not like host:2"),
        (["--hosts", "a:1,a:2", "--", "train.py"], "a is named twice"),
        (["--hosts", "localhost:1,a:2", "--", "train.py"], "localhost is another machine"),
        (
            ["--hosts", "a:2", "--ps", "1", "--workers", "2", "--", "train.py"],
            "2 slots for 3 tasks",
        ),
        (["--hosts", "a:2", "--isolate", "--", "train.py"], "--isolate is for the tasks of this"),
        (["--hosts", "a:2", "--cpus", "worker=1", "--", "train.py"], "--cpus is for"),
        (["--hosts", "a:2", "--memory", "worker=1G", "--", "train.py"], "--memory is for"),
        (["--hosts", "a:2", "--", "./horovodrun", "-np", "2"], "horovodrun has its own -H"),
    ],
)
def test_bad_use(tmp_path, arguments, words):
    write(tmp_path, "")
    (tmp_path / "horovodrun").touch(0o755)
    env = support.environment(tmp_path / "run", PYTHONPATH=str(support.ROOT))
    process = support.run_to_end(*TFRUN, *arguments, seconds=30, cwd=tmp_path, env=env)
    assert process.returncode == 2 and process.stdout == ""
    assert len(process.stderr.splitlines()) == 1 and words in process.stderr, process.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "blocked, words", [("run", "cannot be written"), ("run/worker-0.log", "cannot start")]
)
def test_a_run_directory_that_cannot_be_used(tmp_path, blocked, words):
    """Something of another kind has the name of the folder or of a log: one line, and no task."""
    write(tmp_path, "")
    if blocked == "run":
        (tmp_path / "run").write_text("a file is in the way")
    else:
        (tmp_path / blocked).mkdir(parents=True)
    code, lines = run(tmp_path)
    assert code == 2 and len(lines) == 1 and words in lines[0], lines


def test_run_directories(tmp_path):
    """Without OUTPUT_DIR: a new one each time, even within a second; each run is there once."""
    write(tmp_path / "My Example", "open(os.path.join(os.environ['OUTPUT_DIR'], 'made'), 'w')")
    for _ in range(2):
        assert run(tmp_path / "My Example", OUTPUT_DIR="", RUNS_DIR="")[0] == 0
    runs = tmp_path / "My Example" / "runs" / "train"
    # TensorBoard follows links: one to the newest run would be a second run there.
    assert len([*runs.glob("2*/made")]) == len([*runs.iterdir()]) == 2


def test_a_task_that_is_killed_after_it_was_done(tmp_path):
    """Its work is whole, and the others may have gone: it does not start again."""
    write(
        tmp_path,
        """
print("done, the output is in", os.environ["OUTPUT_DIR"], flush=True)
os.kill(os.getpid(), 9) if index else None
""",
    )
    code, lines = run(tmp_path, "--workers", "2", "--restarts", "2")
    assert code == 0, lines
    assert any("worker 1 was killed by SIGKILL after it was done" in line for line in lines), lines
    assert not any("starts again" in line for line in lines), lines


def test_a_task_that_fails_after_it_was_done_has_failed(tmp_path):
    """An error is none the less one for what was said before it."""
    write(tmp_path, 'print("done", flush=True)\nraise ValueError("too late")')
    code, lines = run(tmp_path, "--workers", "1")
    assert code == 1 and any("ValueError: too late" in line for line in lines), lines


def test_restart_in_place(tmp_path):
    """The task that failed starts again, with the same address; the others do not notice."""
    write(
        tmp_path,
        """
mark = os.path.join(os.environ["OUTPUT_DIR"], "%s-%d" % (job, index))
with open(mark, "a") as file:
    file.write(os.environ["TF_CONFIG"] + "\\n")
if (job, index) == ("worker", 1) and len(open(mark).readlines()) < 3:
    sys.exit(5)
time.sleep(0 if index == 1 else 5)""",
    )
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2", "--restarts", "2")
    assert code == 0, lines
    starts = (tmp_path / "run" / "worker-1").read_text().splitlines()
    assert len(starts) == 3 == 1 + len([line for line in lines if "it starts again in" in line])
    assert len(set(starts)) == 1, "another TF_CONFIG after the restart"
    assert len((tmp_path / "run" / "worker-0").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "task, goes_on",
    [(("worker", 1), True), (("worker", 0), False), (("ps", 0), False)],
    ids=["worker", "chief", "ps"],
)
def test_out_of_restarts(tmp_path, task, goes_on):
    """A worker is let go, and the others go on to the end; without chief or ps the run stops."""
    write(
        tmp_path,
        f"""
if (job, index) == {task!r}:
    sys.exit(6)
time.sleep(3 if {goes_on!r} else 60)
print("done", flush=True)""",
    )
    code, lines = run(tmp_path, "--ps", "1", "--workers", "3", "--restarts", "1")
    assert code == 6
    assert any("restart 1 of 1" in line for line in lines)
    assert any("is let go" in line for line in lines) == goes_on
    assert ("[worker 2] done" in lines) == ("[worker 0] done" in lines) == goes_on, lines


def test_two_runs_at_once(tmp_path):
    """Each with its own ports and directory; neither sees the other."""
    body = "time.sleep(2)\nprint(os.environ['TF_CONFIG'])"
    write(tmp_path / "a b", body)
    write(tmp_path / "c", body)
    processes = [start(tmp_path / name, "--ps", "1", "--workers", "1") for name in ("a b", "c")]
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    ports = []
    for output in outputs:
        config = json.loads(output.splitlines()[-1].split("] ", 1)[1])
        ports += sum(config["cluster"].values(), [])
    assert len(ports) == len(set(ports)) == 4


@pytest.mark.long
def test_overhead(tmp_path):
    """tfrun takes little longer than to start its own program and its slowest task: it neither
    waits between its tasks' starts, nor notices their ends late."""
    write(tmp_path, "time.sleep(1.5 if index else 1)")
    env = support.environment(tmp_path / "run", PYTHONPATH=str(support.ROOT))

    def seconds(command):
        began = time.monotonic()
        assert support.run_to_end(*command, seconds=30, cwd=tmp_path, env=env).returncode == 0
        return time.monotonic() - began

    alone = f"{shlex.join([*TFRUN, '--help'])} && sleep 1.5"
    tfrun = [*TFRUN, "--ps", "1", "--workers", "2", "--", "train.py"]
    spent = min(seconds(tfrun) for _ in range(3)) - min(
        seconds(["bash", "-c", alone]) for _ in range(3)
    )
    assert spent < 0.3, f"{spent:.2f} s"


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "anyone who can reach the ports of these tasks can use them; "),
        (
            "tf.distribute.experimental.rpc",
            "a port of this run can read and change the parameters; ",
        ),
    ],
)
def test_it_says_what_a_stranger_can_do(tmp_path, text, words):
    write(tmp_path, f"# {text}")
    code, lines = run(tmp_path, "--ps", "1", "--workers", "1")
    notices = [line for line in lines if "anyone who can reach" in line]
    assert code == 0 and len(notices) == 1 and words + "TFRUN_ISOLATE=1" in notices[0], lines
    assert not any("anyone" in line for line in run(tmp_path, "--workers", "1")[1])


def test_isolation(tmp_path):
    """Without it anyone on this machine reaches a task's port; with it, nobody outside the run."""
    write(
        tmp_path,
        """
import socket
config = json.loads(os.environ["TF_CONFIG"])
port = int(config["cluster"][job][index].rsplit(":", 1)[1])
server = socket.create_server(("0.0.0.0", port), reuse_port=True)
peer = int(config["cluster"]["ps"][0].rsplit(":", 1)[1])
while job == "worker":
    try:
        socket.create_connection(("127.0.0.1", peer), 5).close()
        break
    except OSError:
        time.sleep(0.05)
print("here", port, os.getuid(), flush=True)
time.sleep(30)""",
    )
    for flags, reachable in ((), True), (("--isolate",), False):
        process = start(tmp_path, "--ps", "1", "--workers", "1", *flags)
        try:
            here = []
            while len(here) < 2:  # the worker says it when it has reached its ps
                line = process.stdout.readline()
                assert line, "tfrun ended"
                if "] here " in line:
                    here.append([int(word) for word in line.split("] here ")[1].split()])
            assert {user for _, user in here} == {os.getuid()}
            assert len(support.listening_ports(port for port, _ in here)) == (2 if reachable else 0)
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.mark.nightly
@pytest.mark.needs("root")
@pytest.mark.timeout(5400)
def test_the_doctor_finds_what_limits_real_runs(tmp_path):
    """Catches a rule that misses a bottleneck in a real run, and one that blames a healthy run."""
    wrong = {}
    for number, (name, plant) in enumerate(bottlenecks.ALL.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        diagnosis = bottlenecks.diagnose(plant, folder)
        if not bottlenecks.is_right(plant, diagnosis):
            wrong[name] = [finding["limit"] for finding in diagnosis["findings"]]
    assert not wrong


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_thirty_times_somebody_joins_leaves_or_dies(tmp_path):
    """Catches rows that are lost or counted twice, a joiner that idles, and a w that got worse."""
    elastic = joins.run(0, tmp_path / "elastic")
    static = [joins.run(seed, tmp_path / f"static-{seed}", actions=0) for seed in range(3)]
    assert len(elastic["actions"]) == joins.ACTIONS and elastic["adds_up"], elastic["account"]
    losses = [result["test_loss"] for result in static]
    assert elastic["test_loss"] <= max(losses) + 2 * (max(losses) - min(losses))
    assert max(elastic["first_push_seconds"]) <= support.patience(2)
    for n, (seconds, mean) in elastic["staleness"].items():
        assert seconds < 5 or abs(mean - (n - 1)) < 0.5, elastic["staleness"]
