"""Rules for the markdown of every notebook: it reads the same in the book, Colab and JupyterLab."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from notebook_form import NotebookError, read
from notebook_markdown import Prose

from .page import Found, Page

RAW_ELSEWHERE = {
    "myst_role": "a role",
    "myst_target": "a label",
    "myst_line_comment": "a % comment",
    "myst_block_break": "a +++ line",
    "colon_fence": "a ::: directive",
    "footnote_ref": "a footnote",
}


def headings_step_down(page: Page) -> Found:
    headings = page.prose.headings
    first = page.cells[0][0] if page.cells else ""
    titles = [heading for heading in headings if heading.level == 1]
    if len(titles) != 1 or headings[0].level != 1 or titles[0].cell != first:
        yield (
            titles[-1].cell if titles else first,
            f"{len(titles)} first-level headings: begin the first cell with one, and have no other",
        )
    for above, below in zip(headings, headings[1:], strict=False):
        if below.level > above.level + 1:
            yield (
                below.cell,
                f"heading {below.text!r} jumps from level {above.level} to {below.level}:"
                f" make it level {above.level + 1}",
            )


def markdown_reads_everywhere(page: Page) -> Found:
    for name, node in page.prose.nodes(*RAW_ELSEWHERE):
        yield (
            name,
            f"{RAW_ELSEWHERE[node.type]} ({node.content.strip()[:40]}) shows as raw text in Colab:"
            " write plain markdown",
        )
    for name, node in page.prose.nodes("fence"):
        if node.info.strip().startswith("{"):
            yield (
                name,
                f"the directive {node.info.strip()} shows as raw text in Colab: write plain"
                " markdown, a note as > **Note.** …",
            )
    for name, cell in page.cells:
        if cell.cell_type == "markdown":
            counts = {cell.source.count(tag) for tag in ("<details", "</details>", "<summary>")}
            if len(counts) > 1:
                yield name, "a <details> without <summary> or without end: close it in its cell"
    for name, node in page.prose.nodes("html_block"):
        if node.content.rpartition("</summary>")[2].strip() and "</summary>" in node.content:
            yield name, "text directly after </summary> stays raw: leave an empty line between"


def no_images_in_markdown(page: Page) -> Found:
    message = "an image in markdown does not show in Colab: draw it in a code cell"
    for name, _ in page.prose.nodes("image"):
        yield name, message
    for name, node in page.prose.nodes("html_block", "html_inline"):
        if "<img" in node.content:
            yield name, message


def links_lead_somewhere(page: Page) -> Found:
    links = [(name, str(node.attrs["href"])) for name, node in page.prose.nodes("link")]
    for name, node in page.prose.nodes("html_block", "html_inline"):
        links += [(name, href) for href in re.findall(r'<a\s[^>]*href="([^"]*)"', node.content)]
    for name, href in links:
        try:
            parts = urlsplit(href)
        except ValueError:
            yield name, f"the link {href} is no address: mend it"
            continue
        if parts.scheme or parts.netloc:
            continue
        target = page.path.parent / unquote(parts.path) if parts.path else page.path
        if parts.path.startswith("/"):
            yield name, f"the link {href} is absolute: make it relative to this file"
        elif not os.path.exists(target):  # Path.exists raises where a path is too long
            yield name, f"the link {href[:80]} leads to no file: mend the path"
        elif parts.fragment and unquote(parts.fragment) not in _anchors(target, page):
            yield (
                name,
                f"the link {href}: {target.name} has no heading with this anchor: mend it"
                " (small letters, hyphens for spaces, no punctuation; headings down to level 3)",
            )


def _anchors(target: Path, page: Page) -> set[str | None]:
    if target == page.path:
        prose = page.prose
    elif target.suffix == ".ipynb":
        try:
            prose = Page(target, read(target)).prose
        except (NotebookError, AttributeError):
            return set()  # told where that notebook is checked itself
    elif target.suffix == ".md" and target.is_file():
        prose = Prose((("", target.read_text(encoding="utf-8", errors="replace")),))
    else:
        return set()
    return {heading.anchor for heading in prose.headings}


RULES = (
    headings_step_down,
    markdown_reads_everywhere,
    no_images_in_markdown,
    links_lead_somewhere,
)
