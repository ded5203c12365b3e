"""Local steps and what is made of them, a bound on staleness, a delayed momentum, compression."""

import math

from lab.drawings.shapes import (
    KINDS,
    arrow,
    bar,
    box,
    circle,
    figure,
    left,
    line,
    lines,
    path,
    rect,
    text,
    thick,
)

# One round of two workers that walk T = 4 local steps each, as vectors in the plane of the picture.

WALKS = (
    ((36, -58), (60, -44), (78, -24), (90, -6)),
    ((30, 60), (60, 42), (84, 18), (102, 2)),
)
OUTER, BETA = 0.2, 0.9  # the defaults of DiLoCo
ROUNDS, TURN = 12, 0.19  # earlier rounds, and the angle between their moves and that of this one


def ends(w):
    """The points of each walk from w, the mean of their last points, and w after a common step:
    SAGN's, what d alone makes of DiLoCo's, and DiLoCo's."""
    walks = []
    for steps in WALKS:
        walks.append([w])
        for x, y in steps:
            walks[-1].append((walks[-1][-1][0] + x, walks[-1][-1][1] + y))
    mean = tuple(sum(walk[-1][i] for walk in walks) / len(walks) for i in (0, 1))
    x, y = (mean[i] - w[i] for i in (0, 1))  # -d
    before = (x * math.cos(TURN) - y * math.sin(TURN), x * math.sin(TURN) + y * math.cos(TURN))
    u = [sum(BETA**age for age in range(ROUNDS)) * move for move in before]  # -u
    sagn = (w[0] + x / len(WALKS[0]), w[1] + y / len(WALKS[0]))
    # u becomes beta * u + d, and w moves by outer * (d + beta * u): the parts of d, and of old u.
    alone = (w[0] + OUTER * (1 + BETA) * x, w[1] + OUTER * (1 + BETA) * y)
    diloco = tuple(alone[i] + OUTER * BETA**2 * u[i] for i in (0, 1))
    return walks, mean, sagn, alone, diloco


@figure("local-steps.svg", 600, 366)
def local_steps():
    """Two workers walk T = 4 local steps each, from w to w_0 and w_1. At the common step SAGN moves
    w by a quarter of the way to the mean of w_0 and w_1; Local-SGD moves it to the mean. DiLoCo's d
    alone would move it by {:.0f}% of that way, and the velocity u of earlier rounds adds so much
    that w comes beyond the mean, a little to the side."""
    w = (36, 160)
    walks, mean, sagn, alone, diloco = ends(w)
    parts = [line([walk[-1] for walk in walks]), line([w, mean])]
    for k, (kind, walk) in enumerate(zip(KINDS, walks)):
        for begin, end in zip(walk, walk[1:]):
            parts.append(thick(*begin, *end, kind))
        x, y = walk[-1]
        parts.append(left(x + 10, y + 5, f"w_{k}"))
    parts += [arrow(*alone, diloco[0] - 7, diloco[1] - 1, kind="frame"), circle(*alone, 4, "box")]
    parts += [circle(*point, 6, "bar") for point in (sagn, mean, diloco)]
    parts += [circle(*w, 7, "ps"), text(w[0] - 14, w[1] + 5, "w", "end")]
    parts.append(left(sagn[0] - 6, sagn[1] - 16, "SAGN: 1/T of the way"))
    parts.append(left(mean[0] + 14, mean[1] + 3, "Local-SGD: the mean"))
    parts.append(text(590, diloco[1] + 28, "DiLoCo: with momentum, beyond", "end"))
    parts.append(text(alone[0] + 2, alone[1] + 22, "d alone", "small end"))
    parts.append(left(alone[0] + 8, alone[1] + 48, "+ u of earlier rounds", "small"))
    notes = (
        "blue, orange: T = 4 local steps of worker 0 and of worker 1, both from w",
        "red: w after the common step of each algorithm, all with the same walks",
        "DiLoCo, dashed: u after %d rounds; outer = %g, β = %g" % (ROUNDS, OUTER, BETA),
    )
    return [*parts, *lines(10, 318, notes)], (100 * OUTER * (1 + BETA),)


# Three workers of which none may be too far ahead of the slowest.

