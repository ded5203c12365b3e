"""What was measured, as the pages show it: in tables in Markdown, beside the results."""

import statistics

from lab.examples import ToolError, shown


def argument(folder, part, word):
    """Returns the word behind a part's name. Raises ToolError if there is none."""
    if not word:
        page = f"{shown(folder)}/README.md"
        raise ToolError(f"{page}: name a folder or file behind `generated: {part}`")
    return word


def table(columns, rows, note=None):
    """Returns the text of a table in Markdown, with a note below it."""
    rows = [columns, ["---"] * len(columns), *rows]
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([*lines, "", note] if note else lines)


def texts(values, form):
    """Returns the median, the least and the greatest of some values."""
    return [form % number for number in (statistics.median(values), min(values), max(values))]


def spread(values, form="%.1f"):
    """Returns a median and its range."""
    median, least, greatest = texts(values, form)
    return f"{median} ({least} to {greatest})"


def medians(runs, reported):
    """Returns rows of a table, what runs report, as words, median and range.

    reported: {its name: (its words, the form of a number, how many of its unit)}.
    """
    rows = []
    for name, (words, form, times) in reported.items():
        values = [times * run[name] for run in runs if name in run]
        median, least, greatest = texts(values, form)
        rows.append((words, median, f"{least} to {greatest}"))
    return rows


def leave(path, text):
    """Writes the text of a table beside its results, and shows it."""
    path.write_text(text + "\n")
    print(text)
