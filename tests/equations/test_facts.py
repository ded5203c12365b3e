"""What a row, a test and flags.json say, against what has crossed, has taken time, and has run.

A worker of three makes its update in this process, with a model whose parameters no number of ps
divides. The bytes of its row are those that the servers of TensorFlow say they have received. Then
a whole `main` runs here, with a test that notes when it begins and ends.
"""

import contextlib
import json
import re
import sys
import threading
import time
import types

import equations
import interleaved
import numpy as np
import problem
import pytest
import support
from lab import examples
from problem import BATCH
from tfrun.launch import cluster

# Where a test lets them, a gradient comes later, and so does what arrives on a ps.
GATES = """

LATE = {}
at_once, send_at_once = loss, send


def late(name, after):
    return tf.numpy_function(lambda _: time.sleep(LATE.get(name, 0)), [after], [])


def loss(y, outputs):
    with tf.control_dependencies([late("gradient", outputs)]):
        return at_once(y, tf.identity(outputs))


def send(w, vectors):
    arrived = []
    for vector in send_at_once(w, vectors):
        with tf.device(vector.device), tf.control_dependencies([late("push", vector)]):
            arrived += [tf.identity(vector)]
    return arrived
"""
SCRIPTS = [
    path
    for path in equations.compared([*equations.INTERLEAVED, *equations.TOGETHER])
    if "\ndef send(" in path.read_text()
]
SECONDS = 0.5  # of what is late
EDGE = re.compile(r"\[(\d+)B\].* (edge_\S+) from /job:(\w+).*task:(.).* to /job:(\w+).*task:(.)")


MOVED = [1, 3]  # DT_FLOAT, DT_INT32


