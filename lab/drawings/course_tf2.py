"""Figures of the notebooks TF2-Strategies and From-Here-to-DDP-and-FSDP."""

import functools

from lab.drawings.shapes import KINDS, arrow, box, figure, frame, left, lines, outlined, rect, text


@figure("strategies.svg", 600, 464)
def strategies():
    """Four strategies. OneDevice: one process, one device with w. Mirrored: one process, two
    devices, each with a copy of w and a gradient, joined by an all-reduce. MultiWorkerMirrored: the
    same with a process for each device. ParameterServer: a coordinator schedules updates on two
    worker processes, which pull w from a ps and push to it."""
    device = functools.partial(outlined, width=104, height=58)
    note = "A dashed frame is a process.", "↔ between devices: an all-reduce;"
    return [
        left(10, 24, "OneDeviceStrategy", "title"),
        frame(10, 36, 270, 126, ""),
        device(145, 99, "device\nw, g", "a"),
        left(320, 24, "MirroredStrategy", "title"),
        frame(320, 36, 270, 126, ""),
        device(384, 99, "device 0\nw, g_0", "a"),
        device(526, 99, "device 1\nw, g_1", "b"),
        arrow(438, 99, 472, 99, both=True),
        left(10, 212, "MultiWorkerMirroredStrategy", "title"),
        frame(10, 224, 128, 126, "worker 0"),
        frame(152, 224, 128, 126, "worker 1"),
        device(74, 296, "device\nw, g_0", "a"),
        device(216, 296, "device\nw, g_1", "b"),
        arrow(128, 296, 162, 296, both=True),
        *lines(10, 380, (*note, "then both have the mean gradient."), step=22),
        left(320, 212, "ParameterServerStrategy", "title"),
        frame(320, 224, 270, 50, "coordinator"),
        left(330, 264, "hands each update to a free worker", "small"),
        frame(320, 290, 128, 84, "worker 0"),
        frame(462, 290, 128, 84, "worker 1"),
        outlined(384, 340, "pull, g, push", "a", 110, 36),
        outlined(526, 340, "pull, g, push", "b", 110, 36),
        arrow(384, 276, 384, 288),
        arrow(526, 276, 526, 288),
        frame(320, 404, 270, 50, "ps"),
        box(526, 429, "w", "ps", 84, 32),
        arrow(384, 360, 490, 411, both=True),
        arrow(526, 360, 526, 411, both=True),
    ]


@figure("closures.svg", 560, 300)
def closures():
    """The coordinator runs the only training loop. It schedules closures of one update each in a
    queue. A free worker takes the next one, pulls w from the ps, computes a gradient, pushes it,
    and returns a result."""
    parts = [
        frame(10, 10, 540, 92, "coordinator: the only training loop"),
        text(84, 70, "schedule()"),
    ]
    parts += [box(202 + 64 * number, 65, "closure", width=60) for number in range(4)]
    parts += [arrow(126, 65, 170, 65), text(490, 60, "a queue; each:", "small")]
    parts.append(text(490, 79, "one update", "small"))
    for number, x in enumerate((150, 410)):
        parts.append(outlined(x, 190, f"worker {number}\npull, g, push", KINDS[number], 150, 56))
        parts += [arrow(x - 20, 104, x - 20, 160), arrow(x + 20, 160, x + 20, 104)]
        parts.append(text(x - 28, 138, "a closure", "small end"))
        parts.append(left(x + 28, 138, "result", "small"))
        parts.append(arrow(x + (280 - x) / 6, 220, 280 + (x - 280) / 4, 244, both=True))
    return [*parts, box(280, 270, "ps\nw, step", "ps", 190, 50)]


STATES = (("parameters", 2), ("gradients", 2), ("optimizer state", 12))  # bytes of a parameter


@figure("zero.svg", 600, 386)
def zero():
    """What each of three workers stores. DDP: all of the parameters, the gradients and the
    optimizer state, 16 bytes for each parameter. ZeRO 1: a third of the optimizer state. ZeRO 2:
    also only a third of the gradients. ZeRO 3: a third of everything."""
    unit, top, height = 8, 76, 34
    columns, gap = [112 + 162 * k for k in range(3)], 6
    parts = [text(x + 70, 24, f"worker {k}", "title") for k, x in enumerate(columns)]
    labels = ("w", "g", "optimizer")
    for x in columns:
        at = x
        for (_, size), label in zip(STATES, labels):
            parts.append(text(at + size * unit / 2, 58, label, "small"))
            at += size * unit + gap
    stages = ("DDP", "16 bytes"), ("ZeRO 1", "4 + 12/n"), ("ZeRO 2", "2 + 14/n"), ("ZeRO 3", "16/n")
    for stage, (name, formula) in enumerate(stages):
        y = top + 66 * stage
        parts += [left(10, y + 16, name, "title"), left(10, y + 36, formula, "small")]
        for k, x in enumerate(columns):
            at = x
            for number, (_, size) in enumerate(STATES):
                width = size * unit
                parts.append(rect(at, y, width, height, "box", 2))
                sharded = stage >= 3 - number
                part, begin = (height / 3, y + height / 3 * k) if sharded else (height, y)
                parts.append(rect(at, begin, width, part, KINDS[k], 2))
                at += width + gap
    notes = (
        "Coloured: stored by this worker. n is the number of workers;",
        "bytes are per parameter, with Adam in mixed precision.",
    )
    return parts + lines(10, 354, notes)
