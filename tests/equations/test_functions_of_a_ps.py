"""What a ps of the new kind promises: one clock for all parts, refusals, real threads, the end."""

import contextlib
import functools
import json
import os
import pathlib
import queue
import tempfile
import threading
import time
import types
from unittest import mock

import equations
import in_process
import interleaved
import numpy as np
import pytest
import support
from interleaved import start
from lab import examples
from problem import BATCH, LR, SMOOTH, command_line, gradient_on_digits
from tfrun.apps import references
from tfrun.launch import cluster

HOGWILD = examples.main_script("HogWild")
SPARSE = examples.main_script("Sparse-Embeddings")
ALL = [path for path in examples.scripts() if in_process.is_kind(path) and path != SPARSE]
# Of these the tier core has one of each kind: the regions around it are the same text.
FORMS = ["hogwild", "synchronous_sgd"]
FORMS_FIRST = [
    pytest.param(path, id=path.stem, marks=[] if path.stem in FORMS else support.beyond_core(path))
    for path in ALL
]
SCRIPTS = [path for path in ALL if examples.kind_of(path) == "parameter server, asynchronous"]
# Whose push subtracts what it is given, whatever others have pushed.
SUBTRACT = ["hogwild", "distributed_setup", "downpour_easy", "adag"]
LOCKED = ["dynsgd", "delay_compensation", "async_local_sgd", "aeasgd", "aeamsgd"]


def compare(text=None, largest=2000, ps=2):
    """Asserts that HogWild in many parts is its equation."""
    flags = command_line({})
    with in_process.Workers(HOGWILD, 2, flags, text=text, ps=ps, largest=largest) as workers:
        parts = list(workers.workers[0].ps.parts["w"])
        assert len(parts) > 2 and len({part.ps for part in parts}) == ps
        expected = references.HogWild(workers.parameters(), 2, gradient_on_digits(2), LR)
        interleaved.compare_pushes(workers, expected, interleaved.SCHEDULE)


@pytest.mark.parametrize("ps", [1, 2])
def test_w_in_many_parts_is_the_same_algorithm(ps):
    compare(ps=ps)


def test_the_parts_can_be_on_other_ps():
    compare(text=examples.replaced(HOGWILD, [("slice_spec, i % ps)", "slice_spec, (i + 1) % ps)")]))


@pytest.mark.plants_mistakes
def test_numbers_that_are_cut_in_another_order_are_caught():
    changes = [("return tf.split(argument, [", "return tf.split(argument[::-1], [")]
    with support.fails_comparison("parameters"):
        compare(text=examples.replaced(HOGWILD, changes))


def two_parts(script=HOGWILD, text=None, steps=99):
    """Returns Workers with a part of w on each of two ps."""
    return in_process.Workers(script, 2, command_line({"steps": steps}), text=text)


def test_the_first_part_counts_for_all_when_a_worker_is_late():
    """Delays worker 0 between two parts, by calling them one at a time."""
    with two_parts() as workers:
        tf, worker = workers.tf, workers.workers[0]
        first, second = worker.ps.parts["w"]
        move = [tf.ones([part.end - part.begin]) for part in (first, second)]
        ticket, version, _ = worker.ps.call_one("push", first, move[0]).get_value()
        before = workers.servers.vector("w")
        others = [workers.workers[1].push()[1:] for _ in range(3)]
        between = workers.servers.vector("w")
        counted = ticket, version
        told = worker.ps.call_one("push", second, move[1], counts=counted).get_value()
        moved = between - workers.servers.vector("w")
        counts = [int(count) for count in told[:2]]
        assert int(ticket) == 0 and others == [(1, 0), (2, 0), (3, 0)], f"steps: {others}"
        assert counts == [0, 1], f"steps: the second part counts {counts} for itself"
        assert int(worker.ps.pull().version) == 4, "steps: not four"
        assert np.abs(between - before).max() > 0.001, "parameters: the others have moved none"
        due = np.concatenate([0 * move[0], move[1]])
        assert np.allclose(moved, due, atol=1e-6), "parameters: not the second part by 1"


def refused(worker, name, arguments, part=0):
    """Asserts that the ps with this part refuses a call, and that no part and no count changes."""
    before, was_refused = worker.ps.pull(), False
    errors = worker.tf.errors.InvalidArgumentError, TypeError
    try:
        worker.ps.clients[part].functions[f"{name}_{part}"](*arguments)
    except errors:
        was_refused = True
    after = worker.ps.pull()
    counted, moved = int(after.version - before.version), np.abs(after.w - before.w).max()
    assert counted == 0, f"counted: {counted} updates by a call of {name} that must be refused"
    assert moved == 0, f"moved: w, by {moved:g}, by a call of {name} that must be refused"
    assert was_refused, f"refused: not the call of {name} with {arguments}"


