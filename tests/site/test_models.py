"""The models of the explorables, in JavaScript, against the Python of which they are a port."""

import ast
import functools
import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import support
from lab.measure import step_cost
from scipy import special
from tfrun.simulate import cost, laws, schemes

pytestmark = [pytest.mark.long, pytest.mark.needs("node")]
STATIC = support.ROOT / "docs" / "site" / "static"
COURSE = support.ROOT / "Basics-Tutorial"
CALLER = """
const models = process.argv.slice(1).map((path) => require(path));
const plain = (key, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
const drain = (found) => {
  if (!found || !found.next) return found;
  for (let r; ; ) if ((r = found.next()).done) return r.value;
};
const found = JSON.parse(require("fs").readFileSync(0)).map(([name, args]) => {
  const model = models.find((each) => name.split(".")[0] in each);
  const value = name.split(".").reduce((of, part) => of[part], model);
  return typeof value === "function" ? drain(value(...args)) : value;
});
console.log(JSON.stringify(found, plain));
"""


def call(calls, folder=STATIC):
    """Returns what functions of the models return: calls is a list of (name, arguments)."""
    plain = {np.ndarray: lambda value: value.ravel().tolist()}
    text = json.dumps(calls, default=lambda value: plain[type(value)](value))
    models = [folder / f"{name}.js" for name in ("simulate", "learn", "schedule")]
    command = ["node", "-e", CALLER, *models]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def traces():
    """Yields (law, a call of JavaScript, the Trace of Python) on the same durations."""
    for law, n in (("exponential", 5), ("lognormal", 16), ("constant", 6), ("one slow", 8)):
        times = laws.step_times(law, n, 40, 0.1, seed=2)
        yield law, ("asynchronous", (times, n)), schemes.asynchronous(times)
        if law != "one slow":  # where rounding would decide who of several at one moment is first
            yield law, ("asynchronous", (times, n, 0.03)), schemes.asynchronous(times, 0.03)
        for s in (0, 2):
            yield law, ("bounded", (times, n, s)), schemes.bounded(times, s)
        if law in ("exponential", "lognormal"):  # as many seconds as no message takes
            options = {"pull": 1e-12, "push": 1e-12, "s": 2}
            yield law, ("queued", (times, n, options)), schemes.bounded(times, 2)
        for needed, late in ((n, "dropped"), (n - 1, "dropped"), (n - 2, "cancelled")):
            js = ("synchronous", (times, n, needed, late))
            yield law, js, schemes.synchronous(times, needed, late)
    for pull, push, pause in ((0.02, 0.01, 0), (0.01, 0.01, 0.005), (0, 0.03, 0)):
        times = laws.step_times("gamma", 7, 60, 0.1, seed=3, shape=0.6)
        options = {"pull": pull, "push": push, "pause": pause}
        yield "queue", ("queued", (times, 7, options)), schemes.queued(times, **options)


def rows(trace):
    """Returns a trace as rows in one order: gradients of a step have none of their own."""
    trace = trace if isinstance(trace, dict) else trace._asdict()
    columns = np.array([trace[name] for name in ("step", "worker", "version", "pull", "push")]).T
    return columns[np.lexsort((columns[:, 3], columns[:, 1], columns[:, 0]))]


def check_traces(folder=STATIC):
    cases = list(traces())
    actual = call([js for _, js, _ in cases], folder)
    for (law, js, python), trace in zip(cases, actual):
        a, b = rows(trace), rows(python)
        assert a.shape == b.shape, (law, js[0])
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9, err_msg=f"{law}, {js[0]}")
    late = call([("staleness", [actual[0]]), ("rate", [actual[0]])], folder)
    counts = np.bincount(schemes.staleness(cases[0][2]))
    assert [count or 0 for count in late[0]] == counts.tolist()
    assert math.isclose(late[1], schemes.rate(cases[0][2]), rel_tol=1e-9)


def check_gossip(folder=STATIC):
    cases = [("exponential", 0.0), ("exponential", 0.05), ("constant", 0.05)]  # constant: ties
    for law, exchange in cases:
        times = laws.step_times(law, 6, 30, 0.1, seed=4)
        python = schemes.gossip(times, exchange)
        # Which partner worker k drew for its i-th mini-batch; of those it did not reach, any.
        partner, exchanges = np.zeros(times.shape, int), np.zeros(6, int)
        for k, j in zip(python.worker, python.partner):
            partner[exchanges[k], k] = j
            exchanges[k] += 1
        (actual,) = call([("gossip", [times, 6, partner, exchange])], folder)
        for name in python._fields:
            np.testing.assert_allclose(actual[name], getattr(python, name), 0, 1e-9, err_msg=name)


