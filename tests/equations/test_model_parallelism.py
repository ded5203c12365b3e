"""Model-Parallelism: the update is that of the whole model, and each layer stays in its place.

Each case builds the script's own graph on servers, or on logical devices, in this process, makes
some updates, and reads from the statistics of one of them what ran where, and what crossed. It does
so by a session, which has such statistics; a tf.function has none.
"""

import collections
import itertools
import json
import re
import signal
import subprocess
import sys

import equations
import interleaved
import numpy as np
import problem
import psutil
import pytest
import support
from lab import examples
from tfrun import errors
from tfrun.launch import cluster

SCRIPT = examples.main_script("Model-Parallelism")
LAYOUTS = {  # name: (places, does each have a server, layers in each place)
    "two workers": (["/job:worker/task:0", "/job:worker/task:1"], True, [1, 2]),
    "three workers": ([f"/job:worker/task:{k}" for k in range(3)], True, [1, 1, 1]),
    "two devices": ([f"/job:localhost/task:0/device:CPU:{k}" for k in range(2)], False, [1, 2]),
    "one place": (["/job:localhost/task:0"], False, [3]),
}
EQUATION = equations.of(SCRIPT)
M, UPDATES = EQUATION.FLAGS["micro_batches"], 8


class Model:
    """The script's graph in some layout, initialised."""

    def __init__(self, layout, micro_batches=M, text=None, dataset=None, schedule="1f1b"):
        places, servers, _ = LAYOUTS[layout]
        flags = problem.command_line({"micro_batches": micro_batches, "schedule": schedule})
        script, flags = interleaved.loaded(SCRIPT, text, flags)
        self.script, tf = script, script.tf.compat.v1
        data = script.load_data(dataset) if dataset else script.Data(*problem.digits_like())
        script.keras.utils.set_random_seed(flags.seed)
        parts = script.stages(script.make_model(data), len(places))
        # In a graph, Keras does not say what its variables hold.
        first = {id(v): v.numpy() for part in parts for v in part.variables}
        placed = script.placed_variables

        def placed_variables(name, values, places):
            values = [[first.get(id(v), v) for v in values_there] for values_there in values]
            return placed(name, values, places)

        script.placed_variables = placed_variables
        with tf.Graph().as_default() as graph:
            self.step, w, state, update, test = script.build(parts, data, places, flags)
            self.w, self.state = sum(w, []), sum(state, [])
            self.update, self.test = update(), test()
            self.row = tf.stack(script.push_row(self.update, self.step, flags))
            start = tf.global_variables_initializer()
        target = interleaved.servers()[0]["worker", 0].target if servers else ""
        config = tf.ConfigProto(device_count={"CPU": len(places)})
        self.session = tf.Session(target, graph=graph, config=config)
        self.session.run(start)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session.close()

    def parameters(self):
        return [np.array(v) for v in self.session.run(self.w)]

    def make_updates(self, count):
        """The losses of so many updates."""
        return [self.session.run(self.row)[5] for _ in range(count)]

    def traced(self):
        """The statistics of one update, a RunMetadata, and its line in the metrics."""
        tf = self.script.tf.compat.v1
        statistics = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        row = self.session.run(self.row, options=options, run_metadata=statistics)
        return statistics, row


def compare(layout, micro_batches=M, text=None, schedule="1f1b"):
    """The named comparisons of numbers that a mistake must fail.

    The reference makes the same updates, and knows no places.
    """
    with Model(layout, micro_batches, text, schedule=schedule) as model:
        first = model.parameters()
        losses, last = model.make_updates(UPDATES), model.parameters()
    expected, due = EQUATION.REFERENCE(first, 1, problem.gradient_on_digits(1), problem.LR), []
    for _ in range(UPDATES):
        expected.pull(0)
        loss, _, _ = expected.push(0)
        due.append(loss)
    interleaved.check_apart({"parameters": (last, expected.w), "losses": (losses, due)}, 1e-6)
    assert min(np.abs(a - b).max() for a, b in zip(last, first)) > 0.001


