"""What all measurements share, lab/measure/drivers.py: flags, sessions, tables and pictures."""

import contextlib
import hashlib
import io
import itertools
import json
import pathlib
import re
import sys
import types

import pytest
import support
from lab import examples
from lab.measure import drivers
from measurements import MEASUREMENTS, load, points, write

SHARED = "lab/measure/drivers.py"


# Flags, and which cases --------------------------------------------------------------------------


def flags_from(monkeypatch, *words, cases=(("a",), ("b",)), **more):
    """Returns what Parser.only() returns of these words, or the one line with which it ends."""
    parser = drivers.Parser("words")
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
    for words, said in (
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
        assert end.value.code == 2 and said in capsys.readouterr().err


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


# A run -------------------------------------------------------------------------------------------


def test_a_command(tmp_path):
    """A run has its own folder, nothing that its run.sh refuses, and its failure ends us."""
    script = tmp_path / "run.sh"
    script.write_text(
        'echo "${WORKERS:-2} none${PS:-} $MORE $OUTPUT_DIR" > "$OUTPUT_DIR/said"; exit $CODE'
    )
    run = load(SHARED).run
    env = {"PATH": "/usr/bin:/bin", "WORKERS": "7", "PS": "8", "CODE": "0"}
    run(["bash", script], tmp_path, env, MORE="x")
    assert (tmp_path / "said").read_text().split() == ["7", "none", "x", str(tmp_path)]
    with pytest.raises(SystemExit, match="exit code 3"):
        run(["bash", script], tmp_path, env, CODE="3")


def test_the_last_lines_of_a_run_that_fails(tmp_path):
    """Its output is text, its input is empty, and ten lines of it are told with the exit code.

    Catches: the first lines for the last, output that is lost, and an exit code that is.
    """
    code = (
        "import os, sys; print(repr(sys.stdin.read()), os.environ['OUTPUT_DIR'], os.environ['A'])"
    )
    said = drivers.run([sys.executable, "-c", code], tmp_path, A="b")
    assert said == f"'' {tmp_path} b\n"
    code = "import sys; [print(n) for n in range(12)]; print('e', file=sys.stderr); sys.exit(7)"
    with pytest.raises(SystemExit) as end:
        drivers.run([sys.executable, "-u", "-c", code], tmp_path)
    *lines, last = end.value.code.split("\n")
    assert lines == [*map(str, range(3, 12)), "e"]
    assert last.startswith(f"failed with exit code 7: {sys.executable} -u -c")


def test_the_tasks_of_a_run(tmp_path, monkeypatch):
    """Processes with this OUTPUT_DIR and a task, the first of each; none that has ended.

    Catches: tasks of another run, launchers among them, a zombie that counts, and an error for a
    process that is gone or not ours.
    """
    task = {
        name: {"task": {"type": name[:-1], "index": int(name[-1])}} for name in ("ps0", "worker1")
    }

    def process(name, directory, status="running", error=None):
        def environ():
            if error:
                raise error
            env = {"OUTPUT_DIR": str(directory)}
            return env | ({"TF_CONFIG": json.dumps(task[name])} if name else {})

        return types.SimpleNamespace(environ=environ, status=lambda: status, name=name)

    import psutil

    there = [
        process("ps0", tmp_path, error=psutil.AccessDenied(1)),
        process("ps0", tmp_path / "other"),
        process(None, tmp_path),
        process("worker1", tmp_path, psutil.STATUS_ZOMBIE),
        process("worker1", tmp_path, "sleeping"),
        process("ps0", tmp_path),
        process("worker1", tmp_path),
    ]
    monkeypatch.setattr(drivers.psutil, "process_iter", lambda: there)
    assert drivers.tasks(tmp_path) == {("worker", 1): there[4], ("ps", 0): there[5]}


def test_pushes_and_tests_of_a_task(tmp_path):
    """Catches: rows of all tasks for those of one, tests among the pushes, and another order."""
    rows = {"worker-0": [(11, 2, 0), (13, 3, 0, 0.5)], "worker-1": [(10, 1, 0), (12, 3, 0)]}
    write(tmp_path, rows)
    assert [push["push_time"] for push in drivers.pushes(tmp_path)] == [10, 11, 12]
    assert [push["push_time"] for push in drivers.pushes(tmp_path, "worker-1")] == [10, 12]
    assert [test["test_loss"] for test in drivers.tests(tmp_path)] == [0]
    assert drivers.tests(tmp_path, "worker-1") == []


# A session ---------------------------------------------------------------------------------------


def test_the_others(tmp_path):
    """The largest share of any measurement of the cases that count.

    Catches: the last share for the largest, and the shares of cases that do not count.
    """
    kept = tmp_path / "measured.json"
    shares = {"digits: a": [0.1, 0.3, 0.2], "digits: b": [0.05], "local: a": [0.9]}
    kept.write_text(json.dumps({drivers.OTHERS: shares}))
    share_of = load(SHARED).other_processes_share
    assert [share_of(kept), share_of(kept, ["digits"]), share_of(kept, ["x"])] == pytest.approx(
        [0.9, 0.3, 0]
    )


def test_a_session(tmp_path):
    """--repeats counts with --full only; how often what others disturb is measured again."""
    module, asked = load(SHARED), []
    module.measure_round_robin = lambda _, cases, repeats, measure, kept, *rest: asked.append(
        (repeats, *rest)
    )
    (tmp_path / "measured.json").write_text('{"others": {"a": [0.25]}}')
    sessions = []
    for full, anyway in ((True, False), (False, True)):
        flags = types.SimpleNamespace(repeats=5, full=full, anyway=anyway)
        sessions.append(module.measure_session(None, tmp_path, flags, [], None, "words", [])[1:])
    assert asked == [(5, 3, {}), (1, 1, {})]
    assert [text.partition("; 2")[0] for text, _ in sessions] == [
        f"words; median (range) of {n}" for n in (5, 1)
    ]
    assert [share for _, share in sessions] == pytest.approx([0.25, 0.25])


def test_a_session_takes_what_was_kept(tmp_path, monkeypatch):
    """Catches: a share of another file, words without the number of repeats, and cases of another
    session among the results."""
    monkeypatch.setattr(drivers, "setting", lambda: "here")
    shares = iter([0.5, 0.02, 0.6, 0.7, 0.8])
    monkeypatch.setattr(
        drivers.idle, "Others", lambda: types.SimpleNamespace(share=lambda: next(shares))
    )
    (tmp_path / "measured.json").write_text('{"b": [7], "others": {"b": [0.3]}}')
    flags, numbers = types.SimpleNamespace(repeats=5, full=False, anyway=False), itertools.count()
    console = drivers.Console(file=io.StringIO())
    monkeypatch.setattr(drivers, "digests_of", lambda names: dict.fromkeys(names, "a digest"))
    more = console, tmp_path, flags, [("a",)], lambda *_: next(numbers), "words", ["HogWild"]
    assert drivers.measure_session(*more) == ({"a": [1]}, "words; median (range) of 1; here", 0.3)
    kept = json.loads((tmp_path / "measured.json").read_text())
    noted = {"b": [0.3], "a": [0.02]}
    assert kept == {"b": [7], "others": noted, "digests": {"a": "a digest"}, "a": [1]}
    assert json.loads((tmp_path / "results_digests.json").read_text()) == {"HogWild": "a digest"}
    flags.full = True  # after the third busy try the last one stays
    flags.repeats = 2
    assert drivers.measure_session(*more) == (
        {"a": [1, 4]},
        "words; median (range) of 2; here",
        0.8,
    )


def test_a_second_session_measures_what_is_left(tmp_path):
    """Catches a repeat that is measured twice, lost, or put to another case."""
    done = []

    def measure(case, repeat):
        done.append((case[0], repeat))
        if len(done) == 4:
            raise KeyboardInterrupt
        return f"{case[0]}{repeat}"

    turns = drivers.Console(), [("a",), ("b",)], 3, measure, tmp_path / "measured.json"
    with pytest.raises(KeyboardInterrupt):
        drivers.measure_round_robin(*turns)
    results = drivers.measure_round_robin(*turns)
    assert results == {"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]}
    assert done == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_what_others_disturb_is_measured_again(tmp_path, monkeypatch):
    """Catches: a disturbed number that is kept, a share that is forgotten, no end of tries."""
    shares = iter([0.5, 0.02, 0.04, 0.2, 0.3, 0.15])
    others = types.SimpleNamespace(share=lambda: next(shares))
    monkeypatch.setattr(drivers.idle, "Others", lambda: others)
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    turns = drivers.Console(), [("a",), ("b",)], 1, lambda case, _: next(numbers), kept, 3
    assert drivers.measure_round_robin(*turns) == {"a": [1], "b": [2]}
    assert drivers.other_processes_share(kept) == 0.04
    again = drivers.Console(), [("a",)], 2, *turns[3:]
    assert drivers.measure_round_robin(*again) == {"a": [1, 5]}
    assert drivers.other_processes_share(kept) == 0.15


def test_a_script_that_has_changed_is_measured_again(tmp_path, capsys):
    """Catches: numbers of an older script, or of an unknown one, under the digest of today's; a
    share of what is forgotten; another case that is measured again, too."""
    numbers, kept = itertools.count(), tmp_path / "measured.json"
    cases = [("a",), ("b",), ("c",)]
    kept.write_text(json.dumps({"c": [7], "d": [8], drivers.OTHERS: {"c": [0.9], "d": [0.8]}}))

    def session(**digests):
        turns = drivers.Console(), cases[: len(digests)], 1, lambda *_: next(numbers)
        return drivers.measure_round_robin(*turns, kept, 1, digests)

    assert session(a="A", b="B") == {"a": [0], "b": [1]}
    assert session(a="A", b="B") == {"a": [0], "b": [1]} and not capsys.readouterr().err
    assert session(a="A", b="new", c="C") == {"a": [0], "b": [2], "c": [3]}
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" is measured again: ")[0] for line in lines] == ["b", "c"]
    known = json.loads(kept.read_text())
    assert known[drivers.DIGESTS] == {"a": "A", "b": "new", "c": "C"} and known["d"] == [8]
    assert [len(known[drivers.OTHERS][name]) for name in "abcd"] == [1, 1, 1, 1]
    assert known[drivers.OTHERS]["c"] != [0.9] and known[drivers.OTHERS]["d"] == [0.8]


