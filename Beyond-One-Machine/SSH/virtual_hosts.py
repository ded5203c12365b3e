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
import ctypes
import getpass
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WAIT = 20  # seconds for all hosts to answer
NEEDED = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
}
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
# What a host does first: it waits until its end of the cable is there.
HOST = """set -e
hostname {name}
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
for folder in {own}; do mount -t tmpfs tmpfs "$folder"; done
read -r _
ip link set lo up
ip address add {address}/24 dev eth0
ip link set eth0 up
exec {sshd} -D -e -f {folder}/{name}.conf
"""


def end_with_us():
    """In the new process, on Linux: it is killed when this one dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


def call(*command):
    subprocess.run(
        list(map(str, command)), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def configure(folder, names):
    """Keys and settings; seen in these namespaces only, as /etc/hosts and /etc/ssh/ssh_config."""
    for key in "host_key", "user_key":
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", folder / key)
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join("%s %s" % (name, public) for name in names))
    for name, address in names.items():
        (folder / (name + ".conf")).write_text(
            SSHD.format(address=address, folder=folder, user=getpass.getuser())
        )
    (folder / "ssh_config").write_text(SSH.format(folder=folder))
    (folder / "hosts").write_text(
        "127.0.0.1 localhost\n"
        + "".join("%s %s\n" % (address, name) for name, address in names.items())
    )
    call("mount", "--bind", folder / "hosts", "/etc/hosts")
    call("mount", "--bind", folder / "ssh_config", "/etc/ssh/ssh_config")


def start(name, address, folder, own, log):
    """A host: a shell in namespaces of its own, which becomes its sshd."""
    script = HOST.format(
        name=name,
        address=address,
        folder=folder,
        sshd=shutil.which("sshd"),
        own=" ".join("'%s'" % each for each in own),
    )
    return subprocess.Popen(
        ["unshare", "--net", "--mount", "--uts", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        preexec_fn=end_with_us,
    )


def connect(name, host):
    """A cable from the bridge to a host. Its end here has the host's name: `ip link set host1 down`
    cuts it."""
    cable = "to-" + name
    call("ip", "link", "add", name, "type", "veth", "peer", "name", cable)
    call("ip", "link", "set", name, "master", "bridge", "up")
    deadline = time.monotonic() + WAIT
    ours = os.readlink("/proc/self/ns/net")
    while os.readlink("/proc/%d/ns/net" % host.pid) == ours:  # it has not yet left
        if time.monotonic() > deadline or host.poll() is not None:
            raise RuntimeError("%s has no network of its own" % name)
        time.sleep(0.01)
    call("ip", "link", "set", cable, "netns", host.pid, "name", "eth0")
    with host.stdin as pipe:
        pipe.write(b"\n")


def run_inside(folder, n_hosts, own, command):
    """In the namespaces: starts the hosts, runs the command, returns its exit code."""
    names = {"host%d" % number: NETWORK + str(number) for number in range(1, n_hosts + 1)}
    try:
        configure(folder, names)
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "bridge", "type", "bridge")
        call("ip", "address", "add", NETWORK + "254/24", "dev", "bridge")
        call("ip", "link", "set", "bridge", "up")
        with open(folder / "log", "w") as log:
            for name, address in names.items():
                connect(name, start(name, address, folder, own, log))
            deadline = time.monotonic() + WAIT
            for name in names:
                while subprocess.call(
                    ["ssh", "-o", "ConnectTimeout=2", name, "true"],
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                ):
                    if time.monotonic() > deadline:
                        raise RuntimeError("%s does not answer" % name)
                    time.sleep(0.1)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        log = folder / "log"
        print(
            "[hosts] they did not start: %s\n%s"
            % (error, log.read_text()[-1000:] if log.exists() else ""),
            file=sys.stderr,
        )
        return 1
    print("[hosts] %s" % ", ".join(names), flush=True)
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
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        parser.error("--hosts must be from 1 to 99, is %d" % flags.hosts)
    if not command:
        parser.error("it needs a command to run")
    for folder in flags.own:
        if not os.path.isdir(folder) or "'" in folder:
            parser.error("--own: there is no folder %s" % folder)
    own = [os.path.abspath(folder) for folder in flags.own]
    if flags.inside:
        return run_inside(pathlib.Path(flags.inside), flags.hosts, own, command)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        parser.error(
            "there is no %s: apt install %s"
            % (", ".join(missing), " ".join(NEEDED[name] for name in missing))
        )
    if sys.platform != "linux" or os.geteuid():
        parser.error("networks of their own need Linux and root")
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        # The kernel ends all processes of the namespace with the first, and that with unshare.
        process = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                sys.executable,
                __file__,
                "--inside",
                folder,
                "--hosts",
                str(flags.hosts),
                *(word for each in own for word in ("--own", each)),
                "--",
                *command,
            ],
            preexec_fn=end_with_us,
        )
        signal.signal(signal.SIGTERM, lambda *_: process.kill())
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 + signal.SIGTERM
            except KeyboardInterrupt:  # the command had the Ctrl-C, too
                pass


if __name__ == "__main__":
    sys.exit(main())
