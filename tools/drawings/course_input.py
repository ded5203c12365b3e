"""The figure of the notebook about input pipelines."""

from drawings.shapes import arrow, box, figure, frame, rect, text


@figure("input.svg", 606, 296)
def input_pipeline():
    """Ten files. Worker 0 reads the files 0, 2, 4, 6 and 8, worker 1 the others. In each worker the
    rows pass through shuffle, repeat, batch and prefetch, and the training step takes a batch. A
    thread fills prefetch while the step computes."""
    parts = [text(54, 24, "10 files", "title")]
    for i in range(10):
        kind = "ab"[i % 2]
        parts.append(rect(24, 36 + 23 * i, 60, 18, kind + " pale"))
        parts.append(text(54, 50 + 23 * i, "%d" % i, "small"))
    for k in range(2):
        y = 10 + 126 * k
        parts.append(frame(176, y, 424, 114, "worker %d" % k))
        for i, words in enumerate(["shuffle", "repeat\nbatch", "prefetch"]):
            parts.append(box(226 + 102 * i, y + 70, words, width=80, height=48))
            parts.append(arrow(268 + 102 * i, y + 70, 284 + 102 * i, y + 70))
        parts.append(rect(490, y + 46, 104, 48, "ab"[k] + " pale", 6))
        parts.append(text(542, y + 66, "step"))
        parts.append(text(542, y + 85, "takes a batch", "small"))
        parts.append(arrow(88, 46 + 206 * k, 184, y + 70))
        parts.append(text(136, 40 + 226 * k, ("0, 2, 4, …", "1, 3, 5, …")[k], "small"))
    parts.append(text(388, 282, "A thread fills prefetch while the step computes.", "small"))
    return parts
