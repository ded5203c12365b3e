"""What tfrun makes of its flags: what it launches, what it refuses, and what it says at the end.

A stand-in takes the place of the Run, so that no task starts.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import types

import pytest
import run_files
from tfrun import cli
from tfrun.commands import evaluate, export, start
from tfrun.launch import cluster, isolate, resources, without_notices
from tfrun.ssh import hosts


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with train.py, and an environment without anything of tfrun's."""
    monkeypatch.chdir(tmp_path)
    for name in ("OUTPUT_DIR", "RUNS_DIR", "PROBLEM", "DRY_RUN", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TIMEOUT", "RESTARTS", "ISOLATE"):
        monkeypatch.delenv(f"TFRUN_{name}", raising=False)
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(4)])
    monkeypatch.setattr(cluster, "gpus", lambda: ["g", "h"])
    pathlib.Path("train.py").touch()
    return tmp_path


class Run:
    """What becomes of a run, as its class says; `spec` is what was to run."""

    done, interrupted, wrong_flag, code, record = False, False, False, 0, None
    spec: types.SimpleNamespace | None = None

    def __init__(self, spec):
        Run.spec, Run.said, Run.closed = spec, [], []
        self.say, self.close_record = Run.said.append, Run.closed.append

    def supervise(self):
        return self.code

    def lost_directory(self):
        return None


@pytest.fixture
def launched(monkeypatch):
    """Returns a function of tfrun's arguments and how the run ends: (exit code, Run)."""
    monkeypatch.setattr(start, "Run", Run)

    def launch(*arguments, **ends):
        for name, value in {"done": False, "code": 0, **ends}.items():
            monkeypatch.setattr(Run, name, value)
        try:
            return cli.main([*arguments]), Run
        except SystemExit as end:
            return end.code, Run

    yield launch
    Run.spec = None


def test_what_flags_launch(launched, folder):
    """Catches: a flag that is read as another, that counts for nothing, or that is the script's."""
    flags = ["--ps", "2", "--workers", "3", "--chief", "--own-evaluator", "--timeout", "2.5"]
    flags += ["--restarts", "4", "--env", "ps:A=b", "--env", "C=d", "--cpus", "ps=1"]
    flags += ["--gpus", "chief=2", "--memory", "worker=1M", "--", "train.py", "--ps", "7"]
    code, run = launched(*flags)
    spec = run.spec
    assert code == 0 and run.closed == [0]
    assert spec.jobs == {"chief": 1, "ps": 2, "worker": 3, "evaluator": 1}
    program = [sys.executable, "train.py", "--ps", "7"]
    assert spec.commands == dict.fromkeys(spec.jobs, program)
    assert (spec.example, spec.timeout, spec.restarts, spec.isolated) == ("train", 2.5, 4, False)
    assert spec.variables == [("ps", "A", "b"), (None, "C", "d")] and spec.tasks is None
    assert spec.shares["ps", 1] == resources.Share([1], [], None)
    assert spec.shares["chief", 0] == resources.Share(None, ["g", "h"], None)
    assert spec.shares["worker", 2] == resources.Share(None, [], 2**20)
    assert spec.directory.parent == folder / "runs/train" and spec.directory.is_dir()


def test_what_is_launched_without_flags(launched, monkeypatch, folder):
    """Catches another number of workers, and a variable of the environment that is not read."""
    spec = launched("train.py")[1].spec
    assert spec.jobs == {"worker": 1} and spec.timeout is None
    assert (spec.restarts, spec.isolated, spec.variables) == (0, False, [])
    assert spec.shares == {("worker", 0): resources.NO_LIMIT}
    entered = []
    monkeypatch.setattr(isolate, "enter", lambda: entered.append(True))
    variables = {"TFRUN_TIMEOUT": "9", "TFRUN_RESTARTS": "3", "TFRUN_ISOLATE": "1"}
    for name, value in {**variables, "OUTPUT_DIR": "there"}.items():
        monkeypatch.setenv(name, value)
    spec = launched("train.py")[1].spec
    assert (spec.timeout, spec.restarts, spec.isolated, entered) == (9, 3, True, [True])
    assert spec.directory == folder / "there"