def check_costs(folder=STATIC):
    pairs = {
        "step_range": "between",
        "fitted_step": "fitted",
        "local": "local",
        "ring": "ring",
        "halving_doubling": "halvingDoubling",
        "tree": "tree",
        "hierarchical": "hierarchical",
        "gather": "gather",
        "sharded": "sharded",
        "ps_together": "psTogether",
        "ps_in_turn": "psInTurn",
        "ps_on_the_workers": "psOnTheWorkers",
        "ps_asynchronous": "psAsynchronous",
    }
    calls, wanted = [], []
    for n, S, B, a in ((2, 7e4, 1.25e6, 1e-4), (5, 1e8, 1.25e9, 2e-5), (64, 5.5e8, 3e9, 0.0)):
        arguments = {
            "step_range": (0.3, S / B),
            "fitted_step": (0.3, S / B),
            "local": (0.3, S / B, 7),
        }
        arguments |= {"hierarchical": (n, 4, S, B, a, 5e10, 1e-6), "tree": (n, S, B, a, 8)}
        arguments |= {"sharded": (n, S, B, a, 12), "ps_asynchronous": (n, 0.2, S, B, a, 3)}
        for name, js in pairs.items():
            args = arguments.get(name, (n, S, B, a, 2) if name.startswith("ps") else (n, S, B, a))
            calls.append((f"cost.{js}", args))
            wanted.append(getattr(step_cost, name)(*args))
        case = {"n": n, "c": 0.2, "S": S, "B": B, "a": a}
        calls.append(("cost.schemes", [{**case, "P": 3, "inside": 4, "Bi": 5e10}]))
        wanted.append(step_cost.schemes(**case, P=3, inside=4, B_inside=5e10))
        calls.append(("cost.firstToChange", [case]))
        wanted.append(step_cost.first_to_change(**case))
    for (name, args), a, b in zip(calls, call(calls, folder), wanted):
        if isinstance(b, dict) and name == "cost.firstToChange":
            a = dict(a)
            assert list(a) == list(b)
        if isinstance(b, dict):
            assert set(a) == set(b)
            a, b = [a[key] for key in b], list(b.values())
        np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=f"{name}{args}")


def check_laws(folder=STATIC):
    """Compares samples by their distribution, and closed forms with known ones."""
    shapes = (0.25, 0.5, 1, 2)
    calls = [("stepTimes", [{"n": 8, "updates": 2500, "cv": cv, "seed": 5}]) for cv in shapes]
    for cv, drawn in zip(shapes, call(calls, folder)):
        wanted = np.sort(laws.step_times("gamma", 8, 2500, seed=7, shape=cv), axis=None)
        drawn = np.sort(drawn)
        at = np.searchsorted(drawn, wanted, "right") / drawn.size
        apart = np.abs(at - np.arange(1, wanted.size + 1) / wanted.size).max()
        assert apart < 0.025, f"CV {cv}: Kolmogorov and Smirnov's distance is {apart}"
    harmonic = np.cumsum(1 / np.arange(1, 65))  # of exponential times
    calls = [("lastOf", [n, n, 1]) for n in (1, 4, 64)] + [("lastOf", [64, 60, 1])]
    wanted = [harmonic[0], harmonic[3], harmonic[63], harmonic[63] - harmonic[3]]
    np.testing.assert_allclose(call(calls, folder), wanted, rtol=2e-3)
    c = {"n": 16, "cv": 0.5, "slow": 3, "ps": 0, "T": 8, "s": 4, "mean": 0.1, "seed": 3}
    names = ["ring", "async", "local", "alocal", "gossip"]
    drawn = call([(what, [name, c]) for name in names for what in ("made", "law")], folder)
    for name, trace, law in zip(names, drawn[::2], drawn[1::2]):
        assert abs(trace["rate"] / law - 1) < 0.04, (name, trace["rate"], law)
    c |= {"slow": 1, "rate": 0.1, "n": 3}  # without messages the race computes one of these only
    ring, sync = call([("compete", [name, c]) for name in ("ring", "sync")], folder)
    assert ring["reached"] == sync["reached"] < 25 and ring["rate"] == sync["rate"]
    for n in (4, 16):  # by distribution: gradients a second, and the mean staleness
        times = laws.step_times("gamma", n, 3000, 0.1, seed=3, shape=0.5)
        own = [call([("stepTimes", [{"n": n, "updates": 700, "cv": 0.5, "mean": 0.1}])], folder)[0]]
        python = [
            schemes.asynchronous(times),
            schemes.bounded(times, 4),
            schemes.synchronous(times),
        ]
        python.append(schemes.synchronous(times, n - 1))
        names = [
            ("asynchronous", []),
            ("bounded", [4]),
            ("synchronous", []),
            ("synchronous", [n - 1]),
        ]
        for trace, (name, more) in zip(python, names):
            (drawn,) = call([(name, [own[0], n, *more])], folder)
            rate, late = call([("rate", [drawn]), ("staleness", [drawn])], folder)
            late = np.average(np.arange(len(late)), weights=[x or 0 for x in late])
            assert abs(rate / schemes.rate(trace) - 1) < 0.05, (n, name)
            assert abs(late - schemes.staleness(trace).mean()) < 0.03 * n, (n, name)


@functools.cache
def noise_table():
    """Returns the normal numbers that shake gradients, as learn.js draws them."""
    u = Stream(5, 0)
    return np.array([normal(u) for _ in range(65536)], np.float32)


def check_learning(folder=STATIC):
    """Replays traces: the losses are those of the updates in NumPy, without noise and with it.

    Catches: another worker's share or copy, noise of other gradients, and shares that repeat.
    """
    for n, noise, T in ((6, 0, 2), (6, 2, 4), (70, 2, 4)):
        replay(folder, n, noise, T)


