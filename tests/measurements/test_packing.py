"""Packing: what it asks for, and its milliseconds; nothing trains."""

import pathlib
import types

from measurements import SHARED_FLAGS, cells, committed, load, turned


def test_what_packing_asks_for():
    """Catches another default, a run without its flags, and sizes of packs of other cases."""
    module, commands = load("Packing"), []
    flags, cases, repeats, one, _, results = turned(module, "Packing")
    due = {"steps": 200, "repeats": 5, "batch_size": 64}
    assert (vars(flags), repeats) == ({**SHARED_FLAGS, **due}, 5)
    assert list(results) == list(committed("Packing"))

    def run(command, directory):
        commands.append(list(map(str, command)))
        commands[-1][4] = pathlib.Path(commands[-1][4]).read_text()
        directory.mkdir()
        (directory / "result.json").write_text('{"examples_per_second": 640, "workers": 2}')

    module.example_runs.run = run
    assert [one(case, 0) for case in cases] == [200] * 5
    texts = [command.pop(4) for command in commands]
    sizes = {"each tensor alone": "1", "packs of 4 MB": "4194304", "all in one": "0"}
    for case, text, command in zip(cases, texts, commands):
        name, when = case[0].split(", ")
        due = f"tfrun --workers 2 -- --steps 200 --batch-size 64 --bytes-per-pack {sizes[name]}"
        assert command == due.split()
        # All in one is the last of its kind: with one pack it makes no difference.
        waits = when.startswith("after") and name != "all in one"
        assert ("tf.control_dependencies(g)" in text) == waits
        assert 'keras.layers.Dense(1024, "relu") for _ in range(3)' in text
    colours = []
    module.charts.bars = lambda *given: colours.append(given[3])
    module.draw(dict.fromkeys((case[0] for case in cases), [40]), None, None)
    a, b, c, d, e = colours[0].values()
    assert a == b != c == d != e != a


def test_milliseconds_of_packing():
    """Both workers make a gradient in each step, and a bar is their number a second.

    Catches: the examples of one worker, one gradient a step, and a ratio to the first case.
    """
    module = load("Packing")

    def run(command, directory):
        directory.mkdir()
        (directory / "result.json").write_text('{"examples_per_second": 3200, "workers": 2}')

    module.example_runs.run, given = run, []
    flags = types.SimpleNamespace(steps=5, batch_size=64)
    assert module.milliseconds(0, True, flags) == 40
    module.charts.bars = lambda *values: given.append(values)
    times = {module.CASES[0][0]: [40, 20, 10, 50], module.CASES[-1][0]: [40.0]}
    module.draw(times, None, None)
    assert list(given[0][2].values()) == [[50, 100, 200, 40], [50]]
    assert given[0][4](50) == "50.0 (40.0 ms)"
    assert [row[1:] for row in cells(module.table_of(times))] == [
        ["30.0", "0.75"],
        ["40.0", "1.00"],
    ]
