"""Figures of the notebooks about asynchronous workers."""

from drawings.shapes import KINDS, arrow, bar, box, figure, frame, left, lines, path, rect, text


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
    parts += [box(290, 52, "w\nglobal: one for all", "ps", width=170, height=52)]
    for k, x in enumerate((10, 310)):
        side = 1 if k == 0 else -1  # worker 1 is the mirror image
        middle, kind = x + 130, KINDS[k] + " pale"
        own, total = middle + 62 * side, middle - 62 * side
        parts += [process(x, 180, 260, 116, "worker %d" % k)]
        parts += [box(own, 228, "w_%d\na copy" % k, kind, width=108, height=56)]
        parts += [box(total, 228, "a\nsum of g", kind, 108, 56)]
        parts += [arrow(own + 36 * side, 78, own, 198), arrow(total, 198, total + 14 * side, 84)]
        parts += [text(own + 48 * side, 146, "pull"), text(total - 36 * side, 146, "push lr·a")]
        parts += [text(total + 6 * side, 64, "w ← w − lr·a")]
    parts += [left(10, 322, "blue, orange: local variables, each worker has its own", "small")]
    return parts


@figure("shards.svg", 600, 352)
def shards():
    """This notebook is the ps: it holds the parameters w and the counter step. Two processes,
    worker 0 and worker 1, pull from it and push to it. Each has its own copy w_k, gradient g and
    number of pushes, and its own shard: worker 0 every even row, worker 1 every odd row."""
    parts = [frame(10, 10, 580, 100, "this notebook: the ps")]
    parts += [box(218, 68, "w\n2,410 parameters", "ps", width=150, height=56)]
    parts += [box(400, 68, "step\nnext ticket", "ps", width=130, height=56)]
    for k, x in enumerate((10, 310)):
        middle, kind = x + 140, KINDS[k] + " pale"
        parts += [process(x, 186, 280, 156, "process: worker %d" % k)]
        parts += [box(middle, 218, "w_k, g, pushes", kind, width=200, height=36)]
        parts += [text(middle, 264, "its shard of the rows", "small")]
        for row in range(16):
            own = row % 2 == k
            parts.append(rect(x + 21 + 15 * row, 276, 12, 22, KINDS[k] if own else "idle", 2))
        parts += [arrow(middle - 20, 112, middle - 20, 198)]
        parts += [arrow(middle + 20, 198, middle + 20, 112)]
        parts += [text(middle - 28, 154, "pull", "end"), left(middle + 28, 154, "push")]
    return parts


@figure("kernels.svg", 580, 284)
def kernels():
    """Three notebooks as three rows, time from left to right. Each starts at another time and waits
    until all three are there: the barrier met. At the barrier begin all three meet again. Then
    Worker-1 and Worker-2 pull, compute and push at the same time, at a pace of their own, while
    Parameter-Server holds w. At the barrier end all three meet once more."""
    names = ("Parameter-Server", "Worker-1", "Worker-2")
    met, begin, end, rows = 226, 298, 510, (48, 96, 144)
    parts = [text(met, 22, "met", "title"), text(begin, 22, "begin", "title")]
    parts += [text(end, 22, "end", "title")]
    for name, y, start in zip(names, rows, (166, 132, 186)):
        parts += [left(4, y + 18, name)]
        parts += [rect(start, y, met - start, 26, "idle", 3)]
    parts += [rect(met, 48, end - met, 26, "ps", 3), text(404, 66, "holds w, step, notes")]
    for kind, y, alone in (("a", 96, 44), ("b", 144, 20)):
        parts += [rect(met + 3, y, alone, 26, kind + " pale", 3)]
        parts += [rect(met + 6 + alone, y, begin - met - 6 - alone, 26, "idle", 3)]
    for kind, y, widths in (("a", 96, (30, 26, 32, 28, 30, 27, 31, 26)), ("b", 144, (44,) * 5)):
        at = begin + 3
        for width in widths:
            width = min(width, end - at - 3)
            if width > 6:
                parts.append(bar(at, y, width - 3, kind, "", 26))
            at += width
    parts += [path("M%d 32 V182" % x, "bar", tip=False) for x in (met, begin, end)]
    parts += [rect(end, 48, 60, 26, "ps", 3)]
    parts += [rect(end + 3, 96, 30, 26, "a pale", 3), rect(end + 3, 144, 44, 26, "b pale", 3)]
    notes = (
        "dashed: waits for the other notebooks",
        "red: barriers, which all three reach before any goes on",
        "filled: pull, compute, push, again and again",
        "pale: the notebook looks at its own part",
    )
    parts += lines(4, 206, notes, step=22)
    parts += [arrow(440, 238, 560, 238), text(500, 258, "time", "small")]
    return parts