def replay(folder, n, noise, T, lr=0.05):
    """Compares the losses of n workers."""
    shares = min(n, 64)
    curve, place = np.reshape(call([("CURVE", []), ("PLACE", [])], folder), (2, 64, -1))[:, :n]
    best = (curve * place).mean(0) / curve.mean(0)
    begin = best + np.where(np.arange(best.size) % 2, 2, -2)
    times = laws.step_times("exponential", n, 60, 0.1, seed=6)
    root = np.sqrt(curve.mean(0))

    def loss(w):
        return (curve.mean(0) * (w - best) ** 2).sum() / (curve.mean(0) * 4).sum()

    def shake(pick, scale=1.0):
        """Returns the noise of a gradient; each begins somewhere else in the table."""
        at = math.floor(pick() * 65536) + np.arange(best.size)
        return scale * noise * root * noise_table()[at % 65536]

    def g(k, w, pick, scale=1.0):
        return curve[k % shares] * (w - place[k % shares]) + shake(pick, scale)

    def asynchronous(trace, change):
        W, pick = [begin], Stream(1, 2**20)
        for e, (k, version) in enumerate(zip(trace.worker, trace.version)):
            W.append(W[-1] + change(k, W[version], e - version, pick))
        return trace.push, W

    def local(k, w, pick, scale=1.0):
        moved = w
        for _ in range(T):
            moved = moved - lr * g(k, moved, pick, scale)
        return moved - w

    def synchronous(trace, needed):
        W, moved, pick = [begin], [], Stream(1, 2**20)
        for step in range(trace.step.max() + 1):
            used = trace.worker[trace.step == step] if needed < n else range(shares)
            means = [curve[k % shares] * (W[-1] - place[k % shares]) for k in used]
            step_ = np.mean(means, axis=0) + shake(pick, needed**-0.5)
            W.append(W[-1] - lr * step_)
            moved.append(trace.push[trace.step == step].max())
        return moved, W

    def local_steps(trace):
        W, pick = [begin], Stream(1, 2**20)
        for _ in range(trace.step.max() + 1):
            ways = [local(k, W[-1], pick, scale=(shares / n) ** 0.5) for k in range(shares)]
            W.append(W[-1] + np.mean(ways, axis=0))
        return synchronous(trace, n)[0], W

    def pairs(trace):
        w, pick = np.tile(begin, (n, 1)), Stream(1, 2**20)
        read, W = w.copy(), [begin]
        for k, j in zip(trace.worker, trace.partner):
            step = lr * g(k, read[k], pick)
            w[k] = w[j] = (w[k] + w[j]) / 2
            w[k] -= step
            read[k] = w[k]
            W.append(w[0].copy())
        return trace.push, W

    free, backup = schemes.asynchronous(times), schemes.synchronous(times, n - 1)
    gossip = schemes.gossip(times)
    cases = {
        "async": asynchronous(free, lambda k, w, tau, pick: -lr * g(k, w, pick)),
        "dynsgd": asynchronous(free, lambda k, w, tau, pick: -lr * g(k, w, pick) / (tau + 1)),
        "alocal": asynchronous(free, lambda k, w, tau, pick: local(k, w, pick)),
        "backup": synchronous(backup, n - 1),
        "ring": synchronous(schemes.synchronous(times), n),
        "local": local_steps(schemes.synchronous(times)),
        "gossip": pairs(gossip),
    }
    js = {"backup": ("synchronous", [times, n, n - 1]), "ring": ("synchronous", [times, n])}
    js["local"] = js["ring"]
    exchanges = np.zeros(n, int)
    partner = np.zeros(times.shape, int)
    for k, j in zip(gossip.worker, gossip.partner):
        partner[exchanges[k], k] = j
        exchanges[k] += 1
    js["gossip"] = ("gossip", [times, n, partner])
    c = {"n": n, "mean": 0.1, "T": T, "noise": noise, "seed": 1}
    traces = call([js.get(name, ("asynchronous", [times, n])) for name in cases], folder)
    runs = [("follow", [name, trace, c, lr]) for name, trace in zip(cases, traces)]
    close = 1e-6 if noise else 1e-9  # noise is in single precision
    for (name, (moved, W)), answer in zip(cases.items(), call(runs, folder)):
        assert len(answer["seconds"]) > 10, name
        for time, value in zip(answer["seconds"][1:], answer["losses"][1:]):
            at = np.searchsorted(moved, time + 1e-12, "right")
            assert math.isclose(value, loss(W[at]), rel_tol=close), (name, n, noise, time)


def of_course(name, *wanted):
    """Returns the named functions and constants of a script, without running the rest of it."""
    nodes = ast.parse((support.ROOT / name).read_text()).body
    kept = [n for n in nodes if getattr(n, "name", "") in wanted]
    assigned = [n for n in nodes if isinstance(n, ast.Assign)]
    kept += [n for n in assigned if getattr(n.targets[0], "id", "") in wanted]
    names = {"np": np}
    exec(compile(ast.Module(kept, []), name, "exec"), names)
    return [names[passes] for passes in wanted]


