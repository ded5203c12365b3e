"""The seconds of communication in a ring and with a parameter server, which `tfrun plan` needs.

    n workers, P servers
    S  bytes of w, or of a gradient
    B  bytes a second of a worker's or server's link, each way at once
    a  seconds that a message takes beside its bytes

The functions return seconds of communication, and raise ValueError for what makes no sense. For
one worker nothing travels, except to a parameter server. How much of it a worker's computing hides,
and what other schemes would take, is what Measurements/Scale-Laboratory compares.
"""

from tfrun.simulate.laws import number


def check_link(S: float, B: float, a: float) -> None:
    """Raises ValueError unless S and B are above 0 and a is at least 0; B may be infinite."""
    number("S", S)
    number("B", B, finite=False)
    number("a", a, 0)


def ring(n: int, S: float, B: float, a: float = 0.0) -> float:
    """2 (n - 1) messages of S / n. (Patarasuk & Yuan 2009) On a slow link within 3.2% of ours."""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    return 2 * (n - 1) / n * S / B + 2 * (n - 1) * a


def ps_together(n: int, S: float, B: float, a: float = 0.0, P: int = 1) -> float:
    """All workers pull at once, then all push: each way of a link idles half of the time."""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    number("P", P, 1, whole=True)
    return 2 * max(n / P, 1) * S / B + 2 * a


def ps_in_turn(n: int, S: float, B: float, a: float = 0.0, P: int = 1) -> float:
    """One worker after the other, so that one pushes while the next one pulls."""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    number("P", P, 1, whole=True)
    return max((n + 1) / P, 2) * S / B + 2 * a
