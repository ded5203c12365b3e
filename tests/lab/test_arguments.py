"""lab/measure/arguments.py: the flags of a script, and which cases they choose."""

import sys

import pytest
import support
from lab import examples
from lab.measure import arguments
from measurements import load

SHARED = "lab/measure/arguments.py"


def flags_from(monkeypatch, *words, cases=(("a",), ("b",)), **more):
    """Returns what Parser.only() returns of these words, or the one line with which it ends."""
    parser = arguments.Parser("words")
    parser.number("--n", 4, "a number")
    parser.number("--x", 0.5, "a number", float, nargs="+")
    parser.full("words")
    parser.redraw(support.ROOT / "Measurements" / "Scaling" / "scaling.py")
    monkeypatch.setattr(sys, "argv", ["a script", *words])
    return parser.only(cases, **more)


def test_the_flags_of_a_driver(monkeypatch, capsys):
    """Numbers above zero, --redraw with a file or without, and cases by a part of their names.

    Catches: a default that is lost, zero or no number that is taken, and --full that leaves cases
    out.
    """
    flags, cases = flags_from(monkeypatch)
    due = {"n": 4, "x": 0.5, "repeats": 3, "full": False, "anyway": False, "redraw": None}
    assert (vars(flags), cases) == ({**due, "only": ""}, [("a",), ("b",)])
    flags, _ = flags_from(monkeypatch, "--n", "1", "--x", "1e-9", "2", "--anyway", "--redraw")
    assert (flags.n, flags.x, flags.anyway) == (1, [1e-9, 2], True)
    assert flags.redraw == support.ROOT / "Measurements" / "Scaling" / "results.json"
    assert str(flags_from(monkeypatch, "--redraw", "x.json")[0].redraw) == "x.json"
    quick = [
        flags_from(monkeypatch, *words, quick=("b",))[1]
        for words in ([], ["--full"], ["--only", "a"])
    ]
    assert quick == [[("b",)], [("a",), ("b",)], [("a",)]]
    for words, message in (
        (["--n", "0"], "must be above 0, is 0"),
        (["--n", "-1"], "must be above 0, is -1"),
        (["--x", "inf"], "must be above 0, is inf"),
        (["--x", "nan"], "must be above 0, is nan"),
        (["--n", "1.5"], "invalid int value: '1.5'"),
        (["--only", "c"], "--only must be in one of: a; b"),
        (["--ful"], "unrecognized arguments: --ful"),
    ):
        with pytest.raises(SystemExit) as end:
            flags_from(monkeypatch, *words)
        assert end.value.code == 2 and message in capsys.readouterr().err


def test_which_cases(tmp_path):
    """--only, --full, or the few; a script is changed where the text stands once."""
    module = load(SHARED)
    cases = [("1 worker: a",), ("2 workers: a",), ("2 workers: b",)]

    def chosen(*flags):
        parser = module.Parser("")
        parser.full("")
        sys_argv, sys.argv = sys.argv, ["a script", *flags]
        try:
            parsed, names = parser.only(cases, ("2 workers: b",))
        finally:
            sys.argv = sys_argv
        return [cases.index(name) for name in names], parsed.repeats

    assert chosen() == ([2], 3)
    assert chosen("--full", "--repeats", "4") == ([0, 1, 2], 4)
    assert chosen("--only", ": a") == ([0, 1], 3)
    path = tmp_path / "script.py"
    path.write_text("a b c")
    assert examples.replaced(path, [("a", "b"), ("b b", "c"), ("c c", "d")]) == "d"
    with pytest.raises(ValueError, match="stands 2 times"):
        examples.replaced(path, [("b", "a"), ("a", "x")])
