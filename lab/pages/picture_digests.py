"""Notes which code has drawn each picture, so that a test finds pictures of older code.

    python lab/pages/picture_digests.py               note the pictures that were drawn again
    python lab/pages/picture_digests.py PICTURE...    note these, too: the code draws them the same

tests/pictures.txt has a line for each PNG file: digests of the picture and of its code, its path.
"""

import hashlib
import itertools
import pathlib
import sys
from collections.abc import Iterable

from lab import digests, examples
from lab.examples import ROOT, ToolError, shown
from lab.measure import arguments

NOTES = ROOT / "tests" / "pictures.txt"
CHARTS = ["lab/measure/charts.py", "lab/measure/text_tables.py"]  # the second has medians
TIMELINE = [
    "tfrun/pictures/timeline.py",
    "tfrun/runs/activities.py",
    "tfrun/runs/data.py",
    "tfrun/runs/metrics_csv.py",
]
COMPARE = [f"Measurements/Compare/{name}.py" for name in ("drawing", "tables", "verdict")]
COMPARE += CHARTS
SAME_STALENESS = ["Measurements/Same-Staleness/same_staleness.py", *CHARTS]
CODE = {  # what draws a picture, by its path or name; another is drawn by the script beside it
    "Your-Model/loss.png": ["Your-Model/generate.py"],
    "curves.png": [
        "tfrun/formatting.py",
        "tfrun/pictures/curves.py",
        *TIMELINE,
    ],
    "trace.png": TIMELINE,
    **dict.fromkeys(
        ("front.png", "seconds.png", "laws.png", "loss.png", "local-steps.png"), COMPARE
    ),
    **dict.fromkeys(("same-rate.png", "pauses.png"), SAME_STALENESS),
    "loss-over-seconds.png": ["Measurements/Scale-Laboratory/scale_laboratory.py", *CHARTS],
}


def digest(path: pathlib.Path) -> str:
    """Returns the first 16 hexadecimal digits of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def code_digest(paths: Iterable[pathlib.Path]) -> str:
    """Returns such a digest of what these Python files do, which words do not change."""
    lines = [digests.code_lines(path).values() for path in paths]
    return digests.digest_of_lines(itertools.chain(*lines))


def current_digests() -> dict[str, tuple[str, str]]:
    """Returns {path of a picture: (digest of the picture, digest of its code)}."""
    pictures = {}
    for picture in examples.tracked_files("*.png"):
        path = picture.relative_to(ROOT).as_posix()
        beside = picture.with_name(picture.stem.replace("-", "_") + ".py").relative_to(ROOT)
        names = CODE.get(path) or CODE.get(picture.name, [beside.as_posix(), *CHARTS])
        code = [ROOT / name for name in names]
        if not all(path.is_file() for path in code):
            raise ToolError(
                f"{shown(picture)}: name the code that draws it in CODE in "
                "lab/pages/picture_digests.py"
            )
        pictures[path] = digest(picture), code_digest(code)
    return pictures


def noted_digests() -> dict[str, tuple[str, str]]:
    """Returns {path of a picture: (digest of the picture, digest of its code)} from the notes."""
    pictures = {}
    for line in examples.read(NOTES).splitlines():
        if line.count(" ") < 2:
            raise ToolError(f"{shown(NOTES)}: remove the line `{line}`, and run this again")
        picture, code, path = line.split(" ", 2)
        pictures[path] = picture, code
    return pictures


def main() -> None:
    """Writes the notes; what they say of a picture that is the same as before stays."""
    parser = arguments.Parser(__doc__)
    parser.add_argument("pictures", nargs="*", type=pathlib.Path, metavar="PICTURE")
    unchanged = [shown(path) for path in parser.parse_args().pictures]
    if unknown := examples.untracked_files("*.png"):
        names = " ".join(map(shown, unknown))
        raise ToolError(f"git does not know a picture yet: run git add {names}")
    pictures = current_digests()
    for path in unchanged:
        if path not in pictures:
            raise ToolError(f"{path} is no picture that git knows: check it, or run git add {path}")
    for path, old in noted_digests().items():
        if path in pictures and pictures[path][0] == old[0] and path not in unchanged:
            pictures[path] = old
    lines = [f"{picture} {code} {path}\n" for path, (picture, code) in pictures.items()]
    NOTES.write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(examples.exit_code(main))
