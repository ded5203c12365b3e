"""What happens when: timelines of workers, pipelines and failures. All times are computed."""

import json

from lab.drawings.shapes import (
    KINDS,
    ROOT,
    arrow,
    bar,
    figure,
    left,
    legend,
    lines,
    path,
    rect,
    text,
)

# Three workers, one slow. A step is pull, compute and push.

PACE = (2.0, 2.3, 6.6)  # the time of a step of each worker
UNTIL = 13.3
LEFT, UNIT = 76, 33


def synchronous_steps():
    """[(worker, begin, end of the computing, end of the step)]; the slowest sets the pace."""
    longest = max(PACE)
    starts = [longest * i for i in range(int(UNTIL / longest))]
    return [(k, at, at + PACE[k], at + longest) for at in starts for k in range(3)]


def asynchronous_steps():
    """[(worker, pull, push, staleness)]: the updates by others between its pull and its push."""
    steps = []
    for k, pace in enumerate(PACE):
        steps += [(k, i * pace, (i + 1) * pace) for i in range(int(UNTIL / pace))]
    pushes = [(push, k) for k, _, push in steps]
    assert len({push for push, _ in pushes}) == len(pushes), "two pushes at the same time"
    return [
        (k, pull, push, sum(pull < at < push and other != k for at, other in pushes))
        for k, pull, push in steps
    ]


def names(y):
    workers = ("worker 0", "worker 1", "worker 2")
    return [*lines(4, y + 18, workers, "", 36), left(4, y + 108, "slow", "small")]


def workers(y, pushed, words):
    """The steps of asynchronous workers as bars, and the axis of time below them."""
    bars = [
        bar(at(pull), y + 36 * k, UNIT * (push - pull) - 3, KINDS[k], words % late)
        for k, pull, push, late in pushed
    ]
    for k, pace in enumerate(PACE):  # what is not pushed when the figure ends
        begin = pace * int(UNTIL / pace)
        bars.append(rect(at(begin), y + 36 * k, at(UNTIL) - at(begin), 26, KINDS[k] + " pale", 3))
    axis = arrow(LEFT, y + 122, at(UNTIL) + 6, y + 122)
    return [*names(y), *bars, axis, text(at(UNTIL / 2), y + 140, "time", "small")]


def at(time):
    return LEFT + UNIT * time


@figure("timelines.svg", 540, 366)
def timelines():
    """Timelines of three workers, of which worker 2 is slow. Synchronous: each step waits for
    worker 2, and w moves {} times. Asynchronous: nobody waits, and w moves {} times; the staleness
    of a push, the updates by others since its pull, is up to {} for the fast workers and up to {}
    for the slow one."""
    waited, pushed = synchronous_steps(), asynchronous_steps()
    steps = len({end for *_, end in waited})
    parts = [left(4, 20, "Synchronous", "title")]
    parts.append(text(530, 20, f"{steps} updates of w, each the mean of 3 gradients", "small end"))
    parts += names(36)
    for k, begin, done, end in waited:
        parts.append(bar(at(begin), 36 + 36 * k, UNIT * (done - begin) - 2, KINDS[k], "g"))
        if end > done:
            parts.append(rect(at(done), 36 + 36 * k, UNIT * (end - done) - 4, 26, "idle", 3))
            parts.append(text(at((done + end) / 2), 54 + 36 * k, "waits", "small"))
    for end in sorted({end for *_, end in waited}):
        parts.append(path(f"M{at(end):g} 30 V140", "bar", tip=False))
    parts.append(text(at(6.6), 160, "w moves when all have pushed", "small"))
    parts.append(left(4, 200, "Asynchronous", "title"))
    says = f"{len(pushed)} updates, each of 1 gradient; numbers: staleness"
    parts.append(text(530, 200, says, "small end"))
    parts += workers(216, pushed, "%d")
    fast, slow = (max(late for k, *_, late in pushed if (k == 2) == is_slow) for is_slow in (0, 1))
    return parts, (steps, len(pushed), fast, slow)


