"""Figures of the notebooks about hooks and about practice."""

from drawings.shapes import arrow, box, figure, left, lines, path, rect, text


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
        path("M528 %g V%g H270 V%g" % (middle - 18, middle - 38, middle - 19)),
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


@figure("monitored.svg", 560, 330)
def monitored():
    """Nested boxes. MonitoredTrainingSession makes a MonitoredSession, which calls hooks around
    each run and asks its creator for a new session whenever one is lost. The creator,
    ChiefSessionCreator or WorkerSessionCreator, has a Scaffold with the init op and the Saver, and
    a SessionManager, which on the chief makes or restores the model, and elsewhere waits for it."""
    return [
        rect(6, 6, 548, 318, "box", 8),
        left(20, 30, "MonitoredTrainingSession", "title"),
        left(250, 30, "a function: makes all below with defaults", "small"),
        rect(22, 46, 516, 262, "ps", 8),
        left(36, 70, "MonitoredSession", "title"),
        left(206, 70, "runs; calls hooks before and after", "small"),
        rect(38, 86, 484, 206, "box", 8),
        left(52, 110, "ChiefSessionCreator, WorkerSessionCreator", "title"),
        left(52, 131, "a new session, at the start and whenever one is lost", "small"),
        rect(54, 148, 216, 128, "ps", 8),
        left(68, 172, "Scaffold", "title"),
        *lines(
            68,
            196,
            ("the init op, the Saver,", "what must be ready;", "finalizes the graph"),
            step=22,
        ),
        rect(290, 148, 216, 128, "ps", 8),
        left(304, 172, "SessionManager", "title"),
        *lines(
            304,
            196,
            (
                "chief: makes the model,",
                "or restores a checkpoint;",
                "others: wait for it, and",
                "look every 30 s",
            ),
            step=22,
        ),
    ]


@figure("hook-files.svg", 600, 354)
def hook_files():
    """CheckpointSaverHook writes the files checkpoint, model.ckpt-20 in three parts, and
    graph.pbtxt; a session creator with this checkpoint_dir reads them. SummarySaverHook and
    StepCounterHook write one file of events, which TensorBoard reads. ProfilerHook writes
    timeline-20.json, which your browser draws."""
    files = ["checkpoint", "model.ckpt-20.index", "             .data-…", "             .meta"]
    files.append("graph.pbtxt")
    return [
        text(94, 24, "hooks write", "title"),
        text(324, 24, "files in one folder", "title"),
        text(524, 24, "who reads them", "title"),
        rect(204, 38, 240, 306, "frame", 8),
        box(95, 100, "CheckpointSaverHook", "ps", 182),
        arrow(187, 100, 213, 100),
        rect(214, 50, 220, 100, "box", 6),
        *lines(224, 71, files, "code", 18),
        arrow(435, 100, 455, 100),
        box(524, 100, "session creator\ncheckpoint_dir", width=136, height=52),
        box(95, 204, "SummarySaverHook", "ps", 182),
        box(95, 248, "StepCounterHook", "ps", 182),
        arrow(187, 204, 213, 204),
        arrow(187, 248, 213, 248),
        rect(214, 182, 220, 88, "box", 6),
        left(224, 231, "events.out.tfevents.…", "code"),
        arrow(435, 226, 455, 226),
        box(524, 226, "TensorBoard", width=136),
        box(95, 312, "ProfilerHook", "ps", 182),
        arrow(187, 312, 213, 312),
        rect(214, 292, 220, 40, "box", 6),
        left(224, 317, "timeline-20.json", "code"),
        arrow(435, 312, 455, 312),
        box(524, 312, "your browser", width=136),
    ]


@figure("practice.svg", 600, 178)
def practice():
    """The eight mistakes by what you see. It waits: 1, a queue that nobody fills; 2, a worker that
    sleeps 30 s. It goes on, but is wrong: 3, initialised anew; 4, the shapes of another model; 5,
    all read one shard; 6, test rows in the training data; 7, one number for two workers. It is
    slow: 8, a graph that grows."""
    waits = ["1  a queue that", "    nobody fills", "2  a worker that", "    sleeps 30 s"]
    wrong = ["3  initialised anew", "4  another model's shapes", "5  all read one shard"]
    wrong += ["6  test rows in training", "7  one number, two workers"]
    parts = []
    for x, width, title, mistakes in (
        (8, 164, "it waits", waits),
        (184, 242, "it goes on, but is wrong", wrong),
        (438, 154, "it is slow", ["8  a graph that", "    grows"]),
    ):
        parts += [rect(x, 10, width, 158, "box", 8), left(x + 14, 36, title, "title")]
        parts += lines(x + 14, 64, mistakes, "", 22)
    return parts
