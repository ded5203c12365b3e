"""Setups with a ps: one update, where variables live, a coordinator; before them one process."""

from lab.drawings.shapes import (
    KINDS,
    arrow,
    bar,
    box,
    figure,
    frame,
    left,
    lines,
    outlined,
    path,
    rect,
    text,
)


@figure("single.svg", 520, 170)
def single():
    """One process repeats one loop: it takes a mini-batch, computes the gradient g(w) on it, and
    updates w by w ← w − lr·g."""
    return [
        frame(10, 10, 500, 150, "one process"),
        box(95, 76, "mini-batch\nof the data", "box", 126, 52),
        box(260, 76, "gradient\ng(w)", "box", 126, 52),
        box(425, 76, "w ← w − lr·g\none update", "ps", 126, 52),
        arrow(158, 76, 197, 76),
        arrow(323, 76, 362, 76),
        path("M425 102 V130 H95 V104"),
        text(260, 148, "the next step, at the new w", "small"),
    ]


@figure("distributed.svg", 520, 220)
def distributed():
    """Two processes. The parameter server (ps) holds w. The worker pulls a copy w_k, computes the
    gradient g(w_k) of a mini-batch and pushes it; the ps subtracts it from w. Both cross the
    network."""
    parts = [frame(10, 10, 190, 200, "process 1: ps")]
    parts.append(frame(330, 10, 180, 200, "process 2: worker"))
    parts.append(box(105, 75, "w\nall parameters", "ps", 150, 56))
    parts += [box(105, 165, "w ← w − lr·g", "ps", 150, 44), arrow(105, 143, 105, 104)]
    parts.append(box(420, 75, "w_k\na copy of w", "box", 150, 56))
    parts += [box(420, 165, "g(w_k)\nof a mini-batch", "box", 150, 56), arrow(420, 103, 420, 136)]
    parts += [arrow(181, 75, 344, 75), arrow(344, 165, 181, 165)]
    parts += [text(265, 66, "pull w"), text(265, 94, "network", "small")]
    parts += [text(265, 156, "push lr·g"), text(265, 184, "network", "small")]
    return parts


@figure("cluster.svg", 604, 314)
def cluster():
    """On the left TF_CONFIG: under “cluster” the addresses of a ps and two workers, under “task”
    the type and index of one of them. On the right three processes, each at its host and port: ps 0
    at host1:2222, worker 0 at host1:2223, worker 1 at host2:2223. Each gets the same cluster and a
    task of its own."""
    tf_config = """\
{"cluster": {
   "ps": ["host1:2222"],
   "worker": [
     "host1:2223",
     "host2:2223"]},
 "task": {
   "type": …, "index": …}}"""
    parts = [text(125, 28, "TF_CONFIG", "title"), rect(8, 40, 236, 166, "box")]
    parts += lines(14, 66, tf_config.splitlines(), "code", 21)
    parts.append(rect(12, 156, 228, 44, "a hollow"))
    note = ("“cluster” is the same for all,", "only “task” differs")
    parts += lines(125, 228, note, step=19, draw=text)
    parts += [frame(318, 10, 276, 176, "host1"), frame(318, 200, 276, 104, "host2")]
    tasks = [(75, "ps", 0, 2222), (143, "worker", 0, 2223), (265, "worker", 1, 2223)]
    for y, job, index, port in tasks:
        kind = "ps" if job == "ps" else "box"
        parts.append(rect(328, y - 28, 256, 58, kind, 6))
        parts.append(left(338, y - 7, f"{job} {index}", "title"))
        parts.append(text(576, y - 7, f"listens at port {port}", "small end"))
        parts.append(left(338, y + 18, f'"task": "{job}", {index}', "code"))
        parts.append(arrow(246, 174, 326, y))
    return parts


