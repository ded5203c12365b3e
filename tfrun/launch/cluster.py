"""What a cluster on this machine is made of: ports, tasks, and the environment of each."""

import json
import os
import re
import shutil
import socket
import subprocess


def hold_ports(n):
    """n free ports and the sockets that keep them: close those when the run is over.

    A socket that is bound but does not listen keeps a port from others. TensorFlow's server can
    listen on it all the same, because both ask for SO_REUSEPORT (TensorFlow by TF_GRPC_REUSE_PORT).
    """
    held = []
    for _ in range(n):
        family = (
            socket.AF_INET6
            if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
            else socket.AF_INET
        )
        held.append(socket.socket(family))
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held[-1].bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))
    return [s.getsockname()[1] for s in held], held


def tasks(jobs):
    """[(job, index)] of {job: number of tasks}, the ps first."""
    order = sorted(jobs, key=["ps", "chief", "worker", "evaluator"].index)
    return [(job, index) for job in order for index in range(jobs[job])]


def addresses(jobs, ports, names=None):
    """The cluster of TF_CONFIG: {job: ["host:port", ...]}. An evaluator is not part of it.

    names: the host of each task; this machine without them.
    """
    cluster = {job: [] for job in jobs if job != "evaluator"}
    names = names or ["127.0.0.1"] * len(ports)
    for (job, _), name, port in zip(tasks(jobs), names, ports, strict=True):
        if job in cluster:
            cluster[job].append("%s:%d" % (name, port))
    return cluster


def gpus():
    """The GPUs this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [
            gpu for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if gpu not in ("", "-1")
        ]
    if not shutil.which("nvidia-smi"):
        return []
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(i) for i in range(len(re.findall("^GPU ", listed.stdout, re.MULTILINE)))]


def environments(jobs, ports, directory, shares=None, more=()):
    """{(job, index): the variables that this task gets on top of tfrun's own}: all on this machine.

    What a task has of its own by `shares`, {(job, index): resources.Share}, it uses.
    """
    return on_machine(
        *(tasks(jobs), addresses(jobs, ports), directory, cores(), gpus(), shares or {}, more),
        given=os.environ,
    )


def core_numbers():
    """Returns the numbers of the cores that this process may use; None if the system tells none."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def cores():
    """Returns how many cores this process may use."""
    return len(core_numbers() or []) or os.cpu_count()


def thread_variables(cores, n_tasks, given):
    """Returns the variables that share so many cores among tasks, but for those in `given`."""
    threads = str(max(1, (cores or 1) // max(1, n_tasks)))
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")
    return {name: threads for name in names if name not in given}


def on_machine(tasks, cluster, directory, cores, gpus, shares, more, given=()):
    """The same for those tasks of a cluster that one machine has, with these cores and GPUs.

    A ps sees no GPU; several workers share what there is, and the cores; one alone has all.
    more: (role or None for all, name, value) of further variables. given: variables that are set
    there, and stay where they only choose a number of threads.
    """
    computing = [task for task in tasks if task[0] != "ps"]
    made = {}
    for job, index in tasks:
        env = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            "OUTPUT_DIR": str(directory),
            "TF_GRPC_REUSE_PORT": "1",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "PYTHONUNBUFFERED": "1",
        }
        if job == "ps":
            env["CUDA_VISIBLE_DEVICES"] = "-1"
        elif gpus and len(computing) > 1:
            env["CUDA_VISIBLE_DEVICES"] = gpus[computing.index((job, index)) % len(gpus)]
        share = shares.get((job, index))
        if share and share.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus) or "-1"
        if share and share.cpus:
            env |= thread_variables(len(share.cpus), 1, given)
        else:
            env |= thread_variables(cores, len(computing), given)
        env.update((name, value) for role, name, value in more if role in (None, job))
        made[job, index] = env
    return made
