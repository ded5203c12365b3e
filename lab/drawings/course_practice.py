"""Figures of the notebooks about hooks and about practice."""

from lab.drawings.shapes import arrow, box, figure, left, lines, path, rect, text


def loop(top, end):
    """A session's life from its creation on: the three calls around each run."""
    middle = top + 72
    return [
        box(100, middle, "after_create_session", "ps", 168),
        arrow(185, middle, 219, middle),
        box(270, middle, "before_run", "ps", 98),
        arrow(320, middle, 348, middle),
        box(400, middle, "session.run", width=100),
        arrow(451, middle, 479, middle),
        box(528, middle, "after_run", "ps", 94),
        path(f"M528 {middle - 18:g} V{middle - 38:g} H270 V{middle - 19:g}"),
        text(400, middle - 43, end, "small"),
    ]


@figure("session-life.svg", 600, 442)
def session_life():
    """The life of a MonitoredSession from top to bottom. begin is called once, then the graph is
    finalized. Session 1 calls after_create_session, then before_run, session.run and after_run in
    each step. A run fails with Unavailable or Aborted, so the session is lost. Session 2 calls
    after_create_session again, and the same three for the failed step and the others. When the loop
    is done, end is called."""
    once = "once, before the first session:"
    return [
        box(100, 30, "begin", "ps", 168),
        *lines(196, 26, (once, "a hook may still add ops to the graph"), step=18),
        arrow(140, 48, 140, 144),
        left(152, 86, "the graph is finalized", "small"),
        rect(8, 102, 584, 96, "frame", 8),
        *loop(90, "each step of your loop"),
        left(20, 126, "session 1", "title"),
        path("M400 180 V228 H140 V298"),
        left(412, 222, "Unavailable or Aborted:", "lost"),
        left(412, 241, "the session is lost", "lost"),
        rect(8, 256, 584, 96, "frame", 8),
        *loop(244, "the failed step again, then the others"),
        left(20, 280, "session 2", "title"),
        path("M528 334 V388 H186"),
        left(300, 378, "the loop is done", "small"),
        box(100, 388, "end", "ps", 168),
        left(16, 428, "After any other error in the loop, end is not called.", "small"),
    ]


SYMPTOMS = (  # what you see, what to look at first, the mistake
    ("nothing is printed", "which call hits its limit?", "17  no deadline"),
    ("a worker starts 30 s late", "how often does it look?", "18  it sleeps"),
    ("the accuracy falls back", "is step below the calls?", "19  from scratch"),
    ("errors, or old results", "names and shapes", "20  another model"),
    ("a class is never right", "checksums of the rows", "21  the same shard"),
    ("the test is too good", "test rows in training?", "22  leaked rows"),
    ("batches come twice", "count the numbers", "23  a number twice"),
    ("each step is slower", "count the ops", "24  a graph that grows"),
)


@figure("practice.svg", 600, 336)
def practice():
    """The eight mistakes, from the symptom over the first check to the cause. {}"""
    parts = [left(14, 26, "what you see", "title"), left(226, 26, "what you check first", "title")]
    parts.append(left(424, 26, "the mistake", "title"))
    for number, (symptom, check, mistake) in enumerate(SYMPTOMS):
        y = 58 + 36 * number
        parts += [rect(6, y - 18, 194, 28, "box", 6), left(14, y + 1, symptom)]
        parts += [arrow(201, y - 4, 218, y - 4), left(226, y + 1, check, "small")]
        parts.append(arrow(396, y - 4, 412, y - 4))
        parts += [rect(414, y - 18, 180, 28, "ps", 6), left(422, y + 1, mistake)]
    words = (f"{symptom}: {check}: {mistake}" for symptom, check, mistake in SYMPTOMS)
    return parts, ["; ".join(words).replace("  ", " ") + "."]