def check_schedule(folder=STATIC):
    """Compares memory and pipelines with the course, the paper and Model-Parallelism's script."""
    activations, *_ = of_course("Basics-Tutorial/Beyond-ZeRO.py", "activations", "STORED", "LINEAR")
    names = ("gpipe", "one_f_one_b", "simulate")
    gpipe, one, simulate = of_course("Basics-Tutorial/Data-and-Model-Parallelism.py", *names)
    for K, M in ((2, 3), (4, 12), (8, 5)):
        for js, order in (("gpipe", gpipe), ("1f1b", one)):
            results = call(
                [("run", [js, K, M])] + [(f"SCHEDULES.{js}", [k, K, M]) for k in range(K)], folder
            )
            idle, stored = simulate(order, K, M)
            assert math.isclose(results[0]["idle"], idle, abs_tol=1e-9)
            assert results[0]["stored"][0] == stored and results[0]["done"]
            for k in range(K):
                assert [tuple(result[:2]) for result in results[k + 1]] == order(k, K, M), (js, k)
    (place_order,) = of_course("Model-Parallelism/model_parallelism.py", "schedule")
    kinds = [(js, k) for js in ("gpipe", "1f1b") for k in range(3)]
    results = call([(f"SCHEDULES.{js}", [k, 3, 6]) for js, k in kinds], folder)
    for (js, k), order in zip(kinds, results):
        passes = [(what[0].upper(), m) for place, what, m in place_order(js, 3, 6) if place == k]
        assert [tuple(entry[:2]) for entry in order] == passes, (js, k)
    # Two places with two chunks each: two micro-batches through both chunks, then the next two.
    forward = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]
    backward = [(m, 1 - chunk) for m, chunk in forward]
    orders = call([("SCHEDULES.interleaved", [k, 2, 4, 2]) for k in (0, 1)], folder)
    for order, ahead in zip(orders, (4, 2)):
        assert [tuple(entry[1:]) for entry in order if entry[0] == "F"] == forward
        assert [tuple(entry[1:]) for entry in order if entry[0] == "B"] == backward
        what = "".join(entry[0] for entry in order)
        assert what == "F" * ahead + "FB" * (8 - ahead) + "B" * ahead
    cases = [(2, 4, 2), (4, 8, 2), (4, 12, 3), (8, 16, 4)]
    results = call([("run", ["interleaved", *case]) for case in cases], folder)
    for (K, M, v), result in zip(cases, results):
        assert result["done"] and math.isclose(result["idle"], (K - 1) / (v * M + K - 1))
        assert math.isclose(result["stored"][0], K * (1 + (K - 1) / (K * v)))  # Korthikanti 2022
    calls = [("plan", [plan(zero=zero)]) for zero in range(4)]
    for kept in ("all", "no scores", "inputs"):
        calls.append(("plan", [plan(kept=kept)]))
    results = call(calls, folder)
    P, model = 12 * 32 * 4096**2, {"L": 32, "h": 4096, "a": 32}
    # 16, 4 + 12/n, 2 + 14/n and 16/n bytes a parameter.
    for stage, result in enumerate(results[:4]):
        bytes_ = (16, 4 + 12 / 8, 2 + 14 / 8, 16 / 8)[stage]
        states = sum(result["parts"][name] for name in ("w", "g", "optimizer"))
        assert math.isclose(states, bytes_ * P)
        assert math.isclose(result["parts"]["gathered"], 4 * P / 32 if stage == 3 else 0)
    for kept, result in zip(("all", "no scores", "inputs"), results[4:]):
        wanted = activations(kept, **model) * 1e9
        assert math.isclose(result["parts"]["activations"], wanted), kept
    # Megatron-LM: 10 of a block's 34 bytes are in each of t workers, unless tokens are divided.
    calls = [("plan", [plan(tp=8, kept="no scores", divided=divided)]) for divided in ("no", "yes")]
    some, all_ = (
        result["parts"]["activations"] / (32 * 8192 * 4096) for result in call(calls, folder)
    )
    assert (some, all_) == (13, 4.25)


class Stream:
    """mulberry32 in Python, with the seeds of simulate.js: numbers of [0, 1)."""

    def __init__(self, seed, k):
        x = (seed * 7919 + k * 2654435761 + 1) % 2**32
        for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            x = (x ^ (x >> shift)) * factor % 2**32
        self.state = x ^ (x >> 16)

    def __call__(self):
        self.state = a = (self.state + 0x6D2B79F5) % 2**32
        t = (a ^ (a >> 15)) * (1 | a) % 2**32
        t ^= (t + (t ^ (t >> 7)) * (61 | t)) % 2**32
        return (t ^ (t >> 14)) / 2**32


def normal(u):
    """Returns a normal number, by Box and Muller."""
    return math.sqrt(-2 * math.log(1 - u())) * math.cos(2 * math.pi * u())


def gamma(u, shape):
    """Returns a gamma-distributed number with the mean `shape`, by Marsaglia and Tsang."""
    if shape == 1:
        return -math.log(1 - u())
    if shape < 1:
        return gamma(u, shape + 1) * (1 - u()) ** (1 / shape)
    d = shape - 1 / 3
    while True:
        x = normal(u)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(1 - u()) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v


