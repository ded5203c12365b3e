"""What several tests use, from a module for each purpose; `import support` has all of it.

Which way of running something a new test takes, the cheapest first:

- in_process: a script's own functions, called in this process in the order that the test decides;
  for an equation, and for what a ps does. interleaved: the same for scripts with sessions.
- scripted: tasks that follow a script of the test, under tfrun's own Run and a clock of the test;
  for what tfrun prints and does, and when.
- run_files: a run directory made by hand; for what tfrun concludes from one.
- QuickCluster: real tasks, forked from a process that has imported TensorFlow; for what needs
  ports, files or several processes.
- launch: a whole run.sh; for what only a user's command shows.
"""

from lab.examples import ROOT

from support.assertions import fails_comparison, within
from support.limits import PATIENCE, Limit, at_most, patience, wait_for_exit, wait_until
from support.parameters import (
    BY_NIGHT,
    beyond_core,
    changed,
    core_first,
    mistakes,
    some_in_core,
)
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
