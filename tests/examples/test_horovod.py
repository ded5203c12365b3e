"""Horovod-RingAllReduce: what its ranks compute, what becomes of them, and how it is built."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import equations
import numpy as np
import plugging
import problem
import pytest
import support
from lab import examples
from recovery import checkpoint
from small_scripts import TFRUN
from tfrun import errors
from tfrun.apps import perceptron, references

# The limit is that of a test alone: building Horovod, in the fixture, has its own.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400, func_only=True)]

FOLDER = support.ROOT / "Horovod-RingAllReduce"
DENSE = examples.main_script("Horovod-RingAllReduce")
ROWS = FOLDER / "horovod_embeddings.py"
BUILD = FOLDER / "build" / "build.py"
GONE = "Another worker is gone or did not answer in time"  # as tfrun explains it
LR, BATCH, STEPS = 0.1, problem.BATCH, 20


@pytest.fixture(scope="module", autouse=True)
def horovod():
    support.build(FOLDER / "run.sh")


def flags(folder, words=False):
    """The flags of a run that a reference follows."""
    common = {"--batch-size": BATCH, "--learning-rate": LR, "--seed": problem.SEED}
    common["--steps"] = STEPS
    if words:
        (folder / "prose.txt").write_text(problem.PROSE)
        own = {"--dataset": folder / "prose.txt", "--dimensions": 5, "--noise-words": 6}
    else:
        names = ["x_train", "y_train", "x_test", "y_test"]
        np.savez(folder / "data.npz", **dict(zip(names, problem.digits_like())))
        own = {"--dataset": folder / "data.npz"}
    return [str(part) for flag in {**common, **own}.items() for part in flag]


def union_of_digits(n, number, w):
    """(loss of each rank, gradient) at w, on the union of the ranks' mini-batches `number`."""
    x, y = problem.digits_like()[:2]
    rows = [np.arange(len(x))[k::n][problem.draw(k, number, BATCH, len(x[k::n]))] for k in range(n)]
    losses = [perceptron.loss_and_gradient(w, x[r], y[r])[0] for r in rows]
    rows = np.concatenate(rows)
    return losses, perceptron.loss_and_gradient(w, x[rows], y[rows])[1]


def union_of_words(folder):
    """The same for the embeddings: noise words are those of a rank's own mini-batch."""
    data = examples.load(problem.SPARSE).load_data(str(folder / "prose.txt"), problem.WORDS)
    train = problem.pairs_of(data)

    def union(n, number, w):
        taken = []
        for k in range(n):
            pairs = train[k::n]
            drawn = pairs[problem.draw(k, number, BATCH + 6, len(pairs))]
            taken.append(references.skip_gram(w, drawn[:BATCH], drawn[BATCH:, 1], weight=5))
        return [loss for loss, _ in taken], [sum(g) / n for g in zip(*(g for _, g in taken))]

    return union