def check_refusals(text=None):
    with two_parts(text=text) as workers:
        tf, worker = workers.tf, workers.workers[0]
        header, (first, second) = worker.ps.header(), worker.ps.parts["w"]
        age, size = tf.constant([1, 0, 0, 0], tf.int64), first.end - first.begin
        for other in tf.ones([size + 1]), tf.ones([1]), tf.ones([1, size]), tf.ones([]):
            refused(worker, "push", [header, other])
        refused(worker, "push", [header, tf.ones([size], tf.int32)])
        refused(worker, "push", [header, tf.ones([size]), tf.ones([size])])
        for other in header + age, header - age, -header, header[:1], tf.cast(header, "int32"):
            refused(worker, "push", [other, tf.ones([size])])
        refused(worker, "set_w", [header - age, tf.zeros([size])])
        refused(worker, "set_w", [header, tf.zeros([size + 1])])
        size = second.end - second.begin
        refused(worker, "push", [header, tf.ones([size + 1])], 1)
        refused(worker, "push", [header + age, tf.ones([size])], 1)
        refused(worker, "push", [header[:2], tf.ones([size])], 1)  # nobody tells it the counts


def test_a_wrong_size_type_or_age_takes_no_ticket_and_moves_nothing():
    check_refusals()


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "fails, changes",
    [
        ("counted", [("list(map(checked, arguments))", "list(arguments)")]),
        ("counted", [("[check, *arguments]", "[check]")]),
        ("counted", [("tf.equal(age_of_client, age)", "True")]),
        ("counted", [("tf.equal(age_of_client, age)", "age_of_client >= age")]),
        ("counted", [("[check, *arguments]", "arguments")]),
    ],
    ids=[
        "the size is not checked",
        "the size is checked later",
        "the age is not checked",
        "a later age will do",
        "the age is checked later",
    ],
)
def test_a_call_that_is_not_refused_in_time_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_refusals(examples.replaced(HOGWILD, changes))


def check_foreign_rows(folder, changes=()):
    """The named comparisons of pushes with rows that a ps does not have, or that do not match."""
    file, text = equations.of(SPARSE), examples.replaced(SPARSE, changes)
    data, _ = file.PROBLEM(SPARSE, 2, folder)
    with in_process.Workers(SPARSE, 2, command_line(file.FLAGS), data, text) as workers:
        tf, worker = workers.tf, workers.workers[0]
        part, end = worker.ps.parts["w"][0], 2 * file.FLAGS["words"]
        delta, before = tf.ones([part.end - part.begin]), workers.values()["parameters"]
        wrong = []
        for ids, shape in [
            ([0, 1], [2, 5]),  # row 1 is on the other ps
            ([-2], [1, 5]),
            ([end], [1, 5]),
            ([0, 2], [1, 5]),
            ([0, 2], [2, 4]),
        ]:
            push = worker.ps.clients[0].functions["push_0"]
            try:
                push(worker.ps.header(), delta, tf.constant(ids, tf.int64), tf.ones(shape))
                wrong.append(f"refused: not rows {ids} with values {shape}")
            except tf.errors.InvalidArgumentError:
                pass
        counted = int(worker.ps.pull().version)
        moved = np.abs(workers.values()["parameters"] - before).max()
    assert not counted, f"counted: {counted} updates by what must be refused"
    assert not moved, f"moved: by {moved:g} by what must be refused"
    assert not wrong, "\n".join(wrong)


def test_a_push_with_rows_of_another_ps_moves_nothing(tmp_path):
    """Catches rows that mix with those of another ps, and a ticket for a push that is refused."""
    check_foreign_rows(tmp_path)


MINE = "tf.debugging.Assert(tf.reduce_all(mine), "


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "changes",
    [
        [(MINE, MINE.replace("tf.reduce_all(mine)", "True"))],
        [("here = e.here(ids, change)", "here = e.here(ids)")],
        [("& (0 <= ids) & (ids < self.rows)", "")],
    ],
    ids=["any row", "any number of values", "a row beyond the table"],
)
def test_rows_that_are_not_refused_are_caught(changes, tmp_path):
    with support.fails_comparison("(counted|moved|refused)"):
        check_foreign_rows(tmp_path, changes)


