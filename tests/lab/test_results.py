"""lab/measure/results.py between a run and results.json, on runs made by hand; nothing trains."""

import json
import pathlib
import sys

import pytest
import run_files
import support
from lab import examples
from lab.examples import ToolError
from lab.measure import idle, provenance, results
from measurements import Clock, load

LAUNCHER = support.ROOT / "HogWild" / "run.sh"
MIRRORED = "Multiple-GPUs-Single-Machine/run_mirrored.sh"
FOUND = {"test_loss": 0.3, "test_accuracy": 0.9, "wall_seconds": 7.5, "steps": 40}
FOUND |= {"staleness_mean": 1.25, "best": {"test_loss": 0.1}, "versions": {"tensorflow": "2.21.0"}}


def make_run(folder, **changes):
    """Makes a run of two workers with different bytes and waits; returns its folder."""
    run_files.flags(folder)
    rows = [(1, 100, 0.5), (2, 300, 0.1), (4, 800, 0.9)]
    lines = [run_files.push(t, t, bytes=size, wait_seconds=wait) for t, size, wait in rows]
    run_files.metrics(folder, "worker-0", *lines, run_files.test(5, 4, 0.9, 0.3))
    other = run_files.push(3, 3, bytes=0, wait_seconds=0.2)
    run_files.metrics(folder, "worker-1", other, run_files.push(6, 6, bytes="", wait_seconds="nan"))
    (pathlib.Path(folder) / "result.json").write_text(json.dumps({**FOUND, **changes}))
    return pathlib.Path(folder)


def test_what_a_page_reports_of_a_run(tmp_path):
    """Catches: the best value in place of the last, the median of bytes, a time of another kind."""
    assert results.summarize_run(make_run(tmp_path), 12.5) == {
        "test_loss": 0.3,
        "test_accuracy": 0.9,
        "seconds": 12.5,  # of the command; the training took less
        "training_seconds": 7.5,
        "updates": 40,
        "staleness": 1.25,
        "bytes": 300,  # the mean of 100, 300, 800 and 0
        "wait_seconds": pytest.approx(0.35),  # the median of 0.5, 0.1, 0.9 and 0.2
    }


def test_what_was_not_measured_is_left_out(tmp_path):
    """Catches: a column without numbers that becomes 0 or nan."""
    run_files.flags(tmp_path)
    run_files.metrics(tmp_path, "worker-0", run_files.push(1, 1, bytes="", wait_seconds=""))
    (tmp_path / "result.json").write_text(json.dumps({**FOUND, "staleness_mean": None}))
    facts = results.summarize_run(tmp_path, 1)
    assert facts["staleness"] is None and not {"bytes", "wait_seconds"} & facts.keys()


@pytest.mark.parametrize("reports, shown", [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, "...", 4])])
def test_the_lines_that_a_page_shows(reports, shown):
    """Catches: noise, a path of this machine, and too many or too few reports of progress."""
    lines = [f"[worker {n}] update {n} of 9" for n in range(1, reports + 1)]
    output = ["noise", "[tfrun] starts", *lines, " [x] no task", "[tfrun] in /tmp/q, see /tmp/q/a"]
    due = [n if n == "..." else lines[n - 1] for n in shown]
    place = ".../runs/HogWild/<time>"
    last = f"[tfrun] in {place}, see {place}/a"
    sample = results.sample("\n".join(output), pathlib.Path("/tmp/q"), "HogWild")
    assert sample == ["[tfrun] starts", *due, last]


