"""Kubernetes: the entry point as a program, and what the manifests say. There is no cluster."""

import json
import re
import signal
import subprocess
import sys

import engines
import pytest
import support
from lab import examples
from pods import container_environment, documents, plain_pods

HERE = engines.FOLDER / "Kubernetes"
LAUNCH = HERE / "kubernetes_launch.py"
MANIFESTS = sorted(HERE.glob("*.yaml"))
SHOW = "import json, os, sys\nprint(json.dumps([os.environ['TF_CONFIG'], *sys.argv[1:]]))\n"
GOOD = {
    "ROLE": "worker",
    "PS": "1",
    "WORKERS": "2",
    "PS_JOB": "run-ps",
    "WORKER_JOB": "run-worker",
    "SERVICE": "run",
    "NAMESPACE": "training",
    "PORT": "2222",
    "JOB_COMPLETION_INDEX": "1",
    "OUTPUT_DIR": "/runs/run",
}


pod_templates = examples.load(HERE / "validate.py").pod_templates


def templates(name):
    """{path: the template of a pod} of all pods of a file."""
    return {
        "{} {}{}".format(name, document["metadata"]["name"], path): template
        for document in documents(name)
        for path, template in pod_templates(document).items()
    }


WITH_PODS = {path.name: templates(path.name) for path in MANIFESTS if templates(path.name)}
PODS = {path: template for group in WITH_PODS.values() for path, template in group.items()}


