"""Four architectures."""

from lab.drawings.shapes import arrow, box, figure, lines, path, text


def with_ps(x, y, synchronous):
    """Three workers and a parameter server; synchronous: a bar where all wait for each other."""
    parts = [box(x, y + 70, "parameters w", "ps", width=130)]
    for number, at in enumerate((x - 105, x, x + 105)):
        parts.append(box(at, y + 190, f"worker {number}"))
        parts.append(arrow(at, y + 172, x + (at - x) / 3, y + 88, both=True))
    if synchronous:
        parts.append(path(f"M{x - 140:g} {y + 150:g} h280", "bar", tip=False))
    return parts


def all_reduce(x, y):
    """Three workers that send sums around a ring, each with all parameters."""
    positions = [(x, y + 72), (x + 95, y + 185), (x - 95, y + 185)]
    parts = [
        box(*place, f"worker {number}, w", "ps", width=104)
        for number, place in enumerate(positions)
    ]
    parts.append(arrow(x + 30, y + 91, x + 82, y + 165))
    parts.append(arrow(x + 41, y + 185, x - 41, y + 185))
    parts.append(arrow(x - 82, y + 165, x - 30, y + 91))
    return parts


def pipeline(x, y):
    """Layers in two places, activations forward and gradients back."""
    parts = []
    for number, at in enumerate((x - 95, x + 95)):
        words = f"worker {number}\nlayers {2 * number + 1}–{2 * number + 2}"
        parts.append(box(at, y + 130, words, "ps", width=104, height=60))
    parts += [arrow(x - 41, y + 118, x + 41, y + 118), arrow(x + 41, y + 142, x - 41, y + 142)]
    parts += lines(x, y + 108, ("activations", "gradients"), step=52, draw=text)
    return parts


@figure("architectures.svg", 618, 480)
def architectures():
    """Four architectures. Asynchronous: workers push to a parameter server whenever they are ready.
    Synchronous: the server waits for all. All-reduce: workers in a ring, no server. Model
    parallelism: each worker has some of the layers."""
    panels = [
        ("Asynchronous", "each worker pushes when it is ready", with_ps, (False,)),
        ("Synchronous", "each step waits for all gradients", with_ps, (True,)),
        ("All-reduce", "no server: every worker keeps all of w", all_reduce, ()),
        ("Model parallelism", "every worker keeps some of the layers", pipeline, ()),
    ]
    parts = []
    for number, (name, what, draw, more) in enumerate(panels):
        x, y = 152 + 314 * (number % 2), 10 + 240 * (number // 2)
        parts += [text(x, y + 20, name, "title"), text(x, y + 40, what, "small")]
        parts += draw(x, y, *more)
    return parts
