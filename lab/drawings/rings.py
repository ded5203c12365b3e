"""All-reduce: without a ps, by a ring, step by step."""

from lab.drawings.shapes import (
    KINDS,
    animate,
    arrow,
    box,
    circle,
    figure,
    frame,
    left,
    lines,
    outlined,
    path,
    rect,
    text,
)


@figure("collective.svg", 550, 312)
def collective():
    """Three workers, no ps. Each has a copy of w and computes a gradient on a mini-batch of its
    own. The all-reduce gives every worker the mean of the three, and each applies it to its own
    copy, so that all copies stay the same."""
    parts = []
    for k, x in enumerate((100, 275, 450)):
        parts.append(frame(x - 82, 10, 164, 292, f"worker {k}"))
        parts += [box(x, 66, "its own copy of w", "ps", 144), arrow(x, 84, x, 104)]
        parts.append(outlined(x, 128, f"g_{k}\nof a mini-batch", KINDS[k], 150, 46))
        parts += [arrow(x, 153, x, 178), arrow(x, 232, x, 256)]
        parts.append(box(x, 274, "w ← w − lr · mean", "ps", 150))
    words = "all-reduce, by a ring: all wait for all\n"
    words += "mean = (g_0 + g_1 + g_2) / 3, the same on every worker"
    return [*parts, box(275, 205, words, width=538, height=50)]


@figure("horovod.svg", 560, 258)
def horovod():
    """Horovod's terms: two hosts with two GPUs each. Rank counts all processes from 0 to 3; local
    rank counts those of one host, 0 and 1, and chooses the GPU; size is 4. A ring joins the ranks,
    and there is no ps."""
    parts = []
    for host, x in enumerate((145, 415)):
        parts.append(frame(x - 128, 10, 256, 150, f"host {host + 1}"))
        for local in range(2):
            rank, at = 2 * host + local, x - 62 + 124 * local
            words = f"rank {rank}\nlocal rank {local}\nGPU {local}"
            parts.append(box(at, 88, words, "ps", 108, 92))
    for at in (145, 415):
        parts.append(arrow(at - 8, 66, at + 8, 66))
    parts += [arrow(262, 66, 298, 66), path("M477 136 V186 H83 V138")]
    parts.append(text(280, 180, "the ring: gradients are summed from rank to rank", "small"))
    parts.append(text(280, 222, "size = 4 ranks, each with all of w", "title"))
    note = "At the start rank 0 broadcasts its w; only rank 0 saves checkpoints."
    return [*parts, text(280, 246, note, "small")]


# The ring. have[k][c]: the workers whose numbers are in chunk c of worker k.

N = 4
PHASES = [("reduce-scatter", s) for s in range(N - 1)] + [("all-gather", s) for s in range(N - 1)]
SECONDS, REST = 1.5, 3.0  # of a step, and at the end


def sent(phase, s, k):
    """The chunk that worker k sends in this step, as in Ring-AllReduce/ring_allreduce.py."""
    return (k - s) % N if phase == "reduce-scatter" else (k + 1 - s) % N


def states():
    """The state before the first step and after each."""
    have = [[{k} for _ in range(N)] for k in range(N)]
    history = [have]
    for phase, s in PHASES:
        after = [[set(chunk) for chunk in worker] for worker in have]
        for k in range(N):
            chunk, to = sent(phase, s, k), (k + 1) % N
            if phase == "reduce-scatter":
                assert not after[to][chunk] & have[k][chunk], "a number would be added twice"
                after[to][chunk] |= have[k][chunk]
            else:
                after[to][chunk] = set(have[k][chunk])
        have = after
        history.append(have)
    assert all(len(chunk) == N for worker in have for chunk in worker)
    return history


def stepwise(name, values):
    """An attribute that has one of these values before the first step, and after each step."""
    keys = [(SECONDS * step, value) for step, value in enumerate(values)]
    return animate(name, keys, END, END, discrete=True)


CENTRES = ((105, 62), (445, 62), (445, 220), (105, 220))  # of the workers in the ring
END = SECONDS * len(PHASES) + REST


def cell(x, y, letter, counts):
    """A chunk of a worker in the ring, which fills up with each number that is added."""
    return [
        rect(x, y, 32, 48, "frame", 2),
        f'<rect x="{x:g}" y="{y + 36:g}" width="32" height="12" class="a pale">',
        stepwise("y", [y + 48 - 12 * count for count in counts]),
        stepwise("height", [12 * count for count in counts]) + "</rect>",
        f'<rect x="{x:g}" y="{y:g}" width="32" height="48" class="done pale" opacity="0">',
        stepwise("opacity", [int(count == N) for count in counts]) + "</rect>",
        text(x + 16, y + 29, letter),
    ]