@figure("dynsgd.svg", 540, 356)
def dynsgd():
    """Three asynchronous workers, one slow. DynSGD divides each push by its staleness τ plus one: a
    push with τ = 0 moves w by all of lr·a, one with τ = 1 by half of it, and the slow worker's with
    τ = {} by 1/{}."""
    pushed = asynchronous_steps()
    parts = [left(4, 20, "How far a push moves w: lr·a / (τ + 1)", "title")]
    base = 150
    for k, _, push, late in pushed:
        parts.append(rect(at(push) - 8, base - 90 / (late + 1), 8, 90 / (late + 1), KINDS[k], 1))
    parts.append(path(f"M{LEFT:g} {base:g} H{at(UNTIL) + 6:g}", tip=False))
    for share, label in ((1, "lr·a"), (1 / 2, "½"), (1 / 4, "¼")):
        y = base - 90 * share
        parts.append(path(f"M{LEFT:g} {y:g} H{at(UNTIL) + 6:g}", "frame", tip=False))
        parts.append(text(LEFT - 6, y + 5, label, "small end"))
    parts.append(left(4, 192, "Staleness τ of each push", "title"))
    latest = max(late for *_, late in pushed)
    return [*parts, *workers(206, pushed, "τ = %d")], (latest, latest + 1)


# Pipelines.

STAGES, MICRO = 3, 5  # K and M


def whole_batch(k):
    """What a stage does, in this order; F: forward, B: backward, all micro-batches as one."""
    return [("F", None), ("B", None)]


def gpipe(k):
    return [("F", m) for m in range(MICRO)] + [("B", m) for m in range(MICRO)]


def one_forward_one_backward(k):
    first = min(MICRO, STAGES - k)
    order = [("F", m) for m in range(first)]
    for m in range(MICRO):
        order.append(("B", m))
        if m + first < MICRO:
            order.append(("F", m + first))
    return order


def schedule(orders):
    """{(stage, F or B, micro-batch): (begin, end)}, each as early as it can be."""
    done, free, left_ = {}, [0] * STAGES, [list(orders(k)) for k in range(STAGES)]
    while any(left_):
        for k in range(STAGES):
            while left_[k]:
                what, m = left_[k][0]
                if what == "F":
                    before = (k - 1, "F", m) if k else None
                else:
                    before = (k + 1, "B", m) if k < STAGES - 1 else (k, "F", m)
                if before and before not in done:
                    break
                begin = max(free[k], done[before][1] if before else 0)
                free[k] = begin + (MICRO if m is None else 1) * (2 if what == "B" else 1)
                done[k, what, m] = (begin, free[k])
                left_[k].pop(0)
    return done


def idle(done):
    """The idle share of all stages, until the last has ended."""
    end = max(until for _, until in done.values())
    return 1 - sum(until - begin for begin, until in done.values()) / (STAGES * end)


def stored(done, k):
    """How many micro-batches' activations stage k stores: [(begin, end, number)].

    A forward pass stores those of a micro-batch, and its backward pass frees them.
    """
    changes = [
        (begin if what == "F" else until, (1 if what == "F" else -1) * (MICRO if m is None else 1))
        for (stage, what, m), (begin, until) in done.items()
        if stage == k
    ]
    spans, count = [], 0
    for (at_, change), (next_, _) in zip(sorted(changes), [*sorted(changes)[1:], (None, 0)]):
        count += change
        if next_ is not None and next_ > at_:
            spans.append((at_, next_, count))
    return spans


