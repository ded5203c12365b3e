"""Kubernetes: any example as pods that know one another by name, unmodified.

The entry point of the image makes TF_CONFIG from the name of its pod, and becomes the script.

    pod i of the Job NAME   is known to all others as NAME-i.SERVICE.NAMESPACE.svc:PORT
    its number i            JOB_COMPLETION_INDEX of an Indexed Job, or the end of POD_NAME in a
                            StatefulSet
    all other facts         environment variables, which plain.yaml sets

Kind:          driver
Run:           the entry point of the image: the arguments are the script and its flags
"""

import json
import os
import re
import sys


def number(env, name, low, high):
    """An environment variable that is a whole number from low to high."""
    text = value(env, name)
    if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, is {text!r}")
    return int(text)


def value(env, name):
    """An environment variable that must not be empty."""
    if not env.get(name):
        raise ValueError(f"the environment variable {name} is missing")
    return env[name]


def index_of_pod(env):
    """The number of this pod among those of its role."""
    if "JOB_COMPLETION_INDEX" in env:
        return number(env, "JOB_COMPLETION_INDEX", 0, 9999)
    name = value(env, "POD_NAME")
    if not (found := re.search(r"-([0-9]+)$", name)):
        raise ValueError(f"POD_NAME must end with a number, as in a StatefulSet, is {name!r}")
    return int(found[1])


def tf_config(env):
    """TF_CONFIG of the pod with these environment variables. Raises ValueError on a wrong one."""
    counts = {"ps": number(env, "PS", 0, 999), "worker": number(env, "WORKERS", 1, 9999)}
    role, index = value(env, "ROLE"), index_of_pod(env)
    if role not in counts:
        raise ValueError(f"ROLE must be ps or worker, is {role!r}")
    if index >= counts[role]:
        raise ValueError(f"this is {role} {index}, but there are only {counts[role]}")
    suffix = (
        f"{value(env, 'SERVICE')}.{value(env, 'NAMESPACE')}.svc:{number(env, 'PORT', 1, 65535)}"
    )
    cluster = {}
    for job, count in counts.items():
        if count:
            name = value(env, job.upper() + "_JOB")
            cluster[job] = [f"{name}-{i}.{suffix}" for i in range(count)]
    return {"cluster": cluster, "task": {"type": role, "index": index}}


def main():
    try:
        if not sys.argv[1:] or not os.path.isfile(sys.argv[1]):
            raise ValueError("there is no script %s" % (sys.argv[1:2] or "in the arguments"))
        value(os.environ, "OUTPUT_DIR")
        if "TF_CONFIG" not in os.environ:  # an operator may have set it
            os.environ["TF_CONFIG"] = json.dumps(tf_config(os.environ))
        config = json.loads(os.environ["TF_CONFIG"])
        task = config.get("task", {})
        if task.get("type") == "ps":  # at all addresses: its own name may not be known yet
            port = config["cluster"]["ps"][task["index"]].rpartition(":")[2]
            os.environ.setdefault("PS_ADDRESS", f"0.0.0.0:{port}")
    except ValueError as error:
        print(f"kubernetes_launch.py: {error}", file=sys.stderr)
        return 2  # plain.yaml does not try again after a 2
    os.environ.setdefault("grpc_proxy", "")  # or gRPC takes http_proxy between the pods
    # The script takes the place of this process, so that it gets the signals of Kubernetes.
    os.execv(sys.executable, [sys.executable, "-u", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
