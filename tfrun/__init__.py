"""Launches a script as a cluster on this machine: `tfrun --ps 1 --workers 2 -- script.py`."""

__version__ = "2.0.0.dev0"  # CITATION.cff and CHANGELOG.md repeat it