def cells(x, y, counts, k):
    """A worker in the ring, with its chunks."""
    parts = [box(x, y, "", "box", 150, 84), text(x, y - 22, f"worker {k}", "title")]
    for c in range(N):
        parts += cell(x - 68 + 34 * c, y - 12, "abcd"[c], [count[k][c] for count in counts])
    return parts


EDGES = (  # from each worker to the next
    ((195, 46), (355, 46)),
    ((445, 119), (445, 163)),
    ((355, 236), (195, 236)),
    ((105, 163), (105, 119)),
)


def during(step):
    """Makes what stands around it visible in one step only."""
    return stepwise("opacity", [int(other == step) for other in range(len(PHASES) + 1)])


def messages(edges, draw):
    """The chunks that travel, one on each edge in each step.

    draw: returns the picture of a chunk, from its letter, its place and the phase.
    """
    parts = []
    for step, (phase, s) in enumerate(PHASES):
        times = [0, SECONDS * step + 0.3, SECONDS * (step + 1) - 0.2, END]
        for k, ((x1, y1), (x2, y2)) in enumerate(edges):
            shift = f"{x2 - x1:g} {y2 - y1:g}"
            parts.append(
                f'<g opacity="0" class="moving">{draw("abcd"[sent(phase, s, k)], x1, y1, phase)}'
                f'{during(step)}<animateTransform attributeName="transform" type="translate" '
                f'dur="{END:g}s" repeatCount="indefinite" '
                f'keyTimes="{";".join(f"{time / END:.4f}" for time in times)}" '
                f'values="0 0;0 0;{shift};{shift}"/></g>'
            )
    return parts


def disc(letter, x, y, phase):
    kind = "a" if phase == "reduce-scatter" else "done"
    return circle(x, y, 13, kind) + text(x, y + 5, letter, "on")


def table(y, history):
    """All states, one row each: how many workers' numbers each chunk is the sum of."""
    parts, names = [], ["start"] + [f"{phase} {s + 1}" for phase, s in PHASES]
    for k in range(N):
        parts.append(text(184 + 104 * k, y - 26, f"worker {k}", "small"))
        parts += [text(146 + 25 * c + 104 * k, y - 8, "abcd"[c], "small") for c in range(N)]
    for row, (name, have) in enumerate(zip(names, history)):
        top = y + 27 * row
        parts.append(left(6, top + 18, name, "small"))
        for k in range(N):
            for c in range(N):
                count, x = len(have[k][c]), 134 + 25 * c + 104 * k
                new = row and have[k][c] != history[row - 1][k][c]
                kind = "done" if count == N else "a"
                parts.append(rect(x, top, 24, 24, f"{kind} pale" if count > 1 else "box", 2))
                if new:
                    parts.append(rect(x + 1, top + 1, 22, 22, f"{kind} hollow", 2))
                parts.append(text(x + 12, top + 17, count, "small"))
    marker = '<rect x="2" y="%g" width="546" height="28" rx="4" class="line" opacity="0">' % (y - 2)
    parts.append(marker + stepwise("y", [y + 27 * row - 2 for row in range(len(history))]))
    return [*parts, stepwise("opacity", [1]) + "</rect>"]


@figure("ring.svg", 550, 560)
def ring():
    """Animated ring all-reduce of {0} workers, whose gradients are cut in {0} chunks. In {1}
    reduce-scatter steps each chunk goes around and is summed; in {1} all-gather steps the
    finished sums go around. A table shows after each step how many workers' values each chunk
    holds; at the end all hold {0}."""
    history = states()
    counts = [[[len(chunk) for chunk in worker] for worker in have] for have in history]
    parts = [arrow(182, 46, 368, 46), arrow(445, 106, 445, 176), arrow(368, 236, 182, 236)]
    parts.append(arrow(105, 176, 105, 106))
    for k, place in enumerate(CENTRES):
        parts += cells(*place, counts, k)
    parts += messages(EDGES, disc)
    cut = ("a gradient is cut", f"in {N} chunks, a to {'abcd'[N - 1]}")
    steps = (
        f"{N - 1} + {N - 1} steps; in each",
        "every worker sends",
        "one chunk to the next",
    )
    parts += lines(275, 94, cut, step=22, draw=text) + lines(275, 146, steps, step=22, draw=text)
    note = "numbers: how many workers' values are in the sum; framed: just received"
    parts += [*table(338, history), text(275, 548, note, "small")]
    return parts, (N, N - 1)
