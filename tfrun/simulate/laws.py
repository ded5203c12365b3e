"""How long mini-batches take: laws of times, and a stream of random numbers for each worker.

`times` is always an array [updates, n] of seconds: how long the i-th mini-batch of worker k takes,
from its pull until its gradient is there. It is the same mini-batch in all schemes.
"""

import math
from typing import Any

import numpy as np

ONE_SLOW = "one slow"
# name: (shape, what draws numbers with the mean 1). `shape` means another thing in each law.
LAWS = {
    "constant": (0, lambda random, size, shape: np.ones(size)),
    # All but a share is constant, the rest exponential. Its standard deviation is that share.
    "jitter": (0.05, lambda random, size, v: 1 - v + v * random.exponential(size=size)),
    "exponential": (0, lambda random, size, shape: random.exponential(size=size)),
    # shape: the coefficient of variation, the standard deviation divided by the mean.
    "gamma": (0.3, lambda random, size, v: random.gamma(v**-2, v**2, size)),
    # shape: the standard deviation of the logarithm.
    "lognormal": (0.5, lambda random, size, s: random.lognormal(-s * s / 2, s, size)),
    # shape: the exponent of Pareto's law. Up to 2 the variance is infinite.
    "heavy-tailed": (2.5, lambda random, size, a: (1 - 1 / a) * (1 + random.pareto(a, size))),
    # A hundredth of all mini-batches take `shape` times as long as the others.
    "pauses": (20, lambda random, size, f: np.where(random.random(size) < 0.01, f, 1)),
    # The last worker takes `shape` times as long; the mean is that of the others.
    ONE_SLOW: (5, lambda random, size, shape: np.ones(size)),
}


def number(
    name: str, value: Any, least: float | None = None, whole: bool = False, finite: bool = True
) -> Any:
    """Returns a number; least: the smallest that is allowed, by default any above 0.

    Raises ValueError, in one line, for anything else: NaN, text, True, 2.5 where it must be whole.
    """
    good = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    good = good and (math.isfinite(value) or not finite and value == math.inf)
    good = good and (value > 0 if least is None else value >= least)
    if not good or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        bound = "above 0" if least is None else f"of at least {least}"
        raise ValueError(f"{name} must be {kind} {bound}, is {value}")
    return int(value) if whole else float(value)


def check_times(times: Any) -> np.ndarray:
    """Returns times as an array of floats. Raises ValueError unless all are finite and above 0."""
    times = np.asarray(times, float)
    if times.ndim != 2 or not times.size:
        raise ValueError(f"times must be an array [updates, n], has the shape {times.shape}")
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("each of the times must be a number of seconds above 0")
    return times


def stream(seed: int, k: int, purpose: int = 0) -> np.random.Generator:
    """Returns the random numbers of worker k: the same ones whatever n is.

    With one stream for all, a worker more would change the times of every other one. purpose: 0 for
    times; another number for what else the worker draws.
    """
    return np.random.Generator(np.random.Philox(key=[seed, k + (purpose << 32)]))


def step_times(
    law: Any,
    n: int,
    updates: int,
    mean: float | None = None,
    seed: int = 0,
    shape: float | None = None,
    slowness: float = 0.0,
) -> np.ndarray:
    """Returns the seconds of each mini-batch, [updates, n].

    law: a name in LAWS, or a list of measured seconds, from which each worker draws with
    replacement, as from a law of its own. mean: that of a usual worker, in seconds; by default 1,
    or that of the list. slowness: workers differ for good, by factors with the mean 1 whose
    logarithms have this standard deviation. Raises ValueError.
    """
    n, updates = number("n", n, 1, whole=True), number("updates", updates, 1, whole=True)
    slowness = number("slowness", slowness, 0)
    if isinstance(law, str):
        if law not in LAWS:
            raise ValueError(f"there is no law {law!r}; there are {', '.join(LAWS)}")
        default, draw = LAWS[law]
        shape = number("shape", shape, 1 if law == "heavy-tailed" else None) if shape else default
        if law == "heavy-tailed" and shape == 1 or law == "jitter" and shape > 1:
            raise ValueError(f"this law has no such mean with the shape {shape}")
        scale: float = number("mean", 1.0 if mean is None else mean)
        scale /= 0.99 + shape / 100 if law == "pauses" else 1
    else:
        known = check_times(np.reshape(law, (-1, 1)))[:, 0]
        scale = 1.0 if mean is None else number("mean", mean) / known.mean()

        def draw(random: np.random.Generator, size: int, shape: float) -> np.ndarray:
            return random.choice(known, size)

    times = scale * np.stack([draw(stream(seed, k), updates, shape) for k in range(n)], axis=1)
    if isinstance(law, str) and law == ONE_SLOW:
        assert shape is not None  # the law has a default
        times[:, -1] *= shape
    if slowness:
        normal = np.array([stream(seed, k, purpose=4).normal() for k in range(n)])
        times *= np.exp(slowness * normal - slowness**2 / 2)
    return times


def local_steps(times: np.ndarray, T: int) -> np.ndarray:
    """Returns the seconds of T mini-batches in a row, [updates // T, n]. Raises ValueError."""
    times, T = check_times(times), number("T", T, 1, whole=True)
    if len(times) < T:
        raise ValueError(f"{T} local steps need at least {T} mini-batches, there are {len(times)}")
    return times[: len(times) // T * T].reshape(-1, T, times.shape[1]).sum(axis=1)


def lose_worker(times: np.ndarray, k: int, i: int, away: float) -> np.ndarray:
    """Returns the times where worker k is lost in its i-th mini-batch, and comes back.

    away: seconds from the end that this mini-batch would have had to its end in the worker that has
    come back, which computes it again. Who waits for it is the scheme's affair. Raises ValueError.
    """
    times = check_times(times).copy()
    k, i = number("k", k, 0, whole=True), number("i", i, 0, whole=True)
    if k >= times.shape[1] or i >= len(times):
        raise ValueError(f"there is no mini-batch {i} of a worker {k}: times is {times.shape}")
    times[i, k] += number("away", away)
    return times