@pytest.mark.parametrize("value", ["", "0"])
def test_a_variable_that_switches_nothing_on(value, launched, monkeypatch):
    """Catches a 0 that isolates, or that prints in place of training, and an empty number."""
    for name in ("TFRUN_ISOLATE", "DRY_RUN"):
        monkeypatch.setenv(name, value)
    for name in ("TFRUN_TIMEOUT", "TFRUN_RESTARTS", "TFRUN_PATIENCE"):
        monkeypatch.setenv(name, "")
    spec = launched("train.py")[1].spec
    assert (spec.isolated, spec.timeout, spec.restarts, spec.patience) == (False, None, 0, None)


def test_an_evaluator_follows_the_run(launched):
    """Catches the script in its place, another task that gets its variable, and no last update."""
    spec = launched("--evaluator", "--env", "A=b", "train.py", "--steps", "70")[1].spec
    command = spec.commands["evaluator"]
    assert command[1:] == [
        *("-m", "tfrun.commands.evaluate", str(spec.directory), "--follow", "--steps", "70")
    ]
    assert spec.commands["worker"] == [sys.executable, "train.py", "--steps", "70"]
    role, name, value = spec.variables[0]
    assert (role, name, value) == ("evaluator", "PYTHONPATH", without_notices.python_path())
    assert spec.variables[1:] == [(None, "A", "b")]
    command = launched("--evaluator", "train.py")[1].spec.commands["evaluator"]
    assert command[-1] == "--follow"


def test_horovodrun_is_the_one_task(launched, folder, monkeypatch):
    """Catches tasks of tfrun's own beside it, and the name of horovodrun for the example's."""
    (folder / "horovodrun").touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    command = ["horovodrun", "-np", "3", "python", "train.py"]
    spec = launched(*command)[1].spec
    (task,) = spec.tasks
    assert (task.command, task.job, task.name) == (command, "chief", "horovodrun")
    assert spec.jobs == {"worker": 3} and spec.example == "train"
    task.log.close()


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--work", "2", "train.py"], "unrecognized arguments: --work"),
        (["--ps", "100", "train.py"], "argument --ps: must be from 0 to 99, is 100"),
        (
            ["--timeout", "inf", "train.py"],
            "argument --timeout: must be above 0 and finite, is inf",
        ),
        (["none.py"], "there is no script none.py here ({folder})"),
        (["--workers", "0", "train.py"], "a run needs a worker or a chief"),
        (
            ["--evaluator", "--own-evaluator", "train.py"],
            "a run has one evaluator: --evaluator or --own-evaluator",
        ),
        (
            ["--hosts", "a", "--gpus", "worker=1", "--memory", "worker=1M", "train.py"],
            "--gpus is for the tasks of this machine: not with --hosts",
        ),
        (["none/horovodrun", "-np", "2"], "there is no horovodrun on the PATH"),
        (["horovodrun", "-np", "0"], "horovodrun needs -np and the number of ranks, from 1 to 99"),
        (
            ["horovodrun", "-np", "100"],
            "horovodrun needs -np and the number of ranks, from 1 to 99",
        ),
        (["--evaluator", "horovodrun", "-np", "1"], "horovodrun starts no evaluator"),
        (["--own-evaluator", "horovodrun", "-np", "1"], "horovodrun starts no evaluator"),
        (["--hosts", "a", "horovodrun", "-np", "1"], "horovodrun has its own -H: not --hosts"),
        *(
            (
                [flag, value, "horovodrun", "-np", "99"],
                "horovodrun starts its ranks itself: no --cpus, --gpus, --memory, --env",
            )
            for flag, value in {
                "--cpus": "ps=1",
                "--gpus": "ps=1",
                "--memory": "ps=1M",
                "--env": "A=b",
            }.items()
        ),
    ],
)
def test_flags_that_do_not_go_together(flags, words, launched, folder, monkeypatch, capsys):
    """Catches a run of other tasks than were asked for: each is refused by one line."""
    (folder / "horovodrun").touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert launched(*flags)[0] == 2 and Run.spec is None
    due = words.format(folder=folder)
    assert capsys.readouterr().err == f"tfrun: {due} (tfrun --help lists the flags)\n"
    assert not (folder / "runs").exists()


