"""The figure of the notebook about graphs and sessions."""

from lab.drawings.shapes import arrow, box, figure, frame, left, lines, rect


@figure("graph.svg", 606, 256)
def graph():
    """A graph: x is a placeholder, w and b are variables. matmul takes x and w, add takes its
    result and b, loss takes the sum. A second branch, accuracy, hangs on the sum. A session that
    asks for loss runs x, w, b, matmul, add and loss, but not accuracy."""
    parts = [frame(10, 10, 390, 236, "the graph, built by Python")]
    parts += [
        box(70, 80, "x\nplaceholder", width=104, height=46),
        box(70, 142, "w\nvariable", "ps", width=104, height=46),
        box(70, 204, "b\nvariable", "ps", width=104, height=46),
        box(190, 110, "matmul", width=76),
        box(255, 170, "add", width=60),
        box(346, 110, "loss", width=76),
        box(346, 206, "accuracy", "idle", width=86),
        arrow(124, 84, 166, 91),
        arrow(124, 138, 150, 120),
        arrow(124, 200, 223, 174),
        arrow(206, 129, 238, 151),
        arrow(272, 151, 314, 128),
        arrow(280, 189, 301, 199),
    ]
    parts += [frame(430, 10, 166, 110, "a session"), box(513, 68, "run(loss)", width=120)]
    parts += [rect(306, 91, 80, 38, "b hollow", 6), arrow(453, 76, 391, 100)]
    parts.append(left(440, 106, "returns a number", "small"))
    notes = ["It walks back from loss", "and runs what it needs.", "accuracy is not run."]
    return parts + lines(430, 164, notes, step=22)
