"""Builds the wheel: pyproject.toml says what it is, and this copies what `tfrun new` needs."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
from tfrun.apps import material  # noqa: E402


class BuildWithExamples(build_py):
    """Copies the examples into the package, from where they stand in the repository."""

    def copies(self):
        """Returns {path of a file in the repository: path of its copy}; none where tfrun is linked.

        An editable install reads the repository itself.
        """
        if self.editable_mode:
            return {}
        place = pathlib.Path(self.build_lib, "tfrun", "apps", material.COPIES.name)
        return {path: str(place / path) for path in material.files(ROOT)}

    def run(self):
        super().run()
        for path, copy in self.copies().items():
            self.mkpath(str(pathlib.Path(copy).parent))
            self.copy_file(str(ROOT / path), copy, preserve_mode=False)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *self.copies().values()]

    def get_source_files(self):
        """Returns what a source distribution needs besides."""
        return [*super().get_source_files(), *material.files(ROOT)]


setup(cmdclass={"build_py": BuildWithExamples})
