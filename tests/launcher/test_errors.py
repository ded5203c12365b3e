"""Known errors: the table knows its own examples, and tfrun shows an error and its meaning once."""

import ast
import os
import pathlib
import re
import sys

import pytest
import support
from lab import examples
from small_scripts import TFRUN, run, write
from tfrun import errors, known_errors
from tfrun.commands import explain

ENTRIES = [entry for group in known_errors.GROUPS.values() for entry in group]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.example[:40])
def test_each_entry_explains_its_example(entry):
    """No other entry before it takes its example; both texts are sentences."""
    assert errors.known(entry.example) is entry
    assert errors.explain("Traceback\n" + entry.example) == f"{entry.means} {entry.do}"
    for text in entry.means, entry.do:
        assert re.fullmatch(r"[A-Z`x].*[.)]", text) and "\n" not in text, text


def raised(script):
    """Returns {the name of an error and its message: a sentence with each of some words in it}.

    They are all that a script raises, or hands to who raises it.
    """
    messages = {}
    for node in ast.walk(ast.parse(script.read_text())):
        call = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Error"):
            name, message = ast.unparse(call.func), call.args[0]
            parts = getattr(message, "values", [message])
            messages[f"{name}({ast.unparse(message)})"] = [
                f"{name}: " + "".join(getattr(part, "value", word) for part in map(told, parts))
                for word in WORDS
            ]
    return messages


def told(part):
    """Returns a constant part of a message, or None for what its run puts there."""
    return part if isinstance(part, ast.Constant) else None


WORDS = ["1", "worker 1", "'boss'", "gpipe", "nan", "TF_CONFIG must list a ps"]


def test_each_error_that_a_script_raises_is_explained():
    """Catches a message, such as that of a wrong --stage, for which there is no entry."""
    messages = {}
    for script in examples.scripts():
        messages.update(raised(script))
    assert len(messages) > 35
    unknown = [
        message for message, texts in messages.items() if not any(map(errors.explain, texts))
    ]
    assert not unknown, "\n".join(unknown)
    assert not errors.explain("ValueError: something else, which has no entry")


