"""The site in a real browser whose network is off: links, search, tables, the three explorables."""

import html.parser
import math
import re
import subprocess
import urllib.parse

import pytest
import support
from lab import examples

pytestmark = [pytest.mark.long, pytest.mark.needs("chromium")]
COMPARE, SITE = support.ROOT / "Measurements" / "Compare", support.ROOT / "docs" / "site"
measured, stills = (examples.load(SITE / name) for name in ("measured.py", "stills.py"))
HTML = support.ROOT / "docs" / "_build" / "html"
PLAY = ["the-race", "bytes-and-links", "memory-and-schedule"]
NO_NETWORK = [
    "--no-sandbox",  # root cannot have one
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]


@pytest.fixture(scope="module")
def site():
    """Returns the folder of the site, built with every warning an error."""
    done = subprocess.run(
        ["bash", "docs/build.sh"], cwd=support.ROOT, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return HTML


@pytest.fixture
def browser():
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=support.browser(), args=NO_NETWORK)
        yield browser
        browser.close()


class Tab:
    """A page in the browser, which fails at its end where a script erred or a request left."""

    def __init__(self, browser, site, width=1280, **options):
        options = {"viewport": {"width": width, "height": 850}, "offline": True, **options}
        self.site, self.context, self.wrong = site, browser.new_context(**options), []
        self.page = self.context.new_page()
        self.page.set_default_timeout(1e3 * support.patience(20))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda told: told.type == "error" and self.wrong.append(told.text))
        self.page.on(
            "request",
            lambda request: self.wrong.append(request.url) if not local(request.url) else None,
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        assert kind or not self.wrong, self.wrong

    def open(self, path):
        self.page.goto("about:blank")
        self.page.goto(f"file://{self.site}/{path}")
        if path.startswith("play/"):
            self.ready()

    def ready(self):
        """Waits until the race is run; the other pages are drawn at once."""
        self.page.wait_for_function("!window.raceStats || raceStats.done")

    def hash(self):
        return dict(urllib.parse.parse_qsl(self.page.evaluate("location.hash.slice(1)")))


def local(url):
    return url.startswith(("file:", "data:", "about:"))


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name")}
        if tag in ("a", "link", "script", "img"):
            self.links.append((tag, values.get("href") or values.get("src")))


def test_links(site):
    """Catches a link of the built pages that leads nowhere, and an asset from elsewhere."""
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    checked = 0
    for path, page in pages.items():
        for tag, link in page.links:
            if not link or re.match(r"(https?|mailto|data):|//", link):
                assert tag == "a" or not link or link.startswith("data:"), (path, link)
                continue
            checked += 1
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            file = (path.parent / target.partition("?")[0]).resolve() if target else path
            assert file.is_file(), (path, link)
            if anchor and file in pages:
                assert anchor in pages[file].anchors, (path, link)
    assert len(pages) > 100 and checked > 10_000


def test_text_tables_lose_nothing(site):
    """Catches a number of a measurement's table that the HTML of it lacks."""
    for name in ("Scaling", "Slow-Network", "Staleness"):
        text = (support.ROOT / "Measurements" / name / "table.txt").read_text()
        page = (site / "Measurements" / name / "index.html").read_text()
        cells = re.findall(r"<td>([^<]*)", page.partition("sortable")[2])
        shown = re.findall(r"\d[\d.,]*", " ".join(cells))
        rows = [line for line in text.splitlines() if line.startswith(" ") and "─" not in line][1:]
        # A name in the first column stands once in the text and in each row of the table.
        told = [number for row in rows for number in re.findall(r"\d[\d.,]*", row[22:])]
        missing = [number for number in set(told) if told.count(number) > shown.count(number)]
        assert len(told) > 100 and not missing, name


def test_search_and_tables(browser, site):
    """Catches a search that ranks mentions of a term first, and a column that does not sort."""
    with Tab(browser, site) as tab:
        firsts = {
            "backup workers": "Synchronous-SGD:",
            "DynSGD": "DynSGD:",
            "staleness": "Staleness:",
            "straggler": "Glossary",
        }
        for query, first in firsts.items():
            tab.open(f"search.html?q={query}")
            tab.page.wait_for_selector("#search-results li a")
            assert tab.page.inner_text("#search-results li a").startswith(first), query
        tab.open("Measurements/Scaling/index.html")
        column = tab.page.locator("th", has_text="mini-batches/s").first
        at = column.evaluate("cell => cell.cellIndex")
        rows = "[...document.querySelectorAll('.sortable tbody tr')]"
        cells = f"{rows}.map(row => row.cells[{at}].innerText)"
        for first, last in ((0, 1), (1, 0)):
            column.locator("button").click()
            known = [float(x.split()[0]) for x in tab.page.evaluate(cells) if x[:1].isdigit()]
            assert len(known) > 20 and known == sorted(known, reverse=first > last)


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_explorables_fit(browser, site, width, scheme):
    """Catches a page wider than the screen, a NaN in a table, a control that a finger misses."""
    wide = ["Measurements/Compare/index", "Measurements/Scaling/index", "docs/costs", "index"]
    paths = [f"play/{name}.html" for name in PLAY] + [f"{name}.html" for name in wide]
    with Tab(browser, site, width, color_scheme=scheme, has_touch=width < 500) as tab:
        for path in paths:
            tab.open(path)
            over = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, path
            if not path.startswith("play/"):
                continue
            assert not re.search("NaN|undefined", tab.page.inner_text("article")), path
            assert tab.page.locator(".play table tbody tr").count() >= 4
            controls = "document.querySelectorAll('.play input[type=range], .play button')"
            sizes = tab.page.evaluate(f"[...{controls}].map(e => e.offsetHeight)")
            assert min(filter(None, sizes)) >= 32


def test_the_race(browser, site):
    """By keyboard and touch: each button has another winner, and CV alone decides who learns.

    Catches a winner that was only simulated for longer than others.
    """
    with Tab(browser, site, reduced_motion="reduce", has_touch=True) as tab:
        tab.open("play/the-race.html")
        firsts = []
        for button in tab.page.locator(".presets").first.locator("button").all():
            button.press("Enter")
            tab.ready()
            firsts.append(tab.page.inner_text(".verdict b"))
        assert len(set(firsts)) == 4, firsts
        assert "ring" in firsts[0] and "Asynchronous" in firsts[1]
        tab.page.locator("[data-i]", has_text="Same-Staleness").tap()
        tab.ready()
        assert tab.hash()["pick"] == "async" and tab.hash()["cv"] == "0"
        outcomes = {}
        for cv in ("0", "1"):
            while tab.hash()["cv"] != cv:
                tab.page.press("[name=cv]", "ArrowRight")
            tab.ready()
            late = re.search(r"mean ([\d.]+)", tab.page.inner_text(".t-stale"))[1]
            seconds = tab.page.locator("[data-a=async] output").evaluate("e => e.value")
            outcomes[cv] = float(late), seconds
        assert outcomes["0"][1] == "never" and "never" not in outcomes["1"][1], outcomes
        assert abs(outcomes["0"][0] - outcomes["1"][0]) < 1
        state = tab.page.evaluate("location.href")
        table = tab.page.inner_text(".play table")
        tab.page.goto("about:blank")
        tab.page.goto(state)
        tab.ready()
        assert tab.page.inner_text(".play table") == table  # the address brings the same state back
        tab.open("play/the-race.html#n=64&cv=1&rate=0.25")  # gossip is stopped after 4 s here
        assert tab.page.inner_text(".verdict b").startswith("Undecided")
        assert not tab.page.locator(".tracks .first").count()


def test_the_puzzles(browser, site):
    """Catches an answer that does not solve its puzzle on the page, and a point left out."""
    with Tab(browser, site) as tab:
        tab.open("play/memory-and-schedule.html")
        for puzzle in tab.page.locator(".presets button").all()[:3]:
            puzzle.click()
            assert "Solved" not in tab.page.inner_text(".asks")
            tab.page.click(".answer")
            assert "Solved" in tab.page.inner_text(".asks")
            assert len(tab.page.inner_text(".solution span")) > 40
        tab.open("play/bytes-and-links.html")
        points = tab.page.locator("[name=point] option").count() - 1
        assert points > 35
        inside = 0
        for i in range(28):  # all that was published lies in its range, as Scale-Laboratory says
            tab.page.select_option("[name=point]", str(i))
            inside += "inside" in tab.page.inner_text(".picked")
        assert inside >= 27
        tab.open("play/bytes-and-links.html#n=8&S=1000&B=10&T=2")  # all in one machine
        verdict = tab.page.inner_text(".verdict")
        assert "hierarchical" not in verdict and "2 local steps" in verdict


def test_stills(browser, site):
    """Catches a still of another model, or of another state, than the page now draws."""
    for name, svg in stills.draw(browser).items():
        assert (stills.PLAY / f"{name}-still.svg").read_text() == svg, "python docs/site/stills.py"


def test_without_javascript(browser, site):
    """Catches an explorable that shows nothing on paper, or where scripts do not run."""
    with Tab(browser, site, java_script_enabled=False) as tab:
        for name in PLAY:
            tab.page.goto(f"file://{site}/play/{name}.html")
            still = tab.page.locator("img[src*='-still']")
            assert still.is_visible() and still.evaluate("i => i.naturalWidth") > 300
        tab.page.goto(f"file://{site}/play/the-race.html")
        assert tab.page.locator("noscript td", has_text="staleness").count() > 5
    with Tab(browser, site) as tab:
        tab.open("play/the-race.html")
        tab.page.emulate_media(media="print")
        assert tab.page.locator(".timeline svg").is_visible()
        assert not tab.page.locator("img[src*='-still']").is_visible()
        assert not tab.page.locator(".presets").first.is_visible()
        assert tab.page.locator(".main label", has_text="workers 64").is_visible()
        assert not tab.page.locator("[name=n]").is_visible()


ARRIVING = {  # rows of Compare, and the seconds of their five runs; None: never, "x": a failure
    "8 workers, CV 0.1: Non-Distributed-Setup": [None] * 5,
    "8 workers, CV 0.1: HogWild": [2, 3, 3, 3, None],
    "8 workers, CV 0.1: HogWild, A/A": [4, 4, 4, 4, 4],
    "8 workers, CV 0.1: Synchronous-SGD": ["x", "x", "x", "x", "x"],
    "8 workers, CV 0.1: Further-Algorithms/Local-SGD": [5, 5, None, "x", None],
    "8 workers, CV 0.1: Further-Algorithms/Bounded-Staleness": [4, 4, 5, 5, 5],
    "8 workers, CV 0.1: DynSGD": [],  # no setting trains
    "8 workers, CV 1: HogWild": [1, 1, 1, 1, 2],
    "8 workers, CV 0.5: HogWild": [3, 3, 3, 3, 3],
}


def run_of(at, gradient=0.034):
    """Returns a run as Compare's driver keeps it: tested each second, at 97% in one of them."""
    if at == "x":
        return {"seed": 1, "ended": "failed", "failed": "no port"}
    seconds = [1, 2, 3, 4, 5, 6]
    tests = {"seconds": seconds, "accuracy": [0.98 if s >= (at or 9) else 0.9 for s in seconds]}
    tests |= {name: seconds for name in ("loss", "examples", "megabytes")}
    known = {"seed": 1, "ended": "time", "evaluations": tests, "test_loss": at or 9.0}
    known |= {"test_accuracy": 0.98, "training_loss": 0.1, "bytes": 1e6, "staleness_mean": 6.9}
    return {**known, "gradient_seconds": gradient, "ps": 1, "workers": 8}


def compared(rows=ARRIVING):
    """Returns what Compare leaves as results.json of these rows."""
    bad = {"words": "--learning-rate 1", "seed": 0, "reached": None, "loss": math.inf}
    bad |= {"ended": "diverged", "point": [1], "stage": 1, "others": 0.0, "at": 1}
    cases = {
        name: {
            "tries": [] if seconds else [bad],
            "runs": [run_of(at, None if "Non-" in name else 0.034) for at in seconds],
            "chosen": "--learning-rate 0.1" if seconds else None,
            "seconds": 6,
            "measured": "today",
        }
        for name, seconds in rows.items()
    }
    report = examples.load(COMPARE / "report.py")
    return report.results_of(cases, 5, lambda _: ("accuracy", 0.97), lambda *_: (True, False))


def test_presets_of_compare():
    """Catches a row that is taken for another, a median without its failures, and a law's number.

    Its two main laws, and no other task, make a button each, whichever rows are there.
    """
    equal, different = measured.compare(compared())
    assert [equal["name"], different["name"]] == [
        "8 workers, steady times",
        "8 workers, varying times",
    ]
    assert [equal["state"][key] for key in ("n", "cv", "slow", "mean")] == [8, 0.1, 1, 34.0]
    assert equal["rows"] == {
        "one": "97% never",
        "async": "staleness 6.9, 97% in 3.4 s",
        "sync": "97% never",
        "local": "staleness 6.9, 97% never",
        "bounded": "staleness 6.9, 97% in 5.4 s",
        "dynsgd": "97% never",
    }
    assert different["rows"] == {"async": "staleness 6.9, 97% in ≤ 1.4 s"}
    some = {name: rows for name, rows in ARRIVING.items() if "CV 1" not in name}
    assert [preset["name"] for preset in measured.compare(compared(some))] == [
        "8 workers, steady times"
    ]
    assert list(measured.compare({})) == []
    rates = measured.everything(support.ROOT)["rates"].values()
    counts = [[n for n, _ in points] for curves in rates for points in curves.values()]
    assert len(counts) > 5 and all(len(set(ns)) == len(ns) for ns in counts)  # one law in each


MINIATURE = """
import sys
sys.path.insert(0, {site!r})
import render
extensions, html_theme = ["myst_parser"], "furo"
html_static_path = [{site!r} + "/static"]
html_css_files, html_js_files = ["site.css"], ["tables.js"]
def setup(app):
    app.connect("doctree-read", render.sortable)
"""


def test_compare_as_it_will_be(browser, site, tmp_path):
    """Catches buttons that do not fit the race's controls, and a table that sorts "never" as text.

    Made-up results stand for those of Compare: in the race, and on a page of its own, by the same
    theme, rules and scripts as the site's.
    """
    presets = list(measured.compare(compared()))
    known = measured.everything(support.ROOT)
    known["the_race"] = [p for p in known["the_race"] if p["page"] != "Compare"] + presets
    with Tab(browser, site, reduced_motion="reduce") as tab:
        text = measured.script(known)
        tab.page.route("**/measured.js", lambda route: route.fulfill(body=text))
        tab.open("play/the-race.html")
        for preset in presets:
            button = tab.page.locator("[data-i]", has_text=f"Compare: {preset['name']}")
            button.click()
            tab.ready()
            assert button.get_attribute("aria-pressed") == "true"
            assert tab.page.inner_text(".said").startswith("Compare measured the seconds")
            last = tab.page.locator(".play tbody tr td:last-child").all_inner_texts()
            assert sorted(filter(None, last)) == sorted(preset["rows"].values())
    tables = examples.load(COMPARE / "tables.py")
    folder = tmp_path / "source" / "Measurements" / "Compare"
    folder.mkdir(parents=True)
    page = tables.page(compared(), {"8 workers, CV 0.1": list(ARRIVING)}, "")
    (folder / "index.md").write_text(f"# Compare\n\n{page}\n")
    (tmp_path / "source" / "index.md").write_text(
        "# A\n\n```{toctree}\nMeasurements/Compare/index\n```\n"
    )
    (tmp_path / "conf.py").write_text(MINIATURE.format(site=str(SITE)))
    python = support.ROOT / ".venv.site" / "bin" / "python"
    command = [python, "-m", "sphinx", "-q", "-b", "html", "-c", tmp_path, tmp_path / "source"]
    subprocess.run([*command, tmp_path / "html"], check=True, timeout=100)
    with Tab(browser, tmp_path / "html") as tab:
        tab.open("Measurements/Compare/index.html")
        assert tab.page.locator("table.sortable").count() == 1
        soon, never = ["HogWild", "Bounded-Staleness"], ["Non-Distributed-Setup"]
        orders = {  # of the rows, by their medians; DynSGD has none
            "seconds to 97%": [soon, [*never, "Synchronous-SGD", "Local-SGD"]],
            "test loss": [soon, [*never, "Local-SGD"], ["Synchronous-SGD"]],
        }
        for name, groups in orders.items():
            tab.open("Measurements/Compare/index.html")
            for up in (True, False):
                tab.page.locator("th", has_text=name).locator("button").click()
                rows = tab.page.locator(".sortable tbody td:first-child").all_inner_texts()
                if not up:
                    groups = [soon[::-1], *groups[1:]][::-1]
                assert rows == [*sum(groups, []), "DynSGD"], (name, up)
