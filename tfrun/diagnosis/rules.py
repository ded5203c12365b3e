"""The rules: each looks at the Facts of a run for one limit, and says what it saw.

A rule speaks where its share of the workers' time is large, and nothing else explains it: a worker
that waits for a core is no evidence for a slow link, nor one that waits for the ps for slow data.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tfrun import formatting
from tfrun.diagnosis import gains
from tfrun.diagnosis.facts import SILENT_UPDATES, Facts, Worker
from tfrun.diagnosis.usage import Use

# Seconds.
QUIET_SECONDS = 10  # a run hangs if it makes no update for longer
FIRST_SECONDS = 30  # a run hangs if its idle tasks have made no update by then
IDLE_START_SECONDS = 10  # a start that mostly waits is slow from then on
BUSY_START_SECONDS = 30  # a start that mostly computes is slow from then on
MESSAGE_SECONDS, MESSAGE_RATE = 0.002, 7e8  # a message on a loopback takes so long; bytes a second
# Shares of a time.
LEAST_SHARE = 0.25  # a hang, a silent worker or a testing chief takes at least so much of the run
LATE_SHARE = 0.8  # a worker is of no use if so many of its gradients are dropped
WAY_SHARE = 0.5  # a link limits the run if messages are on their way in so much of the time
UNEXPLAINED = 0.3  # something limits the run if nobody computes or waits for a core for so long
IDLE_START_SHARE, BUSY_START_SHARE = 0.25, 0.5  # a slow start takes so much of the whole run
# A task is starved if its runnable threads wait for a core for so long. A healthy run on busy cores
# has 0.6, because TensorFlow wakes several threads at once.
STARVED = 0.7
# Factors.
BUSY_FACTOR = 2  # tasks that use a core may compile or test: they may be quiet for so much longer
SLOW = 1.5  # a straggler's update takes so many times as long as the others'
SLOW_WAY = 3  # a slow message takes so many times as long as on a loopback
SLOW_WAY_UNWATCHED = 10  # the same where nobody has recorded the use of cores
LEAST_GAIN = 1.1  # equal workers would have to be so much faster
VARYING_GAIN = 1.5  # steps whose times do not vary would have to be so much faster
# Cores, and threads that wait for one.
BUSY = 0.9  # no core is idle if so many of all are in use
IDLE_CORES = 0.8  # some cores are idle if fewer than so many of all are in use
OTHERS = 0.2  # other programs matter if they use so much of the machine
SHARED = 1.05  # tasks share their cores if they use no more than so many times those of one task
WAITS = 0.3  # a task waits for cores if it has at least so many waiting threads
PS_CORES = 0.85  # a ps that uses so many cores computes all the time
# Losses and staleness.
BLOCKS = 20  # the losses are cut into so many blocks, each with a mean
LEAST_UPDATES = 100  # fewer losses tell nothing
RISE = 1.5  # a loss has risen if it is above so many times its lowest block,
RISEN = 0.25  # and above so many times its first value
NOT_LEARNED = 0.8  # a run has not learned if more of its first loss is left
HARDLY = 0.9  # a run has hardly learned if more of its first loss is left
EXPLOSION = 3  # no loss of a run that learns reaches so many times the first
FALLS = -0.7  # a loss falls if its correlation with time is below this
LARGE_RATE = 0.5  # above it, a loss that does not move has lost its way, and is not slow
LATE = 0.5  # from this mean staleness on, it matters for the learning rate


HANG = "a hang"


class Finding(NamedTuple):
    """What limits a run."""

    limit: str
    evidence: str
    change: str
    gain: float | None = None  # times as fast after that change, by the model of tfrun plan


Rule = Callable[[Facts], Finding | None]


def seconds_text(seconds: float) -> str:
    """Returns a time as text: 3.2 ms, 1.4 s."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def task_text(name: str) -> str:
    """Returns worker-0 as people read it: worker 0."""
    return name.replace("-", " ")


def stopped_text(facts: Facts) -> str:
    """Returns which tasks a signal has stopped, a clause; "" for none."""
    names = ", ".join(map(task_text, facts.stopped_tasks))
    verb = "is" if len(facts.stopped_tasks) == 1 else "are"
    return f"; {names} {verb} stopped by a signal" if names else ""