Op = collections.namedtuple("Op", "place type name inputs begin end")


def place_of(device, places):
    """The number of the place that has this device."""
    name = device.replace("/replica:0", "")
    return next(k for k, place in enumerate(places) if name.startswith(place))


def ops(statistics, places):
    """What ran, each op with its place: that is said by the statistics of the update alone."""
    ran = []
    for device in statistics.step_stats.dev_stats:
        place = place_of(device.device, places)
        for node in device.node_stats:
            label = re.match(r"(\S+) = (\w+)\((.*)\)", node.timeline_label)
            if label:
                begin = node.all_start_micros + node.op_start_rel_micros
                end = node.all_start_micros + node.op_end_rel_micros
                ran.append(Op(place, label[2], label[1], label[3].split(", "), begin, end))
    assert len(ran) > 100
    return ran


def crossed(statistics, places):
    """{(from, to): names of the tensors} that went from one place to another in the update."""
    edges = collections.defaultdict(set)
    for graph in statistics.partition_graphs:
        for node in graph.node:
            if node.op in ("_Recv", "_HostRecv"):
                ends = [
                    place_of(node.attr[end].s.decode(), places)
                    for end in ("send_device", "recv_device")
                ]
                name = node.attr["tensor_name"].s.decode()
                edges[tuple(ends)].add(re.sub(r"^edge_\d+_", "", name))
    return edges


def passes(ran):
    """Returns {place: [(begin, end, forward or backward, micro-batch)]} of these ops, in order."""
    times = collections.defaultdict(list)
    for op in ran:
        scope = re.match(r"(forward|backward)/micro_batch_(\d+)", op.name)
        # An op ..._S<number> or .../_<number> is a message that TensorFlow has added.
        if scope and not re.search(r"(_S|/_)\d+$", op.name):
            times[op.place, scope[1], int(scope[2])] += [op.begin, op.end]
    by_place = collections.defaultdict(list)
    for (place, what, m), moments in times.items():
        by_place[place].append((min(moments), max(moments), what, m))
    return {place: sorted(by_place[place]) for place in sorted(by_place)}


def due_order(schedule, k, K, M):
    """What place k does, by the papers: all forward first, or one forward, one backward in turn."""
    forward, backward = ([(what, m) for m in range(M)] for what in ("forward", "backward"))
    first = M if schedule == "gpipe" else min(K - 1 - k, M)
    in_turn = itertools.chain(*zip(forward[first:], backward))
    return [*forward[:first], *in_turn, *backward[M - first :]]


def stored(done):
    """The most micro-batches that have begun forward, and are not back, at any time."""
    begun = [begin for begin, _, what, _ in done if what == "forward"]
    back = [end for _, end, what, _ in done if what == "backward"]
    return max(sum(t <= now for t in begun) - sum(t <= now for t in back) for now in begun)


