"""Writes the folder of `tfrun new`: the script, how to run it, and its test."""

import ast
import importlib.metadata
import json
import pathlib
import re
import shlex
import shutil
import sys
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

import jinja2

import tfrun
from tfrun import problems
from tfrun.apps import equation_file, material
from tfrun.runs import run_directory

TEMPLATES = pathlib.Path(__file__).with_name("templates")
ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
PACKAGE = "distributed-tensorflow-reference"
# In the adapter: where the errors of the user's file are, which stands beside it from now on.
BESIDE = f'FILE = str(pathlib.Path(__file__).with_name("{problems.USER_FILE}"))'
# Sentences of README.md that not all folders have.
OWN_DATA = "`own_problem.py` has your data and model, which `adapted_problem.py` gives the script."
REGION = "put yours into its region `problem`."
HAS_JOB = "`tfrun run job.yaml` starts what that file describes, also a grid of learning rates."
BUILDS_HOROVOD = "`build/build.py` builds Horovod before the first run, in about 4 minutes."
ACTIVATION = re.compile(r'(?m)^source "\$here/.*activate\.sh"\n')
FROM_ENVIRONMENT = "from lab.environment import fail, for_pip, pip_failed, say\n"


class Launch(NamedTuple):
    """How a run.sh starts its script."""

    words: list[
        str
    ]  # those behind `tfrun`, up to the script: ["--ps", "1", "--workers", "2", "--"]
    roles: dict[str, int]  # {"ps": 1, "worker": 2}; {} for a single process

    @property
    def uses_horovod(self) -> bool:
        return "horovodrun" in self.words


class Wheel(NamedTuple):
    """Where pip finds this tfrun when it installs what a made folder needs."""

    requirement: str  # a line of requirements.txt
    file: pathlib.Path | None  # which the folder gets a copy of
    source: pathlib.Path | None  # where there is no file: the folder from which pip can build it


def texts_of(name: str, example: str, model: pathlib.Path | None) -> dict[str, str]:
    """Returns {path in the folder `name`: text} of all that it gets, but the wheel.

    model: the user's problem file; None for the problem of the script. Raises ValueError, one line,
    if there is no such example, or if the model does not fit.
    """
    scripts = material.scripts()
    if example not in scripts:
        raise ValueError(f"there is no example {example} to begin from: {', '.join(scripts)}")
    script = material.ROOT / scripts[example]
    launcher = material.text(material.launcher(scripts[example]))
    launch = launch_of(launcher, script.name)
    command = ["tfrun", "new", name, "--from", example, *(["--model", str(model)] if model else [])]
    origin = f"Made by tfrun {tfrun.__version__}: `{shlex.join(command)}`"
    code = script.read_text(encoding="utf-8")
    files = files_of_problem(model, script) if model else {script.name: code}
    equation = equation_file.read(scripts[example], run_directory.kind_of(script))
    facts = {
        "name": name,
        "example": example,
        "model": model,
        "made": origin,
        "script": script.name,
        "equation": equation,
        "start": start_of_test(launch, equation),
        "n": equation.n or equation.workers or max(1, launch.roles.get("worker", 0)),
        "arguments": arguments_of(code),
        "roles": launch.roles,
        "horovod": launch.uses_horovod,
        "python": "{}.{}".format(*sys.version_info),
        "wheel": wheel().requirement,
        "data": OWN_DATA if model else f"`{script.name}` has data and model: {REGION}",
        "more": BUILDS_HOROVOD if launch.uses_horovod else HAS_JOB,
    }
    own = {
        script.name: marked(files[script.name], origin),
        "run.sh": launcher_of(launcher, origin),
        "equation.py": rendered("equation.py", facts),
        "test_equation.py": (TEMPLATES / equation.test).read_text(encoding="utf-8"),
        "requirements.txt": rendered("requirements.txt", facts),
        "Dockerfile": rendered("Dockerfile", facts),
        ".github/workflows/test.yml": rendered("test.yml", facts),
        ".gitignore": "/runs/\n/.wheels/\n__pycache__/\n",
        "README.md": rendered("README.md", facts),
    }
    if equation.test == equation_file.RUNS:
        small = "small_problem.py"
        own[small] = (TEMPLATES / small).read_text(encoding="utf-8")
    if launch.uses_horovod:
        own["build/build.py"] = build_of_horovod()
        own["build/requirements.txt"] = material.text(material.REQUIREMENTS)
    else:  # tfrun run starts no horovodrun
        own["job.yaml"] = rendered("job.yaml", facts)
    if same := (set(files) - {script.name}) & set(own):
        raise ValueError(f"{model} imports {same.pop()}, and the new folder has another: rename it")
    return {**files, **own}