def hang(facts: Facts) -> Finding | None:
    """No task makes progress, although the run is not done."""
    change = "look at the stacks of its tasks, and at the last lines of `tfrun logs`"
    if facts.stopped_tasks:
        change = f"let {task_text(facts.stopped_tasks[0])} go on: kill -CONT its process"
    longest = max((worker.longest_test for worker in facts.workers), default=0.0)
    limit = max(QUIET_SECONDS, SILENT_UPDATES * facts.usual, 3 * longest)
    if facts.recent_cores > 0.3:
        limit *= BUSY_FACTOR
    over = facts.state in ("done", "unknown")
    if facts.active and not over and facts.quiet > limit:
        evidence = f"no update for {formatting.age_text(facts.quiet)}"
        return Finding(HANG, evidence + usual_text(facts) + stopped_text(facts), change)
    if facts.active and facts.stalled >= LEAST_SHARE * facts.wall:
        evidence = f"all workers stood still for {seconds_text(facts.stalled)}"
        evidence += f" of {seconds_text(facts.wall)}{usual_text(facts)}{stopped_text(facts)}"
        if facts.ps_stopped:
            evidence += "; a signal had stopped a ps"
        return Finding(HANG, evidence, change)
    if not facts.steps and not over and facts.seconds > FIRST_SECONDS and facts.recent_cores < 0.1:
        evidence = f"no update since the start, {formatting.age_text(facts.seconds)} ago"
        return Finding(HANG, f"{evidence}, and no task computes{stopped_text(facts)}", change)
    return None


def usual_text(facts: Facts) -> str:
    """Returns how long an update usually takes, a clause."""
    return f", where a worker usually makes one in {seconds_text(facts.usual)}"


def idle_worker(facts: Facts) -> Finding | None:
    """A worker makes no updates while others do, or none that counts."""
    for worker in facts.workers:
        name = task_text(worker.name)
        others = sum(other.updates for other in facts.workers if other is not worker)
        if worker.updates >= 10 and worker.late.mean() >= LATE_SHARE:
            evidence = f"{worker.late.mean():.0%} of its gradients came too late for their step"
            change = "train without this worker, or find out why it is slower than the others"
        elif (
            not worker.updates
            and others >= SILENT_UPDATES
            and worker.there >= LEAST_SHARE * facts.wall
        ):
            evidence = f"it has made no update, and the others {others:,}"
            change = "look at its log: did it start late, or is it waiting for something?"
        elif worker.silent_alone >= LEAST_SHARE * facts.wall and worker.silent_alone > 0:
            evidence = f"it made no update in {seconds_text(worker.silent_alone)} of "
            evidence += f"{seconds_text(facts.wall)}, while the others went on"
            change = "look at its log: has it ended, or is it waiting for something?"
        else:
            continue
        if worker.stopped or worker.name in facts.stopped_tasks:
            evidence += "; a signal had stopped its process"
            change = "let it go on: kill -CONT its process"
        gain = gains.of_workers(facts, len(facts.active) + 1) if not worker.updates else None
        return Finding(f"a worker that does nothing: {name}", evidence, change, gain)
    return None


def learning_rate(facts: Facts) -> Finding | None:
    """The loss diverges, rises again, or hardly moves."""
    rate = facts.arguments.get("learning_rate")
    late = f", at a mean staleness of {facts.staleness:.2g}" if facts.staleness >= 0.05 else ""
    how = (f" with --learning-rate {rate:g}" if isinstance(rate, (int, float)) else "") + late
    high, lower = "a learning rate too high", "lower the learning rate"
    if facts.staleness >= LATE:
        high += " for the staleness"
        lower += f", first by 1 + staleness, {1 + facts.staleness:.2g}; fewer workers are less late"
    losses = facts.losses
    if not np.isfinite(losses).all():
        return Finding(high, f"the loss is no number any more{how}", lower)
    if losses.size < LEAST_UPDATES:
        return None
    first = float(np.median(losses[:5]))
    blocks = np.array([block.mean() for block in np.array_split(losses, BLOCKS)])
    last, lowest = float(blocks[-1]), float(blocks.min())
    evidence = f"the loss began at {first:.3g}, was at {lowest:.3g}, and is at {last:.3g}{how}"
    if first <= 0:
        return None
    if last > max(RISE * lowest, RISEN * first):
        return Finding(high, evidence, lower)
    if last > NOT_LEARNED * first and losses.max() > EXPLOSION * first:
        return Finding(high, f"{evidence}; meanwhile it was {losses.max():.3g}", lower)
    is_half_done = facts.steps >= 0.5 * float(facts.arguments.get("steps") or math.inf)
    if is_half_done and last > HARDLY * first:
        falls = blocks.std() > 0 and np.corrcoef(blocks, np.arange(BLOCKS))[0, 1] < FALLS
        evidence = f"{evidence}, after {facts.steps:,.0f} updates"
        if not falls and isinstance(rate, (int, float)) and rate >= LARGE_RATE:
            return Finding(high, evidence, lower)
        return Finding("a learning rate too low", evidence, "raise it, for example to ten times")
    return None


