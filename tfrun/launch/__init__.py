"""Starts the tasks of a run on this machine."""
