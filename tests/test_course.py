"""The map on the front page and the sheet tell the truth about the chapters."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from qkv.figures import course

ROOT = Path(__file__).resolve().parent.parent
OPENINGS = {
    path.name[:2]: "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
    for path in sorted((ROOT / "chapters").glob("*.ipynb"))
}


def test_the_map_has_each_chapter_in_its_part():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    captions = {
        "I": "Ask, match, blend",
        "II": "Kinds of attention",
        "III": "The Transformer",
        "IV": "By hand",
        "V": "Experiments",
    }
    for part, caption in captions.items():
        (files,) = (listed["chapters"] for listed in parts if listed["caption"] == caption)
        numbers = [file["file"].removeprefix("chapters/")[:2] for file in files]
        assert numbers == [n for n, chapter in course.CHAPTERS.items() if chapter.part == part]
    assert sorted(course.CHAPTERS) == list(OPENINGS)


def before(number: str) -> set[str]:
    """All chapters that one needs, by the map, directly or through others."""
    needs = course.CHAPTERS[number].needs
    return set(needs).union(*(before(needed) for needed in needs))


@pytest.mark.parametrize("number", course.CHAPTERS)
def test_a_chapter_needs_what_the_map_says(number: str):
    (line,) = re.findall(r"^You need .*$", OPENINGS[number], re.MULTILINE)
    needs = set(re.findall(r"\]\((\d\d)-", line))
    through_others = set().union(*(before(needed) for needed in needs))
    assert needs - through_others == set(course.CHAPTERS[number].needs)


def test_the_front_page_shows_the_map():
    file = ROOT / "_static" / "chapters.png"
    assert file.read_bytes() == course.chapters().png(), (
        "out of date: write course.chapters().png() to _static/chapters.png"
    )


def test_the_sheet_prints_on_one_page(tmp_path: Path):
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None and not os.environ.get("CI"):
        pytest.skip(f"no browser to print with: install one of {', '.join(names)}")
    page, sheet = ROOT / "_build" / "html" / "sheet.html", tmp_path / "sheet.pdf"
    assert page.is_file(), "build the book first: make book"
    # The virtual time lets the formulas be set before the page is printed.
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
    options.append(f"--user-data-dir={tmp_path / 'profile'}")
    command = [browser, *options, f"--print-to-pdf={sheet}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert re.findall(rb"/Count (\d+)", sheet.read_bytes()) == [b"1"]


def terms() -> dict[str, str]:
    """Each word of the glossary, as its anchor, with the chapter that its entry names."""
    glossary = (ROOT / "glossary.md").read_text(encoding="utf-8")
    named = {}
    for entry in glossary.split("\n## ")[1:]:
        word, _, text = entry.partition("\n")
        chapter = re.search(r"\]\(chapters/(\d\d)-", text)
        if chapter:
            anchor = re.sub(r"[^\w -]", "", word.lower()).strip().replace(" ", "-")
            named[anchor] = chapter[1]
    return named


@pytest.mark.parametrize("anchor, number", terms().items())
def test_a_word_is_linked_in_the_chapter_that_introduces_it(anchor: str, number: str):
    (path,) = (ROOT / "chapters").glob(f"{number}-*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert f"(../glossary.md#{anchor})" in text, f"link the first use of it in chapter {number}"
