"""What the theme leaves to a book: what each page says of itself, and what the site ships.

Each page says where in the course it stands and leads to Colab, its notebook, its source and a
report of a fault. Search engines and shared links get its first sentence. Its images keep their
room while they load. The site sheds what the theme brings for other books.
"""

import hashlib
import re
import shutil
from base64 import b64decode
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import imagesize
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.images import get_image_size

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("I", "II", "III", "IV", "V")
# What would mislead a screen reader: a heading without words, a name that is not what one sees.
# And the one kind of cell that is folded as a whole.
MENDED = {
    '<th class="head"><p></p>': '<th class="head"><span class="visually-hidden">row</span>',
    '<summary aria-label="Toggle hidden content">': "<summary>",
    '<p class="collapsed admonition-title">Show the content</p>': (
        '<p class="collapsed admonition-title">Show the set-up</p>'
    ),
    '<p class="expanded admonition-title">Hide the content</p>': (
        '<p class="expanded admonition-title">Hide the set-up</p>'
    ),
}
# A link that is nothing but a formula: it is read aloud, yet as a link it needs a name.
LINKED = re.compile(
    r"<a ([^>]*)>((?:<(?:span|strong|em)\b[^>]*>)*"
    r"<math(?:(?!</math>).)*</math>(?:</(?:span|strong|em)>)*)</a>"
)
# A box that scrolls can be reached by keyboard, so it must say what it is.
TABLE = re.compile(r'(<div class="pst-scrollable-table-container")>')
IMAGE = re.compile(r'<img\b[^>]*?\bsrc="([^"]+)"[^>]*?(?=\s*/?>)')
# A script that would draw each icon anew (the theme has them as a font, too), maps from packed
# files to their sources, and what only browsers of long ago ask for.
ICONS = "_static/scripts/fontawesome.js"
UNUSED = ("**/*.map", "**/*.ttf", "locales", "*webpack-macros.html")


def settle(app: Sphinx, config: Config) -> None:
    """Where the site stands: as set, or else on the pages that GitHub gives the repository."""
    owner, name = config.html_theme_options["repository_url"].rstrip("/").split("/")[-2:]
    config.html_baseurl = config.html_baseurl or f"https://{owner.lower()}.github.io/{name}/"


