"""Reads and describes what a run has left, and what it is doing."""
