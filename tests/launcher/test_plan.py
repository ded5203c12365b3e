"""tfrun plan: what it measures of a run, what it predicts from it, and what it refuses.

Every tolerance was written down before the run that it judges.
"""

import json

import numpy as np
import pytest
import run_files
from support import within
from tfrun.commands.plan import command
from tfrun.simulate import laws, plan, schemes

SEND, PULL, MINI = 0.004, 0.002, 0.07  # seconds of a push, of a pull, of a gradient


def run_of(n, is_synchronous, updates=1500, seed=1, law="exponential", T=1):
    """Returns (the rows {task: columns} of a simulated run, its mini-batches/s, its staleness)."""
    times = laws.step_times(law, n, updates, mean=MINI, seed=seed)
    if is_synchronous:
        trace = schemes.synchronous(times + SEND + PULL)
        begin = trace.pull + PULL
        end = np.array([trace.push[trace.step == s].max() for s in range(trace.step[-1] + 1)])
        end = end[trace.step]
    else:
        trace = schemes.asynchronous(times + SEND, pause=PULL)
        begin, end = trace.pull, trace.push
    rows = {}
    for k in range(n):
        mine = trace.worker == k
        computed = times[: mine.sum(), k]
        rows[f"worker-{k}"] = {
            "push_time": end[mine],
            "pull_time": begin[mine],
            "wait_seconds": end[mine] - begin[mine] - computed,
            "global_step": trace.step[mine] + 1.0,
            "bytes": np.full(mine.sum(), 2e5),
            "local_steps": np.full(mine.sum(), float(T)),
        }
    return rows, schemes.rate(trace) * T, schemes.staleness(trace).mean()


def test_a_plan():
    """From two workers' rows: 8 and 16, as simulated from the law itself; links by hand.

    Catches: waits in a gradient's time, a median wait for the way of a push, both directions
    on one link, and updates that count as mini-batches.
    """
    for is_synchronous in (False, True):
        what = "together" if is_synchronous else "asynchronous"
        rows, *_ = run_of(2, is_synchronous)
        run = plan.measure_run(rows, 1)
        assert run.together == is_synchronous, f"\nplan, {what}: taken for the other"
        within(f"plan, {what}, a gradient", MINI, run.compute.mean(), 0.04)
        within(f"plan, {what}, a push", SEND, run.send, 0.01)
        within(f"plan, {what}, a pull", PULL, run.pull, 0.01)
        for n in (8, 16):
            _, rate, late = run_of(n, is_synchronous, 800, seed=9)
            predicted = plan.predict(run, n)
            within(f"plan, {what}, {n} workers", rate, predicted["rate"][1], 0.05)
            assert predicted["rate"][0] <= predicted["rate"][1], (
                f"\nplan, {what}, lowest: {predicted}"
            )
            within(f"plan, {what}, shares", 1, sum(predicted["shares"].values()), 0.02)
            if not is_synchronous:
                within(f"plan, {what}, staleness", late, predicted["staleness"][1], 0.05)
    rows, *_ = run_of(2, False, law="constant")
    run = plan.measure_run(rows, 1)
    # A link of 1 MB/s each way: the ps takes 0.1 s for a push, whatever the workers do.
    within("plan, a slow link", 10, plan.predict(run, 64, 1e6)["rate"][1], 0.01)
    within("plan, two ps", 20, plan.predict(run._replace(servers=2), 64, 1e6)["rate"][1], 0.01)
    ten = run._replace(batches=10)
    within("plan, mini-batches", 100, plan.predict(ten, 64, 1e6)["rate"][1], 0.01)
    changed = plan.first_to_change(run, 64, 1e6)
    assert list(changed)[0] == "ten times the local steps", f"\nplan, to change first: {changed}"
    four = plan.measure_run(run_of(4, True)[0], 1)
    within("plan, a push of four", SEND, four.send, 0.01)
    # Without a ps: 100 KB on a link with four workers are 3/2 of w; 16 send 15/8 of it.
    ring = plan.measure_run(run_of(4, True, law="constant")[0], 0)
    link = 15 / 8 * (1e5 / 1.5) / 1e5 + 30 * 0.01
    predicted = plan.predict(ring, 16, 1e5, 0.01)["rate"]
    within("plan, a ring", 16 / (MINI + SEND + PULL + link), predicted[1], 0.01)
    within("plan, a ring's messages", 16 / (MINI + 5 * (SEND + PULL) + link), predicted[0], 0.01)
    one = plan.predict(run, 1)
    within("plan, one worker", 1 / (MINI + SEND + PULL), one["rate"][1], 0.02)
    assert one["staleness"] == [0, 0], f"\nplan, one worker: {one}"
    slow = plan.predict(run._replace(lead=1, compute=np.array([0.05, 0.1])), 16)
    fast = plan.predict(run._replace(lead=9, compute=np.array([0.05, 0.1])), 16)
    assert slow["rate"][1] < 0.85 * fast["rate"][1], f"\nplan, a bound: {slow}, {fast}"
    assert plan.quantity("10Gbit/s", plan.BANDWIDTH) == 1.25e9
    assert plan.quantity("1.5 MB/s", plan.BANDWIDTH) == 1.5e6
    assert plan.quantity("0.1ms", plan.LATENCY) == pytest.approx(1e-4)


