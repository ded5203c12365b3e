"""Figures of the notebooks about placement, about how sessions begin, and how they recover."""

from lab.drawings.shapes import arrow, bar, box, figure, frame, left, lines, path, rect, text, thick


@figure("placement.svg", 600, 260)
def placement():
    """One update on three tasks. ps 0 reads b1, W2 and b2 and sends 1,448 bytes to the worker;
    ps 1 reads W1 and sends 8,192 bytes. The worker computes forward and backward, then sends
    lr·g, of the same sizes, back. Each ps subtracts what it receives."""
    parts = []
    for x, name, inside in (10, "ps 0", "b1, W2, b2"), (454, "ps 1", "W1"):
        parts += [frame(x, 10, 136, 210, name), box(x + 68, 76, "read\n" + inside, "ps", 116, 50)]
        parts.append(box(x + 68, 178, "subtract\nw ← w − lr·g", "ps", 116, 50))
    parts.append(frame(236, 10, 128, 210, "worker 0"))
    parts.append(box(300, 76, "forward\nMatMul, loss", "a pale", 112, 50))
    parts += [box(300, 178, "backward\nMatMul", "a pale", 112, 50), arrow(300, 102, 300, 151)]
    for y, word in (76, "pull"), (178, "push"):
        for begin, end, number in (137, 243, "1,448 bytes"), (463, 357, "8,192 bytes"):
            ends = (begin, end) if word == "pull" else (end, begin)
            parts.append(arrow(ends[0], y, ends[1], y))
            parts.append(text((begin + end) / 2, y - 10, word))
            parts.append(text((begin + end) / 2, y + 20, number, "small"))
            for x in (begin + 18, end - 16) if begin < end else (begin - 18, end + 16):
                parts.append(rect(x - 4, y - 4, 8, 8, "b", 1))
    parts.append(rect(14, 238, 8, 8, "b", 1))
    note = "TensorFlow cuts the graph here: a _Send on one side, a _Recv on the other"
    parts.append(left(30, 247, note, "small"))
    return parts


@figure("begin.svg", 600, 462)
def begin():
    """The beginning and the end of a run, time downwards. The worker asks the ps whether the model
    is ready, hears no, and sleeps. The chief initialises the variables on the ps, or restores a
    checkpoint. The worker asks again and hears yes. Both make updates until the ps answers
    OutOfRange: all are taken. Both report done, and then the ps ends, too."""
    chief, ps, worker = 90, 300, 510
    parts = [box(chief, 28, "worker 0, chief", width=130), box(worker, 28, "worker 1", width=130)]
    parts.append(box(ps, 28, "ps", "ps", 110))
    parts += [path(f"M{x} 46 V408", tip=False) for x in (chief, worker)]
    parts.append(path(f"M{ps} 46 V434", tip=False))
    # The worker is early: it asks, and sleeps.
    parts += [arrow(worker, 70, ps + 2, 70), text(405, 62, "ready?")]
    parts += [arrow(ps, 96, worker - 10, 96), text(405, 89, "no", "small")]
    parts += [rect(worker - 9, 96, 18, 92, "idle", 3), left(worker + 18, 147, "sleeps", "small")]
    # The chief makes the model.
    parts += [arrow(chief, 122, ps - 57, 134), text(185, 114, "initialise,")]
    parts += lines(182, 150, ("or restore", "a checkpoint"), step=18, draw=text)
    parts += [rect(ps - 55, 122, 110, 28, "ps"), text(ps, 141, "w has values")]
    parts += [arrow(worker, 190, ps + 2, 190), text(405, 182, "ready?")]
    parts += [arrow(ps, 216, worker - 2, 216), text(405, 209, "yes", "small")]
    # Both train.
    parts += [bar(chief - 14, 176, 28, "a", height=116), bar(worker - 14, 220, 28, "b", height=72)]
    for y in (238, 264):
        parts.append(thick(chief + 16, y, ps - 3, y, "a"))
        parts.append(thick(worker - 16, y + 12, ps + 3, y + 12, "b"))
    parts += [text(195, 229, "updates"), text(405, 241, "updates")]
    # All updates are taken.
    parts += [arrow(ps, 316, chief + 2, 316), arrow(ps, 316, worker - 2, 316)]
    parts += [text(195, 308, "OutOfRange:"), text(405, 308, "OutOfRange:")]
    parts += [text(195, 334, "all are taken", "small"), text(405, 334, "all are taken", "small")]
    parts += [arrow(chief, 366, ps - 2, 372), arrow(worker, 366, ps + 2, 384)]
    parts += [text(195, 360, "done"), text(405, 366, "done")]
    parts += [text(chief, 426, "ends", "small"), text(worker, 426, "ends", "small")]
    parts.append(text(ps, 452, "ends when all are done", "small"))
    parts += [text(22, 86, "time", "small"), path("M22 96 V400")]
    return parts


@figure("recover.svg", 600, 216)
def recover():
    """A creator makes a session, and run uses it, with hooks around it. A result goes to your loop.
    OutOfRange ends the block. Aborted or Unavailable means that a task was lost: the creator makes
    a new session, and the run is repeated. Any other error is raised in your loop."""
    creator = "create_session\nchief: make or restore\nothers: wait"
    parts = [box(100, 98, creator, width=180, height=76)]
    parts.append(box(316, 98, "run\nhooks around it", "a pale", 120, 56))
    parts += [arrow(190, 98, 254, 98), text(222, 88, "session", "small")]
    outcomes = (
        (34, "a result\nyour loop goes on"),
        (98, "OutOfRange\nthe block ends"),
        (162, "any other error\nraised in your loop"),
    )
    for y, words in outcomes:
        parts.append(box(510, y, words, width=160, height=52))
        parts.append(arrow(377, 98 + (y - 98) / 4, 428, y))
    parts.append(path("M316 127 V196 Q316 206 306 206 H110 Q100 206 100 196 V139"))
    parts.append(text(208, 168, "Aborted, Unavailable", "lost"))
    parts.append(text(208, 190, "a task was lost: run again", "small"))
    return parts