def enter(env, *arguments):
    """Runs the entry point to its end with this environment alone."""
    return subprocess.run(
        [sys.executable, LAUNCH, *arguments],
        env={name: value for name, value in env.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )


def config_of(env, script, *flags):
    """(TF_CONFIG as a script gets it, its arguments)"""
    script.write_text(SHOW)
    done = enter(env, script, *flags)
    assert done.returncode == 0, done.stderr
    config, *arguments = json.loads(done.stdout)
    return json.loads(config), arguments


def trainer_pods():
    """The same of the JobSet that Kubeflow Trainer makes of trainjob.yaml."""
    (runtime,) = documents("trainjob.yaml", "TrainingRuntime")
    (run,) = documents("trainjob.yaml", "TrainJob")
    assert run["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    name, job_set = run["metadata"]["name"], runtime["spec"]["template"]["spec"]
    assert "subdomain" not in job_set["network"]  # then it is the name of the JobSet
    fields = {
        "metadata.namespace": "training",
        "metadata.labels['jobset.sigs.k8s.io/jobset-name']": name,
    }
    pods = []
    for part in job_set["replicatedJobs"]:
        spec, labels = part["template"]["spec"], part["template"].get("metadata", {})
        trained = labels.get("labels") == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
        count = runtime["spec"]["mlPolicy"]["numNodes"] if trained else spec["completions"]
        assert spec["completions"] == spec["parallelism"] == count
        template = spec["template"]
        env = container_environment(template["spec"]["containers"][0], {}, fields)
        for index in range(count):
            host = f"{name}-{part['name']}-0-{index}.{name}"
            pods.append((host, template, {**env, "JOB_COMPLETION_INDEX": str(index)}))
    return pods


@pytest.mark.parametrize("pods", [plain_pods, trainer_pods])
def test_each_pod_gets_its_place_in_the_cluster(pods, tmp_path):
    """Catches an address that no pod has, a pod that the others do not know, and wrong counts."""
    entries = pods()
    configs = [config_of(env, tmp_path / "script.py")[0] for _, _, env in entries]
    known = []
    for (host, template, env), config in zip(entries, configs):
        task = config["task"]
        address = config["cluster"][task["type"]][task["index"]]
        port = template["spec"]["containers"][0]["ports"][0]["containerPort"]
        assert address == f"{host}.training.svc:{port}"
        assert task == {"type": env["ROLE"], "index": int(env["JOB_COMPLETION_INDEX"])}
        known.append(address)
    for config in configs:
        assert sum(config["cluster"].values(), []) == known
    assert {config["task"]["type"] for config in configs} == {"ps", "worker"}


def test_other_ways_to_know_the_place(tmp_path):
    """A StatefulSet's ordinal, a run without ps, an operator's TF_CONFIG; flags reach scripts."""
    script = tmp_path / "script.py"
    stateful = {**GOOD, "JOB_COMPLETION_INDEX": None, "POD_NAME": "run-worker-10", "WORKERS": "11"}
    config, _ = config_of(stateful, script)
    assert config["task"] == {"type": "worker", "index": 10}
    assert config["cluster"]["worker"][10] == "run-worker-10.run.training.svc:2222"
    config, _ = config_of({**GOOD, "PS": "0", "PS_JOB": None}, script)
    assert list(config["cluster"]) == ["worker"]
    theirs = {"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}
    env = {"TF_CONFIG": json.dumps(theirs), "OUTPUT_DIR": "/runs/run"}
    assert config_of(env, script, "--steps", "3") == (theirs, ["--steps", "3"])


def test_a_ps_listens_at_all_addresses(tmp_path):
    """Catches a ps that ends because its own name is not known yet."""
    script = tmp_path / "script.py"
    script.write_text("import os\nprint(os.environ.get('PS_ADDRESS'))\n")
    ps = {**GOOD, "ROLE": "ps", "JOB_COMPLETION_INDEX": "0"}
    cases = {"0.0.0.0:2222": ps, "None": GOOD, "10.0.0.7:1": {**ps, "PS_ADDRESS": "10.0.0.7:1"}}
    for address, env in cases.items():
        assert enter(env, script).stdout.strip() == address


def test_the_script_takes_the_place_of_the_entry_point(tmp_path):
    """Catches a child in its stead: the script would not get SIGTERM, nor its exit code count."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print(os.getpid())\n"  # without flush: the entry point sets python -u
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, LAUNCH, script], env=GOOD, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert int(process.stdout.readline()) == process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(support.patience(20)) == 7
        finally:
            process.kill()


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"ROLE": None}, "variable ROLE is missing"),
        ({"ROLE": "master"}, "ROLE must be ps or worker, is 'master'"),
        ({"WORKERS": None}, "variable WORKERS is missing"),
        ({"WORKERS": "two"}, "WORKERS must be a whole number from 1 to 9999, is 'two'"),
        ({"WORKERS": "0"}, "WORKERS must be a whole number from 1 to 9999, is '0'"),
        ({"PS": "-1"}, "PS must be a whole number from 0 to 999, is '-1'"),
        ({"PORT": "99999"}, "PORT must be a whole number from 1 to 65535, is '99999'"),
        ({"JOB_COMPLETION_INDEX": "2"}, "this is worker 2, but there are only 2"),
        ({"JOB_COMPLETION_INDEX": "one"}, "JOB_COMPLETION_INDEX must be a whole number"),
        ({"JOB_COMPLETION_INDEX": None}, "variable POD_NAME is missing"),
        ({"JOB_COMPLETION_INDEX": None, "POD_NAME": "run-ps-x7k2p"}, "POD_NAME must end with a"),
        ({"SERVICE": ""}, "variable SERVICE is missing"),
        ({"NAMESPACE": None}, "variable NAMESPACE is missing"),
        ({"WORKER_JOB": None}, "variable WORKER_JOB is missing"),
        ({"OUTPUT_DIR": None}, "variable OUTPUT_DIR is missing"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_ends_with_one_line(wrong, message, tmp_path):
    """Exit code 2, which plain.yaml does not try again; the script does not begin."""
    script = tmp_path / "script.py"
    script.write_text(SHOW)
    done = enter({**GOOD, **wrong}, script)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr


@pytest.mark.parametrize("arguments", [[], ["nowhere.py"]], ids=str)
def test_no_script_ends_with_one_line(arguments):
    done = enter(GOOD, *arguments)
    assert done.returncode == 2 and re.fullmatch(r".*: there is no script .*\n", done.stderr)


def test_no_pod_is_overlooked():
    """Catches two pods under one name here: the rights of the first would go unchecked."""
    lines = "".join(path.read_text() for path in MANIFESTS).splitlines()
    assert len(PODS) == sum(line.strip() == "containers:" for line in lines) >= 10


@pytest.mark.parametrize("path", PODS)
def test_containers_are_confined(path):
    """Catches a container with more rights than training needs, or with no limit."""
    pod = PODS[path]["spec"]
    assert pod["automountServiceAccountToken"] is False and pod["shareProcessNamespace"] is True
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True and context["seccompProfile"]["type"] == "RuntimeDefault"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert not any("hostPath" in volume for volume in volumes.values())
    assert pod["containers"] and "initContainers" not in pod
    for container in pod["containers"]:
        mine = container["securityContext"]
        assert mine == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = container["resources"]
        assert set(resources["requests"]) == set(resources["limits"]) == {"cpu", "memory"}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert mounts["/runs"]["persistentVolumeClaim"] == {"claimName": "runs"}
        assert "emptyDir" in mounts["/tmp"]


@pytest.mark.parametrize("name", sorted(set(WITH_PODS) - {"summary.yaml"}))
def test_only_pods_of_the_run_reach_its_ports(name):
    """Catches a policy that leaves a pod open, or lets another run's pods in."""
    (policy,) = documents(name, "NetworkPolicy")
    spec = policy["spec"]
    labels = spec["podSelector"]["matchLabels"]
    assert set(spec["podSelector"]) == {"matchLabels"} and labels
    assert spec["policyTypes"] == ["Ingress"]
    (rule,) = spec["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": labels}}]  # of this namespace
    for other, pods in WITH_PODS.items():
        for template in pods.values():
            of_pod = template.get("metadata", {}).get("labels", {})
            assert (labels.items() <= of_pod.items()) == (other == name), other
    if name != "mpijob.yaml":  # where the ranks choose their ports
        ports = {
            port["containerPort"]
            for template in WITH_PODS[name].values()
            for container in template["spec"]["containers"]
            for port in container["ports"]
        }
        assert rule["ports"] == [{"protocol": "TCP", "port": port} for port in ports]


def test_a_failed_task_starts_again_under_its_name():
    """Catches rules that Kubernetes refuses together, and a second chief beside the first."""
    jobs = [document["spec"] for document in documents("plain.yaml", "Job")]
    for runtime in documents("trainjob.yaml", "TrainingRuntime"):
        parts = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        jobs += [part["template"]["spec"] for part in parts]
    assert len(jobs) == 4
    for spec in jobs:
        assert spec["template"]["spec"]["restartPolicy"] == "Never"  # what the next two ask for
        assert spec["backoffLimitPerIndex"] > 0 and spec["maxFailedIndexes"] == 0
        fail, ignore = spec["podFailurePolicy"]["rules"]
        assert fail == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}
        assert ignore["action"] == "Ignore"
        assert ignore["onPodConditions"][0]["type"] == "DisruptionTarget"
        assert spec["podReplacementPolicy"] == "Failed"  # never two pods of one index
    (job,) = documents("tfjob.yaml", "TFJob")
    assert set(job["spec"]["tfReplicaSpecs"]) == {"Chief", "PS", "Worker", "Evaluator"}
    for replicas in job["spec"]["tfReplicaSpecs"].values():
        assert replicas["restartPolicy"] == "OnFailure"
        assert replicas["template"]["spec"]["containers"][0]["name"] == "tensorflow"


