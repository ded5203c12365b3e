"""Draws the diagrams in figures/: SVG that reads on light and on dark pages.

python tools/diagrams.py          check; exits with 1 and the names of what is out of date
python tools/diagrams.py --fix    write them
python tools/diagrams.py --pushes runs/HogWild/latest
                                  take the pushes of pushes.svg from a run (figures/pushes.json)
"""

import csv
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIGURES = ROOT / "figures"
STYLE = """
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.title { font-weight: 600 }
.box { fill: #f6f8fa; stroke: #818b98 }
.ps { fill: #ddf4ff; stroke: #0969da }
.a { fill: #0969da; stroke: #0969da } .b { fill: #bc4c00; stroke: #bc4c00 }
.line { stroke: #818b98; fill: none } .bar { stroke: #cf222e; stroke-width: 4 }
.hollow { fill: none; stroke-width: 3 } .middle { text-anchor: middle }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  .box { fill: #212830; stroke: #9198a1 } .ps { fill: #121d2f; stroke: #4493f8 }
  .a { fill: #4493f8; stroke: #4493f8 } .b { fill: #db6d28; stroke: #db6d28 }
  .hollow { fill: none } .line { stroke: #9198a1 } .bar { stroke: #f85149 }
}
"""
ARROW = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" fill="#818b98"/></marker>'
)