def testing_chief(facts: Facts) -> Finding | None:
    """The chief tests and saves instead of making updates."""
    chief = max(facts.active, key=lambda worker: worker.share("testing"), default=None)
    if chief is None or chief.share("testing") < LEAST_SHARE:
        return None
    share, seconds = chief.share("testing"), chief.testing / chief.tests
    n = len(facts.active)
    gain = 1 / (1 - share) if facts.together else n / (n - share)
    steps = facts.arguments.get("checkpoint_steps")
    now = f" (now {steps})" if steps else ""
    updates = sum(worker.updates for worker in facts.active)
    if facts.together:
        updates = chief.updates
    # So many updates that a test takes a twentieth of their time.
    wanted = rounded_up(20 * seconds * updates / facts.wall * gain)
    return Finding(
        "a chief that tests too often",
        f"{task_text(chief.name)} tests and saves in {share:.0%} of its time: {chief.tests:,} "
        f"times, {seconds_text(seconds)} each",
        f"--checkpoint-steps {wanted}{now}; or let `tfrun --evaluator` do the tests",
        gain,
    )


def rounded_up(value: float) -> int:
    """Returns the next number above a value that has one digit and zeros: 300 for 234."""
    power = 10 ** int(math.log10(max(1.0, value)))
    return math.ceil(max(1.0, value) / power) * power


def straggler(facts: Facts) -> Finding | None:
    """One worker is slower than the others, for good; or each of them is now and then."""
    if len(facts.active) < 2 or min(worker.updates for worker in facts.active) < 3:
        return None
    took = {worker.name: seconds_of_update(facts, worker) for worker in facts.active}
    slow = max(facts.active, key=lambda worker: took[worker.name])
    usual = float(np.median([took[name] for name in took if name != slow.name]))
    if took[slow.name] >= SLOW * usual:
        gain = gains.of_equal_workers(facts, slow)
        if gain is None or gain >= LEAST_GAIN:
            return Finding(
                f"a straggler: {task_text(slow.name)}",
                f"an update takes it {seconds_text(took[slow.name])}, and the others "
                f"{seconds_text(usual)}{reason(slow, facts)}",
                "find what its host or its data have that the others' have not"
                + backup_text(facts),
                gain,
            )
    if facts.together and facts.mean("waiting") >= UNEXPLAINED:
        gain = gains.of_change(
            facts, lambda run: run._replace(compute=run.compute.mean(keepdims=True))
        )
        if gain and gain >= VARYING_GAIN:
            return Finding(
                "stragglers, now this worker and now that",
                f"the workers wait for each other in {facts.mean('waiting'):.0%} of their time",
                "even out their mini-batches" + backup_text(facts),
                gain,
            )
    return None


def backup_text(facts: Facts) -> str:
    """Returns advice, a clause, where the script has the flag for it; else ""."""
    has_backups = facts.together and "backup_workers" in facts.arguments
    return "; --backup-workers 1 goes on without the slowest" if has_backups else ""


def seconds_of_update(facts: Facts, worker: Worker) -> float:
    """Returns the seconds that a worker needs for an update, without the rarest, longest ones."""
    times = worker.compute if facts.together else worker.compute + worker.way
    return float(np.sort(times)[: max(1, int(0.98 * times.size) - 1)].mean())


def reason(slow: Worker, facts: Facts) -> str:
    """Returns why a worker is slow, a clause, as far as tfrun has recorded it."""
    if slow.stopped:
        return f"; a signal has stopped it in {slow.stopped:.0%} of the time"
    ways = [float(worker.way.mean()) for worker in facts.active if worker is not slow]
    if slow.way.mean() > max(SLOW * float(np.median(ways)), float(slow.compute.mean())):
        return f"; of it {seconds_text(float(slow.way.mean()))} on the way: its link"
    if slow.use and slow.use.is_throttled:
        return f"; its control group allows it {slow.use.cores:.2g} cores"
    if slow.use and slow.use.queued >= WAITS and queued_share(slow.use) >= STARVED:
        return f"; its threads wait for a core, {slow.use.queued:.1f} at a time"
    if slow.use and slow.share("compute") - slow.use.demand > UNEXPLAINED:
        return (
            f"; it is idle while it should compute, as if it waited for data{function_text(slow)}"
        )
    return function_text(slow)