class Measured:
    """Stands in for the runs of an example; notes what each was asked for."""

    def __init__(self, monkeypatch, busy=0.12345):
        self.commands, self.more, self.anyway = [], [], []
        self.waited = type("Others", (), {"share": lambda _: busy})()
        monkeypatch.setattr(results, "run", self.run)
        monkeypatch.setattr(idle, "wait", self.wait)
        times = iter(range(0, 10000, 3))
        monkeypatch.setattr(results.time, "monotonic", lambda: next(times))

    def wait(self, anyway):
        self.anyway.append(anyway)
        return self.waited

    def run(self, command, folder, **more):
        seed = int(command[-1])
        self.commands.append([str(word) for word in command])
        self.more.append(more)
        make_run(folder, steps=100 + seed, versions={"tensorflow": f"2.{seed}"})
        for picture in "curves.png", "trace.png":
            pathlib.Path(folder, picture).write_text(f"{picture} of seed {seed}")
        return f"[worker 0] seed {seed}\n"


def test_each_run_of_an_example_has_its_seed(monkeypatch, capsys):
    """Catches: results that miss a run or a fact, of another seed, time limit or flag."""
    stand_in, kept = Measured(monkeypatch), []
    monkeypatch.setattr(results, "keep_pictures", lambda *arguments: kept.append(arguments))
    measured = results.measure(LAUNCHER, 3, True)
    due = [["bash", str(LAUNCHER), "--seed", str(seed)] for seed in range(3)]
    assert (stand_in.commands, stand_in.anyway) == (due, [True])
    assert stand_in.more == [{"TFRUN_TIMEOUT": "600"}] * 3
    assert [run["updates"] for run in measured["runs"]] == [100, 101, 102]
    assert [run["seconds"] for run in measured["runs"]] == [3, 3, 3]
    assert measured["output"] == ["[worker 0] seed 0"]
    assert measured["versions"]["tensorflow"] == "2.0" and "python" in measured["versions"]
    assert (measured["others"], measured["command"]) == (0.123, "bash run.sh --seed S")
    assert (measured["example"], measured["digest"]) == tuple(
        provenance.identity_of(LAUNCHER).values()
    )
    assert measured.keys() == examples.read_json(provenance.results_of(LAUNCHER)).keys()
    assert [arguments[1:] for arguments in kept] == [
        (LAUNCHER, examples.read(LAUNCHER.parent / "README.md"))
    ]
    assert "HogWild, seed 2: {'test_loss': 0.3" in capsys.readouterr().out


def test_flags_for_what_a_picture_shows(monkeypatch):
    """Catches: the flags of one example for another, and a command on the page without them."""
    stand_in = Measured(monkeypatch)
    monkeypatch.setattr(results, "keep_pictures", lambda *_: None)
    launcher = support.ROOT / "Model-Parallelism" / "run.sh"
    measured = results.measure(launcher, 1, False)
    assert stand_in.commands[0][2:] == ["--timeline-steps", "1000", "--seed", "0"]
    assert measured["command"] == "bash run.sh --timeline-steps 1000 --seed S"
    assert stand_in.anyway == [False]


def test_a_script_that_changes_meanwhile(monkeypatch):
    """Catches: results with the digest of a script that has not made all of them."""
    Measured(monkeypatch)
    monkeypatch.setattr(results, "keep_pictures", lambda *_: None)
    digests = iter("ab")
    monkeypatch.setattr(
        provenance, "identity_of", lambda _: {"example": "X", "digest": next(digests)}
    )
    with pytest.raises(ToolError, match="the script of HogWild changed while it ran"):
        results.measure(LAUNCHER, 1, True)