def plan_of(capsys, *arguments):
    """Returns (exit code, output, errors) of tfrun plan."""
    try:
        code = command([str(argument) for argument in arguments])
    except SystemExit as error:
        code = error.code
    return code, *capsys.readouterr()


def write_run(folder, rows):
    """Writes the metrics of {task: {column: array}}."""
    for task, columns in rows.items():
        lines = [
            run_files.push(p, s, pull_time=q, wait_seconds=w, bytes=b)
            for p, q, w, s, b in zip(
                *(
                    columns[c]
                    for c in ("push_time", "pull_time", "wait_seconds", "global_step", "bytes")
                )
            )
        ]
        run_files.metrics(folder, task, *lines)


@pytest.mark.parametrize("name, is_synchronous", [("backup_workers", True), ("max_lead", False)])
def test_a_plan_reads_the_flags_of_its_run(name, is_synchronous, tmp_path, capsys):
    """Catches a flag that counts for nothing, and one that is needed: other scripts have none."""
    rates = []
    write_run(tmp_path, run_of(4, is_synchronous)[0])
    for flags in {}, {name: 0}, {name: 1}:
        run_files.flags(tmp_path, arguments={"steps": 6, **flags})
        code, output, _ = plan_of(capsys, tmp_path, "--workers", "8", "--json")
        assert code == 0
        rates.append(json.loads(output)["rate"])
    assert rates[0] == rates[1] != rates[2]


def test_the_command(tmp_path, capsys):
    """Catches numbers that are not the simulator's, a plan without what it assumes."""
    run_files.flags(tmp_path)
    rows, *_ = run_of(2, False)
    write_run(tmp_path, rows)
    predicted = plan.predict(plan.measure_run(rows, 1), 16, 1.25e9, 1e-4)
    more = ("--workers", "16", "--bandwidth", "10Gbit/s", "--latency", "0.1ms")
    code, output, _ = plan_of(capsys, tmp_path, *more, "--json")
    given = json.loads(output)
    assert code == 0 and given["rate"] == pytest.approx(predicted["rate"], rel=1e-3)
    assert len(given["to_change"]) == 6
    code, output, _ = plan_of(capsys, tmp_path, *more)
    assert code == 0 and [line.split(":")[0].split()[0] for line in output.splitlines()] == [
        "measured",
        "assumed",
        "simulated",
        "a",
        "to",
    ]
    assert f"16 workers make {predicted['rate'][0]:,.1f} to {predicted['rate'][1]:,.1f}" in output
    assert "10Gbit/s and 0.1ms on top" in output


@pytest.mark.parametrize(
    "flags",
    [("--workers", "0"), ("--workers", "two"), ("--bandwidth", "fast"), ("--latency", "-1ms"), ()],
)
def test_what_the_command_refuses(flags, tmp_path, capsys):
    run_files.flags(tmp_path)
    run_files.metrics(
        tmp_path, "worker-0", *(run_files.push(10 + i, i) for i in range(1, 3 + 40 * bool(flags)))
    )
    code, output, errors = plan_of(capsys, tmp_path, *flags)
    assert code and not output and errors.startswith("tfrun: ") and errors.count("\n") == 1
