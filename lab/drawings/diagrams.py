"""Draws the diagrams in docs/figures/: SVG that reads on light and on dark pages.

python lab/drawings/diagrams.py          check; exits with 1 and the names of what is out of date
python lab/drawings/diagrams.py --fix    write them
python lab/drawings/diagrams.py --pushes runs/HogWild/latest
                                  take pushes.json, of pushes.svg, from a run

The functions that draw them are in lab/drawings/, each under its @figure.
"""

import argparse
import importlib
import json
import pkgutil
import sys

from lab import drawings
from lab.drawings import real_pushes
from lab.drawings.shapes import DRAWN, FIGURES

for module in pkgutil.iter_modules(drawings.__path__):
    importlib.import_module("lab.drawings." + module.name)  # adds its figures to DRAWN


def main() -> bool:
    """Returns whether a figure is out of date, and was not written."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fix", action="store_true", help="write them")
    parser.add_argument("--pushes", metavar="RUN", help="a run directory, of which to draw pushes")
    flags = parser.parse_args()
    if flags.pushes:
        pushes = json.dumps(real_pushes.take(flags.pushes), indent=1)
        (FIGURES / "pushes.json").write_text(pushes + "\n")
    fix, stale = bool(flags.fix or flags.pushes), False
    for name, draw in DRAWN.items():
        path, svg = FIGURES / name, draw()
        if path.exists() and path.read_text() == svg:
            continue
        stale = True
        if fix:
            path.write_text(svg)
        print(f"{'written' if fix else 'out of date'}: docs/figures/{name}")
    return stale and not fix


if __name__ == "__main__":
    sys.exit(main())