PACE = (1.0, 1.05, 3.4)  # the time of an update of each worker
LEAD = 1  # s
SLOW = 4  # updates of the slowest worker in the picture
LEFT, UNIT = 76, 37


def bounded_updates():
    """[[(begin, end) of each update] of each worker], until the slowest has made its last.

    Before its update c + 1 a worker waits until c <= min(clocks) + s.
    """
    updates = [[] for _ in PACE]
    for c in range(SLOW + LEAD + 1):
        # The clocks reach c - s when the last worker ends its update of that number.
        may = max(own[c - LEAD - 1][1] for own in updates) if c > LEAD else 0
        for k, pace in enumerate(PACE):
            begin = max(may, updates[k][-1][1] if c else 0)
            updates[k].append((begin, begin + pace))
    until = updates[PACE.index(max(PACE))][SLOW - 1][1]
    updates = [[update for update in own if update[0] < until] for own in updates]
    for own in updates:
        for c, (begin, _) in enumerate(own):
            assert c <= slowest(updates, begin) + LEAD, "began too early"
            free = own[c - 1][1] if c else 0
            assert begin == free or c > slowest(updates, begin - 1e-6) + LEAD, "waited for nothing"
    return updates, until


def slowest(updates, time):
    """min(clocks) at a time."""
    return min(sum(end <= time for _, end in own) for own in updates)


def at(time):
    return LEFT + UNIT * time


@figure("bounded.svg", 600, 282)
def bounded():
    """A timeline of three workers with s = 1; worker 2 is more than three times as slow.
    Workers 0 and 1 make {} updates, then wait until worker 2 has made its first. From then on they
    wait after each update, until the slowest clock has moved. In the time of {} updates of worker 2
    they make {} each."""
    updates, until = bounded_updates()
    rule = f"Update c + 1 begins when c ≤ min(c_0, c_1, c_2) + s,  s = {LEAD}"
    parts = [left(4, 22, rule, "title")]
    for k, own in enumerate(updates):
        y = 44 + 42 * k
        parts.append(left(4, y + 20, f"worker {k}"))
        for number, (begin, end) in enumerate(own, 1):
            after = own[number][0] if number < len(own) else until
            parts.append(bar(at(begin) + 2, y, UNIT * (end - begin) - 4, KINDS[k], number, 30))
            if after > end:
                parts.append(rect(at(end), y, UNIT * (after - end) - 4, 30, "idle", 3))
                parts.append(text(at((end + after) / 2) - 2, y + 20, "waits", "small"))
    parts += [left(4, 167, "slow", "small"), arrow(LEFT, 178, 594, 178)]
    parts += [left(4, 203, "min(c)"), left(4, 227, "may begin")]
    moves = [0, *[end for _, end in updates[PACE.index(max(PACE))]]]
    for begin, end in zip(moves, moves[1:]):
        now = slowest(updates, begin)
        x = at((begin + end) / 2) + 10
        parts += [path(f"M{at(end):g} 36 V186", "bar", tip=False), text(x, 203, now)]
        parts.append(text(x, 227, f"up to {now + LEAD + 1}"))
    notes = (
        "numbers: the updates of each worker; c_k: how many it has made",
        "red: worker 2 has made one more; the others may go on",
    )
    at_first = LEAD + 1
    assert [len(own) for own in updates[:2]] == [SLOW + LEAD] * 2
    return [*parts, *lines(4, 254, notes)], (at_first, SLOW, SLOW + LEAD)


# Pushes at a ps whose momentum moves at every N-th of them. All d are the same, 1.

N, PUSHES = 4, (0, 1, 0, 2, 1, 0, 1, 2)  # the worker of each push
RATE, MOMENTUM = 0.5, 0.9  # outer and beta, the defaults of Async-Local-SGD


def delayed():
    """[(b before it is emptied, u, w before, w after d, w after u)] of each push."""
    b, u, w, rows = 0, 0, 0, []
    for number in range(1, len(PUSHES) + 1):
        before, w, b = w, w + RATE / N, b + 1
        by_d, full = w, b
        if number % N == 0:
            u = MOMENTUM * u + b / N
            w, b = w + RATE * MOMENTUM * u, 0
        rows.append((full, u, before, by_d, w))
    return rows


