"""Slurm: any example as the tasks of one srun, unmodified.

    srun --ntasks 3 python slurm_launch.py --ps 1 ../../HogWild/hogwild.py --steps 600

Each task finds its place in the variables that Slurm gives it, writes TF_CONFIG, and becomes the
script: the process is the same, so that Slurm's signals reach it.

Kind:          driver
Run:           bash run.sh
"""

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

PORTS = 20000, 12800  # the first, and how many: below those that the kernel gives to clients
PORTS_OF_A_STEP = 64  # tasks of one step, at most
CLUSTER = "cluster.json"  # in OUTPUT_DIR, for workers that join


def hosts(nodelist):
    """The names in a list of Slurm's: "n[9-11],m2" -> n9, n10, n11, m2."""
    names = []
    for name in re.findall(r"(?:[^,\[\]]+|\[[^\]]*\])+", nodelist):
        made = [""]
        for part in re.split(r"(\[[^\]]*\])", name):
            made = [start + end for start in made for end in numbers(part)]
        names += made
    return names


def numbers(part):
    """The texts that one part of a name stands for: "[08-10,12]" -> 08, 09, 10, 12."""
    if not part.startswith("["):
        return [part]
    found = []
    for piece in part[1:-1].split(","):
        low, _, high = piece.partition("-")
        found += ["%0*d" % (len(low), n) for n in range(int(low), int(high or low) + 1)]
    return found


def tasks_per_node(text):
    """How many tasks each node has: "2(x2),1" -> 2, 2, 1."""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(n) for n, times in found for _ in range(int(times or 1))]


def nodes_of_ranks(counts, distribution):
    """The number of the node of each rank. counts: the tasks of each node.

    distribution: block (a node's tasks have ranks in a row), cyclic (by turns), plane=K (K by
    turns). Raises ValueError for another.
    """
    kind, _, size = distribution.split(":")[0].split(",")[0].partition("=")
    if kind in ("block", "unknown", ""):
        size = max(counts)
    elif kind == "cyclic":
        size = 1
    elif kind != "plane":
        raise ValueError(f"the distribution {distribution!r} is neither block, cyclic nor plane")
    left, nodes = list(counts), []
    while any(left):
        for node, n in enumerate(left):
            nodes += [node] * min(n, int(size))
            left[node] -= min(n, int(size))
    return nodes


def addresses(env):
    """host:port of each rank of this step. Two steps on one node have different ports.

    Raises ValueError where Slurm has dealt the ranks otherwise.
    """
    names = hosts(env["SLURM_STEP_NODELIST"])
    counts = tasks_per_node(env["SLURM_STEP_TASKS_PER_NODE"])
    distribution = env.get("SLURM_DISTRIBUTION", "block")
    if distribution == "plane":
        distribution += "=" + env["SLURM_DIST_PLANESIZE"]
    nodes = nodes_of_ranks(counts, distribution)
    if len(nodes) > PORTS_OF_A_STEP:
        raise ValueError(f"{len(nodes)} tasks are more than {PORTS_OF_A_STEP}")
    # The next job begins 64 ports higher. Each step, and a job that begins again, is far from that.
    number = (
        int(env["SLURM_JOB_ID"])
        + 67 * int(env.get("SLURM_STEP_ID", 0))
        + 33 * int(env.get("SLURM_RESTART_COUNT", 0))
    )
    first = PORTS[0] + number * PORTS_OF_A_STEP % PORTS[1]
    made = [f"{names[node]}:{first + rank}" for rank, node in enumerate(nodes)]
    # Slurm tells each task where it is. It may have dealt the ranks otherwise, by a file say.
    rank, here = int(env["SLURM_PROCID"]), env.get("SLURMD_NODENAME")
    if here and (
        names[nodes[rank]] != here or nodes[:rank].count(nodes[rank]) != int(env["SLURM_LOCALID"])
    ):
        raise ValueError(
            "rank %d is on %s, not on %s: use --distribution block, cyclic or "
            "plane=N" % (rank, here, names[nodes[rank]])
        )
    return made


