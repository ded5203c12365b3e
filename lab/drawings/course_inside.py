"""The figure of the notebook that looks into a running cluster."""

from lab.drawings.shapes import KINDS, arrow, box, figure, frame, left, text


@figure("inside.svg", 600, 316)
def inside():
    """This notebook is a client. It reads w, step, pushes and late from the process of the ps, and
    made from the processes of worker 0 and worker 1, which pull from the ps and push to it. Worker
    1 can be stopped and restarted."""
    parts = [frame(10, 10, 140, 296, "this notebook"), text(80, 60, "a client:", "small")]
    parts += [text(80, 82, "reads, starts,", "small"), text(80, 104, "stops", "small")]
    parts.append(frame(290, 10, 300, 100, "process: ps"))
    parts.append(box(362, 68, "w, step", "ps", width=110, height=46))
    parts.append(box(504, 68, "pushes, late\nnotes", "ps", width=130, height=46))
    parts += [arrow(152, 68, 288, 68), text(220, 58, "read", "small")]
    for k, x in enumerate((290, 450)):
        parts.append(frame(x, 190, 140, 78, f"worker {k}"))
        parts.append(box(x + 70, 238, "w_k, made", KINDS[k] + " pale", width=112, height=34))
        parts += [arrow(x + 50, 112, x + 50, 188), arrow(x + 90, 188, x + 90, 112)]
        parts += [text(x + 42, 156, "pull", "end"), left(x + 98, 156, "push")]
    parts += [arrow(152, 238, 288, 238), text(220, 228, "read made", "small")]
    parts.append(left(290, 296, "stop and restart", "small"))
    parts.append(arrow(408, 291, 518, 272))
    return parts
