"""The regions that scripts share are the same text, and the tool that says so can fail."""

import shutil

import pytest
import regions
import support


def test_all_copies_are_the_same():
    found, copies = regions.problems()
    assert not found, "\n".join(found)
    assert copies >= 20
    assert set(regions.scripts()) >= {
        support.script_of(path)
        for path in support.launchers()
        if path.parent.parent == support.ROOT
    }


@pytest.mark.parametrize(
    "old, new",
    [
        ("with times in seconds", "with times in minutes"),
        ("PATIENCE = 30", "PATIENCE = 31"),
        ("# endregion: flags\n", ""),
        ("# endregion: flags\n", "# endregion: flag\n"),
        ("# region: flags\n", ""),
        ("# region: flags\n", "# Region: flags\n#region flags\n"),
        ("    time.sleep(0.1)\n", "    time.sleep(0.1) \n"),
        ("\n\ndef main():", "\n\ndef helper():\n    pass\n\n\ndef main():"),
        ("# region: batches\n", None),
        (None, None),
    ],
)
def test_a_difference_is_found(tmp_path, old, new):
    for script in regions.scripts():
        shutil.copytree(script.parent, tmp_path / script.parent.name, dirs_exist_ok=True)
    assert regions.problems(tmp_path)[0] == []
    victims = [tmp_path / "HogWild" / "hogwild.py"]
    if old is None:  # the script is gone
        victims[0].unlink()
        assert regions.problems(tmp_path)[0]
        return
    if new is None:  # both markers are gone
        text = victims[0].read_text().replace("# region: batches\n", "")
        victims[0].write_text(text.replace("# endregion: batches\n", ""))
        assert regions.problems(tmp_path)[0]
        return
    if "helper" in new:  # a function of the same name in two scripts, in no region
        victims.append(tmp_path / "Distributed-Setup" / "distributed_setup.py")
    for victim in victims:
        change(victim, old, new)
    assert regions.problems(tmp_path)[0]


def change(victim, old, new):
    """Replaces the first `old` in a file."""
    text = victim.read_text()
    assert old in text
    victim.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    "a, b",
    [
        (
            "Non-Distributed-Setup/non_distributed_setup.py",
            "Distributed-Setup/distributed_setup.py",
        ),
        ("Distributed-Setup/distributed_setup.py", "HogWild/hogwild.py"),
        ("HogWild/hogwild.py", "DOWNPOUR-Easy/downpour_easy.py"),
        ("DOWNPOUR-Easy/downpour_easy.py", "DOWNPOUR/downpour.py"),
        ("DOWNPOUR-Easy/downpour_easy.py", "DynSGD/dynsgd.py"),
        ("AEASGD/aeasgd.py", "AEAMSGD/aeamsgd.py"),
    ],
)
def test_neighbours_differ_little(a, b):
    """At most 40 lines come or go between two neighbours, their regions folded."""
    lines = regions.difference(support.ROOT / a, support.ROOT / b)
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert 5 < len(changed) <= 40, "\n".join(changed)


def test_adag_is_downpour_easy_but_for_a_line():
    lines = regions.difference(
        support.ROOT / "DOWNPOUR-Easy" / "downpour_easy.py", support.ROOT / "ADAG" / "adag.py"
    )
    changed = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert 2 <= len(changed) <= 5, "\n".join(changed)
