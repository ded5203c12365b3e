"""Stale gradients as balls that roll down a loss: two workers, each with a copy of w."""

from lab.drawings.shapes import KINDS, circle, figure, line, lines, text, thick

LR, START = 0.8, 4.0  # on the loss w² / 2, whose gradient is w


def valley(x, y, scale):
    """The loss w² / 2 over w from -4.4 to 4.4, around a point; returns (its line, w -> place)."""

    def place(w):
        return x + 26 * w, y - scale * w * w / 2

    return line([place(k / 5) for k in range(-22, 23)]), place


@figure("balls.svg", 580, 308)
def balls():
    """Two balls in a valley: both workers pull w = 4. Worker 0 rolls w to 0.8. The late push of
    worker 1 rolls it past the minimum, to -2.4; DynSGD halves that push, and w ends at -0.8."""
    parts = []
    for x, name, scale in (
        (145, "HogWild: w ← w − lr·g", 1),
        (435, "DynSGD: w ← w − lr·g / (τ + 1)", 2),
    ):
        curve, place = valley(x, 190, 14)
        first = START - LR * START  # worker 0, at the newest w
        second = first - LR * START / scale  # worker 1: its gradient is that at START
        parts += [text(x, 24, name, "title"), curve, circle(*place(START), 8, "ps")]
        parts.append(text(place(START)[0] - 40, place(START)[1] + 5, "w = 4"))
        for k, (a, b) in enumerate(((START, first), (first, second))):
            height = 212 + 26 * k
            parts.append(thick(x + 26 * a, height, x + 26 * b, height, KINDS[k]))
            parts.append(circle(*place(b), 8, KINDS[k]))
            parts.append(text(x + 26 * b - 20, height + 5, f"{b:.1f}", "small"))
    notes = (
        "blue: worker 0 pushes its gradient at w = 4",
        "orange: worker 1 pushes its own, also from w = 4: staleness τ = 1",
    )
    return parts + lines(20, 276, notes)
