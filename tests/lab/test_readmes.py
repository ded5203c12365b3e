"""The README files: generated parts up to date, links that lead somewhere, commands that exist."""

import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import sys

import engines
import equations
import pytest
import run_files
import support
import tfrun
import yaml
from lab import digests, docstrings, example_status, examples, reading_order, regions
from lab.drawings import diagrams
from lab.measure import provenance, results, session_results
from lab.pages import (
    algorithm,
    flags,
    front_page,
    measurements,
    mistakes,
    papers,
    picture_digests,
    readmes,
)
from PIL import Image


def test_generated_parts_are_up_to_date(request):
    parts = 0
    for path in readmes.files():
        parts += len(readmes.PART.findall(path.read_text()))
        assert readmes.updated_text(path) == path.read_text(), (
            f"python lab/pages/readmes.py --fix: {path}"
        )
        if path not in drafts(request):
            assert not re.search("@@[A-Z]+@@", path.read_text()), f"{path} is not finished"
        # After </details> Markdown begins again at an empty line.
        assert "</details>\n<!-- end -->\n\n" in path.read_text() + "\n" or (
            "</details>\n<!-- end -->" not in path.read_text()
        ), f"an empty line after a folded part of {path}"
    assert parts >= 10
    there = support.launchers() + support.engines()
    there += [
        path for path in examples.tracked_files("README.md") if path.parents[1] == engines.FOLDER
    ]
    named = {path.parent.relative_to(support.ROOT).as_posix() for path in there}
    assert set(reading_order.names()) == named, "docs/reading-order.txt: name every example"


def awaiting(request):
    """Returns the examples that are accepted, and not measured yet; in the tier nightly none."""
    return [] if request.config.getoption("--require-needs") else example_status.awaiting()


def drafts(request):
    """Returns the pages, drawings and figures of such examples, which are not finished."""
    names = awaiting(request)
    return [
        *(support.ROOT / name / "README.md" for name in names),
        *map(example_status.drawing, names),
        *map(example_status.figure, names),
    ]


def test_nothing_is_left_to_write(request):
    """Catches what lab/new_example.py wants to be written, in whatever file it has marked it."""
    unfinished = set(example_status.unfinished_files()) - set(drafts(request))
    marked = sorted(map(examples.shown, unfinished))
    assert not marked, "write what {} asks for in {}".format(example_status.TODO, ", ".join(marked))


def result_files():
    """Returns (a run.sh, its results) of all examples that git knows, in whatever folder."""
    files, scripts = [], examples.scripts()
    for path in examples.tracked_files("results*.json"):
        launcher = path.with_name(path.stem.replace("results", "run") + ".sh")
        if launcher.exists() and examples.script_of(launcher) in scripts:
            files.append((launcher, path))
    return files


def test_results_are_of_the_example_that_shows_them(request):
    """Catches numbers of another example, or of a script that has changed since."""
    files = result_files()
    for launcher, path in files:
        provenance.check(examples.read_json(path), launcher)
    measured = [provenance.argument_of(launcher) for launcher, _ in files]
    measured.extend(awaiting(request))
    missing = " ".join(name for name in provenance.measured_examples() if name not in measured)
    assert not missing, f"no results: run python lab/measure/results.py {missing}"
    for path in examples.tracked_files("*_digests.json"):
        source = path.with_name(path.name.replace("_digests", ""))
        for name, runs in examples.read_json(source).items():
            provenance.check_compared(name, runs, source)


@pytest.mark.parametrize(
    "script",
    support.some_in_core(examples.scripts(), ["hogwild", "ring_allreduce"]),
    ids=lambda path: path.stem,
)
def test_each_planted_mistake_makes_results_stale(script):
    """Catches a region that is the experiment, and is taken for plumbing."""
    before = digests.example_digest(script)
    for name, text in support.changed(script, equations.of(script).MISTAKES).items():
        assert digests.digest_of_text(text) != before, name


