"""Your-Model-Your-Cluster.md: each block of the page, as it stands there, on two virtual hosts."""

import collections
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import engines
import psutil
import pytest
import regions
import support

PAGE = support.ROOT / "Your-Model-Your-Cluster.md"
NOT_RUN = {  # the first command of a block: why nobody runs it here
    "sudo ufw": "a firewall of the reader's: this machine may have none, and keeps its own",
    "pip uninstall": "no GPU here, and the packages of this Python stay as they are",
}
SECONDS = 90  # for one block
# kind: "file", "run", "output" or "not run"; places: terminals on host1 by number, or "host2".
Block = collections.namedtuple("Block", "kind places text")


def blocks(text):
    """The blocks of the page in order. Raises ValueError where one is of no kind."""
    found = []
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        first, _, rest = body.partition("\n")
        place = re.fullmatch(r"# (.*?)(?::.*)?", first)
        if language == "python" and re.fullmatch(r"# My-Model/\w+\.py", first):
            found.append(Block("file", [first[2:]], body))
        elif language == "text":
            found.append(Block("output", [], body))
        elif language:
            raise ValueError("a block of %s is neither a file nor a command: %s" % (language, body))
        elif (rest if place else body).startswith(tuple(NOT_RUN)):
            found.append(Block("not run", [], body))
        elif place and "terminal" in place[1]:
            found.append(Block("run", re.findall(r"\b\d\b|host2", place[1]), body))
        elif place:
            raise ValueError("no terminal has the name %s" % place[1])
        else:
            found.append(Block("run", [], body))
    return found


def test_each_block_is_run_or_listed():
    """Catches a block that the other test would pass over, and a reason without its block."""
    text = PAGE.read_text()
    found = blocks(text)
    assert 2 * len(found) == len(re.findall("(?m)^ *```", text))
    kinds = collections.Counter(block.kind for block in found)
    assert kinds["not run"] == len(NOT_RUN) == text.count("*not run here*):"), kinds
    assert kinds["run"] >= 15 and kinds["file"] == 2, kinds
    for other in "```sh\nrm x\n```\n", "```\n# on the moon\nrm x\n```\n":
        with pytest.raises(ValueError):
            blocks(other)


class Terminal:
    """A shell on a host, which takes one block after the other; what they print goes to a file."""

    def __init__(self, host, folder, output):
        self.given, self.path = 0, output
        self.text = open(output, "w")
        enter = ["nsenter", "--target", str(host.pid), "--mount", "--uts", "--net", "--pid"]
        env = support.environment("")
        env.pop("OUTPUT_DIR")
        env.update(VIRTUAL_ENV=sys.prefix, PATH=with_tools(os.path.dirname(sys.executable)))
        env.pop("RUNS_DIR", None)  # that of the copy
        self.process = subprocess.Popen(
            [*enter, "bash", "-e"],
            stdin=subprocess.PIPE,
            stdout=self.text,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        self.send("cd '%s'" % folder)

    def send(self, line):
        """A line for the shell; a number that it prints afterwards says that it is done."""
        self.given += 1
        self.process.stdin.write("%s\necho '### %d'\n" % (line, self.given))
        self.process.stdin.flush()

    def run(self, text):
        """Starts a block, when the one before is done."""
        self.wait()
        block = self.path.with_suffix(".%d.sh" % self.given)
        block.write_text(text)
        self.send(". '%s' < /dev/null" % block)

    @property
    def output(self):
        return self.path.read_text(errors="replace")

    def wait(self):
        """Waits until all that was given is done. Fails where a command has failed."""

        def done():
            assert self.process.poll() is None, "a command has failed:\n" + self.output
            return "### %d\n" % self.given in self.output

        try:
            support.wait_until(done, SECONDS, "the block is done")
        except AssertionError as error:
            raise AssertionError("%s\n%s" % (error, self.output)) from None

    def close(self):
        """Its host has ended, and all that ran there."""
        self.process.stdin.close()
        self.process.wait(support.patience(20))
        self.text.close()


def with_tools(first=""):
    """The PATH, with those folders in it that only root's has."""
    return os.pathsep.join(filter(None, [first, os.environ["PATH"], "/usr/sbin", "/sbin"]))


class Hosts:
    """virtual_hosts.py while it waits for us; `own` is a folder that each host has for itself."""

    def __init__(self, folder, own):
        self.folder = folder
        with open(folder / "hosts.txt", "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, engines.FOLDER / "SSH" / "virtual_hosts.py"]
                + ["--own", own, "--", "sh", "-c", "read _"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": with_tools()},
            )

    def __enter__(self):
        text = self.folder / "hosts.txt"

        def ready():
            assert self.process.poll() is None, text.read_text()
            return "[hosts]" in text.read_text()

        try:
            support.wait_until(ready, 30, "the hosts are there")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        known = engines.descendants(psutil.Process(self.process.pid))
        self.process.terminate()
        self.process.wait(support.patience(20))
        self.process.stdin.close()
        engines.none_is_left(known)

    def of(self, name):
        """The process of a host's sshd, which listens."""
        for each in engines.descendants(psutil.Process(self.process.pid)):
            if re.search(r"sshd .*/%s\.conf" % name, " ".join(each.cmdline())):
                return each


def pattern(line):
    """What a line of a sample output may be: other numbers, and anything for `...`."""
    parts = re.split(r"(\.\.\.|\d+)", line)
    other = {"...": ".*"}
    return "".join(
        re.escape(part) if n % 2 == 0 else other.get(part, r"\d+") for n, part in enumerate(parts)
    )


def take(block, terminals, folder):
    """Does what a reader does with a block. folder: that of the project, as host1 sees it."""
    if block.kind == "file":
        terminals["1"].wait()
        (folder / block.places[0]).write_text(block.text)
    elif block.kind == "output":
        terminals["1"].wait()
        for line in block.text.splitlines():
            assert re.search("(?m)^%s$" % pattern(line), terminals["1"].output), line
    elif block.kind == "run":
        if not block.places:
            for each in terminals.values():
                each.wait()
        for place in block.places or ["1"]:
            terminals[place].run(block.text)


@engines.root("ip", "sshd")
@pytest.mark.long
@pytest.mark.timeout(1200)  # on a busy machine; 100 s are usual
def test_each_block_runs(tmp_path):
    """Catches a command on the page that fails, or a run on two hosts that learns nothing."""
    clone, project = tmp_path / "clone", tmp_path / "project"
    for path in regions.tracked("*"):
        copy = clone / path.relative_to(support.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    project.mkdir()
    terminals = {}
    try:
        with Hosts(tmp_path, project) as hosts:
            for name in "1", "2", "3", "host2":
                host = hosts.of(name if name == "host2" else "host1")
                terminals[name] = Terminal(host, project, tmp_path / ("terminal-%s.txt" % name))
            for name in "1", "host2":
                terminals[name].run("cp -r '%s/.' ." % clone)
            there = pathlib.Path("/proc/%d/root" % hosts.of("host1").pid, *project.parts[1:])
            for block in blocks(PAGE.read_text()):
                take(block, terminals, there)
            for each in terminals.values():
                each.wait()
            results = [support.result(there / name) for name in ("by-hand", "two-hosts", "my-run")]
    finally:
        for each in terminals.values():
            each.close()
    for result, steps in zip(results, (600, 600, 2000)):
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