def check_places(layout, text=None, micro_batches=M, schedule="1f1b"):
    """The named counts that a mistake must fail: what ran where, in which order, what crossed."""
    places, _, layers = LAYOUTS[layout]
    with Model(layout, micro_batches, text, schedule=schedule) as model:
        model.make_updates(1)
        statistics, row = model.traced()
        ran, wrong = ops(statistics, places), []

        # Matrix products: forward one a layer; backward one for its weights, and one for its
        # inputs, but in the first layer, whose inputs are data.
        actual = collections.Counter(
            (op.place, op.name.split("/")[0]) for op in ran if "MatMul" in op.type
        )
        due = collections.Counter()
        for k, count in enumerate(layers):
            due[k, "forward"] = micro_batches * count
            due[k, "backward"] = micro_batches * (2 * count - (k == 0))
        if actual != due:
            wrong.append(f"matmuls: {dict(actual)}, not {dict(due)}")

        # Variables: what reads and what moves them is where they are.
        home = itertools.chain(*([k] * 2 * count for k, count in enumerate(layers)))
        due = {f"w_{i}": {k} for i, k in enumerate(home)}
        actual = {name: set() for name in due}
        moved = 0
        for op in ran:
            for name in {op.name, *op.inputs} & set(due):
                actual[name].add(op.place)
                moved += op.type == "AssignSubVariableOp"
        if actual != due or moved != len(due):
            wrong.append(f"variables: {actual}, {moved} moved")

        # The order of the passes, and that each ends before the next; what a place stores.
        for k, done in passes(ran).items():
            actual = [(what, m) for _, _, what, m in done]
            if actual != due_order(schedule, k, len(places), micro_batches):
                wrong.append(f"order: place {k} did {actual}")
            for (*_, end, what, m), (begin, *_) in zip(done, done[1:]):
                if begin < end:
                    wrong.append(f"order: another pass before the end of {what} {m} in place {k}")
            most = micro_batches if schedule == "gpipe" else min(len(places) - k, micro_batches)
            if stored(done) != most:
                wrong.append(f"stored: {stored(done)} micro-batches in place {k}, not {most}")

        # What crossed: activations forth, their gradients back, and else only single numbers.
        half = len(model.update.pushed) // 2
        forth, back = model.update.pushed[:half], model.update.pushed[half:]
        edges, graph = crossed(statistics, places), model.session.graph
        due = collections.defaultdict(set)
        for number, (h, d) in enumerate(zip(forth, back)):
            k = number // micro_batches
            due[k, k + 1].add(h.op.name)
            due[k + 1, k].add(d.op.name)
        large = {
            ends: {name for name in names if large_in(graph, name)} for ends, names in edges.items()
        }
        large = {ends: names for ends, names in large.items() if names}
        if large != due:
            wrong.append(f"crossing: {large}, not {dict(due)}")
        size = sum(4 * np.prod(t.shape.as_list()) for t in forth + back)
        if row[7] != size:
            wrong.append(f"bytes: {row[7]}, not {size}")
        assert not wrong, "\n".join(wrong)
        return statistics, size


def large_in(graph, name):
    """Whether the op of this name puts out more than a number; grappler's own make none."""
    try:
        outputs = graph.get_operation_by_name(name).outputs
    except KeyError:
        return False
    return any(t.shape.rank is None or t.shape.rank > 0 for t in outputs)


@pytest.mark.parametrize("schedule", support.some_in_core(["gpipe", "1f1b"], ["1f1b"]))
@pytest.mark.parametrize(
    "layout, micro_batches",
    [
        *(("two workers", count) for count in (1, 2, 4, 8)),
        *((layout, M) for layout in ("three workers", "two devices", "one place")),
        ("three workers", 2),
        ("two devices", 1),
    ],
)
def test_the_update_is_that_of_the_whole_model(layout, micro_batches, schedule):
    """Neither places nor micro-batches nor their order change it."""
    compare(layout, micro_batches, schedule=schedule)


@pytest.mark.parametrize("schedule", support.some_in_core(["gpipe", "1f1b"], ["1f1b"]))
@pytest.mark.parametrize(
    "layout, micro_batches",
    [("two workers", M), ("three workers", 8), ("three workers", 2), ("two devices", M)],
)
def test_each_layer_stays_in_its_place_and_each_pass_in_its_order(layout, micro_batches, schedule):
    check_places(layout, micro_batches=micro_batches, schedule=schedule)


@pytest.mark.parametrize("layout", ["two workers", "three workers"])
def test_the_servers_receive_as_many_bytes(layout):
    """As the metrics say, and at most a few numbers more."""
    for _ in range(10):  # now and then a trace lacks some of what a server has received
        statistics, size = check_places(layout)
        labels = [
            node.timeline_label
            for device in statistics.step_stats.dev_stats
            for node in device.node_stats
            if node.node_name == "RecvTensor"
        ]
        received = sum(int(re.match(r"\[(\d+)B\]", label)[1]) for label in labels)
        assert received <= size + 100, labels
        if received >= size:
            return
    raise AssertionError(f"{received} bytes instead of {size}: {labels}")