@figure("delayed-momentum.svg", 600, 372)
def delayed_momentum():
    """Eight pushes at the ps, N = 4. Each adds its d to the buffer b and moves w by a short arrow,
    outer·d / N. At pushes 4 and 8 the mean of the buffer, b / N, goes into the velocity u, b is
    emptied, and u moves w by a longer arrow, outer·β·u, {:.1f} and {:.1f} times as long."""
    rows = delayed()
    scale = 532 / rows[-1][-1]
    parts = [left(4, 22, "N = 4: d moves w at each push, u moves it at each fourth", "title")]
    parts += [left(4, 62, "push"), left(4, 150, "b"), left(4, 238, "u"), left(4, 299, "w")]
    base, changes = 252, []
    for number, (k, (full, u, *columns)) in enumerate(zip(PUSHES, rows), 1):
        begin, by_d, end = (54 + scale * place for place in columns)
        x, height = (begin + by_d) / 2, 15 * full
        parts.append(bar(x - 12, 44, 24, KINDS[k], number))
        parts += [arrow(x - 5, 74, x - 5, 100), text(x + 6, 92, "d", "small")]
        parts += [
            rect(x - 12, 164 - height, 24, height, "ps", 0),
            rect(x - 12, 104, 24, 60, "line", 0),
        ]
        parts.append(thick(begin, 294, by_d, 294, KINDS[k]))
        if end > by_d:
            changes.append((by_d + 22, u))
            parts.append(path(f"M{x + 14:g} 134 H{by_d + 22:g} V{base - 30 * u - 4:g}"))
            parts += [left(by_d + 30, 150, "b / N"), left(by_d + 30, 171, "b ← 0")]
            parts.append(thick(by_d, 294, end, 294, "done"))
            parts.append(arrow(by_d + 40, base + 4, by_d + 40, 286))
            parts.append(text((by_d + end) / 2, 320, "− outer·β·u"))
        if number % N == 1:
            parts.append(text(begin + 2 * (by_d - begin), 320, "− outer·d / N"))
    for (x, u), after in zip(changes, [changes[1][0], 592]):
        parts.append(rect(x, base - 30 * u, after - x, 30 * u, "done pale", 0))
        parts.append(text((x + after) / 2, base - 10, "u ← β·u + b / N"))
    parts += [path(f"M54 {base:g} H592", tip=False), left(58, base - 8, "u = 0")]
    notes = "blue, orange, purple: workers 0, 1, 2; all d alike; outer = %g, β = %g"
    parts.append(left(4, 356, notes % (RATE, MOMENTUM), "small"))
    longer = [(after - by_d) * N / RATE for *_, by_d, after in rows if after > by_d]
    return parts, longer


# Two steps of one worker with top-k, and what a worker sends in a ring.

ENTRIES, K = ((5, 2, 1, 3, 2, 1), (1, 2, 1, 2, 1, 1)), 2  # lr * g of each step
SIZES = (2, 4, 8)  # workers


def feedback():
    """[(lr * g, e before, c, e after) of each step], of one worker with top-k."""
    e, rows = (0,) * len(ENTRIES[0]), []
    for step in ENTRIES:
        p = [a + b for a, b in zip(step, e)]
        largest = sorted(range(len(p)), key=lambda i: -p[i])[:K]
        c = [x if i in largest else 0 for i, x in enumerate(p)]
        after = [x - y for x, y in zip(p, c)]
        rows.append((step, e, c, after))
        e = after
    assert sum(map(sum, ENTRIES)) == sum(sum(c) for _, _, c, _ in rows) + sum(e)
    return rows


def columns(x, y, heights, kind, bases=None):
    """Entries of a vector as columns, each above its base."""
    return [
        rect(x + 22 * i, y - 11 * (base + height), 18, 11 * height, kind, 0)
        for i, (height, base) in enumerate(zip(heights, bases or (0,) * len(heights)))
        if height
    ]