def test_a_chief_is_enough(launched):
    """Catches a worker that is asked for beside it."""
    assert launched("--workers", "0", "--chief", "train.py")[1].spec.jobs == {"chief": 1}


def test_a_machine_that_has_not_so_much(launched, capsys):
    """Catches a refusal that names no reason, and shares of another kind."""
    assert launched("--cpus", "worker=5", "train.py")[0] == 2
    line = "the run asks for 5 cores (1 worker x 5), and this machine has 4"
    assert capsys.readouterr().err == f"tfrun: {line}\n"
    assert launched("--hosts", "a,b", "--workers", "3", "train.py")[0] == 2
    assert "--hosts has 2 slots for 3 tasks" in capsys.readouterr().err


def test_the_help(launched, capsys):
    """Catches a flag without a line, and a command that is not listed."""
    assert launched("--help")[0] == 0
    text = " ".join(capsys.readouterr().out.split())
    for flag in re.findall(r'add\(\s*"(--[\w-]+)"', pathlib.Path(start.__file__).read_text()):
        assert f"{flag} " in text, flag
    for name in cli.COMMANDS:
        assert f"tfrun {name}" in text, name
    assert "OUTPUT_DIR names the run directory" in text and "RUNS_DIR: ./runs" in text
    assert launched("--version") == (0, Run) and "tfrun" in capsys.readouterr().out


def test_the_help_of_a_script(launched, monkeypatch):
    """Catches a run that is launched for it, and arguments that stand beside it."""
    seen = []
    monkeypatch.setattr(without_notices, "run", lambda command: seen.append(command) or 5)
    for flag in "-h", "--help":
        assert launched("train.py", "--steps", "2", flag)[0] == 5
    assert seen == 2 * [[sys.executable, "train.py", "--help"]] and Run.spec is None


@pytest.mark.parametrize(
    "result, arguments, message",
    [
        ({"steps": 70}, [], "There is a finished run in"),
        ({"steps": 70}, ["--steps", "70"], "There is a finished run in"),
        ({"steps": 70}, ["--steps", "71"], None),
        ({"of": "an older tfrun"}, ["--steps", "71"], "There is a finished run in"),
        ({"steps": 5, "stop": 5}, ["--steps", "70"], "was ended early: remove"),
        (None, ["--steps", "70"], None),
    ],
)
def test_a_run_that_is_finished(result, arguments, message, launched, folder, monkeypatch, capsys):
    """Catches a run that trains on what is finished, or that does not go on to more updates."""
    monkeypatch.setenv("OUTPUT_DIR", str(folder / "there"))
    (folder / "there").mkdir()
    if result:
        (folder / "there/result.json").write_text(json.dumps(result))
        if "stop" in result:
            (folder / "there/stop").write_text("5")
    assert launched("train.py", *arguments)[0] == 0
    line = capsys.readouterr().out
    assert (Run.spec is None) == bool(message)
    assert line.startswith("[tfrun] ") and message in line if message else not line


def test_the_run_of_another_example(launched, folder, monkeypatch, capsys):
    """Catches a run directory in which two examples mix."""
    monkeypatch.setenv("OUTPUT_DIR", str(folder / "there"))
    run_files.flags(folder / "there")
    (folder / "train.py").write_text('"""AdaG: an example."""')
    assert launched("train.py")[0] == 2 and Run.spec is None
    assert "there has a run of HogWild, not of AdaG: set OUTPUT_DIR" in capsys.readouterr().err


def test_a_run_directory_that_is_in_the_way(launched, folder, monkeypatch, capsys):
    """Catches a traceback, and another exit code."""
    monkeypatch.setenv("OUTPUT_DIR", str(folder / "train.py"))
    assert launched("train.py")[0] == 2
    assert "the run directory cannot be written: " in capsys.readouterr().err


# How it ends -------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_wrong_flag(launched, folder):
    """Catches an empty folder for each wrong flag; but one that was given stays."""
    code, run = launched("train.py", wrong_flag=True, code=2)
    assert code == 2 and run.said == ["nothing is left of this run: it had not begun"]
    assert not (folder / "runs").exists() and run.closed == [2]