def way_text(facts: Facts) -> str:
    """Returns where messages of the run travel."""
    return "to the ps" if facts.servers else "around the ring"


def partner_demand(facts: Facts) -> float:
    """Returns the cores that a ps, or other workers, use or wait for while messages travel."""
    if facts.servers:
        return facts.ps_use.demand if facts.ps_use else 0.0
    return float(np.mean([way_demand(worker) for worker in facts.active] or [0.0]))


def way_demand(worker: Worker) -> float:
    """Returns the cores that a worker uses or waits for beyond those of its computing."""
    return max(0.0, worker.use.demand - worker.share("compute")) if worker.use else 0.0


def link(facts: Facts) -> Finding | None:
    """Messages are on their way for most of the time, and no processor is busy with them."""
    if not facts.active or facts.mean("way") < WAY_SHARE:
        return None
    way = float(np.mean([worker.way.mean() for worker in facts.active]))
    expected = MESSAGE_SECONDS + facts.bytes / MESSAGE_RATE
    is_watched = all(worker.use for worker in facts.active)
    if way < (SLOW_WAY if is_watched else SLOW_WAY_UNWATCHED) * expected:
        return None
    demand = float(np.mean([way_demand(worker) for worker in facts.active]))
    if is_watched and facts.mean("way") - demand - partner_demand(facts) < UNEXPLAINED:
        return None
    where = "the link of the ps" if facts.servers else "the link between the workers"
    changes = {
        "send less often: ten times the local steps": lambda run: run._replace(
            compute=10 * run.compute, batches=10 * run.batches
        ),
        "send half the bytes": lambda run: run._replace(send=run.send / 2, pull=run.pull / 2),
    }
    if facts.servers:
        changes["twice as many ps, each with a link of its own"] = changes["send half the bytes"]
    known = {name: gains.of_change(facts, change) for name, change in changes.items()}
    best = max(known, key=lambda name: known[name] or 0.0)
    others = "; or a faster link"
    if facts.servers and "more ps" not in best:
        others += "; or more ps (--ps)"
    return Finding(
        where,
        f"a worker waits for its messages {way_text(facts)} in {facts.mean('way'):.0%} of its "
        f"time: {seconds_text(way)} for {formatting.size_text(facts.bytes)}, "
        f"{formatting.size_text(facts.bytes / way)}/s, and no processor is busy with them",
        best + others,
        known[best],
    )


def slow_input(facts: Facts) -> Finding | None:
    """Workers are idle while they compute a gradient, and only slow input explains it."""
    shares = [input_share(worker, facts.has_gpus) for worker in facts.active]
    if not shares or np.mean(shares) < UNEXPLAINED or min(shares) < UNEXPLAINED / 2:
        return None
    left = max(0.01, 1 - float(np.mean(shares)) / facts.mean("compute"))
    gain = gains.of_change(facts, lambda run: run._replace(compute=run.compute * left))
    seconds = float(np.mean([worker.compute.mean() for worker in facts.active]))
    what = f"waits, not for {'the ps' if facts.servers else 'the others'} nor for a core, in"
    if all(worker.use and worker.use.demand >= worker.share("compute") for worker in facts.active):
        what = "spends in Python code"
    return Finding(
        "input: the workers wait for their data",
        f"a gradient takes {seconds_text(seconds)}, of which a worker {what} {1 - left:.0%}"
        + function_text(max(facts.active, key=lambda worker: worker.in_python)),
        "load the data before training, or prefetch: dataset.prefetch, several readers",
        gain,
    )


def input_share(worker: Worker, has_gpus: bool) -> float:
    """Returns the share of a worker's time that passed within a gradient without computing it.

    The worker waited, or a Python function ran in the graph, which may also be its transport.
    """
    elsewhere = worker.share("way") + worker.share("waiting")
    in_python = worker.in_python - elsewhere
    if has_gpus or worker.use is None:
        return min(in_python, worker.share("compute"))
    return min(max(in_python, worker.share("compute") - worker.use.demand), worker.share("compute"))


def function_text(worker: Worker) -> str:
    """Returns in which Python function of its own a worker mostly is, a clause; "" in none."""
    if worker.in_python < UNEXPLAINED:
        return ""
    return f"; it is in {worker.function} at {worker.in_python:.0%} of all looks"


