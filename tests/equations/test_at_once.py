"""Two pushes that meet, whatever the script: both arrive, in one order or the other.

A gate stands before each op that changes what workers share, or that looks into a table. A worker
is held at one gate after the other, when all that its change is computed from has been read. In the
meantime others push whole, if no lock keeps them from it. Then the worker goes on.
"""

import contextlib
import itertools
import re
import threading
import time
import types

import equations
import in_process
import interleaved
import numpy as np
import problem
import pytest
import support
from lab import examples

ASYNCHRONOUS = [
    script
    for script in equations.compared(equations.INTERLEAVED)
    if equations.of(script).WORKERS > 1
]
COORDINATED = examples.main_script("Parameter-Server-Strategy")
GATED = re.compile(
    "Assign|Resource(Apply|SparseApply|Scatter|StridedSliceAssign|CountUpTo)|CountUpTo|Scatter"
    "|LookupTable(Insert|Find|Size)|MutableHashTable|QueueEnqueue|Accumulator"
)
# What a worker has afterwards, or which N pushes are together, depends on all parts at once.
WHOLE = ["aeasgd", "aeamsgd", "async_local_sgd"]
QUIET = 0.15  # seconds without a gate that is passed: the others wait for a lock


class Gates:
    """Gates of the graphs that are built with `built`; each has a number."""

    def __init__(self):
        self.graphs, self.shared, self.passed, self.held = {}, set(), [], None
        self.reached, self.open = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def built(self):
        from tensorflow.python.framework import ops

        create, numbers, inside = ops.Graph._create_op_internal, itertools.count(), []

        def create_behind_a_gate(graph, op_type, inputs, *more, **named):
            if inside or not GATED.match(op_type) or op_type.startswith("MutableHashTable"):
                return create(graph, op_type, inputs, *more, **named)
            number, outermost = next(numbers), graph
            while hasattr(outermost, "outer_graph"):
                outermost = outermost.outer_graph
            self.graphs[number] = outermost
            inside.append(number)
            try:
                with graph.as_default(), graph.control_dependencies(list(inputs)):
                    gate = self.tf.numpy_function(lambda: self.through(number), [], [])
            finally:
                inside.pop()
            with graph.control_dependencies([gate]):
                op = create(graph, op_type, inputs, *more, **named)
            if "/job:ps" in op.device + inputs[0].device:  # of the variable, or the table
                self.shared.add(number)
            return op

        import tensorflow.compat.v1 as tf

        self.tf = tf
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ops.Graph, "_create_op_internal", create_behind_a_gate)
            yield

    def through(self, number):
        """Passes a gate, or waits there."""
        self.passed.append(number)
        if number == self.held:
            self.held = None
            self.reached.set()
            self.open.wait(20)

    def of(self, worker):
        """Returns the numbers of the gates on the ps that a worker has passed, in order."""
        if not hasattr(worker, "session"):  # then all gates are in the functions of the ps
            return list(dict.fromkeys(self.passed))
        there = [n for n in self.passed if self.graphs[n] is worker.session.graph]
        return [n for n in dict.fromkeys(there) if n in self.shared]

    def wait(self, condition):
        """Returns when condition() is true, or when nobody passes a gate any more."""
        count, quiet_since = None, time.monotonic()
        quiet = support.patience(QUIET)
        while not condition() and time.monotonic() < quiet_since + quiet:
            if count != len(self.passed):
                count, quiet_since = len(self.passed), time.monotonic()
            time.sleep(0.002)

    def meet(self, number, work, others):
        """Calls work(), holds it at that gate while others work, if it comes there.

        Returns the results of all, and whether it was held.
        """
        self.held = number
        self.reached.clear()
        self.open.clear()
        try:
            first = interleaved.start(work)
            self.wait(lambda: first.done() or self.reached.is_set())
            rest = [interleaved.start(other) for other in others]
            self.wait(lambda: all(other.done() for other in rest))
        finally:
            self.held = None
            self.open.set()
        return [done.result(60) for done in [first, *rest]], self.reached.is_set()


@contextlib.contextmanager
def gated(script, n, flags, data=None, text=None):
    """Yields n workers of a script whose graphs have gates, and the gates.

    The functions of a ps are built when they are called first: in the meantime gates are added. w
    of those in WHOLE has one part: on two, two pushes may come in different orders.
    """
    gates, flags = Gates(), problem.command_line(flags)
    ps = 1 if script.stem in WHOLE else 2
    with gates.built(), in_process.workers(script, n, flags, data, text, ps=ps) as workers:
        yield workers, gates


def begin(workers):
    """Lets training begin again, on a ps of either kind."""
    if hasattr(workers, "begin"):
        return workers.begin()
    workers.workers[0].session.run(workers.workers[0].start[0])
    for worker in workers:
        worker.session.run(worker.start[1])


