"""lab/measure/sessions.py: cases by turns, what a session goes on from, and its report."""

import contextlib
import io
import itertools
import json
import pathlib
import types

import pytest
from lab import digests, examples
from lab.measure import sessions
from measurements import load
from rich.console import Console

SHARED = "lab/measure/sessions.py"


def test_the_others(tmp_path):
    """The largest share of any measurement. Catches the last share, or that of the first case."""
    kept = tmp_path / "measured.json"
    shares = {"digits: a": [0.1, 0.3, 0.2], "digits: b": [0.05, 0.9, 0.8], "local: a": [0.2]}
    kept.write_text(json.dumps({sessions.OTHERS: shares}))
    assert sessions.other_processes_share(kept) == 0.9
    kept.write_text(json.dumps({sessions.OTHERS: {}}))
    assert sessions.other_processes_share(kept) == 0


def test_a_session(tmp_path):
    """--repeats counts with --full only; how often what others disturb is measured again."""
    module, asked = load(SHARED), []

    def measure_round_robin(console, cases, repeats, measure, *, kept, tries, digests):
        asked.append((repeats, tries, digests))

    module.measure_round_robin = measure_round_robin
    (tmp_path / "measured.json").write_text('{"others": {"a": [0.25]}}')
    answers = []
    for full, anyway in ((True, False), (False, True)):
        flags = types.SimpleNamespace(repeats=5, full=full, anyway=anyway)
        session = module.Session(flags=flags, cases=[], examples=[], measure=None, words="words")
        answers.append(session.measure_all(None, tmp_path)[1:])
    assert asked == [(5, 3, {}), (1, 1, {})]
    assert [text.partition("; 2")[0] for text, _ in answers] == [
        f"words; median (range) of {n}" for n in (5, 1)
    ]
    assert [share for _, share in answers] == pytest.approx([0.25, 0.25])


def test_a_session_takes_what_was_kept(tmp_path, monkeypatch):
    """Catches: a share of another file, words without the number of repeats, and cases of another
    session among the results."""
    monkeypatch.setattr(sessions.text_tables, "setting", lambda: "here")
    shares = iter([0.5, 0.02, 0.6, 0.7, 0.8])
    monkeypatch.setattr(
        sessions.idle, "Others", lambda: types.SimpleNamespace(share=lambda: next(shares))
    )
    (tmp_path / "measured.json").write_text('{"b": [7], "others": {"b": [0.3]}}')
    flags, numbers = types.SimpleNamespace(repeats=5, full=False, anyway=False), itertools.count()
    console = Console(file=io.StringIO())
    monkeypatch.setattr(sessions, "digests_of", lambda names: dict.fromkeys(names, "a digest"))
    session = sessions.Session(
        flags=flags,
        cases=[("a",)],
        examples=["HogWild"],
        measure=lambda *_: next(numbers),
        words="words",
    )
    due = {"a": [1]}, "words; median (range) of 1; here", 0.3
    assert session.measure_all(console, tmp_path) == due
    kept = json.loads((tmp_path / "measured.json").read_text())
    noted = {"b": [0.3], "a": [0.02]}
    assert kept == {"b": [7], "others": noted, "digests": {"a": "a digest"}, "a": [1]}
    assert json.loads((tmp_path / "results_digests.json").read_text()) == {"HogWild": "a digest"}
    flags.full = True  # after the third busy try the last one stays
    flags.repeats = 2
    due = {"a": [1, 4]}, "words; median (range) of 2; here", 0.8
    assert session.measure_all(console, tmp_path) == due


def test_a_second_session_measures_what_is_left(tmp_path):
    """Catches a repeat that is measured twice, lost, or put to another case."""
    done = []

    def measure(case, repeat):
        done.append((case[0], repeat))
        if len(done) == 4:
            raise KeyboardInterrupt
        return f"{case[0]}{repeat}"

    turns, kept = (Console(), [("a",), ("b",)], 3, measure), tmp_path / "measured.json"
    with pytest.raises(KeyboardInterrupt):
        sessions.measure_round_robin(*turns, kept=kept)
    results = sessions.measure_round_robin(*turns, kept=kept)
    assert results == {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]}
    assert done == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_what_others_disturb_is_measured_again(tmp_path, monkeypatch):
    """Catches: a disturbed number that is kept, a share that is forgotten, no end of tries."""
    shares = iter([0.5, 0.02, 0.04, 0.2, 0.3, 0.15])
    others = types.SimpleNamespace(share=lambda: next(shares))
    monkeypatch.setattr(sessions.idle, "Others", lambda: others)
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    turns = Console(), [("a",), ("b",)], 1, lambda case, _: next(numbers)
    assert sessions.measure_round_robin(*turns, kept=kept, tries=3) == {"a": [1], "b": [2]}
    assert sessions.other_processes_share(kept) == 0.04
    again = Console(), [("a",)], 2, turns[3]
    assert sessions.measure_round_robin(*again, kept=kept, tries=3) == {"a": [1, 5]}
    assert sessions.other_processes_share(kept) == 0.15


