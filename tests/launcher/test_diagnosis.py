"""What each rule of tfrun doctor says, whole, and the facts behind it, against numbers by hand.

test_doctor.py has their thresholds in runs made by hand.
"""

import dataclasses
import json
import math

import numpy as np
import pytest
import run_files
from tfrun.diagnosis import facts, gains, rules, usage
from tfrun.diagnosis.usage import TaskUsage, Use
from tfrun.runs.data import RunData
from tfrun.simulate.plan import MeasuredRun

GAIN = 1.25  # what the model says of each change here


def worker(name="worker-0", n=100, compute=0.02, way=0.004, waiting=0.0, late=0.0, **changes):
    """Returns a Worker whose updates take such times; late: the share of dropped gradients."""
    own = {
        "name": name,
        "compute": np.full(n, compute),
        "way": np.full(n, way),
        "waiting": np.full(n, waiting),
        "late": np.arange(n) < late * n,
        **{"testing": 0.0, "tests": 0, "longest_test": 0.0, "silent": 0.0, "silent_alone": 0.0},
        **{"there": 30.0, "last": 1030.0, "use": Use(0.8, 0.05, 2.0), "stopped": 0.0},
        **{"in_python": 0.0, "function": ""},
    }
    return facts.Worker(**{**own, **changes})


def known(*workers, **changes):
    """Returns Facts of a run of 30 s that nothing limits."""
    own = facts.Facts(
        workers=list(workers) or [worker(), worker("worker-1")],
        servers=1,
        together=False,
        begin=1000.0,
        end=1030.0,
        usual=0.025,
        quiet=0.0,
        stalled=0.0,
        state="running",
        seconds=40.0,
        starts={},
        ps_use=Use(0.3, 0.02, 2.0),
        ps_stopped=0.0,
        cores=2.0,
        machine_cores=8.0,
        all_cores=1.0,
        run_cores=1.0,
        recent_cores=0.2,
        has_gpus=False,
        bytes=102400.0,
        local_steps=1.0,
        losses=np.linspace(1, 0.2, 200),
        staleness=0.0,
        steps=500.0,
        arguments={"steps": 1000, "learning_rate": 0.1},
        example="HogWild",
        kind="parameter server, asynchronous",
        stopped_tasks=[],
        rows={},
    )
    return dataclasses.replace(own, **changes)


@pytest.fixture
def changed(monkeypatch):
    """Returns what rules ask the model: a list of the changed runs, or of their arguments."""
    run = MeasuredRun(2, 1, False, np.array([1.0, 3.0]), 4.0, 8.0, 100.0, 5.0)
    asked = []

    def of_change(_, change):
        asked.append(change(run))
        return GAIN

    def note(_, *arguments):
        asked.append(arguments)
        return GAIN

    monkeypatch.setattr(gains, "of_change", of_change)
    for name in "of_speed", "of_workers", "of_equal_workers":
        monkeypatch.setattr(gains, name, note)
    return asked


def test_nothing():
    """Catches a rule that always speaks."""
    assert rules.findings(known()) == []
    assert rules.findings(known(facts.Worker(**vars(worker(n=0))))) == []


STOPPED = {"stopped_tasks": ["ps-0", "worker-1"]}
LOOK = "look at the stacks of its tasks, and at the last lines of `tfrun logs`"


@pytest.mark.parametrize(
    "changes, evidence, change",
    [
        ({"quiet": 10.0}, None, None),
        ({"quiet": 20.0}, "no update for 20 s, where a worker usually makes one in 25 ms", LOOK),
        ({"quiet": 20.0, "state": "done"}, None, None),
        ({"quiet": 20.0, "recent_cores": 0.4}, None, None),
        ({"quiet": 20.0, "usual": 1.1}, None, None),
        (
            {"quiet": 20.0, **STOPPED},
            "no update for 20 s, where a worker usually makes one in 25 ms; ps 0, worker 1 are "
            "stopped by a signal",
            "let ps 0 go on: kill -CONT its process",
        ),
        ({"stalled": 7.4}, None, None),
        (
            {"stalled": 7.5, "state": "done"},
            "all workers stood still for 7.5 s of 30 s, where a worker usually makes one in 25 ms",
            LOOK,
        ),
        (
            {"stalled": 9.0, "ps_stopped": 0.1, "stopped_tasks": ["ps-0"]},
            "all workers stood still for 9 s of 30 s, where a worker usually makes one in 25 ms; "
            "ps 0 is stopped by a signal; a signal had stopped a ps",
            "let ps 0 go on: kill -CONT its process",
        ),
    ],
)
def test_a_hang(changes, evidence, change):
    """Catches: another time, task or clause, and a word of what did not happen."""
    due = rules.Finding("a hang", evidence, change) if evidence else None
    assert rules.hang(known(**changes)) == due


