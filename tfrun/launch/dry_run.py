"""The bash script that does what a run would do: the plain commands behind tfrun."""

import json
import os
import pathlib
import shlex
from collections.abc import Iterable, Mapping

import jinja2

from tfrun import problems
from tfrun.launch import cluster, resources
from tfrun.runs import run_directory

TEMPLATE = pathlib.Path(__file__).with_name("dry_run.sh.jinja")


def script(
    jobs: Mapping[str, int],
    command: list[str],
    example: str,
    shares: Mapping[tuple[str, int], resources.Share],
    variables: Iterable[tuple[str | None, str, str]],
    evaluate: bool,
    problem_copy: problems.ProblemCopy | None,
) -> str:
    """Returns a bash script that starts the tasks, waits for them, and stops what is left.

    The ports are free when the script is written; nobody holds them until it runs. Without jobs
    `command` is all that is started. shares, variables: as cluster.environments takes them; nobody
    watches the memory there. evaluate: the evaluator runs `tfrun evaluate`, not the command.
    problem_copy: of problems.make_copy().
    """
    words, files = problems.as_bash(problem_copy, command)
    new = f"{run_directory.base(example)}/$(date +%Y-%m-%d_%H-%M-%S)"
    ports = cluster.free_ports(len(cluster.tasks(jobs)))
    addresses, tasks = cluster.addresses(jobs, ports), []
    for job, index in cluster.tasks(jobs):
        share = shares[job, index]
        env = {name: value for role, name, value in variables if role in (None, job)}
        if job == "ps" or share.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus or []) or "-1"
        env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": job, "index": index}})
        program = words
        if evaluate and job == "evaluator":
            program = 'tfrun evaluate "$OUTPUT_DIR" --follow'
        if share.cpus:
            program = f"taskset -c {','.join(map(str, share.cpus))} {program}"
        text = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
        tasks.append({"job": job, "index": index, "variables": text, "program": program})
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return template.render(
        example=example,
        folder=shlex.quote(os.getcwd()),
        directory=os.environ.get("OUTPUT_DIR") or new,
        steps=run_directory.steps_asked_for(command),
        finished=run_directory.FINISHED.format("$OUTPUT_DIR"),
        tasks=tasks,
        chief="chief" if "chief" in jobs else "worker",
        command=words,
        files=files,
    )