# A model of one's own: with a place for its convolution, and one for the layer after it.
CONVOLUTION = """
def make_model(data):
    return keras.Sequential([
        keras.Input([64]), keras.layers.Reshape([8, 8, 1]),
        keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
        keras.layers.MaxPool2D(), keras.layers.Flatten(), keras.layers.Dense(10)])
"""
# Layers that keep something beside w, and penalties on w, in both places.
KEEPING = """
def make_model(data):
    def dense(units):
        return keras.layers.Dense(units, kernel_regularizer=keras.regularizers.L2(0.1))
    return keras.Sequential([
        keras.Input([6]), dense(8), keras.layers.BatchNormalization(momentum=0.5),
        keras.layers.BatchNormalization(momentum=0.5), dense(3)])
"""


def plugged(model):
    """The script with another model in its problem region."""
    text = SCRIPT.read_text()
    begin, end = text.index("def make_model("), text.index("def loss(y, outputs):")
    return text[:begin] + model.strip() + "\n\n\n" + text[end:]


def test_another_model_is_cut():
    with Model("two workers", text=plugged(CONVOLUTION), dataset="digits") as model:
        losses = model.make_updates(90)
        _, accuracy = model.session.run(model.test)
        ran = {
            (op.place, op.type)
            for op in ops(model.traced()[0], LAYOUTS["two workers"][0])
            if "Conv2D" in op.type or "MatMul" in op.type
        }
    assert sum(losses[-20:]) < 0.7 * sum(losses[:20]) and accuracy > 0.6, (losses, accuracy)
    assert {place for place, kind in ran if "Conv" in kind} == {0}, ran
    assert {place for place, kind in ran if "MatMul" in kind} == {1}, ran


def check_kept(changes=(), schedule="1f1b"):
    """The named comparisons of numbers, with Keras's own, that a mistake must fail."""
    text = examples.replaced(plugged(KEEPING), changes)
    with Model("two workers", text=text, schedule=schedule) as model:
        w, state = model.parameters(), model.session.run(model.state)
        losses, last = model.make_updates(3), model.parameters()
        kept, script = model.session.run(model.state), model.script
    assert len(kept) == len(state) == 4
    x, y = problem.digits_like()[:2]
    whole, due = script.make_model(script.Data(*problem.digits_like())), []
    for number in range(3):
        rows = problem.draw(0, number, problem.BATCH, len(x))
        batches = [(x[part], y[part]) for part in np.split(rows, M)]
        loss, w, state = problem.keras_step(whole, w, state, batches)
        due.append(loss)
    # A batch of few rows has small variances, by which BatchNormalization divides rounding errors.
    compared = {"losses": (losses, due), "parameters": (last, w), "state": (kept, state)}
    interleaved.check_apart(compared, 1e-4)


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_what_layers_keep_and_their_penalties(schedule):
    check_kept(schedule=schedule)


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize(
    "fails, changes",
    [
        ("state", [("after[k], penalties[k, m] = stages", "_, penalties[k, m] = stages")]),
        ("losses", [("sum(penalties.values(), [])", "penalties[K - 1, M - 1]")]),
        (
            "parameters",
            [
                ("[h[k + 1, m], *penalties[k, m]]", "[h[k + 1, m]]"),
                ("(k + 1, m)), *[None] * len(penalties[k, m])]", "(k + 1, m))]"),
            ],
        ),
    ],
)
def test_a_mistake_in_what_layers_keep_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_kept(changes)


def test_the_test_is_that_of_the_whole_model():
    """The accuracy and the loss on the test set, in places, against one place."""
    results = []
    for layout in "three workers", "one place":
        with Model(layout) as model:
            model.make_updates(3)
            results.append(model.session.run(model.test))
    assert np.abs(np.array(results[0]) - results[1]).max() < 1e-6


@pytest.mark.long
@pytest.mark.parametrize("script, fails, changes", equations.mistakes([SCRIPT], core=2))
def test_a_mistake_is_caught(script, fails, changes):
    text = examples.replaced(script, changes)
    with support.fails_comparison(fails):
        if fails in ("parameters", "losses"):
            compare("two workers", text=text)
        else:
            for _ in range(10 if fails == "order" else 1):  # by chance they may come in order
                check_places("two workers", text, micro_batches=8 if fails == "order" else M)


