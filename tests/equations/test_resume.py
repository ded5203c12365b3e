"""A run that goes on from a checkpoint ends as one that nobody stopped, in every script.

Each script's own main() runs here to its end, and keeps checkpoints. Then its directory is made as
a kill after the second of them leaves it, and moves elsewhere; main() runs there again, with empty
servers. All variables of the last checkpoint are compared by their names, and all losses: what an
algorithm keeps beside w is found in the script's own graph, and by what it does.
"""

import contextlib
import json
import re
import sys
import types

import equations
import interleaved
import numpy as np
import problem
import pytest
import support
from lab import examples
from tfrun.runs.data import RunData

SESSIONS = "From-TensorFlow-1/HogWild-Sessions"
STEPS = 16
FLAGS = {"--steps": STEPS, "--checkpoint-steps": 4, "--steps-per-call": 1, "--updates-per-call": 1}
KINDS = ["parameter server", "single process", "train and evaluate", "all-reduce"]
# These need more processes than this one, or other devices: test_state.py lets them go on.
OTHER_PROCESSES = ["collective_allreduce", "horovod_ringallreduce", "horovod_embeddings"]
OTHER_PROCESSES.append("multiple_gpus_single_machine_mirrored")
# What is a worker's own begins afresh, as the pages of these scripts say: w_k, v, moments.
AFRESH = ["diloco"]
CORE = ["hogwild_sessions", "non_distributed_setup"]
# Their sessions are those of others, and beside w they have nothing: see test_state.py, too.
NIGHTLY = ["sagn", "synchronous_sgd_different_learning_rates", "synchronous_sgd"]
NIGHTLY.append("distributed_setup_sessions")
NIGHTLY.append("ring_allreduce")


def make_model(keras, data):
    """Makes a model that draws masks and keeps means: both must go on, too."""
    return keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:] if hasattr(data, "x_train") else data.shape),
            keras.layers.Dense(5, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(3),
        ]
    )


def flags_of(script):
    """Returns the flags with which the script is compared with its reference, for one worker."""
    own = equations.of(script).FLAGS if hasattr(equations.of(script), "FLAGS") else {}
    first = {name: v[:1] if isinstance(v, list) else v for name, v in own.items()}
    known = script.read_text()
    flags = {**problem.command_line({**first, "backup_workers": 0}), **FLAGS}
    return {name: v for name, v in flags.items() if f'"{name[2:]}"' in known}


def train(script, text, directory, data, more, afresh=False):
    """Runs main() of a script as its only worker, in this process.

    afresh: whether all that is this worker's own begins anew after the second test.
    """
    started, addresses, _ = interleaved.servers()
    jobs = {job: addresses[job][:1] for job in ("ps", "worker")}
    if not examples.kind_of(script).startswith(("parameter", "train")):
        jobs.pop("ps")
    config = {"cluster": jobs, "task": {"type": "worker", "index": 0}}
    words = [str(part) for flag in {**flags_of(script), **more}.items() for part in flag]
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TF_CONFIG", json.dumps(config))
        patch.setenv("OUTPUT_DIR", str(directory))
        patch.setattr(sys, "argv", [script.name, *words])
        module = examples.load(script, text)
        server = types.SimpleNamespace(target=started["worker", 0].target)
        tf = module.tf
        for owner, name, value in [
            (tf.train, "Server", lambda *_, **__: server),
            (tf.config.threading, "set_inter_op_parallelism_threads", lambda _: None),
        ]:
            patch.setattr(owner, name, value, raising=False)
        module.load_data = lambda _: data
        if hasattr(module, "make_model"):
            module.keras.utils.clear_session()  # names begin again, as in a process of its own
            module.make_model = lambda data: make_model(module.keras, data)
        if hasattr(module, "find_devices"):  # this process has one
            module.find_devices = lambda _: ["/CPU:0"] * 2
        if afresh:
            begin_afresh(module)
        module.main()


def begin_afresh(module):
    """Lets a worker make anew what is its own and not w, after its second test."""
    test, own, tests = module.Metrics.test, [], []

    def note(name, anew):
        """Notes how to make anew what a call of this function has among its arguments."""
        function = getattr(module, name)

        def noting(*arguments, **more):
            result = function(*arguments, **more)
            own[:] = [(name, anew(*arguments)), *[pair for pair in own if pair[0] != name]]
            return result

        setattr(module, name, noting)

    def session_of(session, *_):
        initializer = module.tf.local_variables_initializer()
        return lambda: session.run(initializer)

    def tested(metrics, *row):
        test(metrics, *row)
        tests.append(row)
        if len(tests) == 2:
            for _, anew in own:
                anew()

    module.Metrics.test = tested
    note("prepare", session_of)


