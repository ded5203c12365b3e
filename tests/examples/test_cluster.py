"""The example scripts as members of a cluster: where things run, and a script all alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import interleaved
import numpy as np
import psutil
import pytest
import support
from lab import examples
from tfrun import errors
from tfrun.launch import cluster

PS_SCRIPTS = support.ps_scripts()
# The others run alone in test_equations.py, with a mistake in them; all stand in one file.
BY_HAND = ["HogWild", "Distributed-Setup", "HogWild-Sessions", "DynSGD"]


def place_of(device):
    """("ps", 1) of the name of a device."""
    match = re.match(r"/job:(\w+)(?:/replica:0)?/task:(\d+)", device)
    return match and (match[1], int(match[2]))


# Its push waits for a thread of the chief, which only its own session starts.
NEEDS_A_THREAD = examples.main_script("From-TensorFlow-1/Synchronous-SGD-Optimizer")


def messages_in_loops(trace):
    """Returns the messages that tasks have sent each other within a loop, but for its results."""
    labels = [
        node.timeline_label
        for device in trace.step_stats.dev_stats
        for node in device.node_stats
        if " from /job:" in node.timeline_label
    ]
    assert labels, "a push crosses from task to task"
    return [label for label in labels if re.search(r"while/(body|loop_body|LoopCond)", label)]


@pytest.mark.parametrize(
    "script",
    [s for s in PS_SCRIPTS if s != NEEDS_A_THREAD and examples.has_sessions(s)],
    ids=lambda path: path.name,
)
def test_where_everything_is(script):
    """Tests that w is on the ps in equal parts, and data, loss and gradients are on the worker."""
    module = examples.load(script)
    data, tf = module.load_data(module.DATASET), module.tf
    with interleaved.Workers(script, 1, {}, data, ps=2) as (worker, *_):
        ran, trace = {}, tf.RunMetadata()  # name of an op -> (task, the op)
        kinds = {}  # type of an op -> the jobs that ran one
        full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        worker.session.run([worker.update.loss, worker.pushed], None, full, trace)
        ops = {op.name: op for op in worker.session.graph.get_operations()}
        for device in trace.step_stats.dev_stats:
            for node in device.node_stats:
                op, place = ops.get(node.node_name), place_of(device.device)
                if op:
                    ran[node.node_name] = place, op
                # Within a loop there is its name only, such as while/body/_1/dense/MatMul_1.
                last = re.sub(r"_\d+$", "", node.node_name.split("/")[-1])
                if place:
                    kinds.setdefault(op.type if op else last, set()).add(place[0])

    assert not messages_in_loops(trace), "local steps wait for messages"

    # What the graph says.
    step, *parameters = sorted(worker.globals, key=lambda v: v.op.name != "global_step")
    assert place_of(step.device) == ("ps", 0)
    numbers = {("ps", 0): 0, ("ps", 1): 0}  # how many of the parameters each has
    for v in parameters:
        assert place_of(v.device) in numbers, v
        if re.fullmatch(r"w/part_\d", v.op.name):
            numbers[place_of(v.device)] += v.shape.num_elements()
    assert abs(numbers["ps", 0] - numbers["ps", 1]) <= 1, f"parameters on each ps: {numbers}"
    # The slots of gradients are where their part of w is.
    assert sum(numbers.values()) == sum(int(np.prod(shape)) for shape in worker.shapes)
    devices = {v.op.name: v.device for v in parameters}
    for v in parameters:
        assert v.device == devices[re.match(r"w/part_\d", v.op.name)[0]], v
    slots = 2 if support.synchronous(script) else 1
    slots += len(re.findall(r"= beside|, beside", script.read_text()))  # a velocity, a buffer
    assert len(parameters) == 2 * slots, parameters
    assert len(worker.locals) >= 3
    own = [v for v in worker.locals if v.op.name not in ("round_0", "pushed_0")]
    for tensor in [*own, *worker.update.pushed, worker.update.loss]:
        assert place_of(tensor.device) == ("worker", 0), tensor

    # Neither data nor first values: a graph is sent, and may have 2 GB at most.
    graph = worker.session.graph.as_graph_def()
    nodes = [*graph.node, *(node for body in graph.library.function for node in body.node_def)]
    constants = [node.attr["value"].tensor.ByteSize() for node in nodes if node.op == "Const"]
    assert constants and max(constants) < 2000, max(constants)

    # What the run itself says: the ps applies updates and hands out tickets, and computes nothing.
    is_joint = support.synchronous(script)  # then the ps takes the mean, in a function of its own
    for kind in ["MatMul", "Relu"] + ["Gather"] * (not is_joint):
        where = [jobs for name, jobs in kinds.items() if kind in name]
        assert where and set.union(*where) == {"worker"}, kind
    counted = {place[0] for place, op in ran.values() if op.type == "ResourceCountUpTo"}
    assert counted == {"worker" if is_joint else "ps"}, "its rounds, or all updates"
    for v in parameters:
        switches = [op for op in ops.values() if op.type == "Switch" and v.handle in op.inputs]
        handles = {v.handle, *(output for op in switches for output in op.outputs)}
        users = [(place, op.type) for place, op in ran.values() if handles & set(op.inputs)]
        assert {place for place, _ in users} == {place_of(v.device)}, (v, users)
        changes = [kind for _, kind in users if re.match("Assign|Resource(Apply|Scatter)", kind)]
        assert is_joint or len(changes) == 1, (v, users)


@pytest.mark.parametrize("ps", [1, 2, 3])
def test_what_distributed_setup_says_of_the_layers(ps, capsys):
    """Compares it with a list that names the layer of each single parameter."""
    module = examples.load(examples.main_script("Distributed-Setup"))
    model = module.make_model(module.load_data("digits"))
    owners = [v.path for v in model.trainable_variables for _ in range(int(np.prod(v.shape)))]
    parts = np.array_split(np.array(owners), ps)
    module.print_placement(model, ps)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == ps
    for number, (line, part) in enumerate(zip(told, parts)):
        holds = int(line.split()[3])
        assert abs(holds - len(part)) <= 1, line
        begin = sum(int(other.split()[3]) for other in told[:number])
        names = ", ".join(dict.fromkeys(owners[begin : begin + holds]))
        assert line == f"ps {number} holds {holds} parameters, of {names}"
    assert sum(int(line.split()[3]) for line in told) == len(owners)


@pytest.mark.parametrize(
    "script", support.core_first([s for s in PS_SCRIPTS if s.parent.name in BY_HAND])
)
def test_a_script_alone(script, tmp_path):
    """Copied into an empty folder and started by hand, with nothing but TF_CONFIG."""
    shutil.copy(script, tmp_path)
    workers = 2 if script.name.startswith("hogwild") else 1
    jobs = {"ps": 1, "worker": workers}
    ports, held = cluster.hold_ports(1 + workers)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OUTPUT_DIR", "PYTHONPATH")
    }
    env["TF_GRPC_REUSE_PORT"] = "1"
    processes = []
    try:
        for job, index in cluster.tasks(jobs):
            config = {
                "cluster": cluster.addresses(jobs, ports),
                "task": {"type": job, "index": index},
            }
            processes.append(
                subprocess.Popen(
                    [sys.executable, script.name, "--steps", "20"],
                    cwd=tmp_path,
                    env={**env, "TF_CONFIG": json.dumps(config)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        deadline = time.monotonic() + support.patience(60)
        for process in processes:
            output = process.communicate(timeout=deadline - time.monotonic())[0]
            assert process.returncode == 0, output
            lines = [line for line in output.splitlines() if line.startswith(("listen", "done"))]
            if process is processes[0]:
                assert lines == [f"listening at 127.0.0.1:{ports[0]}", "done"], output
            else:
                assert lines == ["done, the output is in %s" % (tmp_path / "output")], output
    finally:
        for process in processes:
            process.kill()
            process.wait()
    steps = [row["global_step"] for row in support.pushes(tmp_path / "output")]
    assert sorted(steps) == list(range(1, 21)), steps


@pytest.mark.long
def test_a_second_run_in_the_same_directory(tmp_path):
    """A finished run stays as it is; with more steps it goes on where the first one ended."""

    def train(steps):
        launcher = support.ROOT / "Distributed-Setup" / "run.sh"
        code, output, _ = support.launch(launcher, tmp_path, "--steps", steps)
        assert code == 0, output
        files = [path for path in tmp_path.iterdir() if path.suffix != ".log"]
        return output, {path.name: path.read_bytes() for path in files if path.is_file()}

    _, before = train("30")
    output, after = train("30")
    assert f"There is a finished run in {tmp_path}" in output and before == after, output
    (tmp_path / "result.json").unlink()
    train("50")
    result = support.result(tmp_path)
    assert result["steps"] == 50 and result["pushes_per_worker"] == [50]
    assert sorted(row["global_step"] for row in support.pushes(tmp_path)) == list(range(1, 51))


OTHERS = [  # a script of each form of checkpoint, and how many tasks of which type it has
    ("Collective-AllReduce", {"workers": 1}),
    ("Ring-AllReduce", {"workers": 1}),
    ("Non-Distributed-Setup", {"workers": 1}),
    ("Multiple-GPUs-Single-Machine", {"workers": 1}),
    ("Parameter-Server-Strategy", {"workers": 1, "ps": 1, "chief": 1}),
]


@pytest.mark.long
@pytest.mark.parametrize("name, tasks", OTHERS, ids=[name for name, _ in OTHERS])
def test_the_checkpoint_of_another_example_is_refused(name, tasks, quick, tmp_path, monkeypatch):
    """By hand: tfrun does not even start it. Catches a run that begins anew over another one's."""
    hogwild, script = (examples.main_script(folder) for folder in ("HogWild", name))
    module = examples.load(hogwild)
    model = module.make_model(module.load_data("digits"))
    facts = {
        "example": "HogWild",
        "variables": [[v.path, list(v.shape)] for v in model.trainable_variables],
    }
    (tmp_path / "flags.json").write_text(json.dumps(facts))
    w = module.vectors_of(model)["w"]
    saved = [("w", f"{w.size} 0,{w.size}", w), ("global_step", "", np.int64(200))]
    path = tmp_path / "model.ckpt-200_temp" / "all"
    module.write(str(path), saved)
    module.merge(str(tmp_path), 200, [str(path)])
    before = support.newest_checkpoint(tmp_path)
    for job in "ps", "chief":
        monkeypatch.setattr(quick, job, tasks.get(job, 0))
    monkeypatch.setattr(quick, "ends_together", True)  # the others would wait for the chief
    flags = ["--steps", "300", "--checkpoint-steps", "100"]
    codes, output = quick.run(script, tmp_path, *flags, workers=1)
    assert 1 in codes, output
    assert "holds the checkpoint of another model" in (errors.explain(output) or ""), output
    assert support.newest_checkpoint(tmp_path) == before and not support.pushes(tmp_path)


