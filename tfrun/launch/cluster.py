"""What a cluster on this machine is made of: ports, tasks, and the environment of each."""

import contextlib
import json
import math
import os
import pathlib
import random
import socket
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

# Of every task: gRPC would send what it sends to the others through http_proxy; Keras might take
# another backend; a set of words would have another order on each worker; and a sign that the
# locale lacks would end a task.
COMMON_VARIABLES = {
    "grpc_proxy": "",
    "KERAS_BACKEND": "tensorflow",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": ":replace",
    "PYTHONUNBUFFERED": "1",
}
PORTS = range(20000, 30000)  # Linux takes none of these for a connection


def hold_ports(n: int) -> tuple[list[int], list[socket.socket]]:
    """Returns n free ports and the sockets that keep them: close those when the run is over.

    A socket that is bound but does not listen keeps a port from others. TensorFlow's server can
    listen on it all the same, because both ask for SO_REUSEPORT (TensorFlow by TF_GRPC_REUSE_PORT).
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    sockets = [socket.socket(family) for _ in range(n)]
    for held in sockets:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
    return [held.getsockname()[1] for held in sockets], sockets


def check_loopback() -> None:
    """Raises OSError if no task of this machine can reach another, because its loopback is down."""
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.settimeout(5)  # seconds; a loopback that works needs less than a millisecond
        try:
            client.connect(server.getsockname())
        except OSError as error:
            raise OSError(
                f"the loopback of this machine is down, and 127.0.0.1 does not answer ({error}): "
                "start it by `ip link set lo up`, or use --isolate, which has one of its own"
            ) from None


def free_ports(n: int) -> list[int]:
    """Returns n ports that no socket of this machine has now. Nothing keeps them."""
    ports: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == n:
            break
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", port))
            ports.append(port)
    return ports


def tasks(jobs: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns [(job, index)] of {job: number of tasks}, the ps first."""
    order = sorted(jobs, key=["ps", "chief", "worker", "evaluator"].index)
    return [(job, index) for job in order for index in range(jobs[job])]


def addresses(
    jobs: Mapping[str, int], ports: Sequence[int], names: Iterable[str] | None = None
) -> dict[str, list[str]]:
    """Returns the cluster of TF_CONFIG: {job: ["host:port", ...]}. An evaluator is not part of it.

    names: the host of each task; this machine without them.
    """
    cluster: dict[str, list[str]] = {job: [] for job in jobs if job != "evaluator"}
    names = names or ["127.0.0.1"] * len(ports)
    for (job, _), name, port in zip(tasks(jobs), names, ports, strict=True):
        if job in cluster:
            cluster[job].append(f"{name}:{port}")
    return cluster


def gpus() -> list[str]:
    """Returns the GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu not in ("", "-1")]
    listed = [line for line in nvidia_smi("-L") if line.startswith("GPU ")]
    return [str(i) for i in range(len(listed))]


def nvidia_smi(*options: str, seconds: float = 20) -> list[str]:
    """Returns the lines that nvidia-smi prints, none where there is no such program, or in time."""
    command = ["nvidia-smi", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        return done.stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def environments(
    jobs: Mapping[str, int],
    ports: Sequence[int],
    directory: pathlib.Path,
    shares: Mapping[tuple[str, int], Any] | None = None,
    variables: Iterable[tuple[str | None, str, str]] = (),
) -> dict[tuple[str, int], dict[str, str]]:
    """Returns {(job, index): the task's own variables}, of all tasks on this machine."""
    own, cluster = tasks(jobs), addresses(jobs, ports)
    return task_environments(own, cluster, directory, cores(), gpus(), shares, variables)


def core_numbers() -> list[int] | None:
    """Returns the numbers of the cores that this process may use; None if the system tells none."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def cores() -> int:
    """Returns how many cores this process may use, at least 1.

    A container with a quota, as of `docker run --cpus=2`, still sees all cores of its machine.
    """
    visible = len(core_numbers() or []) or os.cpu_count() or 1
    return math.ceil(min(visible, cpu_quota()))


def cpu_quota(root: str | pathlib.Path = "/", pid: int | str = "self") -> float:
    """Returns how many cores' time the control groups of a process allow; without a limit inf.

    root: the folder with proc/ and sys/. pid: by default this process. The quota of a group is also
    that of the groups in it.
    """
    quotas = [math.inf]
    with contextlib.suppress(OSError):
        for line in pathlib.Path(root, f"proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2, of which systems with both versions have a folder
                trees = ["", "unified"]
            else:
                trees = [controllers, "cpu"] if "cpu" in controllers.split(",") else []
            for tree in trees:
                top = pathlib.Path(root, "sys/fs/cgroup", tree)
                group = top / path.strip("/")
                groups = [group, *(parent for parent in group.parents if top in parent.parents)]
                quotas += map(quota_of, [*groups, top])
    return min(quotas)


def quota_of(group: pathlib.Path) -> float:
    """Returns the quota of the control group with this folder, in cores; without one inf."""
    with contextlib.suppress(OSError, ValueError):  # no such file, or max
        quota, period = map(float, (group / "cpu.max").read_text().split())
        return quota / period
    with contextlib.suppress(OSError):
        quota = float((group / "cpu.cfs_quota_us").read_text())
        if quota > 0:  # -1: none
            return quota / float((group / "cpu.cfs_period_us").read_text())
    return math.inf


def thread_variables(cores: int, n_tasks: int, already_set: Collection[str] = ()) -> dict[str, str]:
    """Returns the variables that share the cores among tasks, but for those that are set."""
    threads = str(max(1, cores // max(1, n_tasks)))
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
    return {name: threads for name in names if name not in already_set}


def task_environments(
    tasks: Iterable[tuple[str, int]],
    cluster: Mapping[str, list[str]],
    directory: pathlib.Path,
    cores: int,
    gpus: Sequence[str],
    shares: Mapping[tuple[str, int], Any] | None = None,
    variables: Iterable[tuple[str | None, str, str]] = (),
    already_set: Collection[str] = os.environ,
) -> dict[tuple[str, int], dict[str, str]]:
    """Returns {(job, index): its variables} of the tasks of a cluster that one machine has.

    A ps sees no GPU; several workers share the GPUs and the cores; one alone has all.
    shares: {(job, index): resources.Share}, what a task has of its own. variables: (role or None
    for all, name, value). already_set: variables of that machine, which keep its own number of
    threads.
    """
    computing = [task for task in tasks if task[0] != "ps"]
    environments = {}
    for job, index in tasks:
        env = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            "OUTPUT_DIR": str(directory),
            "TF_GRPC_REUSE_PORT": "1",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            **COMMON_VARIABLES,
        }
        if job == "ps":
            env["CUDA_VISIBLE_DEVICES"] = "-1"
        elif gpus and len(computing) > 1:
            env["CUDA_VISIBLE_DEVICES"] = gpus[computing.index((job, index)) % len(gpus)]
        share = (shares or {}).get((job, index))
        if share and share.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus) or "-1"
        own, n = cores, len(computing)
        if share and share.cpus:
            own, n = min(len(share.cpus), cores), 1
        env |= thread_variables(own, n, already_set)
        env |= {name: value for role, name, value in variables if role in (None, job)}
        environments[job, index] = env
    return environments
