"""Draws the stills of the explorables: what stands there on paper, without JavaScript, on GitHub.

bash docs/build.sh && python docs/site/stills.py       needs playwright and Debian's chromium
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAY, HTML = ROOT / "docs" / "site" / "play", ROOT / "docs" / "_build" / "html"
STILLS = {  # page: (state, the drawing)
    "the-race": ("", ".timeline svg"),
    "bytes-and-links": ("", ".steps svg"),
    "memory-and-schedule": (
        "puzzle=0&model=6.4+billion&gpus=4&batch=8&pp=4&kept=inputs&schedule=1f1b",
        ".pipe svg",
    ),
}


def style():
    """Returns the drawings' style, on light and on dark pages, from the site's own."""
    text = (PLAY.parent / "static" / "site.css").read_text()
    light = re.search(r"(?m)^\.play \{(.*?)\}", text, re.S)[1]
    dark = re.search(r'(?m)^body\[data-theme="dark"\] \.play \{(.*?)\}', text, re.S)[1]
    rules = text.split("stills. */")[1].split("/* End")[0].replace(".play svg", "svg")
    rules = rules.replace(".play ", "").replace("svg text", "text").replace("svg .", ".")
    return f"svg {{{light}}}\n@media (prefers-color-scheme: dark) {{ svg {{{dark}}} }}\n{rules}"


def draw(browser):
    """Returns {page: its still}, by a browser of playwright."""
    drawn = {}
    for name, (state, drawing) in STILLS.items():
        size = {"width": 1180, "height": 900}
        page = browser.new_page(viewport=size, reduced_motion="reduce")
        page.goto(f"file://{HTML}/play/{name}.html#{state}")
        page.wait_for_function("!window.raceStats || raceStats.done", timeout=120_000)
        page.wait_for_selector(drawing)
        svg = page.locator(drawing).evaluate("e => new XMLSerializer().serializeToString(e)")
        page.close()
        drawn[name] = svg.replace(">", f">\n<style>{style()}</style>\n", 1) + "\n"
    return drawn


def main():
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, svg in draw(browser).items():
            (PLAY / f"{name}-still.svg").write_text(svg)
        browser.close()


if __name__ == "__main__":
    main()