def test_the_image_has_what_the_manifests_name():
    """Catches a script, a flag, a user or a port that is another in the image."""
    image = (HERE / "Dockerfile").read_text()
    entry = json.loads(re.search(r"(?m)^ENTRYPOINT (\[.+\])$", image)[1])
    assert support.ROOT / entry[1].removeprefix("/repository/") == LAUNCH
    for source in re.findall(r"(?m)^COPY (\S+) ", image):
        assert (support.ROOT / source).exists(), source
    (user,) = set(re.findall(r"(?m)^USER ([1-9]\d*):\1$", image))
    assert f"useradd --uid {user} " in image
    for path, template in PODS.items():
        context = template["spec"]["securityContext"]
        assert str(context["runAsUser"]) == str(context["fsGroup"]) == user, path
        container = template["spec"]["containers"][0]
        if container.get("command", [])[:2] == ["tfrun", "evaluate"]:
            env = {variable["name"]: variable.get("value") for variable in container["env"]}
            assert container["command"][2:] == [env["OUTPUT_DIR"], "--follow"]
        if "command" not in container:
            script = support.ROOT / container["args"][0]
            for flag in container["args"][1:]:
                text = script.read_text()
                name = flag.removeprefix("--")
                assert flag.isdigit() or f'"{flag}"' in text or f'"{name}"' in text, flag
    (job,) = documents("mpijob.yaml", "MPIJob")
    sshd = dict(re.findall(r"(?m)^(\w+) (\S+)$", (HERE / "sshd_config").read_text()))
    roles = job["spec"]["mpiReplicaSpecs"]
    command = roles["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("--ssh-port") + 1] == sshd["Port"]
    assert int(command[command.index("-np") + 1]) == roles["Worker"]["replicas"]
    assert sshd["HostKey"] == job["spec"]["sshAuthMountPath"] + "/id_rsa"
    (claim,) = documents("volume.yaml")
    assert claim["metadata"]["name"] == "runs"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_page_names_what_is_there():
    """Catches a command of README.md with a file, a Job or a label that no manifest has."""
    page = (HERE / "README.md").read_text()
    files = set(re.findall(r"-f (\S+\.yaml)|`(\w+\.yaml)`", page))
    assert {a or b for a, b in files} - {"mine.yaml"} == {path.name for path in MANIFESTS}
    jobs = {job["metadata"]["name"] for path in MANIFESTS for job in documents(path.name, "Job")}
    assert set(re.findall(r" job/([\w-]+)", page)) == jobs
    labels = {
        template.get("metadata", {}).get("labels", {}).get("training-run")
        for template in PODS.values()
    }
    assert set(re.findall(r"-l training-run=(\S+)", page)) <= labels
    host, port = re.search(r" nc -w 3 (\S+) (\d+)", page).groups()
    assert (host, port) in {(host, env["PORT"]) for host, _, env in plain_pods()}


BROKEN = [
    ("plain.yaml", "maxFailedIndexes", "maxFailedIndex", "hogwild-ps.*maxFailedIndex'"),
    ("volume.yaml", "[ReadWriteMany]", "ReadWriteMany", "runs: spec.accessModes"),
    ("tfjob.yaml", "cleanPodPolicy", "cleanPods", "spec.runPolicy.*cleanPods"),
    ("tfjob.yaml", "replicas: 2", "replicas: two", "TFJob.*two"),
    ("trainjob.yaml", "numNodes:", "numberOfNodes:", "spec.mlPolicy.*numberOfNodes"),
    ("trainjob.yaml", "runtimeRef:", "runtimeReference:", "TrainJob hogwild-v2.*runtimeRef"),
    ("mpijob.yaml", "workingDir", "workDir", "mpiReplicaSpecs.Launcher.*workDir"),
]


@pytest.mark.long
def test_manifests_are_valid_by_the_published_schemas(tmp_path):
    """And the validators find a mistake in each kind: they do read what they call valid."""
    env = engines.environment("kubernetes")

    def validate(*paths):
        command = [sys.executable, HERE / "validate.py", *paths]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    done = validate()
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == sum(len(documents(path.name)) for path in MANIFESTS)
    copies = [tmp_path / f"broken-{number}.yaml" for number in range(len(BROKEN))]
    for copy, (name, old, new, _) in zip(copies, BROKEN):
        text = (HERE / name).read_text()
        assert old in text
        copy.write_text(text.replace(old, new, 1))
    done = validate(*copies)
    assert done.returncode == 1, done.stdout
    for copy, (_, _, new, message) in zip(copies, BROKEN):
        errors = [line for line in done.stderr.splitlines() if line.startswith(copy.name + ": ")]
        assert len(errors) == 1 and re.search(message, errors[0]), (new, done.stderr)