@pytest.mark.parametrize("saved", [None, 70])
def test_the_command_that_goes_on(saved, launched, folder, monkeypatch):
    """Catches: another folder or other flags in it, and a run that is said to begin again."""
    monkeypatch.setenv("OUTPUT_DIR", "a folder")
    monkeypatch.setenv("PROBLEM", "")
    monkeypatch.setattr(sys, "argv", ["/bin/tfrun"])
    (folder / "a folder").mkdir()
    if saved:
        (folder / "a folder/checkpoint").write_text('model_checkpoint_path: "model-70"\n')
    code, run = launched("--ps", "1", "train.py", "--x", "a b", interrupted=True, code=130)
    (line,) = run.said
    directory = folder / "a folder"
    begin, _, command = line.partition(" with: ")
    how = "goes on from update 70" if saved else "begins again"
    assert begin == f"this run is in {directory}; it {how}"
    words = shlex.split(command)
    assert words == [
        *(f"OUTPUT_DIR={directory}", sys.executable, "/bin/tfrun"),
        *("--ps", "1", "train.py", "--x", "a b"),
    ]
    assert code == 130 and run.closed == [130]


@pytest.mark.parametrize("code, due", [(0, 1), (3, 3)])
def test_a_run_directory_that_was_removed(code, due, launched, folder, monkeypatch):
    """Catches a success of which nothing is left."""
    monkeypatch.setenv("OUTPUT_DIR", "gone")
    line = f"{folder}/gone was removed"
    monkeypatch.setattr(Run, "lost_directory", lambda _: line)
    exit_code, run = launched("train.py", done=True, code=code)
    assert (exit_code, run.said, run.closed) == (due, [line], [due])


def test_what_a_run_comes_to(launched, folder, monkeypatch):
    """Catches an exit code that is not the conclusion's, and a conclusion without any flags."""
    from tfrun.commands import summary

    monkeypatch.setattr(summary, "conclude", lambda where, code, say: say(f"{where}") or code + 4)
    monkeypatch.setenv("OUTPUT_DIR", "there")
    assert launched("train.py", done=True, code=3) == (3, Run) and Run.said == []
    run_files.flags(folder / "there")
    assert launched("train.py", done=True, code=3) == (7, Run) and Run.closed == [7]
    assert Run.said == [f"{folder}/there"]
    assert launched("train.py", done=False, code=3) == (3, Run) and Run.said == []


def test_a_run_that_cannot_start(launched, folder, monkeypatch, capsys):
    """Catches a folder that is left, and a traceback."""

    def refuse(_):
        raise OSError("no loopback")

    monkeypatch.setattr(start, "Run", refuse)
    assert launched("train.py")[0] == 2 and not (folder / "runs").exists()
    assert capsys.readouterr().err == "tfrun: the run cannot start: no loopback\n"


@pytest.mark.parametrize("flags", [["--isolate"], ["--hosts", "a:2"]])
def test_a_network_that_cannot_be_had(flags, launched, folder, monkeypatch, capsys):
    """Catches a run without it, one line for two hosts, and a folder that is left."""

    def refuse(*_):
        raise ValueError("first\nsecond")

    monkeypatch.setattr(isolate, "enter", refuse)
    monkeypatch.setattr(hosts, "prepare", refuse)
    assert launched(*flags, "train.py")[0] == 2
    about = "--isolate does not work on this machine: " if "--isolate" in flags else ""
    assert capsys.readouterr().err == f"tfrun: {about}first\ntfrun: second\n"
    assert Run.spec is None and not (folder / "runs").exists()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(isolate, "enter", interrupted)
    monkeypatch.setattr(hosts, "prepare", interrupted)
    assert launched(*flags, "train.py")[0] == 130 and not (folder / "runs").exists()


