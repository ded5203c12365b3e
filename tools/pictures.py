"""Makes the pictures of READMEs again: runs each example and keeps curves.png and trace.png.

python tools/pictures.py HogWild DOWNPOUR Synchronous-SGD
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main(names):
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "OUTPUT_DIR": folder}
            subprocess.run(["bash", ROOT / name / "run.sh"], check=True, env=env)
            tfrun = [sys.executable, ROOT / "tfrun" / "bin" / "tfrun"]
            subprocess.run([*tfrun, "trace", folder], check=True)
            for picture in ("curves.png", "trace.png"):
                shutil.copy(pathlib.Path(folder) / picture, ROOT / name / picture)


if __name__ == "__main__":
    main(sys.argv[1:])