@pytest.mark.parametrize(
    "line, other",
    [
        ('self.rank = self.index + jobs.count("chief")', "self.rank = 0"),
        ("np.asarray_chkfinite(w)", "np.zeros_like(w)"),
        ("in zip(variables, values):", "in zip(variables, values[::-1]):"),
        ('("checkpoint-steps", 500,', '("checkpoint-steps", 50,'),
    ],
    ids=[
        "all draw the rows of rank 0",
        "w begins with zeros",
        "a vector begins with another's values",
        "another default",
    ],
)
def test_what_chooses_rows_or_the_first_values_is_no_plumbing(line, other):
    """Catches a region that finds tasks or cuts w, and decides what is trained besides."""
    script = examples.main_script("HogWild")
    text = examples.replaced(script, [(line, other)])
    assert digests.digest_of_text(text) != digests.example_digest(script)


def test_words_leave_a_picture_as_it_is(tmp_path):
    """Catches a docstring or a comment that makes pictures stale, and code that does not."""
    code = support.ROOT / "tfrun" / "pictures" / "timeline.py"
    path = tmp_path / "timeline.py"
    path.write_text(code.read_text())
    before = picture_digests.code_digest([path])
    path.write_text(code.read_text().replace('"""', '"""Words: ', 1) + "# the end\n")
    assert picture_digests.code_digest([path]) == before
    path.write_text(code.read_text() + "end = 1\n")
    assert picture_digests.code_digest([path]) != before


def test_new_results_name_their_example(monkeypatch):
    """Of runs that are not made: what results.py writes can be shown on that page only."""

    def run(command, folder, **_):
        (pathlib.Path(folder) / "result.json").write_text('{"versions": {}}')
        return ""

    monkeypatch.setattr(results, "run", run)
    monkeypatch.setattr(results, "summarize_run", lambda directory, seconds: {})
    monkeypatch.setattr(results, "keep_pictures", lambda *_: None)
    launcher, other = (support.ROOT / name / "run.sh" for name in ("HogWild", "DynSGD"))
    measured = results.measure(launcher, 3, anyway=True)
    provenance.check(measured, launcher)
    assert len(measured["runs"]) == 3
    with pytest.raises(examples.ToolError, match="HogWild's results.json is shown on DynSGD's"):
        provenance.check(measured, other)


def test_new_pictures_change_no_number(tmp_path, monkeypatch):
    """Catches results.py --pictures that keeps the numbers of its one run, or its lines."""
    launcher, copy = support.ROOT / "HogWild" / "run.sh", tmp_path / "results.json"
    known = examples.read_json(provenance.results_of(launcher))
    copy.write_text(json.dumps(known))
    monkeypatch.setattr(provenance, "results_of", lambda launcher: copy)
    monkeypatch.setattr(results, "measure", lambda *_: {"runs": [], "output": ["a line"]})
    results.draw_again(launcher, anyway=True)
    assert json.loads(copy.read_text()) == known


def test_foreign_and_outdated_results_are_found(tmp_path):
    """In a copy of HogWild: results of another folder, and a script that has one line more."""
    folder = tmp_path / "HogWild"
    shutil.copytree(support.ROOT / "HogWild", folder)
    launcher, script = folder / "run.sh", folder / "hogwild.py"
    measured = json.loads((folder / "results.json").read_text())
    assert measured["example"] == "HogWild"
    with pytest.raises(examples.ToolError, match="^HogWild's results.json is shown on .*'s page: "):
        provenance.check(measured, launcher)
    # As if it were measured here.
    measured |= {"example": examples.shown(folder), "digest": digests.example_digest(script)}
    provenance.check(measured, launcher)
    script.write_text(script.read_text() + "    MORE = 1\n")
    with pytest.raises(examples.ToolError, match="outdated.*python lab/measure/results.py"):
        provenance.check(measured, launcher)


# A script of one line for each kind of code.
SMALL = """\
'Words of the script.'
import time
RATE = 0.1
def update(w, g):
    'Words of the algorithm.'
    # A comment.
    return w - RATE * g
# region: problem
ROWS = 100
# endregion: problem
# From here to the end: the same text
# region: flags
DEFAULT = 1
# region: transport
send(1)
# region: train
def test(w):
    return w - 1
if __name__ == '__main__':
    update(1, 2)
"""


