"""`python -m tfrun` is the command tfrun."""

import sys

from tfrun import cli

if __name__ == "__main__":
    sys.exit(cli.main())
