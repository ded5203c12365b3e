"""Resources per role, and runs and grids from a file; small scripts as tasks."""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess

import pytest
import support
from small_scripts import TASK, TFRUN, fake_nvidia_smi, run, write
from tfrun.cli import main

SHOW = """
import psutil
print(json.dumps([job, index, sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS"),
                  os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("COLOUR")]))
"""
CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.needs("two cores")


def seen(lines):
    """{task: [cores, threads, GPUs, COLOUR]} from the lines of SHOW."""
    shown = [json.loads(line.split("] ", 1)[1]) for line in lines if '["' in line]
    return {f"{job} {index}": rest for job, index, *rest in shown}


@two_cores
def test_cores_of_its_own(tmp_path):
    """No core is two tasks'; a role that is not named has all; threads follow."""
    write(tmp_path, SHOW)
    code, lines = run(tmp_path, "--ps", "1", "--workers", "1", "--cpus", "ps=1,worker=1")
    assert code == 0, lines
    settings = seen(lines)
    assert settings["ps 0"][0] == CORES[:1] and settings["worker 0"][0] == CORES[1:2]
    assert settings["worker 0"][1] == "1"
    code, lines = run(tmp_path, "--ps", "1", "--workers", "1", "--cpus", "ps=1")
    assert seen(lines)["worker 0"][0] == CORES


def test_gpus_and_variables_of_a_role(tmp_path):
    """Each worker has two GPUs, the chief none; variables for one role and for all."""
    write(tmp_path, SHOW)
    path = fake_nvidia_smi(tmp_path, 4)
    code, lines = run(
        tmp_path,
        *("--ps", "1", "--workers", "2", "--chief", "--gpus", "worker=2"),
        *("--env", "COLOUR=red", "--env", "worker:COLOUR=blue=x"),
        PATH=path,
    )
    assert code == 0, lines
    settings = {task: rest[2:] for task, rest in seen(lines).items()}
    assert settings == {
        "ps 0": ["-1", "red"],
        "chief 0": ["-1", "red"],
        "worker 0": ["0,1", "blue=x"],
        "worker 1": ["2,3", "blue=x"],
    }


def test_a_task_that_uses_too_much_memory(tmp_path):
    """It is killed, with its child; a task within its limit is not; restarts count."""
    body = """
import subprocess
if index:
    hold = "import time; b = bytearray(300 << 20); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", hold])
time.sleep(60 if index else 4)
"""
    write(tmp_path, body)
    flags = ["--workers", "2", "--memory", "worker=200M"]
    code, lines = run(tmp_path, *flags)
    assert code == 128 + signal.SIGKILL, lines
    output = "\n".join(lines)
    assert re.search(r"\[tfrun\] worker 1 used .* more than its limit of 200 MiB", output), output
    assert "needs more than you allowed" in output
    code, lines = run(tmp_path, *flags, "--restarts", "1")
    output = "\n".join(lines)
    assert code == 128 + signal.SIGKILL and "restart 1 of 1" in output
    assert "[tfrun] worker 0" not in output


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--cpus", f"worker={len(CORES) + 1}"], f"this machine has {len(CORES)}"),
        (["--gpus", "worker=1"], "asks for 1 GPU (1 worker x 1), and this machine has 0"),
        (["--memory", "worker=1000T"], "asks for 1000 TiB of memory"),
        (["--cpus", "ps=1"], "--cpus names ps, and this run has none"),
        (["--cpus", "boss=1"], "the roles are ps, chief, worker, evaluator"),
        (["--cpus", "worker=0.5"], "must be a whole number above 0, is '0.5'"),
        (["--cpus", "worker=1,worker=1"], "worker is named twice"),
        (["--memory", "worker=2"], "must be 1M or more, is '2'"),
        (["--memory", "worker=much"], "must be a size such as 512M or 2G, is 'much'"),
        (["--env", "worker"], "is not like NAME=VALUE or worker:NAME=VALUE"),
        (["--env", "TF_CONFIG=1"], "TF_CONFIG is set by tfrun"),
        (["--env", "PROBLEM=my.py"], "use --problem FILE"),  # else the script trains the digits
    ],
)
def test_what_is_refused(tmp_path, monkeypatch, capsys, flags, words):
    write(tmp_path, "")
    check_refusal(tmp_path, monkeypatch, capsys, [*flags, "--", "train.py"], words)


