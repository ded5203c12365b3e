"""lab/measure/charts.py: the form of a picture, and bars."""

import hashlib

import matplotlib.colors
import matplotlib.image
import pytest
from lab.measure import charts
from measurements import load, points

SHARED = "lab/measure/charts.py"


def test_a_picture_names_its_results(tmp_path):
    """Its width in dots, and the digest of the results that it shows.

    Catches: a digest of another file, by which a picture of older results would pass.
    """
    source, path = tmp_path / "results.json", tmp_path / "x.png"
    source.write_text("[1]")
    figure, axes = charts.subplots(2.5, 1, 2, squeeze=False)
    assert axes.shape == (1, 2) and not axes[0][0].spines["top"].get_visible()
    assert not axes[0][0].spines["right"].get_visible() and axes[0][0].spines["left"].get_visible()
    charts.save(figure, path, source)
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
    monkeypatch.setattr(charts, "save", lambda *given: drawn.append(given))
    values = {"a": [3.0, 1.0], "b\nb": [10.0, 5.0, 6.0], "c": [4.0]}
    colours = {"a": "C0", "b\nb": "C1", "c": "C2"}
    charts.bars("a title", "a label", values, colours, "<{:g}>".format, "path", "source")
    ((figure, *paths),) = drawn
    (axes,) = figure.axes
    assert paths == ["path", "source"]
    assert [text.get_position() for text in axes.texts] == [(3.2, 0), (10.2, 1), (4.2, 2)]
    assert [text.get_text() for text in axes.texts] == ["<2>", "<6>", "<4>"]
    assert (axes.get_xlim(), axes.yaxis_inverted()) == ((0, 13), True)
    assert [text.get_text() for text in axes.get_yticklabels()] == list(values)
    assert list(axes.get_yticks()) == [0, 1, 2] == [bar.get_y() + 0.35 for bar in axes.patches]
    assert figure.get_figheight() == pytest.approx(1.1 + 0.1 * (4 + 5 + 4))
    faces = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert faces == [matplotlib.colors.to_hex(colour) for colour in colours.values()]
    assert [axes.get_title(loc="left"), axes.get_xlabel()] == ["a title", "a label"]