RANK = (
    "ValueError: Argument `output` must have rank (ndim) `target.ndim - 1`. Received: "
    "target.shape=%s, output.shape=%s"
)
METRICS = 'ValueError: METRICS needs ("max" or "min", function), not %s'
# As TensorFlow 2.21, NumPy, Keras and Python print them, and what the explanation must say.
REAL = {
    """Node: 'save/RestoreV2'
not an sstable (bad magic number)

Original stack trace for 'save/RestoreV2':
  File "a.py", line 1, in <module>
    saver.restore(sess, "No space left on device")""": "damaged",
    "OutOfRangeError: Graph execution error:\n\nRead less bytes than requested": "damaged",
    "TensorBundle at model.ckpt-6 shard 0: Checksum does not match: stored 6": "damaged",
    "Unable to read file (model.ckpt-8.index): block checksum mismatch": "damaged",
    "ValueError: The passed save_path is not a valid checkpoint: model.ckpt-5": "damaged",
    """tensorflow.python.framework.errors_impl.NotFoundError: Graph execution error:
Key v not found in checkpoint""": "another model",
    "InvalidArgumentError: Shape in shape_and_slice spec [4] does not match the shape stored in "
    "checkpoint: [3]": "another model",
    "InvalidArgumentError: Matrix size-incompatible: In[0]: [32,3], In[1]: [64,128]": "another "
    "model",
    "Received a label value of -5 which is outside the valid range of [0, 3).": "is negative",
    "Received a label value of 9 which is outside the valid range of [0, 9).": "an output for each",
    "resource: Attempting to capture an EagerTensor without building a function.": "The loss",
    "my: Attempting to capture an EagerTensor without building a function.": "between the layers",
    RANK % ("(32, 10)", "(32, 10)"): "one-hot",
    RANK % ("(None, 3)", "(None, 10)"): "one-hot",
    RANK % ("(32, 10)", "(32,)"): "loss(y, outputs)",
    RANK % ("(32, 8, 10)", "(32,)"): "loss(y, outputs)",
    RANK % ("(32,)", "(32, 8, 10)"): "Flatten",
    RANK % ("(None,)", "(None, 28, 28, 10)"): "Flatten",
    # As a tf.function shows an error of the code in it.
    errors.TRACEBACK
    + """
  File "/a.py", line 9, in main
ValueError: in user code:

    File "/a.py", line 7, in loss
        return keras.losses.sparse_categorical_crossentropy(y, outputs)

    """
    + RANK % ("(32,)", "(32, 8, 10)")
    + "\n\n": "Flatten",
    "ValueError: invalid literal for int() with base 10: np.str_('cow')": "Number the classes",
    "ValueError: invalid literal for int() with base 10: b'cow'": "Number the classes",
    "ValueError: Object arrays cannot be loaded when allow_pickle=False": "Number the classes",
    """ValueError: could not convert string to float: np.str_('cow')""": "other than numbers",
    METRICS % "('maximum', <function f at 0x7f>)": "higher is better",
    METRICS % "('max', <SparseCategoricalAccuracy name=a>)": "object of Keras",
    """tfrun: the better test_mae is 'lower', neither "max" nor "min\"""": "higher is better",
    "ValueError: This file contains pickled (object) data. If you trust the file": ".npz",
    "FileNotFoundError: [Errno 2] No such file or directory: 'digitz'": "misspelt",
    "ValueError: zero-size array to reduction operation maximum which has no": "fewer rows",
    "No such file or directory: 'runs/records/records.json'": "write_records.py",
    "KeyError: 'TF_CONFIG'": "its task",
    "OSError: [Errno 99] Cannot assign requested address": "index of the task",
    "InvalidArgumentError: Mismatched allreduce tensor shapes: One rank sent [3]": "do not agree",
    "UnavailableError: Collective ops is aborted by: Connection reset by peer": "all-reduce",
    "Timeout (0:02:00)!": "all-reduce",
    # Of HogWild, whose ps serves functions.
    "OSError: another server listens at 127.0.0.1:3999": "listens at the port",
    "OSError: no server can listen at 192.0.2.7:3999: Cannot assign requested address": (
        "PS_ADDRESS=0.0.0.0:PORT"
    ),
    "OSError: no server can listen at 0.0.0.0:80: Permission denied": "may not use it",
    "ValueError: the ps have another model: [['w', 'float32', 9]], not [['w', 'float32', 8]]": (
        "another model than the chief"
    ),
    "TimeoutError: no ps answered in 120 s": "did not come back",
    "TimeoutError: no ps answered at 127.0.0.1:9 in 120 s": "its address in TF_CONFIG",
    "FileNotFoundError: [Errno 2] No such file or directory: '/run/flags.json'": "does not share",
    "ValueError: Couldn't find 'checkpoint' file or checkpoints in given directory /data/run": (
        "does not share"
    ),
    "InvalidArgumentError: assertion failed: [the ps has another age]": "again and again",
    """tensorflow.python.framework.errors_impl.DeadlineExceededError: Graph execution error:

Deadline Exceeded
Additional GRPC error information while calling /tensorflow.rpc.RpcService/Call:
:UNKNOWN:Error received from peer  {grpc_status:4, grpc_message:"Deadline Exceeded"}
\t [[{{node while/ps-0.push/RpcGetValue}}]] [Op:__inference_updates_374]""": "push on ps 0",
    """tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:

FloatingPointError: loss is nan at update 5
"""
    + errors.TRACEBACK
    + """
  File "hogwild.py", line 681, in push
    raise FloatingPointError(f"loss is {row[5]} at update {self.step}")

FloatingPointError: loss is nan at update 5
\t [[{{node while/PyFunc}}]] [Op:__inference_updates_374]""": "diverged",
    "errors_impl.OutOfRangeError: {{function_node __wrapped__RestoreV2_dtypes_2_device_/job:"
    "localhost/replica:0/task:0/device:CPU:0}} Read less bytes than requested [Op:RestoreV2]": (
        "damaged"
    ),
    # Of a ps, as the chief has it.
    """errors_impl.ResourceExhaustedError: {{function_node __inference_answer_138}} /run/\
model.ckpt-5_temp/0.data-00000-of-00001.tempstate17; No space left on device
\t [[{{node SaveV2}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_alloc
Additional GRPC error information while calling /tensorflow.rpc.RpcService/Call:""": "disk is full",
    "errors_impl.ResourceExhaustedError: {{function_node __wrapped__MergeV2Checkpoints_device_}} "
    "/run/model.ckpt-3.index; No space left on device [Op:MergeV2Checkpoints]": "disk is full",
    "TimeoutError: the chief did not answer at 127.0.0.1:9 in 120 s": "task that the line names",
    "KeyError: 'y_test is not a file in the archive'": "lacks an array",
    "errors_impl.CancelledError: Operation was cancelled": "first error",
    "OSError: [Errno 24] Too many open files": "ulimit -n",
    'InternalError: Job "boss" was not defined in cluster': "its task",
    "ValueError: TF_CONFIG names a task of type None: the types are chief": "its task",
    "ValueError: ('boss', 0) is not in list": "Rename it",
    "ValueError: ('evaluator', 0) is not in list": "tfrun evaluate DIR --follow",
    "ValueError: (None, None) is not in list": "its task",
    "ValueError: No such job in cluster: 'chief'": "its task",
    "ValueError: No such job in cluster: 'ps'": "its task",
    "ValueError: /runs/a has a checkpoint of another model": "another model",
    "tfrun: /runs/a has a checkpoint of another model than make_model() in /a.py makes": "another "
    "model",
    "tfrun: no new flags.json came in 600 s": "chief's log",
    "ValueError: --backup-workers must be below the number of workers, 2": "start more workers",
    "ValueError: No task with index 9 in job 'worker'": "its task",
    "ValueError: TF_CONFIG must list a ps and a worker, and say which task this is": "its task",
    'InvalidArgumentError: Could not interpret "grpc://127.0.0.1:9" as a host-port pair.': "scheme",
    "TimeoutError: ps 0 did not answer at grpc://127.0.0.1:9 in 120 s": "scheme",
    "TimeoutError: no ps answered at grpc://127.0.0.1:9 in 120 s": "scheme",
    "InvalidArgumentError: EagerService:CreateContext failed. Context id: <1> already exists.": (
        "one address"
    ),
    "OSError: [Errno 98] Address already in use": "listens at the port",
    "OSError: [Errno 28] No space left on device: 'output'": "disk is full",
    "ResourceExhaustedError: model.ckpt-3.data; No space left on device": "disk is full",
    "ResourceExhaustedError: OOM when allocating tensor with shape[200000,200000,10]": "memory",
    "NotADirectoryError: [Errno 20] Not a directory: 'a/output'": "A file is where",
    "InvalidArgumentError: grad : Tensor had NaN values": "diverged",
    "FloatingPointError: loss is inf at update 1": "diverged",
    "DeadlineExceededError: Graph execution error:\n\nTimed out waiting for notification": "hangs",
    "UnknownError: [/a/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv "
    "operation to complete": "Another worker",
    "RuntimeError: can't start new thread": "threads",
    "python.py: error: unrecognized arguments: --step 3": "shortened",
    "ModuleNotFoundError: No module named 'sklearn'": "activate.sh",
    "[1]<stderr>:hvd.py: error: argument --steps: invalid int value: 'x'": "value",
}