def check_threads(script=HOGWILD, text=None, steps=400):
    """The named comparisons of what two threads have done that push whatever the ps gives them.

    Each push moves all numbers by the same, so w says how many updates it has had.
    """
    moved, replies = 2.0**-12, [[], []]
    with two_parts(script, text, steps) as workers:
        tf, before = workers.tf, workers.servers.vector("w")
        workers.workers[0].ps.set_values({"w": 0 * before})
        delta, first = tf.fill([len(before)], moved), workers.workers[0].ps.parts["w"][0].end
        begin, over = threading.Barrier(2), [False, False]

        def push(k):
            ps = workers.workers[k].ps
            ps.pull()
            begin.wait(60)
            try:
                while len(replies[k]) <= steps:
                    reply = ps.push(delta)
                    replies[k].append([int(reply.ticket), int(reply.version), *ends(reply.w)])
            except tf.errors.OutOfRangeError:
                over[k] = True

        def ends(w):
            """The fewest and the most updates that the first part of w has had."""
            return [float(-f(w[:first]) / moved) for f in (tf.reduce_max, tf.reduce_min)]

        threads = [threading.Thread(target=push, args=[k]) for k in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.patience(60))
        after = workers.servers.vector("w")
    rows = np.array(replies[0] + replies[1])
    assert sorted(rows[:, 0]) == list(range(steps)), "steps: a ticket is missing, or was twice"
    assert over == [True, True], "steps: a thread has not heard of the end"
    assert min(map(len, replies)) > 0, "steps: one thread has made all pushes"
    apart = np.abs(after + steps * moved).max()
    assert apart == 0, f"parameters: {apart:g} apart from the sum of all pushes"
    torn = (rows[:, 2] != rows[:, 3]).sum()
    assert torn == 0, f"torn: {torn} replies have numbers of different updates in one part"
    # Whoever has a ticket has moved w once he gets the reply; the other one may be about to.
    late = rows[:, 1] - rows[:, 2]
    assert late.max() <= 1, f"version: it is {late.max():g} updates ahead of w"
    assert (rows[:, 0] < rows[:, 1]).all(), "version: without the worker's own push"


@pytest.mark.parametrize(
    "script",
    support.some_in_core([path for path in SCRIPTS if path.stem in SUBTRACT], ["hogwild"]),
    ids=lambda path: path.stem,
)
def test_two_threads_push_at_once(script):
    """Real threads: each ticket is given once, all steps are made, and w is the sum of pushes."""
    check_threads(script)


def check_lock(script, changes=(), pushes=40):
    """Two threads pull and push whatever the ps gives them; the reference then does the same.

    The tickets say in which order, and the versions after how many updates each has pulled.
    """
    file, text = equations.of(script), examples.replaced(script, [*SMOOTH, *changes])
    gradient, rate = gradient_on_digits(2, "tanh"), LR / 3  # at LR, what is stale may diverge
    flags = command_line({**file.FLAGS, "learning_rate": rate})
    with in_process.Workers(script, 2, flags, text=text, ps=1) as workers:
        expected = file.REFERENCE(workers.parameters(), 2, gradient, rate, **file.FLAGS)
        begin, rows = threading.Barrier(2), []

        def work(worker):
            begin.wait(60)
            held = worker.pull()
            for _ in range(pushes):
                version = int(held[0])
                loss, ticket, _ = worker.push(held)
                rows.append((ticket, version, worker.rank, loss))
                held = worker.reply.version, worker.reply.w

        threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.patience(60))
        values = workers.values()
    history, apart = [expected.copy()], []
    for _, version, k, loss in sorted(rows):
        now, expected.w = expected.w, history[version]
        expected.pull(k)
        expected.w, expected.pulled[k] = now, (version, expected.pulled[k][1])
        apart.append(abs(expected.push(k)[0] - loss))
        history.append(expected.copy())
    assert [ticket for ticket, *_ in sorted(rows)] == list(range(2 * pushes)), "steps: not all"
    assert max(apart) < 1e-4, f"losses: {max(apart):g} apart"
    for name, due in expected.values().items():
        far = np.abs(values[name] - interleaved.flat(due)).max()
        assert far < 1e-4, f"{name}: {far:g} apart from the pushes one after the other"


@pytest.mark.parametrize(
    "script",
    support.some_in_core([path for path in SCRIPTS if path.stem in LOCKED], ["delay_compensation"]),
    ids=lambda path: path.stem,
)
def test_two_threads_push_to_a_ps_with_a_lock(script):
    """Real threads: the ps makes one push after the other, and a pull is of one moment."""
    check_lock(script)


