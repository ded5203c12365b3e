"""What Compare's search tries, and how much it may, on runs made by hand with known answers.

Nothing trains here.
"""

import numpy as np
import pytest
from compared import SEARCH, tried
from measurements import load


def searched(module, hyperparameters, outcome, sums=False):
    """Returns the tries of a search where outcome(point, seed) is (seconds, loss) of a run."""
    tries = []
    while following := module.next_try(tries, hyperparameters, sums):
        point, seed, stage, limit, _ = following
        tries.append(tried(point, seed, stage, *outcome(point, seed), limit))
        assert len(tries) <= 40, "\nsearch: more than 40 runs"
    return tries


def test_the_search():
    """To the best of all settings, from afar, however few seeds are lucky, and never to an edge.

    Catches: a search that stops at an edge, tells of no edge, follows the luckiest seed or the
    greatest loss, skips its second stage, or keeps the rate of a mean for a sum.
    """
    module = load(SEARCH)
    lr, T = module.rate("learning-rate", 3), module.ladder("local-steps", (1, 3, 10, 30, 100), 10)

    def bowl(best, never=False):
        def outcome(point, seed):
            far = sum((a - b) ** 2 for a, b in zip(point, best))
            return (None, 0.1 + far / 50) if never else (1 + far / 10 + seed / 100, 0.1)

        return outcome

    for best in (-3, 2, 4, 9):
        for never in (False, True):
            tries = searched(module, [lr], bowl((best,), never))
            assert module.choose(tries) == (best,)
            assert not module.at_the_edge(tries, [lr])
            if best:
                assert module.at_the_edge(tries[:3], [lr])
    for best in ((3, 0), (-1, 2), (6, 4)):
        assert module.choose(searched(module, [lr, T], bowl(best))) == best
    # Above a rate all diverge, also where the search begins.
    steep = searched(module, [lr], lambda point, _: (None, None if point[0] > -4 else -point[0]))
    assert module.choose(steep) == (-4,)
    # Seed 0 is lucky at one rate, where the two others are late.
    lucky = {3: (1.0, 4.0, 4.0), 2: (2.0,) * 3, 4: (4.5,) * 3, 1: (2.5,) * 3}
    tries = searched(module, [lr], lambda point, seed: (lucky.get(point[0], (5.0,) * 3)[seed], 1))
    assert module.choose(tries) == (2,)
    # Nothing is any good: an end without a choice.
    assert module.choose(searched(module, [lr], lambda *_: (None, None))) is None
    # A late try is worse than a best that is sooner than that, and unknown beside a later one.
    late = tried((6,), 0, 1, 2.0, 1, limit=1.3)
    assert [module.is_known(late, seconds) for seconds in (1.0, 1.5)] == [True, False]
    # A sum of three times as many gradients is as long at a third of the rate.
    assert module.move((3, 1), [lr, T], 1, 1, sums=True) == (0, 2)
    assert module.move((3, 1), [lr, T], 1, 1) == (3, 2)
    assert module.move((3, 4), [lr, T], 1, 1) is None
    assert [module.value(lr, step) for step in (0, 1, 2, -2)] == pytest.approx(
        [0.1, 0.141, 0.2, 0.05]
    )


def test_the_budget():
    """No search has more than 40 runs, whatever it tunes; three seeds meet the best.

    Catches: a search without an end, and a setting that one seed has chosen.
    """
    module = load(SEARCH)
    hyperparameters = [module.rate("learning-rate", 3), module.rate("server-lr", 0)]
    hyperparameters.append(module.ladder("local-steps", (1, 3, 10, 30), 10))
    random = np.random.RandomState(0)

    def noisy(point, seed):
        return None, 1 + random.rand() / 9 + sum(abs(step - 30) for step in point[:2]) / 30

    tries = searched(module, hyperparameters, noisy)
    assert len(tries) == 40
    assert module.at_the_edge(tries, hyperparameters)
    quiet = searched(
        module, hyperparameters, lambda point, seed: (2 + abs(point[0] - 3) + point[1] ** 2, 1)
    )
    assert len(quiet) < 40
    best = module.choose(quiet)
    seeds = {attempt["seed"] for attempt in quiet if tuple(attempt["point"]) == best}
    assert seeds == {0, 1, 2}
