"""Searches the best setting of an algorithm: which is tried next, and which is the best so far.

A point is a tuple: for each hyperparameter the number of a value on its ladder. A try is a dict:
point, seed, stage, reached (seconds to the target; None: never), loss at its end, ended (why), at
(when). First each hyperparameter is moved in large steps, with one seed each. Then the neighbours
of the best, a small step away, meet it with SEEDS seeds. Both go on until no neighbour is better.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

Point = tuple[int, ...]
Try = dict[str, Any]
Target = tuple[str, float | None]  # ("accuracy", 0.97), or ("loss", a number or None)
Evaluations = dict[str, list[Any]]  # what: its number at each test
Curve = Sequence[Sequence[float]]  # seconds, and the loss at each of them

SEEDS = 3  # that choose the setting
MOST_TRIES = 40  # tries of a search
LARGE_STEP = 3  # small steps of a rate in a large one
PATIENCE = 1.3  # times the best time, for a try that has one seed
LATE, TIME, REACHED = "late", "time", "reached"
DIVERGED, HOPELESS, FAILED = "diverged", "hopeless", "failed"
NEVER = (math.inf, math.inf)


class Hyperparameter(NamedTuple):
    """A rate, whose step k is the value base * 2**(k / 2), or one of a few values."""

    flag: str
    values: tuple[float, ...] | None  # None for a rate
    base: float
    start: int  # a step, or the place of a value
    highest: int | None  # None for a rate without a limit


class Next(NamedTuple):
    """What is tried next."""

    point: Point
    seed: int
    stage: int
    limit: float | None  # seconds after which a try without the target is no better than the best
    curve: Curve | None  # that of the best, where it never came to the target


def rate(flag: str, start: int, base: float = 0.1, highest: int | None = None) -> Hyperparameter:
    """Returns a Hyperparameter whose steps are a factor of 1.41 apart."""
    return Hyperparameter(flag, None, base, start, highest)


def ladder(flag: str, values: Sequence[float], start: float) -> Hyperparameter:
    """Returns a Hyperparameter with these values. start: one of them."""
    return Hyperparameter(flag, tuple(values), 0.0, values.index(start), len(values) - 1)


def value(hyperparameter: Hyperparameter, step: int) -> float:
    """Returns the value of a hyperparameter at a step."""
    if hyperparameter.values:
        return hyperparameter.values[step]
    return float(f"{hyperparameter.base * 2 ** (step / 2):.3g}")


def has_step(hyperparameter: Hyperparameter, step: int) -> bool:
    """Returns whether a hyperparameter has this step."""
    lowest = 0 if hyperparameter.values else -math.inf
    highest = math.inf if hyperparameter.highest is None else hyperparameter.highest
    return lowest <= step <= highest


def move(
    point: Point,
    hyperparameters: Sequence[Hyperparameter],
    number: int,
    steps: int,
    sums: bool = False,
) -> Point | None:
    """Returns the point after a move of one hyperparameter; None where its ladder ends.

    sums: whether T times more local steps push a sum that is T times larger: the learning rate,
    which is the first hyperparameter, then moves against it.
    """
    hyperparameter, after = hyperparameters[number], list(point)
    after[number] += steps
    if not has_step(hyperparameter, after[number]):
        return None
    if sums and hyperparameter.flag == "local-steps":
        factor = value(hyperparameter, after[number]) / value(hyperparameter, point[number])
        after[0] -= round(2 * math.log2(factor))
    return tuple(after)


def neighbours(
    point: Point, hyperparameters: Sequence[Hyperparameter], large: bool, sums: bool = False
) -> list[Point]:
    """Returns the points one step away: a large step or a small one.

    Of three hyperparameters or more only the rates take small steps: all would be too many tries.
    """
    points = []
    for number, hyperparameter in enumerate(hyperparameters):
        if hyperparameter.values and not large and len(hyperparameters) > 2:
            continue
        step = LARGE_STEP if large and not hyperparameter.values else 1
        points += [move(point, hyperparameters, number, sign * step, sums) for sign in (1, -1)]
    return [point for point in points if point is not None]


def score(tried: Try) -> tuple[float, float]:
    """Returns (seconds to the target, loss) of a try, by which the least is the best."""
    if tried["reached"] is not None:
        return tried["reached"], 0.0
    if tried["ended"] != TIME or tried["loss"] is None:
        return NEVER
    return math.inf, tried["loss"]


def latest(tries: Iterable[Try], stages: Collection[int] = (1, 2)) -> dict[Point, dict[int, Try]]:
    """Returns {point: {seed: its last try}}."""
    tries_by_point: dict[Point, dict[int, Try]] = {}
    for tried in tries:
        if tried["stage"] in stages:
            tries_by_point.setdefault(tuple(tried["point"]), {})[tried["seed"]] = tried
    return tries_by_point


def median_score(tries: Iterable[Try]) -> tuple[float, float]:
    """Returns the median seconds to the target of some tries, and their median loss."""
    scores = [score(tried) for tried in tries]
    median_seconds = statistics.median(seconds for seconds, _ in scores)
    if median_seconds < math.inf:
        return median_seconds, 0.0
    losses = [loss for seconds, loss in scores if seconds == math.inf]
    return median_seconds, statistics.median_low(losses)


def curve(tries: Iterable[Try]) -> Curve | None:
    """Returns (seconds, losses) of the best of some tries that lasted to the end, or None."""
    whole = [tried for tried in tries if tried["ended"] == TIME and tried["loss"] is not None]
    return min(whole, key=score)["curve"] if whole else None


def first_stage(
    tries: Sequence[Try], hyperparameters: Sequence[Hyperparameter], sums: bool
) -> Next | None:
    """Returns the Next of the stage with large steps; None after its end."""
    tried_at = {point: seeds[0] for point, seeds in latest(tries, (1,)).items()}
    start = tuple(hyperparameter.start for hyperparameter in hyperparameters)
    if not tried_at:
        return Next(start, 0, 1, None, None)
    best = min(tried_at, key=lambda point: score(tried_at[point]))  # of equals, the first
    if score(tried_at[best]) == NEVER:  # none is any good: all were too high
        if len(tried_at) > 2 and all(tried["ended"] == FAILED for tried in tried_at.values()):
            return None
        lowest = min(tried_at)
        return Next((lowest[0] - LARGE_STEP, *lowest[1:]), 0, 1, None, None)
    seconds, _ = score(tried_at[best])
    limit = PATIENCE * seconds if seconds < math.inf else None
    for point in neighbours(best, hyperparameters, True, sums):
        if point not in tried_at:
            return Next(point, 0, 1, limit, curve([tried_at[best]]))
    return None


def best_of(tries: Iterable[Try]) -> Point | None:
    """Returns the point with the best medians of those that have SEEDS seeds; None without any."""
    whole = {}
    for point, seeds in latest(tries).items():
        medians = median_score(list(seeds.values()))
        if len(seeds) >= SEEDS and all(is_known(tried, medians[0]) for tried in seeds.values()):
            whole[point] = medians
    return min(whole, key=whole.__getitem__) if whole else None


def is_known(tried: Try, seconds: float) -> bool:
    """Returns whether a try says what it would have become, for a best with these seconds.

    One that was ended as late has been as late as that, and perhaps no later.
    """
    return tried["ended"] != LATE or tried["at"] >= seconds


def second_stage(
    tries: Sequence[Try], hyperparameters: Sequence[Hyperparameter], sums: bool
) -> Next | None:
    """Returns the Next of the stage with small steps; None after its end."""
    best = best_of(tries)
    if best is None:
        tried_at = {point: seeds[0] for point, seeds in latest(tries, (1,)).items()}
        best = min(tried_at, key=lambda point: score(tried_at[point]))
        if score(tried_at[best]) == NEVER:
            return None
        tried_seeds = latest(tries)[best]
        seed = next(seed for seed in range(SEEDS) if seed not in tried_seeds)
        return Next(best, seed, 2, None, None)
    tries_at = latest(tries)
    best_score = median_score(list(tries_at[best].values()))
    limit = best_score[0] if best_score[0] < math.inf else None
    for point in neighbours(best, hyperparameters, False, sums):
        seeds = {
            seed: tried
            for seed, tried in tries_at.get(point, {}).items()
            if is_known(tried, best_score[0])
        }
        worse = sum(score(tried) > best_score for tried in seeds.values())
        if worse > SEEDS // 2:  # whatever the others say, the median is worse
            continue
        missing = [seed for seed in range(SEEDS) if seed not in seeds]
        if missing:
            return Next(point, missing[0], 2, limit, curve(tries_at[best].values()))
    return None


def next_try(
    tries: Sequence[Try], hyperparameters: Sequence[Hyperparameter], sums: bool = False
) -> Next | None:
    """Returns the Next try of a search, None after the last one."""
    if not hyperparameters or len(tries) >= MOST_TRIES:
        return None
    return first_stage(tries, hyperparameters, sums) or second_stage(tries, hyperparameters, sums)


def choose(tries: Sequence[Try]) -> Point | None:
    """Returns the best point of a search; None where no try was any good."""
    if (best := best_of(tries)) is not None:
        return best
    score_at = {point: median_score(list(seeds.values())) for point, seeds in latest(tries).items()}
    best = min(score_at, key=score_at.__getitem__, default=None)
    return None if best is None or score_at[best] == NEVER else best


def at_the_edge(
    tries: Sequence[Try], hyperparameters: Sequence[Hyperparameter], sums: bool = False
) -> bool:
    """Returns whether a search ended before the neighbours of its best were all known."""
    return choose(tries) is not None and bool(
        first_stage(tries, hyperparameters, sums) or second_stage(tries, hyperparameters, sums)
    )
