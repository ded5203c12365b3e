"""What n workers would do, from what a run with a few has measured: `tfrun plan`.

The times of a gradient are drawn from those of the run. A run with a few workers does not tell how
long a ps would work on the messages of more, so each rate is a range. For its upper end, messages
wait for nothing but the link. For its lower end, the ps was busy for the whole time of each
message, and it serves one message after the other.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfrun.simulate import cost, laws, schemes
from tfrun.simulate.laws import number

PUSHES = 10000  # to simulate, about
LATENCY = {"s": 1, "ms": 1e-3, "us": 1e-6}
PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
BANDWIDTH = {f"{p}bit/s": f / 8 for p, f in PREFIXES.items()}
BANDWIDTH |= {f"{p}B/s": f for p, f in PREFIXES.items()}


class MeasuredRun(NamedTuple):
    """What a run has measured; seconds, bytes, mini-batches a second."""

    n: int  # workers
    servers: int
    together: bool  # whether all workers make a step together
    compute: np.ndarray  # seconds from each pull to its gradient
    pull: float  # median seconds from a push to the next pull
    send: float  # median seconds from a gradient to the end of its push, none waiting for others
    bytes: float  # that a worker sends and receives for an update
    batches: float  # mini-batches in an update of a worker
    backups: int = 0
    lead: int = 0  # updates that a worker may be ahead at most; 0: any


def quantity(text: str, units: Mapping[str, float]) -> float:
    """Returns "10Gbit/s" as bytes a second, "0.1ms" as seconds. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(\D\S*)\s*", text)
    if not match or match[2] not in units:
        raise ValueError(f"must be a number and one of {', '.join(units)}, is {text!r}")
    return float(match[1]) * units[match[2]]