def check_random(folder=STATIC):
    """Compares numbers, not distributions: of each worker's stream, and of the race's problem.

    Catches: streams that repeat each other, another law's detail, and a slow worker elsewhere.
    """
    cases = [
        {"n": 3, "cv": 1},
        {"n": 3, "cv": 0, "slow": 4, "mean": 0.5},
        {"n": 3, "cv": 0.5, "slow": 4, "mean": 0.5, "T": 3, "seed": 8},
        {"n": 2, "cv": 2, "slow": 3, "seed": 2},
        {"n": 1, "cv": 0.25, "slow": 5},
    ]
    all_times = call([("stepTimes", [{"updates": 50, **case}]) for case in cases], folder)
    for case, times in zip(cases, all_times):
        c = {"slow": 1, "mean": 1, "T": 1, "seed": 1, **case}
        streams = [Stream(c["seed"], k) for k in range(c["n"])]
        usual = [c["mean"] * c["T"]] * c["n"]
        if c["n"] > 1:
            usual[-1] *= c["slow"]
        shape = c["T"] / c["cv"] ** 2 if c["cv"] else 0
        wanted = [
            seconds * (gamma(u, shape) / shape if shape else 1)
            for _ in range(50)
            for u, seconds in zip(streams, usual)
        ]
        np.testing.assert_allclose(times, wanted, rtol=1e-9, err_msg=str(case))
    u, spread = Stream(5, 0), 0.35
    for _ in range(65536):
        normal(u)
    curve, place = [], []
    for i in range(64 * 50):
        log = math.log(0.02) * (i % 50) / 49 + spread * normal(u) - spread**2 / 2
        curve.append(math.exp(log))
        place.append(spread * normal(u))
    names = "CURVE", "PLACE", "TARGET", "SEEDS"
    *tables, target, seeds = call([(name, []) for name in names], folder)
    np.testing.assert_allclose(tables, [curve, place], rtol=1e-9)
    assert (target, seeds) == (0.03, [2, 3, 4, 5, 6])
    curve, place = np.reshape([curve, place], (2, 64, 50))
    for n in (3, 64, 100):
        (problem,) = call([("problem", [n])], folder)
        few, where = curve[:n], place[:n]
        best = (few * where).mean(0) / few.mean(0)
        wanted = {"shares": min(n, 64), "curve": few.mean(0), "best": best}
        wanted |= {"w": best - 2 * (-1.0) ** np.arange(50), "root": np.sqrt(few.mean(0))}
        wanted["first"] = 2 * few.mean(0).sum()
        for name, value in wanted.items():
            np.testing.assert_allclose(problem[name], value, rtol=1e-9, err_msg=f"{n}, {name}")


def check_orders(folder=STATIC):
    """Compares the laws of the last of n gradients with SciPy's functions, summed up finely.

    Catches: a worker too many, a slow worker that counts as usual, and a sum that ends too early.
    """
    points = [(x, shape) for shape in (0.25, 1, 4, 40) for x in (0.01, 0.9, 3, 4.99, 5.01, 39, 60)]
    values = call([("longer", point) for point in [*points, (0, 2), (-1, 2)]], folder)
    wanted = [special.gammaincc(shape, x) for x, shape in points] + [1, 1]
    np.testing.assert_allclose(values, wanted, rtol=1e-8, atol=1e-14)
    cases = [
        *(
            (n, needed, cv, T, 1)
            for n, needed in ((1, 1), (2, 2), (9, 9), (9, 7))
            for cv, T in ((0.5, 1), (1, 4))
        ),
        *((n, needed, 0.5, 2, 3) for n, needed in ((2, 2), (2, 1), (9, 9), (9, 8), (9, 6), (1, 1))),
        (300, 288, 0.25, 1, 1),
        (64, 64, 1.5, 1, 1),
    ]
    last_seconds = call([("lastOf", case) for case in cases], folder)
    for (n, needed, cv, T, slow), seconds in zip(cases, last_seconds):
        x = np.linspace(0, 60 * T, 60001)
        shape = T / cv**2
        usual, own = (special.gammaincc(shape, x * shape / T / by) for by in (1, slow))
        others = [
            special.bdtr(m, n - 1, usual) if m >= 0 else 0 for m in (n - needed, n - needed - 1)
        ]
        if n == 1:
            others = [1, 0]
        at_most = (1 - own if n > 1 or slow == 1 else 1 - usual) * others[0] + own * others[1] * (
            n > 1
        )
        wanted = np.trapezoid(1 - at_most, x)
        assert math.isclose(seconds, wanted, rel_tol=3e-4), (
            n,
            needed,
            cv,
            T,
            slow,
            seconds,
            wanted,
        )
    constant = [(4, 4, 0, 3, 5), (4, 3, 0, 3, 5), (1, 1, 0, 3, 5), (4, 4, 0)]
    assert call([("lastOf", case) for case in constant], folder) == [15, 3, 3, 1]


NAMES = ["one", "ring", "sync", "backup", "bounded", "async", "dynsgd", "gossip", "local", "alocal"]
CLUSTER = {"n": 4, "cv": 0.5, "slow": 2, "ps": 0.01, "T": 3, "s": 2, "mean": 0.1, "seed": 3}


def way(name, n, ps):
    """Returns the seconds that a step of all workers takes for its messages."""
    if name in ("ring", "local"):
        return cost.ring(n, ps, 1, 0)
    return cost.ps_together(n, ps, 1, 0) if ps else 0


def law_of(name, c):
    """Returns what stepTimes() is asked for in a run of an algorithm."""
    n, T = c["n"], c["T"] if "local" in name else 1
    law = {key: c[key] for key in ("cv", "mean", "seed")}
    if name == "one":
        return {**law, "n": 1, "updates": 3200}
    updates = 100 + 3000 / n
    if name not in ("ring", "sync", "backup", "local"):
        fewest = (10 if T > 1 else 32) if n > 512 else 60 if name == "gossip" else 30
        updates = max(fewest, 4000 / n)
    halves = 2 if T > 1 else 1
    return {**law, "n": n, "slow": c["slow"], "T": T, "updates": math.ceil(updates / halves)}


def scheme_of(name, c, times):
    """Returns the call of simulate.js that makes the trace of an algorithm from these times."""
    n, ps = c["n"], c["ps"]
    if name == "one":
        return "synchronous", [times, 1]
    if name in ("ring", "sync", "backup", "local"):
        needed = n - max(1, round(n / 25)) * (n > 1) if name == "backup" else n
        return "synchronous", [times, n, needed, "dropped", way(name, n, ps)]
    if name == "gossip":
        draws = [Stream(c["seed"] + 99, k) for k in range(n)]
        partner = [
            (i % n + (1 if draws[i % n]() < 0.5 else n - 1)) % n  # a neighbour on a ring
            for i in range(len(times))
        ]
        return "gossip", [times, n, partner, ps]
    ahead = {"s": c["s"]} if name == "bounded" else {}
    return "queued", [times, n, {"pull": ps, "push": ps, **ahead}]


