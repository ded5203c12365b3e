"""The models of the explorables, in JavaScript, against the Python of which they are a port."""

import ast
import json
import math
import shutil
import subprocess

import numpy as np
import pytest
import support
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
    times = laws.step_times("exponential", 6, 30, 0.1, seed=4)
    for exchange in (0.0, 0.05):
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
        "between": "between",
        "fitted": "fitted",
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
        arguments = {"between": (0.3, S / B), "fitted": (0.3, S / B), "local": (0.3, S / B, 7)}
        arguments |= {"hierarchical": (n, 4, S, B, a, 5e10, 1e-6), "tree": (n, S, B, a, 8)}
        arguments |= {"sharded": (n, S, B, a, 12), "ps_asynchronous": (n, 0.2, S, B, a, 3)}
        for name, js in pairs.items():
            args = arguments.get(name, (n, S, B, a, 2) if name.startswith("ps") else (n, S, B, a))
            calls.append((f"cost.{js}", args))
            wanted.append(getattr(cost, name)(*args))
        case = {"n": n, "c": 0.2, "S": S, "B": B, "a": a}
        calls.append(("cost.schemes", [{**case, "P": 3, "inside": 4, "Bi": 5e10}]))
        wanted.append(cost.schemes(**case, P=3, inside=4, B_inside=5e10))
        calls.append(("cost.firstToChange", [case]))
        wanted.append(cost.first_to_change(**case))
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
    ring, together = call([("compete", [name, c]) for name in ("ring", "sync")], folder)
    assert ring["reached"] == together["reached"] < 25 and ring["rate"] == together["rate"]
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


def check_learning(folder=STATIC):
    """Replays traces without noise: the losses are those of the updates in NumPy."""
    n, lr = 6, 0.05
    curve, place = np.reshape(call([("CURVE", []), ("PLACE", [])], folder), (2, 64, -1))[:, :n]
    best = (curve * place).mean(0) / curve.mean(0)
    begin = best + np.where(np.arange(best.size) % 2, 2, -2)
    times = laws.step_times("exponential", n, 60, 0.1, seed=6)

    def loss(w):
        return (curve.mean(0) * (w - best) ** 2).sum() / (curve.mean(0) * 4).sum()

    def g(k, w):
        return curve[k] * (w - place[k])

    def asynchronous(trace, change):
        W = [begin]
        for e, (k, version) in enumerate(zip(trace.worker, trace.version)):
            W.append(W[-1] + change(k, W[version], e - version))
        return trace.push, W

    def local(k, w, T=4):
        moved = w
        for _ in range(T):
            moved = moved - lr * g(k, moved)
        return moved - w

    def synchronous(trace):
        W, moved = [begin], []
        for step in range(trace.step.max() + 1):
            used = trace.worker[trace.step == step]
            W.append(W[-1] - lr * np.mean([g(k, W[-1]) for k in used], axis=0))
            moved.append(trace.push[trace.step == step].max())
        return moved, W

    def pairs(trace):
        w = np.tile(begin, (n, 1))
        read, W = w.copy(), [begin]
        for k, j in zip(trace.worker, trace.partner):
            step = lr * g(k, read[k])
            w[k] = w[j] = (w[k] + w[j]) / 2
            w[k] -= step
            read[k] = w[k]
            W.append(w[0].copy())
        return trace.push, W

    free, backup = schemes.asynchronous(times), schemes.synchronous(times, n - 1)
    gossip = schemes.gossip(times)
    cases = {
        "async": asynchronous(free, lambda k, w, tau: -lr * g(k, w)),
        "dynsgd": asynchronous(free, lambda k, w, tau: -lr * g(k, w) / (tau + 1)),
        "alocal": asynchronous(free, lambda k, w, tau: local(k, w)),
        "backup": synchronous(backup),
        "ring": synchronous(schemes.synchronous(times)),
        "gossip": pairs(gossip),
    }
    js = {"backup": ("synchronous", [times, n, n - 1]), "ring": ("synchronous", [times, n])}
    exchanges = np.zeros(n, int)
    partner = np.zeros(times.shape, int)
    for k, j in zip(gossip.worker, gossip.partner):
        partner[exchanges[k], k] = j
        exchanges[k] += 1
    js["gossip"] = ("gossip", [times, n, partner])
    c = {"n": n, "mean": 0.1, "T": 4, "noise": 0, "seed": 1}
    for name, (moved, W) in cases.items():
        (trace,) = call([js.get(name, ("asynchronous", [times, n]))], folder)
        (actual,) = call([("follow", [name, trace, c, lr])], folder)
        assert len(actual["seconds"]) > 10, name
        for time, value in zip(actual["seconds"][1:], actual["losses"][1:]):
            at = np.searchsorted(moved, time + 1e-12, "right")
            assert math.isclose(value, loss(W[at]), rel_tol=1e-9), (name, time)


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
        assert [tuple(result[:2]) for result in order] == passes, (js, k)
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


def plan(**more):
    """Returns a plan's input: 6.4 billion parameters on 8 GPUs, each a replica."""
    usual = {"model": "6.4 billion", "gpus": 8, "tp": 1, "pp": 1, "zero": 0, "batch": 8, "b": 1}
    return {**usual, "kept": "all", "divided": "no", "schedule": "1f1b", "v": 2, **more}


CHECKS = [check_traces, check_gossip, check_costs, check_laws, check_learning, check_schedule]


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
]


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