@figure("pipeline.svg", 600, 530)
def pipeline():
    """Schedules of {} stages and {} micro-batches; a backward pass takes twice as long as a forward
    one. Sequential: one stage works at a time, {}% idle. GPipe: all forward passes, then all
    backward passes, {}% idle. 1F1B: the two in turn, also {}% idle, but stage 0 stores the
    activations of {} micro-batches at most instead of {}; their number is shaded below its line."""
    panels = [
        ("Sequential", "one mini-batch, not cut", whole_batch),
        ("GPipe", "all forward, then all backward", gpipe),
        ("1F1B", "one forward, one backward in turn", one_forward_one_backward),
    ]
    parts, shares, most, unit = [], [], [], 11.8
    for number, (name, what, orders) in enumerate(panels):
        done, y = schedule(orders), 24 + 164 * number
        shares.append(round(100 * idle(done)))
        end = max(until for _, until in done.values())
        parts += [left(4, y, name, "title"), left(102, y, what, "small")]
        parts.append(text(592, y, "idle %d%%" % shares[-1], "end"))
        for k in range(STAGES):
            top, spans = y + 12 + 42 * k, stored(done, k)
            if number:
                stores = max(count for *_, count in spans)
                most.append(stores)
                plural = "es" if stores > 1 else ""
                words = f"stores up to {stores} micro-batch{plural}"
                parts.append(text(592, top + 18, words, "small end"))
            parts += [left(4, top + 18, f"stage {k}"), rect(62, top, unit * end, 24, "idle", 0)]
            for (stage, kind, m), (begin, until) in done.items():
                if stage == k:
                    words = str(m) if m is not None else "all"
                    width = unit * (until - begin) - 1
                    parts.append(bar(62 + unit * begin, top, width, "ab"[kind == "B"], words, 24))
            for begin, until, count in spans:
                height = 2 * count
                x, width = 62 + unit * begin, unit * (until - begin)
                parts.append(rect(x, top + 26, width, height, "c pale", 0))
    assert abs(idle(schedule(gpipe)) - (STAGES - 1) / (MICRO + STAGES - 1)) < 1e-9
    parts += [legend(4, 500, "a", "forward"), legend(92, 500, "b", "backward")]
    parts.append(legend(196, 500, "idle", f"idle; 0 to {MICRO - 1}: micro-batches", 30))
    parts.append(legend(4, 522, "c pale", "as high as the activations that this stage stores"))
    return parts, (STAGES, MICRO, *shares, most[STAGES], most[0])


# Failures.


def lane(y, spans):
    """One task: [(begin, end, kind, words)] in seconds after the fault."""
    parts = []
    for begin, end, kind, words in spans:
        x, width = seconds(begin), seconds(end) - seconds(begin)
        parts.append(rect(x, y, width, 24, kind, 3))
        parts.append(text(x + width / 2, y + 17, words, "small") if words else "")
    return parts


def seconds(time):
    return 150 + 28 * (time + 2)


def killed(y, tasks, lost, stopped, away, words):
    """The lanes of one fault; lost: the task that is killed; stopped: those that wait for it."""
    parts = []
    for row, task in enumerate(tasks):
        kind, top = ("ps", "ps", "a", "b")[row], y + 30 * row
        parts.append(left(4, top + 17, task))
        if task not in (lost, *stopped):
            parts += lane(top, [(-2, 12, kind, "")])
            continue
        gap = words[0] if task == lost else words[1]
        parts += lane(top, [(-2, 0, kind, ""), (0, away, "idle", gap), (away, 12, kind, "")])
    return [*parts, path(f"M{seconds(0):g} {y - 4:g} v126", "bar", tip=False)]


@figure("failures.svg", 560, 556)
def failures():
    """Three timelines after a SIGKILL, one measured run each. A worker: it pushes again after
    {:.1f} s, the others train on. The chief: back after {:.1f} s, the others train on, nobody saves
    or tests. One ps of two: no update for {:.1f} s, then all go on from the last checkpoint; {}
    updates are lost."""
    results = json.loads((ROOT / "Operations/Fault-Tolerance/results.json").read_text())
    worker, chief = (results["SIGKILL of " + name] for name in ("a worker", "the chief"))
    ps = results["SIGKILL of one ps of two"]
    assert worker["lost"] == chief["lost"] == 0 and max(worker["still"], chief["still"]) < 0.1
    tasks = ["ps 0", "ps 1", "worker 0, chief", "worker 1"]
    no_update = f"no update: {ps['still']:.1f} s"
    lost = f"all go on from the last checkpoint; {ps['lost']} updates are lost"
    parts = []
    for y, name, what in (
        (24, "A worker is killed", "the others train on, no update is lost"),
        (194, "The chief is killed", "the others train on, nobody saves or tests"),
        (364, "A ps is killed", lost),
    ):
        parts += [left(4, y, name, "title"), text(542, y, what, "small end")]
    for y, task, away in (
        (40, "worker 1", worker["away"]),
        (210, "worker 0, chief", chief["away"]),
    ):
        parts += killed(y, tasks, task, (), away, (f"back after {away:.1f} s", ""))
    parts += killed(380, tasks, "ps 1", tasks, ps["still"], ("starts again", no_update))
    parts += [text(seconds(second), 526, second, "small") for second in range(-2, 13, 2)]
    parts.append(text(seconds(5), 546, "seconds after SIGKILL (red); one run each", "small"))
    return parts, (worker["away"], chief["away"], ps["still"], ps["lost"])
