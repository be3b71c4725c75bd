"""tools/notebooks.py: what it runs, how it stores, and what each rule of `check` refuses."""

import base64
import copy
import io
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode, v4
from PIL import Image, PngImagePlugin

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import notebook_form  # noqa: E402
import notebook_rules  # noqa: E402
import notebook_run  # noqa: E402
import notebooks  # noqa: E402


def png(colour: str = "red", size: int = 8, note: str = "") -> str:
    info = PngImagePlugin.PngInfo()
    info.add_text("Software", note)
    data = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(data, "png", pnginfo=info)
    return base64.b64encode(data.getvalue()).decode()


def markdown(name: str, source: str) -> NotebookNode:
    return v4.new_markdown_cell(source, id=name)


def code(
    name: str, source: str, *outputs: NotebookNode, tags: tuple[str, ...] = ()
) -> NotebookNode:
    metadata = {"tags": list(tags)} if tags else {}
    return v4.new_code_cell(source, id=name, outputs=list(outputs), metadata=metadata)


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return v4.new_output("stream", name=name, text=text)


def shown(data: str, kind: str = "image/png") -> NotebookNode:
    return v4.new_output("display_data", data={kind: data})


def described(number: str = "01") -> dict[str, dict[str, str]]:
    figure = {"name": f"fig-{number}-rows", "caption": "Rows blend."}
    return {"image": {"alt": "A red square."}, "figure": figure}


OPENING = """\
# Ask and match

You will see which row answers a question.

**By the end you can**

- compute the scores
- say why rows sum to 1
- draw $A$ and keep it

You need nothing. About 10 minutes."""

RECALL = "## Recall\n\n" + "\n\n".join(
    f"<details><summary>Question {i}?</summary>\n\nAn *answer*.\n\n</details>" for i in range(3)
)
CHOICES = "Which? (a) one (b) two (c) three"
WHY = "<details><summary>Why?</summary>\n\n(a) is right. (b) is not, (c) neither.\n\n</details>"
CLOSING = """\
## Look back

In this chapter you

- computed the scores
- said why rows sum to 1
- drew $A$ and kept it

See [query](../glossary.md#query), [here](#look-back) and [words](00-words.ipynb#the-start)."""


def good_chapter() -> NotebookNode:
    """A small chapter that keeps every rule."""
    picture = code("rows", "draw()", shown(png()))
    picture.metadata["mystnb"] = described()
    cells = [
        markdown("opening", OPENING),
        code("set-up", notebook_form.set_up_source(), tags=("hide-cell",)),
        markdown("recall", RECALL),
        markdown("which-first", f"## The scores\n\n{CHOICES}"),
        code("first", "print(1)", printed("1\n"), tags=("hide-output",)),
        markdown("why-first", WHY),
        markdown("which-second", CHOICES),
        code("second", "print(2)", printed("2\n"), tags=("hide-output",)),
        markdown("why-second", WHY),
        picture,
        code("time", "t = clock()", printed("9\n"), tags=("nbval-ignore-output",)),
        code("time-holds", "assert t < 60"),
        markdown("mistake", "## Right-looking, wrong: columns"),
        code("wrong-axis", "print(3)", printed("3\n")),
        markdown("closing", CLOSING),
    ]
    return v4.new_notebook(cells=cells)


def stored(path: Path, notebook: NotebookNode) -> Path:
    """Store as `run` would, without running."""
    for count, cell in enumerate(notebook_form.code_cells(notebook), 1):
        cell["execution_count"] = count
    notebook.metadata["ask_match_blend"] = {"run_hash": notebook_form.run_hash(notebook)}
    path.parent.mkdir(exist_ok=True)
    notebook_form.write(path, notebook)
    return path


def book(folder: Path, notebook: NotebookNode) -> Path:
    """A book of two chapters and a glossary; the notebook is its chapter 01."""
    (folder / "glossary.md").write_text("# Glossary\n\n## Query\n\n#### Too deep\n")
    first = v4.new_notebook(cells=[markdown("opening", "# Words\n\n## The start")])
    stored(folder / "chapters" / "00-words.ipynb", first)
    return stored(folder / "chapters" / "01-rows.ipynb", notebook)


