"""tfrun stands in floors: no circle of imports, and no module imports from a floor above it."""

import ast
import functools

import pytest
import support

TFRUN = support.ROOT / "tfrun"
BELOW = {"tfrun", "tfrun.arguments", "tfrun.errors", "tfrun.formatting", "tfrun.known_errors"}
FLOORS = {  # what the modules of a folder may import, besides BELOW and its own folder
    "commands": {"apps", "launch", "ssh", "diagnosis", "runs", "pictures", "simulate", "problems"},
    "apps": {"runs", "problems"},
    "ssh": {"launch", "runs"},
    "launch": {"runs", "problems"},
    "problems": set(),
    "diagnosis": {"runs", "simulate"},
    "pictures": {"runs"},
    "runs": set(),
    "simulate": set(),
}


@functools.cache
def imports(folder):
    """Returns {module: the modules of tfrun that it imports}, inside of functions, too."""
    paths = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in sorted(folder.rglob("*.py"))
    }
    graph = {}
    for name, path in paths.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name} has a relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [module if module in paths else node.module for module in names]
            graph[name] |= {module for module in names if module.split(".")[0] == "tfrun"}
    return graph


def circle(graph):
    """Returns the modules of a circle of imports in order, or None."""

    def search(name, path):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished:
            return None
        for other in sorted(graph.get(name, ())):
            if loop := search(other, [*path, name]):
                return loop
        finished.add(name)
        return None

    finished = set()
    return next((cycle for name in graph if (cycle := search(name, []))), None)


def test_no_circle():
    graph = imports(TFRUN)
    assert circle(graph) is None, " -> ".join(circle(graph))
    # cli finds the modules of commands by their names, and nothing finds cli.
    assert {name for name, others in graph.items() if "tfrun.cli" in others} == {"tfrun.__main__"}
    for name in BELOW:
        assert graph[name] <= BELOW, name


def test_a_circle_is_found():
    graph = dict(imports(TFRUN))
    graph["tfrun.runs.registry"] = {"tfrun.commands.start"}
    names = circle(graph)
    assert names[0] == names[-1] and {"tfrun.runs.registry", "tfrun.commands.start"} <= set(names)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_imports_what_is_below_it(floor):
    for name, others in imports(TFRUN).items():
        if name.split(".")[1:2] == [floor]:
            folders = {other.split(".")[1] for other in others - BELOW}
            assert folders <= FLOORS[floor] | {floor}, name