@figure("update.svg", 550, 340)
def update():
    """One update as messages between a worker and the ps. Pull: the worker asks, the ps answers
    with w. Compute: the gradient of a mini-batch at the copy w_k. Push: the worker sends lr·g, the
    ps moves w and says that it is done. Updates of others between pull and push are the
    staleness."""
    worker, ps = 110, 410
    parts = [box(worker, 30, "worker k", width=110), box(ps, 30, "ps: w", "ps", 110)]
    parts += [path(f"M{x} 47 V330", tip=False) for x in (worker, ps)]
    parts += [arrow(worker, 75, ps - 2, 90), arrow(ps, 90, worker + 2, 105)]
    parts += [text(260, 74, "1  pull"), text(260, 118, "w_k ← w", "small")]
    parts.append(bar(worker - 14, 110, 28, "a", height=110))
    parts.append(left(worker + 24, 160, "2  compute g(w_k)"))
    parts.append(left(worker + 24, 180, "on a new mini-batch", "small"))
    parts += [arrow(worker, 228, ps - 2, 248), text(260, 228, "3  push lr·g")]
    parts += [rect(ps - 55, 248, 110, 28, "ps"), text(ps, 267, "w ← w − lr·g")]
    parts += [arrow(ps, 278, worker + 2, 298), text(260, 308, "done", "small")]
    parts.append(path(f"M{ps + 14} 92 h12 V246 h-12", tip=False))
    parts += lines(ps + 34, 156, ("others may", "push here:", "staleness"), "", 19)
    parts += [text(20, 95, "time", "small"), path("M20 105 V320")]
    return parts


def divided_table(tables):
    """Two ps, each with rows of a table, and a worker that needs three of them.

    tables: [(the height at which it begins, its rows, those that the worker needs, their names)].
    """
    parts = [frame(350, 10, 200, 150, "ps 0"), frame(350, 176, 200, 150, "ps 1")]
    for top, rows_, touched, _ in tables:
        height = 108 / len(rows_)
        for number, row in enumerate(rows_):
            y = top + height * number
            kind = "ps" if row not in touched else "b pale"
            parts.append(rect(400, y, 136, height, kind, 0))
            parts.append(text(390, y + height / 2 + 5, row, "small end"))
    parts.append(frame(10, 60, 180, 210, "worker"))
    parts += [text(100, 106, "a mini-batch has"), text(100, 126, "the words 3, 17, 902")]
    for number, row in enumerate((3, 17, 902)):
        parts.append(rect(60, 146 + 22 * number, 120, 22, "b pale", 0))
        parts.append(text(52, 162 + 22 * number, row, "small end"))
    parts += [text(100, 236, "w_k: these rows", "small"), text(100, 254, "g: as many", "small")]
    parts += [arrow(192, 130, 348, 90, both=True), arrow(192, 210, 348, 250, both=True)]
    parts += [text(264, y, names) for y, (*_, names) in zip((84, 268), tables)]
    return parts + lines(270, 154, ("pull them,", "push their", "gradients"), step=19, draw=text)


@figure("sparse.svg", 560, 336)
def sparse():
    """A table of word vectors, divided over two ps: even rows on ps 0, odd rows on ps 1. A
    mini-batch with the words 3, 17 and 902 pulls only these three rows, and pushes gradients for
    only these. All other rows neither move nor travel."""
    even = 44, [0, 2, 4, "…", 902, "…"], [902], "row 902"
    return divided_table([even, (210, [1, 3, "…", 17, 19, "…"], [3, 17], "rows 3, 17")])


@figure("sparse-blocks.svg", 560, 336)
def sparse_blocks():
    """A table of 1,000 word vectors in two blocks: rows 0 to 499 on ps 0, rows 500 to 999 on ps 1.
    A mini-batch with the words 3, 17 and 902 pulls only these three rows, and pushes gradients for
    only these. All other rows neither move nor travel."""
    low = 44, [0, "…", 3, "…", 17, "…", 499], [3, 17], "rows 3, 17"
    return divided_table([low, (210, [500, "…", 902, "…", 999], [902], "row 902")])