def cell(notebook: NotebookNode, name: str) -> NotebookNode:
    return next(c for c in notebook.cells if c.id == name)


def replace(name: str, old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        assert old in cell(notebook, name).source
        cell(notebook, name)["source"] = cell(notebook, name).source.replace(old, new)

    return change


def append(name: str, text: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: cell(notebook, name).update(source=cell(notebook, name).source + text)


def put(name: str, **fields: object) -> Callable[[NotebookNode], None]:
    return lambda notebook: cell(notebook, name).update(fields)


def tag(name: str, *tags: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: cell(notebook, name).metadata.update(tags=list(tags))


def mystnb(part: str, key: str, value: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: cell(notebook, "rows").metadata.mystnb[part].update({key: value})


def drop(*names: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        notebook["cells"] = [c for c in notebook.cells if c.id not in names]

    return change


def add(*cells: NotebookNode, at: int = -1) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        notebook.cells[at:at] = copy.deepcopy(cells)

    return change


ERROR = v4.new_output("error", ename="ValueError", evalue="", traceback=[])
SVG = shown("<svg/>", "image/svg+xml")
FOUR_RECALLS = f"\n\n{WHY}"
SIX_BULLETS = "- draw $A$\n- d\n- e\n- f"

# What is done to the good chapter -> the cell that is named, a piece of the message (None where
# it stays good).
BREACHES = {
    "random id": (put("time-holds", id="3f2a91bc"), "3f2a91bc", "name what the cell shows"),
    "id with capitals": (put("time-holds", id="Time"), "Time", "name what the cell shows"),
    "raw cell": (add(v4.new_raw_cell("x", id="raw")), "raw", "use markdown or code"),
    "empty cell": (add(markdown("nothing", " ")), "nothing", "delete it"),
    "unknown tag": (tag("rows", "raises-exception"), "rows", "unknown tag 'raises-exception'"),
    "set-up missing": (drop("set-up"), "first", "must be the set-up cell"),
    "set-up not first": (add(code("early", "x = 1"), at=1), "early", "must be the set-up cell"),
    "set-up and a line end": (append("set-up", "\n"), "", None),  # it is not stored
    "set-up other text": (put("set-up", source="import qkv"), "set-up", "run make set-up"),
    "set-up without tag": (tag("set-up"), "set-up", "run make set-up"),
    "set-up printed": (put("set-up", outputs=[printed("x")]), "set-up", "has outputs"),
    "long cell": (put("wrong-axis", source="x = 1\n" * 21), "wrong-axis", "21 lines of code"),
    "longest cell": (put("wrong-axis", source="x = 1\n" * 20), "", None),
    "long line": (put("wrong-axis", source=f"x = '{'a' * 74}'"), "wrong-axis", "80 characters"),
    "longest line": (put("wrong-axis", source=f"x = '{'a' * 73}'"), "", None),
    "magic": (put("wrong-axis", source="x = 1\n%time x"), "wrong-axis", "line 2 is not plain"),
    "shell": (put("wrong-axis", source="!ls"), "wrong-axis", "line 1 is not plain Python"),
    "stored error": (put("time-holds", outputs=[ERROR]), "time-holds", "an error (ValueError)"),
    "stderr": (put("time-holds", outputs=[printed("Warn", "stderr")]), "time-holds", "(Warn)"),
    "nothing asserted": (put("time-holds", source="t < 60"), "time", "next code cell assert"),
    "assert in a comment": (put("time-holds", source="# assert t"), "time", "cell assert"),
    "nothing follows": (tag("wrong-axis", "nbval-ignore-output"), "wrong-axis", "cell assert"),
    "no alt text": (mystnb("image", "alt", " "), "rows", "alt text"),
    "alt is caption": (mystnb("image", "alt", "Rows blend."), "rows", "alt text"),
    "no caption": (mystnb("figure", "caption", ""), "rows", "caption"),
    "other chapter's name": (mystnb("figure", "name", "fig-02-x"), "rows", "with 'fig-01-'"),
    "no picture": (put("rows", outputs=[]), "rows", "shows none"),
    "two pictures": (put("rows", outputs=[shown(png())] * 2), "rows", "2 pictures"),
    "svg": (put("rows", outputs=[SVG]), "rows", "show a png"),
    "large png": (put("rows", outputs=[shown("A" * 80_004)]), "rows", "at most 60000"),
    "no title": (replace("opening", "# Ask", "## Ask"), "opening", "0 first-level headings"),
    "second title": (append("closing", "\n\n# Sources"), "closing", "2 first-level headings"),
    "late title": (add(markdown("note", "hello"), at=0), "opening", "begin the first cell"),
    "level skipped": (append("recall", "\n\n#### Deep"), "recall", "from level 2 to 4"),
    "directive": (append("why-first", "\n\n```{note}\nx\n```"), "why-first", "directive {note}"),
    "code about it": (append("why-first", "\n\n```\n{ref}`x` ![a](b)\n```"), "", None),
    "colon directive": (append("why-first", "\n\n:::{tip}\nx\n:::"), "why-first", ":::"),
    "role": (append("why-first", "\n\n{ref}`x`"), "why-first", "a role"),
    "label": (append("why-first", "\n\n(here)=\nx"), "why-first", "a label"),
    "open details": (append("why-first", "\n\n<details>"), "why-first", "without <summary>"),
    "no empty line": (replace("why-first", "y>\n\n(", "y>\n("), "why-first", "an empty line"),
    "relative image": (append("recall", "\n\n![a](a.png)"), "recall", "draw it in a code cell"),
    "html image": (append("recall", '\n\n<img src="a.png">'), "recall", "draw it in a code cell"),
    "dead link": (append("closing", " [x](02-no.ipynb)"), "closing", "leads to no file"),
    "dead html link": (append("closing", ' <a href="no.md">x</a>'), "closing", "to no file"),
    "dead term": (append("closing", " [x](../glossary.md#key)"), "closing", "no heading"),
    "deep term": (append("closing", " [x](../glossary.md#too-deep)"), "closing", "no heading"),
    "dead heading": (append("closing", " [x](00-words.ipynb#end)"), "closing", "no heading"),
    "dead own heading": (append("closing", " [x](#end)"), "closing", "no heading"),
    "absolute link": (append("closing", " [x](/glossary.md)"), "closing", "make it relative"),
    "web link": (append("closing", " [x](https://example.org/a#b)"), "", None),
    "no promise": (replace("opening", "You will see", "- You"), "opening", "promise"),
    "two promises": (replace("opening", "see which", "see. Which"), "opening", "one sentence"),
    "no minutes": (replace("opening", "10 minutes", "an hour"), "", "how long"),
    "two goals": (
        replace("opening", "\n- draw $A$ and keep it", ""),
        "",
        "2 bullets directly below",
    ),
    "six goals": (replace("opening", "- draw $A$", SIX_BULLETS), "", "6 bullets directly below"),
    "not closed": (replace("closing", "In this", "In that"), "", '"In this chapter you" has 0'),
    "one not kept": (replace("closing", "\n- drew $A$ and kept it", ""), "", "has 2 bullets"),
    "other words": (
        replace("closing", "drew $A$", "drew B"),
        "",
        'not answer "draw $A$ and keep it"',
    ),
    "no recall": (replace("recall", "## Recall", "## Warm up"), "", "no heading Recall"),
    "four recalls": (append("recall", FOUR_RECALLS), "recall", "4 <details>"),
    "late recall": (add(code("early", "x = 1"), at=2), "recall", "after the first code"),
    "one prediction": (tag("second"), "", "1 cells are tagged hide-output"),
    "two choices": (replace("which-first", "(b)", ""), "first", "offer (a), (b) and (c)"),
    "four choices": (append("which-first", " (d) x"), "first", "offer (a), (b) and (c)"),
    "nobody asks": (drop("which-first"), "first", "offer (a), (b) and (c)"),
    "not explained": (replace("why-first", WHY, "(a) (b) (c)"), "first", "(c) tempts"),
    "one unexplained": (replace("why-first", "(c)", ""), "first", "(c) tempts"),
    "no mistake": (replace("mistake", "Right-looking, wrong", "Wrong"), "", "Right-looking"),
    "mistake unseen": (put("wrong-axis", outputs=[]), "mistake", "show the mistake at work"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_check_refuses(breach: str, tmp_path: Path) -> None:
    change, name, message = BREACHES[breach]
    notebook = good_chapter()
    change(notebook)
    found = list(notebook_rules.problems(book(tmp_path, notebook)))
    if message is None:
        assert found == []
        return
    where = f"01-rows.ipynb [{name}]: " if name else "01-rows.ipynb: "
    assert any(where in problem and message in problem for problem in found), found


def test_the_good_chapter_keeps_every_rule(tmp_path: Path) -> None:
    assert list(notebook_rules.problems(book(tmp_path, good_chapter()))) == []


def test_figure_names_are_unique_in_the_book(tmp_path: Path) -> None:
    path = book(tmp_path, good_chapter())
    stored(tmp_path / "solutions" / "01-other.ipynb", good_chapter())
    (problem,) = notebook_rules.problems(path)
    assert "[rows]: a figure in 01-other.ipynb is called 'fig-01-rows' too" in problem


def test_chapter_rules_hold_for_chapters_only(tmp_path: Path) -> None:
    notebook = v4.new_notebook(cells=good_chapter().cells[:2])
    replace("opening", "10 minutes", "an hour")(notebook)
    book(tmp_path, good_chapter())
    assert list(notebook_rules.problems(stored(tmp_path / "other" / "02.ipynb", notebook))) == []
    assert list(notebook_rules.problems(stored(tmp_path / "chapters" / "02.ipynb", notebook))) != []


def test_the_first_chapter_recalls_nothing(tmp_path: Path) -> None:
    notebook = good_chapter()
    drop("recall", "rows")(notebook)
    path = book(tmp_path, notebook)
    assert any("Recall" in problem for problem in notebook_rules.problems(path))
    path.rename(path.with_name("00-rows.ipynb"))
    assert list(notebook_rules.problems(path.with_name("00-rows.ipynb"))) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"execution_count": 2', '"execution_count": 7', "[first]: execution count is 7"),
        ('"execution_count": 2', '"execution_count": null', "[first]: execution count is None"),
        ('"1\\n"', '"8\\n"', "code or outputs changed since `run` stored them"),
        ('"print(1)"', '"print(8)"', "code or outputs changed since `run` stored them"),
        ('"run_hash"', '"other"', "never executed"),
        ('"metadata": {}', '"metadata": {"a": 1}', "not stored canonically"),
        ('{\n "cells"', '{\r\n "cells"', "not stored canonically"),
        ('"id": "closing"', '"id": "mistake"', "[cell 15]: a second cell has the id 'mistake'"),
        ('"id": "closing"', '"x": 1', "[cell 15]: the cell has no id"),
        ('"cell_type": "markdown"', '"cell_type": 3', "not a notebook in nbformat 4"),
        ('"stream"', '"steam"', "not a valid notebook"),
        ('"cells"', '"worksheets"', "not a notebook in nbformat 4"),
        ("{", "", "not a notebook in nbformat 4"),
    ],
)
def test_check_refuses_what_run_did_not_store(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = book(tmp_path, good_chapter())
    text = path.read_text()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())
    assert notebooks.main(["check", str(path)]) == 1
    assert message in capsys.readouterr().out


def test_check_reports_the_length_of_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = book(tmp_path, good_chapter())
    assert notebooks.main(["check", str(path)]) == 0
    assert (
        "in order; 6 code cells, median 1 lines\n1 checked, problems: 0" in capsys.readouterr().out
    )
    assert notebooks.main(["check", str(tmp_path / "no.ipynb")]) == 1
    assert "no.ipynb: there is no such file" in capsys.readouterr().out


STREAMS = """\
import sys, time
for word in ("one", "two"):
    print(word, flush=True)
    time.sleep(0.3)
"""
PICTURE = "from IPython.display import Image\nImage('square.png')"


def test_run_stores_canonically_and_only_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "square.png").write_bytes(base64.b64decode(png()))
    notebook = v4.new_notebook(
        cells=[
            markdown("title", "# Title"),
            code("streams", STREAMS),
            code("picture", PICTURE),
            code("clock", "time.time()", tags=("nbval-ignore-output",)),
        ]
    )
    notebook.metadata["signature"] = notebook.cells[1].metadata["execution"] = {"goes": "x"}
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    good.write_text(v4.writes(notebook))
    bad.write_text(v4.writes(v4.new_notebook(cells=[code("fine", "x = 1"), code("ouch", "x / 0")])))
    left = bad.read_bytes()

    assert notebooks.main(["run", str(bad), str(good)]) == 1
    said = capsys.readouterr()
    assert "bad.ipynb [ouch]: ZeroDivisionError: division by zero" in said.err
    assert bad.read_bytes() == left
    assert "good.ipynb: ran in" in said.out
    done = notebook_form.read(good)
    assert [c.get("execution_count") for c in done.cells] == [None, 1, 2, 3]
    assert [c.id for c in done.cells] == ["title", "streams", "picture", "clock"]
    assert cell(done, "streams").outputs == [printed("one\ntwo\n")]
    assert cell(done, "picture").outputs[0].data["image/png"].strip() == png()
    assert [c.metadata for c in done.cells] == [{}, {}, {}, {"tags": ["nbval-ignore-output"]}]
    assert set(done.metadata) == {"ask_match_blend", "kernelspec", "language_info"}
    assert done.metadata.language_info == {"name": "python"}
    assert good.read_text().endswith("}\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.ipynb", "good.ipynb", "square.png"]

    # With --all the clock may differ, and nothing else.
    assert notebooks.main(["run", "--all", str(good)]) == 0
    again = notebook_form.read(good)
    assert again.cells[:3] == done.cells[:3]
    assert again.cells[3].outputs != done.cells[3].outputs

    # From here on nothing may be executed.
    monkeypatch.setattr(notebooks, "execute", None)
    kept = good.read_bytes()
    assert notebooks.main(["run", str(good)]) == 0
    assert good.read_bytes() == kept
    assert "up to date" in capsys.readouterr().out
    good.write_bytes(kept.replace(b"{", b"{ ", 1))
    assert notebooks.main(["run", str(good)]) == 0
    assert good.read_bytes() == kept
    assert "written canonically, not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "limit", "message"),
    [
        ("import sys\nprint('oh no', file=sys.stderr)", 60, "wrote to stderr (oh no)"),
        ("import time\ntime.sleep(60)", 2, "the notebook was stopped after 2 s"),
        ("import os\nos._exit(1)", 60, "the kernel died"),
        ("x = )", 60, "SyntaxError"),
    ],
)
def test_run_leaves_a_failing_notebook(
    source: str,
    limit: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notebook_run, "LIMIT", limit)
    path = tmp_path / "01.ipynb"
    path.write_text(v4.writes(v4.new_notebook(cells=[code("culprit", source)])))
    before = path.read_bytes()
    assert notebooks.main(["run", str(path)]) == 1
    assert f"01.ipynb [culprit]: {message}" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_notebook_may_not_take_too_long_altogether(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook_run, "LIMIT", 0)
    quick = v4.new_notebook(cells=[code("quick", "1")])
    with pytest.raises(notebook_form.NotebookError, match="took over 0 s: make it shorter"):
        notebook_run.execute(tmp_path / "01.ipynb", quick)


def test_run_refuses_cells_without_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "01.ipynb"
    path.write_text(v4.writes(v4.new_notebook(cells=[code("here", "1")])).replace('"id"', '"x"'))
    assert notebooks.main(["run", str(path)]) == 1
    assert "01.ipynb [cell 1]: the cell has no id" in capsys.readouterr().err


def test_a_picture_with_the_same_pixels_keeps_its_bytes() -> None:
    old = v4.new_notebook(cells=[code(n, "", shown(png(note="old"))) for n in ("same", "other")])
    new = copy.deepcopy(old)
    new.cells[0].outputs[0].data["image/png"] = png(note="new")
    new.cells[1].outputs[0].data["image/png"] = png("blue")
    assert new.cells[0] != old.cells[0]
    notebook_run.keep_equal_pictures(old, new)
    assert new.cells[0] == old.cells[0]
    assert new.cells[1] != old.cells[1]
    old.cells[1].outputs[0].data["image/png"] = "no picture"
    notebook_run.keep_equal_pictures(old, new)
    assert new.cells[1].outputs[0].data["image/png"] == png("blue")


@pytest.mark.parametrize("change", ["{}", "gone"])
def test_run_keeps_what_was_edited_while_it_ran(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "01.ipynb"
    act = "unlink()" if change == "gone" else f"write_text({change!r})"
    source = f"import pathlib\npathlib.Path('01.ipynb').{act}"
    path.write_text(v4.writes(v4.new_notebook(cells=[code("edit", source)])))
    assert notebooks.main(["run", str(path)]) == 1
    said = "01.ipynb: changed while it ran; nothing written, run again"
    assert said in capsys.readouterr().err
    assert (path.read_text() if path.exists() else "gone") == change


def test_write_keeps_mode_and_link_and_refuses_a_read_only_file(tmp_path: Path) -> None:
    path, link = tmp_path / "01.ipynb", tmp_path / "link.ipynb"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    assert notebook_form.write(link, good_chapter())
    assert link.is_symlink() and path.read_text() != "old"
    assert path.stat().st_mode & 0o777 == 0o640
    path.chmod(0o440)
    with pytest.raises(notebook_form.NotebookError, match="is read-only, nothing written: chmod"):
        notebook_form.write(path, v4.new_notebook())
    assert path.read_text() == notebook_form.canonical_text(good_chapter())


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(notebook_form.NotebookError, match=r"01.ipynb: cannot be written \(Permis"):
        notebook_form.write(tmp_path / "01.ipynb", v4.new_notebook())


@pytest.mark.parametrize("command", ["run", "check", "set-up"])
def test_one_bad_file_does_not_stop_the_others(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = book(tmp_path, good_chapter())
    bad = {
        "folder": "cannot be read (Is a directory)",
        "deep": "not a notebook: its JSON is nested too deeply",
        "half": "not a notebook in nbformat 4 (UnicodeEncodeError",
        "list": "not a notebook in nbformat 4 (TypeError",
        "gone": "there is no such file",
    }
    files = {name: tmp_path / f"{name}.ipynb" for name in bad}
    files["folder"].mkdir()
    files["deep"].write_text("[" * 100_000)
    files["half"].write_text(good.read_text().replace('"1\\n"', '"\\ud800"'))
    files["list"].write_text("[]")
    assert notebooks.main([command, *map(str, files.values()), str(good)]) == 1
    said = capsys.readouterr()
    for name, message in bad.items():
        error = "" if command == "check" else "error: "
        assert f"{error}{files[name]}: {message}" in said.out + said.err, name
    assert command == "set-up" or f"{good}: " in said.out
    assert "Traceback" not in said.err


@pytest.mark.parametrize("command", ["run", "check", "set-up"])
def test_what_nobody_thought_of_is_told_too(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(notebooks, "validate", fail)
    monkeypatch.setattr(notebook_rules, "validate", fail)
    assert notebooks.main([command, str(book(tmp_path, good_chapter()))]) == 1
    assert "01-rows.ipynb: OSError: the disk is gone" in capsys.readouterr().err


def test_the_place_of_a_breach_of_the_schema_is_named(tmp_path: Path) -> None:
    path = book(tmp_path, good_chapter())
    path.write_text(path.read_text().replace('"stream"', '"steam"', 1))
    (problem,) = notebook_rules.problems(path)
    assert problem.startswith(f"{path} [first]: not a valid notebook (")
    assert "in its JSON, mend cells -> 4 -> outputs -> 0, or" in problem


@pytest.mark.parametrize(
    ("old", "new", "version"),
    [
        ('"nbformat_minor": 5', '"nbformat_minor": 0', "4.0"),
        ('"nbformat": 4', '"nbformat": 3', "3"),
    ],
)
def test_an_older_format_is_named_with_what_to_do(
    old: str, new: str, version: str, tmp_path: Path
) -> None:
    path = book(tmp_path, v4.new_notebook(cells=[code("one", "x = 1")]))
    path.write_text(path.read_text().replace(old, new))
    (problem,) = notebook_rules.problems(path)
    assert f"stored in nbformat {version}, the course's is 4.5: convert it with" in problem
    if version == "4.0":
        python, command = (
            problem.split("convert it with ")[1].split(" and give each")[0].split(" ", 1)
        )
        assert python == ".venv/bin/python"
        subprocess.run(f"{sys.executable} {command}", shell=True, check=True)
        notebook_form.validate(path, notebook_form.read(path))


def metadata(name: str, value: object) -> Callable[[NotebookNode], None]:
    return lambda notebook: cell(notebook, name).metadata.update(mystnb=value)


# Valid but odd, as a hand or another editor may leave it -> what `check` says and survives.
ODD = {
    "no code cell": (drop(*(c.id for c in notebook_form.code_cells(good_chapter()))), "the set-up"),
    "mystnb a string": (metadata("rows", "x"), "without caption"),
    "figure null": (metadata("rows", {"figure": None, "image": None}), "without caption"),
    "alt a number": (metadata("rows", {"image": {"alt": 3}}), "own alt text"),
    "caption a number": (metadata("rows", {"figure": {"caption": 3, "name": 4}}), "caption"),
    "png no base64": (put("rows", outputs=[shown("A")]), "the png is damaged (no base64)"),
    "own metadata a string": (lambda n: n.metadata.update(ask_match_blend="x"), "never executed"),
    "null character": (put("wrong-axis", source="x = '\0'"), "not plain Python"),
    "link to a folder": (append("closing", " [x](../chapters#a)"), "no heading with this anchor"),
    "link to a png": (append("closing", " [x](../a.png#a)"), "no heading with this anchor"),
    "link to a broken notebook": (append("closing", " [x](../b.ipynb#a)"), "no heading with this"),
    "no address": (append("closing", ' <a href="http://[bad">x</a>'), "is no address: mend it"),
    "overlong path": (append("closing", f" [x]({'a' * 5000}.md)"), "leads to no file"),
}


@pytest.mark.parametrize("odd", ODD)
def test_check_survives(odd: str, tmp_path: Path) -> None:
    change, message = ODD[odd]
    notebook = good_chapter()
    change(notebook)
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    (tmp_path / "b.ipynb").write_text("{")
    path = book(tmp_path, notebook)
    if odd.startswith("own"):
        path.write_text(
            path.read_text().replace('"ask_match_blend": {', '"ask_match_blend": "x", "y": {')
        )
    found = list(notebook_rules.problems(path))
    assert any(message in problem for problem in found), found


def test_a_damaged_stored_picture_is_another() -> None:
    data = base64.b64decode(png(size=64))
    start = data.index(b"IDAT")
    broken = data[: start - 4] + (5).to_bytes(4) + data[start:]  # SyntaxError: broken PNG file
    header = b"IHDR" + (60_000).to_bytes(4) * 2 + data[24:29]
    bomb = data[:12] + header + zlib.crc32(header).to_bytes(4) + data[33:]
    for damaged in (broken, data[:60], bomb, b"\x89PNG\r\n\x1a\n" + b"\0" * 40):
        assert not notebook_run.same_pixels(base64.b64encode(damaged).decode(), png(size=64))


def test_set_up_writes_the_template_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = good_chapter()
    cell(notebook, "set-up").update(source="import qkv", metadata=NotebookNode())
    path = book(tmp_path, notebook)
    before = path.read_bytes()
    assert notebooks.main(["set-up", "--check", str(path)]) == 1
    assert "01-rows.ipynb: the set-up cell differs" in capsys.readouterr().out
    assert path.read_bytes() == before
    assert notebooks.main(["set-up", str(path)]) == 0
    assert list(notebook_rules.problems(path)) == []  # counts and hash are still in step
    once = path.read_bytes()
    assert notebooks.main(["set-up", str(path)]) == 0
    assert notebooks.main(["set-up", "--check", str(path)]) == 0
    assert path.read_bytes() == once


@pytest.mark.parametrize("source", ["chapter", "words only"])
def test_set_up_puts_the_cell_before_the_first_code(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = good_chapter()
    drop("set-up")(notebook)
    path = book(tmp_path, notebook)
    if source == "words only":
        path = path.with_name("00-words.ipynb")
    assert notebooks.main(["set-up", "--check", str(path)]) == 1
    assert notebooks.main(["set-up", str(path)]) == 0
    assert f"{path}: set-up cell written" in capsys.readouterr().out
    done = notebook_form.read(path)
    assert notebook_form.code_cells(done)[0] == cell(done, "set-up")
    assert cell(done, "set-up").source == notebook_form.set_up_source()
    before = done.cells[: done.cells.index(cell(done, "set-up"))]
    assert before and {c.cell_type for c in before} == {"markdown"}


def test_set_up_refuses_a_text_with_the_cells_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = book(tmp_path, v4.new_notebook(cells=[markdown("set-up", "# Set up")]))
    assert notebooks.main(["set-up", str(path)]) == 1
    assert "[set-up]: is no code cell: give it another id" in capsys.readouterr().err


def test_the_set_up_cell_names_repository_and_ref(tmp_path: Path) -> None:
    assert '"git+https://x.org/y@v1"' in notebook_form.set_up_source(("https://x.org/y", "v1"))
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[tool.ask-match-blend]\nrepository = "https://x.org/y"\nref = "v1"\n')
    assert notebook_form.public_address(pyproject) == ("https://x.org/y", "v1")
    assert "{}@{}".format(*notebook_form.public_address()) in notebook_form.set_up_source()


PRETEND = """\
import importlib.util, subprocess
importlib.util.find_spec = lambda name: {found}
def run(command, **how):
    print("pip", *command[3:])
    return subprocess.CompletedProcess(command, {code}, "", "no route to host")
subprocess.run = run
"""


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ("True", 0, []),
        ("None", 0, ["pip install --quiet --no-deps git+", "Installed qkv from git+"]),
        ("None", 1, ["pip install", "RuntimeError: Could not install", "no route to host"]),
    ],
)
def test_the_set_up_cell_installs_only_what_is_missing(
    found: str, code: int, said: list[str]
) -> None:
    source = PRETEND.format(found=found, code=code) + notebook_form.set_up_source()
    assert len(notebook_form.set_up_source().splitlines()) <= 15
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == code
    assert [piece for piece in said if piece not in done.stdout + done.stderr] == []
    assert said or done.stdout + done.stderr == ""


def test_the_command_line_explains_itself() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "notebooks.py")]
    done = subprocess.run([*tool, "run", "--help"], capture_output=True, text=True, cwd=os.sep)
    assert "--all" in done.stdout
    assert "changes no byte" in " ".join(done.stdout.split())


def test_every_notebook_of_the_course_keeps_the_rules() -> None:
    files = [
        path
        for folder in ("chapters", "solutions")
        for path in sorted((ROOT / folder).glob("*.ipynb"))
    ]
    assert [problem for path in files for problem in notebook_rules.problems(path)] == []
