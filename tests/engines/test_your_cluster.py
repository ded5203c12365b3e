"""docs/your-cluster.md: each block of the page, as it stands there, on two virtual hosts."""

import collections
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import support
from lab import examples
from test_ssh import PATH, Hosts

PAGE = support.ROOT / "docs" / "your-cluster.md"
NOT_RUN = {  # the first command of a block: why nobody runs it here
    "sudo ufw": "a firewall of the reader's: this machine may have none, and keeps its own",
    "mkdir my-run": "a folder by NFS: the test makes one that both hosts share",
    "pip uninstall": "no GPU here, and the packages of this Python stay as they are",
}
SECONDS = 90  # for one block
# kind: "file", "run", "output" or "not run"; places: terminals on host1 by number, or "host2".
Block = collections.namedtuple("Block", "kind places text")


def blocks(text):
    """The blocks of the page in order. Raises ValueError where one is of no kind."""
    page_blocks = []
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        first, _, rest = body.partition("\n")
        place = re.fullmatch(r"# (.*?)(?::.*)?", first)
        if language == "python" and re.fullmatch(r"# My-Model/\w+\.py", first):
            page_blocks.append(Block("file", [first[2:]], body))
        elif language == "text":
            page_blocks.append(Block("output", [], body))
        elif language:
            raise ValueError(f"a block of {language} is neither a file nor a command: {body}")
        elif (rest if place else body).startswith(tuple(NOT_RUN)):
            page_blocks.append(Block("not run", [], body))
        elif place and "terminal" in place[1]:
            page_blocks.append(Block("run", re.findall(r"\b\d\b|host2", place[1]), body))
        elif place:
            raise ValueError(f"no terminal has the name {place[1]}")
        else:
            page_blocks.append(Block("run", [], body))
    return page_blocks


def test_each_block_is_run_or_listed():
    """Catches a block that the other test would pass over, and a reason without its block."""
    text = PAGE.read_text()
    page_blocks = blocks(text)
    assert 2 * len(page_blocks) == len(re.findall("(?m)^ *```", text))
    kinds = collections.Counter(block.kind for block in page_blocks)
    assert kinds["not run"] == len(NOT_RUN) == text.count("*not run here*):"), kinds
    assert kinds["run"] >= 15 and kinds["file"] == 2, kinds
    for other in "```sh\nrm x\n```\n", "```\n# on the moon\nrm x\n```\n":
        with pytest.raises(ValueError):
            blocks(other)


class Terminal:
    """A shell on a host, which takes one block after the other; what they print goes to a file."""

    def __init__(self, host, folder, output):
        self.blocks, self.path = 0, output
        enter = ["nsenter", "--target", str(host.pid), "--mount", "--uts", "--net", "--pid"]
        tools = os.path.dirname(sys.executable)
        env = support.environment("", VIRTUAL_ENV=sys.prefix, PATH=f"{tools}:{PATH}")
        del env["OUTPUT_DIR"]
        env.pop("RUNS_DIR", None)  # that of the copy
        with open(output, "w") as text:
            self.process = subprocess.Popen(
                [*enter, "bash", "-e"],
                stdin=subprocess.PIPE,
                stdout=text,
                stderr=subprocess.STDOUT,
                text=True,
                env=env,
            )
        self.send(f"cd '{folder}'")

    def send(self, line):
        """Sends a line to the shell; a number that it prints afterwards says that it is done."""
        self.blocks += 1
        self.process.stdin.write(f"{line}\necho '### {self.blocks}'\n")
        self.process.stdin.flush()

    def run(self, text):
        """Starts a block, when the one before is done."""
        self.wait()
        block = self.path.with_suffix(f".{self.blocks}.sh")
        block.write_text(text)
        self.send(f". '{block}' < /dev/null")

    @property
    def output(self):
        return self.path.read_text(errors="replace")

    def wait(self):
        """Waits until all blocks are done. Fails where a command has failed."""

        def done():
            assert self.process.poll() is None, "a command has failed"
            return f"### {self.blocks}\n" in self.output

        support.wait_until(done, SECONDS, "the block is done")

    def close(self):
        """Its host has ended, and all that ran there."""
        self.process.stdin.close()
        self.process.wait(support.patience(20))
        print(self.output)


def pattern(line):
    """What a line of a sample output may be: other numbers, and anything for `...`."""
    return re.sub(r"\d+", r"\\d+", re.escape(line).replace(re.escape("..."), ".*"))


def take(block, terminals, folder):
    """Does what a reader does with a block. folder: that of the project, as host1 sees it."""
    if block.kind == "file":
        terminals["1"].wait()
        (folder / block.places[0]).write_text(block.text)
    elif block.kind == "output":
        terminals["1"].wait()
        for line in block.text.splitlines():
            assert re.search(f"(?m)^{pattern(line)}$", terminals["1"].output), line
    elif block.kind == "run":
        if not block.places:
            for terminal in terminals.values():
                terminal.wait()
        for place in block.places or ["1"]:
            terminals[place].run(block.text)


@pytest.mark.needs("root", "ip", "ssh")
@pytest.mark.long
@pytest.mark.timeout(1200)  # on a busy machine; 100 s are usual
def test_each_block_runs(tmp_path):
    """Catches a command on the page that fails, or a run on two hosts that learns nothing."""
    clone, project, shared = (tmp_path / name for name in ("clone", "project", "shared"))
    for path in examples.tracked_files("*"):
        copy = clone / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    project.mkdir()
    shared.mkdir()
    terminals = {}
    try:
        with Hosts(tmp_path, command="true", own=[project]) as hosts:
            hosts.wait_for("the end: 0")
            for name in "1", "2", "3", "host2":
                sshd = hosts.sshd(name if name == "host2" else "host1")
                terminals[name] = Terminal(sshd, project, tmp_path / f"terminal-{name}.txt")
            for name in "1", "host2":
                terminals[name].run(f"cp -r '{clone}/.' .")
                terminals[name].run(f"mkdir my-run; mount --bind '{shared}' my-run")
            there = pathlib.Path(f"/proc/{hosts.sshd('host1').pid}/root", *project.parts[1:])
            for block in blocks(PAGE.read_text()):
                take(block, terminals, there)
            for terminal in terminals.values():
                terminal.wait()
            results = [support.result(there / name) for name in ("by-hand", "two-hosts", "my-run")]
    finally:
        for terminal in terminals.values():
            terminal.close()
    for result, steps in zip(results, (600, 600, 3000)):
        assert result["steps"] == steps and "missing" not in result, result
        assert result["workers"] == 2 and min(result["pushes_per_worker"]) > 0, result
        assert result["test_accuracy"] > result["test_sure_accuracy"] > 0.5, result
    assert results[-1]["test_accuracy"] >= 0.97, results[-1]
    right = re.search(r"(?m)^right ([\d.]+)$", terminals["1"].output)
    assert float(right[1]) == pytest.approx(results[-1]["test_accuracy"], abs=1e-4)
    predicted = re.search(r"(?m)^predicted \[([\d ]+)\]$", terminals["1"].output)
    digits = itertools.islice(predicted[1].split(), 10)
    from sklearn.datasets import load_digits

    labels = load_digits().target[::5]
    assert sum(int(a) == b for a, b in zip(digits, labels)) >= 8, predicted[0]
