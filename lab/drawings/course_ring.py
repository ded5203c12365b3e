"""Figures of the notebooks about the ring, and about what can be divided among devices."""

from lab.drawings.shapes import (
    arrow,
    box,
    figure,
    frame,
    left,
    matrix,
    rect,
    text,
)


@figure("ring-steps.svg", 600, 250)
def ring_steps():
    """Four workers in a ring, in the first step of each half. Reduce-scatter: worker k sends chunk
    k - 1 to worker k + 1, which adds it; after three steps worker k has the sum of chunk k.
    All-gather: worker k sends chunk k, which replaces that of worker k + 1; after three steps all
    have all sums."""
    parts = []
    for half, (name, ends) in enumerate(
        (
            ("Reduce-scatter, s = 0: add", "worker k ends with the sum of chunk k"),
            ("All-gather, s = 0: replace", "all end with all sums"),
        )
    ):
        x = 10 + 300 * half
        corners = [(x + 45, 80), (x + 235, 80), (x + 235, 180), (x + 45, 180)]
        sent = [(k - 1 + half) % 4 for k in range(4)]
        parts += [left(x, 24, name, "title"), text(x + 140, 238, ends, "small")]
        parts += [box(*corners[k], f"worker {k}") for k in range(4)]
        parts += [arrow(x + 90, 80, x + 190, 80), arrow(x + 235, 100, x + 235, 160)]
        parts += [arrow(x + 190, 180, x + 90, 180), arrow(x + 45, 160, x + 45, 100)]
        parts.append(text(x + 140, 70, f"chunk {sent[0]}", "small"))
        parts.append(text(x + 226, 135, f"chunk {sent[1]}", "small end"))
        parts.append(text(x + 140, 200, f"chunk {sent[2]}", "small"))
        parts.append(left(x + 55, 135, f"chunk {sent[3]}", "small"))
    return parts


# What can be divided: the rows of a batch, the layers, the matrices.


@figure("parallelism.svg", 600, 560)
def parallelism():
    """Two layers W1 and W2, a batch X, and two devices. Data parallelism: each device has half of
    the rows of X and a copy of both matrices; they exchange gradients as large as w. Layers in two
    places: device 0 has X and W1, device 1 has W2; H and its gradient cross. Tensor parallelism:
    both have X, each has half of the columns of W1 and half of the rows of W2; they exchange and
    add partial sums."""
    parts = []
    rows = [
        ("Data parallelism: cut the batch", "gradients, as large as w"),
        ("Layers in two places: cut between the layers", "H and its gradient"),
        ("Tensor parallelism: cut inside the layers", "partial sums Y_k"),
    ]
    for row, (name, exchanged) in enumerate(rows):
        y = 24 + 186 * row
        parts.append(left(8, y, name, "title"))
        for k, kind in enumerate(("a pale", "b pale")):
            x, top = 8 + 302 * k, y + 10
            parts.append(frame(x, top, 282, 122, f"device {k}"))
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
                parts += matrix(x + 20, top + 28, 56, 64, {"X": "box"})
                parts += matrix(x + 120, top + 34, 34, 64, {f"U_{k}": kind})
                parts += matrix(x + 206, top + 52, 46, 30, {f"V_{k}": kind})
            if row != 1:  # what the devices exchange
                parts.append(
                    box((254, 32)[k] + x, top + 108, "gY"[row // 2] + f"_{k}", kind, 40, 22)
                )
                begin, end = (104, 172) if row == 0 else (116, 158)
                parts.append(arrow(x + 79, top + 66, x + begin, top + 66))
                parts.append(arrow(x + end, top + 66, x + 202, top + 66))
        if row == 1:
            parts += [arrow(87, top + 66, 112, top + 66), arrow(180, top + 66, 512, top + 66)]
            parts.append(text(220, top + 58, "H"))
        if row != 1:
            parts.append(arrow(283, top + 108, 321, top + 108, both=True))
        parts.append(text(300, top + 148, "exchanged: " + exchanged, "small"))
    return parts


@figure("tensor.svg", 600, 404)
def tensor():
    """Tensor parallelism of two layers on two devices. Device 0 has columns U_0 of W1 and rows V_0
    of W2, device 1 the others. Forward: f, the identity, gives X to both; each computes H_k and
    H_k V_k; g, an all-reduce, adds these to Y. Backward: g is the identity and gives dY to both; f
    is an all-reduce, which adds their parts of dX."""
    parts = []
    for row, (name, begin, end) in enumerate((("Forward", "X", "Y"), ("Backward", "dY", "dX"))):
        y = 30 + 190 * row
        parts.append(left(8, y - 8, name, "title"))
        for k, kind in enumerate("ab"):
            top = y + 6 + 76 * k
            parts.append(rect(156, top, 288, 66, kind + " hollow", 8))
            parts.append(left(164, top + 18, f"device {k}", "small"))
            first, second = (f"U_{k}", f"V_{k}") if row == 0 else (f"V_{k}ᵀ", f"U_{k}ᵀ")
            middle = f"H_{k}" if row == 0 else f"dH_{k}"
            parts.append(box(210, top + 42, first, kind + " pale", 56, 32))
            parts += [
                arrow(239, top + 42, 269, top + 42),
                box(300, top + 42, middle, "box", 60, 32),
            ]
            parts.append(arrow(331, top + 42, 361, top + 42))
            parts.append(box(390, top + 42, second, kind + " pale", 56, 32))
            parts += [arrow(137, top + 42, 180, top + 42), arrow(419, top + 42, 462, top + 42)]
        enter, leave = ("f", "g") if row == 0 else ("g", "f")
        parts += [box(24, y + 78, begin, "box", 36), arrow(43, y + 78, 55, y + 78)]
        parts += [rect(56, y + 6, 80, 142, "ps", 6), text(96, y + 72, enter, "title")]
        parts.append(text(96, y + 94, "identity", "small"))
        parts += [rect(464, y + 6, 84, 142, "ps", 6), text(506, y + 72, leave, "title")]
        parts += [text(506, y + 94, "all-reduce", "small"), arrow(549, y + 78, 561, y + 78)]
        parts.append(box(579, y + 78, end, "box", 34))
    parts.append(
        left(8, 396, "U_k: columns of W1 · V_k: rows of W2 · H_k = relu(X U_k + u_k)", "small")
    )
    return parts
