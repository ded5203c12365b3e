"""How long a step takes, from compute, bytes, bandwidth and latency: a function for each scheme.

    n workers, P servers          c  seconds that a worker computes in a step
    S  bytes of w, or of a        B  bytes a second of a worker's or server's link, each way at once
       gradient                   a  seconds that a message takes beside its bytes

The functions return seconds of communication, which step_range() and fitted_step() add to c. They
raise ValueError for what makes no sense. For one worker nothing travels, except to a parameter
server.
ring(), ps_together() and ps_in_turn() are tfrun's, because `tfrun plan` needs them, too.

How much travels while a worker still computes is not known for a case of yours, so a step is a
range. Of 28 published efficiencies all lie in it, two points allowed; it is 10 to 18 points wide
in the median. A ps is known within a factor of two only. See Measurements/Scale-Laboratory.
"""

import math

from tfrun.simulate.cost import check_link, ps_in_turn, ps_together, ring
from tfrun.simulate.laws import number

BACKWARD = 2 / 3  # the share of c in which gradients come out, behind which they can travel


def check_step(c: float, communication: float) -> None:
    """Raises ValueError unless c is above 0 and communication takes 0 seconds or more."""
    number("c", c)
    number("communication", communication, 0)


def step_range(c: float, communication: float) -> tuple[float, float]:
    """Returns the seconds of a step, (lowest, highest): all hidden that has room in the backward
    pass, and nothing hidden."""
    check_step(c, communication)
    return c + max(0.0, communication - BACKWARD * c), c + communication


def fitted_step(c: float, communication: float) -> float:
    """Returns the seconds of a step by the two numbers that fitted published points best.

    72% of the communication is hidden, and 6.5% of c is lost whatever travels. Both come from
    Horovod's three points at 128 GPUs. On 25 other points the median error is 2.2%, the worst 28%
    (VGG over TCP), and 14 are within 5%. For one machine or another network it is a guess.
    """
    check_step(c, communication)
    return 1.065 * c + 0.28 * communication


def local(c: float, communication: float, T: int) -> float:
    """Returns the seconds of a mini-batch, where one of T is followed by communication.

    Against SlowMo (2019, table 2), T = 12: 275 ms, published 282 and 294.
    """
    check_step(c, communication)
    number("T", T, 1, whole=True)
    return c + communication / T


def halving_doubling(n: int, S: float, B: float, a: float = 0.0) -> float:
    """As many bytes as the ring, in 2 log2 n messages. (Thakur, Rabenseifner & Gropp 2005)"""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    return 2 * (n - 1) / n * S / B + 2 * math.ceil(math.log2(n)) * a


def tree(n: int, S: float, B: float, a: float = 0.0, pieces: int = 1) -> float:
    """Up a tree and down again, as one piece, or as many that follow each other."""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    number("pieces", pieces, 1, whole=True)
    return 2 * (math.ceil(math.log2(n)) + pieces - 1) * (S / pieces / B + a) if n > 1 else 0.0


def hierarchical(
    machines: int,
    inside: int,
    S: float,
    B: float,
    a: float = 0.0,
    B_inside: float = math.inf,
    a_inside: float = 0.0,
) -> float:
    """Reduce-scatter in each machine, `inside` rings of S / inside over its link, all-gather.

    inside: workers in a machine, which reach each other at B_inside bytes a second.
    """
    number("machines", machines, 1, whole=True)
    number("inside", inside, 1, whole=True)
    check_link(S, B, a)
    number("B_inside", B_inside, finite=False)
    number("a_inside", a_inside, 0)
    inside_machines = 2 * (inside - 1) / inside * S / B_inside + 2 * (inside - 1) * a_inside
    return inside_machines + ring(machines, S, B, a)


def gather(n: int, S: float, B: float, a: float = 0.0) -> float:
    """Each worker's S bytes go to all others: what is compressed but cannot be added up.

    What can be added up, as a low rank, travels by ring(), with S its compressed bytes.
    """
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    return (n - 1) * (S / B + a)


