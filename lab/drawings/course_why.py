"""Figures of the notebooks that open and close the course: Why-Distribute, Which-Algorithm."""

from lab.drawings.shapes import (
    arrow,
    figure,
    halves,
    left,
    legend,
    lines,
    matrix,
    path,
    rect,
    text,
)


@figure("split.svg", 592, 238)
def split():
    """A layer multiplies the rows of data x by the weights w. Data parallel: worker 0 takes the
    upper rows and worker 1 the lower ones, and both have all of w. Model parallel: worker 0 takes
    the left columns of w and worker 1 the right ones, and both have all of x."""
    parts = []
    data_parallel = ("each worker: the whole model,", "some of the rows")
    model_parallel = ("each worker: all the rows,", "some of the model")
    for x, title, cut, data, weights, below in (
        (0, "Data parallel", "rows", halves("x"), {"w": "box"}, data_parallel),
        (310, "Model parallel", "columns", {"x": "box"}, halves("w"), model_parallel),
    ):
        parts += [
            text(x + 140, 22, title, "title"),
            *matrix(x + 5, 48, 80, 96, data, cut),
            text(x + 98, 101, "@"),
            *matrix(x + 110, 60, 72, 72, weights, cut),
            text(x + 194, 101, "="),
            *matrix(x + 206, 48, 74, 96, halves("y"), cut),
            *lines(x + 140, 172, below, step=19, draw=text),
        ]
    return [*parts, legend(170, 225, "a pale", "worker 0"), legend(300, 225, "b pale", "worker 1")]


def waits(x, y, synchronous):
    """Two rows of steps: those of two workers, with or without a barrier behind each."""
    lengths = ((26, 26), (38, 38)) if synchronous else ((26, 26, 26), (38, 38))
    parts = []
    for row, (kind, steps) in enumerate(zip("ab", lengths)):
        at = x
        for step in steps:
            parts.append(rect(at, y + 13 * row, step - 2, 10, kind, 2))
            at += 40 if synchronous else step
    if synchronous:
        parts += [rect(x + bar - 2, y - 4, 1, 31, "bar", 0) for bar in (40, 80)]
    return "".join(parts)


def hub(x, y):
    """A parameter server and three workers."""
    parts = [arrow(x + 22 * i, y + 30, x + 10 * i, y + 12, both=True) for i in (-1, 0, 1)]
    parts += [rect(x + 26 * i - 8, y + 32, 16, 12, kind, 3) for i, kind in zip((-1, 0, 1), "abc")]
    return "".join([*parts, rect(x - 18, y - 6, 36, 15, "ps", 3)])


def circle(x, y):
    """Three workers, each of which sends to the next."""
    at = (x, y - 2), (x + 25, y + 34), (x - 25, y + 34)
    parts = [rect(a - 8, b - 6, 16, 12, kind, 3) for (a, b), kind in zip(at, "abc")]
    parts += [
        arrow(x + 6, y + 8, x + 19, y + 25),
        arrow(x + 14, y + 35, x - 14, y + 35),
        arrow(x - 19, y + 25, x - 6, y + 8),
    ]
    return "".join(parts)


@figure("field.svg", 600, 676)
def field():
    """Map of the algorithms, by folder. Data parallel, asynchronous, parameter server: HogWild,
    Sparse-Embeddings, DOWNPOUR-Easy, DOWNPOUR, ADAG, DynSGD, AEASGD, AEAMSGD, Async-Local-SGD,
    Bounded-Staleness, Delay-Compensation, Parameter-Server-Strategy. Synchronous, parameter server:
    Synchronous-SGD, with different learning rates, SAGN, Local-SGD, DiLoCo. Asynchronous, no
    server: Gossip-SGD. Synchronous, no server: Ring-AllReduce, Collective-AllReduce,
    Horovod-RingAllReduce, Compressed-AllReduce, Sharded-Training, D-PSGD,
    Multiple-GPUs-Single-Machine. Model parallel: Model-Parallelism. One worker:
    Non-Distributed-Setup, Distributed-Setup."""
    column, row = (130, 368), (112, 324)
    gossip = ("Gossip-SGD: workers", "average with a neighbour")
    asynchronous = ["HogWild, DOWNPOUR-Easy", "DOWNPOUR, ADAG", "Sparse-Embeddings"]
    asynchronous += ["AEASGD, AEAMSGD", "DynSGD, Async-Local-SGD", "Bounded-Staleness"]
    synchronous = ["Synchronous-SGD", "Synchronous-SGD-", "   different-learning-rates"]
    all_reduce = ["Ring-AllReduce", "Collective-AllReduce", "Horovod-RingAllReduce"]
    sharing = ["Compressed-AllReduce", "Sharded-Training, D-PSGD"]
    lists = {
        (0, 0): [*asynchronous, "Delay-Compensation", "Parameter-Server-Strategy"],
        (1, 0): [*synchronous, "SAGN, Local-SGD, DiLoCo"],
        (1, 1): [*all_reduce, *sharing, "Multiple-GPUs-", "   Single-Machine"],
    }
    parts = [
        left(0, 20, "Data parallel: each worker has mini-batches of its own", "title"),
        rect(1, 32, 598, 468, "frame", 8),
        text(column[0] + 113, 56, "asynchronous", "title"),
        text(column[1] + 113, 56, "synchronous", "title"),
        text(column[0] + 60, 84, "nobody waits", "small"),
        waits(column[0] + 120, 73, False),
        text(column[1] + 60, 84, "all wait", "small"),
        waits(column[1] + 110, 73, True),
        *lines(64, row[0] + 48, ("parameter", "server"), "title", 19, text),
        hub(64, row[0] + 92),
        text(64, row[1] + 50, "no server", "title"),
        circle(64, row[1] + 80),
    ]
    for (i, j), names in lists.items():
        parts.append(rect(column[i], row[j], 226, (200, 168)[j], "ps" if j == 0 else "box", 6))
        parts += lines(column[i] + 14, row[j] + 25, names, "", 22)
    parts += [
        rect(column[0], row[1], 226, 168, "box", 6),
        *lines(column[0] + 14, row[1] + 25, gossip, "", 22),
        left(0, 530, "Model parallel: each worker has a part of the model", "title"),
        rect(1, 542, 598, 44, "frame", 8),
        left(144, 569, "Model-Parallelism"),
        left(0, 616, "One worker: the reference", "title"),
        rect(1, 628, 598, 44, "frame", 8),
        left(144, 655, "Non-Distributed-Setup, Distributed-Setup"),
    ]
    return parts


