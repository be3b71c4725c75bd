"""Each notebook alone, as Colab opens it: what it needs, where it comes from, what it leaves."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from nbformat import NotebookNode, v4

from qkv.grading import sandbox

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import colab  # noqa: E402
import colab_form  # noqa: E402
import colab_stand_in  # noqa: E402
import notebook_form  # noqa: E402
import snapshot  # noqa: E402
from colab_stand_in import ColabError, StandIn  # noqa: E402

NOTEBOOKS = [
    f for d in ("chapters", "solutions", "exercises") for f in sorted((ROOT / d).iterdir())
]
# What a notebook may import: what comes with Python, what Colab has, and the course's package.
THERE = {*sys.stdlib_module_names, "matplotlib", "numpy", "qkv", "torch"}
# The name of a file, which is not there where a notebook is alone.
FILE = re.compile(r"[\w./-]*\.(csv|json|md|npy|npz|png|pt|py|svg|tsv|txt)")
BUTTON = re.compile(
    r"https://colab\.research\.google\.com/github/([^/]+/[^/]+)/blob/([^/]+)/([^\s)\"]+)"
)
NAME = "01-query-key-value"


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def published() -> frozenset[str]:
    """The files of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return frozenset(done.stdout.split("\0"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_needs_nothing_but_python_colab_and_the_package(path: Path):
    for cell in notebook_form.read(path).cells:
        if cell.cell_type == "markdown":
            assert not re.search(r"!\[|<img", cell.source), f"{cell.id}: no image shows in Colab"
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse(cell.source)):  # which refuses lines with % and ! too
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = ["." * node.level + (node.module or "")]
            elsewhere = [name for name in names if name.split(".")[0] not in THERE]
            assert not elsewhere, f"{cell.id} imports {elsewhere}, which Colab may not have"
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not FILE.fullmatch(node.value), f"{cell.id} names the file {node.value}"


def test_every_button_opens_a_notebook_that_installs_from_where_it_lies():
    pages = [*(ROOT / "_build" / "html").rglob("*.html"), ROOT / "README.md"]
    buttons = {
        found.groups(): page for page in pages for found in BUTTON.finditer(page.read_text("utf-8"))
    }
    missing = {named(path) for path in NOTEBOOKS} - {path for _, _, path in buttons}
    assert not missing, f"no page has a Colab button for {missing}: make book"
    for (project, ref, path), page in buttons.items():
        assert path in published(), f"{page}: its Colab button leads to no file: {path}"
        first = notebook_form.code_cells(notebook_form.read(ROOT / path))[0]
        where = f'"git+https://github.com/{project}@{ref}"'
        assert where in first.source, f"{page}: its button leads to {project} at {ref}, {path} not"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """In place of Colab. It has not Colab's versions: `make colab` tries those.

    pip may ask no index, so that nothing but the package can be installed.
    """
    folder = tmp_path_factory.mktemp("colab")
    made = colab_stand_in.stand_in(folder, colab_stand_in.at_hand(folder))
    made.git.update(PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0")
    return made


def opened(kind: str) -> NotebookNode:
    path = Path(kind, f"{NAME}.ipynb")
    notebook = notebook_form.read(ROOT / path)
    if kind == "exercises":
        solutions = notebook_form.read(ROOT / "solutions" / path.name)
        notebook = colab_form.solved(notebook, solutions)
    return colab_form.as_saved(notebook, colab.button(path))


def test_a_chapter_runs_there(place: StandIn):
    done = place.run(opened("chapters"), NAME)
    assert all(cell.execution_count for cell in notebook_form.code_cells(done))


def test_an_exercise_solved_there_gets_full_points(place: StandIn, tmp_path: Path):
    saved = colab_form.as_saved(place.run(opened("exercises"), NAME), "")
    try:
        sandbox.probe()
    except sandbox.NoSandbox as error:
        assert "CI" not in os.environ, error  # never skipped there
        pytest.skip(f"it ran, and is not graded: {error}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"{NAME}.ipynb").write_text(v4.writes(saved), encoding="utf-8")
    assert colab.grade(tmp_path / "in", tmp_path / "out") == []


def test_a_saved_notebook_is_as_colab_saves_it():
    saved = json.loads(v4.writes(opened("chapters")))
    assert (saved["nbformat"], saved["nbformat_minor"]) == (4, 0)
    assert saved["cells"][0]["metadata"]["id"] == "view-in-github"
    assert "chapters/" + NAME in "".join(saved["cells"][0]["source"])
    for cell in saved["cells"]:
        assert cell["metadata"]["id"] and "id" not in cell
        assert ("executionInfo" in cell["metadata"]) == (cell["cell_type"] == "code")
    assert colab_form.as_saved(v4.reads(json.dumps(saved)), "") == v4.reads(json.dumps(saved))


REPLACES = """\
import pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_path("purelib"), "numpy-9.9.dist-info")
folder.mkdir()
(folder / "METADATA").write_text("Name: numpy\\nVersion: 9.9\\n")"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import utils\n", "[more] ModuleNotFoundError: No module named 'utils'"),
        (REPLACES, "what was there before is not as it was: ['numpy 9.9']"),
    ],
)
def test_what_would_fail_in_colab_fails_there(source: str, said: str, place: StandIn):
    cells = [v4.new_code_cell(notebook_form.set_up_source()), v4.new_code_cell(source, id="more")]
    with pytest.raises(ColabError, match=re.escape(said)):
        place.run(colab_form.as_saved(v4.new_notebook(cells=cells), ""), "made-up")


def test_without_a_network_the_set_up_cell_says_what_to_do(place: StandIn, tmp_path: Path):
    address, _ = notebook_form.public_address()
    env = {**os.environ, **place.git, **snapshot.redirect(address, tmp_path / "nowhere")}
    command = [place.python, "-c", notebook_form.set_up_source()]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: Could not install git+https://" in done.stderr
    assert "Connect to the internet, then run this cell again." in done.stderr
