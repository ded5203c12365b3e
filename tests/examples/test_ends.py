"""The end of a run: no update after the last, nobody waits for who is done, or leaves too early."""

import in_process
import problem
import pytest
import support
from lab import examples
from tfrun.runs.data import RunData

BOUNDED = "Further-Algorithms/Bounded-Staleness/bounded_staleness.py"
STEPS = 60
# Of the copies: the last worker is slow, on two ps between its ticket and the end of its push. The
# others are so slow that it takes part, and each wait for others that ends without them is told.
SLOW = """
def slowly(tensor):
    config = json.loads(os.environ["TF_CONFIG"])
    is_last = config["task"]["index"] == len(config["cluster"]["worker"]) - 1
    wait = lambda x: (time.sleep(LATE if is_last else EARLY), x)[1]
    return tf.ensure_shape(tf.numpy_function(wait, [tensor], tensor.dtype), tensor.shape)


"""
TICKETS = "ticket = tf.count_up_to(step, flags.steps)", "ticket, version = counts[0], counts[-1]"
SLOW_TICKETS = (
    "ticket = slowly(tf.count_up_to(step, flags.steps))",
    "ticket, version = slowly(counts[0]), counts[-1]",
)
GRADIENTS = (
    "        return mean, tf.gradients(mean, w)\n",
    "        return mean, tape.gradient(mean, w)\n",
)
BEGINS = "def algorithm(", "def server("  # the first function of a script
WAIT = "            if fault:\n"
TOLD = '            print("in vain", seconds)\n' + WAIT
RUNS = {  # (an example, its workers, its ps): flags
    ("HogWild/hogwild.py", 3, 2): [],
    ("From-TensorFlow-1/HogWild-Sessions/hogwild_sessions.py", 3, 2): [],
    ("Synchronous-SGD/synchronous_sgd.py", 3, 1): ["--backup-workers", "1"],
    ("From-TensorFlow-1/Synchronous-SGD-Optimizer/synchronous_sgd_optimizer.py", 3, 1): [
        "--backup-workers",
        "1",
    ],
    (BOUNDED, 3, 1): ["--max-lead", "2"],
    ("SAGN/sagn.py", 2, 1): ["--local-steps", "2"],
    ("Further-Algorithms/Local-SGD/local_sgd.py", 3, 1): ["--local-steps", "2"],
    ("Further-Algorithms/DiLoCo/diloco.py", 2, 1): ["--local-steps", "2"],
}


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run[0].split("/")[-1])
def test_the_chief_tests_after_the_last_push_and_all_end(run, tmp_path):
    """The last worker is slow.

    Catches a chief that waits for itself, or for some only, a wait for one who never comes, and a
    ps that ends while a worker still needs it.
    """
    (name, workers, ps), folder = run, tmp_path
    path, text = folder / name.split("/")[-1], (support.ROOT / name).read_text()
    if ps == 2:
        (slow,) = ((old, new) for old, new in zip(TICKETS, SLOW_TICKETS) if old in text)
    else:
        (gradient,) = (line for line in GRADIENTS if line in text)
        slow = gradient, gradient.replace("mean, t", "slowly(mean), t")
    (first,) = (function for function in BEGINS if function in text)
    seconds = "OPTIONAL_WAIT_SECONDS = %d"
    wait = (seconds % 30, seconds % support.patience(8))
    late, early = ("0.4", "0.03") if ps == 2 else ("0.1", "0")
    slowly = SLOW.lstrip().replace("LATE", late).replace("EARLY", early)
    begins = first, slowly + first
    path.write_text(examples.replaced(text, [slow, (WAIT, TOLD), wait, begins]))
    with support.QuickCluster(ps=ps, tasks=ps + workers) as quick:
        quick.seconds = round(support.patience(40))
        flags = ["--steps", str(STEPS), *RUNS[run]]
        codes, output = quick.run(path, folder / "run", *flags, workers=workers)
    assert not any(codes), f"codes: {codes}\n{output}"
    data = RunData.read(folder / "run")
    rows = support.pushes(folder / "run")
    steps = [int(row["global_step"]) for row in rows]
    if support.counts_alone(support.ROOT / name) and "backup" not in str(RUNS[run]):
        assert sorted(steps) == sorted([*range(1, STEPS + 1)] * workers), f"steps: {steps}"
    elif "synchronous" in name:
        assert set(range(1, STEPS + 1)) <= set(steps), f"steps: {steps}"
    else:
        assert sorted(steps) == [*range(1, STEPS + 1)], f"steps: {steps}"
    last = data.rows("tests", "worker-0")[-1]
    assert last["global_step"] == STEPS, f"steps: the last test is at {last['global_step']}"
    late = max(row["push_time"] for row in rows) - last["pull_time"]
    assert late < 0, f"test: it begins {late:.3f} s before the last push"
    assert support.newest_checkpoint(folder / "run").endswith(f"-{STEPS}")
    assert "in vain" not in output, f"waits: {output}"


EXCHANGE = "        out, into = memoryview("
LATE = "        time.sleep(0.02 * (self.rank == self.n - 1))\n"
RINGS = [
    pytest.param(name, n, marks=[] if n == 3 and "Sharded" not in name else [pytest.mark.long])
    for name in ("Ring-AllReduce", "Further-Algorithms/Sharded-Training")
    for n in (2, 3, 4)
]


@pytest.mark.parametrize("name, n", RINGS)
def test_a_ring_ends(name, n, tmp_path):
    """The last worker is late in every exchange.

    Catches a worker that leaves while a neighbour still waits for what another one sends.
    """
    script, folder = examples.main_script(name), tmp_path
    path = folder / script.name
    path.write_text(examples.replaced(script, [(EXCHANGE, LATE + EXCHANGE)]))
    with support.QuickCluster(ps=0, tasks=n) as quick:
        codes, output = quick.run(path, folder / "run", "--steps", "12", workers=n)
    assert not any(codes), f"codes: {codes}\n{output}"
    rows = support.pushes(folder / "run")
    for k in range(n):
        steps = [int(row["global_step"]) for row in rows if row["task"] == f"worker-{k}"]
        assert steps == [*range(1, 13)], f"steps: {steps}"


def test_who_is_ahead_does_not_wait_after_the_last_update():
    """Catches a bound that holds on when no update is left, for a worker that has gone."""
    script = support.ROOT / BOUNDED
    flags = problem.command_line({"steps": 3, "max_lead": 1})
    with in_process.Workers(script, 2, flags) as workers:
        one, two = workers
        for worker in workers:  # both are known before any has pushed
            worker.script.ask_first(worker.ps, "lead")
        for worker in one, two, one:
            worker.push()
        lead = int(one.script.ask_first(one.ps, "lead"))
    assert lead == 0