def test_what_was_kept_is_never_cut_short(tmp_path, monkeypatch):
    """Catches a file of which a stop leaves the beginning, so that nothing can go on from it."""
    kept, write = tmp_path / "measured.json", pathlib.Path.write_text
    turns = drivers.Console(), [("a",), ("b",)], 1, lambda case, _: case[0], kept
    drivers.measure_round_robin(turns[0], [("a",)], *turns[2:])

    def half(path, text, *more, **named):
        write(path, text[: len(text) // 2], *more, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pathlib.Path, "write_text", half)
        drivers.measure_round_robin(*turns)
    assert json.loads(kept.read_text())["a"] == ["a"]
    assert drivers.measure_round_robin(*turns) == {"a": ["a"], "b": ["b"]}
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]


# Results, tables and pictures --------------------------------------------------------------------


def test_a_report(tmp_path):
    """results.json holds what was measured, and the table has the name of its picture beside it."""
    module, drawn, place = load(SHARED), [], tmp_path / "A-Name"
    results = {"a": [1.5, [2, [3]], "a, b", {"b": [0.1, 2e-9]}], "c": [], "d": None}
    module.output_directory = lambda name: tmp_path
    module.idle = types.SimpleNamespace(
        wait=lambda anyway: types.SimpleNamespace(share=lambda: 0.5),
        words=lambda share: f"others {share}",
    )

    def draw(*arguments):
        drawn.append(arguments)

    def go(redraw, *share):
        flags, output = types.SimpleNamespace(redraw=redraw, anyway=True), io.StringIO()
        with contextlib.redirect_stdout(output):
            module.report(
                place / "a_name.py", flags, 40, lambda *_: (results, "when", *share), str, draw
            )

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

    monkeypatch.setattr(drivers.idle, "wait", wait)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    for anyway in (False, True):
        flags = types.SimpleNamespace(redraw=None, anyway=anyway)
        with pytest.raises(SystemExit, match="a-name: others are busy"):
            drivers.report(tmp_path / "A-Name" / "a_name.py", flags, 40, None, None, None)
    assert asked == [False, True]


def test_what_a_folder_of_a_measurement_is_called(tmp_path, monkeypatch):
    """OUTPUT_DIR, or the time in RUNS_DIR, or in runs; it may be there already.

    Catches: a folder that nobody asked for, and a second one that overwrites the first.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("OUTPUT_DIR", "RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)
    first = drivers.output_directory("A-Name")
    assert first.is_dir() and first.parent.as_posix() == "runs/A-Name"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", first.name)
    monkeypatch.setenv("RUNS_DIR", "others")
    assert drivers.output_directory("A-Name").parent.as_posix() == "others/A-Name"
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "a" / "b"))
    assert [drivers.output_directory("A-Name") for _ in range(2)] == [tmp_path / "a" / "b"] * 2


def test_the_words_of_a_table(tmp_path, monkeypatch):
    """What the console has shown, without spaces at the ends; when, where, with which versions.

    Catches: colours in the file, a width of the terminal, and a median of what is None.
    """
    monkeypatch.setattr(drivers.os, "cpu_count", lambda: 7)
    words = drivers.setting("A 1", "B 2").split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", words[0]) and words[1:3] == ["A 1", "B 2"]
    assert re.fullmatch(r"Python 3\.\d+\.\d+", words[3]) and words[4].startswith("7 cores (")
    monkeypatch.setattr(drivers.sys, "stdout", types.SimpleNamespace(isatty=lambda: False))
    assert drivers.table_console(33).width == 33
    console = drivers.Console(width=20, record=True, file=io.StringIO())
    table = drivers.plain_table("a", "b")
    table.add_row("1", "2")
    console.print(table)
    console.print("[red]x[/red]   ")
    drivers.write_table(console, tmp_path, "a picture")
    lines = (tmp_path / "table.txt").read_text().split("\n")
    assert lines == ["", " a   b", " ─────", " 1   2", "", "x", ""]
    assert drivers.spread([3, None, 1, 2, 8], "{:.1f}") == "2.5 (1.0-8.0)"
    assert [drivers.spread([None], "{}"), drivers.spread([0], "{}")] == ["", "0 (0-0)"]
    runs = [{"x": x, "y": None} for x in (3, None, 0, 8, 1)]
    assert [drivers.middle(runs, "x"), drivers.middle(runs, "y")] == [2, None]


def test_how_results_are_written(tmp_path):
    """As the committed files are: an item of a list on a line where it has lists or dicts itself.

    Catches: a file that differs from today's although its numbers do not.
    """
    value = {"a": {"b": [1, 2.5], "c": []}, "d": [{"e": [1]}, [2]], "f": {}, "g": "h", "i": (1,)}
    drivers.write_results(tmp_path / "x.json", value)
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
        ' "i": [1]',
        "}",
        "",
    ]
    for name in ("Scaling", "Compression", "Ring-Bandwidth", "Staleness"):
        text = (MEASUREMENTS / name / "results.json").read_text()
        assert drivers.json_lines(json.loads(text)) + "\n" == text, name


def test_digests(tmp_path):
    """Each measured example has the digest of its own script."""
    module = load(SHARED)
    module.write_digests(module.digests_of(["HogWild", "DynSGD", "HogWild"]), tmp_path)
    due = [
        f' "{name}": "{examples.example_digest(examples.main_script(name))}"'
        for name in ("DynSGD", "HogWild")
    ]
    text = (tmp_path / "results_digests.json").read_text()
    assert text == "{\n" + ",\n".join(due) + "\n}\n"


def test_a_picture_names_its_results(tmp_path):
    """Its width in dots, and the digest of the results that it shows.

    Catches: a digest of another file, by which a picture of older results would pass.
    """
    import matplotlib.image

    source, path = tmp_path / "results.json", tmp_path / "x.png"
    source.write_text("[1]")
    figure, axes = drivers.subplots(2.5, 1, 2, squeeze=False)
    assert axes.shape == (1, 2) and not axes[0][0].spines["top"].get_visible()
    assert not axes[0][0].spines["right"].get_visible() and axes[0][0].spines["left"].get_visible()
    drivers.save(figure, path, source)
    assert hashlib.sha256(b"[1]").hexdigest()[:16].encode() in path.read_bytes()
    assert b"Drawn from" in path.read_bytes()
    assert matplotlib.image.imread(path).shape[:2] == (350, 1008)  # 2.5 and 7.2 inches, 140 dpi
    assert figure.get_layout_engine().__class__.__name__ == "ConstrainedLayoutEngine"


def widths(axes):
    """Returns the ends of all bars, and the texts beside them."""
    return [bar.get_width() for bar in axes.patches], [text.get_text() for text in axes.texts]


def test_bars():
    """As long as a median, with its number; a dot is a run.

    Catches: a bar of the best run.
    """
    module, figure = load(SHARED), []
    module.save = lambda drawn, path, source: figure.append(drawn)
    values = {"a": [3.0, 1.0, 2.0, 8.0], "b\nb": [5.0]}
    module.bars("", "", values, dict.fromkeys(values, "C0"), "{:.1f}".format, None, None)
    assert widths(figure[0].axes[0]) == ([2.5, 5.0], ["2.5", "5.0"])
    dots = [points(line) for line in figure[0].axes[0].lines]
    assert dots == [[(x, 0) for x in values["a"]], [(5, 1)]]


def test_the_marks_of_bars(tmp_path, monkeypatch):
    """Words stand right of the last dot; the axis has room for them, and the first bar is on top.

    Catches: words over a bar, names of other bars, and a height that leaves lines of names out.
    """
    drawn = []
    monkeypatch.setattr(drivers, "save", lambda *given: drawn.append(given))
    values = {"a": [3.0, 1.0], "b\nb": [10.0, 5.0, 6.0], "c": [4.0]}
    colours = {"a": "C0", "b\nb": "C1", "c": "C2"}
    drivers.bars("a title", "a label", values, colours, "<{:g}>".format, "path", "source")
    ((figure, *paths),) = drawn
    (axes,) = figure.axes
    assert paths == ["path", "source"]
    assert [text.get_position() for text in axes.texts] == [(3.2, 0), (10.2, 1), (4.2, 2)]
    assert [text.get_text() for text in axes.texts] == ["<2>", "<6>", "<4>"]
    assert (axes.get_xlim(), axes.yaxis_inverted()) == ((0, 13), True)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(values)
    assert list(axes.get_yticks()) == [0, 1, 2] == [bar.get_y() + 0.35 for bar in axes.patches]
    assert figure.get_figheight() == pytest.approx(1.1 + 0.1 * (4 + 5 + 4))
    import matplotlib.colors

    faces = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert faces == [matplotlib.colors.to_hex(colour) for colour in colours.values()]
    assert [axes.get_title(loc="left"), axes.get_xlabel()] == ["a title", "a label"]
