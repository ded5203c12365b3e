"""The figure of the notebook about input pipelines."""

from lab.drawings.shapes import arrow, box, figure, frame, path, rect, text


@figure("input.svg", 606, 330)
def input_pipeline():
    """Ten files. By shard, worker 0 reads the files 0, 2, 4, 6 and 8, worker 1 the others. In each
    worker the rows pass through cache, shuffle, repeat and batch; map parses a batch, prefetch
    holds it ready, and the training step takes it. A thread fills prefetch while the step
    computes."""
    parts = [text(44, 24, "10 files", "title")]
    for i in range(10):
        parts.append(rect(14, 36 + 25 * i, 60, 20, "ab"[i % 2] + " pale"))
        parts.append(text(44, 51 + 25 * i, f"{i}", "small"))
    stages = ("shard\ncache", "shuffle\nrepeat", "batch, map\nprefetch")
    for k in range(2):
        y, kind = 10 + 142 * k, "ab"[k]
        parts.append(frame(150, y, 450, 128, f"worker {k}"))
        for i in range(k, 10, 2):  # a line from each of its files
            parts.append(path(f"M75 {46 + 25 * i} L166 {y + 78}", kind + " thin", tip=False))
        for i, words in enumerate(stages):
            parts.append(box(214 + 108 * i, y + 78, words, width=92, height=50))
            parts.append(arrow(261 + 108 * i, y + 78, 272 + 108 * i, y + 78))
        parts.append(rect(486, y + 53, 106, 50, kind + " pale", 6))
        parts.append(text(539, y + 74, "step"))
        parts.append(text(539, y + 93, "takes a batch", "small"))
    parts.append(text(375, 316, "A thread fills prefetch while the step computes.", "small"))
    return parts
