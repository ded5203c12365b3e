"""Clusters with a job `chief`: it makes the model, tests and saves, and worker 0 is a worker."""

import json
import pathlib
import types

import interleaved
import numpy as np
import problem
import pytest
import small_scripts
import support
from lab import examples
from problem import digits_like, draw
from tfrun.apps import perceptron
from tfrun.launch import cluster
from tfrun.runs import models, summary
from tfrun.runs.data import RunData

CLUSTERS = [path for path in examples.scripts() if "class Cluster" in path.read_text()]
SESSIONS = "From-TensorFlow-1/HogWild-Sessions"
TASKS = [("chief", 0), ("worker", 0), ("worker", 1)]


def names(script):
    return script.relative_to(support.ROOT).as_posix()


# Who is who, in this process ---------------------------------------------------------------------


@pytest.mark.parametrize("script", CLUSTERS, ids=names)
def test_who_is_who(script, tmp_path, monkeypatch):
    """Catches worker 0 as the chief beside a task of the type chief, in each script."""
    module, folder = examples.load(script), tmp_path
    coordinator = examples.kind_of(script) == "coordinator"
    jobs = {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}
    if not (coordinator or examples.kind_of(script).startswith(("parameter", "train"))):
        del jobs["ps"]
    monkeypatch.setenv("OUTPUT_DIR", str(folder))
    for rank, task in enumerate(TASKS):
        named = dict(zip(("type", "index"), task))
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": named}))
        there = module.Cluster()
        if coordinator:
            assert there.chief == "a:1", task
            continue
        assert there.rank == rank and [tuple(worker) for worker in there.workers] == TASKS, task
        device = getattr(there, "device", None) or f"/job:{task[0]}/task:{task[1]}"
        assert device == f"/job:{task[0]}/task:{task[1]}", task
        flags = types.SimpleNamespace(steps=9)
        before = {path.name for path in folder.iterdir()}
        if hasattr(module, "serve_part"):
            model = types.SimpleNamespace(
                trainable_variables=[module.tf.Variable([0.0])], non_trainable_variables=[]
            )
            model.trainable_variables[0].path = "b"
            metrics = module.Metrics(there, model, flags)
            metrics.begin(*there.task, interleaved.Data(*digits_like()))
        else:
            metrics = module.Metrics(there.task, there.workers, [], flags)
        left = {path.name for path in folder.iterdir()} - before - {".chief"}
        due = {f"metrics-{task[0]}-{task[1]}.csv", *(["flags.json"] if rank == 0 else [])}
        assert left == due and metrics.is_chief == (rank == 0), task
        metrics.file.close()
        if getattr(metrics, "lock", None):
            metrics.lock.close()
    facts = folder / "flags.json"
    if not coordinator and facts.exists():
        tasks = json.loads(facts.read_text())["tasks"]
        assert tasks == [f"{job}-{index}" for job, index in TASKS]


def test_gpus_of_a_chief(monkeypatch):
    """The chief has the first GPU, and a ps none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    jobs = {"worker": 2, "evaluator": 1, "ps": 1, "chief": 1}
    env = cluster.environments(jobs, range(5), "run")
    gpus = {task: own["CUDA_VISIBLE_DEVICES"] for task, own in env.items()}
    due = {("ps", 0): "-1", ("chief", 0): "4", ("worker", 0): "5", ("worker", 1): "6"}
    assert gpus == {**due, ("evaluator", 0): "7"}


# What each does, in processes --------------------------------------------------------------------

# The chief comes late, and each other task would begin with another w.
LATE = """
if __name__ == "__main__":
    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    time.sleep(2 * is_chief)
    import keras
    draw_first_w = keras.utils.set_random_seed
    keras.utils.set_random_seed = lambda seed: draw_first_w(seed + (not is_chief))
    main()