def sharded(n: int, S: float, B: float, a: float = 0.0, layers: int = 1) -> float:
    """ZeRO 3: all-gather of w forward and backward, reduce-scatter of g, for each of the layers.

    (Rajbhandari 2020)
    """
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    number("layers", layers, 1, whole=True)
    return 3 * (n - 1) / n * S / B + 3 * (n - 1) * layers * a


def ps_on_the_workers(n: int, S: float, B: float, a: float = 0.0, P: int = 1) -> float:
    """Synchronous, with P of the n machines as servers: a machine needs no link to itself."""
    number("n", n, 1, whole=True)
    check_link(S, B, a)
    number("P", P, 1, whole=True)
    return 2 * (n - 1) / P * S / B + 2 * a


def ps_asynchronous(
    n: int, c: float, S: float, B: float, a: float = 0.0, P: int = 1
) -> tuple[float, float]:
    """Returns the seconds between two updates, (lowest, highest): in turn, or all in step.

    Of 31 rows of ours 23 lie between, 5% allowed; seven of the eight others have two servers.
    """
    number("n", n, 1, whole=True)
    number("c", c)
    check_link(S, B, a)
    number("P", P, 1, whole=True)
    cycle = c + 2 * S / B + 2 * a
    return max(cycle / n, S / B / P), (c + ps_together(n, S, B, a, P)) / n


def schemes(
    n: int,
    c: float,
    S: float,
    B: float,
    a: float = 0.0,
    P: int = 1,
    T: int = 10,
    ratio: float = 100,
    inside: int = 8,
    B_inside: float = math.inf,
) -> dict[str, tuple[float, float]]:
    """Returns {scheme: (lowest, highest)}: seconds of a mini-batch of one worker.

    All workers take the same time. ratio: so many times fewer bytes with compression. inside:
    workers in a machine.
    """
    all_reduce = ring(n, S, B, a)
    in_turn, at_once = (f(n, S, B, a, P) for f in (ps_in_turn, ps_together))
    machines = math.ceil(n / inside)
    lowest, highest = ps_asynchronous(n, c, S, B, a, P)
    return {
        "ps, asynchronous": (n * lowest, n * highest),
        "ps, synchronous": (c + min(in_turn, at_once), c + max(in_turn, at_once)),
        "ring": step_range(c, all_reduce),
        "halving and doubling": step_range(c, halving_doubling(n, S, B, a)),
        "tree, 64 pieces": step_range(c, tree(n, S, B, a, 64)),
        "hierarchical": step_range(c, hierarchical(machines, min(n, inside), S, B, a, B_inside)),
        "ZeRO 3": step_range(c, sharded(n, S, B, a)),
        f"ring, {T} local steps": (step_range(T * c, all_reduce)[0] / T, local(c, all_reduce, T)),
        f"ring, 1/{ratio} of the bytes, added up": step_range(c, ring(n, S / ratio, B, a)),
        f"1/{ratio} of the bytes, gathered": step_range(c, gather(n, S / ratio, B, a)),
    }


def first_to_change(n: int, c: float, S: float, B: float, a: float = 0.0) -> dict[str, float]:
    """Returns {a change: how many times as fast the ring's step becomes}, the largest first.

    The step overlaps nothing, as in our examples.
    """
    seconds_usual = c + ring(n, S, B, a)
    seconds = {
        "a link twice as fast": c + ring(n, S, 2 * B, a),
        "a tenth of the latency": c + ring(n, S, B, a / 10),
        "full overlap": step_range(c, ring(n, S, B, a))[0],
        "10 local steps": local(c, ring(n, S, B, a), 10),
        "1/100 of the bytes": c + ring(n, S / 100, B, a),
        "halving and doubling": c + halving_doubling(n, S, B, a),
        "a worker twice as fast": c / 2 + ring(n, S, B, a),
    }
    speed_ups = {name: seconds_usual / seconds_changed for name, seconds_changed in seconds.items()}
    return dict(sorted(speed_ups.items(), key=lambda speed_up: -speed_up[1]))
