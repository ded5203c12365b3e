"""The bash script that does what a run would do: the plain commands behind tfrun."""

import json
import os
import shlex

from tfrun.launch import cluster
from tfrun.runs import run_directory

REACHED = """[ "$(grep -m 1 '"steps":' "$OUTPUT_DIR/result.json" | tr -dc 0-9)" -ge {} ]"""


def script(jobs, command, example, shares, variables, evaluate) -> str:
    """Returns a bash script that starts the tasks, waits for them, and stops what is left.

    The ports are free when the script is written; nobody holds them until it runs. Without jobs
    `command` is all that is started. shares, variables: as cluster.environments takes them; nobody
    watches the memory there. evaluate: the evaluator runs `tfrun evaluate`, not the command.
    """
    steps = run_directory.steps_asked_for(command)
    reached = "true" if steps is None else REACHED.format(steps)
    new = f"{run_directory.base(example)}/$(date +%Y-%m-%d_%H-%M-%S)"
    # Without jobs the command starts the workers itself.
    lines = tasks(jobs, command, shares, variables, evaluate) if jobs else [shlex.join(command)]
    work = "\n".join(lines)
    return f"""#!/usr/bin/env bash
# {example}, as tfrun would start it: save these lines and run them with bash.
set -euo pipefail
cd {shlex.quote(os.getcwd())}
export OUTPUT_DIR="${{OUTPUT_DIR:-{os.environ.get("OUTPUT_DIR") or new}}}"
if [ -e "$OUTPUT_DIR/result.json" ] && {reached}; then
    echo "{run_directory.FINISHED.format("$OUTPUT_DIR")}"
    exit 0
fi
mkdir -p "$OUTPUT_DIR"

{work}
echo "run: $OUTPUT_DIR"
# result.json, from what the tasks have left; without tfrun it can be made later.
if command -v tfrun > /dev/null; then tfrun summary "$OUTPUT_DIR"; fi
"""


def tasks(jobs, command, shares, variables, evaluate):
    """Yields the lines that start the tasks and wait for them; for the rest see script()."""
    ports, held = cluster.hold_ports(len(cluster.tasks(jobs)))
    for s in held:
        s.close()
    addresses = cluster.addresses(jobs, ports)
    yield "servers=() workers=()"
    yield """trap 'kill "${servers[@]}" "${workers[@]}" 2>/dev/null || true' EXIT"""
    yield ""
    for job, index in cluster.tasks(jobs):
        share = shares[job, index]
        env = {name: value for role, name, value in variables if role in (None, job)}
        if job == "ps" or share.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus or []) or "-1"
        env["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": {"type": job, "index": index}})
        program = shlex.join(command)
        if evaluate and job == "evaluator":
            program = 'tfrun evaluate "$OUTPUT_DIR" --follow'
        if share.cpus:
            program = f"taskset -c {','.join(map(str, share.cpus))} {program}"
        yield " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items()) + " \\"
        yield f'    {program} > "$OUTPUT_DIR/{job}-{index}.log" 2>&1 &'
        yield f"{'servers' if job == 'ps' else 'workers'}+=($!)"
        yield ""
    yield "# The chief and the workers end by themselves; the first that fails ends the script."
    yield 'for worker in "${workers[@]}"; do wait "$worker"; done'
    yield "# So do the ps, once all workers have said that they are done."
    yield 'for server in ${servers[@]+"${servers[@]}"}; do wait "$server"; done'
    yield "servers=() workers=()"
    yield f'tail -n 1 "$OUTPUT_DIR/{"chief" if "chief" in jobs else "worker"}-0.log"'
