"""Hosts on one machine: network namespaces, each with a link to a switch that has a given rate."""

import os
import pathlib
import shutil
import subprocess
import sys

NAMESPACES = pathlib.Path("/run/netns")
BRIDGE = "switch"
QUEUE_SECONDS = 0.3  # what waits for the link at most; more is dropped, and TCP sends it again


class Unavailable(Exception):
    """Why this machine has no such hosts."""


def enter() -> None:
    """Starts this program again, with a network and mounts of its own, which end with it.

    Needs Linux, iproute2, and root or a user namespace. Raises Unavailable.
    """
    if "SLOW_NETWORK" in os.environ:
        return
    missing = [name for name in ("unshare", "ip", "tc") if not shutil.which(name)]
    if missing:
        raise Unavailable(f"it needs {', '.join(missing)}: install util-linux and iproute2")
    unshare = ["unshare", "--mount", "--net"]
    if os.getuid() != 0:
        unshare.append("--map-root-user")
    process = subprocess.run([*unshare, "true"], capture_output=True, text=True)
    if process.returncode:
        raise Unavailable(f"it needs root, or user namespaces: {process.stderr.strip()}")
    os.environ["SLOW_NETWORK"] = "inside"
    os.execvp("unshare", [*unshare, sys.executable, *sys.argv])


def run(*commands: str) -> None:
    """Runs commands of iproute2. Raises Unavailable with what they say."""
    for command in commands:
        process = subprocess.run(command.split(), capture_output=True, text=True)
        if process.returncode:
            raise Unavailable(f"`{command}` failed: {process.stderr.strip()}")


def make(n: int) -> list[tuple[str, pathlib.Path]]:
    """Makes n hosts; returns [(its address, the file of its namespace)]. Raises Unavailable."""
    # /run is mounted anew, because it may have no folder netns, nor let this user make one.
    run("mount -t tmpfs tmpfs /run")
    NAMESPACES.mkdir()
    run("ip link set lo up", f"ip link add {BRIDGE} type bridge", f"ip link set {BRIDGE} up")
    for k in range(n):
        run(
            f"ip netns add host{k}",
            f"ip link add link{k} type veth peer name eth0 netns host{k}",
            f"ip link set link{k} master {BRIDGE} up",
            f"ip -n host{k} link set lo up",
            f"ip -n host{k} address add 10.0.0.{k + 1}/24 dev eth0",
            f"ip -n host{k} link set eth0 up",
        )
    limit(n, 1000)
    return [(f"10.0.0.{k + 1}", NAMESPACES / f"host{k}") for k in range(n)]


def limit(n: int, megabits: float) -> None:
    """Gives the link of each of n hosts this rate, both ways."""
    burst = max(3200, int(megabits * 1e6 / 8 / 1000))  # of a millisecond, or two packets
    rule = f"root tbf rate {megabits}mbit burst {burst} latency {QUEUE_SECONDS * 1000:.0f}ms"
    for k in range(n):
        run(f"tc qdisc replace dev link{k} {rule}", f"tc -n host{k} qdisc replace dev eth0 {rule}")


def bytes_moved(k: int) -> tuple[int, int]:
    """Returns the bytes that host k has (sent, received) so far."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == f"link{k}":
            received, *_, sent = [int(number) for number in numbers.split()[:9]]
            return received, sent  # what the switch receives, the host has sent
    raise ValueError(f"there is no host {k}")