@figure("hosts.svg", 560, 330)
def hosts():
    """Four machines with a worker each and two with a server, at a switch. In a step the link of a
    worker carries S bytes in and S out. The link of a server carries S times n divided by m bytes
    out, and as many in: here twice as many."""
    parts = [box(280, 165, "switch: each link carries R bytes a second, each way", width=540)]
    for k, x in enumerate((75, 212, 348, 485)):
        parts.append(outlined(x, 36, f"worker {k}", (*KINDS, "done")[k], 110, 44))
        parts += [arrow(x - 14, 60, x - 14, 146), arrow(x + 14, 146, x + 14, 60)]
        parts += [text(x - 22, 108, "S", "end"), left(x + 22, 108, "S")]
    for p, x in enumerate((160, 400)):
        parts.append(box(x, 292, f"ps {p}\nS / m of w", "ps", 150, 50))
        parts += [arrow(x - 22, 184, x - 22, 264), arrow(x + 22, 264, x + 22, 184)]
        parts += [text(x - 32, 228, "n S / m", "end"), left(x + 32, 228, "n S / m")]
    return parts


@figure("strategy.svg", 560, 340)
def strategy():
    """The chief runs the only training loop. It schedules closures of K updates in a queue; a free
    worker takes the next one, executes K times pull, gradient and push with the two ps, and returns
    K rows of metrics."""
    parts = [frame(10, 10, 540, 92, "chief: the only training loop"), text(84, 70, "schedule()")]
    parts += [box(192 + 64 * number, 65, "closure", width=60) for number in range(4)]
    parts += [arrow(126, 65, 160, 65), text(484, 60, "a queue; each:", "small")]
    parts.append(text(484, 79, "K updates", "small"))
    for number, x in enumerate((150, 410)):
        words = f"worker {number}\nK times: pull, g, push"
        parts.append(outlined(x, 190, words, KINDS[number], 190, 56))
        parts += [arrow(x - 20, 104, x - 20, 160), arrow(x + 20, 160, x + 20, 104)]
        parts.append(text(x - 28, 138, "a closure", "small end"))
        parts.append(left(x + 28, 138, "results", "small"))
        for at in (150, 410):
            parts.append(arrow(x + (at - x) / 6, 220, at - (at - x) / 6, 278, both=True))
    parts.append(box(150, 305, "ps 0\na part of w, step", "ps", 190, 50))
    parts.append(box(410, 305, "ps 1\nthe rest of w", "ps", 190, 50))
    return parts


@figure("roles.svg", 560, 346)
def roles():
    """Roles. Two workers read training files and change w on a ps. Worker 0, the chief, saves
    checkpoints. The evaluator, which is not part of the cluster, loads each, tests it on the test
    file, keeps the best, exports it as a saved model, and can end the run with the file stop."""
    parts = [box(140, 34, "train-00000 … 00007\nfiles", width=200, height=46)]
    parts.append(box(440, 34, "test-00000\na file", width=170, height=46))
    for number, (x, name) in enumerate(((74, "worker 0, chief"), (206, "worker 1"))):
        parts.append(outlined(x, 128, name, KINDS[number], 124, 40))
        parts.append(arrow(140 + (x - 140) / 2, 58, x, 106))
        parts.append(arrow(x, 150, 140 + (x - 140) / 3, 203, both=True))
    parts += [box(140, 230, "ps\nw", "ps", 150, 50), arrow(440, 58, 440, 106)]
    parts.append(box(440, 128, "evaluator", width=150, height=40))
    parts.append(box(290, 312, "model.ckpt-*\ncheckpoints", width=150, height=46))
    parts.append(path("M140 257 V312 H213"))
    parts += lines(130, 288, ("saved by", "worker 0"), "small end", 18, text)
    parts += [path("M367 312 H404 V150"), text(396, 240, "loads", "small end")]
    parts += [box(450, 230, "best/", width=84, height=34), arrow(450, 150, 450, 211)]
    parts += [box(470, 300, "saved_model/", width=110, height=34), arrow(450, 248, 450, 281)]
    parts += [box(525, 200, "stop", width=56, height=34), path("M506 150 V166 H525 V181")]
    return parts