def test_a_hang_after_a_long_test():
    """Catches a chief whose next test takes a little longer than its longest."""
    tested = worker(longest_test=9.0)
    assert rules.hang(known(tested, worker("worker-1"), quiet=26.9)) is None
    assert rules.hang(known(tested, worker("worker-1"), quiet=27.1)) is not None


@pytest.mark.parametrize(
    "changes, speaks",
    [
        ({}, True),
        ({"steps": 1.0}, False),
        ({"seconds": 30.0}, False),
        ({"recent_cores": 0.1}, False),
        ({"state": "done"}, False),
        ({"workers": []}, True),
    ],
)
def test_a_hang_from_the_start(changes, speaks):
    """Catches a run that has just begun, that computes, or that has ended."""
    idle = {"workers": [worker(n=0)], "steps": 0.0, "seconds": 95.0, "recent_cores": 0.05}
    finding = rules.hang(known(**{**idle, **changes}))
    evidence = "no update since the start, 2 min ago, and no task computes"
    assert finding == (rules.Finding("a hang", evidence, LOOK) if speaks else None)


@pytest.mark.parametrize(
    "own, evidence, change, gain",
    [
        (
            {"late": 0.8},
            "80% of its gradients came too late for their step",
            "train without this worker, or find out why it is slower than the others",
            None,
        ),
        ({"late": 0.79}, None, None, None),
        ({"late": 1.0, "n": 9}, None, None, None),
        (
            {"n": 0, "there": 7.5},
            "it has made no update, and the others 200",
            "look at its log: did it start late, or is it waiting for something?",
            GAIN,
        ),
        ({"n": 0, "there": 7.4}, None, None, None),
        (
            {"silent_alone": 7.5},
            "it made no update in 7.5 s of 30 s, while the others went on",
            "look at its log: has it ended, or is it waiting for something?",
            None,
        ),
        ({"silent_alone": 7.4}, None, None, None),
        (
            {"silent_alone": 8.0, "stopped": 0.2},
            "it made no update in 8 s of 30 s, while the others went on; a signal had stopped its "
            "process",
            "let it go on: kill -CONT its process",
            None,
        ),
    ],
)
def test_an_idle_worker(own, evidence, change, gain, changed):
    """Of three. Catches: its own updates as others', and a gain of another number of workers."""
    of_run = known(worker(), worker("worker-1", **own), worker("worker-2"))
    limit = "a worker that does nothing: worker 1"
    due = rules.Finding(limit, evidence, change, gain) if evidence else None
    assert rules.idle_worker(of_run) == due
    assert changed == ([(3,)] if gain else [])


def test_an_idle_worker_among_few_updates():
    """Catches a worker that begins a moment after the others, and one alone in an empty time."""
    idle = worker("worker-1", n=0)
    assert rules.idle_worker(known(worker(n=19), idle)) is None
    assert rules.idle_worker(known(worker(n=20), idle)) is not None
    assert rules.idle_worker(known(worker(), begin=5.0, end=5.0)) is None