def svg(width, height, title, parts):
    """A whole drawing; title: what a reader who cannot see it should know."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">\n'
        "<title>%s</title>\n<style>%s</style>\n<defs>%s</defs>\n%s\n</svg>\n"
        % (width, height, title, STYLE, ARROW, "\n".join(parts))
    )


def text(x, y, words, kind=""):
    return '<text x="%g" y="%g" class="middle %s">%s</text>' % (x, y, kind, words)


def box(x, y, words, kind="box", width=84, height=34):
    """A box with words, around a point."""
    left, top = x - width / 2, y - height / 2
    shape = '<rect x="%g" y="%g" width="%g" height="%g" rx="6" class="%s"/>'
    return shape % (left, top, width, height, kind) + text(x, y + 5, words)


def arrow(x1, y1, x2, y2, both=False):
    start = ' marker-start="url(#tip)"' if both else ""
    return '<path d="M%g %g L%g %g" class="line"%s marker-end="url(#tip)"/>' % (
        *(x1, y1, x2, y2),
        start,
    )


# Four architectures.


def with_ps(x, y, synchronous):
    """Three workers and a parameter server; synchronous: a bar where all wait for each other."""
    parts = [box(x, y + 70, "parameters w", "ps", width=130)]
    for number, at in enumerate((x - 105, x, x + 105)):
        parts.append(box(at, y + 190, "worker %d" % number))
        parts.append(arrow(at, y + 172, x + (at - x) / 3, y + 88, both=True))
    if synchronous:
        parts.append('<path d="M%g %g h280" class="bar"/>' % (x - 140, y + 150))
    return parts


def all_reduce(x, y):
    """Three workers that send sums around a ring, each with all parameters."""
    places = [(x, y + 72), (x + 95, y + 185), (x - 95, y + 185)]
    parts = [
        box(*place, "worker %d, w" % number, "ps", width=104) for number, place in enumerate(places)
    ]
    parts.append(arrow(x + 30, y + 91, x + 82, y + 165))
    parts.append(arrow(x + 41, y + 185, x - 41, y + 185))
    parts.append(arrow(x - 82, y + 165, x - 30, y + 91))
    return parts


def pipeline(x, y):
    """Layers in two places, activations forward and gradients back."""
    parts = []
    for number, at in enumerate((x - 95, x + 95)):
        parts.append(box(at, y + 130, "worker %d" % number, "ps", width=104, height=60))
        parts.append(text(at, y + 153, "layers %d–%d" % (2 * number + 1, 2 * number + 2), "small"))
    parts.append(arrow(x - 41, y + 118, x + 41, y + 118))
    parts.append(arrow(x + 41, y + 142, x - 41, y + 142))
    parts.append(text(x, y + 108, "activations", "small"))
    parts.append(text(x, y + 160, "gradients", "small"))
    return parts


def architectures():
    panels = [
        ("Asynchronous", "each worker pushes when it is ready", with_ps, (False,)),
        ("Synchronous", "each step waits for all gradients", with_ps, (True,)),
        ("All-reduce", "no server: every worker keeps all of w", all_reduce, ()),
        ("Model parallelism", "every worker keeps some of the layers", pipeline, ()),
    ]
    parts = []
    for number, (name, what, draw, more) in enumerate(panels):
        x, y = 185 + 370 * (number % 2), 10 + 240 * (number // 2)
        parts += [text(x, y + 20, name, "title"), text(x, y + 40, what, "small")]
        parts += draw(x, y, *more)
    words = (
        "Four architectures. Asynchronous: workers push to a parameter server whenever they are "
        "ready. Synchronous: the server waits for all. All-reduce: workers in a ring, no server. "
        "Model parallelism: each worker has some of the layers."
    )
    return svg(740, 480, words, parts)


# Real pushes, animated.

SHOWN = 16  # pushes
SLOWER = 400


def take(directory):
    """Some pushes from the middle of a run, in milliseconds from the first pull shown."""
    rows = []
    for number in (0, 1):
        path = pathlib.Path(directory) / ("metrics-worker-%d.csv" % number)
        with open(path, newline="") as file:
            last = None
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                if not row["loss"]:
                    last = None  # it has tested the model in between
                    continue
                push, pull = float(row["push_time"]), float(row["pull_time"])
                if last:
                    rows.append(
                        {
                            "worker": number,
                            "called": last,
                            "pulled": pull,
                            "computed": push - float(row["wait_seconds"]),
                            "pushed": push,
                            "update": int(row["global_step"]),
                            "staleness": int(float(row["staleness"])),
                        }
                    )
                last = push
    rows.sort(key=lambda row: row["pushed"])
    some = rows[len(rows) // 2 :][:SHOWN]
    begin = min(row["called"] for row in some)
    for row in some:
        for name in ("called", "pulled", "computed", "pushed"):
            row[name] = round(1000 * (row[name] - begin), 2)
    return some


def animate(name, keys, end, discrete=False):
    """An animation of an attribute through [(milliseconds, value)], again and again."""
    keys = [(0, keys[0][1]), *keys, (end, keys[-1][1])]
    times = ";".join("%.4f" % (at / end) for at, _ in keys)
    values = ";".join(str(value) for _, value in keys)
    how = ' calcMode="discrete"' if discrete else ""
    return (
        '<animate attributeName="%s" dur="%gs" repeatCount="indefinite"%s '
        'keyTimes="%s" values="%s"/>' % (name, end * SLOWER / 1000, how, times, values)
    )


def moving(rows, kind, start, stop, ends, end):
    """A dot that goes from ends[0] to ends[1] between two times of each push."""
    (x1, y1), (x2, y2) = ends
    xs, ys, seen = [], [], [(0, 0)]
    for row in rows:
        xs += [(row[start], x1), (row[stop], x2)]
        ys += [(row[start], y1), (row[stop], y2)]
        seen += [(row[start], 1), (row[stop], 0)]
    return '<circle r="7" class="%s" opacity="0">%s%s%s</circle>' % (
        kind,
        *(animate("cx", xs, end), animate("cy", ys, end)),
        animate("opacity", seen, end, discrete=True),
    )


def pushes():
    rows = json.loads((FIGURES / "pushes.json").read_text())
    end = max(row["pushed"] for row in rows) + 1
    ps, workers = (560, 130), [(130, 60), (130, 200)]
    parts = [box(*ps, "parameters w", "ps", width=130, height=60)]
    for number, kind in enumerate("ab"):
        x, y = workers[number]
        own = [row for row in rows if row["worker"] == number]
        near, far = (x + 62, y), (ps[0] - 78, ps[1] + (-12 if number == 0 else 12))
        parts.append('<path d="M%g %g L%g %g" class="line"/>' % (*near, *far))
        parts.append(box(x, y, "worker %d" % number, width=110, height=50))
        glow = [(0, 0)]
        for row in own:
            glow += [(row["pulled"], 1), (row["computed"], 0)]
        frame = '<rect x="%g" y="%g" width="110" height="50" rx="6" class="%s hollow" opacity="0">'
        parts.append(frame % (x - 55, y - 25, kind))
        parts.append(animate("opacity", glow, end, discrete=True) + "</rect>")
        parts.append(moving(own, kind + " hollow", "called", "pulled", (far, near), end))
        parts.append(moving(own, kind, "computed", "pushed", (near, far), end))
    for row, after in zip(rows, [*rows[1:], {"pushed": end}]):
        seen = [(0, 0), (row["pushed"], 1), (after["pushed"], 0)]
        words = "update %d by worker %d" % (row["update"], row["worker"])
        late = "staleness %d" % row["staleness"]
        parts.append(
            '<g opacity="0">%s%s%s</g>'
            % (
                text(ps[0], ps[1] + 60, words),
                text(ps[0], ps[1] + 80, late, "small"),
                animate("opacity", seen, end, discrete=True),
            )
        )
    legend = "ring: pulls w · frame: computes the gradient g · dot: pushes g"
    parts.append(text(360, 252, legend, "small"))
    words = (
        "%d pushes of a real run of HogWild, %d times slower. Two workers pull the parameters, "
        "compute a gradient and push it, without waiting for each other." % (len(rows), SLOWER)
    )
    return svg(720, 264, words, parts)


DRAWN = {"architectures.svg": architectures, "pushes.svg": pushes}


def main():
    if sys.argv[1:2] == ["--pushes"]:
        (FIGURES / "pushes.json").write_text(json.dumps(take(sys.argv[2]), indent=1) + "\n")
    stale = []
    for name, draw in DRAWN.items():
        path, made = FIGURES / name, draw()
        if not path.exists() or path.read_text() != made:
            stale.append(name)
            if sys.argv[1:]:
                path.write_text(made)
    for name in stale:
        print("%s: figures/%s" % ("written" if sys.argv[1:] else "out of date", name))
    return bool(stale) and not sys.argv[1:]


if __name__ == "__main__":
    sys.exit(main())
