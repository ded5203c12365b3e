"""Figures of the notebooks about the ring, and about what can be divided among devices."""

from drawings.rings import N, PHASES, during, messages, states, stepwise
from drawings.shapes import (
    arrow,
    bar,
    box,
    figure,
    frame,
    halves,
    left,
    legend,
    lines,
    matrix,
    rect,
    text,
)

# The ring once more: whose numbers are in each chunk.

COLOURS = ("a", "b", "c", "done")  # of the numbers of workers 0 to 3
CORNERS = ((110, 70), (490, 70), (490, 270), (110, 270))
EDGES = (((206, 70), (394, 70)), ((490, 127), (490, 213)), ((394, 270), (206, 270)))
EDGES += (((110, 213), (110, 127)),)


def chunks(x, y, k, found):
    """Worker k: four chunks; a chunk has a stripe for each worker whose numbers are in it."""
    parts = [rect(x - 92, y - 54, 184, 108, "box", 6), text(x, y - 32, "worker %d" % k, "title")]
    for c in range(N):
        at = x - 84 + 43 * c
        parts.append(text(at + 19, y - 10, "abcd"[c], "small"))
        for of, kind in enumerate(COLOURS):
            values = [int(of in have[k][c]) for have in found]
            parts.append(
                f'<rect x="{at}" y="{y - 3 + 12 * of}" width="38" height="12" class="{kind}" '
                f'opacity="{values[0]}">{stepwise("opacity", values)}</rect>'
            )
        parts.append(rect(at, y - 3, 38, 48, "line", 0))
    return parts


def tile(letter, x, y, phase):
    return rect(x - 14, y - 14, 28, 28, "box", 14) + text(x, y + 5, letter, "title")


@figure("ring-steps.svg", 600, 362)
def ring_steps():
    """Animated ring of {0} workers at the corners of a square; each sends to the next. A gradient
    is cut into chunks a to d. Coloured stripes say whose numbers are in a chunk. In {1} steps
    of reduce-scatter the sums grow, until each worker has one chunk with all four stripes. In
    {1} steps of all-gather copies of these chunks reach all workers."""
    found, parts = states(), [arrow(*begin, *end) for begin, end in EDGES]
    for k, corner in enumerate(CORNERS):
        parts += chunks(*corner, k, found)
    for step, (phase, s) in enumerate(PHASES):
        what = "adds it to its own" if phase == "reduce-scatter" else "puts it in place of its own"
        parts.append('<g opacity="%d">%s' % (not step, during(step)))
        parts += [text(300, 140, "%s, s = %d" % (phase, s), "title")]
        parts += [text(300, 166, "each worker sends a chunk;", "small")]
        parts += [text(300, 188, "the next one", "small"), text(300, 208, what, "small"), "</g>"]
    parts += messages(EDGES, tile)
    parts.append('<g opacity="0">' + during(len(PHASES)))
    done = ("every chunk of every worker", "is the sum of all four")
    parts += [*lines(300, 156, done, "title", 24, text), "</g>"]
    for of, kind in enumerate(COLOURS):
        parts.append(legend(10 + 148 * of, 350, kind, "of worker %d" % of))
    return parts, (N, N - 1)


# What can be divided: the rows of a batch, the layers, the matrices.


@figure("parallelism.svg", 580, 482)
def parallelism():
    """Two layers W1 and W2, and a batch X. Data parallelism gives each device half of the rows of X
    and a copy of both matrices; the devices exchange gradients as large as w. Model parallelism
    gives each device one matrix; h and its gradient cross. Tensor parallelism gives each device
    half of the columns of W1 and half of the rows of W2; the devices add partial sums."""
    parts, a, b = [], "a pale", "b pale"
    rows = [
        ("Data parallelism: cut the batch", "whole gradients", "w"),
        ("Model parallelism: cut between the layers", "h and its gradient", "the batch"),
        ("Tensor parallelism: cut inside the layers", "partial sums", "the batch"),
    ]
    for row, (name, what, size) in enumerate(rows):
        y = 52 + 142 * row
        parts += [left(8, y - 28, name, "title"), left(404, y + 32, what)]
        parts += [left(404, y + 54, "as large as " + size, "small")]
        if row == 0:
            parts += matrix(20, y, 64, 88, halves("X"), "rows")
            for x, width, height, name in ((136, 60, 64, "W1"), (276, 46, 60, "W2")):
                parts.append(rect(x + 16, y + 18, width, height, "box", 0))
                parts.append(rect(x + 16, y + 18, width, height, b, 0))
                parts.append(rect(x, y + 4, width, height, "box", 0))
                parts += matrix(x, y + 4, width, height, {name: a})
        elif row == 1:
            parts += matrix(20, y, 64, 88, {"X": a}) + matrix(144, y + 12, 60, 64, {"W1": a})
            parts += matrix(284, y + 14, 46, 60, {"W2": b})
        else:
            parts += matrix(20, y, 64, 88, {"X": "box"})
            parts += matrix(140, y + 12, 72, 64, halves("A"))
            parts += matrix(284, y + 14, 46, 60, halves("B"), "rows")
        begins = ((90, 218, 344), (90, 210, 336), (90, 218, 336))[row]
        ends = ((128, 268, 382), (138, 278, 382), (134, 278, 382))[row]
        for begin, end in zip(begins, ends):
            parts.append(arrow(begin, y + 44, end, y + 44))
        if row == 1:
            parts.append(text(244, y + 36, "h"))
    parts += [left(404, 24, "They exchange", "small")]
    parts += [legend(8, 470, a, "device 0"), legend(120, 470, b, "device 1")]
    return [*parts, legend(232, 470, "box", "on both, the same")]