BETWEEN = "            with tf.control_dependencies([ticket]):\n"
PAUSED = """\
            wait = tf.numpy_function(lambda x: time.sleep(0.01) or x, [ticket], tf.int64)
            with tf.control_dependencies([wait]):
"""


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "name",
    [pytest.param("DynSGD", marks=pytest.mark.long), "Further-Algorithms/Delay-Compensation"],
)
def test_a_push_without_a_lock_is_caught(name):
    """It pauses between its ticket and its move, so that the other one comes between."""
    script = examples.main_script(name)
    text = script.read_text()
    at = text.index(BETWEEN)
    paused = (text[at - 80 : at + len(BETWEEN)], text[at - 80 : at] + PAUSED)
    with support.fails_comparison("(losses|parameters)"):
        check_lock(script, [paused, ("lock.execute(move)", "move()")])


SYNC = examples.main_script("Synchronous-SGD")


def check_together(changes=(), n=3, steps=30, seconds=10):
    """Threads that push as they come, one of them slowly to the second part, make the steps."""
    text, rows = examples.replaced(SYNC, [*SMOOTH, *changes]), []
    gradient = gradient_on_digits(n, "tanh")
    with in_process.Workers(SYNC, n, command_line({}), text=text) as workers:
        expected = references.Synchronous(workers.parameters(), n, gradient, LR)

        def work(worker):
            held = worker.pull()
            with contextlib.suppress(worker.script.tf.errors.OpError):  # a wait that was ended
                for _ in range(steps):
                    loss, ticket, staleness = worker.push(held)
                    rows.append((ticket, worker.rank, staleness, loss))
                    held = worker.reply.version, worker.reply.w

        late = workers.workers[0].ps.clients[1].functions
        late["pull_1"] = paused(late["pull_1"])
        threads = [threading.Thread(target=work, args=[w], daemon=True) for w in workers]
        for thread in threads:
            thread.start()
        end = time.monotonic() + support.patience(seconds)
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        values = workers.values()["parameters"]
    due = [(step, k, 0) for step in range(steps) for k in range(n)]
    assert [row[:3] for row in sorted(rows)] == due, "steps: not one gradient a worker and step"
    losses = [loss for _ in range(steps) for loss in expected.joint_step(range(n))]
    apart = np.abs(np.subtract(losses, [loss for *_, loss in sorted(rows)])).max()
    assert apart < 1e-4, f"losses: {apart:g} apart"
    apart = np.abs(values - interleaved.flat(expected.w)).max()
    assert apart < 1e-4, f"parameters: {apart:g} apart"


def paused(function):
    """Returns a function of a ps that is called a little later."""

    def call(*arguments):
        time.sleep(0.01)
        return function(*arguments)

    return call


def test_three_threads_step_together():
    """Real threads, and worker 0 late between two parts: each step is made once, on all parts."""
    check_together()


REPORTED = "now, steps = step.read(), reported.read_value()"
PAUSE = f"""\
wait = tf.numpy_function(lambda x: time.sleep(0.02) or x, [step.read()], tf.int64)
        with tf.control_dependencies([wait]):
            {REPORTED}"""
# {the mistake: [(text, what replaces it)]}
STEPS_TOGETHER = {
    "reports without a lock": [(REPORTED, PAUSE), ("lock.execute(report)", "report()")],
    "the others take one gradient for all": [
        ("tf.gather(slots, ranks[i])", "tf.gather(slots, ranks[i] * int(step.is_first))")
    ],
}


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize("name", STEPS_TOGETHER)
def test_a_step_that_is_not_made_once_is_caught(name):
    with support.fails_comparison("(steps|losses|parameters)"):
        check_together(STEPS_TOGETHER[name], seconds=5)


def test_local_steps_are_those_that_were_made():
    """Catches T of the flags where --post-local has one step."""
    script = examples.main_script("Further-Algorithms/Local-SGD")
    flags = command_line(equations.of(script).FLAGS)
    with in_process.Workers(script, 1, flags) as (worker,):
        rows = []
        for _ in range(5):
            version, w_k = worker.pull()
            loss, reply = worker.script.update(
                worker.ps, version, w_k, worker.gradient, worker.flags
            )
            rows.append(worker.script.push_row(0.0, version, loss, reply, worker.flags).numpy())
    names = worker.script.PUSH.split(",")
    for name, unit in ("local_steps", 1), ("examples", BATCH):
        assert [row[names.index(name)] for row in rows] == [unit * T for T in (1, 1, 1, 4, 4)], name