"""
MAIN = '\nif __name__ == "__main__":\n    main()\n'
AT_ONCE = ["--steps-per-call", "1"]
KINDS = {  # {an example of each kind: (its ps, its workers beside the chief, flags)}
    f"{SESSIONS}/hogwild_sessions.py": (1, 2, []),
    "Ring-AllReduce/ring_allreduce.py": (0, 2, AT_ONCE),
    "Synchronous-SGD/synchronous_sgd.py": (1, 2, []),
    "From-TensorFlow-1/Synchronous-SGD-Optimizer/synchronous_sgd_optimizer.py": (1, 2, []),
    "From-TensorFlow-1/Distributed-Setup-Sessions/distributed_setup_supervisor.py": (1, 0, []),
    "Sparse-Embeddings/sparse_embeddings.py": (1, 2, []),
    "Collective-AllReduce/collective_allreduce.py": (0, 1, AT_ONCE),
    "Further-Algorithms/Sharded-Training/sharded_training.py": (0, 2, []),
    "Model-Parallelism/model_parallelism.py": (0, 1, []),
}
STEPS = 30


def data_for(name, folder):
    """Writes the small data set as a script reads it; returns its --dataset."""
    if "embeddings" in name:
        (folder / "prose.txt").write_text(problem.PROSE)
        return folder / "prose.txt"
    np.savez(folder / "data.npz", **interleaved.Data(*digits_like())._asdict())
    return folder / "data.npz"


def train(name, folder, text):
    """Runs a script with a chief; returns the run directory."""
    ps, workers, flags = KINDS[name]
    path = folder / pathlib.Path(name).name
    assert text.count(MAIN) == 1
    path.write_text(text.replace(MAIN, LATE))
    settings = {"learning_rate": 1e-30, "steps": STEPS, "checkpoint_steps": 10}
    settings = problem.command_line({**settings, "dataset": data_for(name, folder)})
    flags = [*(str(part) for flag in settings.items() for part in flag), *flags]
    with support.QuickCluster(ps=ps, chief=1, tasks=ps + 1 + workers) as quick:
        codes, output = quick.run(path, folder / "run", *flags, workers=workers)
    assert not any(codes), output
    return folder / "run"


def rows_of(rank, n):
    """Returns (x, y), the rows that a worker of the example draws from."""
    x, y, *_ = digits_like()
    return x[rank::n], y[rank::n]


def check_losses(run, w, n):
    """Asserts that each task has the losses of its own mini-batches, the chief those of rank 0."""
    for rank, (job, index) in enumerate(TASKS[:n]):
        rows = [row for row in support.pushes(run) if row["task"] == f"{job}-{index}"]
        assert rows, f"rows: none of {job} {index}"
        x, y = rows_of(rank, n)
        losses = {int(row["global_step"] - 1 - row["staleness"]): row["loss"] for row in rows}
        for number, loss in losses.items():
            drawn = draw(rank, number, problem.BATCH, len(x))
            due, _ = perceptron.loss_and_gradient(w, x[drawn], y[drawn])
            apart = abs(due - loss)
            assert apart < 1e-4, f"losses: {apart:g} apart, of {job} {index} at {number}"


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_the_chief_makes_tests_and_saves(name, tmp_path):
    """Catches another task that makes the model, tests or saves, and a rank for two tasks.

    The chief comes after the others, and their own first w is another one.
    """
    script = support.ROOT / name
    run = train(name, tmp_path, script.read_text())
    n = 1 if "parallelism" in name else 1 + KINDS[name][1]
    data = RunData.read(run)
    assert data.flags["tasks"] == [f"{job}-{index}" for job, index in TASKS[:n]], "tasks: others"
    testers = {task for task in data.tasks if data.rows("tests", task)}
    assert testers <= {"chief-0"}, f"tests: by {testers}"
    result = summary.summarize(data)
    assert result["steps"] == STEPS and len(result["pushes_per_worker"]) == n, f"steps: {result}"
    assert [path.name for path in run.rglob("*.index")][-1:], "checkpoint: none"
    checkpoint = support.newest_checkpoint(run)
    assert checkpoint.endswith(f"-{STEPS}"), f"checkpoint: {checkpoint} is the last"
    if "embeddings" in name:
        return
    module = examples.load(script)
    module.keras.utils.set_random_seed(problem.SEED)
    model = module.make_model(module.Data(*digits_like()))
    w = [v.numpy() for v in model.trainable_variables]
    shapes = [v.shape for v in w]
    apart = max(
        np.abs(a - b).max() for a, b in zip(models.saved_values(checkpoint, shapes)["w"], w)
    )
    assert apart < 1e-6, f"w: {apart:g} apart from what the chief has made"
    check_losses(run, w, n)


# Under tfrun -------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing, goes_on", [(("worker", 0), True), (("chief", 0), False)])
def test_who_is_let_go_beside_a_chief(failing, goes_on, tmp_path):
    """Worker 0 is a worker like others: without it a run goes on, without its chief it does not."""
    body = "if (job, index) == %r:\n    sys.exit(6)\ntime.sleep(%d)" % (
        failing,
        2 if goes_on else 60,
    )
    small_scripts.write(tmp_path, body)
    flags = ["--ps", "1", "--chief", "--workers", "2", "--restarts", "1"]
    process = small_scripts.start(tmp_path, *flags)
    output = process.communicate(timeout=support.patience(40))[0]
    assert process.returncode == 6, output
    assert ("is let go" in output) == goes_on, output