@pytest.mark.parametrize("text", REAL, ids=lambda text: text[:40])
def test_real_texts(text):
    assert REAL[text] in errors.explain(text)


def test_the_last_error_counts():
    """Not a warning before its traceback, nor code in it; but the one that it came from."""
    code = errors.TRACEBACK + '\n  File "a.py", line 3\n        raise ValueError("loss is nan")\n'
    assert errors.explain(code + "ZeroDivisionError") is None
    warning = "E0000 failed to connect to all addresses\n"
    trace = errors.TRACEBACK + '\n  File "a.py", line 3\n    raise CancelledError\n'
    assert errors.explain(warning + trace + "ZeroDivisionError: division by zero") is None
    assert "value" in errors.explain(warning + "a.py: error: argument --x: invalid")
    first = trace + "FloatingPointError: loss is nan at update 12\n"
    for between in (
        "\nDuring handling of the above exception, another exception occurred:\n\n",
        "Exception ignored in: <function Session.__del__ at 0x7f>\n",
    ):
        assert "diverged" in errors.explain(first + between + trace + "TypeError: strange\n")
    assert "diverged" in errors.explain(trace + "ValueError: no\n" + first)
    assert errors.explain("") is None


FAILS = """
if (job, index) == ("worker", 1):
    time.sleep(0.3)
    raise FloatingPointError("loss is nan at update 12")
"""


