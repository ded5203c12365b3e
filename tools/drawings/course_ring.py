"""Figures of the notebooks about the ring, and about what can be divided among devices."""

from drawings.shapes import (
    arrow,
    bar,
    box,
    figure,
    frame,
    left,
    matrix,
    rect,
    text,
)

# What can be divided: the rows of a batch, the layers, the matrices.


@figure("parallelism.svg", 600, 560)
def parallelism():
    """Two layers W1 and W2, a batch X, and two devices. Data parallelism: each device has half of
    the rows of X and a copy of both matrices; they exchange gradients as large as w. Layers in two
    places: device 0 has X and W1, device 1 has W2; h and its gradient cross. Tensor parallelism:
    both have X, each has half of the columns of W1 and half of the rows of W2; they add partial
    sums."""
    parts = []
    rows = [
        ("Data parallelism: cut the batch", "gradients, as large as w"),
        (
            "Layers in two places: cut between the layers",
            "h and its gradient, as large as the batch",
        ),
        ("Tensor parallelism: cut inside the layers", "partial sums, as large as the batch"),
    ]
    for row, (name, exchanged) in enumerate(rows):
        y = 24 + 186 * row
        parts += [left(8, y, name, "title")]
        for k, kind in enumerate(("a pale", "b pale")):
            x, top = 8 + 302 * k, y + 10
            parts += [frame(x, top, 282, 122, "device %d" % k)]
            if row == 0:
                parts += matrix(x + 20, top + 46, 56, 40, {f"X_{k}": kind})
                parts += matrix(x + 108, top + 32, 60, 64, {"W1": "box"})
                parts += matrix(x + 206, top + 36, 46, 60, {"W2": "box"})
            elif row == 1:
                if k == 0:
                    parts += matrix(x + 20, top + 28, 56, 80, {"X": kind})
                    parts += matrix(x + 108, top + 34, 60, 64, {"W1": kind})
                else:
                    parts += matrix(x + 206, top + 36, 46, 60, {"W2": kind})
            else:
                parts += matrix(x + 20, top + 28, 56, 80, {"X": "box"})
                parts += matrix(x + 120, top + 34, 34, 64, {f"A_{k}": kind})
                parts += matrix(x + 206, top + 52, 46, 30, {f"B_{k}": kind})
            if row != 1:
                begin, end = (104, 172) if row == 0 else (116, 158)
                parts += [arrow(x + 79, top + 66, x + begin, top + 66)]
                parts += [arrow(x + end, top + 66, x + 202, top + 66)]
        if row == 1:
            parts += [arrow(87, top + 66, 112, top + 66), arrow(180, top + 66, 512, top + 66)]
            parts += [text(220, top + 58, "h")]
        parts += [text(300, top + 148, "exchanged: " + exchanged, "small")]
    return parts


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


@figure("tensor.svg", 600, 404)
def tensor():
    """Tensor parallelism of two layers on two devices. Device 0 has columns A_0 of W1 and rows B_0
    of W2, device 1 the others. Forward: f, the identity, gives X to both; each computes H_k and
    H_k B_k; g, an all-reduce, adds these to Y. Backward: g is the identity and gives dY to both; f
    is an all-reduce, which adds their parts of dX."""
    parts = []
    for row, (name, begin, end) in enumerate((("Forward", "X", "Y"), ("Backward", "dY", "dX"))):
        y = 30 + 190 * row
        parts += [left(8, y - 8, name, "title")]
        for k, kind in enumerate("ab"):
            top = y + 6 + 76 * k
            parts += [rect(156, top, 288, 66, kind + " hollow", 8)]
            parts += [left(164, top + 18, "device %d" % k, "small")]
            first, second = (f"A_{k}", f"B_{k}") if row == 0 else (f"B_{k}ᵀ", f"A_{k}ᵀ")
            middle = f"H_{k}" if row == 0 else f"dH_{k}"
            parts += [box(210, top + 42, first, kind + " pale", 56, 32)]
            parts += [
                arrow(239, top + 42, 269, top + 42),
                box(300, top + 42, middle, "box", 60, 32),
            ]
            parts += [arrow(331, top + 42, 361, top + 42)]
            parts += [box(390, top + 42, second, kind + " pale", 56, 32)]
            parts += [arrow(137, top + 42, 180, top + 42), arrow(419, top + 42, 462, top + 42)]
        enter, leave = ("f", "g") if row == 0 else ("g", "f")
        parts += [box(24, y + 78, begin, "box", 36), arrow(43, y + 78, 55, y + 78)]
        parts += [rect(56, y + 6, 80, 142, "ps", 6), text(96, y + 72, enter, "title")]
        parts += [text(96, y + 94, "identity", "small")]
        parts += [rect(464, y + 6, 84, 142, "ps", 6), text(506, y + 72, leave, "title")]
        parts += [text(506, y + 94, "all-reduce", "small"), arrow(549, y + 78, 561, y + 78)]
        parts += [box(579, y + 78, end, "box", 34)]
    parts += [left(8, 396, "A_k: columns of W1 · B_k: rows of W2 · H_k = X A_k", "small")]
    return parts
