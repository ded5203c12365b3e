"""What crosses the network, counted by the kernel in a network of the run's own."""

import json

import pytest
import support
from lab import examples

# In a process of its own, which moves into a network that nobody else uses. Each script runs twice;
# the difference is what a push costs, without what start and end cost.
COUNT = """
import json, pathlib, sys
from tfrun.launch import isolate
isolate.enter()  # before anything starts a thread
import support

def sent():
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))

folder, counted = pathlib.Path(sys.argv[1]), {}
with support.QuickCluster(ps=int(sys.argv[2])) as quick:
    for script in sorted(folder.glob("*.py")):
        spent = []
        for steps in (20, 220):
            before, out = sent(), folder / ("%s-%d" % (script.stem, steps))
            codes, output = quick.run(script, out, "--steps", str(steps))
            assert not any(codes), output
            spent.append(sent() - before)
        rows = support.pushes(out)
        counted[script.stem] = [(spent[1] - spent[0]) / 200,
                                sum(row["bytes"] for row in rows) / len(rows),
                                rows[0]["examples"]]
print(json.dumps(counted))
"""


def count(folder, scripts, ps=1):
    """{name: (bytes of a push on the wire, bytes by the metrics, examples of a push)}."""
    for name, text in scripts.items():
        (folder / (name + ".py")).write_text(text)
    path = support.PYTHONPATH
    process = support.python(COUNT, str(folder), str(ps), seconds=100, PYTHONPATH=path)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.long
def test_ten_local_steps_cost_a_tenth_of_the_bytes(tmp_path):
    """Bytes per example, HogWild against the family at T = 10, the same batch size."""
    names = {"hogwild": "HogWild", "easy": "DOWNPOUR-Easy", "aeasgd": "AEASGD"}
    scripts = {name: examples.main_script(folder).read_text() for name, folder in names.items()}
    counted = count(tmp_path, scripts)
    per_example = {name: wire / examples for name, (wire, _, examples) in counted.items()}
    for name in "easy", "aeasgd":
        assert 9 < per_example["hogwild"] / per_example[name] < 10.5, counted
    for wire, metrics, _ in counted.values():
        assert 1 < wire / metrics < 1.15, f"the metrics are not what the wire says: {counted}"


@pytest.mark.long
def test_the_bytes_of_replicas(tmp_path):
    """Each byte crosses once between two workers; the sender and the receiver both count it."""
    script = examples.main_script("Collective-AllReduce")
    ((wire, metrics, _),) = count(tmp_path, {"collective": script.read_text()}, ps=0).values()
    assert 1 < wire / metrics < 1.2, (wire, metrics)


# The same training with whole tables: all rows are pulled and pushed.
DENSE = [
    (
        "return tf.unique(ids)",
        "return tf.range(2 * flags.words, dtype=tf.int64), tf.cast(ids, tf.int32)",
    )
]


@pytest.mark.long
def test_only_touched_rows_cross_the_network(tmp_path):
    script = examples.main_script("Sparse-Embeddings")
    dense = examples.replaced(script, DENSE)
    counted = count(tmp_path, {"sparse": script.read_text(), "dense": dense})
    (wire, metrics, _), (dense_wire, dense_metrics, _) = counted["sparse"], counted["dense"]
    assert dense_wire / wire > 5, counted
    # The metrics count 8 bytes for the number of a row, gRPC sends two for one below 16,384. A
    # number crosses twice, and so does each of the 32 numbers in the row, and w.
    w = 2 * 4 * (32 * 32 + 32)
    for sent, counts in (wire, metrics), (dense_wire, dense_metrics):
        rows = (counts - w) / (2 * (8 + 4 * 32))
        assert 1 < sent / (counts - 2 * (8 - 2) * rows) < 1.05, counted