def test_an_error_and_its_meaning_once(tmp_path):
    write(tmp_path, FAILS + "time.sleep(60)")
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2")
    assert code == 1
    assert lines.count("[worker 1] FloatingPointError: loss is nan at update 12") == 1, lines
    advice = [line for line in lines if "Lower --learning-rate" in line]
    assert len(advice) == 1 and advice[0].startswith("[tfrun] Training has diverged"), lines
    failed = next(i for i, line in enumerate(lines) if "worker 1 failed with exit code 1" in line)
    assert lines.index(advice[0]) == failed + 1


def test_a_traceback_is_shown_once(tmp_path):
    """Where two tasks fail, the traceback of one, and of the other the error."""
    write(
        tmp_path,
        """
def deeper():
    raise FloatingPointError("loss is nan at update %d" % index)
deeper()
""",
    )
    code, lines = run(tmp_path, "--workers", "2")
    assert code == 1
    count = [sum(text in line for line in lines) for text in ("Traceback", "in deeper")]
    assert count == [1, 1], lines
    failures = [[line for line in lines if f"at update {i}" in line] for i in (0, 1)]
    # The other may have been stopped before it failed.
    assert max(map(len, failures)) == 1 == len([line for line in lines if "Lower" in line]), lines


def test_a_traceback_that_is_cut_off_is_no_error(tmp_path):
    """Of a task that is stopped while it prints its traceback nothing is shown."""
    write(
        tmp_path,
        """
begun = os.path.join(os.environ["OUTPUT_DIR"], "begun")
if index == 1:
    print("Traceback (most recent call last):", file=sys.stderr, flush=True)
    open(begun, "w").close()
    time.sleep(60)
while not os.path.exists(begun):
    time.sleep(0.01)
raise FloatingPointError("loss is nan at update 12")
""",
    )
    code, lines = run(tmp_path, "--workers", "2")
    assert code == 1
    assert sum("Traceback" in line for line in lines) == 1, lines


def test_an_error_is_shown_again_where_others_came_between(tmp_path):
    body = """
if job == "worker" and index == 1:
    print("FloatingPointError: loss is nan at update 12", flush=True)
    time.sleep(1)
    sys.exit(1)
time.sleep(0.5)
print("something else", flush=True)
time.sleep(60)"""
    write(tmp_path, body)
    code, lines = run(tmp_path, "--workers", "2")
    assert lines.count("[worker 1] FloatingPointError: loss is nan at update 12") == 2, lines
    assert len([line for line in lines if "diverged" in line]) == 1


def test_an_unknown_error_has_no_meaning(tmp_path):
    write(tmp_path, "raise ZeroDivisionError")
    code, lines = run(tmp_path)
    assert code == 1 and lines[-3] == "[worker 0] ZeroDivisionError", lines
    assert "failed with exit code 1" in lines[-2] and "all that it printed" in lines[-1]


NO_FOLDER = {"OUTPUT_DIR": "", "RUNS_DIR": "runs"}  # tfrun makes a folder of its own
FLAGS = """
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--some-more", nargs=2, metavar=("A" * 40, "B" * 60), help="a usage of lines")
parser.parse_args()
with open(os.path.join(os.environ["OUTPUT_DIR"], "began-%s" % index), "w"):
    time.sleep(0.2)
"""


