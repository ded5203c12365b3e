"""Writes the parts of the README files that follow from the code.

    python lab/readmes.py          check; exits with 1 and the names of what is out of date
    python lab/readmes.py --fix    write them

Such a part stands between <!-- generated: NAME --> and <!-- end -->; NAME is a function in PARTS.
docs/reading-order.txt has the examples in their order, docs/papers.txt the papers. Numbers are
shown only on the page of the example that they were measured on. Those of its own page need the
script that was measured; those of other measurements may be of the script of measured_before.py,
and then say so.
Of the glossary only the links are generated: its words stand on the page.
"""

import ast
import functools
import json
import os
import re
import statistics
import sys
import textwrap
from typing import Any

from tfrun import known_errors

from lab import drivers, idle, measured_before, pages, reading_order, regions
from lab.examples import (
    ALGORITHM,
    PARENTS,
    ROOT,
    ToolError,
    example_digest,
    exit_code,
    has_sessions,
    load,
    main_script,
    parsed,
    read,
    script_of,
    scripts,
    session_form,
    shown,
    tracked,
)

PART = re.compile(r"(<!-- generated: (\w+)(?: ([^ ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)

SECTIONS = (  # of an example's page, below what it is and its result
    "The algorithm",
    "When to use it",
    "Run it",
    "Result",
    "Pitfalls",
    "Two things to try",
    "Behind it",
)
FURTHER = "Further-Algorithms/"


def script(folder):
    """The main script of a folder: the folder's name in snake case, or the one that has a kind."""
    named = main_script(folder)
    if named.exists():
        return named
    for path in sorted(folder.glob("*.py")):
        if field(path, "Kind"):
            return path
    raise ToolError(
        f"{shown(folder)} has no script: add {named.name}, or correct the folder's name"
    )


def docstring(path):
    text = ast.get_docstring(parsed(path))
    if text is None:
        raise ToolError(f"{shown(path)} has no docstring: begin the script with one")
    return text


def title(path):
    """Returns what the first line of a script's docstring says after the example's name."""
    name, colon, words = docstring(path).splitlines()[0].partition(": ")
    if not colon:
        raise ToolError(
            f"{shown(path)}: begin the docstring as `{path.parent.name}: what it shows`"
        )
    return words


def field(path, name):
    """What the docstring says after `name:`, also on indented lines below it, or an empty text."""
    match = re.search(rf"^{name}: +(.+(?:\n {{15}}\S.*)*)$", docstring(path), re.MULTILINE)
    return " ".join(match[1].split()) if match else ""


def read_json(path):
    """Returns what a JSON file holds. Raises ToolError if it is missing or none."""
    try:
        return json.loads(read(path))
    except json.JSONDecodeError as error:
        again = "get it back from git, or measure again"
        raise ToolError(f"{shown(path)}, line {error.lineno}, is not JSON: {again}") from None


METHODS = {"ClusterSpec": r"\.cluster_spec\("}  # what makes one without its name


def glossary(folder, _):
    """The terms of the classic API, each with a link to the first line of ours that uses it."""
    text = (folder / "GLOSSARY.md").read_text().partition("<!-- generated: glossary -->\n")[2]
    header, dashes, *rows = text.partition("\n<!-- end -->")[0].splitlines()
    lines = [header, dashes]
    for row in rows:  # a term, its words, and the link, which is written anew
        term, words = row.split("`")[1], row[:-2].rpartition(" |")[0]
        lines.append(f"{words} | {usage(term, folder)} |")
    return "\n".join(lines)


def usage(term, folder):
    """Links from a folder to the first line of an example, or the first notebook, with a term."""
    from lab import notebooks  # here, because it takes a second, and only this page needs it

    pattern = METHODS.get(term, rf"tf\.train\.{term}\b")
    # The terms are TensorFlow 1's: what is kept in it comes first.
    names = sorted(reading_order.names(), key=lambda name: not name.startswith("From-TensorFlow-1"))
    for name in names:
        for path in sorted((ROOT / name).glob("*.py")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if re.search(pattern, line.split("  #")[0]) and "(" in line:
                    return f"[{path.stem}]({os.path.relpath(path, folder)}#L{number})"
    for path in notebooks.sources():
        if re.search(rf"^[^#\n]*tf\.train\.{term}\(", path.read_text(), re.MULTILINE):
            link = os.path.relpath(path.with_suffix(".ipynb"), folder)
            return f"[{path.stem}]({link})"
    raise ValueError(f"neither a script nor a notebook uses {term}")


def errors(_, __):
    """The table of errors in tfrun/known_errors.py."""
    parts = []
    for symptom, entries in known_errors.GROUPS.items():
        parts.append(f"## {symptom}\n")
        for entry in entries:
            words = textwrap.fill(
                f"{entry.means} {entry.do}", 100, break_on_hyphens=False, break_long_words=False
            )
            ticks = "``" if "`" in entry.example else "`"
            parts.append(f"{ticks}{entry.example}{ticks}\\\n{words}\n")
    return "\n".join(parts)


PAPERS = ROOT / "docs" / "papers.txt"


@functools.cache
def all_papers():
    """Returns {key: (authors, year, title, link)} of docs/papers.txt. Raises ToolError."""
    papers_by_key = {}
    for number, line in enumerate(read(PAPERS).splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            fields = tuple(field.strip() for field in line.split("|"))
            if len(fields) != 5 or fields[0] in papers_by_key or not fields[4].startswith("http"):
                raise ToolError(
                    f"{shown(PAPERS)}, line {number}: write a key of its own, authors, year, title "
                    "and link, with | between them"
                )
            papers_by_key[fields[0]] = fields[1:]
    return papers_by_key


def keys_of(page):
    """Returns the keys of the papers that a page's text names, in its order."""
    return sum((keys.split(",") for keys in re.findall(r"generated: papers (\S+)", page)), [])


def papers(folder, keys):
    """The papers of a page as links: first author and year, or the title of another text."""
    parts = []
    for key in argument(folder, "papers", keys).split(","):
        if key not in all_papers():
            raise ToolError(f"{shown(folder)}: {shown(PAPERS)} has no line that begins with {key}")
        authors, year, title, link = all_papers()[key]
        words = f"{first_author(authors)} {year}" if year else title
        parts.append(f"[{words}]({link})")
    titles = os.path.relpath(PAPERS, folder)
    return f"**Papers** ([titles]({titles})): {', '.join(parts)}"


def first_author(authors):
    return authors.split(",")[0].removesuffix(" et al.")


def paper(path):
    """Returns the first author and the year of a script's paper, with its link.

    Of several papers of that author and year it is the one that the script's page names.
    """
    text = field(path, "Paper")
    match = re.match(r"(\w+).*?\b((?:19|20)\d\d)\b", text)
    if not match:
        return "" if text == "none" else text.partition(",")[0]
    for key in [*keys_of(read(path.with_name("README.md"))), *all_papers()]:
        authors, year, _, link = all_papers().get(key, ("", "", "", ""))
        if (first_author(authors), year) == match.groups():
            return f"[{match[1]} {year}]({link})"
    return f"{match[1]} {match[2]}"


def examples(_, __):
    """The examples in reading order: one table, and a line of links for each folded group."""
    rows, folded = [], []
    for group, names in reading_order.groups().items():
        paths = [script(ROOT / name) for name in names]
        links = [f"[{path.parent.name}]({name}/)" for path, name in zip(paths, names)]
        if group in reading_order.folded():
            folded.append(f"**{group}:** {', '.join(links)}")
            continue
        rows.append((f"**{group}**", "", ""))
        rows += [(link, title(path), paper(path)) for path, link in zip(paths, links)]
    return "\n\n".join([pages.table(["example", "what it shows", "paper"], rows), *folded])


def further(folder, _):
    """What each example in a folder of examples changes, in reading order, below its kind."""
    lines, kind = [], None
    for path in [script(ROOT / name) for name in reading_order.names()]:
        if path.parent.parent != folder:
            continue
        if field(path, "Kind") != kind:
            kind = field(path, "Kind")
            lines += ["", f"**{kind.capitalize()}**"]
        source, _, change = field(path, "Differs from").partition(": ")
        beside = folder / source.rpartition("/")[2]
        link = f"{beside.name}/" if beside.is_dir() else f"../{source}/"
        name = path.parent.name
        lines.append(f"- [{name}]({name}/) changes [{beside.name}]({link}): {change}")
    return "\n".join(lines[1:])


COMPARE = ROOT / "Measurements" / "Compare" / "results.json"
IN_COMPARE = {  # its tasks, as a page calls them
    "8 workers, CV 0.1": "steady times (CV 0.1)",
    "8 workers, CV 1": "varying times (CV 1)",
}


def compare(folder, _):
    """This example's results of Measurements/Compare at its best setting."""
    results, own = read_json(COMPARE) if COMPARE.exists() else {}, shown(folder)
    tables = load(COMPARE.with_name("tables.py"))
    link, lines = f"[Compare]({os.path.relpath(COMPARE.parent, folder)}/)", []
    for task, words in IN_COMPARE.items():
        result = results.get(f"{task}: {own}")
        if not result:
            continue
        check_compared(f"{task}: {own}", result, COMPARE)
        setting, seconds, loss = tables.compared(result)
        lines.append(
            f"- {words}, {setting}: seconds to {tables.target(result)}: {seconds}; test loss "
            f"{loss}; {len(result['tries'])} runs of tuning"
        )
        seeds, length = len(result["runs"]), result["seconds"]
    if not lines:
        return f"{link} has not measured this example by its present rules yet."
    head = f"{link}, eight workers, median (range) of {seeds} runs of {length:g} s"
    digests = read_json(COMPARE.with_name("results_digests.json"))
    if measured_before.is_measured_before(own, digests.get(own)):
        head += f", {measured_before.WORDS}"
    return "\n".join([f"{head}:", *lines])


LATE = ("8 workers, exponential", "4 workers, one slow")  # where pushes are late


def scaling(folder, _):
    """The losses of Measurements/Scaling for this example, where pushes are late."""
    path = ROOT / "Measurements" / "Scaling" / "results.json"
    lines = []
    for case, runs in read_json(path).items():
        workers, example = case.split(": ")
        if example != folder.name or not (workers.startswith(LATE) or "lr" in workers):
            continue
        check_compared(case, runs, path)
        losses = [run["test_loss"] for run in runs if run["test_loss"] is not None]
        words = [pages.spread(losses, "%.3f")] if losses else []
        if len(losses) < len(runs):
            words.append(f"{len(runs) - len(losses)} of {len(runs)} diverged")
        lines.append(
            f"- {workers}: test loss {'; '.join(words)}; staleness "
            f"{statistics.median(run['staleness_mean'] for run in runs):.2f}, at most "
            f"{max(run['staleness_max'] for run in runs):.0f}; "
            f"{statistics.median(run['late'] for run in runs):.0%} of pushes late"
        )
    link = os.path.relpath(path.parent, folder)
    return "\n".join([f"[Scaling]({link}/), median (range) of {len(runs)} seeds:", *lines])


def text(folder, name):
    """The table that a measurement has left as a file: in Markdown, or as it was printed."""
    path = folder / argument(folder, "text", name)
    table = read(path)
    in_markdown = table.startswith(("| ", "**", "<details>", "Measured: "))
    table = table.rstrip("\n") if in_markdown else f"```\n{table}```"
    if shown(path) in measured_before.TABLES:
        names = {name.split("/")[-1] for name in measured_before.DIGESTS}
        *others, last = sorted(n for n in names if re.search(rf"(?<![\w-]){n}\b", table)) or [
            "HogWild"
        ]
        named = f"{', '.join(others)} and {last} were" if others else f"{last} was"
        table += f"\n\n{named} measured with the {measured_before.WORDS}."
    return table


def links(folder, _):
    """Links to the previous and the next example in reading order."""
    name, names = folder.relative_to(ROOT), reading_order.names()
    if name.as_posix() not in names:
        raise ToolError(f"add {name.as_posix()} to docs/reading-order.txt, at its place")
    at, up = names.index(name.as_posix()), "../" * len(name.parts)
    parts = [f"Previous: [{other}]({up}{other}/)" for other in names[:at][-1:]]
    parts += [f"next: [{other}]({up}{other}/)" for other in names[at + 1 :][:1]]
    return ", ".join(parts)


LONG_DIFF = 60  # from so many lines on, a page shows algorithm() itself


def lines_of_algorithm(path):
    """Returns the lines of the functions that are a script's algorithm, without docstrings."""
    lines = read(path).splitlines()
    shown_lines: list[str] = []
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef) and node.name in ALGORITHM:
            first = node.body[0] if ast.get_docstring(node) is None else node.body[1]
            begin = first.lineno - 1
            while not lines[begin - 1].strip() or lines[begin - 1].lstrip().startswith("#"):
                begin -= 1
            head = lines[node.lineno - 1 : node.body[0].lineno - 1]
            body = "\n".join(lines[begin : node.end_lineno]).lstrip("\n").splitlines()
            shown_lines += ["", "", *head, *body] if shown_lines else [*head, *body]
    if not shown_lines:
        raise ToolError(f"{shown(path)} has no function {' or '.join(ALGORITHM)}")
    return shown_lines


def functions_of_algorithm(path):
    """Returns the names of these functions as a page says them."""
    named = [node.name for node in parsed(path).body if isinstance(node, ast.FunctionDef)]
    return " and ".join(f"`{name}()`" for name in named if name in ALGORITHM)


def algorithm(folder, _):
    """The functions that are the script's algorithm, folded."""
    path = script(folder)
    summary = f"{functions_of_algorithm(path)} of {path.name}"
    return unfolded(summary, "python", lines_of_algorithm(path))


def unfolded(summary, language, lines, note=""):
    """Returns a block of code that a reader unfolds, and a note below it."""
    code = "\n".join([f"```{language}", *lines, "```"])
    summary = re.sub(r"`(\w+\(\))`", r"<code>\1</code>", summary)
    return f"<details>\n<summary>{summary}</summary>\n\n{code}\n{note}\n</details>"


def diff(folder, neighbour):
    """What a script's algorithm changes in its neighbour's; all of it where that is no shorter.

    neighbour: a folder, or a script in one.
    """
    argument(folder, "diff", neighbour)
    own = script(folder)
    if has_sessions(own):
        neighbour = session_form(neighbour)
    other = ROOT / neighbour if neighbour.endswith(".py") else script(ROOT / neighbour)
    whole, before = lines_of_algorithm(own), lines_of_algorithm(other)
    lines = list(regions.unified(before, whole, other.name, own.name, n=0))[2:]
    changed = sum(line.startswith(("+", "-")) for line in lines)
    if changed >= LONG_DIFF or len(lines) > len(whole):
        return algorithm(folder, neighbour)
    tool, there = (os.path.relpath(path, folder) for path in (ROOT / "lab/regions.py", other))
    note = f"`python {tool} --diff {there} {own.name}` shows the rest.\n"
    summary = f"{functions_of_algorithm(own)}, compared with {other.name}: {changed} lines"
    return unfolded(summary, "diff", lines, note)


EQUATIONS = ROOT / "tests" / "equations"


def counted(mistakes):
    """Returns {what fails: how many mistakes} of the node of such a dict of dicts."""
    pairs = zip(mistakes.keys, mistakes.values)
    return {ast.literal_eval(fails): len(named.keys) for fails, named in pairs}


def planted(path):
    """Returns {what fails: how many mistakes} of MISTAKES in a file of tests/equations/."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MISTAKES":
            return counted(node.value)
    raise ToolError(f"{shown(path)} has no MISTAKES: add those that its test must catch")


FEW = 6  # examples that a test names at most, if it is not one of all


@functools.cache
def examples_of_tests():
    """Returns {a test of equations or examples: the scripts that it names}, where these are few."""
    named = {
        script: re.compile(rf'["/]{script.parent.name}["/\]]|\b{script.stem}\b')
        for script in scripts()
    }
    scripts_of_tests = {}
    for folder in (EQUATIONS, ROOT / "tests" / "examples"):
        for path in sorted(folder.glob("test_*.py")):
            text = read(path)
            names = {script for script, pattern in named.items() if pattern.search(text)}
            if len(names) <= FEW:
                scripts_of_tests[path] = names
    return scripts_of_tests


def tests(folder, _):
    """The mistakes that tests plant in the script, and the tests that name few other examples."""
    own = script(folder)
    path = EQUATIONS / f"{own.stem}.py"
    link = f"[{shown(path)}]({os.path.relpath(path, folder)})"
    number = sum(planted(path).values())
    fail = "mistakes that fail" if number > 1 else "mistake that fails"
    caught = f", and {number} planted {fail}" if number else ""
    others = [f"`{test.stem}`" for test, names in examples_of_tests().items() if own in names]
    more = f" More: {', '.join(others)}." if others else ""
    return f"**Tests:** {link} has the reference{caught}.{more}"


def flags(folder, _):
    """The flags that the script has beside HogWild's, or with another default; a link to those.

    Where more than one of HogWild's is missing all are shown. Each has its own `--steps`.
    """
    shared, rows = flag_rows(ROOT / SHARED_FLAGS), flag_rows(folder)
    link = os.path.relpath(ROOT / "docs" / "runs.md", folder) + "#flags"
    missing = [f" but {name}" for name, *_ in shared if name not in {row[0] for row in rows}]
    common = f"[Common flags]({link}){''.join(missing)}"
    if len(missing) > 1:
        own, common = rows, "Flags"
    else:
        own = [row for row in rows if row not in shared and row[0] != STEPS]
    lines = [f"- {name} ({default}): {meaning}" for name, default, meaning in own]
    head = f"{common}, and:" if own and common != "Flags" else f"{common}{':' if own else '.'}"
    return "\n".join([head, *lines])


def shared_flags(_, __):
    """The flags that most examples share, as a table."""
    rows = flag_rows(ROOT / SHARED_FLAGS)
    rows = [(flag, "its own" if flag == STEPS else default, text) for flag, default, text in rows]
    return pages.table(["flag", "default", "meaning"], rows)


SHARED_FLAGS = "HogWild"  # an example with no flags of its own
STEPS = "`--steps`"
FLAG = "(name, default, text)"  # of the loop in parse_flags()


def assigned(tree):
    """Returns {name: the node that a script assigns to it}, and FLAG: the list in parse_flags()."""
    constants: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts))
            constants.update({to.id: value for to, value in pairs if isinstance(to, ast.Name)})
        elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == "MORE_FLAGS":
            assert isinstance(node.value, (ast.List, ast.Tuple))
            constants["MORE_FLAGS"].elts += node.value.elts  # below, in the region of what reads it
        elif isinstance(node, ast.For) and ast.unparse(node.target) == FLAG:
            constants[FLAG] = node.iter
    return constants


def flag_entries(constants):
    """Yields the entries of the list in parse_flags(), and those of MORE_FLAGS in their place."""
    for entry in constants[FLAG].elts:
        if isinstance(entry, ast.Starred):
            yield from constants[ast.unparse(entry.value)].elts
        else:
            yield entry


def flag_rows(folder):
    """Returns [(flag, default, meaning)] of the list in parse_flags(), with the defaults above it.

    Raises ToolError where the list cannot be read.
    """
    constants = assigned(parsed(script(folder)))

    def value(node):
        return ast.literal_eval(constants[node.id] if isinstance(node, ast.Name) else node)

    rows = []
    try:
        for entry in flag_entries(constants):
            name, default, meaning = map(value, entry.elts)
            if default is not None:  # the script has no such flag
                rows.append((f"`--{name}`", default, meaning))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ToolError(
            f"{shown(script(folder))}: write each of MORE_FLAGS as (name, default, help), with a "
            "plain number or text as its default"
        ) from None
    return rows


NOT_MEASURED = "@@MEASURE@@"  # lab/results.py has to; a test fails while this is on a page
# What a page reports of its runs: a name in results.json, words, and how many of its unit.
REPORTED = {
    "test_accuracy": ("test accuracy {}% ({} to {})", "%.1f", 100),
    "test_loss": ("test loss {} ({} to {})", "%.3f", 1),
    "rate": ("{} updates per second ({} to {})", "%.0f", 1),
    "staleness": ("mean staleness {}", "%.2f", 1),
    "bytes": ("{} KB an update", "%.1f", 1e-3),
}


def measured_examples():
    """Returns what lab/results.py measures: folders of examples, and a run.sh of one."""
    more = ["From-TensorFlow-1/Synchronous-SGD-Optimizer", "Operations/Train-and-Evaluate"]
    return [*reading_order.examples(), *more]


def launcher_of(name):
    """Returns the run.sh that a folder, or its own path, names. Raises ToolError if none does."""
    path = ROOT / name
    launcher = path if path.suffix == ".sh" else path / "run.sh"
    if not launcher.is_file():
        raise ToolError(f"there is no {shown(launcher)}: name an example, or a run.sh of one")
    return launcher


def results_of(launcher):
    """Returns the file with the results of a run.sh: results.json, or results_supervisor.json."""
    return launcher.with_name(launcher.stem.replace("run", "results") + ".json")


def provenance(launcher):
    """Returns what results.json says of the example that was measured: its folder, its digest."""
    script = script_of(launcher)
    return {"example": shown(launcher.parent), "digest": example_digest(script)}


def check_provenance(measured, launcher):
    """Raises ToolError unless these results are of the script that a run.sh starts today."""
    name, path = shown(launcher.parent), results_of(launcher)
    own, again = provenance(launcher), f"run python lab/results.py {words_of(launcher)}"
    example = measured.get("example", "an unknown example")
    if example != own["example"]:
        raise ToolError(f"{example}'s {path.name} is shown on {name}'s page: {again}")
    if measured.get("digest") != own["digest"]:
        raise ToolError(
            f"{shown(path)} is outdated, because {script_of(launcher).name} has changed: "
            f"{again}, with --unchanged if the change alters no number"
        )


def check_compared(name, runs, source):
    """Raises ToolError unless these runs of a measurement are of that example's script of today.

    name: the example, behind a case and ": " or before flags. The digests stand in a file of their
    own, because pictures name the digest of the results.
    """
    own = name.rpartition(": ")[2].split()[0].rstrip(",")
    folders = [f"{parent}/{own}".lstrip("/") for parent in PARENTS]
    digests = source.with_name(source.stem + "_digests.json")
    folder = next((candidate for candidate in folders if (ROOT / candidate).is_dir()), own)
    if not (ROOT / folder).is_dir() and len(read_json(digests)) == 1:
        (folder,) = read_json(digests)  # the cases of a measurement of one example do not name it
    own_name = docstring(script(ROOT / folder)).partition(":")[0]
    for run in runs["runs"] if isinstance(runs, dict) else runs:  # Compare keeps more beside them
        if run.get("example", own_name) != own_name:
            raise ToolError(f"{shown(source)} shows {run.get('example')}'s numbers as {name}'s")
    digest = read_json(digests).get(folder)
    is_today = digest == example_digest(script(ROOT / folder))
    if not is_today and not measured_before.is_measured_before(folder, digest):
        raise ToolError(
            f"{shown(source)} is outdated, because the script of {folder} has changed: run "
            f"{shown(source.parent)} again, or python lab/results.py {folder} --unchanged if the "
            "change alters no number"
        )


def words_of(launcher):
    """Returns a run.sh as the arguments of lab/results.py name it."""
    return shown(launcher.parent if launcher.name == "run.sh" else launcher)


def measured_runs(folder, launcher):
    """Returns the results for a page; None if there are none. Raises ToolError on foreign ones."""
    launcher = folder / (launcher or "run.sh")
    path = results_of(launcher)
    if not path.exists():
        return None
    measured = read_json(path)
    check_provenance(measured, launcher)
    return measured


def argument(folder, part, word):
    """Returns the word behind a part's name. Raises ToolError if there is none."""
    if not word:
        page = f"{shown(folder)}/README.md"
        raise ToolError(f"{page}: name a folder or file behind `generated: {part}`")
    return word


def result(folder, launcher):
    """One line: the median and range of the runs that lab/results.py has made."""
    measured = measured_runs(folder, launcher)
    if not measured:
        return NOT_MEASURED
    runs, parts = measured["runs"], []
    for run in runs:
        run["rate"] = run["updates"] / run["training_seconds"]
    for name, (words, form, times) in REPORTED.items():
        if any(run.get(name) for run in runs):
            values = [times * run[name] for run in runs if name in run]
            parts.append(words.format(*pages.texts(values, form)))
    others = (
        idle.words(measured["others"]) if "others" in measured else f"load {measured['load']:.1f}"
    )
    return (
        f"`{measured['command'].replace(' --seed S', '')}`, {len(runs)} seeds: {', '.join(parts)}. "
        f"{measured['date']}, {measured['cores']} cores, {others}."
    )


# The front page says the one, and the last line of a run the other.
USUAL = re.compile(
    r"^\[tfrun\] anyone who can reach|^\[(?!horovodrun)\w+ \d+\] done(, the output|$)"
)


def output(folder, launcher):
    """What the first of these runs has printed, but for what all runs print."""
    measured = measured_runs(folder, launcher)
    lines: list[str] = []
    for line in measured["output"] if measured else []:
        line = "..." if USUAL.search(line) else line
        if lines[-1:] != ["..."] or line != "...":
            lines.append(line)
    return "```\n{}\n```".format("\n".join(lines)) if measured else NOT_MEASURED


def excerpt(folder, launcher):
    """The lines of that output which tell of updates, and the last."""
    measured = measured_runs(folder, launcher)
    lines = [line for line in measured["output"] if ": update" in line or "] update" in line]
    return "```\n{}\n```".format("\n".join([*lines[:2], "...", lines[-1], measured["output"][-1]]))


YOUR_MODEL = ROOT / "Your-Model"


def written(_, __):
    """What the GPT of Your-Model has written, and the run that trained it."""
    path = YOUR_MODEL / "results.json"
    if not path.exists():
        return NOT_MEASURED
    results = read_json(path)
    for name, digest in results["digests"].items():
        if example_digest(ROOT / name) != digest:
            raise ToolError(
                f"{shown(path)} is outdated, because {name} has changed: run Your-Model/run.sh, "
                "then python Your-Model/generate.py RUN --save Your-Model"
            )
    text = "\n".join(map(str.rstrip, (results["prompt"] + results["written"]).splitlines()))
    rounds = f"{results['updates']} rounds of {results['arguments']['local_steps']} steps"
    workers = f"{results['workers']} workers"
    return (
        f"```text\n{text}\n```\n"
        f"*{results['example']}, {workers}, {rounds} in {results['seconds']:.0f} s: "
        f"{results['test_bits_per_byte']:.2f} bits a byte in the test, "
        f"where guessing has 8. The help texts of Python {results['python']} have "
        f"{results['text_bytes']:,} bytes, SHA-256 {results['text_sha256'][:12]}…. "
        f"{results['date']}, {results['cores']} cores.*"
    )


PARTS = {
    part.__name__: part
    for part in (
        examples,
        further,
        compare,
        scaling,
        glossary,
        errors,
        links,
        text,
        papers,
        tests,
        algorithm,
        diff,
        flags,
        shared_flags,
        result,
        output,
        excerpt,
        written,
    )
}


def planted_mistakes():
    """Returns how many mistakes the files in tests/equations/ have."""
    stems = [path.stem for path in scripts()]
    return sum(sum(planted(EQUATIONS / f"{stem}.py").values()) for stem in stems)


def plugged():
    """Returns the cells of Your-Model/matrix.json: how each example took each problem file."""
    cells = read_json(YOUR_MODEL / "matrix.json")["cells"]
    return [cell for row in cells.values() for cell in row.values()]


NUMBERS = {  # words around a number on the front page: what the number is
    r"(\*\*)\d+( examples\*\*)": lambda: len(reading_order.examples()),
    r"(They catch all )\d+( mistakes)": planted_mistakes,
    r"(\*\*)\d+( faults\*\*)": lambda: len(
        read_json(ROOT / "Operations" / "Fault-Tolerance" / "results.json")
    ),
    r"( has )\d+( notebooks)": lambda: len(tracked("*.ipynb")),
    r"()\d+( of \d+ pairs)": lambda: plugged().count("trains"),
    r"( of )\d+( pairs)": lambda: len(plugged()),
}


def with_numbers(text):
    """Returns the text of the front page with its numbers as they should be."""
    for words, number in NUMBERS.items():
        if re.search(words, text):
            text = re.sub(words, rf"\g<1>{number()}\g<2>", text)
    return text


def updated(path):
    """Returns the text of a README with its generated parts as they should be.

    Raises ToolError with a sentence for each part that cannot be made.
    """
    text, faults = read(path), []
    if path == ROOT / "README.md":
        text = with_numbers(text)
    if len(PART.findall(text)) != len(re.findall("(?m)^<!-- generated", text)):
        raise ToolError(
            f"{shown(path)}: write each generated part as `<!-- generated: NAME -->`, with at most "
            "one WORD behind the name, and `<!-- end -->` on a line of its own below it"
        )

    def part(match):
        if match[2] not in PARTS:
            known = ", ".join(PARTS)
            raise ToolError(f"{shown(path)}: there is no part {match[2]}, only {known}")
        try:
            return f"{match[1]}{PARTS[match[2]](path.parent, match[3])}\n{match[4]}"
        except ToolError as error:
            faults.append(str(error))
            return match[0]

    text = PART.sub(part, text)
    if faults:
        raise ToolError("\n".join(dict.fromkeys(faults)))
    return text


def files():
    """All pages of the project."""
    return tracked("*.md")


def check_order():
    """Raises ToolError unless the reading order names folders with pages that git knows."""
    pages = set(files())
    for name in reading_order.names():
        script(ROOT / name)
        if ROOT / name / "README.md" not in pages:
            raise ToolError(f"git does not know {name}/README.md: run git add {name}")


def main():
    parser = drivers.Parser(__doc__)
    parser.add_argument("--fix", action="store_true", help="write what is out of date")
    fix = parser.parse_args().fix
    check_order()
    code = 0
    for path in files():
        try:
            text = updated(path)
        except ToolError as error:  # the other pages do not wait for this one
            print(error, file=sys.stderr)
            code = 1
            continue
        if text != path.read_text():
            if fix:
                path.write_text(text)
            else:
                code = 1
            print("written:" if fix else "out of date:", shown(path))
    return code


if __name__ == "__main__":
    sys.exit(exit_code(main))