@pytest.mark.parametrize(
    "old, new, outdated",
    [
        ("Words of the script", "Other words of the script", False),
        ("Words of the algorithm", "Other words of it", False),
        ("# A comment.", "# Another comment.", False),
        ("import time", "import types", False),
        ("DEFAULT = 1", "DEFAULT = 2", True),
        ("send(1)", "send(1, 2)", False),
        ("RATE = 0.1", "RATE = 0.2", True),
        ("RATE * g", "g", True),
        ("ROWS = 100", "ROWS = 101", True),
        ("w - 1", "w + 1", True),
    ],
)
def test_what_makes_results_outdated(old, new, outdated):
    """Catches words, an import or a region of the plumbing that do, and code that does not."""
    assert SMALL.count(old) == 1
    changed = digests.digest_of_text(SMALL.replace(old, new))
    assert (changed != digests.digest_of_text(SMALL)) == outdated


def test_a_region_is_plumbing_or_the_experiment():
    """Catches a region of the experiment that results do not depend on, or the other way round."""
    script = examples.main_script("HogWild")
    text, outdated = script.read_text(), set()
    for name, region in regions.regions(script).items():
        longer = text.replace(region, f"{region}\nMORE = 1")
        assert longer != text
        if digests.digest_of_text(longer) != digests.digest_of_text(text):
            outdated.add(name)
    experiment = {"problem", "start", "tasks", "parts", "serve", "call", "network", "batches"}
    experiment |= {"checkpoint", "facts", "flags", "train"}
    assert outdated == experiment


def test_foreign_numbers_of_a_measurement_are_found():
    """Catches the runs of one example that a measurement shows as those of another."""
    runs = [{"example": "HogWild"}]
    with pytest.raises(examples.ToolError, match="shows HogWild's numbers as digits: DynSGD's"):
        provenance.check_compared("digits: DynSGD", {"runs": runs}, measurements.COMPARE)


def test_a_page_shows_its_rows_of_compare(tmp_path, monkeypatch):
    """Catches: another example's row, one of another script, a task that is left out, no word of
    an example that is not measured."""
    run = {"reached": 2.5, "first": False, "loss": 0.0625}
    rows = {
        f"{task}: {name}": {
            **{"setting": "--learning-rate 0.2", "seconds": 6, "target": ["accuracy", 0.97]},
            **{"edge": False, "tries": [1] * 20, "runs": [{**run, "reached": at}] * 5},
        }
        for task, name, at in (
            *((task, "DynSGD", 1.5) for task in measurements.IN_COMPARE),
            *((task, "HogWild", 2.5) for task in measurements.IN_COMPARE),
        )
    }
    path = tmp_path / "results.json"
    known = {"HogWild": digests.example_digest(support.ROOT / "HogWild" / "hogwild.py")}
    (tmp_path / "results_digests.json").write_text(json.dumps(known))
    shutil.copy(measurements.COMPARE.with_name("tables.py"), tmp_path)
    monkeypatch.syspath_prepend(measurements.COMPARE.parent)  # what it imports
    path.write_text(json.dumps(rows))
    monkeypatch.setattr(measurements, "COMPARE", path)
    lines = measurements.compare(support.ROOT / "HogWild", None).splitlines()
    assert len(lines) == 1 + len(measurements.IN_COMPARE) and "5 runs of 6 s" in lines[0]
    for line, words in zip(lines[1:], measurements.IN_COMPARE.values()):
        assert line == (
            f"- {words}, lr 0.2: seconds to 97%: 2.50 (2.50–2.50); test loss 0.062 (0.062–0.062); "
            "20 runs of tuning"
        )
    with pytest.raises(examples.ToolError, match="script of DynSGD has changed"):
        measurements.compare(support.ROOT / "DynSGD", None)
    assert "has not measured" in measurements.compare(support.ROOT / "SAGN", None)


