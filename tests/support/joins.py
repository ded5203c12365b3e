"""A run of Elastic-Training in which workers join, leave and are killed; what the run says of it.

python tests/support/joins.py [SEED]
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
from tfrun.runs import metrics_csv, registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "Operations" / "Elastic-Training"
TFRUN = [sys.executable, "-m", "tfrun"]
STEPS, ACTIONS, LEAST, MOST = 300_000, 30, 2, 5  # updates; what happens to workers; so many workers


class Watcher(threading.Thread):
    """Notes when each file of metrics appears: its task has imported TensorFlow by then."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.begun, self.is_over = folder, {}, False

    def run(self):
        sizes = {}
        while not self.is_over:
            for task, path in metrics_csv.files(self.folder).items():
                text = path.read_bytes()[sizes.get(task, 0) :]
                sizes[task] = sizes.get(task, 0) + len(text)
                if b"# data" in text:
                    self.begun.setdefault(task, []).append(time.time())
            time.sleep(0.05)


def workers(folder):
    """Returns {index: the id of its process} of the workers that run and stay."""
    records = registry.read_all()
    run = next(record for record in records if record["directory"] == str(folder))
    return {
        int(task["task"].split()[1]): task["process"]["pid"]
        for task in run["tasks"]
        if task["role"] == "worker" and task["state"] == "running" and task["process"]
    }


def last_update(folder):
    """Returns the number of the last update that worker 0 has noted."""
    with open(folder / "metrics-worker-0.csv", "rb") as file:
        file.seek(max(0, os.path.getsize(file.name) - 4000))
        lines = file.read().decode().splitlines()
    numbers = [line.split(",")[2] for line in lines[1:-1] if line[:1].isdigit()]
    return int(numbers[-1]) if numbers else 0


def act(chosen, folder, env):
    """Lets a worker join, leave or die; returns what happened and when."""
    running = workers(folder)
    others = [index for index in running if index]
    what = chosen.choice(["join", "leave", "kill"])
    if what == "kill" and others:
        index = chosen.choice(others)
        os.kill(running[index], signal.SIGKILL)
        return {"what": "kill", "worker": index, "time": time.time()}
    n = len(running) + (1 if what == "join" or len(running) <= LEAST else -1)
    n = min(MOST, n)
    command = [*TFRUN, "scale", str(folder), "--workers", str(n), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {"what": "scale", **json.loads(done.stdout), "time": time.time()}


def run(seed, folder, actions=ACTIONS, steps=STEPS, n=3):
    """Trains in a folder while so many actions happen; returns what the run has left.

    Raises RuntimeError where the run, or its account of rows, ends badly.
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OUTPUT_DIR": str(folder)}
    command = [*TFRUN, "--ps", "1", "--workers", str(n), "--restarts", "99", "--timeout", "1500"]
    command += ["--", str(EXAMPLE / "elastic_training.py"), "--steps", str(steps)]
    command += ["--checkpoint-steps", str(steps // 10), "--seed", str(seed), "--lease-seconds", "3"]
    chosen, done = random.Random(seed), []
    folder.mkdir(parents=True)
    watcher = Watcher(folder)
    watcher.start()
    with open(folder.with_suffix(".txt"), "w") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    try:
        while len(done) < actions and process.poll() is None:
            is_due = (folder / "metrics-worker-0.csv").exists()
            if is_due and last_update(folder) > steps * (len(done) + 1) / (actions + 2):
                done.append(act(chosen, folder, env))
            time.sleep(0.05)
        code = process.wait()
    finally:
        watcher.is_over = True
        process.terminate()
        process.wait()
    if code or len(done) < actions:
        raise RuntimeError(f"exit code {code} after {len(done)} actions: {folder}.txt")
    command = [sys.executable, str(EXAMPLE / "account.py"), str(folder)]
    account = subprocess.run(command, capture_output=True, text=True, env=env)
    result = json.loads((folder / "result.json").read_text())
    return {
        "actions": done,
        "account": account.stdout,
        "adds_up": account.returncode == 0,
        "test_accuracy": result["test_accuracy"],
        "test_loss": result["test_loss"],
        "seconds": result["wall_seconds"],
        **measured(folder, watcher.begun),
    }


def measured(folder, begun):
    """Returns seconds from the begin of metrics to the first push, and staleness beside workers."""
    pushes = {}
    for task, path in metrics_csv.files(folder).items():
        rows = metrics_csv.read(path).rows("pushes")
        pushes[task] = np.array([[r["push_time"], r["staleness"]] for r in rows]).reshape(-1, 2)
    firsts = []
    for task, times in begun.items():
        for begin in times:
            later = pushes[task][pushes[task][:, 0] > begin, 0]
            if later.size:
                firsts.append(round(float(later[0] - begin), 2))
    everything = np.concatenate(list(pushes.values()))
    seconds = np.arange(everything[:, 0].min() + 2, everything[:, 0].max() - 2)
    by_workers = {}
    for second in seconds:
        inside = {
            task: of_task[(of_task[:, 0] > second) & (of_task[:, 0] < second + 1)]
            for task, of_task in pushes.items()
        }
        # Those that push all the second, and nobody who comes or goes in it.
        counts = [len(of_task) for of_task in inside.values() if len(of_task)]
        if counts and min(counts) > max(counts) / 3:
            stale = np.concatenate(list(inside.values()))[:, 1]
            by_workers.setdefault(len(counts), []).append(float(stale.mean()))
    staleness = {
        n: [len(means), round(float(np.median(means)), 2)] for n, means in by_workers.items()
    }
    return {"first_push_seconds": firsts, "staleness": dict(sorted(staleness.items()))}


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    parent = pathlib.Path(tempfile.mkdtemp(prefix="joins-"))
    for name, actions in ("elastic", ACTIONS), ("static", 0):
        facts = run(seed, parent / name, actions)
        print(json.dumps(facts, indent=1) if name == "elastic" else facts, flush=True)


if __name__ == "__main__":
    main()
