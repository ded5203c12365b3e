"""Figures of the notebooks TF2-Strategies and From-Here-to-DDP-and-FSDP."""

from drawings.shapes import KINDS, arrow, box, frame, left, rect, svg, text


def device(x, y, kind, words, width=104, height=58):
    """A box with a coloured border, which a replica has to itself."""
    return box(x, y, words, "box", width, height) + rect(
        x - width / 2, y - height / 2, width, height, kind + " hollow", 6
    )


def strategies():
    parts = [
        left(10, 24, "OneDeviceStrategy", "title"),
        frame(10, 36, 270, 126, ""),
        device(145, 99, "a", "device\nw, g"),
        left(320, 24, "MirroredStrategy", "title"),
        frame(320, 36, 270, 126, ""),
        device(384, 99, "a", "device 0\nw, g_0"),
        device(526, 99, "b", "device 1\nw, g_1"),
        arrow(438, 99, 472, 99, both=True),
        left(10, 212, "MultiWorkerMirroredStrategy", "title"),
        frame(10, 224, 128, 126, "worker 0"),
        frame(152, 224, 128, 126, "worker 1"),
        device(74, 296, "a", "device\nw, g_0"),
        device(216, 296, "b", "device\nw, g_1"),
        arrow(128, 296, 162, 296, both=True),
        left(10, 380, "A dashed frame is a process.", "small"),
        left(10, 402, "↔ between devices: an all-reduce;", "small"),
        left(10, 424, "then both have the mean gradient.", "small"),
        left(320, 212, "ParameterServerStrategy", "title"),
        frame(320, 224, 270, 50, "coordinator"),
        left(330, 264, "hands each update to a free worker", "small"),
        frame(320, 290, 128, 84, "worker 0"),
        frame(462, 290, 128, 84, "worker 1"),
        device(384, 340, "a", "pull, g, push", 110, 36),
        device(526, 340, "b", "pull, g, push", 110, 36),
        arrow(384, 276, 384, 288),
        arrow(526, 276, 526, 288),
        frame(320, 404, 270, 50, "ps"),
        box(526, 429, "w", "ps", 84, 32),
        arrow(384, 360, 490, 411, both=True),
        arrow(526, 360, 526, 411, both=True),
    ]
    words = (
        "Four strategies. OneDevice: one process, one device with w. Mirrored: one process, two "
        "devices, each with a copy of w and a gradient, joined by an all-reduce. "
        "MultiWorkerMirrored: the same with a process for each device. ParameterServer: a "
        "coordinator schedules updates on two worker processes, which pull w from a ps and push "
        "to it."
    )
    return svg(600, 464, words, parts)


STATES = (("parameters", 2), ("gradients", 2), ("optimizer state", 12))  # bytes of a parameter


def zero():
    """What each of three workers stores of the model, under ZeRO 0 to 3."""
    unit, top, height = 8, 76, 34
    columns, gap = [112 + 162 * k for k in range(3)], 6
    parts = [text(x + 70, 24, "worker %d" % k, "title") for k, x in enumerate(columns)]
    labels = ("w", "g", "optimizer")
    for x in columns:
        at = x
        for (_, size), label in zip(STATES, labels):
            parts.append(text(at + size * unit / 2, 58, label, "small"))
            at += size * unit + gap
    names = ("DDP", "ZeRO 1", "ZeRO 2", "ZeRO 3")
    formulas = ("16 bytes", "4 + 12/n", "2 + 14/n", "16/n")
    for stage in range(4):
        y = top + 66 * stage
        parts += [
            left(10, y + 16, names[stage], "title"),
            left(10, y + 36, formulas[stage], "small"),
        ]
        for k, x in enumerate(columns):
            at = x
            for number, (_, size) in enumerate(STATES):
                sharded = stage >= 3 - number
                width = size * unit
                parts.append(rect(at, y, width, height, "box", 2))
                if sharded:
                    part = height / 3
                    parts.append(rect(at, y + part * k, width, part, KINDS[k], 2))
                else:
                    parts.append(rect(at, y, width, height, KINDS[k], 2))
                at += width + gap
    parts.append(
        left(10, 354, "Coloured: stored by this worker. n is the number of workers;", "small")
    )
    parts.append(left(10, 374, "bytes are per parameter, with Adam in mixed precision.", "small"))
    words = (
        "What each of three workers stores. DDP: all of the parameters, the gradients and the "
        "optimizer state, 16 bytes for each parameter. ZeRO 1: a third of the optimizer state. "
        "ZeRO 2: also only a third of the gradients. ZeRO 3: a third of everything."
    )
    return svg(600, 386, words, parts)


DRAWN = {"strategies.svg": strategies, "zero.svg": zero}