@pytest.mark.parametrize("script", FORMS_FIRST)
def test_what_lasts_on_a_ps_goes_on(script, tmp_path):
    """Catches a variable that no checkpoint has, or that begins again after one: h, a velocity.

    One worker pushes; then new ps take over what the first ones have saved, and it goes on. What an
    elastic worker keeps for itself begins again, on both sides.
    """
    check_going_on(script, tmp_path)


def check_going_on(script, folder, changes=()):
    file, text = equations.of(script), examples.replaced(script, changes)
    flags, losses = command_line(file.FLAGS), []
    data, _ = file.PROBLEM(script, 1, folder)
    with in_process.Workers(script, 1, flags, data, text) as first:
        for _ in range(7):
            first.workers[0].push()
        path = f"{folder}/model.ckpt-7_temp/all"
        first.script.write(
            path, [(n, place, v.read_value()) for n, place, v in first.servers.saved]
        )
        first.script.merge(str(folder), 7, [path])
        state = [v.numpy() for v in first.workers[0].model.non_trainable_variables]
        first.renew(0)
        losses.append([first.workers[0].push()[:2] for _ in range(7)])
        due = first.values()
    with in_process.Workers(script, 1, flags, data, text) as second:
        second.script.restore(str(folder), second.servers.saved)
        for v, value in zip(second.workers[0].model.non_trainable_variables, state):
            v.assign(value)
        losses.append([second.workers[0].push()[:2] for _ in range(7)])
        values = second.values()
    values["losses"], due["losses"] = losses
    apart = {name: np.abs(np.subtract(values[name], due[name])).max(initial=0) for name in due}
    wrong = [f"{name}: {value:g} apart" for name, value in apart.items() if not value < 1e-5]
    assert not wrong, "\n".join(wrong)


FILES = examples.main_script("Operations/Train-and-Evaluate")


def check_places(folder, changes=()):
    """Each worker's place in its files is what it has read, also on ps that come later."""
    data, text = equations.of(FILES).PROBLEM(FILES, 2, folder)[0], examples.replaced(FILES, changes)

    def file_positions(workers):
        last = workers.workers[0].ps.parts["w"][-1]
        return [
            worker.ps.call_one("place", last).get_value()[0].numpy().tolist() for worker in workers
        ]

    with in_process.Workers(FILES, 2, command_line({}), data, text) as first:
        for k in 0, 1, 1:
            first.workers[k].push()
        positions = [file_positions(first)]
        path = f"{folder}/model.ckpt-3_temp/all"
        saved = [(name, place, v.read_value()) for name, place, v in first.servers.saved]
        first.script.write(path, saved)
        first.script.merge(str(folder), 3, [path])
    with in_process.Workers(FILES, 2, command_line({}), data, text) as second:
        second.script.restore(str(folder), second.servers.saved)
        positions.append(file_positions(second))
    due = [[0, BATCH], [1, BATCH]]  # a file has the rows of one mini-batch
    assert positions == [due, due], f"places: {positions}"


def test_places_in_files_go_on(tmp_path):
    check_places(tmp_path)


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        [('{f"places_of_{n}": places} if step.is_last else {}', "{}")],
        [("scatter_nd_update([[step.worker]], [place])", "scatter_nd_update([[0]], [place])")],
    ],
    ids=["not saved", "those of worker 0"],
)
def test_places_that_get_lost_are_caught(changes, tmp_path):
    with support.fails_comparison("places"):
        check_places(tmp_path, changes)


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize(
    "name, changes",
    [
        ("DOWNPOUR", [('{"h": h}', "{}")]),
        ("Further-Algorithms/Async-Local-SGD", [(', "velocity": u', "")]),
        pytest.param(
            "Further-Algorithms/Async-Local-SGD",
            [('"buffer": b, ', "")],
            marks=pytest.mark.long,
        ),
        ("Further-Algorithms/DiLoCo", [('{"velocity": u}', "{}")]),
        ("HogWild", [('entries["global_step"] = clock.variable', "pass")]),
    ],
)
def test_what_no_checkpoint_has_is_caught(name, changes, tmp_path):
    with support.fails_comparison("losses"):
        check_going_on(examples.main_script(name), tmp_path, changes)