def check_refusal(folder, monkeypatch, capsys, arguments, words):
    """tfrun exits with 2 and one line before it makes anything."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OUTPUT_DIR", str(folder / "run"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    lines = capsys.readouterr().err.splitlines()
    assert code == 2 and len(lines) == 1 and words in lines[0], lines
    assert not (folder / "run").exists()


def test_the_dry_run_has_the_resources(tmp_path):
    """The plain commands, run by bash, have the same cores and variables. A ps sees no GPU."""
    write(tmp_path, SHOW)
    flags = ["--ps", "0", "--workers", "1", "--cpus", "worker=1", "--env", "COLOUR=a b"]
    code, lines = run(tmp_path, *flags, "--dry-run")
    assert code == 0
    (tmp_path / "run.sh").write_text("\n".join(lines))
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, capture_output=True, timeout=60)
    shown = json.loads((tmp_path / "run" / "worker-0.log").read_text())
    assert shown[2] == CORES[:1] and shown[5] == "a b"
    code, lines = run(tmp_path, "--ps", "1", "--workers", "1", "--dry-run")
    (ps,) = [line for line in lines if '"type": "ps"' in line]
    (worker,) = [line for line in lines if '"type": "worker"' in line]
    assert "CUDA_VISIBLE_DEVICES=-1" in ps and "CUDA_VISIBLE_DEVICES" not in worker


def start_job(folder, text, script=SHOW, **env):
    """Starts `tfrun run job.yaml` with that text."""
    (folder / "train.py").write_text(TASK + script)
    (folder / "job.yaml").write_text(text)
    return subprocess.Popen(
        [*TFRUN, "run", "job.yaml"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=support.environment(folder / "run", PYTHONPATH=support.PYTHONPATH, **env),
    )


def job(folder, *text_and_script):
    """Runs it to the end; returns (exit code, lines)."""
    process = start_job(folder, *text_and_script)
    output = process.communicate(timeout=support.patience(60))[0]
    return process.returncode, output.splitlines()


def test_a_run_from_a_file(tmp_path):
    """Roles, resources, environment and arguments reach the tasks."""
    text = """
script: train.py
arguments: {steps: 5, fast: true, slow: false, name: a b}
environment: {COLOUR: red}
roles:
  ps: {replicas: 2}
  worker: {replicas: 1, cpus: 1, environment: {COLOUR: blue}}
"""
    code, lines = job(tmp_path, text, SHOW + "print(sys.argv[1:])")
    assert code == 0, lines
    settings = seen(lines)
    assert sorted(settings) == ["ps 0", "ps 1", "worker 0"]
    assert settings["worker 0"] == [CORES[:1], "1", os.environ.get("CUDA_VISIBLE_DEVICES"), "blue"]
    assert settings["ps 1"][3] == "red"
    assert "[worker 0] ['--steps', '5', '--fast', '--name', 'a b']" in lines


def test_values_arrive_as_they_are_written(tmp_path, monkeypatch, capsys):
    """Catches what YAML makes of NO, 007, 12:30:00, 1.10 or a date."""
    write(tmp_path, "")
    text = """
script: train.py
arguments: {seed: 010, rate: 1e-2, at: 12:30, name: no, size: 1_000, fast: True, slow: false}
environment: {COUNTRY: NO, ONEDNN: off, START: 12:30:00, BUILD: 007, VERSION: 1.10, EMPTY: "",
              NOTHING: , DAY: 2026-11-28, HEX: 0x1F, FLAG: TRUE, QUOTED: "007"}
roles: {worker: {replicas: 2, environment: {DAY: 2026-11-29, ON: on}}}
timeout: 1_0.50
"""
    (tmp_path / "job.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "job.yaml", "--dry-run"]) == 0
    words = shlex.split(capsys.readouterr().out)
    variables = [word for before, word in itertools.pairwise(words) if before == "--env"]
    assert variables == [
        *("COUNTRY=NO", "ONEDNN=off", "START=12:30:00", "BUILD=007", "VERSION=1.10", "EMPTY="),
        *("NOTHING=", "DAY=2026-11-28", "HEX=0x1F", "FLAG=TRUE", "QUOTED=007"),
        *("worker:DAY=2026-11-29", "worker:ON=on"),
    ]
    arguments = ["--seed", "010", "--rate", "1e-2", "--at", "12:30", "--name", "no"]
    assert words[words.index("--") + 2 :] == [*arguments, "--size", "1_000", "--fast"]
    assert words[words.index("--timeout") + 1] == "1_0.50"


LEARN = """
rate = float(sys.argv[sys.argv.index("--rate") + 1])
if rate > 1:
    sys.exit("diverged")
out = os.environ["OUTPUT_DIR"]
print("cores", len(os.sched_getaffinity(0)))
import run_files
run_files.flags(out, ["worker-0"], steps=1)
run_files.metrics(out, "worker-0", run_files.push(1, 1), run_files.test(2, 1, rate, 0.5))
"""


@pytest.mark.long
@pytest.mark.parametrize("parallel", [1, 2])
def test_a_grid(tmp_path, parallel):
    """A run for each combination; one that fails does not stop the others; a table at the end."""
    text = """