STRANGER = """
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    text = tf.io.read_file(sys.argv[2])
config = tf.ConfigProto(device_filters=["/job:ps"])
with tf.Session("grpc://127.0.0.1:" + sys.argv[1], config=config) as session:
    print(session.run(text).decode())
"""


def test_what_the_security_note_says(tmp_path):
    """A ps listens on every interface, and reads a file for whoever asks."""
    (tmp_path / "secret").write_text("my secret")
    launcher = support.ROOT / "From-TensorFlow-1" / "Distributed-Setup-Sessions" / "run.sh"
    directory = tmp_path / "run"
    with support.Run(launcher, directory, "--steps", "1000000") as run:
        support.wait_until(lambda: run.step() >= 1, 60, "it trains")
        config = support.tf_config(support.processes_of(directory)[-1])
        port = config["cluster"]["ps"][0].rsplit(":", 1)[1]
        listens = {
            c.laddr.ip
            for c in psutil.net_connections("tcp")
            if c.laddr and c.laddr.port == int(port) and c.status == psutil.CONN_LISTEN
        }
        assert listens and listens <= {"::", "0.0.0.0"}, listens
        (tmp_path / "stranger.py").write_text(STRANGER)
        command = [sys.executable, tmp_path / "stranger.py", port, tmp_path / "secret"]
        asked = support.run_to_end(*command, env=support.warm_environment(tmp_path))
        assert asked.stdout.strip() == "my secret", asked.stderr


def test_an_update_that_tensorflow_cancels_is_made_again(tmp_path):
    """Each worker's second call ends with CancelledError, as was seen once on a busy machine."""
    old = "            update_w = session.make_callable(written)\n"
    new = """            calls = globals().setdefault("calls", [])
            def update_w(call=session.make_callable(written)):
                calls.append(0)
                if len(calls) == 2:
                    print("cancelled", flush=True)
                    raise tf.errors.CancelledError(None, None, "RecvFromRemoteAsync")
                return call()
"""
    original = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
    script = tmp_path / original.name
    script.write_text(examples.replaced(original, [(old, new)]))
    with support.QuickCluster() as quick:
        codes, output = quick.run(script, tmp_path / "run", "--steps", "200")
    assert codes == [0, 0, 0] and output.count("cancelled") == 2, output
    steps = [row["global_step"] for row in support.pushes(tmp_path / "run")]
    assert sorted(steps) == list(range(1, 201)), steps
