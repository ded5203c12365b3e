"""Ten updates in one call of the session are the same ten, in few messages, and none is lost."""

import json

import numpy as np
import pytest
import support
from lab import examples

SCRIPTS = [  # those with sessions: a ps with functions has no graph in which to count messages
    path
    for path in examples.scripts()
    if "updates-per-call" in path.read_text() and examples.has_sessions(path)
]
SESSIONS = "From-TensorFlow-1/HogWild-Sessions"
STEPS = 57  # the last call is cut off
NOTED = ' + tf.get_collection("written")'
SIZE = "tf.where(update.ticket < 50, 1, 4 * 10**7)"  # in the last call a row takes long
LATE = f"tf.cast(tf.reduce_sum(tf.random.uniform([{SIZE}])) < 0, tf.int64)"  # 0, late
SLOW = ("tf.identity(update.ticket)", "update.ticket + " + LATE)
# What a script needs that writes messages.json.
CALL = "            update_w = session.make_callable(written)\n"
COUNTED = [(CALL, "            count_messages(session, written, metrics)\n" + CALL)]
ADDED = '''

def count_messages(session, written, metrics):
    """Makes a call, and writes how many tensors an update sent from one task to another."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(output_partition_graphs=True)
    session.run(written, options=options, run_metadata=metadata)
    received = [node.attr for graph in metadata.partition_graphs
                for node in graph.node if node.op == "_Recv"]
    tasks = [[attr[end].s.split(b"/device")[0] for end in ("send_device", "recv_device")]
             for attr in received]
    with open(os.path.join(metrics.directory, "messages.json"), "w") as file:
        json.dump(sum(a != b for a, b in tasks) / len(written), file)


if __name__ == "__main__":'''
CHAIN = "before = [update.push]"
MESSAGES = 4  # of an update to one ps and from it: version, w, push, ticket
ON_THE_WORKER = [
    "with tf.device(step.device):\n        version = ",
    "with tf.device(None):\n        version = ",
]


def rows(quick, script, folder, changes, updates_per_call):
    """Returns the pushes of each task, and the messages of an update.

    There is one worker, but for those that step together.
    """
    folder.mkdir()
    path = folder / script.name
    text = examples.replaced(script, [*changes, *COUNTED])
    path.write_text(text.replace('\n\nif __name__ == "__main__":', ADDED))
    workers = 2 if support.synchronous(script) else 1
    words = ["--steps", str(STEPS), "--updates-per-call", str(updates_per_call)]
    codes, output = quick.run(path, folder / "run", *words, workers=workers)
    assert not any(codes), output
    tasks = {}
    for row in support.pushes(folder / "run"):
        tasks.setdefault(row["task"], []).append(row)
    return tasks, json.loads((folder / "run" / "messages.json").read_text())


def compare(quick, script, folder, changes=()):
    """With calls of ten each update has the loss that it has with calls of one.

    It has one message more, by which it waits for the update before it.
    """
    one, sent = rows(quick, script, folder / "one", changes, 1)
    many, sent_of_ten = rows(quick, script, folder / "many", changes, 10)
    for task in one:
        steps = [row["global_step"] for row in many[task]]
        assert steps == list(range(1, STEPS + 1)), f"steps: {steps}"
        losses = np.array([[row["loss"] for row in run[task]] for run in (many, one)])
        apart = np.abs(losses[0] - losses[1]).max()
        assert apart < 1e-4 and np.ptp(losses) > 1e-4, f"losses: {apart} apart"
    assert sent == MESSAGES, f"messages: {sent}"
    assert sent < sent_of_ten < sent + 1, f"messages: {sent_of_ten}"


@pytest.mark.parametrize("script", support.core_first(SCRIPTS))
def test_the_updates_of_a_call_come_one_after_the_other(script, quick, tmp_path):
    """Catches a pull that does not wait for the push before it, state of which each update of a
    call has its own, rows that the end of training cuts off, and a message too many."""
    compare(quick, script, tmp_path)


@pytest.mark.long
@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "folder, fails, changes",
    [
        (SESSIONS, "losses", [(CHAIN, "pass")]),
        pytest.param(SESSIONS, "steps", [(NOTED, ""), SLOW], marks=pytest.mark.long),
        pytest.param(SESSIONS, "messages", [ON_THE_WORKER], marks=pytest.mark.long),
    ],
)
def test_a_mistake_is_caught(folder, fails, changes, quick, tmp_path):
    script = examples.main_script(folder)
    with support.fails_comparison(fails):
        compare(quick, script, tmp_path, changes)