script: train.py
parallel: %d
grid: {rate: [0.5, 0.75, 2], seed: [0, 1]}
"""
    code, lines = job(tmp_path, text % parallel, LEARN)
    assert code == 1, lines
    rows = {row["run"]: row for row in json.loads((tmp_path / "run/grid.json").read_text())}
    assert len(rows) == 6 and rows["rate=0.75,seed=1"]["arguments"] == {"rate": 0.75, "seed": 1}
    for rate, seed in itertools.product((0.5, 0.75), (0, 1)):
        row = rows[f"rate={rate},seed={seed}"]
        assert (row["test_accuracy"], row["exit_code"], row["steps"]) == (rate, 0, 1)
    assert rows["rate=2,seed=0"]["exit_code"] == 1 and "test_accuracy" not in rows["rate=2,seed=0"]
    table = lines[-8:-1]
    assert table[0].split() == ["rate", "seed", "result", "updates", "seconds", "end"]
    assert table[1].split()[:5] == ["0.5", "0", "test", "accuracy", "50.0%"]
    assert table[6].split() == ["2", "1", "exit", "code", "1"]
    cores = {line.split()[-1] for line in lines if "cores" in line}
    assert cores == {str(len(CORES) // parallel if parallel <= len(CORES) else len(CORES))}
    code, lines = job(tmp_path, text % parallel, LEARN)  # again: what is finished stays
    assert sum("There is a finished run" in line for line in lines) == 4


def test_a_grid_stops_at_a_wrong_flag(tmp_path):
    """Its exit code is 2, and no other run begins."""
    text = "script: train.py\ngrid: {seed: [0, 1, 2]}\n"
    code, lines = job(tmp_path, text, "argparse.ArgumentParser().parse_args()")
    assert code == 2, lines
    ends = [" ".join(line.split()[-2:]) for line in lines[-4:-1]]
    assert ends == ["code 2", "not begun", "not begun"], lines


def test_a_grid_that_is_stopped(tmp_path):
    """Ctrl-C ends the runs that go on and begins no other; the table says so."""
    text = "script: train.py\ngrid: {seed: [a/b, a_b, 2]}\nparallel: 2\n"
    process = start_job(tmp_path, text, "print('ready', flush=True); time.sleep(60)")
    ready = 0
    while ready < 2:
        line = process.stdout.readline()
        assert line, process.wait()
        ready += "ready" in line
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=support.patience(20))[0].splitlines()
    assert process.returncode == 130
    ends = [" ".join(line.split()[-2:]) for line in rest[-4:-1]]
    assert ends == ["code 143", "code 143", "not begun"]
    folders = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"seed=a_b", "seed=a_b+"} <= folders, "two runs in one folder"


WRONG_FILES = [
    ("", "the file: 'script' is a required property"),
    ("- a", "the file: ['a'] is not of type 'object'"),
    ("script: [", "it is no YAML"),
    ("scripts: a", "('scripts' was unexpected); it may have script, problem, arguments"),
    ("script: none.py", "there is no script"),
]
WRONG_FIELDS = [
    ("roles: {boss: {}}", "('boss' was unexpected); it may have ps, worker"),
    ("roles: {ps: {cores: 1}}", "roles: ps: Additional properties are not allowed ('cores'"),
    ("roles: {ps: {replicas: -1}}", "roles: ps: replicas: -1 is less than the minimum of 0"),
    ("roles: {chief: {replicas: 2}}", "roles: chief: replicas: 2 is not one of [0, 1]"),
    ("roles: {worker: {cpus: 999}}", "asks for 999 cores"),
    ("grid: {seed: 1}", "grid: seed: 1 is not of type 'array'"),
    ("grid: {seed: []}", "grid: seed: [] should be non-empty"),
    ("arguments: {a: [1]}", "arguments: a: [1] is not of type 'number'"),
    ("isolate: yes please", "isolate: 'yes please' is not of type 'boolean'"),
    ("parallel: 0", "parallel: 0 is less than the minimum of 1"),
    ("arguments:\n  seed: 1\n  seed: 2", "line 4: seed stands twice, first in line 3"),
    ("script: train.py", "line 2: script stands twice, first in line 1"),
    ("grid: {rate: [0.1, 1, 1e-1]}", "grid: rate: 0.1 and 1e-1 are one run: remove one"),
    ("grid: {seed: [10, 010]}", "grid: seed: 10 and 010 are one run"),
    ("grid: {mode: [a, b, a]}", "grid: mode: a and a are one run"),
    ("isolate: yes", "isolate: 'yes' is not of type 'boolean'"),
    ("timeout: soon", "argument --timeout"),
    (
        f"parallel: 2\ngrid: {{s: [1, 2]}}\nroles: {{worker: {{cpus: {len(CORES)}}}}}",
        f"asks for {len(CORES)} cores (1 worker x {len(CORES)}), and this machine has "
        f"{len(CORES) // 2} for each of 2 runs at once: lower parallel",
    ),
]


@pytest.mark.parametrize(
    "text, words",
    [*WRONG_FILES, *((f"script: train.py\n{field}", words) for field, words in WRONG_FIELDS)],
)
def test_a_file_that_is_wrong(tmp_path, monkeypatch, capsys, text, words):
    write(tmp_path, "")
    (tmp_path / "job.yaml").write_text(text)
    check_refusal(tmp_path, monkeypatch, capsys, ["run", "job.yaml"], words)
