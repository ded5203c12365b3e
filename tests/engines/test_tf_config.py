"""TF_CONFIG as Slurm, Ray and Spark make it, with a chief and without, where none of them runs.

The engine's own part is played here: it says which task is on which host. Each task writes the
TF_CONFIG that it gets, and whether its port is held for it.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import types

import engines
import pytest
import support
from lab import examples

SCRIPT = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
port = int(config["cluster"][task["type"]][task["index"]].rsplit(":", 1)[1])
with socket.socket() as s:
    try:
        s.bind(("", port))
        held = False
    except OSError:
        held = True
with open(os.path.join(os.environ["OUTPUT_DIR"], "task.json"), "w") as file:
    more = [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "PS_ADDRESS")]
    json.dump([config, held, *more], file)
"""
HOSTS = ["h2", "h0", "h3", "h1"]  # of Ray's tasks and of Spark's, which know no order
TASKS = {  # (ps, workers, a chief): the tasks in their order
    (1, 2, False): [("ps", 0), ("worker", 0), ("worker", 1)],
    (2, 1, True): [("ps", 0), ("ps", 1), ("chief", 0), ("worker", 0)],
    (1, 0, True): [("ps", 0), ("chief", 0)],
    (0, 2, True): [("chief", 0), ("worker", 0), ("worker", 1)],
}


def by_slurm(script, folders, shape, monkeypatch):
    """srun deals out the ranks to two nodes by turns; returns the node of each rank."""
    n = len(folders)
    counts = [(n + 1) // 2, n // 2]
    env = {
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": f"{counts[0]},{counts[1]}",
        "SLURM_DISTRIBUTION": "cyclic",
        "SLURM_JOB_ID": "41",
    }
    n_ps, _, chief = shape
    for rank, folder in enumerate(folders):
        more = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank // 2),
            "SLURMD_NODENAME": f"n{1 + rank % 2}",
            "OUTPUT_DIR": str(folder),
        }
        flags = ["--ps", str(n_ps), *["--chief"] * chief]
        subprocess.run(
            [sys.executable, engines.FOLDER / "Slurm" / "slurm_launch.py", *flags, script],
            env={**os.environ, **env, **more},
            check=True,
            timeout=support.patience(20),
        )
    return [f"n{1 + rank % 2}" for rank in range(n)]


def by_ray(script, folders, shape, monkeypatch):
    """Each actor is on a host of its own; returns the hosts."""
    launch = examples.load(engines.FOLDER / "Ray" / "ray_launch.py")
    roles = launch.launching.tasks(*shape)
    tasks = [launch.Task(number, roles, str(folder)) for number, folder in enumerate(folders)]
    addresses = []
    for number, task in enumerate(tasks):
        ray = types.ModuleType("ray")
        ray.util = types.SimpleNamespace(get_node_ip_address=lambda number=number: HOSTS[number])
        monkeypatch.setitem(sys.modules, "ray", ray)
        addresses.append(task.address(5))
    for task in tasks:
        *_, (failure, _) = task.run([str(script)], addresses)
        assert failure is None, failure
        task.held.close()
        task.lock.close()
    return HOSTS[: len(tasks)]


def by_spark(script, folders, shape, monkeypatch):
    """Each partition is on a host of its own; returns the hosts."""
    launch = examples.load(engines.FOLDER / "Spark-Cluster" / "spark_launch.py")
    n, current = len(folders), threading.local()
    roles, barrier, messages = launch.launching.tasks(*shape), threading.Barrier(n), [None] * n

    class Context:
        get = staticmethod(lambda: Context())
        partitionId = staticmethod(lambda: current.number)
        cpus = staticmethod(lambda: 1)
        resources = staticmethod(dict)

        def getTaskInfos(self):
            return [types.SimpleNamespace(address=f"{host}:4040") for host in HOSTS[:n]]

        def allGather(self, text):
            messages[current.number] = text
            barrier.wait(20)
            return list(messages)

    pyspark = types.ModuleType("pyspark")
    pyspark.BarrierTaskContext = Context
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)

    def run(number):
        current.number, env = number, {"OUTPUT_DIR": str(folders[number])}
        nobody = ("127.0.0.1", 9)  # listens there
        return list(launch.run_task(roles, [str(script)], env, nobody, "", local=True))

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        assert list(pool.map(run, range(n))) == [[{}]] * n
    return HOSTS[:n]


@pytest.mark.parametrize("shape", TASKS, ids=str)
@pytest.mark.parametrize("engine", [by_slurm, by_ray, by_spark])
def test_each_task_gets_its_place_in_the_cluster(engine, shape, tmp_path, monkeypatch):
    """Catches: a chief that nobody knows, or is counted as a worker; a task under another's name.

    Also: tasks that see two clusters, an address on another host, a port that others may take; a ps
    that listens only where its host's own name leads to.
    """
    for name in ("CUDA_VISIBLE_DEVICES", "PS_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    due = TASKS[shape]
    folders = [tmp_path / str(number) for number in range(len(due))]
    for folder in folders:
        folder.mkdir()
    hosts = engine(tmp_path / "train.py", folders, shape, monkeypatch)
    tasks = [json.loads((folder / "task.json").read_text()) for folder in folders]
    configs = [config for config, *_ in tasks]
    assert [(config["task"]["type"], config["task"]["index"]) for config in configs] == due
    cluster = configs[0]["cluster"]
    assert all(config["cluster"] == cluster for config in configs)
    sizes = {job: len(addresses) for job, addresses in cluster.items()}
    jobs = [job for job, _ in due]
    assert sizes == {job: jobs.count(job) for job in jobs}
    own = [cluster[job][index] for job, index in due]
    assert [address.rsplit(":", 1)[0] for address in own] == hosts
    assert len(set(own)) == len(due)
    if engine is not by_slurm:  # it has ports below those that the kernel gives away
        assert all(held for _, held, *_ in tasks)
    if engine is not by_ray:  # Ray itself deals out GPUs
        assert [gpus for _, _, gpus, _ in tasks] == ["-1" if job == "ps" else None for job in jobs]
    ports = [address.rpartition(":")[2] if job == "ps" else None for address, job in zip(own, jobs)]
    assert [listens for *_, listens in tasks] == [port and f"0.0.0.0:{port}" for port in ports]
