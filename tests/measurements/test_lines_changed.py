"""Lines-Changed: which lines it counts, of which programs."""

import pathlib
import re
import sys
import types

import pytest
from measurements import MEASUREMENTS, load

ONE = '''"""A docstring.

Of two lines.
"""

import a  # why
from b import c

x = "# no comment"  # but this is
# a line of its own
one(x)
two(x)

three(x)
'''


def test_the_lines_that_change(tmp_path):
    """Lines that say something, and which of them a second program adds, changes and takes away.

    Catches: comments and empty lines that count, a change that counts as two, and lines of the
    docstring.
    """
    module = load("Lines-Changed")
    module.PROGRAMS = tmp_path
    texts = {"one": ONE, "same": ONE.replace("  # why", "").replace("\n\nthree", "\nthree")}
    texts["more"] = ONE.replace("two(x)", "two(y)\nand(y)\nmore(y)")
    texts["less"] = ONE.replace("one(x)\ntwo(x)\n", "two(z)\n").replace("import a", "import d")
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    due = ["import a", "from b import c", 'x = "# no comment"', "one(x)", "two(x)", "three(x)"]
    assert module.lines_of("one") == due
    changes = [module.count_changes("one", name) for name in ("one", "same", "more", "less")]
    assert changes == [(0, 0, 0), (0, 0, 0), (2, 1, 0), (0, 2, 1)]
    assert module.count_changes("more", "one") == (0, 1, 2)


def test_the_programs_whose_lines_are_counted(tmp_path, monkeypatch):
    """Both programs of a way run; one just below the accuracy ends the measurement.

    Catches: a program that is counted although nobody ran it, another one's launcher, and a way
    whose package is missing.
    """
    module, commands = load("Lines-Changed"), []
    output = {"loop_ps": "accuracy 0.5\naccuracy 0.9", "fit_strategy": "accuracy 0.875"}

    def run(command, folder):
        commands.append(command)
        assert pathlib.Path(folder).is_dir()
        return output.get(pathlib.Path(command[-1]).stem, "accuracy 0.85 or so")

    module.example_runs.run = run
    assert module.measure_accuracy("loop", ["python"]) == 0.85
    assert commands == [["python", str(module.PROGRAMS / "loop.py")]]
    for wrong in ("accuracy 0.849", "no number", "accuracy 0.8\naccuracy 0.9"):
        output["loop"] = wrong
        with pytest.raises(SystemExit, match=r"loop.py ends with accuracy .*not 0.85"):
            module.measure_accuracy("loop", ["python"])
    output["loop"] = "accuracy 0.9"
    output["loop_ps"] = "accuracy 0.95"
    module.example_runs.output_directory = lambda name: tmp_path
    module.importlib = types.SimpleNamespace(
        util=types.SimpleNamespace(find_spec=lambda name: name != "torch"),
        metadata=types.SimpleNamespace(
            distributions=lambda: [
                types.SimpleNamespace(name=name, version=f"{n}.5")
                for n, name in enumerate(("Torch", "tensorflow_cpu", "other"))
            ]
        ),
    )
    assert module.versions() == ["tensorflow-cpu 1.5", "torch 0.5"]
    monkeypatch.setattr(sys, "argv", ["a script"])
    del commands[:]
    module.main()
    stems = [[*command[:-1], pathlib.Path(command[-1]).stem] for command in commands]
    horovod = "horovodrun --gloo -np 2 python loop_horovod".split()
    assert stems == [
        *(["python", "fit"], ["python", "fit_strategy"]),
        *(["python", "loop"], horovod),
        *(["python", "loop"], ["tfrun", "--workers", "2", "--", "loop_strategy"]),
        *(["python", "loop"], "tfrun --workers 2 --ps 1 -- loop_ps".split()),
    ]
    text = (tmp_path / "table.txt").read_text()
    page = (MEASUREMENTS / "Lines-Changed" / "table.txt").read_text()
    heads = [re.search("^ way .*$", of, re.MULTILINE)[0].split() for of in (text, page)]
    assert heads[0] == heads[1]
    form = re.compile(r"^ (\S.*?)  +(\d+) +(\d+) +(\d+) +(\d+) +(0\.\d\d)$", re.MULTILINE)
    table, due = ({row[0]: row[1:] for row in form.findall(of)} for of in (text, page))
    assert list(table) == [name for name in due if name != "PyTorch's DDP"] and len(due) == 5
    assert all(table[name][:4] == due[name][:4] for name in table)
    # The lines of PyTorch's programs, which no package is needed for.
    ddp = [len(module.lines_of("torch_loop")), *module.count_changes("torch_loop", "torch_ddp")]
    assert [str(number) for number in ddp] == list(due["PyTorch's DDP"][:4])
    assert (
        table["functions of a ps"][4] == "0.95" and table["fit with MirroredStrategy"][4] == "0.88"
    )
    assert "PyTorch's DDP is left out: there is no torch" in text
    assert "\nlines: of the program for one process; 2" in text and "torch 0.5" in text