def step_of(workers):
    """Returns the count of updates."""
    if hasattr(workers, "servers"):
        return int(workers.servers.vector("global_step")[0])
    worker = workers.workers[0]
    return int(worker.session.run(next(v for v in worker.globals if v.op.name == "global_step")))


def check_one_of(numbers, candidates, where):
    """Asserts that each number is that of a candidate; a mistake fails by the name of the numbers.

    Parts of w on two ps may have the pushes in different orders.
    """
    wrong = []
    for name in sorted(numbers):
        due = [np.float64(interleaved.flat(values[name])) for values in candidates]
        apart = np.min([np.abs(numbers[name] - candidate) for candidate in due], axis=0).max()
        if not apart < 1e-5:
            wrong.append(f"{name}: {apart:g} apart from any order, {where}")
    assert not wrong, "\n".join(wrong)


def check_over(workers):
    """Asserts that a push after the last update ends at once, and moves nothing that is shared."""
    before, errors = workers.values(), workers.workers[0].tf.errors
    for k, worker in enumerate(workers):
        try:
            worker.push(seconds=10)
            raise AssertionError(f"steps: worker {k} makes an update after the last")
        except errors.OutOfRangeError:
            pass
        except errors.DeadlineExceededError:
            raise AssertionError(f"steps: worker {k} waits after the last update") from None
    after = workers.values()
    for name in sorted(set(before) - {"own parameters", "velocities"}):  # a worker's own
        apart = np.abs(after[name] - before[name]).max()
        assert apart == 0, f"{name}: moved by {apart:g} after the last update"


