"""The built book, page by page, as a reader's browser gets it. `make book` builds it."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src"}
# What of Markdown, MyST or LaTeX must not be left in the prose of a page.
RAW = re.compile(r"\$|`|\*\*|\]\(|:::|\{[a-z][\w:-]*\}|\\[a-zA-Z(\[]")
# What gives a machine away: its users' folders, or this one's own.
OWN_FOLDERS = "|".join(re.escape(str(folder)) for folder in (ROOT, Path.home(), sys.prefix))
MACHINE = re.compile(
    rf"(?<![\w.:/])(?:(?:{OWN_FOLDERS}|/home/\w+|/Users/\w+)/|/tmp/)|site-packages|ipykernel_\d"
)


def documents(toc: object) -> Iterator[str]:
    """The documents that a table of contents names, without suffix, in its order."""
    if isinstance(toc, list):
        for part in toc:
            yield from documents(part)
    elif isinstance(toc, dict):
        for key, value in toc.items():
            if key in ("root", "file"):
                yield str(value)
            else:
                yield from documents(value)


DOCUMENTS = list(documents(yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))))
NOTEBOOKS = [name for name in DOCUMENTS if (ROOT / f"{name}.ipynb").is_file()]
every_page = pytest.mark.parametrize("name", DOCUMENTS)
every_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


@cache
def page(path: Path) -> BeautifulSoup:
    if not path.is_file():
        pytest.fail(f"{path.relative_to(ROOT)} is not there. Build the book first: make book")
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def article(name: str) -> Tag:
    found = page(HTML / f"{name}.html").select_one("article.bd-article")
    assert found is not None, f"{name}.html has no article"
    return found


@cache
def anchors(path: Path) -> set[str]:
    named = page(path).find_all(lambda tag: tag.has_attr("id") or tag.has_attr("name"))
    return {tag.get(key) for tag in named for key in ("id", "name")}


def test_the_book_has_the_pages_of_its_table_of_contents_and_no_others():
    page(HTML / "index.html")
    built = {str(path.relative_to(HTML).with_suffix("")) for path in HTML.rglob("*.html")}
    built = {name for name in built if not name.startswith("_static/")}
    expected = {*DOCUMENTS, "genindex", "index", "search"}
    assert built == expected, (
        f"not built: {sorted(expected - built)}; left from an earlier build: "
        f"{sorted(built - expected)} (make clean book mends that)"
    )


def test_the_front_page_leads_to_the_root_document():
    refresh = page(HTML / "index.html").select_one('meta[http-equiv="Refresh" i]')
    assert refresh is not None
    assert refresh["content"].endswith(f"url={DOCUMENTS[0]}.html")


@every_page
def test_there_is_one_main_heading(name: str):
    headings = [heading.get_text() for heading in article(name).find_all("h1")]
    assert len(headings) == 1, f"{name} has these h1: {headings}"


@every_page
def test_every_internal_link_and_anchor_resolves(name: str):
    here = HTML / f"{name}.html"
    broken = []
    for tag in page(here).find_all(list(LINKS)):
        link = tag.get(LINKS[tag.name])
        if not link or link == "#" or urlsplit(link).scheme or urlsplit(link).netloc:
            continue
        parts = urlsplit(link)
        target = (here.parent / unquote(parts.path)).resolve() if parts.path else here
        anchor = unquote(parts.fragment)
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{name} links to what is not there: {broken}"


@every_page
def test_a_page_loads_nothing_from_another_host(name: str):
    loaded = page(HTML / f"{name}.html").select("script[src], img[src], link[rel~=stylesheet]")
    sources = [str(tag.get("src") or tag.get("href")) for tag in loaded]
    assert not [source for source in sources if urlsplit(source).netloc]


@every_page
def test_every_image_says_in_words_what_it_shows(name: str):
    mute = []
    for image in page(HTML / f"{name}.html").find_all("img"):
        alt = image.get("alt", "").strip()
        if not alt or re.search(r"\.(png|svg|jpe?g|gif|webp)$", alt, re.IGNORECASE):
            mute.append(image.get("src"))
    assert not mute, f"{name} shows images whose alt text is missing or a file's name: {mute}"


def prose(name: str) -> list[str]:
    """The text of a page that is neither code nor formula."""
    apart = ["pre", "code", "script", "style"]
    return [
        text
        for text in article(name).strings
        if not text.find_parent(apart) and not text.find_parent(class_="math")
    ]


@every_page
def test_no_raw_markup_is_left_in_the_prose(name: str):
    raw = [text.strip() for text in prose(name) if RAW.search(text)]
    assert not raw, f"{name} shows markup where a reader expects text: {raw}"


def formula_fault(tex: str) -> str | None:
    """What of a formula is opened and not closed, or the other way round."""
    plain = re.sub(r"\\[\\{}]", "", tex)
    if plain.count("{") != plain.count("}"):
        return "braces"
    if len(re.findall(r"\\left(?![a-z])", tex)) != len(re.findall(r"\\right(?![a-z])", tex)):
        return "\\left and \\right"
    begun, ended = (sorted(re.findall(rf"\\{word}{{(.*?)}}", tex)) for word in ("begin", "end"))
    if begun != ended:
        return "\\begin and \\end"
    return None


@pytest.mark.parametrize(
    "tex, fault",
    [
        (r"\frac{1}{2} \{ \\ x", None),
        (r"\left( x \right) \leftarrow", None),
        (r"\frac{1}{2", "braces"),
        (r"\left( x )", "\\left and \\right"),
        (r"\begin{aligned} x \end{array}", "\\begin and \\end"),
    ],
)
def test_a_fault_in_a_formula_is_seen(tex: str, fault: str | None):
    assert formula_fault(tex) == fault


@every_page
def test_every_formula_is_whole(name: str):
    formulas = [tag.get_text() for tag in article(name).find_all(class_="math")]
    faults = {tex: formula_fault(tex) for tex in formulas if formula_fault(tex)}
    assert not faults, f"{name} has formulas that cannot be read: {faults}"
    assert not article(name).select(".katex-error, merror, .problematic, .system-message")


@every_page
def test_nothing_folded_stands_open(name: str):
    opened = [str(fold)[:80] for fold in article(name).find_all("details") if fold.has_attr("open")]
    assert not opened, f"{name} opens with these unfolded: {opened}"


@every_notebook
def test_the_answer_to_a_prediction_is_folded(name: str):
    notebook = json.loads((ROOT / f"{name}.ipynb").read_text(encoding="utf-8"))
    tagged = [
        cell
        for cell in notebook["cells"]
        if "hide-output" in cell["metadata"].get("tags", []) and cell["outputs"]
    ]
    answers = article(name).select(".tag_hide-output .cell_output")
    assert len(answers) == len(tagged)
    for answer in answers:
        assert answer.find_parent("details"), f"{name} gives away: {answer.get_text()[:80]}"


@every_notebook
def test_launch_and_download_lead_to_the_notebook(name: str):
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = pyproject["tool"]["ask-match-blend"]
    project = address["repository"].removeprefix("https://github.com/")
    links = [
        tag["href"] for tag in page(HTML / f"{name}.html").select(".article-header-buttons a[href]")
    ]
    launched = [link for link in links if "colab" in link]
    assert launched == [
        f"https://colab.research.google.com/github/{project}/blob/{address['ref']}/{name}.ipynb"
    ]
    assert [link for link in links if link.endswith(f"_sources/{name}.ipynb")]


@every_page
def test_no_page_and_no_download_names_the_machine_that_made_it(name: str):
    files = [HTML / f"{name}.html", *(HTML / "_sources").glob(f"{name}.*")]
    assert len(files) == 2, f"expected a page and its source, not {files}"
    for file in files:
        text = file.read_text(encoding="utf-8")
        found = [text[max(0, m.start() - 30) : m.end() + 30] for m in MACHINE.finditer(text)]
        assert not found, f"{file.relative_to(ROOT)}: {found}"
