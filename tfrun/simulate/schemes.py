"""Who pushes when, and at which version of w: n workers on a clock, without any gradient.

    asynchronous   pull, compute, push; nobody waits
    bounded        the same, but at most s updates ahead of the slowest worker
    synchronous    a step ends with the last gradient of n, or with the N-th (backup workers)
    queued         asynchronous; each pull and push waits for P parameter servers
    gossip         a worker averages with one other at a time; there is no common w

In goes `times`, [updates, n] seconds of each mini-batch, as laws.step_times() returns it; out comes
a Trace. laws.local_steps() makes T mini-batches one update, in any of them. A message takes no
time, but for the pauses, services and exchanges that you give. All functions raise ValueError for
what makes no sense.
"""

import collections
import heapq
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrun.simulate import laws
from tfrun.simulate.laws import check_times, number

# Arrays with an entry for each gradient that came to its end, in order of push. pull, push: seconds
# at which it began and ended. version: the updates that w had at the pull. step: the update of w
# that the gradient is part of, from 0; -1 if it came too late and was dropped.
Trace = collections.namedtuple("Trace", "worker pull push version step")
# An entry for each averaging, in order of time; late: averagings by others that moved the worker's
# w while it computed.
Pairs = collections.namedtuple("Pairs", "worker partner pull push late")


def asynchronous(times: np.ndarray, pause: float | np.ndarray = 0.0, gather: int = 1) -> Trace:
    """Each worker pulls, computes, pushes, and pulls again `pause` seconds later. (Recht 2011)

    pause: seconds, a number or [updates, n]. gather: K pushes make one update of w, whose workers
    go on at once (K-batch-async, Dutta 2018).
    """
    times, gather = check_times(times), number("gather", gather, 1, whole=True)
    if not (np.isfinite(pause) & (np.asarray(pause) >= 0)).all():
        raise ValueError("pause must be a number of seconds of at least 0")
    push = np.cumsum(times + pause, axis=0) - pause
    return in_order(push - times, push, np.broadcast_to(np.asarray(pause) > 0, push.shape), gather)


def bounded(
    times: np.ndarray, s: int, notice: Callable[[np.ndarray], Any] = lambda waited: waited
) -> Trace:
    """A worker that has made c updates waits until all have made c - s. (Ho et al. 2013)

    notice(seconds until the wait may end): seconds until the worker knows, where it has to ask. No
    queue of events is needed: when all have made c - s is known before anyone begins its c-th. The
    staleness is at most (2 s + 1)(n - 1), because s counts the updates of a worker, not those of w.
    """
    times, s = check_times(times), number("s", s, 0, whole=True)
    updates, n = times.shape
    pull, push = np.empty_like(times), np.empty_like(times)
    all_made = np.zeros(updates + 1)  # seconds at which all have made so many
    last = np.zeros(n)
    for c in range(updates):
        waited = np.maximum(all_made[max(0, c - s)] - last, 0)
        pull[c] = last + np.where(waited > 0, notice(waited), 0)
        last = push[c] = pull[c] + times[c]
        all_made[c + 1] = last.max()
    freed = all_made[np.maximum(np.arange(updates) - s, 0)][:, None]
    return in_order(pull, push, (freed >= np.vstack([np.zeros(n), push[:-1]])) & (freed > 0))


def in_order(pull: np.ndarray, push: np.ndarray, after: np.ndarray, gather: int = 1) -> Trace:
    """Returns the Trace of asynchronous pushes, until the first worker has made its last one.

    pull, push: seconds, [updates, n]. after: [updates, n], whether a pull sees all that has come
    until its time. Where not, it follows the worker's own push at once, and sees none of those that
    come at that same moment: with constant times that decides between n - 1 and (n - 1) / 2.
    """
    n = push.shape[1]
    order = np.argsort(push, axis=None, kind="stable")
    whole = push.ravel()[order]
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    version = np.vstack([np.zeros(n, np.int64), rank.reshape(push.shape)[:-1] + 1])
    if after.any():
        version[after] = np.searchsorted(whole, pull[after], side="right")
    order = order[: np.searchsorted(whole, push[-1].min(), side="right")]
    step = np.arange(len(order)) // gather
    seen = version.ravel()[order] // gather
    return Trace(order % n, pull.ravel()[order], push.ravel()[order], seen, step)


def synchronous(times: np.ndarray, needed: int | None = None, late: str = "dropped") -> Trace:
    """A step begins when w has moved, and ends with the `needed`-th gradient of n, by default all.

    late: what happens to the other gradients. "dropped": each is computed to its end, for nothing,
    and only then does its worker join the step of that time, as in Synchronous-SGD and in
    TensorFlow's optimizer. "cancelled": they stop at once (Chen 2016); only then does a step take
    H_n - H_{n-N} with exponential times. "kept": it counts in a later step, with its old version
    (K-async, Dutta 2018).
    """
    steps, n = (times := check_times(times)).shape
    needed, own = number("needed", needed or n, 1, whole=True), np.arange(n)
    if needed > n or late not in ("dropped", "cancelled", "kept"):
        raise ValueError(f"{needed} of {n} gradients, late ones {late}: that is no scheme")
    free, used, now, rows = np.zeros(n), np.ones(n, bool), 0.0, []
    pull, end, version, completed = np.zeros(n), np.zeros(n), np.zeros(n, int), np.zeros(n, int)
    for step in range(steps):
        begins = used if late == "kept" else np.ones(n, bool)
        pull = np.where(begins, np.maximum(free, now), pull)
        # The i-th mini-batch of a worker takes the same time in all schemes.
        end = np.where(begins, pull + times[completed, own], end)
        version = np.where(begins, step, version)
        order = np.argsort(end, kind="stable")
        now = end[order[needed - 1]]
        used = np.zeros(n, bool)
        used[order[:needed]] = True
        begun = pull < now  # a worker that is busy with an older gradient has not begun
        completed += begins & begun if late != "kept" else used
        if late == "dropped":
            free = np.where(begun, end, free)
        shown = order[begun[order]] if late == "dropped" else order[:needed]
        joined = np.where(used[shown], step, -1)
        rows.append((shown, pull[shown], end[shown], version[shown], joined))
    return Trace(*(np.concatenate(column) for column in zip(*rows)))