@pytest.mark.parametrize(
    "losses, changes, limit, evidence, change",
    [
        (
            [1, 0.4, 0.7],
            {},
            "a learning rate too high",
            "the loss began at 1, was at 0.4, and is at 0.7 with --learning-rate 0.1",
            "lower the learning rate",
        ),
        (
            [1, 0.4, 0.7],
            {"staleness": 1.5, "arguments": {}},
            "a learning rate too high for the staleness",
            "the loss began at 1, was at 0.4, and is at 0.7, at a mean staleness of 1.5",
            "lower the learning rate, first by 1 + staleness, 2.5; fewer workers are less late",
        ),
        (
            [1, math.nan],
            {"staleness": 0.3},
            "a learning rate too high",
            "the loss is no number any more with --learning-rate 0.1, at a mean staleness of 0.3",
            "lower the learning rate",
        ),
        # It rose to four times the first loss, and most of that is left.
        (
            [0.5, 2.5, 0.45],
            {},
            "a learning rate too high",
            "the loss began at 0.5, was at 0.45, and is at 0.45 with --learning-rate 0.1; "
            "meanwhile it was 2.5",
            "lower the learning rate",
        ),
        ([0.5, 1.4, 0.45], {"steps": 1.0}, None, None, None),
        # It hardly moves. A high rate has lost its way, unless the loss still falls.
        (
            [1, 0.95, 0.95],
            {},
            "a learning rate too low",
            "the loss began at 1, was at 0.95, and is at 0.95 with --learning-rate 0.1, after 500 "
            "updates",
            "raise it, for example to ten times",
        ),
        (
            [1, 1.01, 0.99, 1.01, 0.99, 1.01, 1],
            {"arguments": {"steps": 1000, "learning_rate": 0.5}},
            "a learning rate too high",
            "the loss began at 1, was at 0.99, and is at 1 with --learning-rate 0.5, after 500 "
            "updates",
            "lower the learning rate",
        ),
        (
            np.linspace(1, 0.92, 20),
            {"arguments": {"steps": 1000, "learning_rate": 0.5}},
            "a learning rate too low",
            "the loss began at 1, was at 0.92, and is at 0.92 with --learning-rate 0.5, after 500 "
            "updates",
            "raise it, for example to ten times",
        ),
        ([1, 0.95, 0.95], {"steps": 499.0}, None, None, None),
        ([1, 0.95, 0.95], {"arguments": {}}, None, None, None),
        ([-1, -0.5, -0.2], {}, None, None, None),
        ([1, 0.6, 0.4], {}, None, None, None),
    ],
)
def test_the_learning_rate(losses, changes, limit, evidence, change):
    """Catches: a loss of another time, a rate that is not the run's, and advice for the other."""
    steps = np.repeat(losses, -(-140 // len(losses)) if len(losses) > 3 else 200 // len(losses))
    due = rules.Finding(limit, evidence, change) if limit else None
    assert rules.learning_rate(known(losses=steps, **changes)) == due


def test_few_losses():
    """Catches a verdict from 99 losses, and none of a loss that is no number."""
    assert rules.learning_rate(known(losses=np.array([1.0] + [5] * 98))) is None
    assert rules.learning_rate(known(losses=np.array([1.0] + [5] * 99))) is not None
    assert rules.learning_rate(known(losses=np.array([1.0, math.inf]))) is not None


@pytest.mark.parametrize(
    "changes, wanted, gain",
    [
        # It makes 100 updates in 2.4 s, and tests 4 times for 0.4 s each: 40% of its time. Without
        # them two workers make 2 / (2 - 0.4) as many, 250 in 30 s; so 8 s have 66.7.
        ({"arguments": {"checkpoint_steps": 25}}, "70 (now 25)", 2 / 1.6),
        ({"arguments": {}}, "70", 2 / 1.6),
        # Together, 100 in 30 s would be 166.7, and 8 s have 44.4.
        ({"arguments": {}, "together": True}, "50", 1 / 0.6),
    ],
)
def test_a_chief_that_tests(changes, wanted, gain):
    """Catches: the updates of one worker for all, a flag that it does not have, another share."""
    chief = worker(testing=1.6, tests=4)
    finding = rules.testing_chief(known(chief, worker("worker-1"), **changes))
    assert finding == rules.Finding(
        "a chief that tests too often",
        "worker 0 tests and saves in 40% of its time: 4 times, 400 ms each",
        f"--checkpoint-steps {wanted}; or let `tfrun --evaluator` do the tests",
        pytest.approx(gain),
    )
    # 0.8 s of 3.2 s are a quarter.
    assert rules.testing_chief(known(worker(testing=0.8001, tests=1))) is not None
    assert rules.testing_chief(known(worker(testing=0.7999, tests=1))) is None


def test_numbers_of_one_digit():
    """Catches a number below the value, another power of ten, and a step above what fits."""
    values = [0, 0.2, 1, 8.5, 9, 10, 11, 99, 100, 234, 1000, 7001]
    assert list(map(rules.rounded_up, values)) == [
        *(1, 1, 1, 9, 9, 10, 20, 100, 100, 300, 1000, 8000),
    ]


SLOW_TEXT = "an update takes it 54 ms, and the others 24 ms"


@pytest.mark.parametrize(
    "own, why",
    [
        ({}, ""),
        ({"stopped": 0.25}, "; a signal has stopped it in 25% of the time"),
        ({"use": Use(0.48, 0, 0.5)}, "; its control group allows it 0.5 cores"),
        ({"use": Use(0.2, 0.6, 2)}, "; its threads wait for a core, 0.6 at a time"),
        (
            {"use": Use(0.2, 0.1, 2)},
            "; it is idle while it should compute, as if it waited for data",
        ),
        (
            {"in_python": 0.5, "function": "my.py:7 read"},
            "; it is in my.py:7 read at 50% of all looks",
        ),
    ],
)
def test_a_straggler(own, why, changed):
    """Of three, the second. Catches the mean of all, and another reason for it."""
    slow = worker("worker-1", compute=0.05, **own)
    of_run = known(worker(), slow, worker("worker-2"))
    assert rules.straggler(of_run) == rules.Finding(
        "a straggler: worker 1",
        SLOW_TEXT + why,
        "find what its host or its data have that the others' have not",
        GAIN,
    )
    assert changed == [(slow,)]


def test_a_straggler_by_its_link(changed):
    """Catches a way that is long for all, or shorter than its own computing."""
    for own, due in ((0.004, 0.03), "; of it 30 ms on the way: its link"), ((0.03, 0.025), ""):
        compute, way = own
        slow = worker("worker-1", compute=compute, way=way)
        quick = worker(compute=0.004)
        assert rules.reason(slow, known(quick, slow, worker("worker-2"))) == due
    all_slow = [worker(f"worker-{k}", compute=0.004, way=0.03) for k in range(3)]
    assert rules.reason(all_slow[1], known(*all_slow)) == ""


def test_stragglers_now_and_then(changed):
    """Catches a share or a gain below its threshold, and the longest time of all for the mean."""
    waits = [worker(f"worker-{k}", compute=0.02, way=0.0, waiting=0.02) for k in range(2)]
    of_run = known(*waits, together=True, arguments={"backup_workers": 0})
    assert rules.straggler(of_run) is None  # by a gain of 1.25
    gains.of_change = lambda _, change: changed.append(change(RUN)) or 1.5
    assert rules.straggler(of_run) == rules.Finding(
        "stragglers, now this worker and now that",
        "the workers wait for each other in 50% of their time",
        "even out their mini-batches; --backup-workers 1 goes on without the slowest",
        1.5,
    )
    assert list(changed[-1].compute) == [2.0]
    assert rules.straggler(dataclasses.replace(of_run, together=False)) is None
    few = [worker(f"worker-{k}", n=2, compute=0.02 + 0.1 * k) for k in range(2)]
    assert rules.straggler(known(*few)) is None and rules.straggler(known(worker())) is None


RUN = MeasuredRun(2, 1, False, np.array([1.0, 3.0]), 4.0, 8.0, 100.0, 5.0)


@pytest.mark.parametrize("servers", [1, 0])
def test_a_link(servers, changed):
    """Catches: the words of the ps for a ring, a change of another part, and another rate."""
    idle = [worker(f"worker-{k}", compute=0.02, way=0.08, use=Use(0.1, 0, 2.0)) for k in range(2)]
    finding = rules.link(known(*idle, servers=servers, ps_use=Use(0.05, 0)))
    way = "to the ps" if servers else "around the ring"
    where = "the link of the ps" if servers else "the link between the workers"
    change = "send less often: ten times the local steps; or a faster link"
    assert finding == rules.Finding(
        where,
        f"a worker waits for its messages {way} in 80% of its time: 80 ms for 100 KiB, "
        "1.22 MiB/s, and no processor is busy with them",
        change + ("; or more ps (--ps)" if servers else ""),
        GAIN,
    )
    less_often, half, *more_ps = changed
    assert list(less_often.compute) == [10, 30] and less_often.batches == 50
    assert (less_often.send, less_often.pull) == (8, 4)
    for run in half, *more_ps:
        assert (run.send, run.pull, run.batches, list(run.compute)) == (4, 2, 5, [1, 3])
    assert len(more_ps) == servers


def test_slow_input(changed):
    """Catches: the share that is left for that which waits, and one worker that does not wait."""
    idle = [
        worker(f"worker-{k}", compute=0.096, way=0.004, use=Use(0.46, 0.02, 2.0)) for k in range(2)
    ]
    assert rules.slow_input(known(*idle)) == rules.Finding(
        "input: the workers wait for their data",
        "a gradient takes 96 ms, of which a worker waits, not for the ps nor for a core, in 50%",
        "load the data before training, or prefetch: dataset.prefetch, several readers",
        GAIN,
    )
    assert list(changed[0].compute) == pytest.approx([0.5, 1.5])
    words = "waits, not for the others nor for a core, in 50%"
    assert words in rules.slow_input(known(*idle, servers=0)).evidence
    # Shares of 0.5 and 0.16 have a mean of 0.33; with 0.14 one worker hardly waits.
    for use, speaks in (Use(0.8, 0, 2), True), (Use(0.82, 0, 2), False):
        two = [idle[0], worker("worker-1", compute=0.096, way=0.004, use=use)]
        assert bool(rules.slow_input(known(*two))) == speaks
    reads = {"use": Use(0.96, 0, 2.0), "in_python": 0.64, "function": "my.py:7 read"}
    busy = [worker(f"worker-{k}", compute=0.096, way=0.004, **reads) for k in range(2)]
    evidence = rules.slow_input(known(*busy)).evidence
    assert evidence.startswith("a gradient takes 96 ms, of which a worker spends in Python code ")
    assert evidence.endswith("in Python code 62%; it is in my.py:7 read at 64% of all looks")


@pytest.mark.parametrize(
    "changes, evidence, change, speed",
    [
        (
            {"use": Use(0.45, 0, 0.5)},
            "a worker uses 0.45 cores, as many as its control group allows",
            "raise that quota to one core a worker at least",
            0.5,
        ),
        (
            {"all_cores": 7.5, "run_cores": 2.0},
            "other programs use 5.5 of this machine's 8 cores, the run 2.0, and no core is idle",
            "end them, or train elsewhere",
            1 - 5.5 / 8,
        ),
        (
            {"run_cores": 0.95, "cores": 1.0},
            "the run may use 1 core of 8, and uses 0.9",
            "give it more (taskset, --cpus, a container's quota), or fewer workers",
            0.5,
        ),
        (
            {"run_cores": 3.7, "cores": 4.0},
            "the run may use 4 cores of 8, and uses 3.7",
            "give it more (taskset, --cpus, a container's quota), or fewer workers",
            None,
        ),
        (
            {"run_cores": 0.95, "cores": 1.0, "machine_cores": 1.0, "all_cores": 1.0},
            "2 workers and the ps share 1 core, which are busy",
            "fewer workers or more cores: more workers only share what there is",
            0.5,
        ),
        (
            {"run_cores": 0.95, "cores": 1.0, "machine_cores": 1.0, "servers": 0},
            "2 workers share 1 core, which are busy",
            "fewer workers or more cores: more workers only share what there is",
            0.5,
        ),
        ({"run_cores": 0.89, "cores": 1.0, "machine_cores": 1.0}, None, None, None),
    ],
)
def test_the_processor(changes, evidence, change, speed, changed):
    """Catches: cores of others as the run's, and a gain by another share of them."""
    use = changes.pop("use", Use(0.4, 0.5, 8.0))
    both = [worker(f"worker-{k}", use=use) for k in range(2)]
    finding = rules.processor(known(*both, **changes))
    gain = None if speed is None else GAIN
    assert finding == (evidence and rules.Finding("processor time", evidence, change, gain))
    assert changed == ([] if speed is None else [(pytest.approx(speed),)])


@pytest.mark.parametrize(
    "use, all_cores, what, change",
    [
        (
            Use(0.1, 0.9, 2),
            8.0,
            "waits for a core, 0.9 threads at a time",
            "give it a core: larger mini-batches, more local steps",
        ),
        (
            Use(0.95, 0.0, 2),
            6.3,
            "uses 0.9 cores all the time",
            "more ps (--ps), or fewer updates: larger mini-batches, more local steps",
        ),
        (Use(0.95, 0.0, 2), 6.4, None, None),
        (Use(0.84, 0.0, 2), 2.0, None, None),
        (Use(0.05, 0.29, 2), 8.0, None, None),
        (None, 1.0, None, None),
    ],
)
def test_the_processor_of_the_ps(use, all_cores, what, change, changed):
    """Catches: another ps's time, advice for the other reason, and a ps that nobody waits for."""
    both = [worker(f"worker-{k}", compute=0.02, way=0.06) for k in range(2)]
    of_run = known(*both, ps_use=use, all_cores=all_cores)
    evidence = f"a ps {what}, and a worker waits for it in 75% of its time"
    due = rules.Finding("processor time of the ps", evidence, change, GAIN) if what else None
    assert rules.processor_of_ps(of_run) == due
    if what:
        assert [(run.servers, run.send, run.pull) for run in changed] == [(2, 4, 2)]
        quick = [worker(f"worker-{k}", compute=0.07, way=0.06) for k in range(2)]
        assert rules.processor_of_ps(dataclasses.replace(of_run, workers=quick)) is None
        assert rules.processor_of_ps(dataclasses.replace(of_run, workers=[])) is None


@pytest.mark.parametrize(
    "start, seconds, what",
    [
        (facts.Start(12.0, 10.0, 0.5), 40.0, "and mostly waited, as load_data() may do"),
        (facts.Start(12.0, 9.9, 0.5), 30.0, None),
        (facts.Start(12.0, 10.0, 0.5), 40.1, None),
        (facts.Start(35.0, 3.0, 2.0), 60.0, "and mostly computed, as load_data() may do"),
        (facts.Start(35.0, 3.0, 2.1), 60.0, None),
        (facts.Start(35.0, 3.0, 2.0), 60.1, None),
    ],
)
def test_what_a_slow_start_says(start, seconds, what):
    """Catches: the quickest worker, a wait for a core as computing, and another share of a run."""
    starts = {"worker-0": facts.Start(1.0, 0.5, 0.0), "worker-1": start}
    finding = rules.slow_start(known(starts=starts, seconds=seconds))
    assert finding == (what and rules.Finding(
        "input: the start",
        f"worker 1 took {start.seconds:g} s of {seconds:g} s to its first update, {what}",
        "store the data as the model takes them; load in parallel; or train longer per start",
    ))  # fmt: skip
    assert rules.slow_start(known(starts=starts, seconds=0.0)) is None
    assert rules.slow_start(known(starts=starts, seconds=math.nan)) is None


# The facts ----------------------------------------------------------------------------------------


def columns(*pairs):
    """Returns columns of pushes from (pull_time, push_time)."""
    pull, push = np.array(pairs, float).reshape(-1, 2).T
    return {"pull_time": pull, "push_time": push, "loss": np.ones(len(push))}


def test_the_time_that_counts():
    """Catches the first push of a worker, which traces, and the end of another one."""
    pushes = {"a": columns((1, 2), (3, 4), (4, 9)), "b": columns((0, 2), (2.5, 5)), "c": columns()}
    assert facts.window_of(pushes) == (2.5, 9)
    assert all(map(math.isnan, facts.window_of({"a": columns((1, 2))})))


def test_gaps_and_tests():
    """Catches a test in the gap before or behind its own; the first update has no gap."""
    metrics = types_of_tests(3.5, 7.0)
    push, pull = np.array([2.0, 5.0, 6.0, 9.0]), np.array([1.0, 4.0, 5.5, 7.0])
    gap, has_test = facts.gaps_of(metrics, push, pull)
    assert gap.tolist() == [0, 2, 0.5, 1] and has_test.tolist() == [False, True, False, True]
    gap, _ = facts.gaps_of(metrics, push, np.array([1.0, 1.5, 5.5, 7.0]))
    assert gap.tolist() == [0, 0, 0.5, 1]


def types_of_tests(*ends):
    """Returns what facts asks of a TaskMetrics that has tests with these ends."""
    return type("Metrics", (), {"test_ends": np.array(ends)})()


def test_silences():
    """Catches a silence that is as long as allowed, and one in which the chief tests."""
    times = np.array([9.0, 1, 2, 20, 30])
    assert facts.silences(times, np.empty(0), 7) == [(9, 20), (20, 30)]
    assert facts.silences(times, np.array([15.0]), 7) == [(20, 30)]
    assert facts.silences(times, np.array([20.0]), 6) == [(2, 9)]


def usage_of(name, *rows, cores=4, machine_cores=8):
    """Returns the text of usage.jsonl. rows: (time, cpu, queued, own cores, state, machine)."""
    lines = []
    for second, cpu, queued, own, state, machine in rows:
        line = {"time": second, "cores": cores, "machine": machine, "machine_cores": machine_cores}
        lines.append(json.dumps({**line, "tasks": {name: [cpu, queued, own, state]}}))
    return "\n".join([*lines, '{"time": 1'])


def test_what_usage_says(tmp_path):
    """Catches a column for another one, and a line that a kill has cut short as the end of all."""
    text = usage_of(
        "worker-0",
        (10, 1.0, 0.0, 2, "running", 3),
        (12, 3.0, 1.0, 3, "stopped", 9),
        (14, 4.0, 4.0, 3, "running", 19),
    )
    (tmp_path / "usage.jsonl").write_text(text)
    seen = usage.read(tmp_path)
    own = seen.tasks["worker-0"]
    assert seen.time.tolist() == [10, 12, 14] and seen.cores.tolist() == [4, 4, 4]
    assert seen.machine.tolist() == [3, 9, 19] and seen.machine_cores.tolist() == [8, 8, 8]
    assert own.between(0, 99) == Use(0.75, 1.0, 3.0)
    assert own.between(10, 12) == Use(1.0, 0.5, 3.0)
    assert own.between(10, 11.4) is None and seen.machine_between(12, 99) == 5
    assert own.idle(10, 12) == 0 and own.stopped(0, 99) == pytest.approx(1 / 3)
    assert own.stopped(11, 13) == 1 and own.stopped(15, 16) == 0
    assert math.isnan(seen.machine_between(12, 13)) and usage.read(tmp_path / "none") is None
    assert facts.recent_cores(seen) == 0.75 and math.isnan(facts.recent_cores(None))


def test_idle_seconds():
    """Catches a time in which it waits for a core, and more demand than time as less than none."""
    own = TaskUsage(
        time=np.array([0.0, 10, 20, 30]),
        cpu=np.array([0.0, 2, 22, 23]),
        queued=np.array([0.0, 1, 1, 5]),
        cores=np.ones(4),
        states=[],
    )
    assert own.idle(0, 30) == 7 + 5 and own.idle(10, 30) == 5


def test_the_facts_of_a_run(tmp_path):
    """A chief that tests and a worker that joined, of a run that goes on at 1020 s.

    Catches: what came before the last start, a silence of the time before it joined, and the
    numbers of another worker.
    """
    arguments = {"steps": 100, "batch_size": 32}
    run_files.flags(tmp_path, ps=1, arguments=arguments)
    timing = {"wait_seconds": 0.25, "bytes": 1000}
    chief = [run_files.push(900, 1, pull_time=899, loss=9, **timing), "# restart"]
    chief += [run_files.push(1001, 2, pull_time=1000, loss=8, **timing)]
    chief += [
        run_files.push(1002 + k, 3 + 2 * k, k, pull_time=1001.25 + k, loss=2, **timing)
        for k in range(10)
    ]
    chief += [run_files.test(1011.75, 12, 0.5, 1.0, began=1011.5)]
    chief += [run_files.push(1013, 23, 1, pull_time=1012, loss=1, **timing)]
    joined = [run_files.push(1010, 20, 1, pull_time=1009, loss=4, wait_seconds=0.5, bytes=3000)]
    joined += [
        run_files.push(1011 + k, 21 + k, 1, pull_time=1010.5 + k, wait_seconds=0.125, bytes=3000)
        for k in range(2)
    ]
    run_files.metrics(tmp_path, "worker-0", *chief)
    run_files.metrics(tmp_path, "worker-1", *joined)
    lines = []
    for second in range(990, 1021):
        past = second - 990
        tasks = {"worker-0": [0.5 * past, 0.25 * past, 2, "running"]}
        tasks["ps-0"] = [0.125 * past, 0, 2, "stopped" if second > 1015 else "running"]
        tasks["ps-1"] = [0.25 * past, 0, 2, "running"]
        if second >= 1005:
            tasks["worker-1"] = [1.0 * (second - 1005), 0, 2, "running"]
        line = {"time": second, "cores": 2, "machine": 1.5 * past, "machine_cores": 4}
        lines.append(json.dumps({**line, "tasks": tasks}))
    (tmp_path / "usage.jsonl").write_text("\n".join(lines))
    seen = facts.of_run(RunData.read(tmp_path), usage.read(tmp_path), "running", None, None, 1020.0)
    assert (seen.begin, seen.end, seen.wall) == (1001.25, 1013, 11.75)
    assert (seen.servers, seen.together, seen.state) == (1, False, "running")
    assert (seen.usual, seen.quiet, seen.stalled) == (1.0, 7.0, 0.0)
    assert seen.seconds == 30 and seen.steps == 23
    assert (seen.cores, seen.machine_cores, seen.all_cores) == (2, 4, pytest.approx(1.5))
    worker_0, worker_1 = seen.workers
    assert worker_0.updates == 11 and worker_1.updates == 3
    # 10 updates of 0.75 s, of which 0.25 s on the way, and gaps of 0.25 s of pulls between them.
    assert worker_0.compute.tolist() == [0.5] * 10 + [0.75]
    assert worker_0.way.tolist() == [0.25] + [0.5] * 9 + [0.25]
    assert worker_0.waiting.tolist() == [0] * 11 and worker_0.late.tolist() == [False] * 11
    assert (worker_0.testing, worker_0.tests, worker_0.longest_test) == (1.0, 1, 1.0)
    assert (worker_0.last, worker_1.last) == (1013, 1012)
    assert (worker_0.there, worker_1.there) == (11.75, 8)
    assert worker_1.silent == worker_1.silent_alone == 0
    assert worker_1.compute.tolist() == [0.5, 0.75, 0.75]
    assert worker_1.way.tolist() == [0.5, 0.25, 0.25]
    assert worker_0.use == Use(pytest.approx(0.5), pytest.approx(0.25), 2)
    assert seen.starts == {
        "worker-0": facts.Start(11, pytest.approx(11 * 0.25), pytest.approx(11 * 0.25)),
        "worker-1": facts.Start(5, 0, 0),
    }
    assert seen.ps_use.cpu == pytest.approx(0.25) and seen.ps_stopped == 0
    assert seen.stopped_tasks == ["ps-0"] and seen.recent_cores == pytest.approx(1.875)
    assert seen.run_cores == pytest.approx(0.5 + 1 + 0.25 + 0.125)
    assert (seen.bytes, seen.local_steps) == (1000, 1)
    assert seen.losses[:3].tolist() == [9, 8, 2] and seen.losses[-1] == 1 and seen.losses.size == 16
    assert seen.staleness == pytest.approx((45 + 1 + 3) / 14)
    assert {name: len(rows["loss"]) for name, rows in seen.rows.items()} == {
        "worker-0": 11,
        "worker-1": 3,
    }
