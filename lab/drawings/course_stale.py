"""Figures of the notebooks about stale gradients and classic mistakes."""

from lab.drawings.shapes import arrow, bar, box, figure, frame, left, lines, rect, text


@figure("placements.svg", 600, 340)
def placements():
    """Three placements of a model on one ps and two workers. &quot;/cpu:0&quot;: each worker has
    its own w and its own loss, and the ps has nothing. &quot;/job:ps/task:0&quot;: w and the loss
    are on the ps, and the workers have nothing. The setter: w is on the ps, each worker computes
    its loss and exchanges w and gradients with the ps."""
    parts = []
    panels = (
        (10, '"/cpu:0"', [], ["w", "loss"], "two models"),
        (207, '"/job:ps/task:0"', ["w", "loss"], [], "idle workers"),
        (404, "the setter", ["w"], ["loss"], "shared w, own loss"),
    )
    for x, title, on_ps, on_worker, verdict in panels:
        parts += [text(x + 93, 24, title, "code"), frame(x, 40, 186, 84, "ps 0")]
        for place, name in enumerate(on_ps):
            at = x + 93 + (place * 84 - 42 if len(on_ps) > 1 else 0)
            parts.append(box(at, 92, name, "ps" if name == "w" else "box", width=66))
        for k in 0, 1:
            left_edge = x + 97 * k
            parts.append(rect(left_edge, 176, 89, 124, "frame", 8))
            parts.append(text(left_edge + 44, 292, f"worker {k}"))
            for place, name in enumerate(on_worker):
                kind = "ps" if name == "w" else "box"
                parts.append(box(left_edge + 44, 204 + 42 * place, name, kind, width=66))
            if len(on_ps) == 1:
                parts.append(arrow(x + 76 + 34 * k, 111, left_edge + 44, 186, both=True))
        parts.append(text(x + 93, 326, verdict, "small"))
    return parts


@figure("staleness.svg", 600, 306)
def staleness():
    """Staleness. Worker 0 pulls version 0 of w and pushes first: staleness 0. Worker 1 has pulled
    version 0, too, and pushes after worker 0: staleness 1. Worker 0 has pulled version 1, and
    pushes after worker 1: staleness 1."""

    def at(time):
        return 100 + 47 * time

    rows, ps = (74, 224), 149
    parts = [left(10, 24, "A bar begins with a pull of w and ends with a push.", "small")]
    for row, name in ((rows[0], "worker 0"), (ps, "ps"), (rows[1], "worker 1")):
        parts.append(left(10, row + 5, name, "title"))
    for number, (begin, end) in enumerate(((0, 3), (3, 5.5), (5.5, 7.7), (7.7, 10.2))):
        parts.append(rect(at(begin), ps - 17, at(end) - at(begin), 34, "ps", 0))
        parts.append(text((at(begin) + at(end)) / 2, ps + 5, f"version {number}"))
    for k, pull, push, tau in ((0, 0.5, 3, 0), (1, 1, 5.5, 1), (0, 3.8, 7.7, 1)):
        edge = 17 if k == 0 else -17
        parts.append(arrow(at(pull), ps - edge, at(pull), rows[k] + edge))
        parts.append(arrow(at(push), rows[k] + edge, at(push), ps - edge - edge / 17))
        name = f"τ = {tau}"
        parts.append(bar(at(pull), rows[k] - 15, at(push) - at(pull), "ab"[k], name, height=30))
    explained = (
        "Worker 1 pulls version 0. Its push changes version 1 into version 2: it is",
        "late by the one update that came between. So its staleness τ is 1.",
    )
    return parts + lines(10, 274, explained)
