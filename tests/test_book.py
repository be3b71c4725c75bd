"""The built book, page by page, as a reader's browser gets it. `make book` builds it."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup, Tag
from fontTools.ttLib import TTFont

import qkv

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
from fonts import ICONS  # noqa: E402
from pictures import PICTURES  # noqa: E402

HTML = ROOT / "_build" / "html"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ADDRESS = PYPROJECT["tool"]["ask-match-blend"]
REPOSITORY = ADDRESS["repository"]
OWNER, PROJECT = REPOSITORY.split("/")[-2:]
SITE = f"https://{OWNER.lower()}.github.io/{PROJECT}/"
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
    expected = {*DOCUMENTS, "404", "index", "search"}
    assert built == expected, (
        f"not built: {sorted(expected - built)}; left from an earlier build: "
        f"{sorted(built - expected)} (make clean book mends that)"
    )


def test_the_front_page_stands_at_the_address_of_the_site():
    assert (HTML / "index.html").read_bytes() == (HTML / f"{DOCUMENTS[0]}.html").read_bytes()


def test_the_map_of_the_site_has_every_page():
    listed = re.findall(r"<loc>(.*?)</loc>", (HTML / "sitemap.xml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(f"{SITE}{name}.html" for name in DOCUMENTS)


def test_the_page_for_what_is_not_there_works_at_any_depth():
    missing = page(HTML / "404.html")
    loaded = missing.select("script, img, link[rel~=stylesheet]")
    assert not loaded, "a relative path would lead nowhere from a deeper address"
    folder = urlsplit(SITE).path
    for link in missing.select("a[href]"):
        assert link["href"].startswith(folder)
        assert (HTML / (link["href"].removeprefix(folder) or "index.html")).is_file()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_front_page_is_up_to_date(name: str):
    file = ROOT / "_static" / name
    assert file.read_bytes() == PICTURES[name]().png(), "run: .venv/bin/python tools/pictures.py"


@every_page
def test_a_shared_link_shows_what_the_page_promises(name: str):
    head = page(HTML / f"{name}.html").head
    said = {tag["property"]: tag["content"] for tag in head.select("meta[property^=og]")}
    title = article(name).h1.get_text().removesuffix("#")
    assert (said["og:title"], said["og:url"]) == (title, f"{SITE}{name}.html")
    assert said["og:description"] == head.select_one("meta[name=description]")["content"] != ""
    assert (HTML / said["og:image"].removeprefix(SITE)).is_file()
    assert head.select_one("link[rel=canonical]")["href"] == said["og:url"]
    assert page(HTML / f"{name}.html").html["lang"] == "en"


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


@pytest.mark.parametrize("name", [name for name in NOTEBOOKS if name.startswith("chapters/")])
def test_the_figures_of_a_chapter_are_numbered(name: str):
    numbers = [caption.strong.get_text() for caption in article(name).select("figcaption")]
    chapter = int(name[len("chapters/") :][:2])
    assert numbers == [f"Figure {chapter}.{i + 1}." for i in range(len(numbers))]
    assert numbers


@every_page
def test_no_raw_markup_is_left_in_the_prose(name: str):
    raw = [text.strip() for text in prose(name) if RAW.search(text)]
    assert not raw, f"{name} shows markup where a reader expects text: {raw}"


BAD = {
    r"\frac{1": "Unexpected end of input",
    r"\left( x )": "Expected '\\right'",
    r"\begin{aligned} x \end{array}": "Mismatch",
    r"\softmax(x)": "Undefined control sequence",
    r"\mathbb{R}": "browsers show no double-struck letters",
}


@pytest.mark.parametrize("tex", BAD)
def test_a_formula_that_cannot_be_read_fails_the_build(tex: str, tmp_path: Path):
    (tmp_path / "conf.py").write_text(
        f"import sys; sys.path.insert(0, {str(ROOT / '_ext')!r})\n"
        "extensions = ['myst_parser', 'formulas']\n"
        "myst_enable_extensions = ['dollarmath']\nhtml_math_renderer = 'formulas'\n",
        encoding="utf-8",
    )
    (tmp_path / "index.md").write_text(f"# Title\n\nSee ${tex}$.\n", encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", tmp_path, tmp_path / "b"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "index.md:3: WARNING: cannot read the formula" in done.stderr
    assert BAD[tex] in done.stderr


@cache
def letters() -> dict[int, str]:
    return TTFont(ROOT / "_static" / "fonts" / "math.woff2").getBestCmap()


@every_page
def test_every_formula_is_set_in_letters_that_the_book_brings(name: str):
    formulas = article(name).select(".math")
    assert all(formula.find("math") for formula in formulas)
    assert not article(name).select("merror, .problematic, .system-message")
    used = {letter for formula in formulas for letter in formula.get_text()}
    used = {letter for letter in used if letter.isprintable() and not letter.isspace()}
    missing = sorted(letter for letter in used if ord(letter) not in letters())
    assert not missing, f"add these to tools/fonts.py and run it: {missing}"


def test_every_icon_is_in_the_font_that_the_book_brings():
    font = TTFont(ROOT / "_static" / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.woff2")
    used = {
        icon.removeprefix("fa-")
        for path in HTML.rglob("*.html")
        for tag in page(path).select('[class*="fa-"]')
        for icon in tag["class"]
        if icon.startswith("fa-") and icon not in ("fa-solid", "fa-lg")
    }
    assert "bars" in used
    assert {name for name in used if name not in ICONS} == set(), "add them to tools/fonts.py"
    assert len(font.getBestCmap()) >= len(ICONS)


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
def test_the_set_up_is_folded_under_its_name(name: str):
    set_up = article(name).select_one("details.above-input")
    assert set_up and "Show the set-up" in set_up.get_text()
    assert set_up.select_one(".cell_input")


@pytest.mark.parametrize("name", DOCUMENTS[1:])  # the front page is left to its picture
def test_a_page_leads_to_colab_its_notebook_its_source_and_a_report(name: str):
    project = REPOSITORY.removeprefix("https://github.com/")
    source = f"{name}.ipynb" if name in NOTEBOOKS else f"{name}.md"
    tags = page(HTML / f"{name}.html").select(".page-links a")
    links = {tag.get_text(): str(tag["href"]) for tag in tags}
    report = urlsplit(links.pop("Report a fault"))
    assert f"{report.scheme}://{report.netloc}{report.path}" == f"{REPOSITORY}/issues/new"
    body = parse_qs(report.query)["body"][0]
    assert f"Page: {name}\nVersion: {qkv.__version__} ({ADDRESS['ref']})\n" in body
    assert links.pop("See source") == f"{REPOSITORY}/blob/{ADDRESS['ref']}/{source}?plain=1"
    if name in NOTEBOOKS:
        base = f"https://colab.research.google.com/github/{project}/blob/{ADDRESS['ref']}"
        assert links.pop("Open in Colab") == f"{base}/{source}"
        download = (HTML / f"{name}.html").parent / links.pop("Download notebook")
        assert download.resolve() == (HTML / "_sources" / source).resolve()
    assert not links


def test_a_chapter_says_where_in_the_course_it_stands():
    places = [page(HTML / f"{name}.html").select_one(".place") for name in DOCUMENTS]
    said = {
        name: place.span.get_text()
        for name, place in zip(DOCUMENTS, places, strict=True)
        if place is not None
    }
    assert said["chapters/03-masks"] == "Part I, Ask, match, blend: chapter 4 of 4"
    assert said["exercises/03-masks"] == said["chapters/03-masks"]
    assert set(said) == {name for name in DOCUMENTS if name.startswith(("chapters/", "exercises/"))}


def test_the_front_page_says_how_long_the_course_takes():
    front = article("intro").get_text()
    minutes = sum(map(int, re.findall(r", (\d+) minutes\.", front)))
    assert "together twelve to thirteen hours" in front
    assert 12 <= minutes / 60 <= 13


@every_page
def test_no_page_and_no_download_names_the_machine_that_made_it(name: str):
    files = [HTML / f"{name}.html", *(HTML / "_sources").glob(f"{name}.*")]
    assert len(files) == 2, f"expected a page and its source, not {files}"
    for file in files:
        text = file.read_text(encoding="utf-8")
        found = [text[max(0, m.start() - 30) : m.end() + 30] for m in MACHINE.finditer(text)]
        assert not found, f"{file.relative_to(ROOT)}: {found}"