@figure("compressed.svg", 600, 436)
def compressed():
    """Two steps of one worker with top-k, k = {}. In the first it sends the largest entries, and
    keeps the others as e. In the second it adds e to lr·g, and sends entries that were left out
    before. Below, what a worker sends with {}, {} and {} workers: {}, {} and {} messages if they
    are added up in the ring, as PowerSGD's, and {}, {} and {} if they are gathered."""
    names = ("p = lr·g + e", f"c, sent: the {K} largest", "e = p − c, kept")
    parts = [text(128 + 180 * i, 22, name, "title") for i, name in enumerate(names)]
    rows = feedback()
    for number, (step, before, c, after) in enumerate(rows):
        y = 110 + 108 * number
        parts.append(left(4, y - 20, f"step {number + 1}"))
        parts += columns(64, y, before, "b pale") + columns(64, y, step, "a", before)
        parts += columns(244, y, c, "done") + columns(424, y, after, "b pale")
        for x in (64, 244, 424):
            parts.append(line([(x - 4, y), (x + 132, y)]))
        parts += [arrow(202, y - 30, 232, y - 30), arrow(382, y - 30, 412, y - 30)]
    parts.append(path("M488 118 V140 H54 V206 H61"))
    parts.append(left(62, 158, "e is added to the next step", "small"))
    added = [2 * (n - 1) / n for n in SIZES]
    gathered = [n - 1 for n in SIZES]
    parts.append(left(4, 268, "What a worker sends, in messages of one size", "title"))
    for column, (words, sent) in enumerate(
        (("added up: PowerSGD", added), ("gathered: top-k, sign, QSGD", gathered))
    ):
        x = 104 + 180 * column
        parts.append(left(x, 294, words, "small"))
        for row, (n, count) in enumerate(zip(SIZES, sent)):
            y = 306 + 30 * row
            if not column:
                parts.append(left(4, y + 16, f"{n} workers"))
            parts.append(rect(x, y, 36 * count, 22, "done", 2))
            parts.append(left(x + 36 * count + 8, y + 16, f"{count:g}", "small"))
    notes = (
        "blue: lr·g of this step; orange: e; green: what is sent",
        "added up: 2 (n − 1) / n messages, below 2; gathered: n − 1",
    )
    return [*parts, *lines(4, 412, notes)], (K, *SIZES, *[f"{x:g}" for x in [*added, *gathered]])


# Workers that average with their neighbours: six in a ring, and how fast rings of others agree.

GOSSIP, ASKED = 6, {0: 1, 2: 3, 4: 3}  # workers; whom each active one has chosen


def ring_of(pairs, coloured):
    """Workers in a ring, arrows between pairs of them, and a colour for some."""
    parts, positions = [], []
    for k in range(GOSSIP):
        angle = 2 * math.pi * k / GOSSIP - math.pi / 2
        positions.append((132 + 92 * math.cos(angle), 146 + 92 * math.sin(angle)))
    for (x1, y1), (x2, y2) in zip(positions, positions[1:] + positions[:1]):
        parts.append(path(f"M{x1:g} {y1:g} L{x2:g} {y2:g}", "frame", tip=False))
    for k, j in pairs:
        (x1, y1), (x2, y2) = positions[k], positions[j]
        part = 26 / math.hypot(x2 - x1, y2 - y1)
        dx, dy = part * (x2 - x1), part * (y2 - y1)
        parts.append(arrow(x1 + dx, y1 + dy, x2 - dx, y2 - dy, both=True))
    for k, (x, y) in enumerate(positions):
        parts.append(circle(x, y, 22, "a" if k in coloured else "box"))
        parts.append(text(x, y + 5, f"w_{k}", "on" if k in coloured else ""))
    return parts


@figure("gossip.svg", 290, 316)
def gossip():
    """Six workers in a ring, of which every second one is active, the others passive. Worker 0
    averages with worker 1, and workers 2 and 4 both with worker 3, one after the other."""
    notes = "blue: active, asks one neighbour", "grey: passive, answers at once"
    title = left(4, 22, "pairs, each at its own time", "title")
    return [title, *ring_of(ASKED.items(), range(0, GOSSIP, 2)), *lines(4, 286, notes)]


PEERS = [(74, 84), (230, 84), (152, 212)]  # where three workers stand, without a ps
AROUND = [(374, 84), (530, 84), (452, 232)]  # and around one