def test_results_of_an_earlier_script_say_so():
    """Catches: another script's results that pass for those of before; and no word of their commit.

    It goes with lab/measure/session_results.py.
    """
    for name, digest in session_results.DIGESTS.items():
        today = digests.example_digest(examples.main_script(name))
        assert session_results.is_session_result(name, digest) == (digest != today)
        assert not session_results.is_session_result(name, today)
        assert not session_results.is_session_result(name, "0" * 16)
    for digest in (session_results.DIGESTS["HogWild"], None):
        assert not session_results.is_session_result("DynSGD", digest)
    for path in session_results.TABLES:
        path = support.ROOT / path
        assert "session script of commit 73228d0e" in measurements.text(path.parent, path.name)
    other = support.ROOT / "Measurements" / "Packing"
    assert "session script" not in measurements.text(other, "table.txt")


def test_links_lead_somewhere(request):
    checked = 0
    to_be_drawn = drafts(request)  # its pictures come with its results
    for path in readmes.files():
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", path.read_text()):
            # GitHub takes "../../actions" as its own page of the repository.
            if "://" not in target and not target.startswith("../../actions/"):
                checked += 1
                linked = path.parent / target if target else path
                if path in to_be_drawn and linked.suffix in (".png", ".svg"):
                    continue
                assert linked.exists(), f"{path}: {target}"
                page = linked / "README.md" if linked.is_dir() else linked
                if anchor and page.suffix == ".md":
                    assert anchor in anchors(page), f"{path}: {target}#{anchor}"
    assert checked >= 20


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_diagrams_are_up_to_date(request):
    """Catches a picture that was changed by hand, or by code that drew it otherwise then."""
    to_be_drawn = drafts(request)
    for name, draw in diagrams.DRAWN.items():
        if diagrams.FIGURES / name in to_be_drawn:
            continue
        assert (diagrams.FIGURES / name).read_text() == draw(), (
            "python lab/drawings/diagrams.py --fix"
        )


def test_pictures_are_of_todays_code_and_results():
    """Catches a PNG file that other code drew, or that shows other results than the committed."""
    digests = picture_digests.current_digests()
    assert picture_digests.noted_digests() == digests, "see lab/pages/picture_digests.py"
    pictures = {}
    for path, (picture, _) in digests.items():
        assert picture not in pictures, f"{path} is a copy of {pictures[picture]}"
        pictures[picture] = path
    results = {picture_digests.digest(path) for path in examples.tracked_files("*.json")}
    for path in examples.tracked_files("*.png"):
        source = Image.open(path).text.get("Drawn from")
        assert source is None or source in results, f"{path} shows other results"


CURVES = [
    path
    for path in examples.tracked_files("*/curves.png")
    if path.with_name("results.json").exists()
]


@pytest.mark.parametrize("path", CURVES, ids=lambda path: path.parent.name)
def test_curves_are_of_the_first_run_below_them(path):
    """Catches a picture of another run than those of the numbers below it, such as a slow one."""
    first = examples.read_json(path.with_name("results.json"))["runs"][0]
    _, work = Image.open(path).text["Title"].split("\n")
    updates, seconds = re.fullmatch(r"([\d,]+) updates on \w+ in ([\d.]+) s", work).groups()
    assert int(updates.replace(",", "")) == first["updates"]
    assert float(seconds) == pytest.approx(first["training_seconds"], abs=0.051)


@pytest.mark.parametrize("name", reading_order.examples())
def test_a_page_has_its_sections(name):
    """In their order; with a figure, answers, costs, and all that is generated.

    A page of a further algorithm has no notebook.
    """
    page = (support.ROOT / name / "README.md").read_text()
    parts = re.split(r"(?m)^## (.+)\n", page)
    sections = dict(zip(parts[1::2], parts[2::2]))
    assert [title for title in sections if title in readmes.SECTIONS] == list(readmes.SECTIONS)
    assert re.search(r"!\[[^\]]{20,}\]\(\S+\.svg\)", parts[0] + sections["The algorithm"])
    assert re.search(r"(?m)^\| ", sections["When to use it"])
    assert "docs/costs.md)" in sections["When to use it"]
    assert "<!-- generated: flags" in sections["Run it"]
    assert "<!-- generated: result" in sections["Result"]
    assert sections["Two things to try"].count("<details>") == 2
    behind = sections["Behind it"]
    assert "<!-- generated: tests" in behind and "<!-- generated: papers" in behind
    assert name.startswith(examples.FURTHER) or ".ipynb)" in behind


