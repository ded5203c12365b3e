"""Figures of the notebooks about asynchronous workers."""

from lab.drawings.shapes import KINDS, arrow, box, figure, frame, left, rect, text


def process(x, y, width, height, words):
    """A dashed frame with its name at the bottom, so that arrows can enter from above."""
    name = text(x + width / 2, y + height - 12, words, "title")
    return rect(x, y, width, height, "frame", 8) + name


@figure("copies.svg", 580, 334)
def copies():
    """The ps holds the global variables w. Worker 0 and worker 1 each hold local variables: a copy
    w_k and a sum of gradients a. Pull arrows copy w down into w_k, push arrows send lr·a up,
    where the ps subtracts it from w."""
    parts = [rect(10, 10, 560, 84, "ps", 8), left(22, 34, "ps", "title")]
    parts.append(box(290, 52, "w\nglobal: one for all", "ps", width=170, height=52))
    for k, x in enumerate((10, 310)):
        side = 1 if k == 0 else -1  # worker 1 is the mirror image
        middle, kind = x + 130, KINDS[k] + " pale"
        own, total = middle + 62 * side, middle - 62 * side
        parts.append(process(x, 180, 260, 116, f"worker {k}"))
        parts.append(box(own, 228, f"w_{k}\na copy", kind, width=108, height=56))
        parts.append(box(total, 228, "a\nsum of g", kind, 108, 56))
        parts += [arrow(own + 36 * side, 78, own, 198), arrow(total, 198, total + 14 * side, 84)]
        parts += [text(own + 48 * side, 146, "pull"), text(total - 36 * side, 146, "push lr·a")]
        parts.append(text(total + 6 * side, 64, "w ← w − lr·a"))
    parts.append(left(10, 322, "blue, orange: local variables, each worker has its own", "small"))
    return parts


@figure("shards.svg", 600, 352)
def shards():
    """This notebook is the ps: it holds the parameters w and the counter step. Two processes,
    worker 0 and worker 1, pull from it and push to it. Each has its own copy w_k, its own gradient
    g, and its own shard: worker 0 the even rows, worker 1 the odd rows."""
    parts = [frame(10, 10, 580, 100, "this notebook: the ps")]
    parts.append(box(218, 68, "w\n2,410 parameters", "ps", width=150, height=56))
    parts.append(box(400, 68, "step\nnext ticket", "ps", width=130, height=56))
    for k, x in enumerate((10, 310)):
        middle, kind = x + 140, KINDS[k] + " pale"
        parts.append(process(x, 186, 280, 156, f"process: worker {k}"))
        parts.append(box(middle, 218, "w_k, g", kind, width=200, height=36))
        parts.append(text(middle, 264, "its shard of the rows", "small"))
        for row in range(16):
            own = row % 2 == k
            parts.append(rect(x + 21 + 15 * row, 276, 12, 22, KINDS[k] if own else "idle", 2))
        parts.append(arrow(middle - 20, 112, middle - 20, 198))
        parts.append(arrow(middle + 20, 198, middle + 20, 112))
        parts += [text(middle - 28, 154, "pull", "end"), left(middle + 28, 154, "push")]
    return parts
