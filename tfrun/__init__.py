"""Launches a script as a cluster on this machine: `tfrun --ps 1 --workers 2 -- script.py`."""
