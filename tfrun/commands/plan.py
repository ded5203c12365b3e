"""`tfrun plan RUN`: what more workers would do, simulated from what this run has measured."""

import json
import math

from tfrun.arguments import fail
from tfrun.commands.common import directory_of, parser
from tfrun.runs import run_directory
from tfrun.runs.data import RunData
from tfrun.simulate import plan


def command(arguments: list[str]) -> int:
    """Prints the plan; returns the exit code."""
    options = parser("plan", __doc__)
    options.add_argument("--workers", type=int, default=64, metavar="N", help="(%(default)s)")
    text = "of each link, like 10Gbit/s or 0.1ms, on top of what the run took (nothing)"
    options.add_argument("--bandwidth", metavar="RATE", help=text)
    options.add_argument("--latency", default="0s", metavar="TIME", help=text)
    flags = options.parse_args(arguments)
    try:
        data = RunData.read(directory_of(flags.run)).without_pauses()
        pushes = {task: m.pushes for task, m in data.tasks.items() if m.pushes["push_time"].size}
        facts = data.flags or {"ps": 1, "arguments": {}}
        backups, lead = (facts["arguments"].get(name, 0) for name in ("backup_workers", "max_lead"))
        kind = run_directory.kind_of(facts.get("script", ""))
        run = plan.measure_run(pushes, facts["ps"], backups, lead, kind)
        B = plan.quantity(flags.bandwidth, plan.BANDWIDTH) if flags.bandwidth else math.inf
        case = run, flags.workers, B, plan.quantity(flags.latency, plan.LATENCY)
        prediction, gains = plan.predict(*case), plan.first_to_change(*case)
    except (OSError, ValueError) as error:
        return fail(error, 1)
    link = f"links of {flags.bandwidth or 'any speed'} and {flags.latency} on top"
    lines = plan.report_lines(run, data.example, flags.workers, prediction, gains, link)
    print(json.dumps({**prediction, "to_change": gains}) if flags.json else "\n".join(lines))
    return 0
