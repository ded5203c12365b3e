"""What tfrun gives to each task: cores, GPUs, memory, ports and variables."""

import json
import os
import socket
import types

import psutil
import pytest
from tfrun.launch import cluster, resources, supervisor
from tfrun.ssh import hosts

pytestmark = pytest.mark.usefixtures("own_records")


def test_shares_of_a_machine(monkeypatch):
    """Catches: a core that two tasks have, cores of the first role for all, GPUs for the others."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [0, 2, 3, 5, 7, 8])
    monkeypatch.setattr(cluster, "gpus", lambda: ["a", "b", "c", "d"])
    jobs = {"worker": 2, "chief": 1, "ps": 1}
    shares = resources.shares(jobs, {"worker": 2, "ps": 1}, {"worker": 1}, {"ps": 5, "chief": 7})
    assert {task: tuple(share) for task, share in shares.items()} == {
        ("ps", 0): ([0], [], 5),
        ("chief", 0): (None, [], 7),
        ("worker", 0): ([2, 3], ["a"], None),
        ("worker", 1): ([5, 7], ["b"], None),
    }
    with pytest.raises(ValueError, match=r"asks for 8 cores \(2 worker x 4\), and .* has 6"):
        resources.shares(jobs, {"worker": 4}, {}, {})
    env = cluster.task_environments([*shares], {}, "d", 6, ["a", "b", "c", "d"], shares, (), ())
    seen = [(e["CUDA_VISIBLE_DEVICES"], e["TF_NUM_INTRAOP_THREADS"]) for e in env.values()]
    assert seen == [("-1", "1"), ("-1", "2"), ("a", "2"), ("b", "2")]
    assert [resources.size(text) for text in ("512M", "1.5G", "2GiB")] == [2**29, 3 * 2**29, 2**31]


@pytest.mark.parametrize(
    ("cores", "gpus", "due"),
    [
        (8, "ab", {"chief 0": ("a", "2"), "worker 0": ("b", "2"), "worker 1": ("a", "2")}),
        (2, "", {"chief 0": (None, "1"), "worker 0": (None, "1"), "worker 1": (None, "1")}),
    ],
)
def test_what_tasks_share(cores, gpus, due):
    """Catches: the ps counted among those that compute, GPUs from the second on, 0 threads."""
    tasks = cluster.tasks({"worker": 2, "ps": 2, "chief": 1})
    assert tasks[:3] == [("ps", 0), ("ps", 1), ("chief", 0)]
    env = cluster.task_environments(tasks, {"worker": ["x"]}, "d", cores, [*gpus], already_set=())
    seen = {
        f"{job} {index}": (variables.get("CUDA_VISIBLE_DEVICES"), variables["OMP_NUM_THREADS"])
        for (job, index), variables in env.items()
        if job != "ps"
    }
    threads = str(max(1, cores // 3))
    assert seen == due and env["ps", 1]["OMP_NUM_THREADS"] == threads
    assert env["ps", 0]["CUDA_VISIBLE_DEVICES"] == "-1"
    assert json.loads(env["worker", 1]["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}


def test_the_variables_of_tasks_on_this_machine(tmp_path):
    """Catches variables of a job that no task gets, and a port without a task."""
    variables = [("ps", "A", "1"), (None, "B", "2")]
    env = cluster.environments({"ps": 1, "worker": 1}, [1, 2], tmp_path, variables=variables)
    seen = {job: (own.get("A"), own["B"]) for (job, _), own in env.items()}
    assert seen == {"ps": ("1", "2"), "worker": (None, "2")}
    with pytest.raises(ValueError, match="longer"):
        cluster.environments({"worker": 1}, [1, 2], tmp_path)


def test_one_task_alone_has_all_gpus():
    """Catches one GPU for a worker that is alone."""
    env = cluster.task_environments(
        [("ps", 0), ("worker", 0)], {}, "d", 4, ["0", "1"], already_set=()
    )
    assert "CUDA_VISIBLE_DEVICES" not in env["worker", 0]
    assert env["worker", 0]["TF_NUM_INTRAOP_THREADS"] == "4"


def test_tasks_on_hosts(monkeypatch, tmp_path):
    """Two GPUs here, one there. Catches: GPUs, cores or ports of another host, or of all hosts.

    And a user in an address, a variable for another role, the environment of this machine.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    listed = hosts.parse("me@one:2, two:3")
    jobs = {"worker": 3, "ps": 1, "evaluator": 1}
    with pytest.raises(hosts.argparse.ArgumentTypeError, match="one is named twice"):
        hosts.parse("me@one:1,you@one:2")
    dealt = hosts.deal(jobs, listed)
    answers = {
        listed[1]: {"ports": [21, 22, 23], "machine": {"cores": 9, "gpus": ["0"]}},
        listed[0]: {"ports": [11, 12], "machine": {"cores": 4, "gpus": ["0", "1"]}},
    }
    spec = supervisor.LaunchSpec(
        "E",
        jobs,
        {job: ["py", f"{job}.py"] for job in jobs},
        tmp_path,
        variables=[("ps", "C", "1")],
    )
    tasks = hosts.Placement(spec, dealt, answers).make_tasks()
    assert [task.name for task in tasks] == [
        "ps 0",
        "worker 0",
        "worker 1",
        "worker 2",
        "evaluator 0",
    ]
    assert [task.host.target for task in tasks] == ["me@one"] * 2 + ["two"] * 3
    assert all("me@one" in task.command for task in tasks[:2])
    requests = [json.loads(task.env["TFRUN_REQUEST"]) for task in tasks]
    env = [request["env"] for request in requests]
    assert json.loads(env[3]["TF_CONFIG"]) == {
        "cluster": {"ps": ["one:11"], "worker": ["one:12", "two:21", "two:22"]},
        "task": {"type": "worker", "index": 2},
    }
    assert [task_env.get("CUDA_VISIBLE_DEVICES") for task_env in env] == ["-1", None, "0", "0", "0"]
    assert [task_env["OMP_NUM_THREADS"] for task_env in env] == ["4", "4", "3", "3", "3"]
    assert [task_env.get("C") for task_env in env] == ["1", None, None, None, None]
    assert [request["command"][1] for request in requests][3:] == ["worker.py", "evaluator.py"]
    assert [request["name"] for request in requests][2:4] == ["worker-1", "worker-2"]
    for task in tasks:
        task.log.close()


