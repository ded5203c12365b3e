"""What a worker holds in each stage of ZeRO."""

from lab.drawings.shapes import figure, left, legend, rect, text

N = 8  # workers
PARTS = {"w": "a", "g": "b", "m": "c", "v": "c"}  # the colour of each vector
SHARDED = {"0": "", "1": "mv", "2": "mvg", "3": "mvgw"}  # {stage: what a worker has a shard of}


def held(stage):
    """Returns {vector: bytes for each parameter} of a worker in that stage."""
    return {name: 4 / N if name in SHARDED[stage] else 4 for name in PARTS}


@figure("zero-stages.svg", 600, 268)
def zero_stages():
    """What each of eight workers holds, in bytes for each float32 parameter. Stage 0: w, g, m and v
    of 4 bytes each, {:g} in all. Stage 1 cuts m and v into eight shards: {:g}. Stage 2 cuts g, too:
    {:g}. Stage 3 cuts w, too: {:g}. A step sends twice |w| (n - 1) / n in stages 0 to 2, in stage 3
    three times."""
    scale, totals = 24, [sum(held(stage).values()) for stage in SHARDED]
    parts = [left(4, 22, f"bytes of a worker for each parameter, n = {N}", "title")]
    parts.append(text(596, 22, "sends, in |w| (n − 1) / n", "end"))
    for row, stage in enumerate(SHARDED):
        x, y = 74, 40 + 44 * row
        parts.append(left(4, y + 22, f"stage {stage}"))
        for name, size in held(stage).items():
            parts.append(rect(x, y, scale * size, 32, PARTS[name] + " pale", 0))
            if size == 4:
                parts.append(text(x + scale * size / 2, y + 21, name))
            x += scale * size
        parts.append(left(x + 8, y + 21, f"{totals[row]:g}"))
        parts.append(text(590, y + 21, "3" if stage == "3" else "2", "end"))
    words = {"a": "w, the parameters", "b": "g, the gradient", "c": "m and v of Adam"}
    for number, (kind, meaning) in enumerate(words.items()):
        parts.append(legend(4 + 180 * number, 248, kind + " pale", meaning))
    return parts, totals
