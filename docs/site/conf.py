"""The site: Sphinx renders copies of the repository's own pages and notebooks.  bash docs/build.sh

X/README.md becomes X/index.html. The files stay as they are; adapt() edits what Sphinx has read.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from posixpath import basename, dirname, join, normpath, relpath

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
import measured  # noqa: E402
import render  # noqa: E402

SOURCE = ROOT / "docs/_build/source"
PLAY = "docs/site/play/"  # the explorables' pages
LISTED = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
FILES = set(subprocess.check_output(LISTED, text=True).split("\0")) - {""}
PICTURES = {f for f in FILES if f.endswith((".png", ".svg"))}


def place(path):
    path = path.removeprefix(".github/").replace(PLAY, "play/")
    return join(dirname(path), "index.md") if basename(path) == "README.md" else path


TEXTS = (f for f in sorted(FILES) if f.endswith((".md", ".ipynb")) and "TEMPLATE" not in f)
PAGES = {f: place(f) for f in TEXTS if not f.startswith("tests/")}
DOCUMENTS = {p.rsplit(".", 1)[0]: f for f, p in PAGES.items()}
shutil.rmtree(SOURCE, ignore_errors=True)
for f in PICTURES | set(PAGES):  # copies: of a link, Sphinx would not know the page
    (SOURCE / PAGES.get(f, f)).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / f, SOURCE / PAGES.get(f, f))

project = html_title = "Distributed training"
extensions = ["myst_nb", "sphinx.ext.githubpages"]
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_url_schemes = dict.fromkeys(("http", "https", "mailto"))
myst_url_schemes["site"] = {"url": "{{path}}#{{fragment}}"}
html_theme = "furo"
html_theme_options = {"dark_css_variables": {"color-background-primary": "#0d1117"}}  # as figures
MADE = ROOT / "docs/_build/made"
MADE.mkdir(exist_ok=True)
MEASURED = measured.everything(ROOT)
(MADE / "measured.js").write_text(measured.script(MEASURED))
html_static_path, html_css_files, html_js_files = ["static", str(MADE)], ["site.css"], ["tables.js"]
html_favicon, html_search_scorer = "static/icon.svg", str(ROOT / "docs/site/static/scorer.js")
html_show_sphinx = html_show_copyright = html_show_sourcelink = html_copy_source = False
html_use_index = False
html_show_search_summary = False  # it would fetch pages, which file:// forbids
html_math_renderer = "mathml"
highlight_language = "none"  # a fence without a language is no Python
pygments_style, pygments_dark_style = "default", "github-dark"

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|[#/<])([^)\s#]+)(#[^)\s]*)?")


def links(text, page):
    """Turns links between the repository's files into links between the site's pages."""
    here = dirname(PAGES[page]) or "."

    def rewritten(match):
        path, anchor = normpath(join(dirname(page), match[1])), match[2] or ""
        if path not in FILES:  # a folder
            inside = (normpath(f"{path}/{name}") for name in ("README.md", "__init__.py"))
            path = next((name for name in inside if name in FILES), path)
        if path in PAGES:
            return relpath(PAGES[path], here) + anchor
        if path in PICTURES:
            return relpath(path, here)
        if path not in FILES:
            return match[0]
        render.SOURCES.add(path)
        return "site:" + relpath(path + ".html", here) + (anchor or "#L1")

    return LINK.sub(rewritten, text)


def tree(caption, *names, titles=True):
    lines = [f"{n.removesuffix('/index').split('/')[-1]} </{n}>" if titles else n for n in names]
    lines = "\n".join(lines)
    return f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n{lines}\n```\n"


def contents():
    """The root page's hidden tables of contents, in the order of docs/reading-order.txt."""
    text = tree("Play", *("play/" + name for name in render.SCRIPTS), titles=False)
    text += tree("Learn", "Basics-Tutorial/index", "Basics-Tutorial/GLOSSARY")
    order = re.sub(r"^#.*\n", "", (ROOT / "docs/reading-order.txt").read_text(), flags=re.M).strip()
    for group in re.split(r"\n(?=\S)", order):
        caption, *names = map(str.strip, group.strip().splitlines())
        text += tree(caption.removesuffix(" (folded)"), *(n + "/index" for n in names))
    rest = (d for d, f in DOCUMENTS.items() if f.endswith(".md") and f"</{d}>" not in text)
    return text + tree("More", *(d for d in rest if d != "index"))


def adapt(app, name, source):
    page = DOCUMENTS[name]
    if page.endswith(".md"):
        source[0] = links(render.text_tables(source[0]), page)
        if page.startswith(PLAY):
            plain = measured.table(MEASURED["the_race"]) if name == "play/the-race" else ""
            source[0] = render.explorable(source[0], ROOT / page, plain)
    else:
        notebook = json.loads(source[0])
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = links("".join(cell["source"]), page)
            if cell["metadata"].get("jupyter", {}).get("source_hidden"):
                cell["metadata"].setdefault("tags", []).append("hide-input")
        source[0] = json.dumps(notebook)
    if name == "index":
        play = " · ".join(
            f"[{p.replace('-', ' ').capitalize()}](play/{p}.md)" for p in render.SCRIPTS
        )
        site = "`bash\ndocs/build.sh` builds an interactive site."  # which the reader has open
        assert site in source[0], "README.md no longer says how the site is built"
        source[0] = source[0].replace(site, f"\n\n**Play:** {play}")
        source[0] += contents()
    if name == "Basics-Tutorial/index":
        notebooks = re.findall(r"\(([\w-]+)\.ipynb\)", source[0])
        source[0] += tree("The course", *dict.fromkeys("Basics-Tutorial/" + n for n in notebooks))


def setup(app):
    app.connect("source-read", adapt)
    app.connect("doctree-read", render.terms)
    app.connect("doctree-read", render.sortable)
    app.connect("html-collect-pages", render.source_pages)
    inline, block = ((render.mathml(is_block), None) for is_block in (False, True))
    app.add_html_math_renderer("mathml", inline, block)