def test_ports_that_nobody_else_gets():
    """Catches a port of one kind of address alone, two tasks with one port, and a port let go."""
    ports, held = cluster.hold_ports(2)
    try:
        assert len({*ports}) == len(held) == 2 and all(port > 1023 for port in ports)
        families = {socket.AF_INET: "127.0.0.1"}
        if socket.has_dualstack_ipv6():
            families[socket.AF_INET6] = "::1"
        for family, address in families.items():
            with socket.socket(family) as thief, pytest.raises(OSError, match="in use"):
                thief.bind((address, ports[0]))
            with socket.socket(family) as server:  # as TensorFlow does it
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                server.bind((address, ports[0]))
    finally:
        for holder in held:
            holder.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[1]))
        free = cluster.free_ports(50)
        assert len({*free}) == 50 and ports[1] not in free
    assert all(20000 <= port < 30000 for port in free), "Linux takes others for connections"


def test_a_loopback_that_is_up_or_down(monkeypatch):
    """Catches a check that always fails, and one that cannot."""
    cluster.check_loopback()
    monkeypatch.setattr(socket.socket, "connect", lambda *_: open("/none"))
    with pytest.raises(OSError, match="the loopback of this machine is down, .*No such file"):
        cluster.check_loopback()


@pytest.mark.parametrize(
    "visible, listed, due",
    [
        ("2,GPU-7", 4, ["2", "GPU-7"]),
        ("-1", 4, []),
        ("", 4, []),
        (None, 2, ["0", "1"]),
        (None, 0, []),
    ],
)
def test_the_gpus_of_a_machine(visible, listed, due, monkeypatch, tmp_path):
    """Catches: GPUs that another has, a line that is no GPU, and a machine without nvidia-smi."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    lines = [f"GPU {i}: A (UUID: {i})\n  MIG 1g.5gb Device 0:" for i in range(listed)]
    program = tmp_path / "nvidia-smi"
    if listed:
        program.write_text("#!/bin/sh\n[ $1 = -L ] && cat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert cluster.gpus() == due


def test_a_program_that_does_not_answer(monkeypatch):
    """Catches a monitor that waits for nvidia-smi for ever."""
    seen = []

    def run(*_, timeout, **__):
        seen.append(timeout)
        raise cluster.subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(cluster.subprocess, "run", run)
    assert cluster.nvidia_smi("-L", seconds=5) == cluster.nvidia_smi("-L") == []
    assert seen[0] == 5 < seen[1] <= 60


def test_the_cores_of_a_machine(monkeypatch):
    """Catches one core where the system does not tell which this process may use, as on macOS."""
    monkeypatch.setattr(cluster, "cpu_quota", lambda: 99.0)
    monkeypatch.delattr(os, "sched_getaffinity")
    for known, due in (6, 6), (None, 1):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert cluster.core_numbers() is None and cluster.cores() == due
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 2, 3}, raising=False)
    assert cluster.core_numbers() == [2, 3, 5] and cluster.cores() == 3


def test_what_a_role_gets_from_a_flag():
    """Catches: another role's amount, a unit of 1,000, an environment of all for that of one."""
    memory = resources.per_role(resources.size)
    assert memory("ps=1M,worker=1.5G") == {"ps": 2**20, "worker": 3 * 2**29}
    assert [resources.size(f"2{unit}") for unit in ("M", "G", "T", "GB", "GiB")] == [
        2**21,
        2**31,
        2**41,
        2**31,
        2**31,
    ]
    assert resources.size("4096K") == 2**22 and resources.size("1048576") == 2**20
    assert resources.per_role(resources.whole)("chief=9999") == {"chief": 9999}
    variable = resources.environment_variable
    assert variable("A=b=c") == (None, "A", "b=c")
    assert variable("ps:_1=a\nb") == ("ps", "_1", "a\nb")
    for wrong in "TF_CONFIG", "OUTPUT_DIR":
        with pytest.raises(resources.argparse.ArgumentTypeError, match=f"^{wrong} is set by tfrun"):
            variable(f"ps:{wrong}=1")
    for wrong in "A", "boss:A=b", "1=b", "=b":
        with pytest.raises(resources.argparse.ArgumentTypeError, match="is not like NAME=VALUE"):
            variable(wrong)
    for wrong, words in {
        "ps": "'ps' is not like worker=2G; the roles are ps, chief, worker, evaluator",
        "boss=1G": "'boss=1G' is not like worker=2G; the roles are ps, chief, worker, evaluator",
        "ps=1G,ps=2G": "ps is named twice",
        "ps=0G": "must be a size such as 512M or 2G, is '0G'",
        "ps=1023K": "must be 1M or more, is '1023K'",
    }.items():
        with pytest.raises(resources.argparse.ArgumentTypeError) as raised:
            memory(wrong)
        assert str(raised.value) == words
    for wrong in "worker=0", "worker=10000", "worker=1.5":
        with pytest.raises(resources.argparse.ArgumentTypeError, match="a whole number above 0"):
            resources.per_role(resources.whole)(wrong)
    with pytest.raises(resources.argparse.ArgumentTypeError, match="'ps' is not like worker=1;"):
        resources.per_role(resources.whole)("ps")