def test_tasks_on_hosts_are_prepared(launched, monkeypatch):
    """Catches tasks of this machine in their place, and another task on a host."""
    seen = []

    def prepare(spec, host_of_task):
        seen.append({task: host.name for task, host in host_of_task.items()})
        return argparse.Namespace(**vars(spec), prepared=True)

    monkeypatch.setattr(hosts, "prepare", prepare)
    code, run = launched("--hosts", "a:1,me@b:2", "--ps", "1", "train.py")
    assert code == 0 and run.spec.prepared
    assert seen == [{("ps", 0): "a", ("worker", 0): "b"}]


# The plain commands ------------------------------------------------------------------------------


def test_the_hosts_of_a_dry_run(launched, capsys):
    """Catches a run that begins."""
    flags = ["--hosts", "a:1,me@b:2", "--ps", "1", "--workers", "2", "--dry-run", "train.py"]
    assert launched(*flags)[0] == 0 and Run.spec is None
    assert capsys.readouterr().out == "a: ps 0\nb: worker 0, worker 1\n"


def tasks_of(script):
    """Returns {log: (its variables, its words)} of the tasks that a script starts."""
    tasks = {}
    for text in re.findall(r"(?ms)^(\S[^\n]*TF_CONFIG=.*?) 2>&1 &$", script):
        *words, _, log = shlex.split(text.replace("\\\n", " "))
        variables = [word for word in words if re.match(r"[A-Za-z_]\w*=", word)]
        pairs = dict(word.split("=", 1) for word in variables)
        tasks[log.rpartition("/")[2]] = pairs, words[len(variables) :]
    return tasks


