"""The figure of Elastic-Training: which worker reads which shard, and what a lost one leaves."""

from lab.drawings.shapes import arrow, box, figure, left, rect, text

BEGIN, WIDTH, HEIGHT, STEP = 170, 90, 26, 40  # of a shard's bar


def shard(number, parts):
    """Returns a shard: a bar whose parts have been read by workers. parts: [(kind, share)]."""
    y = 62 + STEP * number
    bars, x = [rect(BEGIN, y, WIDTH, HEIGHT, "box", 2)], BEGIN
    for kind, share in parts:
        bars.append(rect(x, y, share * WIDTH, HEIGHT, kind, 2))
        x += share * WIDTH
    return "".join(bars) + left(BEGIN + WIDTH + 12, y + 19, "", "small")


@figure("elastic-training.svg", 560, 270)
def draw():
    """A ps lends shards of the rows. Worker 0 reads shard 1. Worker 1 was killed in the middle of
    shard 2; when its lease has run out, worker 2, which has just joined, reads the rest. Nobody has
    shard 3 yet."""
    rows = [
        ("worker 0 read it", [("a pale", 1)]),
        ("worker 0 has a lease", [("a pale", 0.5)]),
        ("worker 1 was lost, worker 2 reads the rest", [("b pale", 0.4), ("c pale", 0.3)]),
        ("nobody has it yet", []),
    ]
    parts = [text(BEGIN + WIDTH / 2, 40, "shards of the rows", "small")]
    for number, (words, read) in enumerate(rows):
        y = 62 + STEP * number
        parts.append(left(BEGIN - 30, y + 18, str(number), "small"))
        parts.append(shard(number, read))
        parts.append(left(BEGIN + WIDTH + 14, y + 18, words, "small"))
    workers = [box(70, 75 + 62 * k, f"worker {k}", kind) for k, kind in enumerate(["box"] * 3)]
    arrows = [
        arrow(112, 75, BEGIN - 40, 115),
        arrow(112, 199, BEGIN - 40, 157),
    ]
    crossed = text(70, 166, "killed", "small lost")
    return [*parts, *workers, *arrows, crossed]
