"""What Sphinx does not do by itself: formulas as MathML, pages for scripts, tables that sort."""

import html
import re
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml, toplevel_code, wrap_math_code
from pygments import highlight, lexers
from pygments.formatters import HtmlFormatter
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
SOURCES = set()  # files that are no page, but that a page links to

RULE = re.compile(r"^ ─+$")


def text_tables(text):
    """Returns the text of a page, without badges, in which fenced text tables are HTML tables."""
    text = re.sub(r"(?m)^\[!\[.*\n", "", text)  # pictures from elsewhere: no request leaves
    return re.sub(r"(?m)^```\n(\n? \S.*\n ─+\n.*?)^```\n", replacement, text, flags=re.S)


def replacement(fence):
    """Returns one fenced block as HTML: its tables, and the lines between them as they are."""
    lines, parts = fence[1].split("\n"), []
    while lines:
        at = next((i for i, line in enumerate(lines) if RULE.match(line)), None)
        if at is None:
            parts.append(words(lines))
            break
        end = next((i for i in range(at, len(lines)) if lines[i][:1].strip()), len(lines))
        nxt = next((i - 1 for i in range(at + 1, end) if RULE.match(lines[i])), end)
        parts += [words(lines[: at - 1]), table(lines[at - 1], lines[at + 1 : nxt])]
        lines = lines[nxt:]
    return "".join(parts) + "\n"


def words(lines):
    """Returns lines that belong to no table."""
    text = " ".join(line.strip() for line in lines if line.strip())
    return f"<p><em>{html.escape(text)}</em></p>\n" if text else ""


def table(head, lines):
    """Returns a table. A line without anything in its third column goes on with the line above.

    What stands in the first column holds for the lines below it, too.
    """
    names = [(match.start(), match[0]) for match in re.finditer(r"\S+(?: \S+)*", head)]
    starts = [start for start, _ in names]
    lines = list(filter(str.strip, lines))
    # A column whose entries do not begin below its name stays as it is.
    ragged = any(line[start - 1 : start].strip() for line in lines for start in starts[1:])
    if ragged or starts[0] > 1 or len(starts) < 3:
        return "<pre>" + html.escape("\n".join([head, *lines])) + "</pre>\n"
    rows = []
    for line in lines:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], len(line)])]
        if rows and not cells[2]:
            rows[-1] = [" ".join(filter(None, pair)) for pair in zip(rows[-1], cells)]
        else:
            rows.append(cells)
    for above, row in zip(rows, rows[1:]):
        row[0] = row[0] or above[0]
    text = "".join("<tr><td>" + "<td>".join(map(html.escape, row)) + "\n" for row in rows)
    titles = "".join(f'<th scope="col">{html.escape(name)}' for _, name in names)
    table = f'<table class="docutils sortable"><thead><tr>{titles}\n<tbody>\n{text}</table>'
    return f'<div class="table-wrapper docutils">{table}</div>\n'


SCRIPTS = {  # of each explorable, in the order in which they need each other
    "the-race": ["simulate", "learn", "play", "measured", "race"],
    "bytes-and-links": ["simulate", "play", "measured", "bytes"],
    "memory-and-schedule": ["schedule", "play", "measured", "memory"],
}


STILL = re.compile(r"\nIt moves after .*\n")  # said on GitHub only


def explorable(text, page, plain=""):
    """Returns the text of an explorable's page with its controls and scripts below.

    plain: what a browser shows that runs no scripts.
    """
    scripts = "".join(f'<script src="../_static/{s}.js"></script>\n' for s in SCRIPTS[page.stem])
    controls = page.with_suffix(".html").read_text()
    return STILL.sub("", text) + f"\n```{{raw}} html\n{controls}{plain}{scripts}```\n"


def terms(app, document):
    """Lets the search rank the page that a term names, and terms in bold, above all mentions.

    That is the title up to its colon, and what is in bold in a text; in the plural, too.
    """
    for node in list(document.findall(nodes.title))[:1] + list(document.findall(nodes.strong)):
        title, text = isinstance(node, nodes.title), node.astext().split(":")[0].strip(".,")
        if len(text.split()) > 4 or not (title or isinstance(node.parent, nodes.paragraph)):
            continue
        place = "" if title else f"term-{document.settings.env.new_serialno('term')}"
        names = {text, text if text.endswith("s") else text + "s"}
        entries = [("single", name, place, "main", None) for name in sorted(names)]
        target = [nodes.target("", "", ids=[place])] if place else []
        node.parent.insert(
            node.parent.index(node) + title, [addnodes.index(entries=entries), *target]
        )


def sortable(app, document):
    """Lets a click sort the wide tables of a measurement's page, such as those of Compare."""
    if document.settings.env.docname.startswith("Measurements/"):
        for group in document.findall(nodes.tgroup):
            if group["cols"] >= 4:
                group.parent["classes"].append("sortable")


def source_pages(app):
    """Yields a page for each file that a page links to, with its lines' numbers as anchors."""
    for path in sorted(SOURCES):
        text = (ROOT / path).read_text()
        try:
            lexer = lexers.get_lexer_for_filename(path if len(text) < 100_000 else "a.txt")
        except ClassNotFound:
            lexer = lexers.TextLexer()
        body = highlight(text, lexer, HtmlFormatter(linespans="L", cssclass="highlight source"))
        body = f"<h1>{html.escape(path)}</h1>\n" + body.replace(' id="L-', ' id="L')
        yield path, {"title": path, "body": body}, "page.html"


def mathml(is_block):
    """Returns a visitor that writes a formula as MathML: no script, no font, no request."""

    def visit(self, node):
        text = node.astext().replace(r"\dots", r"\ldots")  # which docutils does not know
        try:
            text = wrap_math_code(text, True) if r"\\" in toplevel_code(text) else text
            code = latex2mathml.tex2mathml(text, as_block=is_block)
        except MathError as error:
            logging.getLogger(__name__).warning(f"{error}: {text}", location=node, type="mathml")
            code = f"<code>{html.escape(text)}</code>"
        self.body.append(f'<div class="math">{code}</div>\n' if is_block else code)
        raise nodes.SkipNode

    return visit