IN_HALVES = """            first = tf.one_hot(0, tf.size(delta))
            begun = w.assign_sub(delta * first, read_value=False)
        with tf.control_dependencies([begun]):
            pause = tf.numpy_function(lambda: time.sleep(0.001), [], [])
        with tf.control_dependencies([pause]):
            w.assign_sub(delta * (1 - first))
"""
# (the comparison that fails,): {the mistake: [(text, what replaces it)]}
THREADS = {
    ("steps",): {
        "one update too many": [("limit=self.steps,", "limit=self.steps + 1,")],
        "no end": [("limit=self.steps,", "limit=2**62,")],
    },
    ("parameters",): {
        "every tenth push is lost": [
            (
                "w.assign_sub(delta)",
                'w.assign_sub(delta * tf.cast(ticket % 10 != 0, "float32"))',
            )
        ],
    },
    ("torn",): {
        "a part moves in two steps": [("            w.assign_sub(delta)\n", IN_HALVES)],
    },
    ("version",): {
        "it is read before the push": [
            (
                "        ticket = step.take()",
                "        version = step.read()\n        ticket = step.take()",
            ),
            ("return ticket, *pull()", "return ticket, version, pull()[1]"),
        ],
    },
}


@pytest.mark.long
@pytest.mark.parametrize("fails, changes", support.mistakes(THREADS, core=1))
def test_a_mistake_in_a_push_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_threads(text=examples.replaced(HOGWILD, changes))


def test_a_ps_that_begins_while_a_worker_asks_is_not_lost():
    """Catches a worker that takes the closed port of a ps that begins for the loss of one."""
    with two_parts() as workers:
        tf, ps = workers.tf, workers.workers[0].ps
        nothing, sizes = tf.constant("null"), tf.constant(json.dumps(ps.sizes))
        answers = iter([(0, nothing)] * 2 + [None] + [(5, sizes)] * 2)

        def get_value():
            if (answer := next(answers)) is None:
                raise tf.errors.UnavailableError(None, None, "the port is closed")
            return answer

        control = types.SimpleNamespace(status=lambda: types.SimpleNamespace(get_value=get_value))
        ps.controls = [control] * 2
        ps.join()
        assert int(ps.age) == 5 and next(answers, "all asked") == "all asked"


def test_a_ps_that_begins_while_a_worker_connects_is_not_lost(monkeypatch):
    """Catches a worker that ends because the ps closes its port just then, to listen anew."""
    script = examples.load(HOGWILD)
    answers = [script.tf.errors.CancelledError(None, None, ""), "client"]
    create = mock.Mock(side_effect=answers)
    monkeypatch.setattr(script, "rpc", types.SimpleNamespace(Client=mock.Mock(create=create)))
    assert script.connect("host:1", 20) == "client" and create.call_count == 2


def test_a_port_that_never_gets_ready(monkeypatch):
    """Catches a worker that asks for ever, or until Python's stack is full."""
    script = examples.load(HOGWILD)
    create = mock.Mock(side_effect=script.tf.errors.CancelledError(None, None, ""))
    monkeypatch.setattr(script, "rpc", types.SimpleNamespace(Client=mock.Mock(create=create)))
    with pytest.raises(TimeoutError, match="no ps answered at host:1 in 0.2 s"):
        script.connect("host:1", 0.2)
    assert 1 < create.call_count < 30


def test_a_ps_waits_for_those_who_joined_and_have_not_left(tmp_path, monkeypatch):
    """Catches a ps that ends before a worker that has joined, or waits for one that has left.

    And one that takes the end of a worker that left before for the end of the run.
    """
    script, served, waits = examples.load(HOGWILD), queue.Queue(), queue.Queue()
    monkeypatch.setattr(script, "listen", lambda _, functions: served.put(functions))
    monkeypatch.setattr(script, "wait_until", lambda over, _: waits.put(over))
    ports, held = cluster.hold_ports(1)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    jobs = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": ["a:1", "a:2"]}
    monkeypatch.setenv(
        "TF_CONFIG", json.dumps({"cluster": jobs, "task": {"type": "ps", "index": 0}})
    )
    ended = start(functools.partial(script.serve, script.Cluster(), script.server, None))
    functions = served.get(timeout=20)

    def missing(event, rank=-1):
        return int(functions["report"](script.tf.constant(event), np.int64(rank)))

    assert missing("joined", 2) == 0 and missing("done") == 3
    (tmp_path / "left-2").touch()
    assert missing("done", 2) == 2
    with pytest.raises(queue.Empty):
        waits.get(timeout=0.5)
    assert missing("done", 0) == 1
    over = waits.get(timeout=20)  # for which it waits at the end, five minutes at most
    assert not over()
    (tmp_path / "left-1").touch()
    assert over()
    ended.result(20)
    for one in held:
        one.close()


