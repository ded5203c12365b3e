"""The bash script that does what a run would do: the plain commands behind tfrun."""

import json
import os
import shlex

from tfrun.launch import cluster, resources
from tfrun.runs import run_directory


def script(jobs, command, example, shares=None, more_env=(), evaluate=False):
    """A bash script that starts the tasks, waits for them, and stops what is left.

    The ports are free when the script is written; nobody holds them until it runs. Without jobs
    `command` is all that is started. shares, more_env: as cluster.environments takes them; nobody
    watches the memory there. evaluate: the evaluator runs `tfrun evaluate`, not the command.
    """
    ports, held = cluster.hold_ports(len(cluster.tasks(jobs)))
    for s in held:
        s.close()
    addresses = cluster.addresses(jobs, ports)
    steps = run_directory.steps_asked_for(command)
    made = '$(grep -m 1 \'"steps":\' "$OUTPUT_DIR/result.json" | tr -dc 0-9)'
    enough = "true" if steps is None else f'[ "{made}" -ge {steps} ]'
    run = os.environ.get(
        "OUTPUT_DIR"
    ) or "%s/$(date +%%Y-%%m-%%d_%%H-%%M-%%S)" % run_directory.base(example)
    lines = [
        "#!/usr/bin/env bash",
        "# %s, as tfrun would start it: save these lines and run them with bash." % example,
        "set -euo pipefail",
        "cd %s" % shlex.quote(os.getcwd()),
        'export OUTPUT_DIR="${OUTPUT_DIR:-%s}"' % run,
        'if [ -e "$OUTPUT_DIR/result.json" ] && %s; then' % enough,
        '    echo "%s"' % run_directory.FINISHED.format("$OUTPUT_DIR"),
        "    exit 0",
        "fi",
        'mkdir -p "$OUTPUT_DIR"',
        "",
    ]
    end = [
        'echo "run: $OUTPUT_DIR"',
        "# result.json, from what the tasks have left; without tfrun it can be made later.",
        'if command -v tfrun > /dev/null; then tfrun summary "$OUTPUT_DIR"; fi',
    ]
    if not jobs:  # the command starts the workers itself
        return "\n".join([*lines, shlex.join(command), *end]) + "\n"
    lines += [
        "servers=() workers=()",
        'trap \'kill "${servers[@]}" "${workers[@]}" 2>/dev/null || true\' EXIT',
        "",
    ]
    for job, index in cluster.tasks(jobs):
        config = json.dumps({"cluster": addresses, "task": {"type": job, "index": index}})
        share = (shares or {}).get((job, index), resources.NO_LIMIT)
        env = {name: value for role, name, value in more_env if role in (None, job)}
        if job == "ps" or share.gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(share.gpus or []) or "-1"
        own = "".join("%s=%s " % (name, shlex.quote(value)) for name, value in env.items())
        program = shlex.join(command)
        if evaluate and job == "evaluator":
            program = 'tfrun evaluate "$OUTPUT_DIR" --follow'
        pin = "taskset -c %s " % ",".join(map(str, share.cpus)) if share.cpus else ""
        lines += [
            "%sTF_CONFIG=%s \\" % (own, shlex.quote(config)),
            "    " + pin + '%s > "$OUTPUT_DIR/%s-%d.log" 2>&1 &' % (program, job, index),
            "%s+=($!)" % ("servers" if job == "ps" else "workers"),
            "",
        ]
    lines += [
        "# The chief and the workers end by themselves; the first that fails ends the script.",
        'for worker in "${workers[@]}"; do wait "$worker"; done',
        "# So do the ps, once all workers have said that they are done.",
        'for server in ${servers[@]+"${servers[@]}"}; do wait "$server"; done',
        "servers=() workers=()",
        'tail -n 1 "$OUTPUT_DIR/%s-0.log"' % ("chief" if "chief" in jobs else "worker"),
        *end,
    ]
    return "\n".join(lines) + "\n"