@pytest.mark.parametrize(
    "afterwards",
    ["", "os.makedirs(directory); open(directory + '/checkpoint', 'w')", "open(directory + '/a')"],
    ids=["ends", "saves a checkpoint", "fails"],
)
def test_a_run_directory_that_vanishes_is_no_success(afterwards, tmp_path):
    """Catches exit code 0, the advice on a data file, and the name of a log that is gone."""
    body = "import shutil\ndirectory = os.environ['OUTPUT_DIR']\nshutil.rmtree(directory)\n"
    write(tmp_path, body + afterwards)
    code, lines = run(tmp_path)
    end = " was removed while the run went on: what it had is lost"
    assert code == 1 and lines[-1].startswith("[tfrun] ") and lines[-1].endswith(end), lines
    assert not any("--dataset" in line for line in lines)


def test_logs_that_are_removed_while_a_run_goes_on(tmp_path):
    """Catches a sentence that calls a run lost, although what its script has recorded is there."""
    body = "directory = pathlib.Path(os.environ['OUTPUT_DIR'])\n"
    body += "(directory / 'flags.json').touch()\n"
    body += "for path in directory.glob('*.log'):\n    path.unlink()\n"
    write(tmp_path, "import pathlib\n" + body)
    _, lines = run(tmp_path)
    assert not any("was removed" in line for line in lines), lines


def test_a_wrong_flag(tmp_path):
    """The error once, without the usage; no folder is left that tfrun has made."""
    example, wrong = tmp_path / "Example", {"arguments": ["--steps", "x"], **NO_FOLDER}
    write(example, FLAGS)
    assert run(example, **wrong)[0] == 2 and not (example / "runs").exists()
    assert run(example, **NO_FOLDER)[0] == 0
    before = os.listdir(example / "runs" / "train")
    assert len(before) == 1
    for restarts in "0", "3":
        flags = ["--ps", "1", "--workers", "2", "--restarts", restarts]
        code, lines = run(example, *flags, **wrong)
        assert code == 2
        messages = [line for line in lines if "argument --steps: invalid int value: 'x'" in line]
        assert len(messages) == 1 and "train.py: error: " in messages[0], lines
        assert not any("usage" in line or "AAA" in line for line in lines), lines
        assert len([line for line in lines if "--help` lists the flags" in line]) == 1, lines
        assert os.listdir(example / "runs" / "train") == before
    # A folder that was given stays.
    assert run(example, arguments=["--steps", "x"])[0] == 2
    assert (example / "run" / "worker-0.log").read_text().startswith("usage: ")


def test_exit_code_2_after_the_first_row_is_a_failure(tmp_path):
    """The folder stays, and restarts count."""
    write(
        tmp_path,
        """
with open(os.path.join(os.environ["OUTPUT_DIR"], "metrics-worker-0.csv"), "a") as file:
    file.write("push_time,global_step\\n1,1\\n")
sys.exit(2)""",
    )
    code, lines = run(tmp_path, "--restarts", "1", **NO_FOLDER)
    assert code == 2 and any("restart 1 of 1" in line for line in lines), lines
    assert len(list((tmp_path / "runs").glob("*/2*"))) == 1


def test_a_usage_that_is_no_error_is_shown(tmp_path):
    write(tmp_path, "print('usage: mine\\n  more\\nx.py: error: none')")
    code, lines = run(tmp_path)
    shown = [line for line in lines if line.startswith("[worker 0]")]
    assert shown == ["[worker 0] usage: mine", "[worker 0]   more", "[worker 0] x.py: error: none"]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_the_script(tmp_path, flag):
    """Once, without a prefix, a cluster or a folder; with the exit code of the script."""
    write(tmp_path, FLAGS)
    arguments = ["--steps", "3", flag]
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2", arguments=arguments, **NO_FOLDER)
    assert code == 0 and lines[0].startswith("usage: train.py") and "options:" in lines, lines
    assert sorted(os.listdir(tmp_path)) == ["train.py"]
    write(tmp_path, "sys.exit(7)")
    assert run(tmp_path, arguments=[flag]) == (7, [])