def test_a_script_that_has_changed_is_measured_again(tmp_path, capsys):
    """Catches: numbers of an older script, or of an unknown one, under the digest of today's; a
    share of what is forgotten; another case that is measured again, too."""
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    cases = [("a",), ("b",), ("c",)]
    kept.write_text(json.dumps({"c": [7], "d": [8], sessions.OTHERS: {"c": [0.9], "d": [0.8]}}))

    def session(**digests):
        turns = Console(), cases[: len(digests)], 1, lambda *_: next(numbers)
        return sessions.measure_round_robin(*turns, kept=kept, digests=digests)

    assert session(a="A", b="B") == {"a": [0], "b": [1]}
    assert session(a="A", b="B") == {"a": [0], "b": [1]} and not capsys.readouterr().err
    assert session(a="A", b="new", c="C") == {"a": [0], "b": [2], "c": [3]}
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" is measured again: ")[0] for line in lines] == ["b", "c"]
    known = json.loads(kept.read_text())
    assert known[sessions.DIGESTS] == {"a": "A", "b": "new", "c": "C"} and known["d"] == [8]
    assert [len(known[sessions.OTHERS][name]) for name in "abcd"] == [1, 1, 1, 1]
    assert known[sessions.OTHERS]["c"] != [0.9] and known[sessions.OTHERS]["d"] == [0.8]


def test_what_was_kept_is_never_cut_short(tmp_path, monkeypatch):
    """Catches a file of which a stop leaves the beginning, so that nothing can go on from it."""
    kept, write = tmp_path / "measured.json", pathlib.Path.write_text
    turns = Console(), [("a",), ("b",)], 1, lambda case, _: case[0]
    sessions.measure_round_robin(turns[0], [("a",)], *turns[2:], kept=kept)

    def half(path, text, *more, **named):
        write(path, text[: len(text) // 2], *more, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "write_text", half)
        sessions.measure_round_robin(*turns, kept=kept)
    assert json.loads(kept.read_text())["a"] == ["a"]
    assert sessions.measure_round_robin(*turns, kept=kept) == {"a": ["a"], "b": ["b"]}
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]


def test_digests(tmp_path):
    """Each measured example has the digest of its own script."""
    module = load(SHARED)
    module.write_digests(module.digests_of(["HogWild", "DynSGD", "HogWild"]), tmp_path)
    due = [
        f' "{name}": "{digests.example_digest(examples.main_script(name))}"'
        for name in ("DynSGD", "HogWild")
    ]
    text = (tmp_path / "results_digests.json").read_text()
    assert text == "{\n" + ",\n".join(due) + "\n}\n"


def test_a_report(tmp_path):
    """results.json holds what was measured, and the table has the name of its picture beside it."""
    module, drawn, place = load(SHARED), [], tmp_path / "A-Name"
    results = {"a": [1.5, [2, [3]], "a, b", {"b": [0.1, 2e-9]}], "c": [], "d": None}
    module.example_runs = types.SimpleNamespace(output_directory=lambda name: tmp_path)
    module.idle = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.5),
        words=lambda share: f"others {share}",
    )

    def draw(*arguments):
        drawn.append(arguments)

    def go(redraw, *share):
        flags, output = types.SimpleNamespace(redraw=redraw, anyway=True), io.StringIO()
        with contextlib.redirect_stdout(output):
            report = module.Report(
                script=place / "a_name.py", flags=flags, width=40, table_of=str, draw=draw
            )
            report.make(lambda *_: (results, "when", *share))

    go(None, 0.25)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert (tmp_path / "table.txt").read_text().splitlines()[-1] == "when; others 0.25"
    go(None)  # its own share, where a measurement has noted none
    assert (tmp_path / "table.txt").read_text().splitlines()[-1] == "when; others 0.5"
    source = tmp_path / "results-wide.json"
    (tmp_path / "results.json").rename(source)
    go(source)
    pictures = [(given[1].name, given[2].name) for given in drawn]
    assert pictures == [("a-name.png", "results.json")] * 2 + [
        ("a-name-wide.png", "results-wide.json")
    ]
    assert drawn[2][0] == results


def test_a_report_waits_until_the_machine_is_quiet(tmp_path, monkeypatch):
    """Catches: a measurement of a busy machine, and one whose flag --anyway changes nothing."""
    asked = []

    def wait(anyway):
        asked.append(anyway)
        raise TimeoutError("others are busy")

    monkeypatch.setattr(sessions.idle, "wait", wait)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    for anyway in (False, True):
        flags = types.SimpleNamespace(redraw=None, anyway=anyway)
        script = tmp_path / "A-Name" / "a_name.py"
        report = sessions.Report(script=script, flags=flags, width=40, table_of=None, draw=None)
        with pytest.raises(SystemExit, match="a-name: others are busy"):
            report.make(None)
    assert asked == [False, True]
