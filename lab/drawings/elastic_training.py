"""@@TODO@@ the figure of Elastic-Training; shapes.py shows how to draw one."""

from lab.drawings.shapes import arrow, box, figure, text


@figure("elastic-training.svg", 300, 120)
def draw():
    """@@TODO@@ what the figure shows, for a reader who cannot see it."""
    worker, ps = box(60, 60, "worker 0"), box(240, 60, "ps", "ps")
    push = arrow(102, 60, 198, 60)
    return [worker, ps, push, text(150, 50, "g", "small")]
