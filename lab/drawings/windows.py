"""The window of T local steps, and what is made of its gradients."""

import math

from lab.drawings.shapes import (
    KINDS,
    arrow,
    bar,
    circle,
    figure,
    left,
    line,
    lines,
    path,
    rect,
    text,
)

T = 4  # in the pictures; the scripts' default is 10


def steps(x, y, kind, width=66):
    """T local steps of a worker from x on."""
    return [bar(x + (width + 4) * t, y, width, kind, f"g_{t + 1}", 34) for t in range(T)]


def one_window(server, push):
    """A worker's window below the ps; server: the words of the ps, push: what it gets."""
    parts = [rect(10, 10, 530, 60, "ps", 6), left(22, 34, "ps", "title")]
    parts += [text(275, 34, server[0]), text(275, 56, server[1], "small")]
    for x in (96, 470):
        parts.append(arrow(x, 72, x, 168))
    parts += [left(104, 138, "pull w_k ← w"), left(478, 138, "pull"), arrow(372, 168, 372, 72)]
    parts += [text(364, 108, "push " + push, "end"), left(10, 194, "worker k")]
    parts += steps(90, 172, "a")
    parts += [rect(462, 172, 66, 34, "a pale", 3), text(495, 194, "g_1 …")]
    parts.append(text(230, 230, "T = 4 local steps, each on a new mini-batch:", "small"))
    parts.append(text(230, 252, "a ← a + g(w_k),   w_k ← w_k − lr·g(w_k)"))
    return parts


@figure("window.svg", 550, 266)
def window():
    """A window of DOWNPOUR-Easy. The worker pulls w, makes T local steps with gradients g_1 to g_4,
    each at its moved copy w_k, and pushes lr·a once, where a is their sum. The ps subtracts it from
    w. Then the worker pulls again."""
    return one_window(("w ← w − lr·a", "however late the push comes"), "lr·a,  a = g_1 + … + g_4")


@figure("downpour.svg", 550, 266)
def downpour():
    """A window of DOWNPOUR. The worker makes T local steps with plain SGD and its rate lr, and
    pushes the sum a of their gradients. The ps applies it with Adagrad: h grows by a squared, and w
    moves by server_lr times a over the root of h."""
    server = (
        "Adagrad:  h ← h + a²,   w ← w − server_lr · a / √h",
        "one h for each parameter, shared by all workers",
    )
    return one_window(server, "a = g_1 + … + g_4")


# Two windows on a bowl: worker k sees a bowl whose lowest point is a little beside that of all.

BOWL, LOWEST, RATE = (1.0, 3.2), (0.0, 0.0), 0.22
SEEN = ((0.12, 0.16), (-0.1, -0.2))
START = (-1.0, 0.62)


def walk(lowest):
    """The points of T local steps from START."""
    points = [START]
    for _ in range(T):
        x, y = points[-1]
        points.append((x - RATE * BOWL[0] * (x - lowest[0]), y - RATE * BOWL[1] * (y - lowest[1])))
    return points


def moved(share):
    """w after both workers have pushed this share of their windows."""
    ends = [walk(lowest)[-1] for lowest in SEEN]
    return tuple(START[i] + sum(share * (end[i] - START[i]) for end in ends) for i in (0, 1))


def bowl(x, y, share):
    """The bowl around a place, the walks of two workers, and how w moves."""

    def place(point):
        return x + 112 * point[0], y + 112 * point[1]

    parts = []
    for level in (0.3, 0.6, 0.9, 1.2):
        radii = [112 * level / math.sqrt(curve) for curve in BOWL]
        parts.append(
            '<ellipse cx="{:g}" cy="{:g}" rx="{:g}" ry="{:g}" class="line"/>'.format(x, y, *radii)
        )
    parts.append(circle(x, y, 4, "done"))
    for kind, lowest in zip(KINDS, SEEN):
        points = [place(point) for point in walk(lowest)]
        parts.append(line(points, kind + " hollow"))
        parts += [circle(*point, 4, kind) for point in points[1:]]
    begin, end = place(START), place(moved(share))
    parts += [line([begin, end], "bar"), circle(*end, 6, "bar")]
    return [*parts, text(begin[0] - 2, begin[1] + 22, "w")]


@figure("adag.svg", 560, 302)
def adag():
    """Two workers start at the same w and walk T local steps each towards the minimum of a bowl.
    Pushed as sums, their windows add up and take w past the minimum. Pushed as means, they move w
    by a T-th of that, and it stays on this side."""
    parts = []
    for x, name, rule, share in (
        (140, "The sum: DOWNPOUR-Easy", "w ← w − lr·a", 1),
        (420, "The mean: ADAG", "w ← w − lr·a / T", 1 / T),
    ):
        parts += [text(x, 22, name, "title"), text(x, 42, rule, "small"), *bowl(x, 150, share)]
    notes = (
        "blue, orange: T = 4 local steps of worker 0 and of worker 1, both from w",
        "red: w after both pushes; green: the minimum of the loss",
    )
    return parts + lines(10, 270, notes)


@figure("sagn.svg", 560, 262)
def sagn():
    """SAGN. Two workers pull the same w and make T local steps each. The faster one waits. When
    both have pushed the mean of their T gradients, w moves once, by the mean of the two, and both
    pull again."""
    parts = [rect(10, 10, 540, 56, "ps", 6), left(22, 43, "ps", "title")]
    parts.append(text(310, 43, "w ← w − lr · (a_0 / T + a_1 / T) / n"))
    for k, (y, width) in enumerate(((124, 50), (186, 72))):
        parts += [left(4, y + 22, f"worker {k}"), *steps(84, y, KINDS[k], width)]
        end = 84 + 4 * (width + 4)
        if k == 0:
            parts.append(rect(end, y, 388 - end, 34, "idle", 3))
            parts.append(text((end + 388) / 2, y + 22, "waits"))
        parts += [rect(436, y, 60, 34, KINDS[k] + " pale", 3), text(466, y + 22, "g_1 …")]
    parts.append(path("M394 106 V238", "bar", tip=False))
    parts += [arrow(402, 116, 402, 68), arrow(424, 68, 424, 116), arrow(90, 68, 90, 116)]
    parts += [text(394, 94, "push a_k / T", "end"), left(432, 94, "pull w")]
    parts.append(left(98, 94, "pull w_k ← w"))
    parts.append(text(212, 250, "T = 4 local steps alone, each on a new mini-batch", "small"))
    return parts
