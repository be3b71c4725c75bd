"""Every page of the built site in a real browser: as wide as a phone and a desk, light and dark.

What is held: no request to another host, no complaint in the console, nothing that axe finds, no
sideways scrolling, pictures that keep their room and wait until they are near, and few bytes.
"""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from built_site import HTML, PICTURES, file, opened, sent, served, watch
from test_book import DOCUMENTS

PAGES = [f"{name}.html" for name in (*DOCUMENTS, "search", "404")]
SCREENS = {"phone": (360, 740), "desk": (1280, 900)}
SCHEMES = {"phone": ("light",), "desk": ("dark",)}
if os.environ.get("SITE_PROOF"):  # takes twice as long: make site-proof
    SCHEMES = dict.fromkeys(SCREENS, ("light", "dark"))
FIRST_VISIT = 250_000  # bytes, pictures aside
# All that axe has: WCAG 2.0 to 2.2, A and AA, what is good practice, and what is on trial.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice", "experimental"]
AXE = Axe()
# Notes what moves by itself while a page loads. The lists of contents on both sides scroll to where
# the reader is, on purpose; whether that comes before the first frame depends on the machine. So
# the browser's own sum is of no use: each thing counts by its share of the screen, and of its way.
SHIFTS = """
window.shifts = [];
const size = box => box.width * box.height / (innerWidth * innerHeight);
const way = (a, b) => Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y)) / innerHeight;
const weight = moved => Math.max(size(moved.previousRect), size(moved.currentRect))
  * way(moved.previousRect, moved.currentRect);
new PerformanceObserver(list => list.getEntries().forEach(shift => {
  const moved = shift.sources.filter(
    ({node}) => node?.parentElement && !node.parentElement.closest("[class*=bd-sidebar-]"));
  if (!shift.hadRecentInput) window.shifts.push(
    ...moved.map(m => [weight(m), (m.node.outerHTML ?? m.node.textContent).slice(0, 80)]));
})).observe({type: "layout-shift", buffered: true});
"""
# A browser that draws no more frames must not keep the test waiting for ever.
SCROLL = """async () => {
  const within = (ms, wait) => Promise.race([wait, new Promise(done => setTimeout(done, ms))]);
  for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
    scrollTo(0, y);
    await within(2000, new Promise(
      done => requestAnimationFrame(() => requestAnimationFrame(done))));
  }
  const images = [...document.images].filter(image => image.checkVisibility());
  await within(20000, Promise.all(images.map(image => image.decode().catch(() => 0))));
  scrollTo(0, 0);
}"""
SIDEWAYS = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const inBox = e => e && e !== document.body &&
    (getComputedStyle(e).overflowX != "visible" || inBox(e.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !inBox(e.parentElement))
    .map(e => e.outerHTML.slice(0, 120)).slice(0, 3);
}"""
IMAGES = """() => [...document.images].flatMap(image => {
  const faults = [], below = image.getBoundingClientRect().top + scrollY > innerHeight;
  if (!image.hasAttribute("width") || !image.hasAttribute("height")) faults.push("no size");
  if (image.checkVisibility() && !image.naturalWidth) faults.push("did not load");
  if (below && image.loading != "lazy") faults.push("below the fold, and does not wait");
  return faults.map(fault => `${image.getAttribute("src")}: ${fault}`);
})"""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with served() as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as browser:
        yield browser


def found_by_axe(page: Page, scheme: str) -> list[str]:
    """What axe finds, each with its rule and element."""
    page.emulate_media(color_scheme=scheme)
    options = {"runOnly": TAGS, "resultTypes": ["violations"]}
    violations = AXE.run(page, options=options).response["violations"]
    return [
        f"{scheme}, axe {violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_light_and_usable(name: str, screen: str, browser: Browser, site: str):
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height})
    context.add_init_script(SHIFTS)
    page = context.new_page()
    requests, complaints = watch(page)
    page.goto(site + name, wait_until="load")
    page.evaluate(SCROLL)
    faults = [f"console: {complaint}" for complaint in complaints]
    faults += [f"asks another host: {r.url}" for r in requests if not r.url.startswith(site)]
    shifts = page.evaluate("window.shifts")
    if sum(shift[0] for shift in shifts) > 0.02:  # what counts as good is 0.1
        faults.append(f"moves while it loads: {shifts}")
    faults += [f"wider than the screen: {element}" for element in page.evaluate(SIDEWAYS)]
    faults += [f"picture {fault}" for fault in page.evaluate(IMAGES)]
    own = {file(r.url) for r in requests if not urlsplit(r.url).path.endswith(PICTURES)}
    if (bytes_ := sum(map(sent, own))) > FIRST_VISIT:
        faults.append(f"{bytes_:,} bytes at first: { {path: sent(path) for path in own} }")
    for scheme in SCHEMES[screen]:
        faults += found_by_axe(page, scheme)
    context.close()
    assert not faults, f"{name} on a {screen}:\n" + "\n".join(faults)


# What came with a body, not from the browser's store (nothing) or unchanged (a head alone).
BROUGHT = """() => [...performance.getEntriesByType("navigation"),
                   ...performance.getEntriesByType("resource")]
  .filter(entry => entry.transferSize > entry.encodedBodySize && entry.encodedBodySize > 0)
  .map(entry => entry.name)"""


def test_a_second_page_brings_only_its_own_text(browser: Browser, site: str):
    context = browser.new_context()
    page = context.new_page()
    page.goto(site + "chapters/01-query-key-value.html", wait_until="load")
    assert len(page.evaluate(BROUGHT)) > 5, "what comes at the first visit is seen"
    second = "chapters/02-why-divide-by-sqrt-dk.html"
    page.goto(site + second, wait_until="load")
    brought = {file(address) for address in page.evaluate(BROUGHT)}
    context.close()
    assert {path for path in brought if not path.endswith(PICTURES)} == {second}


def test_the_site_is_small_no_script_is_large_and_nothing_is_a_map():
    paths = [path for path in HTML.rglob("*") if path.is_file()]
    large = {p.name: sent(str(p.relative_to(HTML))) for p in paths if p.suffix == ".js"}
    assert not {name: size for name, size in large.items() if size > 100_000}
    assert not [path.name for path in paths if path.suffix == ".map"]
    assert sum(path.stat().st_size for path in paths) < 15_000_000


# What Tab has reached, and whether one sees that it is there: on itself, on the form round a field,
# or on the sign that stands for what unfolds.
REACHED = """async () => {
  await Promise.allSettled(document.getAnimations().map(moving => moving.finished));
  const e = document.activeElement;
  const signs = [e, e.closest("form"), e.firstElementChild].filter(sign => sign);
  return {
    what: e.outerHTML.slice(0, 120),
    end: e === document.body,
    seen: signs.some(sign => {
      const box = sign.getBoundingClientRect();
      return box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight;
    }),
    marked: signs.some(sign => {
      const look = getComputedStyle(sign);
      return look.outlineStyle !== "none" || look.boxShadow !== "none";
    }),
  };
}"""


@pytest.mark.parametrize("screen", SCREENS)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    screen: str, browser: Browser, site: str
):
    width, height = SCREENS[screen]
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(site + "chapters/03-masks.html", wait_until="load")
    wanted = page.locator("main :is(a[href], button, summary)").evaluate_all(
        "all => all.filter(e => e.checkVisibility({visibilityProperty: true})"
        " && !e.matches('.headerlink, .copybtn')).length"
    )
    reached = 0
    for _ in range(600):
        page.keyboard.press("Tab")
        now = page.evaluate(REACHED)
        if now["end"]:
            break
        assert now["seen"] and now["marked"], f"on a {screen}, no sign of the focus: {now}"
        reached += 1
    page.close()
    assert reached >= wanted


def test_the_search_finds_every_word_of_the_glossary(browser: Browser, site: str):
    page = browser.new_page()
    page.goto(site + "glossary.html")
    words = page.locator("article h2").evaluate_all("all => all.map(e => e.firstChild.textContent)")
    assert len(words) > 20
    page.goto(site + "search.html?q=" + words[0])
    page.wait_for_selector("#search-results a[href*='glossary.html']")
    missed = page.evaluate(
        """words => words.filter(word => {
          const found = Search._performSearch(...Search._parseQuery(word));
          return !found.some(result => result[0] === "glossary");
        })""",
        words,
    )
    page.close()
    assert not missed, f"the search does not lead to the glossary for {missed}"


def test_a_chapter_prints_clean(browser: Browser, site: str):
    page = browser.new_page(viewport={"width": 680, "height": 960})  # A4 at the usual margins
    page.goto(site + "chapters/03-masks.html", wait_until="load")
    page.emulate_media(media="print")
    shown = "e => e.checkVisibility({contentVisibilityAuto: true})"
    for frame in (".bd-sidebar-primary", ".page-links", ".prev-next-footer", ".copybtn", "header"):
        seen = page.locator(frame).evaluate_all(f"all => all.filter({shown}).length")
        assert not seen, f"{frame} is printed"
    headings = page.locator("h1").evaluate_all(f"all => all.filter({shown}).length")
    folded = page.locator("article details > *:not(summary)").evaluate_all(
        f"all => all.filter(e => !({shown})(e)).map(e => e.outerHTML.slice(0, 99))"
    )
    cut = page.locator("article pre, article .math").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
    )
    page.close()
    assert (headings, folded, cut) == (1, [], [])