def processor(facts: Facts) -> Finding | None:
    """The cores that the run may use are all busy, and too few, or others use them."""
    uses = [worker.use for worker in facts.active if worker.use]
    if not uses:
        return None
    n, used = len(uses), facts.run_cores
    allowed = facts.cores
    if used <= SHARED * max(use.cores for use in uses):  # those of the tasks, if they are the same
        allowed = min(allowed, max(use.cores for use in uses))
    others = max(0.0, facts.all_cores - used)
    count = formatting.plural(round(allowed), "core")
    if all(use.is_throttled for use in uses):
        evidence = f"a worker uses {uses[0].cpu:.2g} cores, as many as its control group allows"
        change, speed = "raise that quota to one core a worker at least", max(u.cores for u in uses)
    elif facts.all_cores >= BUSY * facts.machine_cores and others >= OTHERS * facts.machine_cores:
        evidence = (
            f"other programs use {others:.1f} of this machine's {facts.machine_cores:.0f} cores"
        )
        evidence += f", the run {used:.1f}, and no core is idle"
        change, speed = "end them, or train elsewhere", 1 - others / facts.machine_cores
    elif used >= BUSY * allowed and allowed < facts.machine_cores:
        evidence = f"the run may use {count} of {facts.machine_cores:.0f}, and uses {used:.1f}"
        change = "give it more (taskset, --cpus, a container's quota), or fewer workers"
        speed = allowed / min(n, facts.machine_cores)
        if speed >= 1:  # each worker has a core and more: the model does not know what more gives
            return Finding("processor time", evidence, change)
    elif used >= BUSY * allowed and n > allowed:
        evidence = f"{n} workers{' and the ps' * bool(facts.servers)} share {count}, which are busy"
        change = "fewer workers or more cores: more workers only share what there is"
        speed = allowed / n
    else:
        return processor_of_ps(facts)
    gain = gains.of_speed(facts, min(1.0, speed))
    return Finding("processor time", evidence, change, gain)


def queued_share(use: Use) -> float:
    """Returns the share of the time in which threads could run, in which they wait for a core."""
    return use.queued / max(use.cpu + use.queued, 1e-9)


def processor_of_ps(facts: Facts) -> Finding | None:
    """The workers wait for a ps, which computes all the time or waits for a core itself."""
    use = facts.ps_use
    if use is None or not facts.active or facts.mean("way") < WAY_SHARE:
        return None
    usual = max((queued_share(w.use) for w in facts.active if w.use), default=0.0)
    if use.is_throttled or (use.queued >= WAITS and queued_share(use) >= max(STARVED, 1.2 * usual)):
        what, change = f"waits for a core, {use.queued:.1f} threads at a time", "give it a core"
    elif use.cpu >= PS_CORES and facts.all_cores < IDLE_CORES * facts.machine_cores:
        what, change = f"uses {use.cpu:.1f} cores all the time", "more ps (--ps), or fewer updates"
    else:
        return None
    return Finding(
        "processor time of the ps",
        f"a ps {what}, and a worker waits for it in {facts.mean('way'):.0%} of its time",
        f"{change}: larger mini-batches, more local steps",
        gains.of_change(
            facts, lambda r: r._replace(servers=2 * r.servers, send=r.send / 2, pull=r.pull / 2)
        ),
    )


def slow_start(facts: Facts) -> Finding | None:
    """Most of the run passes before the first update."""
    if not facts.starts or not facts.seconds > 0:
        return None
    name, start = max(facts.starts.items(), key=lambda item: item[1].idle)
    busy = start.seconds - start.idle - start.queued
    idle_share, busy_share = start.idle / facts.seconds, busy / facts.seconds
    change = "store the data as the model takes them; load in parallel; or train longer per start"
    if start.idle >= IDLE_START_SECONDS and idle_share >= IDLE_START_SHARE:
        what = "and mostly waited, as load_data() may do"
    elif busy >= BUSY_START_SECONDS and busy_share >= BUSY_START_SHARE:
        what = "and mostly computed, as load_data() may do"
    else:
        return None
    return Finding(
        "input: the start",
        f"{task_text(name)} took {seconds_text(start.seconds)} of {seconds_text(facts.seconds)} "
        f"to its first update, {what}",
        change,
    )


# What is wrong with one task or one flag comes before what all tasks share.
RULES: list[Rule] = [
    idle_worker,
    learning_rate,
    testing_chief,
    straggler,
    link,
    slow_input,
    slow_start,
    processor,
]


def findings(facts: Facts) -> list[Finding]:
    """Returns what limits the run, in the order of RULES; [] for a run that nothing limits."""
    if finding := hang(facts):
        return [finding]
    return [finding for rule in RULES if (finding := rule(facts))]