def test_the_text_of_an_error_says_which_ps_and_which_function():
    """By a real server, at a port that the test holds. Catches a text with the numbers alone."""
    ports, held = cluster.hold_ports(1)
    address = f"127.0.0.1:{ports[0]}"
    with mock.patch.dict(os.environ, TF_GRPC_REUSE_PORT="1"), two_parts() as workers:
        tf, ps = workers.tf, workers.workers[0].ps
        listening = workers.script.listen(address, workers.servers.functions[1])
        ps.clients[1] = workers.script.connect(address, 20)
        ps.age.assign(9)
        (part,) = [part for part in ps.parts["w"] if part.ps == 1]
        size = part.end - part.begin
        push = tf.function(lambda: ps.call_one("push", part, tf.ones([size])).get_value())
        with pytest.raises(tf.errors.InvalidArgumentError, match="ps-1.push") as error:
            push()
        assert workers.script.OTHER_AGE in error.value.message
        del listening


def test_only_the_first_checkpoint_may_lack_a_variable(tmp_path):
    """Catches h that silently begins anew where another algorithm's run goes on."""
    with two_parts() as workers:
        script, tf, folder = workers.script, workers.tf, str(tmp_path)
        w, h = (tf.Variable([float(number)] * 3) for number in (1, 2))
        saved = [("w", "3 0,3", w), ("h", "3 0,3", h)]
        for step, number in enumerate([7.0, 8.0]):
            path = f"{folder}/model.ckpt-{step}_temp/all"
            script.write(path, [("w", "3 0,3", tf.fill([3], number))])
            script.merge(folder, step, [path])
            if step == 0:
                script.restore(folder, saved)
        assert w.numpy().tolist() == [7.0] * 3 and h.numpy().tolist() == [2.0] * 3
        with pytest.raises(tf.errors.NotFoundError, match="h not found"):
            script.restore(folder, saved)


def test_five_checkpoints_are_kept(tmp_path):
    """Catches files that nobody removes any more because a kill came before they had a name."""
    with two_parts() as workers:
        script, tf, folder = workers.script, workers.tf, str(tmp_path)
        kill = tmp_path / "model.ckpt-3.index", tmp_path / "model.ckpt-3.data-00000-of-00001"
        others = tmp_path / "model.ckpt-best.index", tmp_path / "model.ckpt-0.txt"
        for path in *kill, *others:
            path.touch()
        for step in 0, 10, 20, 30, 40, 50, 60:
            path = f"{folder}/model.ckpt-{step}_temp/all"
            script.write(path, [("w", "3 0,3", tf.zeros([3]))])
            script.merge(folder, step, [path])
        names = [f"model.ckpt-{step}" for step in (20, 30, 40, 50, 60)]
        assert {path.stem for path in tmp_path.glob("model.ckpt-*[0-9].*-*")} == {*names}
        assert {path.stem for path in tmp_path.glob("*.index")} == {*names, "model.ckpt-best"}
        assert all(path.exists() for path in others) and not any(path.exists() for path in kill)
        state = tf.train.get_checkpoint_state(folder)
        assert [*state.all_model_checkpoint_paths] == [f"{folder}/{name}" for name in names]


# Rows ---------------------------------------------------------------------------------------------

SECONDS = 0.4  # of what is late


