"""What several tests use, from a module for each purpose; `import support` has all of it."""

from lab.examples import ROOT

from support.assertions import fails_comparison, within
from support.limits import PATIENCE, Limit, at_most, patience, wait_for_exit, wait_until
from support.parameters import BY_NIGHT, beyond_core, changed, core_first, mistakes
from support.processes import (
    ThreadCounts,
    command_line,
    is_running,
    listening_ports,
    ports_of,
    processes_of,
    program_of,
    safely,
    task,
    task_type,
    tf_config,
)
from support.runs import (
    PYTHONPATH,
    Run,
    begin,
    browser,
    environment,
    launch,
    newest_checkpoint,
    pushes,
    python,
    result,
    run_to_end,
    tfrun,
    warm_environment,
)
from support.scripts import (
    BUILD_SECONDS,
    ENGINES,
    SHAPES,
    build,
    counts_alone,
    engines,
    launchers,
    needs_build,
    ps_scripts,
    synchronous,
)
from support.zygotes import COLD, WARM, QuickCluster, Zygote, fork_server, run_well, warm
