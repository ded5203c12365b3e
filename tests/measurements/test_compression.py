"""Compression: what it runs, the bytes that it counts, and its pictures; nothing trains."""

import types

import pytest
from measurements import figures, legend_of, load, points, trained


def test_the_bytes_of_compression():
    """The first run also counts them with 4 and 8 workers; half of what a row says is sent.

    Catches: bytes that are received, those of two workers for four, the last loss for a mean,
    and labels that are swapped.
    """
    module, calls = load("Compression"), []
    module.forked = trained(calls)
    module.summarize_run = lambda ended, place: {"kilobytes": {}}
    module.example_runs.pushes = lambda place: [{"bytes": 2000 * int(place.name)}, {"bytes": 0}]
    flags = types.SimpleNamespace(updates=70)
    case = module.Case("", "Ring-AllReduce", ["--a", 1], True)
    counted = [module.measure(case, repeat, flags)["kilobytes"] for repeat in (0, 1)]
    assert counted == [{"4": 2.0, "8": 4.0}, {}]
    started = [(jobs["worker"], row["--steps"], row["--seed"], row["--a"]) for jobs, row in calls]
    assert started == [(2, 70, 0, 1), (4, 20, 0, 1), (8, 20, 0, 1), (2, 70, 1, 1)]
    losses = [{"losses": [9] * 18 + [3, 1]}, {"losses": [5, 4]}]
    assert [module.last_losses(run) for run in losses] == [2, 4]
    drawn = figures(module)
    runs = [{"updates": [1, 2], "losses": [n, n + 1]} for n in (1, 5)]
    module.draw({"sign: x": runs, "sign, without e: x": runs[:1], "none: x": runs[1:]}, None, None)
    lines = [(line.get_label(), points(line)) for line in drawn[0].axes[0].lines]
    assert lines == [
        ("no compressor", [(1, 5), (2, 6)]),
        ("with its error e", [(1, 1), (2, 2)]),
        ("with its error e", [(1, 5), (2, 6)]),
        ("without e", [(1, 1), (2, 2)]),
    ]


def test_each_run_of_compression():
    """Catches: a flag of another compressor, and e where the name says without."""
    module, calls = load("Compression"), []
    module.forked = trained(calls)
    module.summarize_run = lambda *given: {"kilobytes": {}}
    module.example_runs.pushes = lambda place: [{"bytes": 1}]
    due = {"none": {}, "PowerSGD, rank 1": {"--rank": 1}, "PowerSGD, rank 4": {"--rank": 4}}
    due |= {f"top {x}%": {"--compress": "top-k", "--top": x / 100} for x in (1, 0.1)}
    due |= {"sign": {"--compress": "sign"}, "QSGD": {"--compress": "qsgd"}}
    flags = types.SimpleNamespace(updates=70)
    for case in module.all_cases():
        name = case[0].partition(": ")[0]
        without = name.endswith(", without e")
        del calls[:]
        module.measure(case, 0, flags)
        assert len(calls) == (1 if without else 3)
        for number, (_, row) in enumerate(calls):
            more = {"--forget-error": 1} if without else {}
            own = {"--steps": 20 if number else 70, "--seed": 0}
            assert row == {**own, **due[name.removesuffix(", without e")], **more}


@pytest.mark.parametrize("trained", [True, False])
def test_compression_counts_what_a_worker_sends(trained, tmp_path, monkeypatch):
    """Catches: what is received that counts as sent, the sum of all workers, another last part."""
    compression = load("Compression")
    monkeypatch.setattr(compression, "POINTS", 2)
    columns = "global_step", "loss", "bytes"
    rows = [(1, 4, 900), (2, 3, 900), (3, 2, 900), (4, 1, 900)]
    rows += [(step, loss + 1, 1100) for step, loss, _ in rows]  # the other worker's
    pushes = [dict(zip(columns, row)) for row in rows]
    tests = [{"test_loss": 0.9, "test_accuracy": 0.5}, {"test_loss": 0.5, "test_accuracy": 0.8}]
    monkeypatch.setattr(compression.example_runs, "pushes", lambda _: pushes)
    monkeypatch.setattr(compression.example_runs, "test_rows", lambda _: tests)
    assert compression.summarize_run(trained, tmp_path) == {
        "test_loss": 0.5 if trained else None,
        "test_accuracy": 0.8 if trained else None,
        "kilobytes": {"2": 0.5},
        "updates": [2, 4],
        "losses": [4.0, 2.0],
    }


def test_the_grid_of_compression():
    """A picture for each compressor that has an e, three in a row; the rest of the grid is empty.

    Catches: an empty picture that stays, a name over another's curves, and a legend that has each
    run.
    """
    module = load("Compression")
    drawn = figures(module)
    run = {"updates": [1], "losses": [1]}
    biased = ["PowerSGD, rank 1", "PowerSGD, rank 4", "top 1%", "top 0.1%", "sign"]
    module.draw({f"{name}: x": [run, run] for name in [*biased, "none", "QSGD"]}, None, None)
    axes = drawn[0].axes
    assert [panel.get_title() for panel in axes if panel.get_visible()] == biased
    assert [len(axes), len(drawn[0].axes[0].get_gridspec().get_height_ratios())] == [6, 2]
    assert legend_of(drawn[0]) == ["no compressor", "with its error e"]
    assert [bool(panel.get_ylabel()) for panel in axes] == [True, False, False] * 2
    assert {panel.get_yscale() for panel in axes} == {"log"}
    module.draw({f"{name}: x": [run] for name in ("none", f"sign{module.WITHOUT_E}")}, None, None)
    assert [panel.get_title() for panel in drawn[1].axes if panel.get_visible()] == ["sign"]
    module.draw({"none: x": [run]}, None, None)
    assert [panel.get_visible() for panel in drawn[2].axes] == [False] * 3
