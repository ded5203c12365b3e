"""Figures of the notebooks about synchronous training."""

from lab.drawings.shapes import arrow, box, figure, lines, rect, text

STAGES = (
    ("start", "all at one w", ("9  a worker that", "does not wait", "for the start")),
    ("data", "a mini-batch", ("10  shards of", "different sizes")),
    ("gradient", "at this w", ("11  statistics", "of one worker's", "data")),
    ("mean", "of all", ("12  the sum", "13  other order", "14  from anyone")),
    ("step", "then go on", ("15  a token", "too many", "16  an old count")),
)


@figure("mistakes-sync.svg", 600, 190)
def mistakes_sync():
    """A synchronous step in five stages, and the mistakes of each. Start: a worker that does not
    wait. Data: shards of different sizes. Gradient: statistics of one worker's data. Mean:
    the sum, another order, gradients of anyone. Step: a token too many, an old count."""
    parts = [text(355, 24, "one synchronous step", "title")]
    parts.append(rect(124, 34, 462, 76, "frame", 8))
    for number, (name, words, mistakes) in enumerate(STAGES):
        x = 64 + 116 * number
        parts.append(box(x, 72, name + "\n" + words, "ps" if number == 3 else "box", 100, 52))
        if number:
            parts.append(arrow(x - 66, 72, x - 51, 72))
        parts += lines(x, 140, mistakes, draw=text)
    return parts
