"""Figures of the notebooks about placement, about how sessions begin, and how they recover."""

from drawings.shapes import arrow, box, frame, path, rect, svg, text


def placement():
    parts = []
    for x, name, inside in (10, "ps 0", "w_1, w_2, w_3"), (454, "ps 1", "w_0"):
        parts += [frame(x, 10, 136, 210, name), box(x + 68, 76, "read\n" + inside, "ps", 116, 50)]
        parts.append(box(x + 68, 178, "subtract\nw ← w − lr·g", "ps", 116, 50))
    parts += [frame(236, 10, 128, 210, "worker 0")]
    parts += [box(300, 76, "forward\nMatMul, loss", "a pale", 112, 50)]
    parts += [box(300, 178, "backward\nMatMul", "a pale", 112, 50), arrow(300, 102, 300, 151)]
    for y, word in (76, "pull"), (178, "push"):
        for begin, end, number in (137, 243, "1,448 bytes"), (463, 357, "8,192 bytes"):
            ends = (begin, end) if word == "pull" else (end, begin)
            parts.append(arrow(ends[0], y, ends[1], y))
            parts += [text((begin + end) / 2, y - 10, word)]
            parts += [text((begin + end) / 2, y + 20, number, "small")]
            for x in (begin + 18, end - 16) if begin < end else (begin - 18, end + 16):
                parts.append(rect(x - 4, y - 4, 8, 8, "b", 1))
    parts += [rect(14, 238, 8, 8, "b", 1)]
    parts += [
        '<text x="30" y="247" class="small">TensorFlow cuts the graph here: a _Send on one '
        "side, a _Recv on the other</text>"
    ]
    words = (
        "One update on three tasks. ps 0 reads w_1, w_2 and w_3 and sends 1,448 bytes to the "
        "worker; ps 1 reads w_0 and sends 8,192 bytes. The worker computes forward and backward, "
        "then sends gradients of the same sizes back. Each ps subtracts what it receives."
    )
    return svg(600, 260, words, parts)


DRAWN = {"placement.svg": placement}