def test_a_finished_run_is_not_touched(tmp_path):
    write(tmp_path, "print('trained again')")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text("{}")
    code, lines = run(tmp_path)
    assert code == 0 and len(lines) == 1, lines
    assert lines[0].startswith(f"[tfrun] There is a finished run in {tmp_path / 'run'}")
    assert os.listdir(tmp_path / "run") == ["result.json"]


FACTS = """
if job == "worker":
    import run_files
    out, rows = os.environ["OUTPUT_DIR"], [run_files.push(step, step) for step in (1, 2, 3)]
    if index == 0:
        rows.append(run_files.test(4, REACHED, 0.975, 0.25))
        run_files.flags(out, steps=3)
    run_files.metrics(out, "worker-%d" % index, *rows)
"""


def test_tfrun_draws_the_conclusions(tmp_path):
    write(tmp_path, FACTS.replace("REACHED", "3"))
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2")
    assert code == 0 and lines[-1].startswith("[tfrun] test accuracy 97.5%; everything"), lines
    assert "curves.png" in lines[-1] and str(tmp_path / "run") in lines[-1]
    result = support.result(tmp_path / "run")
    assert result["pushes_per_worker"] == [3, 3] and (tmp_path / "run" / "curves.png").exists()


def test_a_run_that_did_not_reach_its_end(tmp_path):
    """All tasks ended well, but the facts say that the run did not."""
    write(tmp_path, FACTS.replace("REACHED", "2"))
    code, lines = run(tmp_path, "--ps", "1", "--workers", "2")
    assert code == 1 and "not finished: the last evaluation is after 2 of 3" in lines[-1], lines
    assert not (tmp_path / "run" / "result.json").exists()


def test_the_dry_run_ends_with_the_summary(tmp_path):
    """It runs where tfrun is not on the PATH, too; a finished run is left alone."""
    write(tmp_path, FACTS.replace("REACHED", "3"))
    env = support.environment(tmp_path / "out put", PYTHONPATH=support.PYTHONPATH)
    dry = [*TFRUN, "--ps", "1", "--workers", "2", "--dry-run", "--", "train.py"]
    script = support.run_to_end(*dry, cwd=tmp_path, env=env)
    assert 'tfrun summary "$OUTPUT_DIR"' in script.stdout.splitlines()[-1]
    path = "/usr/bin:/bin"
    for tools in "", str(support.ROOT / "tfrun" / "bin") + ":" + os.path.dirname(sys.executable):
        on_path = {**env, "PATH": tools + ":" + path}
        process = support.run_to_end("bash", "-c", script.stdout, env=on_path)
        assert process.returncode == 0, process.stderr
        assert (tmp_path / "out put" / "result.json").exists() == bool(tools)
    again = support.run_to_end("bash", "-c", script.stdout, env=env)
    assert again.returncode == 0 and again.stdout.startswith("There is a finished run in")


def test_explain_command(tmp_path):
    known, unknown = tmp_path / "a.log", tmp_path / "b.log"
    known.write_text("x\nFloatingPointError: loss is nan at update 12\n")
    unknown.write_text("ZeroDivisionError\n")
    process = support.tfrun("explain", known, unknown)
    first, second = process.stdout.splitlines()
    assert process.returncode == 1 and "diverged" in first and "no known error" in second


@pytest.mark.usefixtures("own_records")
def test_what_explain_prints(capsys):
    """Catches the code of the last log alone, and logs that are passed over after a missing one."""
    pathlib.Path("known").write_text("MemoryError")
    pathlib.Path("unknown").write_text("TypeError: strange")
    for names, code in {
        ("known",): 0,
        ("unknown", "known"): 1,
        ("none", "unknown", "known"): 2,
        ("unknown", "none"): 2,
    }.items():
        assert explain.command([*names]) == code
        output = capsys.readouterr()
        lines = [line.split(": ", 1) for line in output.out.splitlines()]
        assert [name for name, _ in lines] == [name for name in names if name != "none"]
        for name, meaning in lines:
            assert (meaning == "no known error") == (name == "unknown")
        assert ("none" in output.err) == ("none" in names)
