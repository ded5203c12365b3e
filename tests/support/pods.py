"""The pods of Kubernetes/plain.yaml: their environments; and, as a program, real ones of a sort.

    OUTPUT_DIR=runs/pods python pods.py SCRIPT [FLAGS]

Each pod is a process in a network namespace of its own, under the host name that Kubernetes would
give it, with the environment that it would make. The entry point of the image does the rest. Needs
root, and `ip`. All processes end with this one.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import yaml

HERE = pathlib.Path(__file__).resolve().parents[2] / "Beyond-One-Machine" / "Kubernetes"
WAIT = 200  # seconds for all pods to end


@functools.cache
def parsed(name):
    return [document for document in yaml.safe_load_all((HERE / name).read_text()) if document]


def documents(name, kind=None):
    """The manifests in a file of this folder, or those of a kind."""
    return [document for document in parsed(name) if kind in (None, document["kind"])]


def container_environment(container, config_maps, fields):
    """The environment that Kubernetes makes for a container; fields: {fieldPath: value}."""
    env = {}
    for source in container.get("envFrom", []):
        env.update(config_maps[source["configMapRef"]["name"]])
    for entry in container["env"]:
        value = entry.get("value")
        if value is None:
            source = entry["valueFrom"]
            reference = source.get("fieldRef", {}).get("fieldPath")
            value = fields[reference] if reference else "1"  # or a number of cores
        env[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], value)
    assert all(isinstance(value, str) for value in env.values()), "a number without quotes"
    return env


def plain_pods():
    """[(the name in DNS, its template, its environment)] of the pods that plain.yaml makes."""
    maps = {
        config_map["metadata"]["name"]: config_map["data"]
        for config_map in documents("plain.yaml", "ConfigMap")
    }
    (service,) = documents("plain.yaml", "Service")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    pods = []
    for job in documents("plain.yaml", "Job"):
        spec, template = job["spec"], job["spec"]["template"]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert template["spec"]["subdomain"] == service["metadata"]["name"]
        assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
        env = container_environment(
            template["spec"]["containers"][0], maps, {"metadata.namespace": "training"}
        )
        for index in range(spec["completions"]):
            host = f"{job['metadata']['name']}-{index}.{template['spec']['subdomain']}"
            pods.append((host, template, {**env, "JOB_COMPLETION_INDEX": str(index)}))
    return pods


def network(folder, names):
    """A bridge, and a namespace with an address for each name; all of them know all names."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    commands = ["link add pods type bridge", "link set pods up", "link set lo up"]
    for number in range(len(names)):
        commands += [
            f"netns add pod{number}",
            f"link add veth{number} type veth peer name eth0 netns pod{number}",
            f"link set veth{number} master pods up",
            f"-n pod{number} link set lo up",
            f"-n pod{number} address add 10.0.0.{number + 1}/24 dev eth0",
            f"-n pod{number} link set eth0 up",
        ]
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
    hosts = pathlib.Path(folder, "hosts")
    lines = [f"10.0.0.{number} {name}" for number, name in enumerate(names, 1)]
    hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)


def run_inside(arguments):
    """In the namespaces: runs all pods with these arguments; returns the first exit code not 0."""
    pods = [(host + ".training.svc", env) for host, _, env in plain_pods()]
    with tempfile.TemporaryDirectory() as folder:
        network(folder, [host for host, _ in pods])
        running = [
            subprocess.Popen(
                ["ip", "netns", "exec", f"pod{number}"]
                + [sys.executable, HERE / "kubernetes_launch.py", *arguments],
                # The image's PATH; where the volume is; and HOME, which is /tmp in the image.
                env={**env, "PATH": os.environ["PATH"], "OUTPUT_DIR": os.environ["OUTPUT_DIR"]},
                stdin=subprocess.DEVNULL,
            )
            for number, (_, env) in enumerate(pods)
        ]
        deadline = time.monotonic() + WAIT
        codes = [process.wait(max(0.1, deadline - time.monotonic())) for process in running]
    if failed := next((code for code in codes if code), 0):
        return failed
    # What summary.yaml does when the Jobs are complete.
    return subprocess.run(["tfrun", "summary", os.environ["OUTPUT_DIR"]]).returncode


def main():
    if sys.argv[1] == "--inside":
        return run_inside(sys.argv[2:])
    os.makedirs("/run/netns", exist_ok=True)
    namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    os.execvp("unshare", [*namespaces, sys.executable, __file__, "--inside", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
