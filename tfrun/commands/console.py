"""Tables on the screen, by rich."""

import os
import sys

from rich.console import Console


def console() -> Console:
    """Returns rich's console; what goes to no terminal is not cut to the width of one."""
    wide = {} if sys.stdout.isatty() or "COLUMNS" in os.environ else {"width": 200}
    return Console(highlight=False, markup=False, emoji=False, **wide)