class Run:
    """Two workers that were started by hand, and that nobody watches."""

    def __init__(self, folder, *flags):
        self.folder, self.metrics = folder, folder / "run" / "metrics-worker-0.csv"
        self.flags = ["--steps", "100000", *flags]

    def __enter__(self):
        ports, self.held = cluster.hold_ports(2)
        environments = cluster.environments({"worker": 2}, ports, self.folder / "run")
        self.tasks = [
            subprocess.Popen(
                [sys.executable, SCRIPT, *self.flags],
                env={**support.warm_environment(self.folder / "run"), **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for env in environments.values()
        ]
        support.wait_until(lambda: self.updates() >= 20, 60, "it trains")
        return self

    def updates(self):
        return self.metrics.read_text().count("\n") if self.metrics.exists() else 0

    def end(self, rank, seconds):
        """The exit code of a task that ends in so many seconds, and what it has said."""
        output = self.tasks[rank].communicate(timeout=support.patience(seconds))[1]
        return self.tasks[rank].returncode, output

    def __exit__(self, *_):
        for task in self.tasks:
            task.kill()
            task.communicate()
        for s in self.held:
            s.close()


@pytest.mark.parametrize(
    "victim, number",
    [
        (1, signal.SIGKILL),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(1, signal.SIGSTOP, marks=pytest.mark.long),
        pytest.param(0, signal.SIGSTOP, marks=pytest.mark.long),
    ],
)
def test_who_is_left_ends(victim, number, tmp_path):
    """By an error that names the other one, in --step-timeout seconds and a few."""
    with Run(tmp_path, "--step-timeout", "4") as run:
        support.program_of(psutil.Process(run.tasks[victim].pid)).send_signal(number)
        code, output = run.end(1 - victim, 20)
    words = f"Error: worker {victim} did not answer at 127.0.0.1:"
    is_late = (victim, number) == (0, signal.SIGSTOP)  # the others wait for a word of worker 0
    assert code == 1 and ("Timeout" if is_late else "Connection") + words in output, output
    assert "Look into its log" in errors.explain(output)


@pytest.mark.long
def test_a_chief_that_dies_is_restarted(tmp_path):
    """With restarts the run goes on from the checkpoint."""
    flags = ["--steps", "3000", "--checkpoint-steps", "100"]
    with support.Run(SCRIPT.parent / "run.sh", tmp_path, *flags, TFRUN_RESTARTS="2") as run:
        support.wait_until(lambda: run.step() > 300, 40, "300 updates")
        run.worker(0).kill()
        output = run.process.communicate(timeout=100)[0]
    assert run.process.returncode == 0, output
    assert "worker 0 was killed by SIGKILL; it starts again" in output
    result = support.result(tmp_path)
    steps = [row["global_step"] for row in support.pushes(tmp_path)]
    assert result["steps"] == 3000 and result["test_accuracy"] > 0.95
    assert set(steps) == set(range(1, 3001)) and 0 < len(steps) - 3000 <= 200, len(steps)


@pytest.mark.long
def test_the_timeline_of_a_run(tmp_path):
    """--timeline-steps: run.sh leaves what chrome://tracing shows, of both workers."""
    code, output, _ = support.launch(
        SCRIPT.parent / "run.sh", tmp_path, "--steps", "9", "--timeline-steps", "4"
    )
    assert code == 0, output
    paths = sorted(tmp_path.glob("timeline-*.json"))
    assert len(paths) >= 2
    events = json.loads(paths[-1].read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    ran = collections.defaultdict(set)
    for event in events:
        if event["ph"] == "X":
            ran[names[event["pid"]]].add(tuple(event["args"]["name"].split("/")))
    due = {"forward": 4, "backward": 4, "update": 1}
    for passes in ran.values():
        assert collections.Counter(what for what, *_ in passes) == due, ran
    assert len(ran) == 2
