"""A real Slurm of two virtual nodes on this machine, as long as a command runs.

    python virtual_slurm.py --nodes 2 -- sbatch --wait train.sbatch

Needs root, and Debian's packages slurm-wlm and munge. The nodes n1, n2 have loopback addresses of
their own. All daemons and jobs live in a namespace of processes, and end with it.
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from tfrun.launch.task import end_with_parent
from tfrun.runs import waiting

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import launching

WAIT = 60  # seconds for all nodes to be idle
REQUEUE = 10  # seconds that a requeued job waits; Slurm's default is 120
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "unshare")
CONF = """
ClusterName=virtual
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire={requeue}
FirstJobId={first_job}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(n):
    """Ports that nobody has just now."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(launching.hold_port()) for _ in range(n)]
        return [one.getsockname()[1] for one in held]


def configure(folder, n_nodes, cpus):
    """Writes slurm.conf and the hosts file; returns the environment for Slurm's commands."""
    controller, *ports = free_ports(1 + n_nodes)
    nodes = [
        f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.{10 + number} "
        f"Port={port} CPUs={cpus} State=UNKNOWN"
        for number, port in enumerate(ports, 1)
    ]
    (folder / "slurm.conf").write_text(
        CONF.format(
            host=socket.gethostname(),
            controller=controller,
            folder=folder,
            requeue=REQUEUE,
            # A job's number decides on its ports: two clusters on one machine have different ones.
            first_job=random.SystemRandom().randrange(1000, 1000000),
            nodes="\n".join(nodes),
        )
    )
    (folder / "state").mkdir()
    (folder / "hosts").write_text(
        pathlib.Path("/etc/hosts").read_text()
        + "".join(f"127.0.0.{10 + number} n{number}\n" for number in range(1, n_nodes + 1))
    )
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    return {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}


def daemons(folder, n_nodes):
    """The commands that stay in the foreground."""
    files = "socket=munge.socket", "key-file=munge.key", "pid-file=munge.pid", "log-file=munge.log"
    paths = [f"--{flag.replace('=', f'={folder}/')}" for flag in (*files, "seed-file=munge.seed")]
    yield ["munged", "--foreground", "--force", *paths]
    yield ["slurmctld", "-D"]
    for number in range(1, n_nodes + 1):
        yield ["slurmd", "-D", "-N", f"n{number}"]


def wait_until(condition, what):
    if not waiting.wait_for(condition, WAIT, 0.1):
        raise RuntimeError(f"after {WAIT:.0f} s: {what}")


def run_inside(folder, command, n_nodes, cpus):
    """In the namespaces: starts Slurm, runs the command, returns its exit code."""
    env, started = configure(folder, n_nodes, cpus), []
    # Names that the nodes have in a real cluster, too; seen in this namespace only.
    subprocess.run(["mount", "--bind", folder / "hosts", "/etc/hosts"], check=True)
    with open(folder / "daemons.log", "w") as log:
        for daemon in daemons(folder, n_nodes):
            started.append(
                subprocess.Popen(daemon, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )
            if daemon[0] == "munged":
                wait_until((folder / "munge.socket").exists, "munged has no socket")

    def idle():
        for process in started:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args[0]} has ended")
        sinfo = subprocess.run(
            ["sinfo", "-h", "-o", "%T %D"], env=env, capture_output=True, text=True
        )
        return sinfo.stdout.split() == ["idle", str(n_nodes)]

    try:
        wait_until(idle, "the nodes are not idle")
        print(f"[slurm] {n_nodes} nodes: n1 to n{n_nodes}", flush=True)
        code = subprocess.call(command, env=env)
        return code if code >= 0 else 128 - code
    except RuntimeError as error:
        last = (folder / "daemons.log").read_text()[-1000:]
        print(f"virtual_slurm.py: Slurm did not start: {error}\n{last}", file=sys.stderr)
    except OSError as error:
        print(f"virtual_slurm.py: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130  # the process outside ends everything
    return 1


def run(command, n_nodes, cpus):
    """Runs a command in namespaces of its own, with a Slurm; returns its exit code."""
    launching.handle(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Slurm's sockets are files there, whose paths must be short.
    with tempfile.TemporaryDirectory(
        prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        os.chmod(folder, 0o755)
        # All processes inside end with the first one, that one with unshare, and unshare with us.
        unshare = "unshare --mount --pid --fork --mount-proc --kill-child".split()
        nodes = ["--inside", folder, "--nodes", str(n_nodes), "--cpus", str(cpus)]
        inside = subprocess.Popen(
            [*unshare, sys.executable, __file__, *nodes, "--", *command],
            preexec_fn=end_with_parent,
        )
        try:
            return inside.wait()
        except KeyboardInterrupt:
            return 130
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            inside.kill()
            inside.wait()


def main():
    parser = launching.Parser(__doc__)
    parser.number("--nodes", 2, "virtual nodes", 1, 64)
    parser.number("--cpus", 4, "of each node", 1, 64)
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    flags = parser.with_command()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        parser.error("there is no {}: apt install slurm-wlm munge".format(", ".join(missing)))
    if os.geteuid():
        parser.error("Slurm's daemons need root")
    if flags.inside:
        return run_inside(pathlib.Path(flags.inside), flags.command, flags.nodes, flags.cpus)
    return run(flags.command, flags.nodes, flags.cpus)


if __name__ == "__main__":
    sys.exit(main())