@figure("graphs.svg", 592, 326)
def graphs():
    """Left, in-graph replication: one client builds one graph with tower 0, tower 1 and the mean.
    Worker 0 runs tower 0, worker 1 runs tower 1, and the ps holds w. Right, between-graph
    replication: each worker has a client with a graph of its own that holds one replica. The graphs
    share w on the ps."""
    parts = [
        left(8, 22, "In-graph replication", "title"),
        frame(8, 36, 272, 96, "one client, one graph"),
        bar(24, 70, 74, "a", "tower 0"),
        bar(108, 70, 74, "b", "tower 1"),
        box(231, 83, "mean", "ps", 70, 28),
        text(144, 120, "tower k computes g_k", "small"),
        box(78, 196, "worker 0\nruns tower 0", "box", 124, 50),
        box(210, 196, "worker 1\nruns tower 1", "box", 124, 50),
        arrow(78, 132, 78, 170),
        arrow(210, 132, 210, 170),
        box(144, 290, "ps\nw, mean", "ps", 124, 50),
        arrow(90, 222, 124, 264, both=True),
        arrow(198, 222, 164, 264, both=True),
        left(312, 22, "Between-graph replication", "title"),
    ]
    for k, x in enumerate((312, 454)):
        parts += [frame(x, 36, 130, 96, "client %d" % k)]
        parts += [bar(x + 16, 70, 98, "ab"[k], "replica %d" % k)]
        parts += [text(x + 65, 120, "its own graph", "small")]
        parts += [arrow(x + 65, 132, x + 65, 170)]
        parts += [box(x + 65, 196, "worker %d\nruns replica %d" % (k, k), "box", 130, 50)]
    parts += [box(448, 290, "ps\nw", "ps", 124, 50)]
    parts += [arrow(390, 222, 428, 264, both=True), arrow(506, 222, 468, 264, both=True)]
    return parts


@figure("tensor.svg", 592, 298)
def tensor():
    """Tensor parallelism of two layers. Both devices have X. Device 0 has columns A_0 of W1 and
    rows B_0 of W2, device 1 the others. Each computes H_k, then H_k B_k. One all-reduce between the
    devices adds these to Y; in the backward pass another adds the gradients of X."""
    parts = []
    for k, (y, kind) in enumerate(((66, "a"), (186, "b"))):
        parts += [rect(8, y - 56, 460, 102, kind + " hollow", 8)]
        parts += [left(20, y - 34, "device %d" % k, "title")]
        parts += [box(44, y, "X", "box", 40), arrow(66, y, 92, y)]
        parts += [box(126, y, "A_%d" % k, kind + " pale", 64), arrow(160, y, 186, y)]
        parts += [box(212, y, "H_%d" % k, "box", 48), arrow(238, y, 264, y)]
        parts += [box(298, y, "B_%d" % k, kind + " pale", 64), arrow(332, y, 358, y)]
        parts += [box(400, y, "H_%d B_%d" % (k, k), "box", 80), arrow(442, y, 488, y)]
        parts += [text(126, y + 34, "columns of W1", "small")]
        parts += [text(298, y + 34, "rows of W2", "small")]
    parts += [rect(490, 10, 94, 222, "ps", 6), text(537, 108, "all-reduce", "title")]
    parts += [text(537, 132, "adds both", "small"), text(537, 152, "to Y", "small")]
    parts += [left(8, 262, "Forward:", "title")]
    parts += [left(104, 262, "one all-reduce gives Y to both devices.", "small")]
    parts += [left(8, 286, "Backward:", "title")]
    parts += [left(104, 286, "one all-reduce adds the two gradients of X.", "small")]
    return parts