def check_row(script=HOGWILD, changes=(), ps=3):
    """The named comparisons of a row with what has crossed, and with what was late.

    The update is a graph, as in training; no number of ps divides w.
    """
    text, wrong, late = examples.replaced(script, changes), [], {"gradient": 0.0, "push": 0.0}
    file = equations.of(script)
    T, n = file.FLAGS.get("local_steps", 1), 3 if script in SCRIPTS else 1  # one waits for none
    flags = {name: value for name, value in file.FLAGS.items() if name != "post_local"}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        data, _ = file.PROBLEM(script, n, folder)
        workers = in_process.Workers(script, n, command_line(flags), data, text, ps)
        stack.enter_context(workers)
        tf, worker = workers.tf, workers.workers[n - 1]
        is_pair = isinstance(worker.gradient, tuple)  # Elastic-Training's: next_rows, gradient
        gradient = worker.gradient[1] if is_pair else worker.gradient
        size = len(workers.servers.vector("w"))
        assert size % 2 and size % 3

        def wait(name, value):
            """Returns the value, after the time by which this is late."""

            def sleep(value):
                time.sleep(late[name] / (T if name == "gradient" else 1))
                return value

            # Without a state, or TensorFlow would let what tells the time wait for it.
            waited = tf.numpy_function(sleep, [value], value.dtype, stateful=False)
            return tf.ensure_shape(waited, value.shape)

        def late_gradient(w, *number):  # by as much in all steps together
            loss, g, *place = gradient(w, *number)
            return loss, wait("gradient", g), *place

        def slow(function):
            return lambda age, *more: function(age, *more[:-1], wait("push", more[-1]))

        for client in worker.ps.clients:
            for name in [name for name in client.functions if name.startswith("push_")]:
                client.functions[name] = slow(client.functions[name])

        @tf.function(autograph=False)
        def update(pull_time, version, w_k):
            loss, reply = workers.script.update(
                worker.ps,
                version,
                w_k,
                (worker.gradient[0], late_gradient) if is_pair else late_gradient,
                worker.flags,
            )
            return workers.script.push_row(pull_time, version, loss, reply, worker.flags)

        def pull():
            reply = worker.ps.pull()
            return reply.version, worker.begin(reply.w) if worker.begin else reply.w

        def row():
            version, w_k = pull()
            began = tf.timestamp()
            return float(began), dict(zip(names, update(began, version, w_k).numpy()))

        names = workers.script.PUSH.split(",")
        version, w_k = pull()
        for client in worker.ps.clients:
            client.crossed.clear()
        update.get_concrete_function(tf.timestamp(), version, w_k)
        crossed = sum(sum(client.crossed) for client in worker.ps.clients)
        _, values = row()
        due = {"bytes": crossed, "examples": T * BATCH, "local_steps": T, "staleness": 0}
        for name, value in {**due, "global_step": 1}.items():
            if values[name] != value:
                wrong.append(f"{name}: {values[name]:g}, not {value}")
        for name in late:
            for _ in range(3):  # on a busy machine something else may be late, too
                for key in late:
                    late[key] = SECONDS if key == name else 0.0
                began, values = row()
                waits, took = values["wait_seconds"], values["push_time"] - began
                # An elastic worker pushes before its gradients; another one may pull later.
                long = took >= 0.9 * SECONDS or (worker.begin and name == "gradient")
                times = long and (values["pull_time"] == began or worker.pulls)
                faults = [] if times else [f"times: {values['pull_time'] - began:g}, {took:g}"]
                waited = waits >= 0.9 * SECONDS
                if waited != (name == "push") or not 0 <= waits <= took:
                    faults.append(f"wait_seconds: {waits:g}, where the {name} is late")
                if not faults:
                    break
            wrong += faults
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("script", FORMS_FIRST)
def test_a_row_says_what_crossed_and_who_waited(script):
    check_row(script)


# (the comparison that fails,): {the mistake: [(text, what replaces it)]}
ROWS = {
    ("bytes",): {
        "those pulled": [("in sum(sent + returned, [])", "in sum(returned, [])")],
        "8 bytes a number": [("tf.size(v, tf.int64) * v.dtype.size", "tf.size(v, tf.int64) * 8")],
        "those of the first ps": [
            ("for v in transferred]", "for v in transferred[:: len(parts)]]")
        ],
    },
    ("wait_seconds",): {
        "it begins at the pull": [("reply.arrived - reply.ready", "reply.arrived - pull_time")],
        "it is the gradient's time": [("reply.arrived - reply.ready", "reply.ready - pull_time")],
        "it begins before the gradient": [
            (
                "        with tf.control_dependencies(sum(sent, [])):\n            ready",
                "        if True:\n            ready",
            )
        ],
    },
    ("times",): {
        "pull and push are swapped": [
            ("push_time=reply.arrived", "push_time=pull_time"),
            ("pull_time=pull_time", "pull_time=reply.arrived"),
        ]
    },
    ("examples",): {"one": [("examples=local_steps * flags.batch_size", "examples=local_steps")]},
}


WORK = "examples=local_steps * flags.batch_size"


@pytest.mark.plants_mistakes
@pytest.mark.long
@pytest.mark.parametrize(
    "fails, changes",
    [
        ("examples", [(WORK, "examples=flags.batch_size")]),
        ("examples", [(WORK, "examples=local_steps**2 * flags.batch_size")]),
        ("local_steps", [("local_steps=local_steps,", "local_steps=1,")]),
        ("bytes", [("bytes=reply.bytes", "bytes=local_steps * reply.bytes")]),
    ],
)
def test_a_mistake_about_local_steps_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_row(examples.main_script("DOWNPOUR-Easy"), changes)


@pytest.mark.parametrize("fails, changes", support.mistakes(ROWS, core=0))
def test_a_mistake_in_a_row_is_caught(fails, changes):
    with support.fails_comparison(fails):
        check_row(changes=changes)