def check_race(folder=STATIC):
    """Compares which trace each algorithm has, and what is counted of it.

    Catches: messages that another algorithm sends, too few updates, T steps for one, a partner that
    is the worker itself, and waiting that counts the time of messages as work.
    """
    cases = [(name, CLUSTER) for name in NAMES]
    cases += [
        (name, {**CLUSTER, "n": 600, "ps": 0}) for name in ("async", "alocal", "gossip", "backup")
    ]
    cases += [("gossip", {**CLUSTER, "n": n}) for n in (1, 2, 200)]
    cases += [("sync", {**CLUSTER, "n": 1}), ("backup", {**CLUSTER, "n": 1})]
    results = call([(what, case) for case in cases for what in ("trace", "made", "law")], folder)
    times = call([("stepTimes", [law_of(*case)]) for case in cases], folder)
    traces = call([scheme_of(*case, of) for case, of in zip(cases, times)], folder)
    counts = call([(what, [of]) for of in traces for what in ("staleness", "rate")], folder)
    lasts = [
        (c["n"], c["n"], c["cv"], c["T"] if "local" in name else 1, c["slow"]) for name, c in cases
    ]
    lasts = call([("lastOf", last) for last in lasts], folder)
    for number, (name, c) in enumerate(cases):
        trace, facts, law = results[3 * number : 3 * number + 3]
        label, n, ps, mean = f"{name}, {c['n']} workers", c["n"], c["ps"], c["mean"]
        wanted, (stale, rate) = traces[number], counts[2 * number : 2 * number + 2]
        assert trace == wanted, label
        T = c["T"] if "local" in name else 1
        ends, last = (
            zip(wanted["end"], wanted["pull"], wanted.get("step", [0] * 10**6)),
            wanted["moved"][-1],
        )
        busy = sum(end - pull for end, pull, step in ends if step >= 0)
        counted = {"stale": stale, "T": T, "rate": pytest.approx(T * rate)}
        total = sum((many or 0) * tau for tau, many in enumerate(stale))
        counted["mean"] = pytest.approx(total / wanted["length"])
        counted["waits"] = pytest.approx(max(0, 1 - busy / last / n), abs=1e-9)
        assert {key: facts[key] for key in counted} == counted, label
        exact = None
        if name == "one":
            exact = 1 / mean
        elif name in ("ring", "sync", "local"):
            exact = n * T / (mean * lasts[number] + way(name, n, ps))
        elif name not in ("bounded", "backup"):
            message = ps if name == "gossip" else 2 * ps
            slow = c["slow"] if n > 1 else 1
            rates = [1 / (T * mean * by + message) for by in [1] * (n - 1) + [slow]]
            most = math.inf if not ps else n / 2 / ps if name == "gossip" else 1 / ps
            exact = T * min(sum(rates), most)
        assert law == (exact if exact is None else pytest.approx(exact)), label
    laws_ = [
        ("law", [name, {**CLUSTER, "ps": 1, "n": 9}]) for name in ("async", "alocal", "gossip")
    ]
    assert call(laws_, folder) == pytest.approx([1, 3, 4.5])  # what one ps can serve, or pairs
    numbers = call([("backups", [n]) for n in (1, 2, 37, 38, 100, 4096)], folder)
    assert numbers == [0, 1, 1, 2, 4, 164]


def check_tuning(folder=STATIC):
    """Replays the search for a learning rate, and takes medians over five other seeds.

    Catches: the first rate for the best, a search that ends early, and the best seed for a median.
    """
    most = {"ring": 2, "dynsgd": 8, "async": 0, "alocal": 0}
    c = {**CLUSTER, "T": 4}
    results = call([("compete", [name, c]) for name in most], folder)
    for (name, highest), result in zip(most.items(), results):
        (tuned,) = call([("made", [name, {**c, "seed": 1}])], folder)
        late = 4 / (tuned["mean"] + 1) / (c["T"] if name == "alocal" else 1)
        rates = [(highest or min(2, late)) / 2 ** (i / 2) for i in range(16)]
        runs = call([("follow", [name, tuned, c, rate]) for rate in rates], folder)
        best = None
        for rate, run in zip(rates, runs):
            reached = math.inf if run["reached"] is None else run["reached"]
            last = math.inf if run["last"] is None else run["last"]
            if not best or reached < best[0] or (best[0] == math.inf and last < best[1]):
                best = reached, last, rate
            elif best[1] < 1:
                break
        assert result["learningRate"] == pytest.approx(best[2]), name
        calls = [("made", [name, {**c, "seed": seed}]) for seed in range(2, 7)]
        traces = call(calls, folder)
        more = [
            ("follow", [name, trace, {**c, "seed": seed}, result["learningRate"]])
            for seed, trace in zip(range(2, 7), traces)
        ]
        reached = sorted(run["reached"] for run in call(more, folder))
        rates = sorted(trace["rate"] for trace in traces)
        wanted = {"reached": reached[2], "low": reached[0], "high": reached[4], "rates": rates}
        wanted |= {"rate": rates[2], "name": name, "mean": tuned["mean"]}
        assert {key: result[key] for key in wanted} == wanted, name
    few = {**CLUSTER, "cv": 0, "ps": 0, "rate": 0.01}
    cases = [("alocal", {**few, "n": n, "T": 2}) for n in (512, 513, 2049)] + [("one", few)]
    many = call([("compete", case) for case in cases], folder)
    assert [len(competitor["rates"]) for competitor in many] == [5, 3, 1, 5]
    assert [many[3]["learningRate"], many[3]["rate"]] == pytest.approx([0.01, 10])  # one worker's
    assert many[3]["law"] == pytest.approx(10)


