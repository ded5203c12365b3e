"""ADAG: as DOWNPOUR-Easy, but w <- w - lr * a / T."""

from common.references import Adag

REFERENCE = Adag
FLAGS = {"local_steps": 4}
DIFFERS = 5
MISTAKES = {"parameters": {"the sum instead of the mean": [(" / flags.local_steps", "")]}}