def test_the_plain_commands(launched, folder, monkeypatch, capsys):
    """Catches: a task that is missing, the resources, variables or place of another, and a GPU of a
    ps; the evaluator as a task of the script; a log or a list of processes of another kind."""
    monkeypatch.setenv("DRY_RUN", "1")
    flags = ["--ps", "1", "--workers", "2", "--chief", "--evaluator", "--cpus", "worker=2"]
    flags += ["--gpus", "chief=2", "--env", "worker:A=b c", "--env", "D=e"]
    assert launched(*flags, "train.py", "--steps", "70", "x y")[0] == 0 and Run.spec is None
    script = capsys.readouterr().out
    tasks = tasks_of(script)
    assert [*tasks] == [
        *("ps-0.log", "chief-0.log", "worker-0.log", "worker-1.log", "evaluator-0.log")
    ]
    config = json.loads(tasks["worker-1.log"][0]["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    sizes = {job: len(addresses) for job, addresses in config["cluster"].items()}
    assert sizes == {"ps": 1, "chief": 1, "worker": 2}
    program = [sys.executable, "train.py", "--steps", "70", "x y"]
    assert [words for _, words in tasks.values()] == [
        *(program, program, ["taskset", "-c", "0,1", *program]),
        *(["taskset", "-c", "2,3", *program], ["tfrun", "evaluate", "$OUTPUT_DIR", "--follow"]),
    ]
    variables = [
        [env.get(n) for n in ("CUDA_VISIBLE_DEVICES", "A", "D")] for env, _ in tasks.values()
    ]
    assert variables == [
        *(["-1", None, "e"], ["g,h", None, "e"], ["-1", "b c", "e"], ["-1", "b c", "e"]),
        ["-1", None, "e"],
    ]
    assert re.findall(r"^(servers|workers)\+=", script, re.M) == ["servers", *4 * ["workers"]]
    assert 'tail -n 1 "$OUTPUT_DIR/chief-0.log"' in script
    assert f"cd {folder}\n" in script and "-ge 70 ]" in script
    assert f":-{folder}/runs/train/$(date" in script


def test_the_plain_commands_without_a_cluster(launched, folder, monkeypatch, capsys):
    """Catches a worker's log that nobody writes, and horovodrun as a task of a cluster."""
    monkeypatch.setenv("OUTPUT_DIR", "there")
    assert launched("--dry-run", "train.py")[0] == 0
    script = capsys.readouterr().out
    assert 'tail -n 1 "$OUTPUT_DIR/worker-0.log"' in script and "-ge" not in script
    assert "CUDA_VISIBLE_DEVICES" not in script and 'OUTPUT_DIR="${OUTPUT_DIR:-there}"' in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    (folder / "horovodrun").touch(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    assert launched("--dry-run", "horovodrun", "-np", "2", "python", "train.py")[0] == 0
    script = capsys.readouterr().out
    assert "\nhorovodrun -np 2 python train.py\n" in script and "TF_CONFIG" not in script


# The command line --------------------------------------------------------------------------------


def test_each_command_has_its_module(monkeypatch):
    """Catches a command that launches a script of its name, or that gets its own name."""
    seen = []

    def module(name):
        return types.SimpleNamespace(command=lambda arguments: seen.append((name, arguments)) or 3)

    monkeypatch.setattr(
        cli, "importlib", types.SimpleNamespace(import_module=module, util=cli.importlib.util)
    )
    for name in [name for name in cli.COMMANDS if not cli.COMMANDS[name].needs_tensorflow]:
        assert cli.main([name, "x"]) == 3
        assert seen.pop() == (f"tfrun.commands.{'job' if name == 'run' else name}", ["x"])
    assert cli.main(["train.py", "x"]) == 3 and cli.main([]) == 3
    assert seen == [("tfrun.commands.start", ["train.py", "x"]), ("tfrun.commands.start", [])]
    monkeypatch.setattr(sys, "argv", ["tfrun", "status", "y"])
    assert cli.main() == 3 and seen[-1] == ("tfrun.commands.status", ["y"])


def test_each_command_says_its_own_name(capsys):
    """Catches a --help, or a line about a wrong flag, that names another command."""
    mains = {
        name: functools.partial(cli.main, [name])
        for name in cli.COMMANDS
        if not cli.COMMANDS[name].needs_tensorflow
    }
    mains |= {"evaluate": evaluate.command, "export": export.command}
    for name, main in mains.items():
        for flag in "--help", "--wrong":
            arguments = [*(main.args[0] if isinstance(main, functools.partial) else ()), flag]
            with pytest.raises(SystemExit) as ended:
                getattr(main, "func", main)(arguments)
            output = capsys.readouterr()
            if flag == "--help":
                words = f"tfrun {'run' if name == 'run' else name}"
                assert output.out.startswith(f"usage: {words} ") and ended.value.code == 0
                assert f"`{words} " in output.out or f"`{words}`" in output.out, name
            else:
                assert output.err.endswith(f"(tfrun {name} --help lists the flags)\n")
                assert ended.value.code == 2 and len(output.err.splitlines()) == 1


def test_what_needs_tensorflow(monkeypatch, capsys):
    """Catches a traceback where there is none, and arguments that are lost."""
    seen, find = [], {"tensorflow": True}.get
    util = types.SimpleNamespace(find_spec=lambda name: find(name))
    monkeypatch.setattr(cli, "importlib", types.SimpleNamespace(util=util))
    monkeypatch.setattr(
        without_notices, "run_module", lambda *arguments: seen.append(arguments) or 4
    )
    for name in [name for name in cli.COMMANDS if cli.COMMANDS[name].needs_tensorflow]:
        assert cli.main([name, "x", "y"]) == 4
        assert seen.pop() == (f"tfrun.commands.{name}", "x", "y")
        find = {}.get
        assert cli.main([name]) == 1 and not seen
        line = f"tfrun: tfrun {name} needs TensorFlow 2.21: pip install 'tensorflow==2.21.*'\n"
        assert capsys.readouterr().err == line
        find = {"tensorflow": True}.get


@pytest.mark.parametrize("name, ends", [("status", True), ("summary", False)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_what_ends_a_command(name, ends, error, monkeypatch):
    """Catches Ctrl-C on what is watched as a failure, and a run that it ends in silence."""
    dups = []

    def command(_):
        raise error

    module = types.SimpleNamespace(command=command)
    monkeypatch.setattr(cli.importlib, "import_module", lambda _: module)
    monkeypatch.setattr(sys, "stdout", types.SimpleNamespace(fileno=lambda: 99, flush=int))
    monkeypatch.setattr(
        os, "dup2", lambda old, new: dups.append((os.readlink(f"/proc/self/fd/{old}"), new))
    )
    if ends:
        assert cli.main([name]) == 0
        assert dups == ([("/dev/null", 99)] if error is BrokenPipeError else [])
    else:
        with pytest.raises(error):
            cli.main([name])