def test_which_pictures_are_kept(tmp_path, monkeypatch):
    """Catches: a picture of another launcher, one that no page shows, a trace not drawn."""
    drawn = []
    monkeypatch.setattr(
        results.subprocess, "run", lambda command, check: drawn.append((command, check))
    )
    run, example = tmp_path / "run", tmp_path / "Example"
    run.mkdir()
    example.mkdir()
    for name in "curves.png", "trace.png":
        (run / name).write_text(f"new {name}")

    def kept(launcher, page):
        results.keep_pictures(run, example / launcher, page)
        names = sorted(path.name for path in example.iterdir())
        for name in names:
            assert (example / name).read_text() == f"new {name}"
            (example / name).unlink()
        return names

    both = "![](curves.png) and ![](trace.png)"
    assert kept("run_supervisor.sh", both) == [] and not drawn
    assert kept("run.sh", "no picture but curves.png") == [] and not drawn
    assert kept("run.sh", "![](curves.png)") == ["curves.png"] and not drawn
    assert kept("run.sh", both) == ["curves.png", "trace.png"]
    tool = str(support.ROOT / "tfrun" / "bin" / "tfrun")
    assert drawn == [([sys.executable, tool, "trace", run], True)]


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """Returns the results of an example whose script has changed, and of two measurements."""
    own = provenance.identity_of(LAUNCHER)
    digest_files = [tmp_path / f"{n}_digests.json" for n in "ab"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**own, "digest": "before", "runs": [1]}))
    digest_files[0].write_text(json.dumps({"HogWild": "before", "ADAG": "before"}))
    digest_files[1].write_text(json.dumps({"HogWild": "older"}))
    monkeypatch.setattr(provenance, "results_of", lambda _: path)
    monkeypatch.setattr(examples, "tracked_files", lambda _: digest_files)
    return path, digest_files, own


def test_a_change_that_alters_no_number(committed):
    """Catches: new numbers, digests of other examples, and of what was outdated before."""
    path, digest_files, own = committed
    results.mark_unchanged(LAUNCHER)
    assert json.loads(path.read_text()) == {**own, "runs": [1]}
    assert path.read_text().startswith('{\n "example"') and path.read_text().endswith("}\n")
    assert json.loads(digest_files[0].read_text()) == {"HogWild": own["digest"], "ADAG": "before"}
    assert json.loads(digest_files[1].read_text()) == {"HogWild": "older"}


def test_a_variant_does_not_mark_the_measurements(committed):
    """Catches: the digest of a variant's results where other measurements ran run.sh."""
    path, digest_files, _ = committed
    launcher = provenance.launcher_of(MIRRORED)
    own = provenance.identity_of(launcher)
    path.write_text(json.dumps({**own, "digest": "before"}))
    digest_files[0].write_text(json.dumps({own["example"]: "before"}))
    results.mark_unchanged(launcher)
    assert json.loads(path.read_text()) == own
    assert json.loads(digest_files[0].read_text()) == {own["example"]: "before"}


def test_results_of_another_example_stay(committed):
    """Catches: --unchanged that adopts a file which was copied from another example."""
    path, digest_files, own = committed
    path.write_text(json.dumps({**own, "example": "ADAG", "digest": "before"}))
    with pytest.raises(ToolError, match="ADAG's results.json is shown on HogWild's page"):
        results.mark_unchanged(LAUNCHER)
    assert json.loads(digest_files[0].read_text())["HogWild"] == "before"


@pytest.fixture
def called(monkeypatch, tmp_path):
    """Returns what main() calls: [(function, arguments)]."""
    calls = []

    def noted(name, result=None):
        return lambda *arguments: calls.append((name, *arguments)) or result

    monkeypatch.setattr(results, "measure", noted("measure", {"runs": []}))
    monkeypatch.setattr(results, "mark_unchanged", noted("unchanged"))
    monkeypatch.setattr(results, "draw_again", noted("pictures"))
    monkeypatch.setattr(provenance, "results_of", lambda launcher: tmp_path / "written.json")

    def main(*words):
        monkeypatch.setattr(sys, "argv", ["results.py", *words])
        calls.clear()
        results.main()
        return list(calls)

    return main