def check_ends(folder=STATIC):
    """Compares when a run is judged to be there, and when it is ended.

    Catches: the loss of one moment for the smoothed one, a rate that is too large and is called
    stable, and losses that are looked at too often.
    """
    c = {"n": 4, "cv": 0.5, "slow": 1, "ps": 0, "T": 4, "s": 2, "mean": 0.1, "seed": 1}
    (trace,) = call([("trace", ["async", c])], folder)
    limits = [
        ("follow", ["async", trace, c, rate, *more]) for rate, *more in ((0.05,), (1,), (0.05, 2))
    ]
    free, wild, ended = call(limits, folder)
    smooth, reached = 1, None
    times = list(zip(free["seconds"], free["losses"]))
    for (before, _), (time, loss) in zip(times, times[1:]):
        assert time - before >= 0.0999
        smooth = loss + (smooth - loss) * 0.6 ** ((time - before) / 0.1)
        if reached is None and smooth < 0.03:
            reached = time
    assert (
        reached and free["reached"] == reached and free["stable"] and free["last"] == times[-1][1]
    )
    assert free["seconds"][-1] > 1.3 * reached >= free["seconds"][-2]
    assert not wild["stable"] and wild["reached"] is None
    assert max(wild["losses"][:-1]) < 20 <= wild["last"]
    assert ended["seconds"][-1] > 2 >= ended["seconds"][-2] and ended["reached"] in (None, reached)
    rates = np.linspace(0.55, 1.5, 100)
    wild = call([("follow", ["async", trace, c, rate]) for rate in rates.tolist()], folder)
    ends = [run["last"] for run in wild if not run["stable"]]
    assert 20 <= min(ends) < 21 and len(ends) > 20
    for run in wild:
        assert max(run["losses"][:-1]) < 20 and run["stable"] == (run["last"] < 20)
    moves = np.array(trace["moved"])
    looks = [0.0]
    for move in moves:
        if move - looks[-1] >= 0.0999:
            looks.append(move)
    assert free["seconds"] == looks[: len(free["seconds"])]


def check_plans(folder=STATIC):
    """Compares what one worker stores and how long it is idle with sums of one's own.

    Catches: a part of a replica too many, micro-batches of all GPUs, and numbers that do not divide
    and nobody says so.
    """
    (models,) = call([("MODELS", [])], folder)
    for name, m in models.items():
        assert abs(12 * m["L"] * m["h"] ** 2 / float(name.split()[0]) / 1e9 - 1) < 0.02
        assert m["h"] == 128 * m["a"]
    assert [m["s"] for m in models.values()] == [8192, 8192, 2048]
    cases = [
        {"gpus": 32, "tp": 2, "pp": 4, "batch": 64, "b": 2, "zero": zero, "kept": kept, **more}
        for zero, kept in ((0, "all"), (1, "no scores"), (2, "inputs"), (3, "inputs"))
        for more in ({}, {"schedule": "gpipe"}, {"schedule": "interleaved"}, {"divided": "yes"})
    ]
    cases += [{"gpus": 2, "tp": 2, "zero": 3}, {"schedule": "interleaved"}, {"schedule": "gpipe"}]
    cases += [
        {"model": "175 billion", "gpus": 64, "tp": 8, "pp": 8, "v": 3, "schedule": "interleaved"}
    ]
    plans = call([("plan", [plan(**case)]) for case in cases], folder)
    pipes = []
    for c in (plan(**case) for case in cases):
        M = c["batch"] // (c["gpus"] // (c["tp"] * c["pp"])) // c["b"]
        v = c["v"] if c["schedule"] == "interleaved" and c["pp"] > 1 else 1
        pipes.append(("run", [c["schedule"] if c["pp"] > 1 else "1f1b", c["pp"], M, v]))
    for case, answer, pipe, (_, run) in zip(cases, plans, call(pipes, folder), pipes):
        c, M = plan(**case), run[2]
        m, replicas, t = models[c["model"]], c["gpus"] // (c["tp"] * c["pp"]), c["tp"]
        own = 12 * m["L"] * m["h"] ** 2 / t / c["pp"]
        over = [replicas if c["zero"] > stage else 1 for stage in (2, 1, 0)]
        parts = {"w": 2 * own / over[0], "g": 2 * own / over[1], "optimizer": 12 * own / over[2]}
        both = 2 * 2 * 12 * m["h"] ** 2 / t
        parts["gathered"] = both if c["zero"] == 3 and replicas > 1 else 0
        divided = t if c["divided"] == "yes" else 1
        whole, scores = 10 / divided + 24 / t, 5 * m["a"] * m["s"] / m["h"] / t
        sizes = {"all": whole + scores, "no scores": whole, "inputs": 2 / divided}
        one = m["s"] * c["b"] * m["h"]
        parts["activations"] = pipe["stored"][0] * m["L"] / c["pp"] * sizes[c["kept"]] * one
        parts["activations"] += whole * one if c["kept"] == "inputs" else 0
        assert answer["parts"] == pytest.approx(parts), case
        assert answer["bytes"] == pytest.approx(sum(parts.values()), rel=1e-12)
        assert [answer["dp"], answer["M"], answer["idle"]] == [replicas, M, pipe["idle"]]
        assert answer["work"] == (4 / 3 if c["kept"] == "inputs" else 1) and answer["pipe"] == pipe
    wrong = [
        ({"tp": 4, "pp": 4}, "4 × 4 is more than 8 GPUs"),
        ({"batch": 12}, "12 sequences are no multiple of 8 replicas × 1"),
        ({"batch": 8, "b": 2}, "8 sequences are no multiple of 8 replicas × 2"),
        ({"gpus": 6, "pp": 3, "batch": 8}, "32 blocks are no multiple of 3 parts"),
        ({"pp": 8, "v": 8, "schedule": "interleaved"}, "32 blocks are no multiple of 64 parts"),
        (
            {"pp": 4, "batch": 12, "schedule": "interleaved"},
            "interleaved: 6 micro-batches are no multiple of 4 stages",
        ),
    ]
    answers = call([("plan", [plan(**case)]) for case, _ in wrong], folder)
    assert answers == [{"wrong": words} for _, words in wrong]