def meet(script, folder, text=None):
    """Asserts that nothing is lost where the push of worker 1 meets that of worker 0.

    These two updates are the last.
    """
    file = equations.of(script)
    data, gradient = file.PROBLEM(script, 2, folder)
    # Of Async-Local-SGD, the later of the two is the N-th push.
    before = [0, 1] * (file.FLAGS.get("momentum_delay", 5) // 2 - 1) + [1]
    flags = {**file.FLAGS, "steps": len(before) + 2}
    with gated(script, 2, flags, data, text) as (workers, gates):
        ways, held_once = [None], False
        while ways:
            way = ways.pop()
            begin(workers)
            both = workers.parameters(), 2, gradient, problem.LR
            due = {order: file.REFERENCE(*both, **file.FLAGS) for order in [(0, 1), (1, 0)]}
            workers.follow([(what, k) for k in before for what in ("pull", "push")])
            for expected in due.values():
                for k in before:
                    expected.pull(k)
                    expected.push(k)
                for k in 0, 1:
                    expected.pull(k)
            held = [worker.pull() for worker in workers]
            first, second = (
                lambda worker=worker, values=values: worker.push(values)
                for worker, values in zip(workers, held)
            )
            gates.passed.clear()
            if way is None:
                pushes, was_held = [first(), second()], True
                ways = gates.of(workers.workers[0])
                assert len(ways) >= 2
            else:
                pushes, was_held = gates.meet(way, first, [second])
            held_once |= was_held and way is not None
            actual = {k: push for k, push in enumerate(pushes)}
            rows = {order: {k: model.push(k) for k in order} for order, model in due.items()}
            where = f"held at gate {way}"
            like = [
                np.allclose([actual[k] for k in (0, 1)], [row[k] for k in (0, 1)], atol=1e-5)
                for row in rows.values()
            ]
            assert any(like), f"steps: {pushes}, {where}"
            count = step_of(workers)
            assert count == len(before) + 2, f"steps: {count} are counted, {where}"
            check_one_of(workers.values(), [model.values() for model in due.values()], where)
        assert held_once
        check_over(workers)


def meet_in_closures(text=None):
    """The same of Parameter-Server-Strategy, whose updates are functions that a worker executes."""
    script, gates = examples.load(COORDINATED, text), Gates()
    tf, flags = script.tf, types.SimpleNamespace(learning_rate=0.5)
    first = np.float32([1, 2, 3])

    def ones(w_k, _):
        return tf.constant(0.0), [tf.ones_like(v) for v in w_k]

    with tf.Graph().as_default(), gates.built():
        w, step = [tf.Variable(first), tf.Variable(10 * first)], tf.Variable(0, dtype=tf.int64)
        updates = [script.algorithm(w, step, ones, flags) for _ in range(2)]
        init = tf.compat.v1.global_variables_initializer()
        with tf.compat.v1.Session() as session:
            session.run(init)
            one, two = [
                lambda update=update: session.run([update.ticket, update.push])[0]
                for update in updates
            ]
            gates.passed.clear()
            one()
            ways, steps = list(dict.fromkeys(gates.passed)), 1
            assert len(ways) == 3
            for way in ways:
                tickets, was_held = gates.meet(way, one, [two])
                steps, where = steps + 2, f"held at gate {way}"
                assert was_held
                assert sorted(tickets) == [steps - 2, steps - 1], f"steps: {tickets}, {where}"
                values = {"parameters": interleaved.flat(session.run(w))}
                due = {"parameters": [first - steps / 2, 10 * first - steps / 2]}
                check_one_of(values, [due], where)


def test_closures_that_meet_lose_nothing():
    """Catches the same mistakes where workers execute the updates that a coordinator sends."""
    meet_in_closures()
    with support.fails_comparison("parameters"):
        meet_in_closures(examples.replaced(COORDINATED, [SUB]))


def core(scripts, names):
    """Returns parameters of a test: the tier core has the scripts of these names."""
    long = [pytest.mark.long]
    return [pytest.param(path, marks=[] if path.stem in names else long) for path in scripts]


IN_CORE = ["hogwild", "hogwild_sessions"]


@pytest.mark.parametrize("script", core(ASYNCHRONOUS, IN_CORE), ids=equations.ids)
def test_two_pushes_that_meet_lose_nothing(script, tmp_path):
    """Catches a rule that reads before it writes and holds no lock in between."""
    meet(script, tmp_path)


SUB = ("v.assign_sub(d)", "v.assign(v.read_value() - d)")
TICKET = "        ticket = tf.count_up_to(step, flags.steps)  # its error ends the run\n"
READ_TICKET = """        ticket = tf.identity(step.read_value())
        with tf.control_dependencies([step.assign(ticket + 1)]):
            ticket = tf.identity(ticket)
"""
COUNT_UP = (
    "        handle = self.variable.handle\n"
    "        return tf.raw_ops.ResourceCountUpTo(resource=handle, limit=self.steps, T=tf.int64)\n"
)
READ_COUNT = """        ticket = tf.identity(self.variable.read_value())
        with tf.control_dependencies([self.variable.assign(ticket + 1)]):
            return tf.identity(ticket)
"""
TICKETED = "    with tf.control_dependencies([ticket]):\n"
LOCKED = "lock.execute(move)"
MOVE = "        def move():\n            ticket = step.take()"
STEP = "w.assign_sub(flags.learning_rate / (tau + 1) * a)"
READ_STEP = "w.assign(w.read_value() - flags.learning_rate / (tau + 1) * a)"
ADAGRAD = """    tf.raw_ops.ResourceApplyAdagrad(
        var=w.handle, accum=h.handle, lr=flags.server_lr, grad=a, use_locking=True
    )
"""
IN_TWO = """    total = h + a * a
    h.assign(total)
    w.assign_sub(flags.server_lr * a / tf.sqrt(total))
"""
SCATTER = "e.table.scatter_sub(tf.IndexedSlices(change, here))"
ROWS = "e.table.scatter_update(tf.IndexedSlices(tf.gather(e.table, here) - change, here))"
DELAYED = "Further-Algorithms/Async-Local-SGD"
COMPENSATED = "Further-Algorithms/Delay-Compensation"
# (an example, the comparison that fails): {the mistake: [(text, what replaces it)]}
MISTAKES = {
    ("HogWild", "parameters"): {
        "w is read and then written": [("w.assign_sub(delta)", "w.assign(w.read_value() - delta)")],
    },
    ("HogWild", "steps"): {
        "the counter is read and then written": [(COUNT_UP, READ_COUNT)],
    },
    ("From-TensorFlow-1/HogWild-Sessions", "parameters"): {
        "w is read and then written": [SUB],
        "a push without a ticket": [(TICKETED, TICKETED.replace("ticket", ""))],
    },
    ("From-TensorFlow-1/HogWild-Sessions", "steps"): {
        "the counter is read and then written": [(TICKET, READ_TICKET)]
    },
    (DELAYED, "(parameters|velocity)"): {
        "no lock": [(LOCKED, "move()")],
    },
    (COMPENSATED, "parameters"): {
        "no lock": [(LOCKED, "move()")],
        "w is read before the lock is taken": [
            (MOVE, "        now = tf.identity(w.read_value())\n\n" + MOVE),
            ("late = w.read_value() - pulled", "late = now - pulled"),
        ],
    },
    ("AEASGD", "(steps|parameters)"): {"no lock": [(LOCKED, "move()")]},
    ("DynSGD", "parameters"): {
        "w is read and then written, without a lock": [
            (LOCKED, "move()"),
            (STEP, READ_STEP),
        ]
    },
    ("DOWNPOUR", "(accumulators|parameters)"): {"h is read and then written": [(ADAGRAD, IN_TWO)]},
    ("Sparse-Embeddings", "parameters"): {"rows are read and then written": [(SCATTER, ROWS)]},
}


@pytest.mark.parametrize("folder, fails, changes", support.mistakes(MISTAKES, core=0))
def test_a_lost_push_is_caught(folder, fails, changes, tmp_path):
    script = examples.main_script(folder)
    with support.fails_comparison(fails):
        meet(script, tmp_path, examples.replaced(script, changes))