ROW = 62  # the height of a row of algorithms()


def lane(number, name, rule, calls, one="", barrier=False):
    """A row: what worker 0 does, below the line of the parameter server.

    calls: how many gradients stand between each pull and its push.
    """
    top, bottom, x = 62 + ROW * number, 98 + ROW * number, 180
    parts = [left(0, top + 14, name, "title"), left(0, top + 34, one, "small")]
    parts.append(path(f"M160 {top} H396", tip=False))
    for gradients in calls:
        begin, x = x, x + 17 * gradients
        parts += [rect(begin + 17 * i, bottom - 12, 14, 14, "a", 2) for i in range(gradients)]
        parts.append(arrow(begin - 10, top + 1, begin - 3, bottom - 13))
        parts.append(arrow(x + 1, bottom - 13, x + 8, top + 2))
        if barrier:
            parts.append(rect(x + 12, top - 4, 1, 46, "bar", 0))
        x += 42 if barrier else 26
    return "".join(parts + lines(412, top + 14, rule.split("; "), ""))


@figure("algorithms.svg", 600, 82 + ROW * 7)
def algorithms():
    """Seven algorithms, seen from one worker. HogWild and DynSGD: pull, one gradient, push, again
    and again. DOWNPOUR-Easy and ADAG: pull, T gradients, push. What a push does: HogWild subtracts
    lr times g; DynSGD lr times g / (staleness + 1); DOWNPOUR-Easy lr times the sum a of T
    gradients; ADAG lr times a / T. With a barrier behind each push: Synchronous SGD subtracts lr
    times the mean of all g, Local-SGD lr times the mean of all a, SAGN lr times this mean / T."""
    every_step, window = [1] * 5, [4, 4]
    note = "The line above the squares: w on the server. Red: a barrier."
    return [
        left(0, 22, "algorithm", "small"),
        left(160, 22, "one worker: pull, gradients, push", "small"),
        *lines(412, 22, ("a push on the server", "a: sum of T gradients")),
        lane(0, "HogWild", "w ← w − lr·g", every_step),
        lane(1, "DynSGD", "w ← w − lr·g /; (staleness + 1)", every_step),
        lane(2, "DOWNPOUR-Easy", "w ← w − lr·a", window, "T steps alone"),
        lane(3, "ADAG", "w ← w − lr·a / T", window, "T steps alone"),
        lane(4, "Synchronous SGD", "w ← w − lr · the mean; of all g", [1] * 4, "waits", True),
        lane(5, "Local-SGD", "w ← w − lr · the mean; of all a", window, "T steps, waits", True),
        lane(6, "SAGN", "w ← w − lr · the mean; of all a, / T", window, "T steps, waits", True),
        left(0, 70 + ROW * 7, note, "small"),
    ]


QUESTIONS = (  # a question, and the two lines of the answer if it is yes
    (
        "Is one device large and fast enough?",
        "do not distribute:",
        "Non-Distributed-Setup",
    ),
    (
        "Is the model too large for a device?",
        "Sharded-Training; then Model-",
        "Parallelism, Sparse-Embeddings",
    ),
    (
        "Do the devices of one machine suffice?",
        "Multiple-GPUs-",
        "Single-Machine",
    ),
    (
        "Are the machines equal, and do all stay?",
        "Collective-AllReduce; slow",
        "network: Local-SGD, DiLoCo",
    ),
    (
        "Is just one slow at a time?",
        "HogWild; DynSGD; with a",
        "backup: Synchronous-SGD",
    ),
    (
        "Do gradients cost far more than pulls?",
        "HogWild or Parameter-Server-",
        "Strategy; if unstable, DynSGD",
    ),
)


@figure("choose.svg", 616, 66 + 70 * len(QUESTIONS))
def choose():
    """Decision chart. {} Otherwise one process is sooner; if impossible, many steps between two
    messages: Local-SGD if all stay, else ADAG."""
    parts = []
    for number, (question, *folders) in enumerate(QUESTIONS):
        y = 30 + 70 * number
        parts += [
            rect(4, y - 22, 320, 44, "box", 6),
            text(164, y + 5, question),
            arrow(325, y, 364, y),
            text(343, y - 8, "yes", "small"),
            rect(366, y - 25, 246, 50, "ps", 6),
            arrow(157, y + 23, 157, y + 47),
            left(167, y + 41, "no", "small"),
        ]
        parts += lines(489, y - 4, folders, "", draw=text)
    y = 30 + 70 * len(QUESTIONS)
    parts += [
        rect(4, y - 22, 608, 50, "ps", 6),
        text(308, y - 1, "one process is sooner; if impossible, many steps between two messages:"),
        text(308, y + 19, "Local-SGD if all stay, else ADAG"),
    ]
    answers = [f"{question} If yes: {' '.join(folders)}." for question, *folders in QUESTIONS]
    return parts, [" ".join(answers).replace("- ", "-")]
