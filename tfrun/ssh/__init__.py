"""Starts tasks on other hosts."""