def test_a_machine_that_has_too_little(monkeypatch):
    """Catches a run that has as much as there is and is refused, and one that has one more."""
    monkeypatch.setattr(cluster, "core_numbers", lambda: [*range(6)])
    monkeypatch.setattr(cluster, "gpus", lambda: ["a"])
    memory = types.SimpleNamespace(total=8 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    jobs = {"ps": 1, "worker": 2}
    assert resources.shares(jobs, {"worker": 3}, {"ps": 1}, {"worker": 4 << 30})
    for wanted, words in {
        "cores": ({"worker": 3, "ps": 1}, {}, {}),
        "GPUs": ({}, {"worker": 1}, {}),
        "memory": ({}, {}, {"worker": 5 << 30}),
    }.items():
        due = {
            "cores": "7 cores (2 worker x 3, 1 ps x 1), and this machine has 6",
            "GPUs": "2 GPUs (2 worker x 1), and this machine has 1",
            "memory": "10 GiB of memory (2 worker x 5 GiB), and this machine has 8 GiB",
        }[wanted]
        with pytest.raises(ValueError) as raised:
            resources.shares(jobs, *words)
        assert str(raised.value) == f"the run asks for {due}"
    with pytest.raises(ValueError) as raised:
        resources.shares({"ps": 1}, {}, {"ps": 1}, {}, runs=2)
    due = "1 GPU (1 ps x 1), and this machine has 0 for each of 2 runs at once: lower parallel"
    assert str(raised.value) == f"the run asks for {due}"
    with pytest.raises(ValueError, match="--gpus names chief, and this run has none"):
        resources.shares(jobs, {}, {"chief": 1}, {})
    monkeypatch.setattr(cluster, "core_numbers", lambda: None)
    with pytest.raises(ValueError, match="--cpus needs Linux"):
        resources.shares(jobs, {"ps": 1}, {}, {})
    assert resources.shares(jobs, {}, {"ps": 1}, {}), "without --cpus it needs none"