def tf_config(env, n_ps, chief):
    """TF_CONFIG of this task. The first ranks are the ps, then comes the chief, if there is one."""
    found, rank = addresses(env), int(env["SLURM_PROCID"])
    workers = len(found) - n_ps - chief
    if workers < 0 or workers + chief < 1:
        raise ValueError(f"{len(found)} tasks are too few for {n_ps} ps and a worker")
    jobs = ["ps"] * n_ps + ["chief"] * chief + ["worker"] * workers
    cluster = {}
    for job, address in zip(jobs, found):
        cluster.setdefault(job, []).append(address)
    task = {"type": jobs[rank], "index": jobs[:rank].count(jobs[rank])}
    return {"cluster": cluster, "task": task}


def joining_config(index):
    """TF_CONFIG of a worker that joins the job, in whose step the first task has written it."""
    with open(os.path.join(os.environ["OUTPUT_DIR"], CLUSTER)) as file:
        cluster = json.load(file)
    return {"cluster": cluster, "task": {"type": "worker", "index": index}}


def check_port(address):
    """Raises ValueError where another process listens on the port of this task."""
    port = int(address.rsplit(":", 1)[1])
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"port {port} of {socket.gethostname()}: {error.strerror}; "
                "a job that begins again takes others"
            ) from None


def keep_output(name):
    """Writes what this task prints into a file, too: srun may lose the last lines of a failure."""
    os.makedirs(os.environ["OUTPUT_DIR"], exist_ok=True)
    path = os.path.join(os.environ["OUTPUT_DIR"], f"slurm-{name}.log")
    open(path, "w").close()  # of an attempt before
    for stream in (sys.stdout, sys.stderr):
        tee = subprocess.Popen(["tee", "-a", path], stdin=subprocess.PIPE, stdout=stream)
        os.dup2(tee.stdin.fileno(), stream.fileno())


def parse(is_task=True):
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ps", type=int, default=1, metavar="N", help="parameter servers (1)")
    parser.add_argument("--chief", action="store_true", help="one task is of the type chief")
    words = "join the live run in OUTPUT_DIR as the worker of this index"
    parser.add_argument("--join", type=int, metavar="INDEX", help=words)
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    flags = parser.parse_args()
    if not 0 <= flags.ps <= 99:
        parser.error(f"--ps must be from 0 to 99, is {flags.ps}")
    if not pathlib.Path(flags.script).is_file():
        parser.error(f"there is no script {flags.script} here ({os.getcwd()})")
    if is_task and "SLURM_STEP_NODELIST" not in os.environ:
        parser.error("this is no task of Slurm: start it with srun")
    return parser, flags


def main():
    parser, flags = parse()
    try:
        if flags.join is None:
            config = tf_config(os.environ, flags.ps, int(flags.chief))
        else:
            config = joining_config(flags.join)
    except OSError as error:
        parser.error(f"no run of Slurm goes on there: {error}")
    except KeyError as error:
        parser.error(f"Slurm's {error.args[0]} is missing")
    except ValueError as error:
        parser.error(str(error))
    if not os.environ.get("OUTPUT_DIR"):
        os.environ["OUTPUT_DIR"] = os.path.abspath(
            "runs/Slurm/{}".format(os.environ["SLURM_JOB_ID"])
        )
    task, rank = config["task"], os.environ["SLURM_PROCID"]
    keep_output(rank if flags.join is None else f"worker-{flags.join}")
    address = None
    if flags.join is None:  # else no task needs to reach it
        address = config["cluster"][task["type"]][task["index"]]
        if rank == "0":
            with open(os.path.join(os.environ["OUTPUT_DIR"], CLUSTER), "w") as file:
                json.dump(config["cluster"], file)
        try:
            check_port(address)
        except ValueError as error:
            print(f"slurm_launch.py: {error}", file=sys.stderr)
            return 1
    os.environ.update(TF_CONFIG=json.dumps(config), KERAS_BACKEND="tensorflow")
    os.environ.setdefault("grpc_proxy", "")  # or gRPC takes http_proxy between the tasks
    if task["type"] == "ps":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        # At all addresses: a host may know its own name as 127.0.0.1 only.
        os.environ.setdefault("PS_ADDRESS", "0.0.0.0:" + address.rpartition(":")[2])
    os.execv(sys.executable, [sys.executable, "-u", flags.script, *flags.arguments])


if __name__ == "__main__":
    sys.exit(main())
