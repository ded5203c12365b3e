"""Draws the diagrams in figures/: SVG that reads on light and on dark pages.

python tools/diagrams.py          check; exits with 1 and the names of what is out of date
python tools/diagrams.py --fix    write them
python tools/diagrams.py --pushes runs/HogWild/latest
                                  take the pushes of pushes.svg from a run (figures/pushes.json)

The functions that draw them are in tools/drawings/.
"""

import importlib
import json
import pkgutil
import sys

import drawings
from drawings import (
    balls,
    elastic,
    overview,
    real_pushes,
    rings,
    schedules,
    servers,
    together,
    windows,
)
from drawings.shapes import FIGURES

DRAWN = {
    "architectures.svg": overview.architectures,
    "pushes.svg": real_pushes.pushes,
    "single.svg": servers.single,
    "distributed.svg": servers.distributed,
    "cluster.svg": servers.cluster,
    "sharding.svg": servers.sharding,
    "update.svg": servers.update,
    "balls.svg": balls.balls,
    "sparse.svg": servers.sparse,
    "strategy.svg": servers.strategy,
    "roles.svg": servers.roles,
    "timelines.svg": schedules.timelines,
    "dynsgd.svg": schedules.dynsgd,
    "pipeline.svg": schedules.pipeline,
    "failures.svg": schedules.failures,
    "window.svg": windows.window,
    "downpour.svg": windows.downpour,
    "adag.svg": windows.adag,
    "sagn.svg": windows.sagn,
    "spring.svg": elastic.spring,
    "momentum.svg": elastic.momentum,
    "sync.svg": together.sync,
    "replicas.svg": together.replicas,
    "rates.svg": together.rates,
    "towers.svg": together.towers,
    "collective.svg": rings.collective,
    "ring.svg": rings.ring,
    "horovod.svg": rings.horovod,
}
for module in pkgutil.iter_modules(drawings.__path__):
    if module.name.startswith("course_"):  # figures of the notebooks, listed where they are drawn
        DRAWN.update(importlib.import_module("drawings." + module.name).DRAWN)


def main():
    if sys.argv[1:2] == ["--pushes"]:
        pushes = json.dumps(real_pushes.take(sys.argv[2]), indent=1)
        (FIGURES / "pushes.json").write_text(pushes + "\n")
    fix, stale = sys.argv[1:2] in (["--fix"], ["--pushes"]), []
    for name, draw in DRAWN.items():
        path, made = FIGURES / name, draw()
        if not path.exists() or path.read_text() != made:
            stale.append(name)
            if fix:
                path.write_text(made)
    for name in stale:
        print("%s: figures/%s" % ("written" if fix else "out of date", name))
    return bool(stale) and not fix


if __name__ == "__main__":
    sys.exit(main())
