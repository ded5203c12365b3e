"""lab/measure/example_runs.py: a command to its end, its tasks, what it leaves and where."""

import json
import re
import sys
import types

import psutil
import pytest
from lab.measure import example_runs
from measurements import write


def test_a_command(tmp_path):
    """A run has its own folder, nothing that its run.sh refuses, and its failure ends us."""
    script = tmp_path / "run.sh"
    script.write_text(
        'echo "${WORKERS:-2} none${PS:-} $MORE $OUTPUT_DIR" > "$OUTPUT_DIR/said"; exit $CODE'
    )
    run = example_runs.run
    env = {"PATH": "/usr/bin:/bin", "WORKERS": "7", "PS": "8", "CODE": "0"}
    run(["bash", script], tmp_path, env, MORE="x")
    assert (tmp_path / "said").read_text().split() == ["7", "none", "x", str(tmp_path)]
    with pytest.raises(SystemExit, match="exit code 3"):
        run(["bash", script], tmp_path, env, CODE="3")


def test_the_last_lines_of_a_run_that_fails(tmp_path):
    """Its output is text, its input is empty, and ten lines of it are told with the exit code.

    Catches: the first lines for the last, output that is lost, and an exit code that is.
    """
    code = (
        "import os, sys; print(repr(sys.stdin.read()), os.environ['OUTPUT_DIR'], os.environ['A'])"
    )
    output = example_runs.run([sys.executable, "-c", code], tmp_path, A="b")
    assert output == f"'' {tmp_path} b\n"
    code = "import sys; [print(n) for n in range(12)]; print('e', file=sys.stderr); sys.exit(7)"
    with pytest.raises(SystemExit) as end:
        example_runs.run([sys.executable, "-u", "-c", code], tmp_path)
    *lines, last = end.value.code.split("\n")
    assert lines == [*map(str, range(3, 12)), "e"]
    assert last.startswith(f"failed with exit code 7: {sys.executable} -u -c")


def test_the_tasks_of_a_run(tmp_path, monkeypatch):
    """Processes with this OUTPUT_DIR and a task, the first of each; none that has ended.

    Catches: tasks of another run, launchers among them, a zombie that counts, and an error for a
    process that is gone or not ours.
    """
    task = {
        name: {"task": {"type": name[:-1], "index": int(name[-1])}} for name in ("ps0", "worker1")
    }

    def process(name, directory, status="running", error=None):
        def environ():
            if error:
                raise error
            env = {"OUTPUT_DIR": str(directory)}
            return env | ({"TF_CONFIG": json.dumps(task[name])} if name else {})

        return types.SimpleNamespace(environ=environ, status=lambda: status, name=name)

    there = [
        process("ps0", tmp_path, error=psutil.AccessDenied(1)),
        process("ps0", tmp_path / "other"),
        process(None, tmp_path),
        process("worker1", tmp_path, psutil.STATUS_ZOMBIE),
        process("worker1", tmp_path, "sleeping"),
        process("ps0", tmp_path),
        process("worker1", tmp_path),
    ]
    monkeypatch.setattr(example_runs.psutil, "process_iter", lambda: there)
    assert example_runs.tasks(tmp_path) == {("worker", 1): there[4], ("ps", 0): there[5]}


def test_pushes_and_tests_of_a_task(tmp_path):
    """Catches: rows of all tasks for those of one, tests among the pushes, and another order."""
    rows = {"worker-0": [(11, 2, 0), (13, 3, 0, 0.5)], "worker-1": [(10, 1, 0), (12, 3, 0)]}
    write(tmp_path, rows)
    assert [push["push_time"] for push in example_runs.pushes(tmp_path)] == [10, 11, 12]
    assert [push["push_time"] for push in example_runs.pushes(tmp_path, "worker-1")] == [10, 12]
    assert [test["test_loss"] for test in example_runs.test_rows(tmp_path)] == [0]
    assert example_runs.test_rows(tmp_path, "worker-1") == []


def test_what_a_folder_of_a_measurement_is_called(tmp_path, monkeypatch):
    """OUTPUT_DIR, or the time in RUNS_DIR, or in runs; it may be there already.

    Catches: a folder that nobody asked for, and a second one that overwrites the first.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("OUTPUT_DIR", "RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)
    first = example_runs.output_directory("A-Name")
    assert first.is_dir() and first.parent.as_posix() == "runs/A-Name"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", first.name)
    monkeypatch.setenv("RUNS_DIR", "others")
    assert example_runs.output_directory("A-Name").parent.as_posix() == "others/A-Name"
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "a" / "b"))
    assert [example_runs.output_directory("A-Name") for _ in range(2)] == [tmp_path / "a" / "b"] * 2