def test_the_costs_of_each_example_are_in_the_table():
    """Catches an example that the common table of bytes, waiting, staleness and memory lacks."""
    table = (support.ROOT / "docs" / "costs.md").read_text()
    linked = re.findall(r"(?m)^\|[^|]*\]\(\.\./([\w/-]+)/\)", table)
    assert sorted(linked) == sorted(reading_order.examples())


def test_the_papers_of_the_pages():
    """Catches a paper that no page names, and one that a page names twice."""
    named = [key for path in readmes.files() for key in papers.keys_of(path.read_text())]
    assert set(named) == set(papers.all_papers())
    for path in readmes.files():
        keys = papers.keys_of(path.read_text())
        assert len(keys) == len(set(keys)), path


def test_planted_mistakes_are_counted_as_they_are_made():
    """Catches MISTAKES that a file makes in another way than the pages count, from its text."""
    for script in examples.scripts():
        counts = {fails: len(named) for fails, named in equations.of(script).MISTAKES.items()}
        assert mistakes.count_mistakes(equations.path_of(script)) == counts, script


def test_a_long_difference_is_not_shown():
    """Of algorithm() alone: what changes in a few lines, and all of it where that is as short."""
    shown = algorithm.diff(support.ROOT / "ADAG", "DOWNPOUR-Easy")
    assert "\n```diff\n" in shown and "def algorithm" not in shown and "def load_data" not in shown
    assert "/ flags.local_steps" in shown and "regions.py --diff ../DOWNPOUR-Easy/" in shown
    whole = algorithm.diff(support.ROOT / "HogWild", "Ring-AllReduce")
    assert (
        "\n```python\ndef server(" in whole
        and "\n\ndef update(" in whole
        and "\n```diff" not in whole
    )


def test_samples_are_of_the_first_run(request):
    """Catches a sample output, or results, that another run has left."""
    unmeasured = drafts(request)
    for name in reading_order.examples():
        if support.ROOT / name / "README.md" in unmeasured:
            continue
        measured = examples.read_json(support.ROOT / name / "results.json")
        first, output = measured["runs"][0], "\n".join(measured["output"])
        assert len(measured["runs"]) >= 3, name
        assert "test accuracy %.1f%%" % (100 * first["test_accuracy"]) in output, name
        assert "update %d of %d " % (first["updates"], first["updates"]) in output, name


def test_facts_of_a_run(tmp_path):
    """What lab/measure/results.py takes from a run: medians over all pushes, and mean bytes."""
    for worker, rows in enumerate((((1, 10, 0.5), (2, 30, 0.1)), ((3, 80, 0.2),))):
        lines = [
            run_files.push(step, step, bytes=size, wait_seconds=wait) for step, size, wait in rows
        ]
        test = run_files.test(9, 3, 0.9, 0.25)  # it moves no bytes
        run_files.metrics(tmp_path, f"worker-{worker}", *lines, test)
    result = {"wall_seconds": 2.0, "steps": 3, "staleness_mean": 0.5, "test_loss": 0.25}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert results.summarize_run(tmp_path, 7.0) == {
        **{"test_loss": 0.25, "seconds": 7.0, "training_seconds": 2.0, "updates": 3},
        **{"staleness": 0.5, "bytes": 40.0, "wait_seconds": 0.2},
    }


PROSE = r"(?s)<!-- generated.*?<!-- end -->|```.*?```|`[^`]*`|\]\([^)]*\)"  # is none of these
NUMBER = r"(?<![\w.])\d+\.\d+|\d+(?= ?(?:%|×|ms\b))"  # with a point, or with such a unit


