"""The figure of the notebook about the theory of SGD."""

from lab.drawings.shapes import arrow, bar, box, figure, left, lines, text

KINDS = ("a", "b", "c", "done")


@figure("scaling.svg", 606, 298)
def scaling():
    """Four workers, each with a gradient of a mini-batch of B rows. Synchronous: their mean is one
    gradient of 4 B rows, and w makes one step. Asynchronous: each gradient makes a step of its own,
    and w has moved three times between the pull and the push of the last."""
    parts = [left(10, 24, "synchronous: one step", "title")]
    for k, kind in enumerate(KINDS):
        y = 62 + 34 * k
        parts.append(bar(10, y, 92, kind, f"g {k}: B rows"))
        parts.append(arrow(106, y + 13, 138, 120))
    parts += [box(168, 122, "mean", width=56), arrow(198, 122, 218, 122)]
    parts.append(box(252, 122, "w\nmoves", "ps", width=64, height=50))
    parts += [left(318, 24, "asynchronous: four steps", "title"), text(342, 54, "pull", "small")]
    for k, kind in enumerate(KINDS):
        y, end = 62 + 34 * k, 520 - 44 * k
        parts.append(bar(322, y, end - 322, kind, f"g {k}"))
        parts.append(arrow(end + 4, y + 13, end + 26, 206))
    parts.append(box(480, 226, "w moves four times", "ps", width=230))
    fewer = ("The batch has 4 B rows, and", "an epoch 4 times fewer steps.")
    late = ("As many steps as before. While g 0 is", "made, w moves 3 times: staleness 3.")
    return parts + lines(10, 226, fewer) + lines(318, 268, late)
