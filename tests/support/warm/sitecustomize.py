"""Python imports this module at its start, from the PYTHONPATH of support.warm()."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import stand_in

sys.path.pop()
stand_in.main()
