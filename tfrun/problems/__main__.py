"""`python -m tfrun.problems FILE SCRIPT DIRECTORY`: prints the path of the copy."""

import pathlib
import sys

from tfrun.problems import install_problem

if __name__ == "__main__":
    try:
        directory = pathlib.Path(sys.argv[3]).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        print(install_problem(sys.argv[1], [sys.argv[2]], directory)[0])
    except (ValueError, OSError) as reason:
        sys.exit(str(reason))