def measure_run(
    pushes: Mapping[str, Mapping[str, np.ndarray]],
    servers: int,
    backups: int = 0,
    lead: int = 0,
    kind: str = "",
) -> MeasuredRun:
    """Returns the MeasuredRun of a run's rows: {task: {column: array}}. Raises ValueError.

    The first tenth of each task's rows does not count. Where several workers push for one update,
    they make it together, and who comes last has waited for nobody but the ps or the ring. kind:
    what the docstring of its script says after `Kind:`.
    """
    if kind.startswith("gossip"):
        raise ValueError("workers that gossip neither share a w nor a step: no plan for that")
    if not pushes or min(len(p["push_time"]) for p in pushes.values()) < 20:
        raise ValueError("a plan needs at least 20 updates of each worker")
    columns = "push_time", "pull_time", "wait_seconds", "global_step", "bytes", "local_steps"
    if any(np.isnan(p.get(name, np.nan)).any() for p in pushes.values() for name in columns):
        raise ValueError("a plan needs the columns " + ", ".join(columns) + " of each update")
    rows = [{c: p[c][len(p[c]) // 10 :] for c in columns} for p in pushes.values()]
    steps = np.concatenate([row["global_step"] for row in rows])
    is_synchronous = len(np.unique(steps)) < 0.75 * len(steps)
    gaps = np.concatenate([row["pull_time"][1:] - row["push_time"][:-1] for row in rows])
    whole = {name: np.concatenate([row[name] for row in rows]) for name in columns}
    send, waits = np.median(whole["wait_seconds"]), whole["wait_seconds"]
    if is_synchronous:
        send = np.median([waits[whole["global_step"] == step].min() for step in np.unique(steps)])
    compute = np.maximum(whole["push_time"] - whole["pull_time"] - waits, 1e-6)
    pull, sent, size = (
        max(0.0, float(np.median(values))) for values in (gaps, send, whole["bytes"])
    )
    batches = float(np.median(whole["local_steps"]))
    return MeasuredRun(
        len(rows), servers, is_synchronous, compute, pull, sent, size, batches, backups, lead
    )


def way_seconds(run: MeasuredRun, n: int, B: float, a: float) -> tuple[float, float]:
    """Returns the seconds that n workers together spend on the way of a step, (lowest, highest)."""
    half, own = max(run.bytes / 2, 1.0), run.pull + run.send
    if run.servers:
        link = sorted(f(n, half, B, a, run.servers) for f in (cost.ps_in_turn, cost.ps_together))
        more = n / run.n
    else:  # the bytes of w, from those on a link of the ring; its messages grow with n - 1
        link = [cost.ring(n, half * run.n / (2 * (run.n - 1)), B, a)] * 2
        more = (n - 1) / (run.n - 1)
    return own + link[0], own * max(1.0, more) + link[1]


def predict(
    run: MeasuredRun,
    n: int,
    B: float = np.inf,
    a: float = 0.0,
    seed: int = 0,
    times: np.ndarray | None = None,
) -> dict[str, Any]:
    """Returns {"rate": [lowest, highest] mini-batches/s, "staleness": mean updates, in the same
    order, "shares": {...}}.

    B: bytes a second of each link, a: seconds of a message; their time comes on top of what the run
    has measured. times: of the gradients of each worker, [updates, n], in place of draws from those
    of the run. shares: of a worker's time, where the rate is the lowest. Raises ValueError.
    """
    n, B = number("workers", n, 1, whole=True), number("bandwidth", B, finite=False)
    a, P, link = number("latency", a, 0), run.servers, run.bytes / 2 / B
    if not P and run.n == 1:
        raise ValueError("a worker alone sends nothing: plan from a run with two or more")
    if times is None:
        times = laws.step_times(run.compute, n, max(30, PUSHES // n), seed=seed)
    if run.together:
        on_the_way = way_seconds(run, n, B, a)
        needed = max(1, n - run.backups)
        traces = [schemes.synchronous(times + max(way, 1e-9), needed) for way in on_the_way]
    elif not P:
        raise ValueError("its workers neither share a ps nor make steps together: no plan for that")
    else:
        both = 2 * (a + link * (1 - 1 / P))  # a worker's own link carries all, that of a ps 1 / P
        way = run.pull + run.send + 2 * (a + link)
        on_the_way = way, way
        queue: dict[str, Any] = {
            "pull": run.pull * P + link,
            "push": run.send * P + link,
            "servers": P,
        }
        free: dict[str, Any] = {"pull": link, "push": link, "servers": P, "pause": run.pull}
        traces = [schemes.queued(times + both + run.send, **free)]
        traces.append(schemes.queued(times + both, **queue))
        if run.lead:
            own = (times + way for way in (on_the_way[0], on_the_way[0] * max(1, n / run.n)))
            traces = [schemes.bounded(seconds, run.lead - 1) for seconds in own]
    rates = [schemes.rate(trace) * run.batches for trace in traces]
    own_rate = min(rates) / run.batches / n  # updates of a worker a second
    shares = {"computing": own_rate * run.compute.mean(), "on the way": own_rate * on_the_way[1]}
    shares["waiting"] = max(0.0, 1 - sum(shares.values()))
    late = [float(schemes.staleness(trace).mean()) for trace in reversed(traces)]
    return {"rate": sorted(rates), "staleness": late, "shares": shares}


def first_to_change(
    run: MeasuredRun, n: int, B: float = np.inf, a: float = 0.0
) -> dict[str, float]:
    """Returns {a change: how many times as large the lowest rate becomes}, the largest first."""
    ten = laws.local_steps(laws.step_times(run.compute, 1, 5000), 10)[:, 0]
    changed = {
        "a gradient in half the time": (run._replace(compute=run.compute / 2), B, a),
        "times that do not vary": (run._replace(compute=run.compute.mean(keepdims=True)), B, a),
        "ten times the local steps": (run._replace(compute=ten, batches=10 * run.batches), B, a),
        "half the bytes": (run._replace(bytes=run.bytes / 2), B, a),
        "a tenth of the latency": (run, B, a / 10),
    }
    if P := run.servers:
        twice = run._replace(servers=2 * P, pull=run.pull / 2, send=run.send / 2)
        changed["twice as many ps"] = (twice, B, a)
    now = predict(run, n, B, a)["rate"][0]
    gains = {name: predict(r, n, B_, a_)["rate"][0] / now for name, (r, B_, a_) in changed.items()}
    return dict(sorted(gains.items(), key=lambda gain: -gain[1]))


def report_lines(
    run: MeasuredRun,
    name: str,
    n: int,
    prediction: Mapping[str, Any],
    gains: Mapping[str, float],
    link: str,
) -> list[str]:
    """Returns the lines of a plan: what was measured, what is assumed, and what follows.

    name: of the example. prediction, gains: from predict() and first_to_change(). link: in words.
    """
    spread = run.compute.std() / run.compute.mean()
    known = spread / run.compute.size**0.5
    way = "to the ps" if run.servers else "around the ring"
    low, high = prediction["rate"]
    for_whom = "the others" if run.together else "the ps"
    shares = ", ".join(f"{share:.0%} {what}" for what, share in prediction["shares"].items())
    best = [f"{change} ({gain:.2f} times as fast)" for change, gain in list(gains.items())[:2]]
    late = " to ".join(dict.fromkeys(f"{value:.1f}" for value in sorted(prediction["staleness"])))
    late = "none stale" if run.together else f"staleness {late}"
    return [
        f"measured:  {name}, {run.n} workers, {run.servers} ps; a gradient takes "
        f"{1e3 * run.compute.mean():.3g} ms (±{known:.1%}), varying by {spread:.0%}, and its "
        f"way {way} and back {1e3 * (run.pull + run.send):.3g} ms and {run.bytes / 1e3:,.0f} KB",
        f"assumed:   each worker on a machine as fast, its times by the same law; {link}",
        f"simulated: {n} workers make {low:,.1f} to {high:,.1f} mini-batches/s, {late}",
        f"a worker's time at {low:,.1f}: {shares} for {for_whom}",
        f"to change first, for speed alone: {best[0]}, then {best[1]}",
    ]