def version() -> str:
    """The package's version, which is the book's."""
    code = (ROOT / "lib" / "qkv" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "(.+)"', code)
    assert found, 'lib/qkv/__init__.py has no line `__version__ = "…"`'
    return found[1]


def steps(app: Sphinx, page: str) -> list[dict[str, Any]]:
    """The course's parts, each with its chapters; in one of them the page stands."""
    trees = app.env.external_site_map.root.subtrees
    courses = [tree for tree in trees if all(item.startswith("chapters/") for item in tree.items)]
    return [
        {
            "number": number,
            "title": tree.caption,
            "chapters": [
                page in (item, item.replace("chapters/", "exercises/")) for item in tree.items
            ],
        }
        for number, tree in zip(PARTS, courses, strict=False)
    ]


def links(app: Sphinx, page: str, source: str) -> list[tuple[str, str]]:
    """What one can do with a page elsewhere: run it, take it along, read its source, report it."""
    theme = app.config.html_theme_options
    repository, ref = theme["repository_url"], theme["repository_branch"]
    report = {
        "title": f"Fault on the page {page}",
        "body": f"Page: {page}\nVersion: {version()} ({ref})\n\nWhat is wrong, and where:\n",
    }
    colab = theme["launch_buttons"]["colab_url"] + repository.removeprefix("https://github.com")
    colab = colab.replace("google.com/", "google.com/github/", 1)
    notebook = [
        ("Open in Colab", f"{colab}/blob/{ref}/{source}"),
        ("Download notebook", "_sources/" + source),
    ]
    return [
        *(notebook if source.endswith(".ipynb") else []),
        ("See source", f"{repository}/blob/{ref}/{source}?plain=1"),
        ("Report a fault", f"{repository}/issues/new?{urlencode(report)}"),
    ]


def first_sentence(doctree: nodes.document | None) -> str:
    """What a page promises: its first paragraph, cut where a search engine would cut it."""
    paragraph = next(iter(doctree.findall(nodes.paragraph)), None) if doctree else None
    words = " ".join(paragraph.astext().split()) if paragraph else ""
    return words if len(words) <= 200 else words[:200].rpartition(" ")[0] + " …"


def keep_room(app: Sphinx, body: str) -> str:
    """Give each image its size, and let those below the page's first heading wait until near."""
    files = {Path(name).name: Path(app.srcdir, uri) for uri, (_, name) in app.env.images.items()}
    start = body.find("<h2")

    def sized(tag: re.Match[str]) -> str:
        if tag[1].startswith("data:image"):  # drawn by a cell that printed HTML
            size = imagesize.get(BytesIO(b64decode(tag[1].partition(",")[2])))
        else:
            file = files.get(Path(tag[1]).name)
            size = get_image_size(file) if file else None
        attributes = f' width="{size[0]}" height="{size[1]}"' if size else ""
        return tag[0] + attributes + (' loading="lazy"' if tag.start() > start >= 0 else "")

    return IMAGE.sub(sized, body)


def number_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Figure 5.2 is the second picture of chapter 05; a notebook read alone shows the caption."""
    chapter = re.fullmatch(r"chapters/(\d\d)-.*", app.env.docname)
    captions = [figure.next_node(nodes.caption) for figure in doctree.findall(nodes.figure)]
    for number, caption in enumerate(captions if chapter else (), start=1):
        label = nodes.strong("", f"Figure {int(chapter[1])}.{number}.")
        caption.insert(0, [label, nodes.Text(" ")])


def name_link(link: re.Match[str]) -> str:
    """Give a link that is a formula the formula's letters as name."""
    letters = "".join(re.findall(r">([^<>\s]+)<", link[2]))
    return f'<a aria-label="{letters}" {link[1]}>{link[2]}</a>'


def describe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the templates what they say of a page."""
    context["site"] = app.config.html_baseurl
    if page != app.config.root_doc:  # whose own stands in _config.yml
        context["summary"] = first_sentence(doctree)
    if doctree is None:
        return
    source = Path(app.env.doc2path(page)).relative_to(app.srcdir).as_posix()
    context["links"] = [
        (words, context["pathto"](to, 1) if to.startswith("_") else to)
        for words, to in links(app, page, source)
    ]
    parts = steps(app, page)
    context["steps"] = parts if any(True in part["chapters"] for part in parts) else []
    body = context["body"]
    for theirs, ours in MENDED.items():
        body = body.replace(theirs, ours)
    numbers = count(1)
    body = TABLE.sub(
        lambda box: f'{box[1]} role="region" aria-label="Table {next(numbers)}">', body
    )
    context["body"] = keep_room(app, LINKED.sub(name_link, body))


def finish(app: Sphinx, failed: Exception | None) -> None:
    """A front page at the site's address, a map of the site; and shed what no page uses."""
    if failed or app.builder.name != "html":
        return
    out = Path(app.outdir)
    shutil.copyfile(out / f"{app.config.root_doc}.html", out / "index.html")
    places = "".join(
        f"<url><loc>{app.config.html_baseurl}{page}.html</loc></url>\n"
        for page in sorted(app.env.found_docs)
    )
    schema = "http://www.sitemaps.org/schemas/sitemap/0.9"
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{schema}">\n{places}</urlset>\n'
    (out / "sitemap.xml").write_text(text, encoding="utf-8")
    (out / ICONS).write_text("", encoding="utf-8")
    for pattern in UNUSED:
        for path in list((out / "_static").glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Take part in the build, after the theme where it matters."""
    code = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    # A page that other code made is made anew.
    app.add_config_value("pages_code", hashlib.sha256(code).hexdigest(), "env")
    app.connect("config-inited", settle)
    app.connect("doctree-read", number_figures)
    app.connect("html-page-context", describe, priority=900)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