def test_numbers_in_prose_are_those_of_the_results():
    """Catches a sentence that keeps its number when the measurement was made again.

    Of the measurements' pages, and of the section Result of the others: each number stands in what
    is generated on the same page, in a table to which it links, or in a mark, which
    test_verdicts.py holds to the results.
    """
    checked = 0
    for name in reading_order.names():
        page = (support.ROOT / name / "README.md").read_text()
        results = "".join(part[0] for part in readmes.PART.finditer(page))
        results += "".join(re.findall(r"<!-- sooner to .*? -->", page))
        for table in re.findall(r"\]\(([\w-]+\.txt)\)", page):
            results += (support.ROOT / name / table).read_text()
        if not name.startswith("Measurements"):
            page = page.partition("\n## Result\n")[2].partition("\n## ")[0]
        page = page.partition(GUIDE)[0]  # the next test's
        for number in re.findall(NUMBER, re.sub(PROSE, "", page)):
            checked += 1
            assert number in results, f"{name}: {number}"
    assert checked > 3


GUIDE = "\n## Which one to use, and why\n"  # a table of advice, on one page
# Numbers that follow from an equation, and the test that computes them.
COMPUTED = {"DynSGD": "test_the_mean_step_of_dynsgd"}


def test_numbers_in_advice_stand_where_it_links_to():
    """Catches advice in "When to use it" that keeps a number of an older measurement.

    Each number stands in what is generated on the page or on one to which its paragraph links, in a
    notebook to which it links, or comes from a paper, as the paragraph then says.
    """
    checked = 0
    for name in [*reading_order.examples(), "Measurements/Compare"]:
        folder = support.ROOT / name
        page = (folder / "README.md").read_text()
        heading = "\n## When to use it\n" if GUIDE not in page else GUIDE
        advice = page.partition(heading)[2].partition("\n## ")[0]
        for paragraph in re.split(r"\n(?=- |\*\*|\n|\| )", advice):
            if name in COMPUTED or re.search(r"from (the|its) (papers?|report)", paragraph):
                continue
            texts = [page]
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", paragraph):
                path = folder / link
                texts.append((path / "README.md" if path.is_dir() else path).read_text())
            known = "".join(part[0] for text in texts for part in readmes.PART.finditer(text))
            known += "".join(text for text in texts if text.startswith("{"))
            for number in re.findall(NUMBER, re.sub(PROSE, "", paragraph)):
                checked += 1
                assert number in known, f"{name}: {number}"
    assert checked > 15
    text = (support.ROOT / "tests" / "equations" / "test_identities.py").read_text()
    assert all(f"def {test}(" in text for test in COMPUTED.values())


def test_the_numbers_of_the_front_page():
    """Catches a sentence whose number is not generated, and one that is not of the results."""
    page = (support.ROOT / "README.md").read_text()
    assert all(re.search(words, page) for words in front_page.NUMBERS)
    section = page.partition("\n## What was found\n")[2].partition("\n## ")[0]
    measured = (support.ROOT / "Measurements" / "Scaling" / "table.txt").read_text()
    measured += (support.ROOT / "Measurements" / "Same-Staleness" / "table.txt").read_text()
    measured += (support.ROOT / "Measurements" / "Compare" / "table.txt").read_text()
    numbers = re.findall(r"\d\.\d{2,}", section)
    assert numbers and all(number in measured for number in numbers), numbers


def test_the_ratios_of_the_front_page():
    """Catches a ratio of Slow-Network that is none of its results, or stands in another place."""
    page = " ".join((support.ROOT / "README.md").read_text().split())
    path = support.ROOT / "Measurements" / "Slow-Network" / "results.json"
    results = json.loads(path.read_text())

    def ratio(link, one, other):
        rates = [
            statistics.median(
                run["batches_per_second"] for run in results[f"69 KB, {link}: {name}"]
            )
            for name in (one, other)
        ]
        return f"{rates[0] / rates[1]:.1f}"

    for end, words in (
        ("", "process {} and {} times HogWild's mini-batches with one ps"),
        (", 4 workers", "four {} and {} times"),
    ):
        links = ("10 Mbit/s", "100 Mbit/s")
        due = [ratio(link, f"Ring-AllReduce{end}", f"HogWild{end}") for link in links]
        assert words.format(*due) in page, due
    # n workers send n gradients to a ps; in a ring each sends 2 (n - 1) / n of one.
    due = " and ".join(f"{n * n / (2 * (n - 1)):.2g}" for n in (2, 4))
    assert f"(by bytes {due})" in page, due


