"""The example scripts as members of a cluster: where things run, and a script all alone."""

import json
import os
import shutil
import subprocess
import sys
import time

import psutil
import pytest
import support
from tfrun import cluster

PS_SCRIPTS = sorted(
    {
        support.script_of(path)
        for path in support.launchers()
        if support.kind_of(support.script_of(path)) == "parameter server"
    }
)

# In a process of its own, because TensorFlow's servers cannot be stopped: builds the script's graph
# in a cluster of 2 ps and 1 worker, runs one update, and prints where each op was and where it ran.
PLACEMENT = """
import json, os, sys
sys.path[:0] = sys.argv[3:]
import pathlib, support
config = json.loads(sys.argv[2])
os.environ["TF_CONFIG"] = sys.argv[2]
script = support.load(pathlib.Path(sys.argv[1]))
tf, sys.argv = script.tf, sys.argv[:1]
spec = tf.train.ClusterSpec(config["cluster"])
servers = [tf.train.Server(spec, job, i) for job, n in (("ps", 2), ("worker", 1)) for i in range(n)]
here, flags = script.Cluster(), script.parse_flags()
step, update, test = script.build(here, script.load_data("digits"), flags)
row, ran = script.push_row(update, flags), {}
with tf.Session(servers[2].target) as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    trace = tf.RunMetadata()
    full = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    session.run(row, options=full, run_metadata=trace)
types = {op.name: op.type for op in tf.get_default_graph().get_operations()}
for device in trace.step_stats.dev_stats:
    for node in device.node_stats:
        if node.node_name in types:
            ran.setdefault(types[node.node_name], []).append(device.device)
print(json.dumps({
    "global": {v.op.name: v.device for v in tf.global_variables()},
    "bytes": {v.op.name: v.shape.num_elements() * v.dtype.size for v in tf.global_variables()},
    "local": [v.device for v in tf.local_variables()],
    "loss": update.loss.device, "gradients": [g.device for g in update.pushed], "ran": ran}))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("script", PS_SCRIPTS, ids=lambda path: path.name)
def test_where_everything_is(script):
    """Parameters on the ps, spread by size; data, loss and gradients on the worker."""
    ports, held = cluster.hold_ports(3)
    config = {
        "cluster": cluster.addresses({"ps": 2, "worker": 1}, ports),
        "task": {"type": "worker", "index": 0},
    }
    process = support.python(
        PLACEMENT,
        str(script),
        json.dumps(config),
        str(support.ROOT / "tests"),
        TF_GRPC_REUSE_PORT="1",
    )
    assert process.returncode == 0, process.stderr
    placed = json.loads(process.stdout.splitlines()[-1])

    assert placed["global"].pop("global_step").startswith("/job:ps/task:0")
    load = {0: placed["bytes"].pop("global_step"), 1: 0}
    for name, device in placed["global"].items():
        assert device.startswith("/job:ps/task:"), "%s is on %s" % (name, device)
        load[int(device.split("/task:")[1][0])] += placed["bytes"][name]
    assert len(placed["global"]) == 6
    assert abs(load[0] - load[1]) <= max(placed["bytes"].values()), "bytes on each ps: %s" % load
    assert len(placed["local"]) == 4
    for device in placed["local"] + placed["gradients"] + [placed["loss"]]:
        assert device.startswith("/job:worker/task:0"), device

    # What the run itself says: the ps applies updates and hands out tickets, and computes nothing.
    ran = placed["ran"]
    for op in ("MatMul", "SparseSoftmaxCrossEntropyWithLogits", "ResourceGather"):
        assert {device[:11] for device in ran[op]} == {"/job:worker"}, (op, ran[op])
    for op in ("AssignSubVariableOp", "ResourceCountUpTo"):
        assert {device[:7] for device in ran[op]} == {"/job:ps"}, (op, ran[op])
    assert len(ran["AssignSubVariableOp"]) == 6


@pytest.mark.parametrize("script", support.core_first(PS_SCRIPTS))
def test_a_script_alone(script, tmp_path):
    """Copied into an empty folder and started by hand, with nothing but TF_CONFIG."""
    shutil.copy(script, tmp_path)
    workers = 2 if script.name == "hogwild.py" else 1
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
        deadline = time.monotonic() + 60
        for process in processes:
            output = process.communicate(timeout=deadline - time.monotonic())[0]
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert support.result(tmp_path / "output")["steps"] == 20


def test_the_dry_run_is_a_script(tmp_path):
    """What DRY_RUN=1 prints runs as it is, and leaves no process behind."""
    env = support.environment(tmp_path / "out put", DRY_RUN="1", PS="2")
    printed = subprocess.run(
        ["bash", support.ROOT / "HogWild" / "run.sh", "--steps", "20"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert printed.returncode == 0, printed.stderr
    assert "tfrun " not in printed.stdout.replace("as tfrun would", "")
    (tmp_path / "script.sh").write_text(printed.stdout)
    env = {
        name: value for name, value in os.environ.items() if name not in ("OUTPUT_DIR", "TF_CONFIG")
    }
    ran = subprocess.run(
        ["bash", "script.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert support.result(tmp_path / "out put")["steps"] == 20
    assert not support.processes_of(tmp_path / "out put")


@pytest.mark.long
def test_a_finished_run_stays_as_it_is(tmp_path):
    launcher = support.ROOT / "HogWild" / "run.sh"
    code, output, _ = support.launch(launcher, tmp_path, "--steps", "20")
    assert code == 0, output
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".log"}
    code, output, _ = support.launch(launcher, tmp_path, "--steps", "20")
    assert code == 0 and "There is a finished run in %s" % tmp_path in output, output
    assert before == {
        path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".log"
    }


@pytest.mark.long
def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    """A second run with more steps in the same directory begins where the first one ended."""
    launcher = support.ROOT / "Distributed-Setup" / "run.sh"
    for steps in ("30", "50"):
        code, output, _ = support.launch(launcher, tmp_path, "--steps", steps)
        assert code == 0, output
        result = support.result(tmp_path)
        (tmp_path / "result.json").unlink()
    assert result["steps"] == 50 and result["pushes_per_worker"] == [20]
    assert sorted(row["global_step"] for row in support.pushes(tmp_path)) == list(range(1, 51))


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
    launcher = support.ROOT / "Distributed-Setup" / "run.sh"
    process = subprocess.Popen(
        ["bash", launcher, "--steps", "1000000"],
        env=support.environment(tmp_path / "run", TFRUN_TIMEOUT="60"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("updates/s" in line for line in process.stdout), "it did not begin to train"
        config = [
            json.loads(p.environ()["TF_CONFIG"])
            for p in support.processes_of(tmp_path / "run")
            if "TF_CONFIG" in p.environ()
        ]
        port = config[0]["cluster"]["ps"][0].rsplit(":", 1)[1]
        listens = {
            c.laddr.ip
            for c in psutil.net_connections("tcp")
            if c.laddr and c.laddr.port == int(port) and c.status == psutil.CONN_LISTEN
        }
        assert listens and listens <= {"::", "0.0.0.0"}, listens
        asked = support.python(STRANGER, port, str(tmp_path / "secret"))
        assert asked.stdout.strip() == "my secret", asked.stderr
    finally:
        process.terminate()
        process.communicate(timeout=20)
