"""The notebooks of Basics-Tutorial: in step with their sources, run afresh, and in a browser."""

import ast
import base64
import concurrent.futures
import difflib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time

import nbformat
import numpy as np
import pytest
import support
from lab.notebooks import cells as notebook_cells
from lab.notebooks import faults as notebook_faults
from lab.notebooks import make as notebooks
from lab.notebooks import sources as notebook_sources
from matplotlib import image
from tfrun.launch import cluster

SOURCES = notebook_sources.sources()
HERE = support.ROOT / "tests" / "notebooks"
# Their exercises need servers, so test_checks.py leaves all answers to them to this file.
WITH_SERVERS = {"Servers", "Sessions-that-Recover"}


def name(source):
    return source.stem


def test_every_notebook_has_its_source():
    paths = {
        path
        for path in notebook_sources.COURSE.glob("**/*.ipynb")
        if ".ipynb_checkpoints" not in path.parts
    }
    assert paths == {source.with_suffix(".ipynb") for source in SOURCES}


def test_the_readme_lists_all():
    """In reading order, with the minutes that each says it takes."""
    minutes = {}
    for source in SOURCES:
        first = notebook_cells.notebook_from(source).cells[0].source
        minutes[source.stem] = int(re.search(r"(\d+) minutes", first)[1])
    assert notebook_sources.order() == minutes and len(minutes) >= 25
    sums = {}
    for part in re.split(r"^### ", (notebook_sources.COURSE / "README.md").read_text(), flags=re.M)[
        1:
    ]:
        match = re.match(r"(.*): (?:(\d+) h )?(\d+) min\n", part)
        sums[match[1]] = 60 * int(match[2] or 0) + int(match[3])
        assert sums[match[1]] == sum(map(int, re.findall(r"\.ipynb\) \| (\d+) \|", part))), match[0]
    assert len(sums) == 5 and sum(sums.values()) == sum(minutes.values()) <= 20 * 60


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_a_notebook_is_in_order(source):
    assert not list(notebook_faults.find_faults(source))


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_its_links_lead_somewhere(source):
    cells = [
        cell.source
        for cell in notebook_cells.notebook_from(source).cells
        if cell.cell_type == "markdown"
    ]
    text = re.sub(r"```.*?```", "", "\n".join(cells), flags=re.S)
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    local = [target for target in targets if "://" not in target]
    assert len(local) >= 2
    assert not [target for target in local if not (source.parent / target).exists()]


def test_the_pushes_are_those_of_the_figure():
    """Why-Distribute carries the rows that docs/figures/pushes.svg is drawn from."""
    source = (notebook_sources.COURSE / "Why-Distribute.py").read_text()
    rows = ast.literal_eval(re.search(r"^pushes = (\[.*?^\])", source, re.M | re.S)[1])
    keys = "worker", "called", "pulled", "computed", "pushed", "staleness"
    drawn = json.loads((support.ROOT / "docs" / "figures" / "pushes.json").read_text())
    assert rows == [tuple(push[key] for key in keys) for push in drawn]


def test_the_ring_is_that_of_its_notebook():
    """Catches a ring that one changes: From-Here-to-DDP-and-FSDP imports it from neighbours.py."""
    cells = notebook_cells.notebook_from(notebook_sources.COURSE / "Ring-AllReduce.py").cells
    (shown,) = [c.source for c in cells if c.source.startswith("%%writefile ring.py\n")]
    own = "class Ring:" + shown.partition("class Ring:")[2]
    assert own in (notebook_sources.COURSE / "neighbours.py").read_text()


def given(folder, source):
    """Answers to a notebook's exercises, written by hand: [(the exercise's number, code)]."""
    cells = re.split(r"^# %% (?=\w+:)", (HERE / folder / source.name).read_text(), flags=re.M)[1:]
    parts = [cell.partition("\n") for cell in cells]
    return [(title.partition(":")[0], code.strip()) for title, _, code in parts]


