"""Assertions about numbers."""

import pytest


def fails_comparison(fails):
    """Passes where an assertion fails, one of whose lines begins with this name."""
    return pytest.raises(AssertionError, match=rf"(?m)^ *{fails}: ")


def within(what, known, value, tolerance):
    """Asserts that something is as it is known to be, to this share."""
    assert abs(value - known) <= tolerance * abs(known), (
        f"\n{what}: {value:.5g}, not {known:.5g}: {value / known - 1:+.1%} (±{tolerance:.2%})"
    )
