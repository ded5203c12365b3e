"""SSH: any example on your own hosts by tfrun --hosts; here on virtual ones.

    python virtual_hosts.py --hosts 2 -- ssh host1 hostname

    network namespaces     host1, host2, ... and the command's, joined by a bridge
    mount namespaces       names in /etc/hosts, a host's own empty folders (--own)
    throw-away keys        of the hosts and of the user; plain `ssh host1` uses them

Needs root, and Debian's packages openssh-server and iproute2. All of it ends with this process;
~/.ssh stays as it is.

Kind:          driver
Run:           bash run.sh ../../HogWild/hogwild.py --steps 600
"""

import argparse
import getpass
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lab.measure import arguments
from tfrun.launch.task import end_with_parent

WAIT = 20  # seconds for all hosts to answer
NETWORK = "10.77.0."
SSHD = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
AllowUsers {user}
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
Subsystem sftp internal-sftp
UseDNS no
PidFile none
MaxStartups 100
"""
SSH = """
Host host*
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""
# What a host does in namespaces of its own.
HOST = """set -e
hostname {name}
mkdir -p /run/sshd
for folder in {own}; do mount -t tmpfs tmpfs "$folder"; done
exec {sshd} -D -e -f {folder}/{name}.conf
"""


def call(command):
    """Runs a command. Raises CalledProcessError where it fails."""
    words = shlex.split(command)
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def configure(folder, names):
    """Keys and settings; seen in these namespaces only, as /etc/hosts and /etc/ssh/ssh_config."""
    for key in "host_key", "user_key":
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", folder / key]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"{name} {public}" for name in names))
    for name, address in names.items():
        settings = SSHD.format(address=address, folder=folder, user=getpass.getuser())
        (folder / f"{name}.conf").write_text(settings)
    (folder / "ssh_config").write_text(SSH.format(folder=folder))
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    call(f"mount --bind {shlex.quote(str(folder))}/hosts /etc/hosts")
    call(f"mount --bind {shlex.quote(str(folder))}/ssh_config /etc/ssh/ssh_config")


def start(name, address, folder, own, log):
    """Starts a host: a shell in namespaces of its own, which becomes its sshd.

    A cable leads to it from the bridge. The end here has the host's name: `ip link set host1 down`
    cuts it.
    """
    call(f"ip netns add {name}")
    call(f"ip link add {name} type veth peer name eth0 netns {name}")
    call(f"ip link set {name} master bridge up")
    call(f"ip -n {name} link set lo up")
    call(f"ip -n {name} address add {address}/24 dev eth0")
    call(f"ip -n {name} link set eth0 up")
    script = HOST.format(
        name=name,
        folder=folder,
        sshd=shutil.which("sshd"),
        own=" ".join(f"'{path}'" for path in own),
    )
    command = ["ip", "netns", "exec", name, "unshare", "--mount", "--uts", "sh", "-c", script]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def start_all(folder, names, own):
    """Starts the hosts, and waits until all answer. Raises RuntimeError, or another's error."""
    configure(folder, names)
    call("mount -t tmpfs tmpfs /run")  # the names of the networks, and what sshd needs there
    call("ip link set lo up")
    call("ip link add bridge type bridge")
    call(f"ip address add {NETWORK}254/24 dev bridge")
    call("ip link set bridge up")
    with open(folder / "log", "w") as log:
        for name, address in names.items():
            start(name, address, folder, own, log)
        deadline = time.monotonic() + WAIT
        for name in names:
            command = ["ssh", "-o", "ConnectTimeout=2", name, "true"]
            while subprocess.call(command, stdin=subprocess.DEVNULL, stderr=log):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{name} does not answer")
                time.sleep(0.1)


def run_inside(folder, n_hosts, own, command):
    """In the namespaces: starts the hosts, runs the command, returns its exit code."""
    names = {f"host{number}": f"{NETWORK}{number}" for number in range(1, n_hosts + 1)}
    try:
        start_all(folder, names, own)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        log = folder / "log"
        text = log.read_text()[-1000:] if log.exists() else ""
        print(f"[hosts] they did not start: {error}\n{text}", file=sys.stderr)
        return 1
    print("[hosts] " + ", ".join(names), flush=True)
    child = subprocess.Popen(command)
    while True:
        try:
            ended, status = os.wait()  # the first process of a namespace has all orphans
        except KeyboardInterrupt:  # the command had the Ctrl-C, too
            continue
        if ended == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main():
    parser = arguments.Parser(__doc__)
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="how many (2)")
    parser.add_argument(
        "--own",
        action="append",
        default=[],
        metavar="FOLDER",
        help="an existing folder that each host has for itself, empty at first",
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    flags = parser.parse_args()
    command = flags.command[flags.command[:1] == ["--"] :]
    if not 1 <= flags.hosts <= 99:
        parser.error(f"--hosts must be from 1 to 99, is {flags.hosts}")
    if not command:
        parser.error("it needs a command to run")
    for folder in flags.own:
        if not os.path.isdir(folder) or "'" in folder:
            parser.error(f"--own: there is no folder {folder}")
    if flags.inside:
        own = [os.path.abspath(folder) for folder in flags.own]
        return run_inside(pathlib.Path(flags.inside), flags.hosts, own, command)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if not all(map(shutil.which, ("sshd", "ssh", "ip", "unshare"))):
        parser.error(
            "it needs sshd, ssh, ip and unshare: "
            "apt install openssh-server openssh-client iproute2 util-linux"
        )
    if sys.platform != "linux" or os.geteuid():
        parser.error("networks of their own need Linux and root")
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        # The kernel ends all processes of the namespace with the first, and that with unshare.
        namespaces = "unshare --net --mount --pid --fork --mount-proc --kill-child".split()
        process = subprocess.Popen(
            [*namespaces, sys.executable, __file__, "--inside", folder, *sys.argv[1:]],
            preexec_fn=end_with_parent,
        )
        if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, lambda *_: process.kill())
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 + signal.SIGTERM
            except KeyboardInterrupt:  # the command had the Ctrl-C, too
                pass


if __name__ == "__main__":
    sys.exit(main())