class Rows:
    """The rows of a worker, or of all where they step together, and what has crossed for them."""

    def __init__(self, script, ps, folder, text):
        file = equations.of(script)
        n = 1 if file.WORKERS == 1 else 3
        self.flags = {**problem.command_line(file.FLAGS), "--steps": 10**6}
        data, _ = file.PROBLEM(script, n, folder)
        self.together = support.synchronous(script)
        self.ranks = range(n) if self.together else [n - 1]
        interleaved.forget()
        self.workers, self.rows = [], []
        for k in self.ranks:
            worker = interleaved.Worker(script, text, k, n, self.flags, data, ps=ps)
            self.workers.append(worker)
            with worker.session.graph.as_default():
                self.step = worker.tf.train.get_global_step()
                flags = interleaved.loaded(script, text, self.flags)[1]
                with worker.tf.device(f"/job:worker/task:{k}"):
                    row = worker.script.push_row(worker.update, self.step, flags)
                    self.rows.append(worker.tf.stack(row))
        self.workers[0].session.run(self.workers[0].start[0])
        for worker in self.workers:
            worker.session.run(worker.start[1])

    def make(self, late=None, trace=False):
        """An update of each: [(when it began, its row, {what has crossed: bytes})].

        late: what comes later in the last worker.
        """
        if not self.together:  # the same mini-batch again
            with self.workers[0].session.graph.as_default():
                self.step.load(0, self.workers[0].session)
        self.workers[-1].script.LATE.update(dict.fromkeys(["gradient", "push"], 0))
        if late:
            T = self.flags.get("--local-steps", 1) if late == "gradient" else 1
            self.workers[-1].script.LATE[late] = SECONDS / T
        done = [None] * len(self.workers)

        def run(i):
            tf, told = self.workers[i].tf, None
            options = tf.RunOptions(timeout_in_ms=20_000)
            if trace and i == len(done) - 1:  # of one session in a process at a time
                options.trace_level, told = tf.RunOptions.FULL_TRACE, tf.RunMetadata()
                options.output_partition_graphs = True
            began = time.time()
            row = self.workers[i].session.run(self.rows[i], options=options, run_metadata=told)
            columns = dict(zip(self.workers[i].script.PUSH.split(","), row))
            done[i] = began, columns, crossed(told) if told else {}

        threads = [threading.Thread(target=run, args=[i]) for i in range(len(done))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(done), "steps: a worker waits for ever"
        return done


def crossed(told):
    """{(a tensor, from, to): bytes} between the ps and a worker.

    Parameters are float32, and row numbers int32; versions and other counts are int64.
    """
    nodes = [node for graph in told.partition_graphs for node in graph.node if node.op == "_Recv"]
    types = {node.attr["tensor_name"].s.decode(): node.attr["tensor_type"].type for node in nodes}
    counts = {}
    for device in told.step_stats.dev_stats:
        for node in device.node_stats:
            edge = EDGE.match(node.timeline_label) if node.node_name == "RecvTensor" else None
            if edge and {edge[3], edge[5]} == {"ps", "worker"} and types.get(edge[2]) in MOVED:
                counts[edge.groups()[1:]] = int(edge[1])
    return counts


def local_steps(flags, number):
    """T as the flags say, but for the steps that Local-SGD makes before it."""
    return flags.get("--local-steps", 1) if number > flags.get("--post-local", 0) else 1


def check_rows(script, ps, folder, changes=(), times=True):
    """The named comparisons of numbers that a mistake must fail."""
    rows, wrong = Rows(script, ps, folder, examples.replaced(script, changes) + GATES), []
    seen, least = {}, rows.flags.get("--post-local", 0)
    for attempt in range(12):  # a trace often lacks some of what a server has received
        _, row, edges = rows.make(trace=True)[-1]
        seen |= edges
        T = local_steps(rows.flags, row["global_step"])
        for name, due in {"local_steps": T, "examples": T * BATCH}.items():
            if row[name] != due and "train_and_evaluate" not in script.stem:
                wrong.append(f"{name}: {row[name]:g}, not {due}, at {row['global_step']:g}")
        if attempt >= least and sum(seen.values()) >= row["bytes"]:
            break
    if row["bytes"] != sum(seen.values()):
        wrong.append(f"bytes: {row['bytes']:g} in the row, {sum(seen.values())} crossed: {seen}")
    for what in ["gradient", "push"] if times else []:
        for _ in range(3):  # on a busy machine something else may be late, too
            if not (faults := wrong_times(script, rows, what)):
                break
        wrong += faults
    for worker in rows.workers:
        worker.session.close()
    assert not wrong, "\n".join(wrong)


def wrong_times(script, rows, what):
    """Returns what is wrong with the times of an update in which the gradient or push is late."""
    wrong = []
    for i, (began, row, _) in enumerate(rows.make(late=what)):
        pulled, pushed, wait = (row[name] for name in ("pull_time", "push_time", "wait_seconds"))
        # Who is late itself does not wait for its gradient; the others wait for it.
        waits = what == "push" or i < len(rows.workers) - 1
        if not (wait > SECONDS / 2 if waits else 0 <= wait < SECONDS / 2):
            wrong.append(f"wait_seconds: {wait:.3f} of worker {rows.ranks[i]}, {what} late")
        if not began <= pulled <= pushed - wait + SECONDS / 10 or pushed > time.time():
            wrong.append(f"times: {pulled - began:.3f}, {pushed - began:.3f}, {wait:.3f}")
        if pulled - began > SECONDS / 2 or pushed - began < SECONDS * 0.9:
            wrong.append(f"pull_time: {pulled - began:.3f} s after the begin, {what} late")
    return wrong


CORE = ["hogwild_sessions"]


@pytest.mark.parametrize(
    "script, ps",
    [
        pytest.param(path, ps, marks=[] if path.stem in CORE and ps == 3 else [pytest.mark.long])
        for path in SCRIPTS
        for ps in ([1, 2, 3] if path.stem in CORE else [3])
    ],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_row_says_what_crossed_and_who_waited(script, ps, tmp_path):
    """Catches: bytes of one ps, of T steps, of other types; a wait that is a worker's own time."""
    check_rows(script, ps, tmp_path)


# flags.json --------------------------------------------------------------------------------------

WITH_METRICS = [
    path
    for path in examples.scripts()
    if "\nclass Metrics" in path.read_text() and "import horovod" not in path.read_text()
]
TASKS = [("worker", 0), ("worker", 1), ("worker", 2)]
DIRECTIONS = """
METRICS = {"error": ("min", None), "accuracy": ("max", None), "a": ("min", None)}
"""


def given(script, folder, patch):
    """Returns the flags of a script, each with another value than its own, and these values."""
    parse, flags = script.argparse.ArgumentParser.parse_args, {}

    def note(parser):
        for action in parser._actions:
            name, default = action.dest, action.default
            if name != "help":
                flags[name] = {int: 3, float: 0.375}.get(type(default), default)
                if action.choices:
                    flags[name] = list(action.choices)[-1]
        words = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        return parse(parser, words)

    patch.setattr(script.argparse.ArgumentParser, "parse_args", note)
    parsed = script.parse_flags()
    return parsed, flags


def check_facts(path, folder, patch, changes=()):
    """The named comparisons of what the chief has written with what it was given."""
    text = examples.replaced(path, changes)
    mark = '\nPUSH = "push_time'
    assert text.count(mark) == 1
    script, wrong = examples.load(path, text.replace(mark, DIRECTIONS + mark)), []
    flags, values = given(script, folder, patch)
    variables = [
        script.tf.Variable(np.zeros(shape), name=name)
        for name, shape in (("b", [5]), ("a", [2, 3]), ("c", []))
    ]
    for v in variables:
        v.path = "of/" + v.name
    for number, tasks in enumerate([TASKS, [("chief", 0), *TASKS]]):
        patch.setenv("OUTPUT_DIR", str(folder / str(number)))
        metrics = interleaved.metrics_of(script, tasks, variables, flags, folder / str(number))
        metrics.test(12.25, 7, 0.5, 0.25, 0.125, 0.0625)
        metrics.file.close()
        metrics.lock.close()
        actual = json.loads((folder / str(number) / "flags.json").read_text())
        due = {
            "example": re.match(r'"""([^:]+):', path.read_text())[1],
            "script": str(path),
            "tasks": [f"{job}-{index}" for job, index in tasks],
            "ps": 3,
            "metrics": {
                "test_loss": "min",
                "test_error": "min",
                "test_accuracy": "max",
                "test_a": "min",
            },
            "variables": [["of/b:0", [5]], ["of/a:0", [2, 3]], ["of/c:0", []]],
            "arguments": values,
            "versions": {"tensorflow": script.tf.__version__},
        }
        if hasattr(script, "serve_part"):
            due["sizes"] = [["w", "float64", 12]]
        for name in due | actual:
            if actual.get(name) != due.get(name) or str(actual.get(name)) != str(due.get(name)):
                wrong.append(f"{name}: {actual.get(name)}, not {due.get(name)}")
        text = next((folder / str(number)).glob("*.csv")).read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        end, *row = lines[1].split(",")
        if abs(float(end) - time.time()) > 60 or row[0] != "12.250000":
            wrong.append(f"times: {end}, {row[0]} of a test")
        columns = dict(zip(lines[0].split(","), lines[1].split(",")))
        means = [columns.pop(name, None) for name in due["metrics"]]
        if means != ["0.5", "0.25", "0.125", "0.0625"] or columns.pop("global_step") != "7":
            wrong.append(f"means: {lines}")
        if any(value for name, value in columns.items() if "time" not in name):
            wrong.append(f"columns: {lines[1]}")
    assert not wrong, "\n".join(wrong)


# Non-Distributed-Setup has no tasks: see test_one_process.py.
FOR_TASKS = [path for path in WITH_METRICS if examples.kind_of(path) != "single process"]


@pytest.mark.parametrize("script", FOR_TASKS, ids=equations.ids)
def test_flags_json_has_what_was_given(script, tmp_path, monkeypatch):
    """Catches: tasks in another order, ps 1 always, a direction turned, defaults for arguments."""
    check_facts(script, tmp_path, monkeypatch)


# Whole runs in this process ----------------------------------------------------------------------

SLOW_TEST = """

def slow(y, outputs):
    def test(value):
        began = time.time()
        time.sleep(0.2)
        with open(os.environ["OUTPUT_DIR"] + "/tests.txt", "a") as file:
            file.write(f"{began} {time.time()}\\n")
        return value
    value = keras.metrics.sparse_categorical_accuracy(y, outputs)
    return tf.ensure_shape(tf.numpy_function(test, [value], value.dtype), value.shape)


METRICS["accuracy"] = "max", slow
"""


@pytest.mark.parametrize("script", WITH_METRICS, ids=lambda path: path.stem)
def test_flags_are_whole_at_any_moment(script, tmp_path, monkeypatch):
    """Catches a flags.json that a restarted chief cuts short before it writes it anew."""
    module = examples.load(script)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    flags = types.SimpleNamespace(steps=9)
    w = module.tf.Variable([0.0])
    w.path = "w"

    def begin():
        if script.parent.name == "Non-Distributed-Setup":
            return module.Metrics(types.SimpleNamespace(trainable_variables=[w]), flags)
        return interleaved.metrics_of(module, TASKS, [w], flags, tmp_path)

    metrics = begin()
    getattr(metrics, "lock", metrics.file).close()  # so that another may begin
    before = (tmp_path / "flags.json").read_text()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "replace", killed)
    flags.steps = 10
    with pytest.raises(KeyboardInterrupt):
        begin()
    assert (tmp_path / "flags.json").read_text() == before


def loops():
    """A script of each loop that tests: those with the same text around it are one."""
    by_loop = {}
    for path in sorted(
        WITH_METRICS, key=lambda path: path.stem not in ("hogwild_sessions", "ring_allreduce")
    ):
        kind, text = examples.kind_of(path), path.read_text()
        # A process has one set of logical devices, and one group of a collective.
        if kind in ("coordinator", "train and evaluate") or "Strategy(" in text:
            continue
        if "metrics.test(time.time()" in text and "METRICS = {" in text and "import keras" in text:
            place = text.index("metrics.test(time.time()")
            by_loop.setdefault(text[text.rindex("\ndef ", 0, place) : place + 100], path)
    return list(by_loop.values())


def check_run(path, folder, patch, changes=()):
    """The named comparisons of the tests and the facts of a run with what it was."""
    kind = examples.kind_of(path)
    ps = 2 if kind.startswith("parameter server") else 0
    np.savez(folder / "data.npz", **interleaved.Data(*problem.digits_like())._asdict())
    settings = {"dataset": str(folder / "data.npz"), "steps": 4, "checkpoint_steps": 2}
    flags = problem.command_line(settings)
    text, out = examples.replaced(path, changes) + SLOW_TEST, folder / "run"
    out.mkdir()
    copy = folder / path.name
    copy.write_text(text)
    script = examples.load(copy)
    with contextlib.ExitStack() as stack:
        if ps or "parallel" in kind:
            started, addresses, _ = interleaved.servers()
            interleaved.forget()
            jobs = {"ps": addresses["ps"][:ps]} if ps else {}
            jobs["worker"] = addresses["worker"][:1]
            patch.setattr(script.tf.train, "Server", lambda *_, **__: started["worker", 0])
        else:
            ports, held = cluster.hold_ports(1)
            stack.callback(lambda: [s.close() for s in held])
            jobs = cluster.addresses({"worker": 1}, ports)
        if kind != "single process":
            config = {"cluster": jobs, "task": {"type": "worker", "index": 0}}
            patch.setenv("TF_CONFIG", json.dumps(config))
        threads = "set_inter_op_parallelism_threads"  # this process has begun
        patch.setattr(script.tf.config.threading, threads, lambda _: None)
        patch.setenv("TF_GRPC_REUSE_PORT", "1")
        patch.setenv("OUTPUT_DIR", str(out))
        words = [str(part) for flag in flags.items() for part in flag]
        patch.setattr(sys, "argv", [path.name, *words])
        script.main()
    tests = (out / "metrics-worker-0.csv").read_text().splitlines()
    tests = [line.split(",") for line in tests[1:] if ",,,,,," in line]
    times = [[float(t) for t in line.split()] for line in open(out / "tests.txt")]
    wrong = []
    if len(tests) != len(times):
        wrong.append(f"tests: {len(tests)} rows of {len(times)}")
    for (end, began, *_), (first, last) in zip(tests, times):
        if not float(began) <= first < last <= float(end):
            off = float(began) - first, float(end) - last
            wrong.append("times: a test begins {:.3f} s and ends {:.3f} s late".format(*off))
    facts = json.loads((out / "flags.json").read_text())
    for name, due in {"ps": ps, "tasks": ["worker-0"], "script": str(copy)}.items():
        if facts[name] != due:
            wrong.append(f"{name}: {facts[name]}, not {due}")
    actual = {"--" + name.replace("_", "-"): v for name, v in facts["arguments"].items()}
    if {name: actual.get(name) for name in flags} != flags:
        wrong.append(f"arguments: {actual}")
    shapes = [list(shape) for _, shape in facts["variables"]]
    if shapes != [[6, 128], [128], [128, 64], [64], [64, 3], [3]]:
        wrong.append(f"variables: {shapes}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("script", support.core_first(loops()))
def test_a_test_begins_before_it_and_ends_after_it(script, tmp_path, monkeypatch):
    """Catches: a begin that is noted after the test, an end before it; facts of another run."""
    check_run(script, tmp_path, monkeypatch)


# Mistakes ----------------------------------------------------------------------------------------

SESSIONS = examples.main_script("From-TensorFlow-1/HogWild-Sessions")
HOGWILD = examples.main_script("HogWild")
SUPERVISOR = examples.main_script("From-TensorFlow-1/Distributed-Setup-Sessions")
SUPERVISOR = SUPERVISOR.with_name("distributed_setup_supervisor.py")
RING = examples.main_script("Ring-AllReduce")
SENT = "for t in update.pulled + update.pushed)"
TIMES = "    pulled, ready, pushed = times\n"
TEST_NOW = "metrics.test(time.time(), *session.run([step, *test]))"
TEST_EAGERLY = "metrics.test(time.time(), metrics.step, *[mean.numpy() for mean in test()])"
ROWS = {
    (SESSIONS, "bytes"): {
        "those of the first ps": [(SENT, "for t in update.pulled[:1] + update.pushed[:1])")],
        "those pulled": [(SENT, "for t in update.pulled)")],
        "8 bytes a number": [("* t.dtype.size", "* 8")],
    },
    (SESSIONS, "wait_seconds"): {
        "it begins at the pull": [("=pushed - ready", "=pushed - pulled")],
        "ready and pushed are swapped": [(TIMES, TIMES.replace("ready, pushed", "pushed, ready"))],
        "it is the gradient's time": [("=pushed - ready", "=ready - pulled")],
    },
    (SESSIONS, "(times|pull_time)"): {
        "pull and push are swapped": [
            ("push_time=pushed", "push_time=pulled"),
            ("pull_time=pulled", "pull_time=pushed"),
        ]
    },
}
FACTS = {
    (HOGWILD, "tasks"): {
        "reversed": [("for worker in cluster.workers]", "for worker in cluster.workers[::-1]]")],
    },
    (HOGWILD, "ps"): {"always 1": [('"ps": len(cluster.ps),', '"ps": min(len(cluster.ps), 1),')]},
    (HOGWILD, "metrics"): {
        "a direction turned": [('f"test_{name}": better', 'f"test_{name}": "max"')],
    },
    (HOGWILD, "variables"): {"sizes": [("list(v.shape)]", "[int(np.prod(v.shape))]]")]},
    (HOGWILD, "sizes"): {
        "of one variable": [('"sizes": sizes,', '"sizes": [["w", "float64", 5]],')],
    },
    (HOGWILD, "arguments"): {
        "without seed": [('"arguments": vars(flags)', '"arguments": {**vars(flags), "seed": 0}')]
    },
    (HOGWILD, "times"): {
        "begin and end swapped": [
            ('f"{time.time():.6f}", f"{began:.6f}"', 'f"{began:.6f}", f"{time.time():.6f}"')
        ]
    },
    (HOGWILD, "means"): {
        "the other way": [("_fields) - 3), *means]", "_fields) - 3), *means[::-1]]")]
    },
    (SESSIONS, "tasks"): {
        "reversed": [("for worker in workers]", "for worker in workers[::-1]]")],
        "without the chief": [("for worker in workers]", "for worker in workers[1:]]")],
    },
    (SESSIONS, "ps"): {"always 1": [('"ps": ps,', '"ps": min(ps, 1),')]},
    (SESSIONS, "metrics"): {
        "a direction turned": [('f"test_{name}": better', 'f"test_{name}": "max"')],
        "more loss is better": [('TEST = {"test_loss": "min"', 'TEST = {"test_loss": "max"')],
    },
    (SESSIONS, "variables"): {
        "sizes": [("list(v.shape)]", "[int(np.prod(v.shape))]]")],
        "in the order of names": [
            ("for v in parameters]", "for v in sorted(parameters, key=lambda v: v.path)]")
        ],
    },
    (SESSIONS, "arguments"): {
        "without seed": [('"arguments": vars(flags)', '"arguments": {**vars(flags), "seed": 0}')]
    },
    (SESSIONS, "versions"): {"Keras's": [("tf.__version__", "keras.__version__")]},
    (SESSIONS, "times"): {
        "begin and end swapped": [
            ('f"{time.time():.6f}", f"{began:.6f}"', 'f"{began:.6f}", f"{time.time():.6f}"')
        ]
    },
    (SESSIONS, "means"): {
        "the other way": [("_fields) - 3), *means]", "_fields) - 3), *means[::-1]]")]
    },
}
RUNS = {
    (SESSIONS, "times"): {
        "a begin after the test": [
            (TEST_NOW, "metrics.test(*(lambda m: (time.time(), *m))(session.run([step, *test])))")
        ],
        "an end that is the begin": [
            ('f"{time.time():.6f}", f"{began', 'f"{began:.6f}", f"{began')
        ],
    },
    (SESSIONS, "ps"): {"always 1": [("flags, ps)", "flags, 1)")]},
    (SUPERVISOR, "ps"): {"always 1": [("flags, len(servers))", "flags, 1)")]},
    (RING, "times"): {
        "a begin after the test": [
            (
                TEST_EAGERLY,
                "metrics.test(*(lambda m: (time.time(), metrics.step, *m))"
                "([mean.numpy() for mean in test()]))",
            )
        ]
    },
}


@pytest.mark.parametrize("script, fails, changes", support.mistakes(ROWS, core=0))
def test_a_mistake_in_a_row_is_caught(script, fails, changes, tmp_path):
    with support.fails_comparison(fails):
        check_rows(script, 3, tmp_path, changes, times=fails not in ("bytes", "examples"))


@pytest.mark.parametrize("script, fails, changes", support.mistakes(FACTS, core=1))
def test_a_mistake_in_the_facts_is_caught(script, fails, changes, tmp_path, monkeypatch):
    with support.fails_comparison(fails):
        check_facts(script, tmp_path, monkeypatch, changes)


@pytest.mark.parametrize("script, fails, changes", support.mistakes(RUNS, core=0))
def test_a_mistake_in_a_run_is_caught(script, fails, changes, tmp_path, monkeypatch):
    with support.fails_comparison(fails):
        check_run(script, tmp_path, monkeypatch, changes)