# What core runs, and what `all` leaves to the night, because it checks their exercises anyway.
TIERS = {
    "Parameter-Server": [],
    **dict.fromkeys(
        [
            "Classic-Mistakes-Practice",
            "Classic-Mistakes-Synchrony",
            "Classic-Mistakes-Variables",
            "Inside-a-Running-Worker",
            "Sessions-that-Recover",
        ],
        [pytest.mark.nightly],
    ),
}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=TIERS.get(name(source), [pytest.mark.long]))
        for source in SOURCES[::-1]  # the last ones take longest, and none runs alone at the end
    ],
    ids=name,
)
def test_outputs_are_those_of_a_fresh_run(source):
    """The notebook from git: each output, and each that a folded answer shows, is that of today.

    The checks of its exercises accept the solutions and refuse six wrong answers to each at least,
    and nothing is left running: execute() raises otherwise.
    """
    committed, wrong = notebooks.notebook_of(source), given("wrong", source)
    right = given("right", source) if source.stem in WITH_SERVERS else []
    answers = [cell for cell in committed.cells if cell.source.startswith(notebook_cells.ANSWER)]
    for exercise in map(notebook_cells.number_of, answers):
        assert sum(number == exercise for number, _ in wrong) >= 6, f"wrong answers to {exercise}"
    notebook = notebooks.with_solutions(committed, wrong, right)
    added = len(notebook.cells) - len(committed.cells)
    assert added >= len(answers) + len(wrong) + len(right), "each answer is executed"
    limit = support.Limit(90)  # of the busiest minute of the run, not of its first or last one
    took = notebooks.execute(source, notebook, is_over=limit.is_over)
    assert took <= notebooks.SECONDS * limit.seconds / limit.least
    ran = [cell for cell in notebook.cells if not cell.id.startswith("solution-")]
    for i, (cell, kept) in enumerate(zip(ran, committed.cells, strict=True)):
        if notebook_cells.has_tag(cell, notebook_cells.PREDICTED):
            answer = notebook_cells.folded_output(committed.cells[i + 1])
            kept = nbformat.from_dict(kept)
            kept.outputs = [nbformat.v4.new_output("stream", text=answer)]
            for output in cell.outputs:
                output.text = output.text.strip("\n")
        if cell.cell_type == "code":
            unlike = differences(kept, cell)
            assert not unlike, f"{source.stem}, {cell.id}:\n{unlike}"
    for cell in notebook.cells:
        if cell.id.startswith("solution-") and cell.source.endswith(" is False"):
            text = "\n".join(map(notebook_cells.texts, cell.outputs))
            in_words = r"^Exercise \w+: not yet: (?!the check cannot read).{15}"
            assert re.search(in_words, text, re.M), (cell.source, text)


def differences(committed, cell):
    """What differs in the outputs of a cell: the text exactly, of pictures the look.

    Where a cell shows what was measured: the text but for its numbers, of pictures how many.
    """
    measured = notebook_cells.MEASURED in cell.metadata.get("tags", [])
    texts = ["\n".join(map(notebook_cells.texts, of.outputs)) for of in (committed, cell)]
    if measured:
        texts = [re.sub(r" *-?\d+(\.\d+)?", " #", text) for text in texts]
    lines = [*difflib.unified_diff(*map(str.splitlines, texts), "in git", "afresh", lineterm="")]
    here, there = map(pictures, (committed.outputs, cell.outputs))
    apart = [0 if measured else ink_apart(one, other) for one, other in zip(here, there)]
    if len(here) != len(there) or not all(share < 0.1 for share in apart):
        lines.append(f"{len(here)} pictures, {len(there)} afresh: {apart}")
    return "\n".join(lines)


def pictures(outputs):
    """The ink [height, width] from 0 to 1 of each picture."""
    encoded = [output.get("data", {}).get("image/png") for output in outputs]
    read = [image.imread(io.BytesIO(base64.b64decode(picture))) for picture in encoded if picture]
    return [1 - one[..., :3].mean(axis=-1) for one in read]