def saved(directory):
    """Returns {step in the name: {variable: value}} of all checkpoints, oldest first."""
    import tensorflow as tf

    numbers = sorted(int(path.stem.split("-")[1]) for path in directory.glob("model.ckpt-*.index"))
    checkpoints = {}
    for number in numbers:
        reader = tf.train.load_checkpoint(str(directory / f"model.ckpt-{number}"))
        checkpoints[number] = {
            name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
        }
    return checkpoints


def step_in(variables):
    """Returns the number of updates that a checkpoint holds."""
    names = ["global_step", "step", "step/.ATTRIBUTES/VARIABLE_VALUE"]
    return int(next(variables[name] for name in names if name in variables))


def set_back(directory, kept):
    """Leaves these checkpoints, as a kill before the next one does."""
    for path in directory.glob("model.ckpt-*"):
        if int(re.search(r"ckpt-(\d+)", path.name)[1]) not in kept:
            path.unlink()
    (directory / ".chief").unlink()  # which the first run may still lock
    state = directory / "checkpoint"
    newest, *lines = state.read_text().splitlines()
    newest = re.sub(r"ckpt-\d+", f"ckpt-{max(kept)}", newest)
    are_kept = [number in kept for number in named(directory)]
    for kind in "all_model_checkpoint_paths", "all_model_checkpoint_timestamps":
        of_kind = [line for line in lines if line.startswith(kind)]
        lines = [line for line in lines if line not in of_kind]
        lines += [line for line, is_kept in zip(of_kind, are_kept) if is_kept]
    state.write_text("\n".join([newest, *lines]) + "\n")


def named(directory):
    """Returns the numbers of the checkpoints that the file `checkpoint` names, oldest first."""
    text = (directory / "checkpoint").read_text()
    return [int(number) for number in re.findall(r'all_model_\w+: ".*ckpt-(\d+)"', text)]


def losses(directory):
    """Returns [(step, loss)] of all pushes, in their order."""
    return [
        (int(row["global_step"]), row["loss"]) for row in RunData.read(directory).rows("pushes")
    ]


def check(script, changes, folder, **more):
    """The named comparisons of numbers that a mistake must fail."""
    text = examples.replaced(script, changes)
    more = {"--" + name.replace("_", "-"): value for name, value in more.items()}
    own_data = equations.of(script).PROBLEM(script, 1, folder)[0]
    data = own_data or interleaved.Data(*problem.digits_like())
    first, moved = folder / "run", folder / "moved"
    interleaved.forget()
    train(script, text, first, data, more, script.stem in AFRESH)
    checkpoints = saved(first)
    wrong = [
        f"names: model.ckpt-{n} holds {step_in(v)}"
        for n, v in checkpoints.items()
        if step_in(v) != n
    ]
    assert len(checkpoints) > 2 and max(checkpoints) == STEPS, (
        f"names: checkpoints of {list(checkpoints)}"
    )
    kept = list(checkpoints)[:2]
    due, before = checkpoints[STEPS], losses(first)
    set_back(first, kept)
    first.rename(moved)
    interleaved.forget()
    train(script, text, moved, data, more)
    after = losses(moved)[len(before) :]
    if [step for step, _ in after] != list(range(kept[1] + 1, STEPS + 1)):
        wrong.append(f"steps: {[step for step, _ in after]} after {kept[1]}")
    elif not np.allclose(after, before[kept[1] :], rtol=1e-4, atol=1e-6):
        wrong.append(f"losses: {after} instead of {before[kept[1] :]}")
    there = saved(moved)
    # One script names the last alone, and looks for the others.
    if named(moved) not in ([], list(there)) or len(there) > 5:
        wrong.append(f"kept: {list(there)} are there, {named(moved)} are named")
    last = there[STEPS]
    wrong += [f"variables: {name} is in one of both" for name in last.keys() ^ due.keys()]
    for name in sorted(last.keys() & due.keys()):
        if np.asarray(due[name]).dtype.kind in "iuf":
            apart = np.abs(np.subtract(last[name], due[name], dtype=float)).max(initial=0)
            if not apart < 1e-5:
                wrong.append(f"variables: {name} is {apart:g} apart")
    assert not wrong, "\n".join(wrong)