def plan(**more):
    """Returns a plan's input: 6.4 billion parameters on 8 GPUs, each a replica."""
    usual = {"model": "6.4 billion", "gpus": 8, "tp": 1, "pp": 1, "zero": 0, "batch": 8, "b": 1}
    return {**usual, "kept": "all", "divided": "no", "schedule": "1f1b", "v": 2, **more}


CHECKS = [check_traces, check_gossip, check_costs, check_laws, check_learning, check_schedule]
CHECKS += [check_random, check_orders, check_race, check_tuning, check_ends, check_plans]


@pytest.mark.parametrize("check", CHECKS)
def test_model(check):
    """Catches an explorable that computes something else than the page beside it says."""
    check()


MISTAKES = [
    ("simulate", "made[k] - s <= low", "made[k] - s < low", check_traces),
    ("simulate", "Math.max(sending, now) + pull", "now + pull", check_traces),
    ("simulate", '"dropped" && begun) free[k] = end[k]', '"dropped") free[k] = 0', check_traces),
    ("simulate", "? own[trace.worker[e]] :", "? e :", check_traces),
    ("simulate", "busy[k] = busy[j] = end;", "busy[k] = end;", check_gossip),
    (
        "simulate",
        "sharded: (n, S, B, a = 0, layers = 1) => ((3 *",
        "sharded: (n, S, B, a = 0, layers = 1) => ((2 *",
        check_costs,
    ),
    ("simulate", "BACKWARD = 2 / 3", "BACKWARD = 1 / 2", check_costs),
    ("simulate", "Math.pow(1 - u(), 1 / shape)", "Math.pow(1 - u(), shape)", check_laws),
    ("simulate", "shape = T / (cv * cv);", "shape = T / cv;", check_laws),
    ("learn", "tau + 1", "tau + 2", check_learning),
    ("learn", "/ 2;\n      all[j + i] = middle;", "/ 2;", check_learning),
    ("learn", "count[t.worker[e] % shares]++", "count[0]++", check_learning),
    ("schedule", "ahead = Math.min(K - 1 - k, M)", "ahead = Math.min(K - k, M)", check_schedule),
    ("schedule", "10 + 24 / t", "34 / t", check_schedule),
    ("schedule", "stage > 1 ? dp", "stage > 2 ? dp", check_schedule),
    ("schedule", "2 * (K - k - 1) + (v - 1) * K", "K - k - 1 + (v - 1) * K", check_schedule),
    ("simulate", "k * 2654435761 + 1", "k + 1", check_random),
    (
        "simulate",
        "own * atMost(n - needed - 1, of, q)",
        "own * atMost(n - needed, of, q)",
        check_orders,
    ),
    ("learn", "draws[i % n]() < 0.5 ? 1", "draws[i % n]() < 0.5 ? 2", check_race),
    ("learn", "best = { ...run, rate };", "best = best || { ...run, rate };", check_tuning),
    ("learn", "1.3 * reached", "reached", check_ends),
    ("schedule", "(2 * 2 * parameters(m)) / m.L", "(2 * parameters(m)) / m.L", check_plans),
]


@pytest.mark.plants_mistakes
@pytest.mark.parametrize("name, old, new, check", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_found(name, old, new, check, tmp_path):
    """Each in a copy of the scripts: a wait too short, a byte too few, a partner that stays."""
    for path in STATIC.glob("*.js"):
        shutil.copy(path, tmp_path)
    script = tmp_path / f"{name}.js"
    assert script.read_text().count(old) == 1, old
    script.write_text(script.read_text().replace(old, new))
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_puzzles():
    """Catches a puzzle whose answer fails, that is solved at the start, or that names no answer."""
    program = """
    const { PUZZLES, plan } = require(process.argv[1]), said = [];
    for (const { start, asks, answer } of Object.values(PUZZLES)) {
      const all = (c, p) => !p.wrong && asks.every(([, holds]) => holds(c, p));
      const holds = (c) => all(c, plan(c));
      const given = { ...start, ...answer };
      const without = Object.keys(answer).filter((k) => holds({ ...given, [k]: start[k] }));
      said.push([holds(start), holds(given), without]);
    }
    console.log(JSON.stringify(said));"""
    command = ["node", "-e", program, STATIC / "schedule.js"]
    answers = json.loads(subprocess.check_output(command, text=True, timeout=60))
    assert answers == [[False, True, []]] * 3  # each part of an answer is needed
