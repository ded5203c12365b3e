"""The page on troubleshooting."""

import pathlib
import textwrap

from tfrun import known_errors


def errors(_: pathlib.Path, __: str | None) -> str:
    """The table of errors in tfrun/known_errors.py."""
    parts = []
    for symptom, entries in known_errors.GROUPS.items():
        parts.append(f"## {symptom}\n")
        for entry in entries:
            words = textwrap.fill(
                f"{entry.means} {entry.do}", 100, break_on_hyphens=False, break_long_words=False
            )
            ticks = "``" if "`" in entry.example else "`"
            parts.append(f"{ticks}{entry.example}{ticks}\\\n{words}\n")
    return "\n".join(parts)