def ink_apart(one, other):
    """The share of the ink that is elsewhere, in squares of 15 pixels; 2 where the sizes differ."""
    if any(abs(a - b) > 15 for a, b in zip(one.shape, other.shape)):
        return 2
    rows, columns = (min(sizes) // 15 for sizes in zip(one.shape, other.shape))
    squares = [
        ink[: 15 * rows, : 15 * columns].reshape(rows, 15, columns, 15).mean(axis=(1, 3))
        for ink in (one, other)
    ]
    return np.abs(squares[0] - squares[1]).sum() / squares[0].sum()


def test_the_ps_of_sessions_waits_while_they_train(monkeypatch, capsys):
    """Its script with a limit of a second for a call, and workers that are done after two.

    Catches a ps that gives up, as it did after a minute.
    """
    import tensorflow.compat.v1 as tf

    cells = [
        cell.source
        for cell in notebook_cells.notebook_from(notebook_sources.COURSE / "Sessions.py").cells
    ]
    (program,) = [text for text in cells if text.startswith("%%writefile train.py")]
    program = program.partition("\n")[2].replace("tf.disable_v2_behavior()\n", "")
    assert "60_000" in program
    jobs = {"ps": 1, "worker": 2}
    ports, held = cluster.hold_ports(3)
    addresses = cluster.addresses(jobs, ports)
    config = {"cluster": addresses, "task": {"type": "ps", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setenv("TF_GRPC_REUSE_PORT", "1")

    def serve():
        with tf.Graph().as_default():
            exec(compile(program.replace("60_000", "1_000"), "train.py", "exec"), {})

    with concurrent.futures.ThreadPoolExecutor(1) as pool, tf.Graph().as_default():
        ps = pool.submit(serve)
        time.sleep(2.5)
        assert not ps.done(), ps.exception()
        with tf.device("/job:ps/task:0"):
            done = tf.FIFOQueue(2, tf.int32, shapes=[[]], shared_name="done")
        tokens = done.enqueue_many([[0, 1]])
        only_ps = tf.ConfigProto(device_filters=["/job:ps"])
        with tf.Session("grpc://" + addresses["ps"][0], config=only_ps) as session:
            session.run(tokens)
        ps.result(support.patience(30))
    assert "ps: 2 workers are done" in capsys.readouterr().out


@pytest.mark.parametrize(
    "code, message",
    [
        ("n = 1\n1 / 0", "ZeroDivisionError"),
        # It may take 5 s, looks once a second, and a busy machine takes some seconds more.
        ("while True: pass", r"not done after ([5-9]|1\d) s: Broken \(cell 1\)"),
        pytest.param("import os; os._exit(1)", "its kernel died", marks=pytest.mark.long),
        pytest.param(
            "import subprocess; p = subprocess.Popen(['sleep', '100'])",
            "leaves running",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_that_fails_says_why(tmp_path, code, message):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    with pytest.raises(notebooks.Failed, match=message):
        notebooks.execute(tmp_path / "Broken.py", notebook, seconds=5 if "while" in code else 60)


@pytest.mark.long
def test_run_sh_names_the_cell_that_failed(tmp_path):
    """Basics-Tutorial/run.sh --execute on a notebook that runs and one that fails."""
    folder = tmp_path / "a project" / "Basics-Tutorial"
    folder.mkdir(parents=True)
    shutil.copytree(
        support.ROOT / "lab",
        folder.parent / "lab",
        ignore=shutil.ignore_patterns("drawings", "__pycache__"),
    )
    shutil.copy(notebook_sources.COURSE / "run.sh", folder)
    shutil.copy(notebook_sources.COURSE / "README.md", folder)
    activate = f'export PATH="{os.path.dirname(sys.executable)}:$PATH"\n'
    (folder.parent / "activate.sh").write_text(activate)
    for title, code in ("Bad", "n = 1\n1 / 0"), ("Good", "n = 1"):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        (folder / (title + ".py")).write_text("# %%\n" + code)
        (folder / (title + ".ipynb")).write_text(notebooks.notebook_text(notebook))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    env = {**os.environ, "PYTHONPATH": f"{folder.parent}:{support.ROOT}"}
    done = support.run_to_end("bash", folder / "run.sh", "--execute", env=env)
    assert done.returncode == 1
    assert re.fullmatch(r"Good +[\d.]+ s\n", done.stdout)
    assert done.stderr.startswith("Bad failed in cell 1:\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before, "nothing is written"
    unknown = support.run_to_end("bash", folder / "run.sh", "--execute", "Ugly")
    assert unknown.returncode == 1 and unknown.stderr.count("\n") == 1


@pytest.mark.needs("chromium")
@pytest.mark.long
@pytest.mark.timeout(700)
def test_run_all_in_a_browser(tmp_path):
    """A notebook in JupyterLab, by run.sh: Run All Cells, until all have run without an error."""
    from playwright import sync_api

    folder = tmp_path / "a project" / "Basics-Tutorial"
    shutil.copytree(notebook_sources.COURSE, folder)
    shutil.copytree(support.ROOT / "docs" / "figures", folder.parent / "docs" / "figures")
    activate = f'export PATH="{os.path.dirname(sys.executable)}:$PATH"\n'
    (folder.parent / "activate.sh").write_text(activate)
    path = folder / "Graphs-and-Sessions.ipynb"
    empty = notebook_cells.notebook_from(path.with_suffix(".py"))
    path.write_text(notebooks.notebook_text(empty))  # no outputs: what is seen in the end is new
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    home = tmp_path / "home"
    home.mkdir()
    env.update(HOME=str(home), JUPYTER_CONFIG_DIR=str(home), NOTEBOOK_RUN=tmp_path.name)
    env.update(JUPYTER_RUNTIME_DIR=str(home / "run"), JUPYTER_DATA_DIR=str(home / "data"))
    token = "only-for-this-test"
    command = ["bash", folder / "run.sh", "--no-browser", "--port=%d" % port]
    command += ["--ServerApp.port_retries=0", "--IdentityProvider.token=" + token]
    command += ["--allow-root", "--ServerApp.ip=127.0.0.1"]
    with open(tmp_path / "jupyter.log", "w") as log:
        server = subprocess.Popen(
            command, env=env, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        support.wait_until(lambda: support.listening_ports([port]), 90, "JupyterLab listens")
        url = "http://127.0.0.1:%d/lab/tree/Basics-Tutorial/%s?token=%s"
        texts, pictures = run_all(sync_api, support.browser(), url % (port, path.name, token))
    finally:
        server.terminate()
        notebooks.end_all(tmp_path.name)
    cells, expected = notebooks.notebook_of(notebook_sources.COURSE / path.name).cells, []
    for cell, after in zip(cells, cells[1:]):
        if notebook_cells.has_tag(cell, notebook_cells.PREDICTED):
            expected.append(notebook_cells.folded_output(after))
        streams = [one for one in cell.get("outputs", []) if one.output_type == "stream"]
        expected.extend(notebook_cells.texts(output).strip() for output in streams)
    assert [text.strip() for text in texts] == expected
    drawn = sum(len(notebook_cells.PICTURE.findall(cell.source)) for cell in cells)
    drawn += sum(
        "image/png" in o.get("data", {}) for cell in cells for o in cell.get("outputs", [])
    )
    assert len(pictures) == drawn > 0 and all(width > 0 for width in pictures)


def run_all(sync_api, chromium, url):
    """Opens a notebook, runs all its cells: (the texts that it shows, the pictures' widths)."""
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=flags)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 12000})
            page.goto(url, timeout=90_000)
            page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
            # Until the kernel has its name the indicator says that it is idle, too.
            page.wait_for_selector(".jp-Toolbar-kernelName:has-text('Python 3')", timeout=60_000)
            idle = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
            page.wait_for_selector(idle, timeout=90_000)
            page.click(".lm-MenuBar-itemLabel:text-is('Run')")
            page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
            # The last code cell has its number when all before it have run.
            page.wait_for_function(
                "() => { const all = [...document.querySelectorAll("
                "'.jp-CodeCell .jp-InputArea-prompt')].map(e => e.textContent);"
                " return all.length && all.every(text => /\\[\\d+\\]/.test(text)); }",
                timeout=120_000,
            )
            page.wait_for_timeout(500)
            errors = page.locator("[data-mime-type*='stderr'], [data-mime-type*='error']")
            assert errors.count() == 0
            texts = page.locator("[data-mime-type='application/vnd.jupyter.stdout']")
            widths = page.eval_on_selector_all(
                ".jp-Notebook img", "images => images.map(image => image.naturalWidth)"
            )
            return texts.all_text_contents(), widths
        finally:
            browser.close()
