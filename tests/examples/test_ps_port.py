"""The port of a ps that tf.distribute.experimental.rpc serves: what a stranger can do there."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest
import support
from lab import examples

HOGWILD = examples.main_script("HogWild")
STEPS = 2000
# Prints a line for each thing that it tries, and whether that has changed anything.
STRANGER = """
import json, sys
import numpy as np
import tensorflow as tf
client = tf.distribute.experimental.rpc.Client.create("grpc", sys.argv[1], timeout_in_ms=30000)
age, sizes = client.status().get_value()
(size,) = [size for name, _, size in json.loads(sizes.numpy()) if name == "w"]
ones = np.ones(size, "float32")
count, vector = tf.TensorSpec([], tf.int64), tf.TensorSpec([None], tf.float32)
answers = {"push_0": [count, count, vector], "begin": count, "save": count, "read_file": count}
header, later = np.array([age, 0, 0, 0]), np.array([1, 0, 0, 0])
before = [part.numpy() for part in client.pull_0(header).get_value()]
for what, name, arguments in [
    ("an unknown function", "read_file", ["/etc/passwd"]),
    ("no argument", "push_0", []),
    ("another type", "push_0", [header, ones.astype("float64")]),
    ("another shape", "push_0", [header, ones[1:]]),
    ("too many arguments", "push_0", [header, ones, ones]),
    ("8 MB", "push_0", [header, np.ones(2**21, "float32")]),
    ("another age", "push_0", [header + later, ones]),
    ("a checkpoint, at another age", "save", [header + later, np.int64(7)]),
]:
    try:
        client.call(name, list(map(tf.constant, arguments)), answers[name]).get_value()
        print(what, "is taken", flush=True)
    except Exception as error:
        print(what, "is refused:", " ".join(str(error).split())[:300], flush=True)
after = [part.numpy() for part in client.pull_0(header).get_value()]
print("unchanged" if all(map(np.array_equal, before, after)) else "changed")
"""
SESSION = """
import sys
import tensorflow as tf
with tf.Graph().as_default():
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=3000)
    with tf.compat.v1.Session("grpc://" + sys.argv[1], config=config) as session:
        print("it ran:", session.run(tf.constant(7)))
"""


def free_address():
    """Returns an address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        return "127.0.0.1:%d" % s.getsockname()[1]


def listens(process):
    """Returns the addresses, host:port, at which a process listens. Some stand in IPv6's form."""
    return {
        "%s:%d" % (c.laddr.ip.removeprefix("::ffff:"), c.laddr.port)
        for c in psutil.net_connections("tcp")
        if c.pid == process.pid and c.status == psutil.CONN_LISTEN
    }


def ask(text, folder, address):
    """Runs a script with an address; returns the finished process."""
    script = folder / "stranger.py"
    script.write_text(text)
    env = support.warm_environment(folder / "nothing")
    return support.run_to_end(sys.executable, script, address, env=env)


def config(address, job="ps", workers=1):
    """Returns the TF_CONFIG of a task, of a cluster with this ps."""
    jobs = {"ps": [address], "worker": ["127.0.0.1:9"] * workers}
    return json.dumps({"cluster": jobs, "task": {"type": job, "index": 0}})


def start(folder, **env):
    """Starts a task of HogWild in a folder; returns its process."""
    return subprocess.Popen(
        [sys.executable, HOGWILD, "--steps", "20"],
        env=support.warm_environment(folder, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def send_garbage(address):
    """Sends bytes that are no gRPC; returns when the other side has closed the connection."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=support.patience(20)) as s:
        try:
            s.sendall(os.urandom(2**16))
            while s.recv(2**16):
                pass
        except ConnectionError:
            pass


@pytest.mark.long
def test_what_a_stranger_can_do(tmp_path):
    """Nothing by mistakes: they take no number of an update, and the run ends as it should.

    The workers are paused meanwhile, so that w stands still.
    """
    directory = tmp_path / "run"
    with support.Run(HOGWILD.parent / "run.sh", directory, "--steps", str(STEPS), PS="1") as run:
        support.wait_until(lambda: run.step() >= 1, 60, "it trains")
        workers = [run.worker(0), run.worker(1)]
        for worker in workers:
            worker.suspend()
        ps = support.task(directory, "ps", 0)
        (address,) = support.tf_config(support.processes_of(directory)[-1])["cluster"]["ps"]
        assert listens(ps) == {address}, "the ps listens at its own address only"
        assert not any(map(listens, workers)), "workers listen nowhere"
        send_garbage(address)

        asked = ask(STRANGER, tmp_path, address)
        *tried, last = asked.stdout.splitlines()
        assert len(tried) == 8 and all(" is refused: " in line for line in tried), asked
        assert last == "unchanged", asked
        asked = ask(SESSION, tmp_path, address)
        assert asked.returncode and "it ran" not in asked.stdout, asked

        second = start(tmp_path / "second", TF_CONFIG=config(address))
        output = second.communicate(timeout=support.patience(60))[0]
        assert second.returncode == 1 and f"another server listens at {address}" in output, output
        assert listens(ps) == {address}

        for worker in workers:
            worker.resume()
        assert support.wait_for_exit(run.process, 90) == 0, run.process.stdout.read()
    steps = [row["global_step"] for row in support.pushes(directory)]
    assert sorted(steps) == list(range(1, STEPS + 1))
    assert support.result(directory)["test_accuracy"] > 0.9


def test_an_address_of_another_machine(tmp_path):
    """192.0.2.7 is for documentation: no machine has it."""
    ps = start(tmp_path / "run", TF_CONFIG=config("192.0.2.7:2222"))
    output = ps.communicate(timeout=support.patience(60))[0]
    assert ps.returncode == 1 and "no server can listen at 192.0.2.7:2222: " in output, output


def test_ps_address(tmp_path):
    """PS_ADDRESS says where a ps listens, and TF_CONFIG where the workers find it."""
    address, directory = free_address(), tmp_path / "run"
    port = address.rsplit(":", 1)[1]
    ps = start(directory, TF_CONFIG=config(address), PS_ADDRESS=f"0.0.0.0:{port}")
    worker = start(directory, TF_CONFIG=config(address, "worker"))
    try:
        program = psutil.Process(ps.pid)
        addresses = support.wait_until(
            lambda: listens(support.program_of(program)), 60, "listening somewhere"
        )
        assert addresses == {f":::{port}"}, "every address, of IPv6 and of IPv4"
        for process in worker, ps:
            output = process.communicate(timeout=support.patience(60))[0]
            assert process.returncode == 0, output
    finally:
        for process in worker, ps:
            process.kill()
            process.communicate()