class Rank:
    """What a rank has recorded of a run: its variables at each step, and what it wrote."""

    def __init__(self, directory):
        record = np.load(directory / "record.npz")
        self.sent = record["sent"]
        self.drawn = [record[f"drawn_{i}"] for i in range(len(record.files) // 2)]
        self.w = list(zip(*(record[f"w_{i}"] for i in range(len(self.drawn)))))
        self.losses = [row["loss"] for row in support.pushes(directory)]
        self.checkpoints = len(list(directory.glob("model.ckpt-*.index")))


def record(folder, n, jobs):
    """{name: its ranks} of {name: [script, *flags]}, all run by one horovodrun with n ranks."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    ranks = f"horovodrun --gloo -np {n} python"
    command = [*TFRUN, "--timeout", "300", "--", *ranks.split()]
    command += [support.ROOT / "tests" / "support" / "ranks.py", folder]
    env = support.environment(folder / "horovodrun", TFRUN_ISOLATE="1")
    done = support.run_to_end(*command, env=env, seconds=320)
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"done: (.*)", done.stdout)) == sorted(n * list(jobs)), done.stdout
    return {name: [Rank(folder / name / str(k)) for k in range(n)] for name in jobs}


def apart(a, b):
    return max(np.abs(np.asarray(u, np.float64) - v).max() for u, v in zip(a, b))


def bits(a, b):
    """How many numbers of a and b, both float32, differ in a bit."""
    return sum(int((u.view(np.uint32) != v.view(np.uint32)).sum()) for u, v in zip(a, b))


def sgd(w, g, rate):
    return [v - rate * d for v, d in zip(w, g)]


class Adagrad:
    """The steps of Duchi, Hazan, Singer 2011: each number has a rate of its own."""

    def __init__(self):
        self.h = None

    def __call__(self, w, g, rate):
        self.h = [h + d**2 for h, d in zip(self.h or [0.1] * len(g), g)]
        return [v - rate * d / np.sqrt(h + 1e-7) for v, d, h in zip(w, g, self.h)]


def check(ranks, union, move=sgd):
    """The named comparisons of numbers that a mistake must fail."""
    n = len(ranks)
    assert all(len(rank.w) == 1 + STEPS and rank.w[0][0].dtype == np.float32 for rank in ranks)
    assert all(bits(rank.drawn, ranks[0].drawn) for rank in ranks[1:]), "the starts are the same"
    start = [bits(rank.w[0], ranks[0].drawn) for rank in ranks]
    last = [bits(rank.w[STEPS], ranks[0].w[STEPS]) for rank in ranks]
    worst = worst_loss = 0
    for number in range(STEPS):
        losses, g = union(n, number, [np.asarray(v, np.float64) for v in ranks[0].w[number]])
        due = move(ranks[0].w[number], g, n * LR)
        worst = max(worst, apart(due, ranks[0].w[number + 1]))
        measured = [rank.losses[number] for rank in ranks]
        worst_loss = max(worst_loss, np.abs(np.array(losses) - measured).max())
    moved = apart(ranks[0].w[0], ranks[0].w[STEPS])
    written = [rank.checkpoints for rank in ranks]
    wrong = {
        f"start: {start} numbers differ from rank 0's": any(start),
        f"ranks: {last} numbers differ from rank 0's after {STEPS} steps": any(last),
        f"step: {worst:g} from the one on the union": not worst < 1e-6,
        f"losses: {worst_loss:g} apart": not worst_loss < 1e-5,
        f"moved: {moved:g}": not moved > 0.01,
        f"checkpoints: written by the ranks: {written}": written[0] == 0 or any(written[1:]),
    }
    assert not any(wrong.values()), "\n".join(text for text in wrong if wrong[text])


# Runs with the data and the sizes that the scripts have by default: what they send.
SIZED = {
    "dense on digits": [str(DENSE), "--steps", str(STEPS)],
    "rows on topics": [str(ROWS), "--steps", str(STEPS)],
    "tables on topics": [str(ROWS), "--steps", str(STEPS), "--dense", "1"],
}


@pytest.fixture(scope="module")
def two(tmp_path_factory, horovod):
    """What two ranks do, by the scripts as they are, and by each with a mistake in it."""
    folder = tmp_path_factory.mktemp("two")
    jobs = {
        "dense": [str(DENSE), *flags(folder)],
        "adagrad": [str(DENSE), *flags(folder), "--optimizer", "Adagrad"],
        "rows": [str(ROWS), *flags(folder, words=True)],
        "tables": [str(ROWS), *flags(folder, words=True), "--dense", "1"],
    }
    jobs.update(SIZED)
    for script in DENSE, ROWS:
        for name, text in equations.mistaken([script]).items():
            path = folder / f"{len(jobs)}.py"
            path.write_text(text)
            jobs[name] = [str(path), *flags(folder, words=script == ROWS)]
    return folder, record(folder, 2, jobs)


def test_two_ranks_are_one_on_the_union_of_their_batches(two):
    check(two[1]["dense"], union_of_digits)


def test_adagrad_has_the_mean_gradient(two):
    """Catches an optimizer whose memory is of one rank's gradients."""
    check(two[1]["adagrad"], union_of_digits, Adagrad())


def test_sparse_gradients_are_summed_as_dense_ones(two):
    folder, runs = two
    for name in ("rows", "tables"):
        check(runs[name], union_of_words(folder))
    assert apart(runs["rows"][0].w[STEPS], runs["tables"][0].w[STEPS]) < 1e-6


def test_three_ranks(tmp_path):
    """The same, where the ring is more than a swap."""
    jobs = {
        "dense": [str(DENSE), *flags(tmp_path)],
        "rows": [str(ROWS), *flags(tmp_path, words=True)],
        **SIZED,
    }
    runs = record(tmp_path, 3, jobs)
    check(runs["dense"], union_of_digits)
    check(runs["rows"], union_of_words(tmp_path))
    check_what_was_sent(tmp_path, runs)


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "script, fails, name",
    [
        (script, fails, f"{script.stem}: {name}")
        for script in (DENSE, ROWS)
        for fails, named in equations.of(script).MISTAKES.items()
        for name in named
    ],
    ids=equations.ids,
)
def test_a_mistake_is_caught(script, fails, name, two):
    """All of them ran to the end with exit code 0: nothing but a number gives them away."""
    folder, runs = two
    union = union_of_words(folder) if script == ROWS else union_of_digits
    with support.fails_comparison(fails):
        check(runs[name], union)


def test_the_memory_of_an_optimizer_goes_on(two, tmp_path):
    """Catches a checkpoint without it: half the steps and then the others are all steps."""
    for steps in (STEPS // 2, STEPS):
        job = [str(DENSE), *flags(tmp_path), "--optimizer", "Adagrad", "--steps", str(steps)]
        ranks = record(tmp_path, 2, {"in two": job})["in two"]
    due = two[1]["adagrad"][0].w[STEPS]
    for rank in ranks:
        assert apart(rank.w[-1], due) < 1e-6


def test_what_the_rows_weigh(two):
    """Of the bytes in the metrics: rows, to one other rank, against whole tables in a ring."""
    folder, runs = two
    script = examples.load(problem.SPARSE)
    data = script.load_data(str(folder / "prose.txt"), problem.WORDS)
    words, sent = len(data.vocabulary), {}
    for name in ("rows", "tables"):
        sent[name] = [row["bytes"] for row in support.pushes(folder / name / "1")]
    assert sent["tables"] == [2 * words * 5 * 4] * STEPS
    pairs = problem.pairs_of(data)[1::2]
    for number in range(STEPS):
        drawn = pairs[problem.draw(1, number, BATCH + 6, len(pairs))]
        rows = len(set(drawn[:BATCH, 0])) + len(set(drawn[:, 1]))
        assert sent["rows"][number] == rows * (5 * 4 + 4)


def check_what_was_sent(folder, runs):
    """By the kernel's count, that of the metrics is right, but for headers and agreements."""
    for name in SIZED:
        n = len(runs[name])
        pushes = [support.pushes(folder / name / str(k))[1:] for k in range(n)]
        metrics = sum(row["bytes"] for rows in pushes for row in rows)
        counted = (runs[name][0].sent[STEPS] - runs[name][0].sent[1]) / metrics
        print(
            "%s, %d ranks: each sent %.0f bytes a step by the metrics, %.2f times as many by the "
            "kernel" % (name, n, metrics / n / (STEPS - 1), counted)
        )
        assert 1 <= counted < 1.2


def test_what_crosses_the_network(two):
    check_what_was_sent(*two)


def test_another_problem(tmp_path):
    """A network with BatchNormalization and Dropout trains, and rank 0's state is saved with it."""
    problem, ranks = plugging.file_of("convolution"), f"horovodrun --gloo -np 2 python {DENSE}"
    command = [*TFRUN, "--timeout", "300", "--problem", problem, "--", *ranks.split()]
    command += ["--steps", "150"]
    done = support.run_to_end(*command, env=support.environment(tmp_path / "run"), seconds=320)
    assert done.returncode == 0, done.stdout
    result = support.result(tmp_path / "run")
    assert plugging.PROBLEMS["convolution"](result), result
    plugging.compare_export(tmp_path / "run", result)


def begin(directory, **env):
    """Starts run.sh, which will not end by itself, with its output as text."""
    flags = ["--steps", "1000000", "--checkpoint-steps", "100"]
    return support.begin(FOLDER / "run.sh", directory, *flags, **{"WARM_SOCKET": "", **env})


def trains(process):
    """Waits for a line of progress."""
    assert any("test_accuracy" in line for line in process.stdout), "it did not begin to train"


def rank(directory, number):
    """The process of a rank."""
    for process in support.processes_of(directory):
        variables = support.safely(process.environ, {})
        is_python = "python" in support.safely(process.name, "")
        if variables.get("HOROVOD_RANK") == str(number) and is_python:
            return process
    raise AssertionError(f"there is no rank {number}")


def end(process, directory, seconds=30):
    """(exit code, the rest of the output) within `seconds`; nothing is left."""
    try:
        output = process.communicate(timeout=support.patience(seconds))[0]
        left = support.processes_of(directory)
    finally:
        process.kill()
    assert not left, left
    return process.returncode, output


def test_a_rank_that_dies_and_a_run_that_goes_on(tmp_path):
    """One line says who died; the same command goes on from rank 0's checkpoint, on all ranks."""
    with begin(tmp_path) as process:
        trains(process)
        support.wait_until(lambda: checkpoint(tmp_path) >= 100, 30, "a checkpoint")
        rank(tmp_path, 1).kill()
        code, output = end(process, tmp_path)
    assert code == 1
    assert output.count("[tfrun] horovodrun failed: worker ") == 1, output
    # Should rank 0 have ended first, tfrun says why.
    assert "worker 1 was killed by SIGKILL; the run" in output or GONE in output, output

    step, files = checkpoint(tmp_path), [tmp_path / (f"metrics-worker-{k}.csv") for k in (0, 1)]
    rows = [len(path.read_text().splitlines()) for path in files]
    with begin(tmp_path) as process:
        trains(process)
        process.send_signal(signal.SIGINT)
        code, output = end(process, tmp_path)
    assert code == 130 and "stopped by SIGINT" in output, output
    for path, before in zip(files, rows):
        restart, data, row = path.read_text().splitlines()[before : before + 3]
        assert (
            restart == "# restart"
            and data.startswith("# data ")
            and row.split(",")[2] == str(step + 1)
        )


@pytest.mark.parametrize("whom", [pytest.param("tfrun", marks=pytest.mark.nightly), "horovodrun"])
def test_nothing_is_left_after_kill_9(whom, tmp_path):
    with begin(tmp_path, WORKERS="3") as process:
        trains(process)
        if whom == "tfrun":  # which run.sh has become
            process.kill()
        else:
            processes = support.processes_of(tmp_path)
            (launcher,) = [p for p in processes if "horovodrun" in support.safely(p.name, "")]
            launcher.kill()
        support.wait_until(lambda: not support.processes_of(tmp_path), 20, "gone")
        code, output = end(process, tmp_path)
    assert code == (-9 if whom == "tfrun" else 137)
    if whom == "horovodrun":
        assert "horovodrun was killed by SIGKILL" in output


@pytest.mark.nightly
def test_a_rank_that_does_not_answer(tmp_path):
    """The others do not wait for ever, and say so."""
    seconds = str(int(support.patience(5)))  # also for the ranks to find each other
    with begin(tmp_path, HOROVOD_GLOO_TIMEOUT_SECONDS=seconds) as process:
        trains(process)
        rank(tmp_path, 1).send_signal(signal.SIGSTOP)
        code, output = end(process, tmp_path, 60)
    assert code == 1
    assert GONE in output, output


def test_one_rank(tmp_path):
    launcher = FOLDER / "run_embeddings.sh"
    code, output, _ = support.launch(
        launcher, tmp_path, "--steps", "20", WORKERS="1", WARM_SOCKET=""
    )
    assert code == 0, output
    result = support.result(tmp_path)
    assert (result["workers"], result["pushes_per_worker"]) == (1, [20])
    assert not support.processes_of(tmp_path)


def test_the_dry_run_is_a_script(tmp_path):
    env = support.environment(tmp_path, DRY_RUN="1")
    # As in an activated shell: the script calls tfrun at its end, where there is one.
    env["PATH"] = os.pathsep.join([str(support.ROOT / "tfrun" / "bin"), env["PATH"]])
    written = support.run_to_end("bash", FOLDER / "run.sh", "--steps", "7", env=env)
    assert written.returncode == 0, written.stderr
    assert re.search(r"(?m)^horovodrun --gloo .*\.py --steps 7$", written.stdout), written.stdout
    del env["DRY_RUN"]
    ran = support.run_to_end("bash", "-c", written.stdout, env=env)
    assert ran.returncode == 0, ran.stderr
    assert support.result(tmp_path)["steps"] == 7


def test_the_table_of_the_six_steps_is_the_script_s():
    """Each line of the README's table stands in the script, under the comment with its number."""
    readme, script = (FOLDER / "README.md").read_text(), DENSE.read_text()
    rows = re.findall(r"^\| (\d) \| .*? \| `(.*)` \|$", readme, re.MULTILINE)
    assert [number for number, _ in rows] == list("123456")
    for number, line in rows:
        (part,) = re.findall(rf"# Horovod: {number}\.(.*?)(?=# Horovod: |\Z)", script, re.DOTALL)
        assert line in part


def test_bad_input(tmp_path):
    """An error that tfrun can explain, here of a rank alone, and a code that is not 0."""
    cases = [
        (ROWS, ["--dense", "-1"], "--dense: must be at least 0", 2),
        (DENSE, ["--steps", "0"], "--steps: must be above 0", 2),
        (DENSE, ["--dataset", "none.npz"], "No such file or directory: 'none.npz'", 1),
    ]
    with support.Zygote() as zygote:
        for script, arguments, words, code in cases:
            done = zygote.run(script, arguments, tmp_path, OUTPUT_DIR=str(tmp_path / "new"))
            assert done.returncode == code and words in done.stderr, done.stderr
            assert errors.explain(done.stderr), done.stderr


def test_without_horovod(tmp_path):
    done = support.python(
        "import runpy, sys; sys.modules['horovod'] = None; "
        "runpy.run_path(sys.argv[1], run_name='__main__')",
        str(DENSE),
        OUTPUT_DIR=str(tmp_path),
    )
    assert done.returncode == 1 and "This Python has no Horovod" in errors.explain(done.stderr)


@pytest.fixture
def elsewhere(tmp_path):
    """An environment in which Horovod is one for another TensorFlow, and no wheel is kept."""
    (tmp_path / "old" / "horovod-0.28.1+tf0.dist-info").mkdir(parents=True)
    (tmp_path / "old" / "horovod-0.28.1+tf0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1+tf0\n"
    )
    return {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}/old:{support.ROOT}",
        "HOROVOD_WHEELS": str(tmp_path / "wheels"),
        "PIP_NO_INDEX": "",
        "PIP_FIND_LINKS": "",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "0",
    }


def test_a_build_without_a_compiler(elsewhere):
    env = {**elsewhere, "CXX": "/nowhere", "PATH": str(pathlib.Path(sys.executable).parent)}
    done = support.run_to_end(sys.executable, BUILD, env=env)
    assert done.returncode == 1
    assert re.fullmatch(r"set-up failed: .* needs a C\+\+17 compiler; .*\n", done.stderr)


def test_a_build_in_a_folder_with_a_space(elsewhere, tmp_path):
    """Catches a build that compiles for a minute before the compiler finds half a path."""
    (tmp_path / "a folder").symlink_to(sys.prefix)
    python = tmp_path / "a folder" / "bin" / "python"
    done = support.run_to_end(python, BUILD, env=elsewhere)
    assert done.returncode == 1
    assert re.fullmatch(r"set-up failed: .* where a path has a space: .*/a folder\n", done.stderr)


def test_an_interrupted_build_leaves_nothing_half_made(elsewhere, tmp_path):
    """Killed while pip waits for a server that does not answer: no wheel, and no process."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        env = {**elsewhere, "OUTPUT_DIR": str(tmp_path), "PIP_INDEX_URL": index}
        process = subprocess.Popen([sys.executable, BUILD], stderr=subprocess.DEVNULL, env=env)
        silent.settimeout(40)
        silent.accept()
        process.kill()
        process.wait()
        support.wait_until(lambda: not support.processes_of(tmp_path), 10, "gone")
    assert not list((tmp_path / "wheels").glob("*.whl"))
    # The lock is free, and it begins anew; now without a network.
    done = support.run_to_end(
        sys.executable, BUILD, env={**elsewhere, "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    )
    assert done.returncode == 1 and "fetching Horovod" in done.stderr
    assert "pip cannot reach the package index; is there a network?" in done.stderr
