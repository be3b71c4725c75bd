"""What stands in markdown: headings with their anchors, links, lists, as the book reads them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from markdown_it.renderer import RendererHTML
from markdown_it.tree import SyntaxTreeNode
from myst_parser.config.main import MdParserConfig
from myst_parser.mdit_to_docutils.base import compute_unique_slug
from myst_parser.parsers.mdit import create_md_parser

ANCHOR_LEVELS = 3  # myst_heading_anchors in _config.yml: deeper headings cannot be linked to

_PARSER = create_md_parser(
    MdParserConfig(enable_extensions={"dollarmath", "colon_fence"}), RendererHTML
)


@dataclass(frozen=True)
class Heading:
    cell: str
    level: int
    text: str
    anchor: str | None  # None where the level is too deep to be linked to


@dataclass(frozen=True)
class Prose:
    """Markdown in order: pairs of a cell's name and its source (one pair for a .md file)."""

    cells: tuple[tuple[str, str], ...]

    @cached_property
    def blocks(self) -> list[tuple[str, SyntaxTreeNode]]:
        """The top-level blocks of all cells, each with its cell's name."""
        return [
            (cell, block)
            for cell, source in self.cells
            for block in SyntaxTreeNode(_PARSER.parse(source)).children
        ]

    def nodes(self, *types: str) -> Iterator[tuple[str, SyntaxTreeNode]]:
        """All nodes of these types, at any depth."""
        for cell, block in self.blocks:
            yield from ((cell, node) for node in block.walk() if node.type in types)

    @cached_property
    def headings(self) -> list[Heading]:
        found: list[Heading] = []
        anchors: set[str] = set()
        for cell, block in self.blocks:
            if block.type == "heading":
                level, anchor = int(block.tag[1:]), None
                if level <= ANCHOR_LEVELS:
                    anchor = compute_unique_slug(block, anchors)
                    anchors.add(anchor)
                found.append(Heading(cell, level, text(block), anchor))
        return found

    def section(self, title: str) -> list[tuple[str, SyntaxTreeNode]] | None:
        """The blocks below the first heading that begins so, up to the next heading."""
        below: list[tuple[str, SyntaxTreeNode]] | None = None
        for cell, block in self.blocks:
            if below is not None:
                if block.type == "heading":
                    break
                below.append((cell, block))
            elif block.type == "heading" and plain(text(block)).startswith(title.casefold()):
                below = []
        return below

    def bullets_after(self, phrase: str) -> list[str] | None:
        """The items of the list directly after the heading or paragraph that begins so."""
        for (_, block), (_, following) in zip(self.blocks, self.blocks[1:], strict=False):
            if block.type in ("heading", "paragraph") and plain(text(block)).startswith(
                phrase.casefold()
            ):
                bullets = following.children if following.type == "bullet_list" else []
                return [text(bullet) for bullet in bullets]
        return None


def text(block: SyntaxTreeNode) -> str:
    """The source of the first line of words in a block."""
    return next((node.content for node in block.walk() if node.type == "inline"), "")


def plain(words: str) -> str:
    """Words without emphasis and capitals, to be compared."""
    return " ".join(words.replace("*", "").replace("_", "").casefold().split()).strip(" .:,;…")


def html(nodes: Iterable[tuple[str, SyntaxTreeNode]]) -> str:
    """All raw HTML in these blocks."""
    kinds = ("html_block", "html_inline")
    return "\n".join(
        node.content for _, block in nodes for node in block.walk() if node.type in kinds
    )