def scripts():
    """Returns the scripts that run here, by their kinds."""
    return [
        path
        for path in examples.scripts()
        if examples.kind_of(path).startswith(tuple(KINDS))
        and path.stem not in OTHER_PROCESSES
        and "\ndef server(" not in path.read_text()  # test_recovery.py lets whole runs go on
    ]


def nightly(*cases):
    """Returns parameters of the tier nightly."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.nightly)
        for case in cases
    ]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            script,
            marks=[pytest.mark.nightly] * (script.stem in NIGHTLY)
            or [pytest.mark.long] * (script.stem not in CORE),
        )
        for script in scripts()
    ],
    ids=equations.ids,
)
def test_a_run_goes_on_as_without_a_stop(script, tmp_path):
    """Catches what test_state.py cannot see, because there only losses and counts are compared: a
    variable that no checkpoint has, or that begins again; a name that is not what it holds."""
    check(script, [], tmp_path)


@pytest.mark.parametrize("stage", [pytest.param("1", marks=pytest.mark.long), *nightly("0", "2")])
def test_a_shard_goes_on(stage, tmp_path):
    """The other stages than 3, which is the default."""
    check(examples.main_script("Further-Algorithms/Sharded-Training"), [], tmp_path, stage=stage)


@pytest.mark.parametrize(
    "compress", [pytest.param("top-k", marks=pytest.mark.long), *nightly("sign", "qsgd")]
)
def test_a_compressor_goes_on(compress, tmp_path):
    """The others than power, which is the default."""
    script = examples.main_script("Further-Algorithms/Compressed-AllReduce")
    check(script, [], tmp_path, compress=compress)


RESTORE = "saver.restore(session, checkpoint)"
LATEST = "tf.train.latest_checkpoint(metrics.directory)"
NAMED = 'saver.save(session, f"{metrics.directory}/model.ckpt", step, write_meta_graph=False)'
FIRST = "tf.train.get_checkpoint_state(metrics.directory).all_model_checkpoint_paths[0]"
READ = """        for name in "w", "m", "v":
            vector = getattr(block, name)
            if vector.size:
                place"""


def anew(name, before=""):
    """Returns a change: after the checkpoint is read, what has this in its name begins again.

    before: the text before that, where a script reads checkpoints in two places.
    """
    those = f"[v for v in tf.global_variables() if {name!r} in v.op.name]"
    return before + RESTORE, f"{before}{RESTORE}; session.run(tf.variables_initializer({those}))"


# {(script, the comparison that fails): {the mistake: [(text, what replaces it)]}}
MISTAKES = {
    (f"{SESSIONS}/hogwild_sessions.py", "kept"): {
        "the checkpoints of an earlier start are forgotten": [
            ("saver.recover_last_checkpoints(state.all_model_checkpoint_paths)", "pass")
        ],
    },
    (f"{SESSIONS}/hogwild_sessions.py", "steps"): {
        "the first checkpoint is restored": [(LATEST, f"{LATEST} and {FIRST}")],
        "absolute paths": [("save_relative_paths=True", "save_relative_paths=False")],
    },
    (f"{SESSIONS}/hogwild_sessions.py", "names"): {
        "a name is that of the update before": [
            (NAMED, NAMED.replace("step,", "session.run(step) - 1,"))
        ],
    },
    ("Non-Distributed-Setup/non_distributed_setup.py", "losses"): {
        "the state begins again": [(", state=state)", ")")]
    },
    ("Further-Algorithms/Sharded-Training/sharded_training.py", "variables"): {
        "the second moments begin again": [(READ, READ.replace(', "v"', ""))]
    },
}


IN_ALL = support.mistakes(MISTAKES, core=0)[:5]  # of the session, and of a variable beside w


@pytest.mark.plants_mistakes
@pytest.mark.parametrize(
    "name, fails, changes",
    [*IN_ALL, *nightly(*[case.values for case in support.mistakes(MISTAKES, core=0)[5:]])],
)
def test_a_mistake_is_caught(name, fails, changes, tmp_path):
    with support.fails_comparison(fails):
        check(support.ROOT / name, changes, tmp_path)
