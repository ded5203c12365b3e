"""Your-Model: lets a GPT that a run has trained continue a text.

    python generate.py RUN --prompt "The statement"

RUN is a run directory of gpt.py. The same run, prompt and seed give the same text.

Kind:          driver
Run:           python generate.py RUN --prompt "The statement"
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import sys

import numpy as np
from lab import digests, examples
from tfrun.runs import models
from tfrun.launch import without_notices
from tfrun.runs import run_directory
from tfrun.runs.data import RunData


def write(model, prompt, n, temperature, seed):
    """Returns the n bytes with which the model continues a prompt, as text.

    Each byte is drawn with the probability that the model gives it, sharpened: a temperature of 1
    changes nothing, and one near 0 always takes the likeliest.
    """
    random, context = np.random.RandomState(seed), model.input_shape[1]
    text = list(prompt.encode().rjust(context))
    for _ in range(n):
        window = np.array([text[-context:]], "int32")
        logits = model(window, training=False).numpy()[0, -1] / temperature
        p = np.exp(logits - logits.max())
        text.append(int(random.choice(256, p=p / p.sum())))
    return bytes(text[-n:]).decode(errors="replace")


def draw(directory, path):
    """Draws the loss of the mini-batches, in bits a byte, and the tests, against seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    data = RunData.read(directory)
    begin = min(rows["push_time"].min() for rows in pushes(data).values())
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    for number, (name, rows) in enumerate(sorted(pushes(data).items())):
        seconds = rows["push_time"] - begin
        axes.plot(seconds, rows["loss"] / np.log(2), ".", color=f"C{number}", label=name)
    tests = data.rows("tests", data.flags["tasks"][0])
    seconds = [row["push_time"] - begin for row in tests]
    axes.plot(seconds, [row["test_bits_per_byte"] for row in tests], "k-o", label="test")
    axes.set(xlabel="seconds since the first update", ylabel="bits a byte")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def pushes(data):
    """Returns {task: its pushes} of those that push."""
    return {name: task.pushes for name, task in data.tasks.items() if len(task.pushes)}


def facts(directory, text):
    """Returns what stands beside the figures of a run: its result, its text, this machine."""
    result = run_directory.result(directory)
    flags = run_directory.read_flags(directory)
    own, name = sys.modules["own_problem"], pathlib.Path(flags["script"]).name
    learned = own.read(flags["arguments"]["dataset"])
    sources = [examples.ROOT / parent / flags["example"] / name for parent in examples.PARENTS]
    sources = [path for path in [pathlib.Path(own.__file__), *sources] if path.is_file()]
    return {
        "date": datetime.date.today().isoformat(),
        "example": flags["example"],
        "digests": {examples.shown(path): digests.example_digest(path) for path in sources},
        "arguments": flags["arguments"],
        "workers": result["workers"],
        "updates": result["steps"],
        "seconds": result["wall_seconds"],
        "test_bits_per_byte": result["test_bits_per_byte"],
        "text_bytes": len(learned),
        "text_sha256": hashlib.sha256(learned).hexdigest(),
        "written": text,
        "python": platform.python_version(),
        "tensorflow": flags["versions"]["tensorflow"],
        "cores": os.cpu_count(),
    }


def main():
    """Prints the text; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=pathlib.Path, help="the run directory")
    parser.add_argument("--prompt", default="The statement ", help="how the text begins")
    parser.add_argument("--bytes", type=int, default=300, metavar="N", help="to write (300)")
    words = "below 1 likelier bytes come more often (0.5)"
    parser.add_argument("--temperature", type=float, default=0.5, metavar="T", help=words)
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    words = "also write loss.png and results.json into this folder"
    parser.add_argument("--save", type=pathlib.Path, metavar="DIR", help=words)
    flags = parser.parse_args()
    if flags.temperature <= 0 or flags.bytes < 1:
        parser.error("--temperature and --bytes must be above 0")
    try:
        model = models.trained_model(flags.run.resolve())[0]
    except (OSError, ValueError) as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1
    if len(model.output_shape) != 3 or model.output_shape[-1] != 256:
        print("generate.py: this model writes no bytes; train gpt.py", file=sys.stderr)
        return 1
    text = write(model, flags.prompt, flags.bytes, flags.temperature, flags.seed)
    print(flags.prompt + text)
    if flags.save:
        draw(flags.run.resolve(), flags.save / "loss.png")
        found = {"prompt": flags.prompt, **facts(flags.run.resolve(), text)}
        (flags.save / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    if "QUIET" in os.environ:
        sys.exit(main())
    sys.exit(without_notices.run([sys.executable, *sys.argv], QUIET="1"))
