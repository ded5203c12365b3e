"""The elastic force of AEASGD, and the velocity of AEAMSGD."""

from lab.drawings.shapes import arrow, circle, figure, left, line, text, thick


def coil(x1, y1, x2, y2, turns=9, wide=9):
    """A spring between two points."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    points = []
    for i in range(turns + 2):
        along, across = length * i / (turns + 1), 0 if i in (0, turns + 1) else wide * (-1) ** i
        points.append((x1 + along * dx - across * dy, y1 + along * dy + across * dx))
    return line(points)


def ball(x, y, words, kind, r=26):
    return circle(x, y, r, kind) + text(x, y + 5, words, "" if kind == "ps" else "on")


@figure("spring.svg", 550, 254)
def spring():
    """Springs tie the parameters w_0 and w_1 of two workers to the shared w. Each worker follows
    its own gradient. In every T-th step the force E = alpha times (w_k − w) draws w_k towards w,
    and w as far towards w_k."""
    parts = [coil(112, 126, 242, 126), coil(318, 126, 438, 126)]
    parts += [ball(280, 126, "w", "ps", 36), ball(86, 126, "w_0", "a"), ball(464, 126, "w_1", "b")]
    parts.append(text(280, 182, "on the ps", "small"))
    for k, (kind, x, side) in enumerate((("a", 86, 1), ("b", 464, -1))):
        parts += [text(x, 172, f"worker {k}", "small"), arrow(x, 98, x, 48)]
        parts.append(text(x, 40, f"− lr·g(w_{k})"))
        parts.append(thick(x + 34 * side, 96, x + 84 * side, 96, kind))
        parts.append(text(x + 66 * side, 84, "− E"))
        parts.append(thick(280 - 46 * side, 96, 280 - 96 * side, 96, kind))
        parts.append(text(280 - 66 * side, 84, "+ E"))
    parts.append(text(280, 30, "E = α · (w_k − w)", "title"))
    parts.append(text(280, 52, "the farther apart, the stronger", "small"))
    parts.append(text(280, 216, "every step:  w_k ← w_k − lr·g(w_k)"))
    parts.append(text(280, 240, "every T-th step also:  w_k ← w_k − E,   w ← w + E"))
    return parts


@figure("momentum.svg", 550, 274)
def momentum():
    """One step of AEAMSGD as arrows. From w_k the worker looks ahead by delta times its velocity v;
    the gradient at the point ahead bends the velocity; w_k moves by the new v. In every T-th step
    the elastic force E also draws it towards w on the ps."""
    w_k, ahead, moved, w = (70, 210), (226, 160), (290, 86), (420, 236)
    pull = (moved[0] + 0.3 * (w[0] - w_k[0]), moved[1] + 0.3 * (w[1] - w_k[1]))
    parts = [line([w_k, w], "frame"), line([w_k, moved], "frame")]
    parts += [thick(*w_k, *ahead, "c"), thick(*ahead, *moved, "a"), thick(*moved, *pull, "b")]
    for place, kind in ((ahead, "box"), (moved, "box"), (pull, "a"), (w_k, "a"), (w, "ps")):
        parts.append(circle(*place, 7, kind))
    parts.append(text(w_k[0] - 14, w_k[1] + 6, "w_k", "end"))
    parts.append(left(w[0] + 14, w[1] + 6, "w, on the ps"))
    parts.append(left(148, 206, "1  look ahead by δ·v"))
    parts.append(left(ahead[0] + 36, ahead[1] - 18, "2  − lr·g, the gradient there"))
    parts.append(text(moved[0] - 14, moved[1] - 6, "w_k + v", "end"))
    parts.append(left(pull[0] + 16, pull[1] + 6, "the new w_k"))
    parts.append(left(340, 82, "3  − E, every T-th step"))
    parts.append(left(10, 24, "v ← δ·v − lr·g(w_k + δ·v),   w_k ← w_k + v"))
    parts.append(left(10, 48, "every T-th step also:  w_k ← w_k − E,   w ← w + E"))
    parts.append(left(200, 262, "E = α·(w_k − w), from the w_k at the start", "small"))
    return parts
