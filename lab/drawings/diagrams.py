"""Draws the diagrams in docs/figures/: SVG that reads on light and on dark pages.

python lab/drawings/diagrams.py          check; exits with 1 and the names of what is out of date
python lab/drawings/diagrams.py --fix    write them
python lab/drawings/diagrams.py --pushes runs/HogWild/latest
                                  take pushes.json, of pushes.svg, from a run

The functions that draw them are in lab/drawings/, each under its @figure.
"""

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
    if sys.argv[1:2] == ["--pushes"]:
        pushes = json.dumps(real_pushes.take(sys.argv[2]), indent=1)
        (FIGURES / "pushes.json").write_text(pushes + "\n")
    fix, stale = sys.argv[1:2] in (["--fix"], ["--pushes"]), []
    for name, draw in DRAWN.items():
        path, svg = FIGURES / name, draw()
        if not path.exists() or path.read_text() != svg:
            stale.append(name)
            if fix:
                path.write_text(svg)
    for name in stale:
        print("{}: docs/figures/{}".format("written" if fix else "out of date", name))
    return bool(stale) and not fix


if __name__ == "__main__":
    sys.exit(main())