def test_commands_exist():
    """In each block of code: the scripts of bash and python are there, and so are their flags."""
    checked = 0
    # The page of errors speaks of the run.sh that failed, whichever it is.
    for path in [path for path in readmes.files() if path.name != "troubleshooting.md"]:
        folder = support.ROOT if path.parent.name in ("docs", ".github") else path.parent
        for block in re.findall(r"^```\w*\n(.*?)^```$|`([^`\n]+)`", path.read_text(), re.M | re.S):
            for line in "".join(block).replace("\\\n", " ").splitlines():
                root = os.path.relpath(support.ROOT, folder)
                if module := re.search(r"python -m ([\w.]+)", line):
                    path_of_module = f"{root}/{module[1].replace('.', '/')}/__main__.py"
                    line = line.replace(f"-m {module[1]}", path_of_module)
                match = re.match(r"(?:[A-Z_]+=\S+ )*(?:bash|python) (\S+)(.*)", line)
                # Neither what a reader is to make, nor a program that stands in the line itself.
                if not match or match[1].startswith(("My-Algorithm", "My-Model", "-c")):
                    continue
                checked += 1
                launcher = folder / match[1]
                assert launcher.is_file(), f"{path}: {line}"
                script = (
                    examples.script_of(launcher)
                    if launcher.name.startswith("run") and launcher.parent.name != "tests"
                    else launcher
                )
                words = shlex.split(match[2], comments=True)
                texts = [script.read_text(), '"--help"']
                if "arguments.Parser(" in texts[0]:
                    texts.append((support.ROOT / "lab" / "measure" / "arguments.py").read_text())
                if path.parent.name in ("Spark-Cluster", "Ray"):  # run.sh starts any script
                    own = [*launcher.parent.glob("*.py"), launcher.parents[1] / "launching.py"]
                    texts.extend(program.read_text() for program in own)
                    texts.append(examples.main_script("HogWild").read_text())
                if path.parent.name == "Your-Model":  # run.sh starts any example
                    there = [main for main in examples.scripts() if main.parent.name in words]
                    texts += [main.read_text() for main in there]
                for word in words:
                    if word.endswith(".py") and (folder / word).exists():
                        texts.append((folder / word).read_text())
                for word in words:
                    text = "".join(texts)
                    if " --" in word:  # an example with its flags
                        text = docstrings.script(support.ROOT / word.split()[0]).read_text()
                    for flag in re.findall(r"(?:^|\s)(--[\w-]+)", word):
                        # As a parser takes it, or in a list of (name, default, help).
                        known = f'"{flag}"' in text or f'("{flag[2:]}", ' in text
                        assert known, f"{path}: {line}"
    assert checked >= 15


