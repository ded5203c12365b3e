"""What all diagrams are made of: the style, boxes, arrows, frames, animations.

A diagram is at most some 600 units wide and has no text below 14 units, so that a telephone shows
it readably. It has a ground of its own, because not every viewer's page is as dark as its theme.
Worker 0 is blue, worker 1 orange, worker 2 purple; what lives on a ps is pale blue.

Each function under @figure, in any module of this folder, draws a file. This one draws
docs/figures/my-algorithm.svg, 300 units wide and 120 high; `lab/drawings/diagrams.py --fix`
writes it:

    @figure("my-algorithm.svg", 300, 120)
    def draw():
        '''Worker 0 pushes a gradient g to the ps. This is its title, for who cannot see it.'''
        worker, ps = box(60, 60, "worker 0"), box(240, 60, "ps", "ps")
        push = arrow(102, 60, 198, 60)  # a box is 84 wide: from the right of one to the next
        return [worker, ps, push, text(150, 50, "g", "small")]
"""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
STYLE = """
.ground { fill: #ffffff }
text { font: 15px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.small { font-size: 14px; fill: #59636e } .title { font-weight: 600 }
.code { font: 14px ui-monospace, Menlo, Consolas, monospace }
.middle { text-anchor: middle } .end { text-anchor: end }
.box { fill: #f6f8fa; stroke: #818b98 }
.ps { fill: #ddf4ff; stroke: #0969da }
.a { fill: #0969da; stroke: #0969da } .b { fill: #bc4c00; stroke: #bc4c00 }
.c { fill: #8250df; stroke: #8250df } .done { fill: #1a7f37; stroke: #1a7f37 }
.pale { fill-opacity: .18 } .hollow { fill: none; stroke-width: 3 }
.thin { fill: none; stroke-opacity: .5 }
.line { stroke: #818b98; fill: none }
.bar { stroke: #cf222e; stroke-width: 4; fill: #cf222e }
.frame, .idle { fill: none; stroke: #818b98; stroke-dasharray: 4 4 }
text.on { fill: #fff; stroke: none } text.lost { fill: #cf222e }
@media (prefers-reduced-motion: reduce) { .moving { display: none } }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117 }
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  .box { fill: #212830; stroke: #9198a1 } .ps { fill: #121d2f; stroke: #4493f8 }
  .a { fill: #4493f8; stroke: #4493f8 } .b { fill: #db6d28; stroke: #db6d28 }
  .c { fill: #ab7df8; stroke: #ab7df8 } .done { fill: #3fb950; stroke: #3fb950 }
  .hollow { fill: none } .line, .frame, .idle { stroke: #9198a1 }
  .bar { stroke: #f85149; fill: #f85149 }
  text.on { fill: #0d1117 } text.lost { fill: #f85149 }
}
"""
ARROW = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
    '<path d="M0 0 8 4 0 8z" fill="#818b98"/></marker>'
)
KINDS = "abc"  # the colours of workers 0, 1, 2
DRAWN = {}  # {name of a file in docs/figures/: the function that returns its content}


def figure(name, width, height):
    """Registers a function that draws the file `name`.

    The function returns the parts of the drawing, or a pair: the parts, and the values for the {}
    in its docstring. The docstring is the title: what a reader who cannot see it should know.
    """

    def register(draw):
        def svg():
            drawn, title = draw(), " ".join(draw.__doc__.split())
            parts, values = drawn if isinstance(drawn, tuple) else (drawn, ())
            return (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img">\n'
                f"<title>{title.format(*values)}</title>\n<style>{STYLE}</style>\n"
                f"<defs>{ARROW}</defs>\n{rect(0, 0, width, height, 'ground', 0)}\n"
                + "\n".join(parts)
                + "\n</svg>\n"
            )

        DRAWN[name] = svg
        return draw

    return register


def text(x, y, words, kind=""):
    """Words around x; kind: classes, of which "end" puts them before x."""
    anchor = "" if "end" in kind.split() else "middle "
    return f'<text x="{x:g}" y="{y:g}" class="{(anchor + kind).strip()}">{words}</text>'


