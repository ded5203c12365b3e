"""Synchronous steps at a ps, and towers in one process."""

from lab.drawings.shapes import (
    KINDS,
    arrow,
    box,
    circle,
    figure,
    frame,
    left,
    line,
    lines,
    outlined,
    path,
    rect,
    text,
    thick,
)

PLACES = (100, 275, 450)


@figure("sync.svg", 550, 376)
def sync():
    """A synchronous step with one backup worker. Workers 0 and 1 store their gradients in their
    slots on the ps; the second makes the step with their mean, and each worker gets a token for
    step 8. The gradient of worker 2 comes later; it is of step 7, and is dropped."""
    parts = [frame(10, 10, 530, 176, "ps, at step 7")]
    parts.append(box(275, 66, "w ← w − lr · (g_0 + g_1) / 2\nstep 7 becomes step 8", "ps", 330, 52))
    for k, x in enumerate(PLACES):
        late, kind = k == 2, KINDS[k]
        parts.append(rect(x - 74, 124, 86, 50, kind + " pale" if not late else "idle", 6))
        parts.append(text(x - 31, 144, f"slot {k}", "small"))
        if late:
            parts.append(text(x - 31, 165, f"g_{k} late", "lost"))
        else:
            parts.append(text(x - 31, 165, f"g_{k}"))
        parts.append(rect(x + 20, 124, 60, 50, "box", 6))
        parts += [text(x + 50, 144, "token", "small"), text(x + 50, 165, "8")]
        parts += [arrow(x - 31, 262, x - 31, 178), arrow(x + 50, 178, x + 50, 262)]
        parts.append(outlined(x, 282, f"worker {k}", kind, 150))
        if not late:
            parts.append(arrow(x - 31, 122, (x + 400) / 3, 95))
        parts.append(text(x - 38, 226, ("1  push", "2  push", "4  push")[k], "small end"))
        parts.append(left(x + 58, 226, "3", "small"))
    notes = [
        "1, 2  N = 2 of n = 3 gradients have come: the second makes the step",
        "3  each worker gets a token: w has moved, pull it again",
        "4  the backup worker's gradient is of step 7, too late: it is dropped",
    ]
    return parts + lines(10, 324, notes)


@figure("replicas.svg", 550, 360)
def replicas():
    """SyncReplicasOptimizer. Workers send gradients with their step to an accumulator on the ps,
    which drops older ones. A thread of the chief takes the mean of N gradients, moves w, and puts n
    tokens with the new step in one queue. A worker goes on when it gets a token, any token."""
    parts = [frame(10, 10, 530, 186, "ps")]
    parts.append(box(285, 52, "w ← w − lr · mean\nstep 7 becomes step 8", "ps", 180, 48))
    accumulator = "accumulator: the mean of N = 2\ndrops gradients of older steps"
    parts.append(box(176, 152, accumulator, "ps", 308, 58))
    parts += [rect(352, 116, 176, 72, "ps", 6), text(440, 136, "one queue of tokens")]
    parts += [box(404 + 36 * k, 163, "8", width=30, height=32) for k in range(3)]
    parts += [arrow(240, 122, 255, 79), arrow(315, 79, 370, 114)]
    parts.append(text(226, 104, "a thread of the chief", "small end"))
    parts.append(left(364, 98, "n = 3 tokens", "small"))
    for k, x in enumerate(PLACES):
        parts.append(outlined(x, 302, f"worker {k}", KINDS[k], 130))
        parts.append(arrow(x - 30, 283, 70 + 112 * k, 184))
        parts.append(arrow(404 + 36 * k, 182, x + 30, 283, kind="frame"))
    parts.append(left(12, 348, "solid: a gradient and its step", "small"))
    parts.append(text(540, 348, "dashed: any token, for any worker", "small end"))
    return parts


RATES = (0.1, 0.05)  # --learning-rates of the script
G = ((-1360, 880), (-1200, -240))  # g_0 and g_1 in the picture


@figure("rates.svg", 550, 234)
def rates():
    """Two workers compute gradients at the same w. Each is multiplied by a rate of its own, 0.1 and
    0.05 by default; w moves by the sum of the two, in one step."""
    parts = []
    for k, y in enumerate((44, 118)):
        words = f"worker {k}: g_{k}(w)\nrate lr_{k} = {RATES[k]:g}"
        parts.append(outlined(106, y, words, KINDS[k], 180, 56))
    parts.append(box(130, 200, "w ← w − (lr_0·g_0 + lr_1·g_1)", "ps", 240, 40))
    w = (300, 150)
    a, b = (tuple(w[i] - RATES[k] * G[k][i] for i in (0, 1)) for k in (0, 1))
    both = tuple(a[i] + b[i] - w[i] for i in (0, 1))
    parts += [line([a, both, b], "frame"), thick(*w, *a, "a"), thick(*w, *b, "b")]
    parts += [line([w, both], "bar"), circle(*both, 6, "bar")]
    parts += [text(w[0] - 6, w[1] + 24, "w"), text(a[0] - 44, a[1] - 12, "− lr_0·g_0")]
    parts += [left(b[0] + 8, b[1] + 18, "− lr_1·g_1"), text(both[0], both[1] - 18, "the new w")]
    return parts


@figure("towers.svg", 550, 332)
def towers():
    """One process with two GPUs. Each has a copy of w, a mini-batch of its own and a tower that
    ends in a gradient. The mean of the two gradients moves w once."""
    parts = [frame(10, 10, 530, 312, "one process, one graph")]
    parts.append(box(275, 62, "w\non the CPU", "ps", 130, 50))
    for k, x in enumerate((150, 400)):
        parts.append(frame(x - 110, 112, 220, 120, f"/GPU:{k}"))
        parts.append(rect(x - 110, 112, 220, 120, KINDS[k] + " hollow", 8))
        parts += [text(x + 10, 158, f"copy of w, mini-batch {k}", "small"), arrow(x, 166, x, 184)]
        parts += [box(x, 204, f"g_{k}", width=80), arrow(275 + (x - 275) / 4, 88, x, 110)]
        parts.append(arrow(x, 234, 275 + (x - 275) / 3, 262))
    parts.append(box(275, 284, "mean = (g_0 + g_1) / 2", "ps", 200, 40))
    parts += [path("M376 284 H526 V62 H342"), text(435, 54, "w ← w − lr · mean", "small")]
    return parts