def files_of_problem(model: pathlib.Path, script: pathlib.Path) -> dict[str, str]:
    """Returns {name: text} of the script with the user's problem, and of what it imports then."""
    copy = problems.make_copy(model, [str(script)])
    assert copy is not None
    adapter, where = copy.texts[problems.ADAPTER_FILE], f"FILE = {str(model.resolve())!r}"
    assert adapter.count(where) == 1, f"the adapter needs one line `{where}`"
    return {**copy.texts, problems.ADAPTER_FILE: adapter.replace(where, BESIDE)}


def launch_of(launcher: str, script: str) -> Launch:
    """Returns how a run.sh starts its script, whose file is called `script`, without a variable."""
    (line,) = re.findall(r"(?m)^exec tfrun (.+)$", launcher)
    words = shlex.split(re.sub(r"\$\{\w+:-(\d+)\}", r"\1", line))
    words = words[: words.index(f"$here/{script}")]
    roles = {}
    for role, flag in ("ps", "--ps"), ("worker", "--workers"):
        if flag in words:
            roles[role] = int(words[words.index(flag) + 1])
    if "-np" in words:
        roles["worker"] = int(words[words.index("-np") + 1])
    if "--chief" in words:
        roles["chief"] = 1
    return Launch(words, {role: replicas for role, replicas in roles.items() if replicas})


def start_of_test(launch: Launch, equation: equation_file.Equation) -> list[str] | None:
    """Returns the words between tfrun and the script in a run of the test; None without runs."""
    if equation.test != equation_file.RUNS:
        return None
    words = list(launch.words)
    if equation.workers:
        words[words.index("--workers") + 1] = str(equation.workers)
    return words


def arguments_of(code: str) -> dict[str, Any]:
    """Returns {"steps": 3000, ...}: the defaults of a script, without those that it lacks."""
    (line,) = re.findall(r"(?m)^STEPS, BATCH_SIZE, LEARNING_RATE = ([^#\n]+)", code)
    defaults = zip(("steps", "batch-size", "learning-rate"), ast.literal_eval(line.strip()))
    return {name: value for name, value in defaults if value is not None}


def marked(code: str, origin: str) -> str:
    """Returns the text of a script that says below its docstring where it comes from."""
    start, docstring, rest = code.split('"""', 2)
    return f'{start}"""{docstring}"""\n# {origin}{rest}'


def launcher_of(text: str, origin: str) -> str:
    """Returns a run.sh that uses the environment as it is, and names no time of the example's."""
    text, count = ACTIVATION.subn("", text)
    assert count == 1, "run.sh needs one line that sources activate.sh"
    shebang, first, rest = text.split("\n", 2)
    return f"{shebang}\n{first.partition(';')[0].removesuffix('.')}.\n# {origin}\n{rest}"


def build_of_horovod() -> str:
    """Returns the program that builds Horovod, with what it imports from the clone inside."""
    text = material.text(material.BUILD)
    names = [name.strip() for name in FROM_ENVIRONMENT.split("import")[1].split(",")]
    functions = "\n\n\n".join(equation_file.definitions(material.text(material.ENVIRONMENT), names))
    for old, new in (
        (FROM_ENVIRONMENT, f"from typing import NoReturn\n\n\n{functions}\n\n"),
        ("ROOT = HERE.parents[1]\n", "ROOT = HERE.parent\n"),
    ):
        assert text.count(old) == 1, f"{material.BUILD} needs one line {old!r}"
        text = text.replace(old, new)
    return text


def rendered(name: str, facts: dict[str, Any]) -> str:
    """Returns the text of a template."""
    return ENVIRONMENT.get_template(f"{name}.jinja").render(**facts)


def wheel() -> Wheel:
    """Returns the wheel of the tfrun that runs: the file, or the address, that pip has installed.

    pip notes that in direct_url.json. Where it has installed from elsewhere, or where this is a
    clone, the requirement names a file that the user has to bring.
    """
    file = f"{PACKAGE.replace('-', '_')}-{tfrun.__version__}-py3-none-any.whl"
    missing = f"./{file}[training]"
    if material.ROOT != material.COPIES:
        return Wheel(missing, None, material.ROOT)
    noted = importlib.metadata.distribution(PACKAGE).read_text("direct_url.json")
    address = json.loads(noted)["url"] if noted else ""
    if address.startswith("https://") and address.endswith(".whl"):
        return Wheel(f"{PACKAGE}[training] @ {address}", None, None)
    path = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(address).path))
    if address.startswith("file:") and path.is_file():
        return Wheel(f"./{path.name}[training]", path, None)
    return Wheel(missing, None, path if address.startswith("file:") and path.is_dir() else None)


def write(folder: pathlib.Path, texts: dict[str, str]) -> None:
    """Writes the files of a new folder. Raises OSError where that is not possible."""
    folder.mkdir()
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    if file := wheel().file:
        shutil.copy(file, folder)
