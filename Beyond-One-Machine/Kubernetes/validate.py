"""Kubernetes: checks manifests against the published schemas; no cluster is needed.

    kinds of Kubernetes         the schemas of its release, strictly: no field that it does not know
    TFJob, TrainJob, runtimes   the models that Kubeflow publishes: a manifest is read into them and
                                written again, and a field that they do not know is then missing
    all others (MPIJob)         only the pods in them, as those of Kubernetes

Kind:          driver
Run:           bash validate.sh
"""

import json
import pathlib
import sys
import types

import yaml

HERE = pathlib.Path(__file__).resolve().parent


def against_kubernetes(document):
    """Returns the name of these schemas. Raises ValueError where one is not met."""
    import kubernetes_validate

    release = kubernetes_validate.latest_version()
    try:
        kubernetes_validate.validate(document, release, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        path = ".".join(map(str, getattr(error, "path", [])))
        raise ValueError(f"{path}: {error.message}") from None
    return "the schemas of Kubernetes " + release


def against_training_operator(document):
    """The same for a TFJob."""
    from kubeflow.training import ApiClient

    client, text = ApiClient(), types.SimpleNamespace(data=json.dumps(document))
    model = client.deserialize(text, "KubeflowOrgV1" + document["kind"])
    compare(document, client.sanitize_for_serialization(model))
    return "the models of kubeflow-training"


def against_trainer(document):
    """The same for a TrainJob and for runtimes."""
    from kubeflow_trainer_api import models

    model = getattr(models, "TrainerV1alpha1" + document["kind"]).from_dict(document)
    compare(document, model.to_dict())
    return "the models of kubeflow-trainer-api"


def compare(mine, theirs, path=""):
    """Raises ValueError at what is not the same in theirs; they may have defaults besides."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in mine:
            if name not in theirs:
                raise ValueError(f"{path}: there is no field {name!r}")
            compare(mine[name], theirs[name], path + "." + name)
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for number, (each, other) in enumerate(zip(mine, theirs)):
            compare(each, other, f"{path}.{number}")
    elif mine != theirs:
        raise ValueError(f"{path}: {mine!r} becomes {theirs!r}")


def pod_templates(part, path=""):
    """{path: the template of a pod} of all that are in a manifest."""
    found = {}
    if isinstance(part, dict) and "containers" in part.get("spec", {}):
        found[path] = part
    elif isinstance(part, (dict, list)):
        items = part.items() if isinstance(part, dict) else enumerate(part)
        for name, value in items:
            found.update(pod_templates(value, f"{path}.{name}"))
    return found


def validate(document):
    """Returns what a manifest was checked against. Raises ValueError on the first mistake."""
    group = document["apiVersion"].rpartition("/")[0]
    if not group.endswith("kubeflow.org"):
        return against_kubernetes(document)
    models, pods = None, []
    if group == "trainer.kubeflow.org":
        models = against_trainer(document)
    elif document["kind"] == "TFJob":
        models = against_training_operator(document)
    for path, template in pod_templates(document).items():
        pod = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "pod"},
            "template": template,
        }
        try:
            pods = ["its pods by " + against_kubernetes(pod)]
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return " and ".join(filter(None, [models, *pods])) + ("" if models else ", nothing else")


def main():
    mistakes = 0
    for path in map(pathlib.Path, sys.argv[1:] or sorted(HERE.glob("*.yaml"))):
        for document in filter(None, yaml.safe_load_all(path.read_text())):
            what = "{}: {} {}".format(path.name, document["kind"], document["metadata"]["name"])
            try:
                print(f"{what}: valid by {validate(document)}")
            except (ValueError, TypeError) as error:  # the models of Kubeflow raise both
                mistakes += 1
                print("{}: {}".format(what, " ".join(str(error).split())), file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