def test_the_citation_is_of_this_version():
    """CITATION.cff has what its schema 1.2.0 requires, and the version of tfrun.

    Catches a release whose list of changes, citation and archive tell of different ones, and a
    version in development with the date of the release before it.
    """
    citation = yaml.safe_load((support.ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert all(author["name"] for author in citation["authors"])
    project = (support.ROOT / "pyproject.toml").read_text()
    assert re.search(f'(?m)^license = "{citation["license"]}"$', project)
    assert citation["version"] == tfrun.__version__
    changes = (support.ROOT / "CHANGELOG.md").read_text()
    newest = re.search("(?m)^## (.+)$", changes)[1]
    date = "not released"
    if not re.search(r"\.dev\d+$", citation["version"]):
        date = citation["date-released"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert newest == "{}, {}".format(citation["version"], date)
    assert citation.get("date-released", "not released") == date
    archive = examples.read_json(support.ROOT / ".zenodo.json")
    assert archive["upload_type"] == "software" and archive["description"]
    assert archive["creators"] == citation["authors"], "Zenodo and GitHub name the same people"
    assert "version" not in archive, "Zenodo takes that of the tag"
    for field in "title", "license":
        assert archive[field] == citation[field], field


PLACEHOLDER = "<the address of this page>"


def test_the_address_and_the_badges():
    """Catches a clone line or badge of another repository, Python or licence than the real one.

    Until CITATION.cff has a line `repository-code: ADDRESS`, the front page has PLACEHOLDER, which
    its reader replaces. The badge of CI is that of the repository in which the page stands.
    """
    page = (support.ROOT / "README.md").read_text()
    citation = yaml.safe_load((support.ROOT / "CITATION.cff").read_text())
    address = citation.get("repository-code", PLACEHOLDER)
    first = page.partition("```\n")[2].partition("```")[0].splitlines()
    assert first[0] == f"git clone --depth 1 {address} reference && cd reference", first
    assert len(first) == 2 and first[1] == "bash HogWild/run.sh"
    ci, python, licence = re.findall(r"(?m)^\[!\[[^]]+\]\((\S+)\)\]\((\S+)\)$", page)
    workflow = "../../actions/workflows/ci.yml"
    assert ci == (f"{workflow}/badge.svg", workflow)
    assert (support.ROOT / ".github" / "workflows" / "ci.yml").is_file()
    project = (support.ROOT / "pyproject.toml").read_text()
    low, end = re.search(r'requires-python = ">=(3\.\d+),<3\.(\d+)"', project).groups()
    assert f"Python-{low}_to_3.{int(end) - 1}-" in python[0]
    assert f"licence-{citation['license']}-" in licence[0] and licence[1] == "LICENSE"
    if address != PLACEHOLDER:
        assert PLACEHOLDER not in page


def test_issue_forms_ask_for_what_is_needed():
    """Each is a form as GitHub reads it; a bug's asks for command, version, log and explanation."""
    forms = support.ROOT / ".github" / "ISSUE_TEMPLATE"
    asked = {}
    for path in forms.glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"], path
        questions = [part for part in form["body"] if part["type"] == "textarea"]
        assert all(question["attributes"]["label"] for question in questions), path
        asked[path.stem] = [question["id"] for question in questions]
    wanted = {"bug": ["command", "version", "log", "explanation"], "question": ["question"]}
    assert asked == wanted


def test_flags_in_the_table_are_argparse_s():
    """The generated table of flags, which is read from the text, is what --help says."""
    script = docstrings.script(support.ROOT / "HogWild")
    help_text = " ".join(
        support.python(
            "import runpy, sys; sys.argv[:] = [sys.argv[1], '--help']; "
            "runpy.run_path(sys.argv[0], run_name='__main__')",
            str(script),
        ).stdout.split()
    )
    rows = re.findall(
        r"^\| `(--\S+)` \| (\S+) \| (.*) \|$", flags.shared_flags(None, None), re.MULTILINE
    )
    assert len(rows) >= 6
    for flag, default, text in rows:
        assert flag in help_text and f"{text} ({default})" in help_text


def test_files_are_small():
    """Catches a large file, which every clone would load for ever."""
    for path in examples.tracked_files("*"):
        assert path.stat().st_size < 500 * 1024, f"{path} is larger than 500 KB"


def test_style():
    """ruff and shellcheck have nothing to say."""
    tools = os.path.dirname(sys.executable)
    python = examples.tracked_files("*.py")
    shell = [*examples.tracked_files("*.sh"), *examples.tracked_files("*.sbatch")]
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", *python],
        ["shellcheck", "-x", "-e", "SC1091", *shell, support.ROOT / ".ci" / "run"],
    ):
        command[0] = os.path.join(tools, command[0])
        done = support.run_to_end(*command)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_types(tmp_path):
    """mypy has nothing to say about what pyproject.toml names."""
    mypy = os.path.join(os.path.dirname(sys.executable), "mypy")
    done = support.run_to_end(mypy, "--cache-dir", tmp_path, cwd=support.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
