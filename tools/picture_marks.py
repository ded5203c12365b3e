"""Notes which code has drawn each picture, so that a test finds pictures of older code.

    python tools/picture_marks.py               note the pictures that were drawn again
    python tools/picture_marks.py PICTURE...    note these, too: today's code draws them the same

tests/pictures.txt has a line for each PNG file: digests of the picture and of its code, its path.
"""

import hashlib
import pathlib
import sys

import regions

NOTES = regions.ROOT / "tests" / "pictures.txt"
DRIVERS = "Measurements/drivers.py"
TIMELINE = [
    "tfrun/pictures/timeline.py",
    "tfrun/runs/activities.py",
    "tfrun/runs/data.py",
    "tfrun/runs/metrics_csv.py",
]
CODE = {  # what draws a picture, by its name; another is drawn by the script beside it
    "curves.png": [
        "tfrun/formatting.py",
        "tfrun/pictures/curves.py",
        *TIMELINE,
    ],
    "trace.png": TIMELINE,
    "compare.png": ["Measurements/Compare/compare.py", DRIVERS],
    "warm-up.png": ["Measurements/Compare/compare.py", DRIVERS],
    "drills.png": ["Operations/Fault-Tolerance/fault_tolerance.py"],
    "results.png": ["Beyond-One-Machine/Parallel-Experiments/report.py"],
}


def digest(*paths):
    """Returns the first 16 hexadecimal digits of the SHA-256 of these files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def today():
    """Returns {path of a picture: (digest of the picture, digest of its code)}."""
    marks = {}
    for picture in regions.tracked("*.png"):
        beside = picture.with_name(picture.stem.replace("-", "_") + ".py")
        code = [regions.ROOT / name for name in CODE.get(picture.name, [beside, DRIVERS])]
        marks[picture.relative_to(regions.ROOT).as_posix()] = digest(picture), digest(*code)
    return marks


def noted():
    """Returns the same from the notes."""
    lines = [line.split(" ", 2) for line in NOTES.read_text().splitlines()]
    return {path: (picture, code) for picture, code, path in lines}


def main(unchanged):
    """Writes the notes; what they say of a picture that is the same as before stays."""
    marks = today()
    for path, old in noted().items():
        if path in marks and marks[path][0] == old[0] and path not in unchanged:
            marks[path] = old
    lines = [f"{picture} {code} {path}\n" for path, (picture, code) in marks.items()]
    NOTES.write_text("".join(lines))


if __name__ == "__main__":
    paths = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
    main([path.relative_to(regions.ROOT).as_posix() for path in paths])