def left(x, y, words, kind=""):
    """Words from x on."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" xml:space="preserve">{words}</text>'


def lines(x, y, several, kind="small", step=20, draw=left):
    """Several lines of words, one below the other, drawn by `left` or `text`."""
    return [draw(x, y + step * number, words, kind) for number, words in enumerate(several)]


def circle(x, y, r, kind):
    return f'<circle cx="{x:g}" cy="{y:g}" r="{r:g}" class="{kind}"/>'


def rect(x, y, width, height, kind, round_=4):
    shape = '<rect x="%g" y="%g" width="%g" height="%g" rx="%g" class="%s"/>'
    return shape % (x, y, width, height, round_, kind)


def box(x, y, words, kind="box", width=84, height=34):
    """A box with words, around a point; words after the first line are small."""
    parts, lines = [rect(x - width / 2, y - height / 2, width, height, kind, 6)], words.split("\n")
    for number, line in enumerate(lines):
        at = y + 5 + 19 * (number - (len(lines) - 1) / 2)
        parts.append(text(x, at, line, "small" if number else ""))
    return "".join(parts)


def outlined(x, y, words, outline, width=84, height=34):
    """A box with a thick border in the colour of a worker."""
    border = rect(x - width / 2, y - height / 2, width, height, outline + " hollow", 6)
    return box(x, y, words, width=width, height=height) + border


def legend(x, y, kind, words, width=16):
    """What a colour means: a small rectangle of it, and the words after it."""
    return rect(x, y - 13, width, 16, kind, 2) + left(x + width + 8, y, words, "small")


def halves(name):
    """The cells of a matrix of which device 0 has one half, and device 1 the other."""
    return {f"{name}_0": "a pale", f"{name}_1": "b pale"}


def matrix(x, y, width, height, cells, cut="columns"):
    """A matrix, cut into equal columns or rows; cells: {name: kind} of each."""
    across, down = (1, len(cells)) if cut == "rows" else (len(cells), 1)
    width, height, parts = width / across, height / down, []
    for name, kind in cells.items():
        parts += [rect(x, y, width, height, kind, 0), text(x + width / 2, y + height / 2 + 5, name)]
        x, y = (x, y + height) if cut == "rows" else (x + width, y)
    return parts


def bar(x, y, width, kind, words="", height=26):
    """A filled bar from x, in the middle of which stand words."""
    parts = rect(x, y, width, height, kind, 3)
    return parts + (text(x + width / 2, y + height / 2 + 5, words, "on") if words else "")


def frame(x, y, width, height, words):
    """A dashed frame with its name above on the left: a process, or a host."""
    return rect(x, y, width, height, "frame", 8) + left(x + 10, y + 20, words, "title")


def arrow(x1, y1, x2, y2, both=False, kind="line"):
    start = ' marker-start="url(#tip)"' if both else ""
    d = f"M{x1:g} {y1:g} L{x2:g} {y2:g}"
    return f'<path d="{d}" class="{kind}"{start} marker-end="url(#tip)"/>'


def path(d, kind="line", tip=True):
    return '<path d="{}" class="{}"{}/>'.format(d, kind, ' marker-end="url(#tip)"' if tip else "")


def line(points, kind="line"):
    """A line through points, without a tip."""
    return path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), kind, tip=False)


def thick(x1, y1, x2, y2, kind):
    """An arrow in the colour of a worker, with a head of its own."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    corners = [
        (x2, y2),
        (x2 - 11 * dx + 5 * dy, y2 - 11 * dy - 5 * dx),
        (x2 - 11 * dx - 5 * dy, y2 - 11 * dy + 5 * dx),
    ]
    head = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "z"
    shaft = line([(x1, y1), (x2 - 9 * dx, y2 - 9 * dy)], kind + " hollow")
    return shaft + path(head, kind, tip=False)


def animate(name, keys, end, seconds, discrete=False):
    """An animation of an attribute through [(time, value)], again and again in so many seconds."""
    keys = [(0, keys[0][1]), *keys, (end, keys[-1][1])]
    times = ";".join(f"{at / end:.4f}" for at, _ in keys)
    values = ";".join(f"{value:g}" for _, value in keys)
    how = ' calcMode="discrete"' if discrete else ""
    return (
        f'<animate attributeName="{name}" dur="{seconds:g}s" repeatCount="indefinite"{how} '
        f'keyTimes="{times}" values="{values}"/>'
    )