def test_the_flags_of_results(called, tmp_path, capsys):
    """Catches: a flag that does another thing, or that one launcher gets and the next one not."""
    adag = support.ROOT / "ADAG" / "run.sh"
    assert called("HogWild", "ADAG") == [
        ("measure", LAUNCHER, 5, False),
        ("measure", adag, 5, False),
    ]
    assert (tmp_path / "written.json").read_text() == '{\n "runs": []\n}\n'
    (tmp_path / "written.json").unlink()
    assert called("HogWild", "--repeats", "3", "--anyway") == [("measure", LAUNCHER, 3, True)]
    assert called("HogWild", "ADAG", "--unchanged") == [
        ("unchanged", LAUNCHER),
        ("unchanged", adag),
    ]
    (tmp_path / "written.json").unlink()
    drawn = called("--pictures", "HogWild", MIRRORED, "ADAG", "--anyway")
    assert drawn == [("pictures", LAUNCHER, True), ("pictures", adag, True)]
    assert called("--pictures", "HogWild") == [("pictures", LAUNCHER, False)]
    assert not (tmp_path / "written.json").exists()  # neither measures again
    everything = [call[1] for call in called()]
    assert everything == [provenance.launcher_of(name) for name in provenance.measured_examples()]
    for words, reason in (
        (["HogWild", "--repeats", "2"], "--repeats must be at least 3"),
        (["--unchanged"], "--unchanged needs the examples"),
    ):
        with pytest.raises(SystemExit):
            called(*words)
        assert reason in capsys.readouterr().err


def test_a_machine_that_is_not_quiet(called, monkeypatch):
    """Catches: a traceback in place of the example and the reason."""

    def busy(*_):
        raise TimeoutError("others use 30% of a core")

    monkeypatch.setattr(results, "measure", busy)
    with pytest.raises(ToolError, match="^HogWild: others use 30% of a core$"):
        called("HogWild")


def test_a_picture_is_of_the_results_script(monkeypatch):
    """Catches: a picture of a script that has changed, or of more than one run."""
    calls = []
    monkeypatch.setattr(results, "measure", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(provenance, "check", lambda *arguments: calls.append(arguments))
    results.draw_again(LAUNCHER, True)
    measured = examples.read_json(LAUNCHER.with_name("results.json"))
    assert calls == [(measured, LAUNCHER), (LAUNCHER, 1, True)]


def test_what_a_page_says_of_runs():
    """Medians of an even number; the sample and the pictures are those of the seed 0.

    Catches: the sample of the last run, seconds that add up, and the lower of two middle
    values.
    """
    module = load("lab/pages/result_tables.py")
    assert module.spread([4, 1, 2, 9]) == "3.0 (1.0 to 9.0)"
    reported = {"x": ("words", "%.1f", 100), "y": ("others", "%d", 1)}
    runs = [{"x": x, "y": 1} for x in (0.4, 0.1, 0.2)] + [{"x": 0.9}]
    rows = [("words", "30.0", "10.0 to 90.0"), ("others", "1", "1 to 1")]
    assert module.medians(runs, reported) == rows
    module = load("lab/measure/results.py")
    kept, seeds = [], []

    def run(command, folder, **_):
        seeds.append(int(command[-1]))
        facts = {"versions": {"tensorflow": str(seeds[-1])}}
        (pathlib.Path(folder) / "result.json").write_text(json.dumps(facts))
        clock.tick(5 + seeds[-1])
        return f"[worker 0] seed {seeds[-1]}\nx\n[tfrun] {folder}\n"

    clock = Clock()
    module.time = clock
    module.run, module.summarize_run = run, lambda directory, seconds: {"seconds": seconds}
    module.keep_pictures = lambda directory, launcher, page: kept.append(seeds[-1])
    results = module.measure(support.ROOT / "HogWild" / "run.sh", 3, True)
    assert [run["seconds"] for run in results["runs"]] == [5, 6, 7]
    assert results["output"] == ["[worker 0] seed 0", "[tfrun] .../runs/HogWild/<time>"]
    assert (seeds, kept, results["versions"]["tensorflow"]) == ([0, 1, 2], [0], "0")
    lines = [f"[worker 0] update {n} of 5" for n in range(1, 6)]
    shown = module.sample("\n".join(["[tfrun] a", *lines, "noise", "[tfrun] /run"]), "/run", "X")
    assert shown == ["[tfrun] a", *lines[:2], "...", lines[-1], "[tfrun] .../runs/X/<time>"]
