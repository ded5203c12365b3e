"""Figures of the notebook Beyond-ZeRO: machines and their two networks, and how a model is cut."""

from lab.drawings.shapes import arrow, box, circle, figure, frame, left, line, lines, rect, text

PLACES = ("a", "b", "c", "done")  # the colours of a machine's four GPUs


@figure("networks.svg", 600, 276)
def networks():
    """Two machines of four GPUs. Inside a machine a fast network joins its GPUs, with 450 GB/s for
    each. Each GPU also has a network card of 50 GB/s to the other machine. The GPUs at the same
    place of both machines have one colour: on two levels they all-reduce one shard."""
    parts = []
    for m in range(2):
        x = 4 + 304 * m
        parts.append(frame(x, 8, 288, 160, f"machine {m}"))
        parts += [rect(x + 12, 40, 264, 26, "ps"), text(x + 144, 58, "inside: 450 GB/s a GPU")]
        for place, kind in enumerate(PLACES):
            middle = x + 45 + 66 * place
            parts.append(line([(middle, 66), (middle, 82)]))
            parts.append(box(middle, 100, f"GPU {4 * m + place}", kind + " pale", 60, 36))
            parts.append(line([(middle, 118), (middle, 128)]))
            parts += [rect(middle - 22, 128, 44, 24, "box"), text(middle, 145, "card", "small")]
            parts.append(line([(middle, 152), (middle, 188)]))
    parts += [rect(4, 188, 592, 28, "ps"), text(300, 207, "between machines: 50 GB/s a card")]
    notes = (
        "Two levels: a reduce-scatter in each machine; GPUs of one colour",
        "all-reduce their shard between machines; an all-gather in each.",
    )
    return parts + lines(4, 242, notes)


TENSOR, PIPELINE, DATA = 4, 2, 2  # ranks


@figure("mesh.svg", 600, 286)
def mesh():
    """The place of 16 ranks: {} share each matrix, in one machine; {} such groups are the stages of
    a pipeline; {} pipelines are data-parallel. Ranks of a group all-reduce activations, stages send
    activations to each other, and ranks at the same place of both pipelines all-reduce
    gradients."""
    parts, rank = [], 0
    for d in range(DATA):
        x = 4 + 316 * d
        parts.append(frame(x, 8, 276, 186, f"data-parallel group {d}"))
        for p, kind in enumerate("ab"):
            y = 40 + 82 * p
            parts += [rect(x + 10, y, 256, 60, "box", 6), left(x + 18, y + 35, f"stage {p}")]
            for t in range(TENSOR):
                parts.append(box(x + 102 + 46 * t, y + 30, str(rank), kind + " pale", 40, 36))
                rank += 1
        parts.append(arrow(x + 138, 101, x + 138, 121, both=True))
    for p in range(PIPELINE):
        parts.append(arrow(272, 70 + 82 * p, 328, 70 + 82 * p, both=True))
    notes = (
        "A box is a machine: its 4 ranks share each matrix.",
        "Up and down: activations, between the stages of a pipeline.",
        "Across: gradients, between ranks at the same place of both groups.",
        "Rank = t + 4 (p + 2 d): neighbours send each other most.",
    )
    return parts + lines(4, 218, notes), (TENSOR, PIPELINE, DATA)


@figure("hsdp.svg", 600, 226)
def hsdp():
    """HSDP on two machines of four GPUs. In each machine a GPU has a quarter of the parameters, the
    gradient and the optimizer's state, and gathers the rest from its own machine. GPUs with the
    same quarter all-reduce that quarter of the gradient between the machines."""
    parts = []
    for place in range(4):
        parts.append(text(158 + 122 * place, 24, f"GPUs {place}, {4 + place}", "small"))
    for m in range(2):
        y = 38 + 86 * m
        parts.append(left(4, y + 22, f"machine {m}"))
        for place, kind in enumerate(PLACES):
            x = 104 + 122 * place
            parts += [rect(x, y, 108, 34, "box", 2), rect(x + 27 * place, y, 27, 34, kind, 2)]
            if place:
                parts.append(arrow(x - 13, y + 17, x - 1, y + 17, both=True))
    for place in range(4):
        parts.append(arrow(158 + 122 * place, 74, 158 + 122 * place, 122, both=True))
    notes = (
        "Coloured: what a GPU stores of w, gradient and optimizer state.",
        "Across: all-gathers and reduce-scatters, inside a machine.",
        "Up and down: an all-reduce of a quarter of the gradient.",
    )
    return parts + lines(4, 182, notes)


@figure("attention.svg", 600, 268)
def attention():
    """Ring attention on three devices. Each keeps the queries of its third of the tokens. Keys and
    values move one device to the right after steps 0 and 1; in step 2 all queries have met all
    keys and values."""
    parts = [text(166 + 176 * k, 22, f"device {k}", "title") for k in range(3)]
    for s in range(3):
        y = 56 + 70 * s
        parts.append(left(4, y + 5, f"step {s}"))
        for k in range(3):
            x, owner = 166 + 176 * k, (k - s) % 3
            words = f"Q_{k} with K_{owner}, V_{owner}"
            parts.append(box(x, y, words, "abc"[owner] + " pale", 148, 36))
            if s < 2 and k < 2:
                parts.append(arrow(x + 40, y + 19, x + 136, y + 51))
        if s < 2:  # from the last device to the first
            parts.append(arrow(166 + 352 + 40, y + 19, 166 + 352 + 76, y + 31))
            parts.append(arrow(166 - 76, y + 39, 166 - 40, y + 51))
    return [*parts, left(4, 252, "Colour: whose tokens the keys and values belong to.", "small")]


CHOICE = ((0, 2, 1, 2), (2, 0, 2, 3))  # the expert of each token of a device


@figure("experts.svg", 600, 322)
def experts():
    """Expert parallelism on two devices, each with four tokens and two of four experts. A router
    sends each token to one expert, by an all-to-all; the results come back by a second one. Expert
    2 gets {} of the eight tokens, expert 1 only one, so some devices wait for others."""
    parts = [text(92, 20, "tokens", "small"), text(300, 20, "experts", "small")]
    parts.append(text(508, 20, "the same tokens", "small"))
    parts += [text(196, 20, "all-to-all", "small"), text(404, 20, "all-to-all", "small")]
    for device, kind in enumerate("ab"):
        y = 28 + 132 * device
        parts += [rect(2, y, 596, 118, "frame", 8), left(10, y + 64, f"dev. {device}", "small")]
        for i, chosen in enumerate(CHOICE[device]):
            at, there = y + 22 + 25 * i, 28 + 132 * (chosen // 2) + 34 + 52 * (chosen % 2)
            parts.append(line([(100, at), (262, there)], kind + " thin"))
            parts.append(line([(338, there), (500, at)], kind + " thin"))
            parts += [circle(92, at, 8, kind), circle(508, at, 8, kind)]
        for e in range(2):
            parts.append(box(300, y + 34 + 52 * e, f"expert {2 * device + e}", "ps", 76, 34))
    most = sum(chosen == 2 for some in CHOICE for chosen in some)
    notes = (f"Colour: a token's device. Expert 2 gets {most} of 8 tokens, expert 1 one:",)
    return [*parts, *lines(4, 296, (*notes, "the router is trained to spread them."))], (most,)
