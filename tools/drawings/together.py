"""Synchronous steps at a ps, and towers in one process."""

from drawings.elastic import thick
from drawings.shapes import KINDS, arrow, box, frame, left, path, rect, svg, text

PLACES = (100, 275, 450)


def sync():
    parts = [frame(10, 10, 530, 176, "ps, at step 7")]
    parts += [box(275, 66, "w ← w − lr · (g_0 + g_1) / 2\nstep 7 becomes step 8", "ps", 330, 52)]
    for k, x in enumerate(PLACES):
        late, kind = k == 2, KINDS[k]
        parts.append(rect(x - 74, 124, 86, 50, kind + " pale" if not late else "idle", 6))
        parts.append(text(x - 31, 144, "slot %d" % k, "small"))
        parts.append(text(x - 31, 165, "g_%d" % k + (" late" if late else ""), "lost" if late else ""))
        parts.append(rect(x + 20, 124, 60, 50, "box", 6))
        parts += [text(x + 50, 144, "token", "small"), text(x + 50, 165, "8")]
        parts.append(arrow(x - 31, 262, x - 31, 178))
        parts.append(arrow(x + 50, 178, x + 50, 262))
        parts.append(box(x, 282, "worker %d" % k, width=150))
        parts.append(rect(x - 75, 265, 150, 34, kind + " hollow", 6))
        if not late:
            parts.append(arrow(x - 31, 122, (x + 400) / 3, 95))
        parts.append(text(x - 38, 226, ("1  push", "2  push", "4  push")[k], "small end"))
        parts.append(left(x + 58, 226, "3", "small"))
    parts += [left(10, 324, "1, 2  the first N = 2 of n = 3 gradients fill their slots; the second makes the step", "small")]
    parts += [left(10, 344, "3  each worker gets a token: w has moved, pull it again", "small")]
    parts += [left(10, 364, "4  the backup worker's gradient is of step 7, and the step is 8: it is dropped", "small lost")]
    words = (
        "A synchronous step with one backup worker. Workers 0 and 1 store their gradients in their slots "
        "on the ps; the second makes the step with their mean, and each worker gets a token for step 8. "
        "The gradient of worker 2 comes later; it is of step 7, and is dropped."
    )
    return svg(550, 376, words, parts)


def replicas():
    parts = [frame(10, 10, 530, 168, "ps")]
    parts += [box(98, 94, "accumulator\ntakes N = 2 of step 7,\ndrops older ones", "ps", 160, 78)]
    parts += [box(285, 94, "w ← w − lr · mean\nstep 7 → 8", "ps", 160, 60), rect(402, 54, 128, 80, "ps", 6)]
    parts += [text(466, 76, "queue of tokens"), arrow(178, 94, 203, 94), arrow(365, 94, 400, 94)]
    for number in range(3):
        parts.append(box(430 + 36 * number, 108, "8", width=30, height=32))
    parts += [text(285, 152, "a thread of the chief takes the mean, and puts n = 3 tokens", "small")]
    for k, x in enumerate(PLACES):
        parts.append(box(x, 292, "worker %d" % k, width=130))
        parts.append(rect(x - 65, 275, 130, 34, KINDS[k] + " hollow", 6))
    parts += [arrow(PLACES[k] - 20, 272, 62 + 36 * k, 136) for k in range(3)]
    parts += [arrow(430 + 36 * k, 127, PLACES[k] + 30, 272) for k in range(3)]
    parts += [left(12, 214, "gradient,", "small"), left(12, 232, "step 7", "small")]
    parts += [text(536, 214, "any token", "small end"), text(536, 232, "for any worker", "small end")]
    words = (
        "SyncReplicasOptimizer. Workers send gradients with their step to an accumulator on the ps, which "
        "drops older ones. A thread of the chief takes the mean of N gradients, moves w, and puts n "
        "tokens with the new step in one queue. A worker goes on when it gets a token, any token."
    )
    return svg(550, 322, words, parts)


def rates():
    parts = [text(120, 24, "each at the same w", "small")]
    for k, y in enumerate((64, 150)):
        parts += [box(104, y, "worker %d\ng_%d(w), rate lr_%d = %s" % (k, k, k, ("0.1", "0.05")[k]), "box", 188, 56)]
        parts.append(rect(10, y - 28, 188, 56, KINDS[k] + " hollow", 6))
        parts.append(arrow(200, y, 258, 107 + (y - 107) / 3))
    parts += [box(104, 226, "w ← w − (lr_0·g_0 + lr_1·g_1)", "ps", 220, 40)]
    start, first, second = (290, 196), (170, -110), (150, 30)
    a = (start[0] + first[0] * 0.8, start[1] + first[1] * 0.8)
    b = (start[0] + second[0] * 0.8 / 2, start[1] + second[1] * 0.8 / 2)
    both = (a[0] + b[0] - start[0], a[1] + b[1] - start[1])
    parts += [path("M%g %g L%g %g L%g %g" % (*a, *both, *b), "frame", tip=False)]
    parts += [thick(*start, *a, "a"), thick(*start, *b, "b")]
    parts.append(path("M%g %g L%g %g" % (*start, *both), "bar", tip=False))
    parts.append('<circle cx="%g" cy="%g" r="6" class="bar"/>' % both)
    parts += [text(start[0] - 6, start[1] + 24, "w"), text(a[0] - 20, a[1] - 12, "− lr_0·g_0")]
    parts += [left(b[0] + 8, b[1] + 18, "− lr_1·g_1"), left(both[0] + 12, both[1] + 6, "the new w")]
    words = (
        "Two workers compute gradients at the same w. Each is multiplied by a rate of its own, 0.1 and "
        "0.05 by default; w moves by the sum of the two, in one step."
    )
    return svg(570, 256, words, parts)


def towers():
    parts = [frame(10, 10, 530, 312, "one process, one graph")]
    parts += [box(275, 62, "w\non the CPU", "ps", 130, 50)]
    for k, x in enumerate((150, 400)):
        parts += [rect(x - 110, 112, 220, 120, "frame", 8), left(x - 100, 132, "/GPU:%d" % k, "title")]
        parts.append(rect(x - 110, 112, 220, 120, KINDS[k] + " hollow", 8))
        parts += [text(x + 10, 158, "copy of w, mini-batch %d" % k, "small"), arrow(x, 166, x, 184)]
        parts += [box(x, 204, "g_%d" % k, width=80), arrow(275 + (x - 275) / 4, 88, x, 110)]
        parts += [arrow(x, 234, 275 + (x - 275) / 3, 262)]
    parts += [box(275, 284, "mean = (g_0 + g_1) / 2", "ps", 200, 40)]
    parts += [path("M376 284 H526 V62 H342"), text(435, 54, "w ← w − lr · mean", "small")]
    words = (
        "One process with two GPUs. Each has a copy of w, a mini-batch of its own and a tower that ends "
        "in a gradient. The mean of the two gradients moves w once."
    )
    return svg(550, 332, words, parts)