@figure("gradients-to-all.svg", 600, 316)
def gradients_to_all():
    """Three workers, each with a w of its own. Left: each sends its gradients to both others, and
    applies its own at once. Right: each sends them to the ps alone, which has no w and sends each
    gradient to all three workers."""
    parts = [left(4, 22, "peer to peer", "title")]
    parts.append(left(310, 22, "with a forwarder", "title"))
    pairs = list(zip(PEERS, PEERS[1:] + PEERS[:1]))
    pairs += [(place, (452, 140)) for place in AROUND]
    for (x1, y1), (x2, y2) in pairs:
        part = 30 / math.hypot(x2 - x1, y2 - y1)
        dx, dy = part * (x2 - x1), part * (y2 - y1)
        parts.append(arrow(x1 + dx, y1 + dy, x2 - dx, y2 - dy, both=True))
    for positions in PEERS, AROUND:
        for k, (x, y) in enumerate(positions):
            parts += [circle(x, y, 22, KINDS[k]), text(x, y + 5, f"w_{k}", "on")]
    parts.append(box(452, 140, "ps", "ps", 44))
    parts += lines(
        4, 286, ("a worker applies its gradient at once,", "and sends it to both others")
    )
    return [
        *parts,
        *lines(
            310,
            286,
            ("a worker sends its gradient to the ps,", "which sends it to all, in one order"),
        ),
    ]


RINGS, GOSSIP_STEPS, DECADES = (4, 8, 16), 12, 4


def disagreement(n):
    """How far the workers of a ring are from their mean after each step with thirds.

    They begin as the wave that averages smooth most slowly.
    """
    w, largest = [math.cos(2 * math.pi * k / n) for k in range(n)], []
    for _ in range(GOSSIP_STEPS + 1):
        largest.append(max(map(abs, w)))
        w = [(w[k - 1] + w[k] + w[(k + 1) % n]) / 3 for k in range(n)]
    slope = (1 + 2 * math.cos(2 * math.pi / n)) / 3
    assert all(abs(value - slope**step) < 1e-9 for step, value in enumerate(largest))
    return largest


@figure("d-psgd.svg", 600, 316)
def d_psgd():
    """Left: six workers in a ring, each of which averages with both neighbours in the same step, as
    worker 0 with workers 1 and 5. Right: without gradients, how far the workers of a ring are from
    their mean, against the steps. A step multiplies it by {:.3f} with 4 workers, by {:.3f} with 8,
    by {:.3f} with 16."""
    notes = "each averages with both", "neighbours: w_0 with w_5 and w_1"
    pairs = [(k, (k + 1) % GOSSIP) for k in range(GOSSIP)]
    parts = [left(4, 22, "a step of all workers", "title"), *ring_of(pairs, [5, 0, 1])]
    parts += lines(4, 286, notes)

    x0, y0, width, height = 326, 52, 200, 184
    parts.append(left(270, 22, "disagreement after s steps", "title"))
    parts.append(rect(x0, y0, width, height, "line", 0))
    for decade in range(DECADES + 1):
        y = y0 + height * decade / DECADES
        parts.append(text(x0 - 8, y + 5, f"{0.1**decade:g}", "small end"))
    for step in range(0, GOSSIP_STEPS + 1, 4):
        parts.append(text(x0 + width * step / GOSSIP_STEPS, y0 + height + 20, step, "small"))
    for kind, n in zip(KINDS, RINGS):
        points = [
            (x0 + width * step / GOSSIP_STEPS, y0 - height * math.log10(value) / DECADES)
            for step, value in enumerate(disagreement(n))
            if value >= 10.0**-DECADES
        ]
        parts.append(line(points, kind + " hollow"))
        x, y = points[-1]
        y += 5 if n > min(RINGS) else -30
        parts.append(left(x + 8, y, f"n = {n}"))
        parts.append(left(x + 8, y + 18, f"× {disagreement(n)[1]:.3f}", "small"))
    parts += lines(270, 286, ("without gradients; below n: by what", "each step multiplies it"))
    return parts, [disagreement(n)[1] for n in RINGS]
