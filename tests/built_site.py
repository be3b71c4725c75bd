"""What the tests of the built site share: its pages, a server like the public one, a browser."""

import functools
import gzip
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
FOLDER = "/ask-match-blend/"  # GitHub serves a project's pages from a folder, and so does this
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Not its own sandbox, which root may not use; and no name leads anywhere: the network is cut.
OPTIONS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
PICTURES = (".png", ".jpg", ".svg", ".gif", ".webp")
AS_THEY_ARE = (".woff2", *PICTURES)  # packed already: a server sends them as they are


def chromium() -> str:
    """Where the browser is; without one the test is skipped, but never under CI."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        why = f"no browser to look at the site with: install one of {', '.join(CHROMIUM)}"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    return found


class _Handler(http.server.SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        return super().translate_path("/" + path.removeprefix(FOLDER))

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def served() -> Iterator[str]:
    """The address of the site's front page, on this machine."""
    assert (HTML / "intro.html").is_file(), "build the book first: make book"
    handler = functools.partial(_Handler, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{FOLDER}"
        server.shutdown()


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser that knows no other host."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=OPTIONS)
        yield browser
        browser.close()


@functools.cache
def sent(path: str) -> int:
    """How many bytes a server with gzip sends for a file of the site."""
    content = (HTML / path).read_bytes()
    return len(content) if path.endswith(AS_THEY_ARE) else len(gzip.compress(content, 6))


def file(address: str) -> str:
    """The file of the site that an address means."""
    return unquote(urlsplit(address).path).removeprefix(FOLDER) or "index.html"


def watch(page: Page) -> tuple[list[Request], list[str]]:
    """The requests that a page makes and the complaints in its console, as they come."""
    requests: list[Request] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None,
    )
    return requests, complaints
