"""lab/measure/text_tables.py: the words of a table, and results as JSON."""

import io
import json
import re
import types

from lab.measure import text_tables
from measurements import MEASUREMENTS
from rich.console import Console


def test_the_words_of_a_table(tmp_path, monkeypatch):
    """What the console has shown, without spaces at the ends; when, where, with which versions.

    Catches: colours in the file, a width of the terminal, and a median of what is None.
    """
    monkeypatch.setattr(text_tables.os, "cpu_count", lambda: 7)
    words = text_tables.setting("A 1", "B 2").split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", words[0]) and words[1:3] == ["A 1", "B 2"]
    assert re.fullmatch(r"Python 3\.\d+\.\d+", words[3]) and words[4].startswith("7 cores (")
    monkeypatch.setattr(text_tables.sys, "stdout", types.SimpleNamespace(isatty=lambda: False))
    assert text_tables.table_console(33).width == 33
    console = Console(width=20, record=True, file=io.StringIO())
    table = text_tables.plain_table("a", "b")
    table.add_row("1", "2")
    console.print(table)
    console.print("[red]x[/red]   ")
    text_tables.write_table(console, tmp_path, "a picture")
    lines = (tmp_path / "table.txt").read_text().split("\n")
    assert lines == ["", " a   b", " ─────", " 1   2", "", "x", ""]
    assert text_tables.spread([3, None, 1, 2, 8], "{:.1f}") == "2.5 (1.0-8.0)"
    assert [text_tables.spread([None], "{}"), text_tables.spread([0], "{}")] == ["", "0 (0-0)"]
    assert [text_tables.percent(0.25), text_tables.percent(None)] == [25, None]
    runs = [{"x": x, "y": None} for x in (3, None, 0, 8, 1)]
    assert [text_tables.median_of(runs, "x"), text_tables.median_of(runs, "y")] == [2, None]


def test_how_results_are_written(tmp_path):
    """As the committed files are: an item of a list on a line where it has lists or dicts itself.

    Catches: a file that differs from today's although its numbers do not.
    """
    value = {"a": {"b": [1, 2.5], "c": []}, "d": [{"e": [1]}, [2]], "f": {}, "g": "h", "i": (1,)}
    value["j"] = [(1, 2), (3,)]
    text_tables.write_results(tmp_path / "x.json", value)
    assert (tmp_path / "x.json").read_text().split("\n") == [
        "{",
        ' "a": {',
        '  "b": [1, 2.5],',
        '  "c": []',
        " },",
        ' "d": [',
        '  {"e": [1]},',
        "  [2]",
        " ],",
        ' "f": {},',
        ' "g": "h",',
        ' "i": [1],',
        ' "j": [',
        "  [1, 2],",
        "  [3]",
        " ]",
        "}",
        "",
    ]
    for name in ("Scaling", "Compression", "Ring-Bandwidth", "Staleness"):
        text = (MEASUREMENTS / name / "results.json").read_text()
        assert text_tables.json_lines(json.loads(text)) + "\n" == text, name
