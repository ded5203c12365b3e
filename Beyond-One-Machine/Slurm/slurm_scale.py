"""Adds workers to a job of Slurm, or lets some leave, when `tfrun scale OUTPUT_DIR` asks for it.

    python slurm_scale.py --ps 1 ../../HogWild/hogwild.py --steps 600

train.sbatch runs it beside its srun, with the same arguments as slurm_launch.py. Each worker that
joins is a step of its own in the job, on the processors of the other tasks.

Kind:          driver
Run:           bash run.sh
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import slurm_launch

from tfrun.runs import scaling

POLL_SECONDS = 1


class Job:
    """The workers of a job: those of its first step, and those that have joined."""

    def __init__(self, directory, flags):
        self.directory, self.flags = directory, flags
        self.kept = set() if flags.chief else {0}  # where there is no chief, worker 0 is it
        self.first, self.steps = set(), {}  # indices of workers; {index: the srun of a joined one}
        self.leaving = set()

    def rank(self, index):
        """Returns the rank of a worker, as the scripts count."""
        return index + self.flags.chief

    def poll(self):
        """Notes which workers have ended, and does what somebody has asked for."""
        for index, step in list(self.steps.items()):
            if step.poll() is not None:  # also one that was killed: nobody waits for it
                scaling.mark(self.directory, self.rank(index)).touch()
                self.leaving.discard(index)
                del self.steps[index]
        cluster = self.directory / slurm_launch.CLUSTER
        n = scaling.asked(self.directory)
        if n is None or not cluster.exists():
            return
        self.first = self.first or set(
            range(len(json.loads(cluster.read_text()).get("worker", [])))
        )
        staying = (self.first | self.steps.keys()) - self.leaving
        joining, to_leave = scaling.plan(n, staying, self.leaving, self.kept)
        for index in joining:
            scaling.mark(self.directory, self.rank(index)).unlink(missing_ok=True)
            self.steps[index] = self.start(index)
            print(f"[slurm] worker {index} joins", flush=True)
        for index in to_leave:
            scaling.mark(self.directory, self.rank(index)).touch()
            self.leaving.add(index)
            print(f"[slurm] worker {index} leaves", flush=True)
        scaling.answer(self.directory)

    def start(self, index):
        """Starts a step of one worker; returns its srun."""
        launch = [sys.executable, slurm_launch.__file__, "--join", str(index)]
        script = [self.flags.script, *self.flags.arguments]
        srun = ["srun", "--overlap", "--nodes=1", "--ntasks=1"]
        return subprocess.Popen([*srun, *launch, *script], stdin=subprocess.DEVNULL)


def main():
    _, flags = slurm_launch.parse(is_task=False)
    job = Job(pathlib.Path(os.environ["OUTPUT_DIR"]), flags)
    while True:
        job.poll()
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