def queued(
    times: np.ndarray,
    pull: float = 0.0,
    push: float = 0.0,
    servers: int = 1,
    law: str = "constant",
    seed: int = 0,
    pause: float = 0.0,
) -> Trace:
    """Asynchronous, where each server has 1/P of w and serves one message after the other.

    pull, push: seconds that one server alone takes to send w, and to take a gradient and move w; it
    sends while it receives. law: that of these services. pause: seconds from a push to the next
    pull, in which no server is busy. A closed network of queues, so here events are needed: one for
    each message, in order of their arrival.
    """
    times, servers = check_times(times), number("servers", servers, 1, whole=True)
    pull, push, pause = number("pull", pull, 0), number("push", push, 0), number("pause", pause, 0)
    updates, n = times.shape
    if law == "constant":  # the P queues are all the same at all times: one stands for them
        pull, push, servers = pull / servers, push / servers, 1
    pull, push = pull / servers, push / servers
    random = laws.stream(seed, 0, purpose=1)
    draws: list[float] = []
    receiving, sending = [0.0] * servers, [0.0] * servers  # seconds at which each is free
    compute, completed = times.T.tolist(), [0] * n
    pulled, pushed = ([[np.inf] * updates for _ in range(n)] for _ in range(2))
    events = [(0.0, k, False) for k in range(n)]
    while True:
        now, k, pushing = events[0]
        free, seconds = (receiving, push) if pushing else (sending, pull)
        end = now
        if seconds:
            for p in range(servers):
                draws = draws or laws.LAWS[law][1](random, 9999, laws.LAWS[law][0]).tolist()
                free[p] = max(free[p], now) + seconds * draws.pop()
                end = max(end, free[p])
        if pushing:
            pushed[k][completed[k]] = end
            completed[k] += 1
            if completed[k] == updates:
                break
        if pushing and pull + pause:
            heapq.heapreplace(events, (end + pause, k, False))
        else:
            pulled[k][completed[k]] = end
            heapq.heapreplace(events, (end + compute[k][completed[k]], k, True))
    after = np.full((updates, n), pull + pause > 0)
    return in_order(np.array(pulled).T, np.array(pushed).T, after)


def gossip(times: np.ndarray, exchange: float = 0.0, ring: bool = False, seed: int = 0) -> Pairs:
    """After each mini-batch a worker averages with one other, by chance. (AD-PSGD, Lian 2018)

    exchange: seconds in which both are busy with it; the other one computes on, but nobody averages
    with two at a time, so a worker may wait for its partner. ring: only with one of its two
    neighbours. A worker that is lost still answers. One worker alone averages with nobody. Returns
    Pairs.
    """
    times, exchange = check_times(times), number("exchange", exchange, 0)
    updates, n = times.shape
    if n == 1:
        push, none = np.cumsum(times[:, 0]), np.zeros(updates, int)
        return Pairs(none, none, push - times[:, 0], push, none)
    high = 2 if ring else n - 1
    drawn = [laws.stream(seed, k, purpose=2).integers(high, size=updates) for k in range(n)]
    partner, own = np.stack(drawn, axis=1), np.arange(n)
    partner = (own + 2 * partner - 1) % n if ring else partner + (partner >= own)
    compute, partner = times.T.tolist(), partner.T.tolist()
    busy, began, late, completed = [0.0] * n, [0.0] * n, [0] * n, [0] * n
    events, pairs = [(compute[k][0], k) for k in range(n)], []
    heapq.heapify(events)
    while True:
        now, k = events[0]
        j = partner[k][completed[k]]
        busy[k] = busy[j] = end = max(now, busy[k], busy[j]) + exchange
        pairs.append((k, j, began[k], end, late[k]))
        began[k], late[k] = end, 0
        late[j] += 1
        completed[k] += 1
        if completed[k] == updates:
            break
        heapq.heapreplace(events, (end + compute[k][completed[k]], k))
    worker, other, pull, push, late = np.array(pairs).T
    return Pairs(worker.astype(int), other.astype(int), pull, push, late.astype(int))


def staleness(trace: Trace) -> np.ndarray:
    """Returns, for each gradient that moved w, the updates between its pull and its own."""
    return (trace.step - trace.version)[trace.step >= 0]


def rate(trace: Trace) -> float:
    """Returns the gradients a second that moved w, behind the step in which a tenth is reached.

    A rate must begin at the end of a step: otherwise it counts gradients, but not their time.
    """
    push, step = trace.push[trace.step >= 0], trace.step[trace.step >= 0]
    first = np.searchsorted(step, step[len(step) // 10], side="right") - 1
    if not push[-1] > push[first]:
        raise ValueError("a rate needs more updates: all of these come at one moment")
    return (len(push) - 1 - first) / (push[-1] - push[first])
