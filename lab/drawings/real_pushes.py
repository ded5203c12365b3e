"""Real pushes, animated."""

import json
import math

from tfrun.runs.data import RunData

from lab.drawings.shapes import FIGURES, animate, box, figure, left, line, rect, text

SHOWN = 16  # pushes
SLOWER = 400


def take(directory):
    """Some pushes from the middle of a run, in milliseconds from the first pull shown."""
    rows = []
    run = RunData.read(directory)
    for number in (0, 1):
        task, last = f"worker-{number}", None
        for row in sorted(
            run.rows("pushes", task) + run.rows("tests", task), key=lambda row: row["push_time"]
        ):
            is_push = not math.isnan(row["loss"])
            if is_push and last:
                rows.append(
                    {
                        "worker": number,
                        "called": last,
                        "pulled": row["pull_time"],
                        "computed": row["push_time"] - row["wait_seconds"],
                        "pushed": row["push_time"],
                        "update": int(row["global_step"]),
                        "staleness": int(row["staleness"]),
                    }
                )
            # After a test of the model the next pull has no known begin.
            last = row["push_time"] if is_push else None
    rows.sort(key=lambda row: row["pushed"])
    some = rows[len(rows) // 2 :][:SHOWN]
    begin = min(row["called"] for row in some)
    for row in some:
        for name in ("called", "pulled", "computed", "pushed"):
            row[name] = round(1000 * (row[name] - begin), 2)
    return some


def visible(spans, end):
    """Makes what stands around it visible from the begin to the end of each span of time."""
    keys = [(0, 0)]
    for begin, until in spans:
        keys += [(begin, 1), (until, 0)]
    return animate("opacity", keys, end, end * SLOWER / 1000, discrete=True)


def moving(rows, kind, start, stop, ends, end):
    """A dot that goes from ends[0] to ends[1] between two times of each push."""
    (x1, y1), (x2, y2) = ends
    xs, ys, seconds = [], [], end * SLOWER / 1000
    for row in rows:
        xs += [(row[start], x1), (row[stop], x2)]
        ys += [(row[start], y1), (row[stop], y2)]
    seen = visible([(row[start], row[stop]) for row in rows], end)
    moves = animate("cx", xs, end, seconds) + animate("cy", ys, end, seconds)
    return f'<circle r="7" class="{kind}" opacity="0">{moves}{seen}</circle>'


def timeline(rows, end):
    """All pushes as bars, and a line at the time that is shown: what a still picture tells."""
    first, unit, parts = 76, 474 / end, []
    for number, kind in enumerate("ab"):
        y = 268 + 34 * number
        parts.append(left(4, y + 17, f"worker {number}"))
        for row in rows:
            if row["worker"] == number:
                at = [
                    first + unit * row[name] for name in ("called", "pulled", "computed", "pushed")
                ]
                parts.append(rect(at[0], y + 6, at[1] - at[0], 12, kind + " pale", 0))
                parts.append(rect(at[1], y, max(1.5, at[2] - at[1]), 24, kind, 0))
                parts.append(rect(at[2], y + 9, at[3] - at[2], 6, kind, 0))
    now = [(0, first), (end, first + unit * end)]
    moves = animate("x", now, end, end * SLOWER / 1000)
    parts.append(
        f'<rect y="262" width="2" height="70" class="bar moving" x="{first}">{moves}</rect>'
    )
    note = "ring, pale: pulls w · frame, high: computes the gradient g · dot, thin: pushes g"
    return [*parts, text(280, 360, note, "small")]


@figure("pushes.svg", 560, 372)
def pushes():
    """{} pushes of a real run of HogWild, {} times slower. Two workers pull the parameters, compute
    a gradient and push it, without waiting for each other."""
    rows = json.loads((FIGURES / "pushes.json").read_text())
    end = max(row["pushed"] for row in rows) + 1
    ps, workers = (470, 130), [(65, 60), (65, 200)]
    parts = [box(*ps, "parameters w", "ps", width=130, height=60)]
    for number, kind in enumerate("ab"):
        x, y = workers[number]
        own = [row for row in rows if row["worker"] == number]
        near, far = (x + 62, y), (ps[0] - 78, ps[1] + (-12 if number == 0 else 12))
        parts.append(line([near, far]))
        parts.append(box(x, y, f"worker {number}", width=110, height=50))
        computes = visible([(row["pulled"], row["computed"]) for row in own], end)
        frame = rect(x - 55, y - 25, 110, 50, kind + " hollow", 6)
        parts.append(f'<g opacity="0">{frame}{computes}</g>')
        parts.append(moving(own, kind + " hollow", "called", "pulled", (far, near), end))
        parts.append(moving(own, kind, "computed", "pushed", (near, far), end))
    for row, after in zip(rows, [*rows[1:], {"pushed": end}]):
        words = text(ps[0], ps[1] + 60, f"update {row['update']} by worker {row['worker']}")
        words += text(ps[0], ps[1] + 80, f"staleness {row['staleness']}", "small")
        seen = visible([(row["pushed"], after["pushed"])], end)
        parts.append(f'<g opacity="0">{words}{seen}</g>')
    parts += timeline(rows, end)
    return parts, (len(rows), SLOWER)
