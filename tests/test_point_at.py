"""make point-at: the public address stands in one place, and everything leads there."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import notebook_form  # noqa: E402
import notebooks  # noqa: E402
import point_at  # noqa: E402

HOST = "https://github.com/"
FOLDERS = ("chapters", "solutions", "exercises")
NEW = (f"{HOST}Ada-Byron/attention.book", "1.0")


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that names the address, in a folder of its own; of the notebooks one of each kind."""
    for name in ("pyproject.toml", "_config.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for kind in FOLDERS:
        (tmp_path / kind).mkdir()
        shutil.copy(next((ROOT / kind).glob("00-*.ipynb")), tmp_path / kind)
    for module in (notebook_form, notebooks, point_at):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    old = notebook_form.public_address(tmp_path / "pyproject.toml")
    monkeypatch.setattr(point_at, "public_address", lambda: old)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def links(text: str) -> list[str]:
    """What a text says of GitHub and Colab, each up to the next blank or bracket."""
    words = text.replace(")", " ").replace("(", " ").replace('"', " ").split()
    return [word for word in words if "github" in word and "https://" in word]


def test_everything_leads_to_the_new_address(course: Path, capsys: pytest.CaptureFixture[str]):
    before = contents(course)
    assert point_at.main(list(NEW)) == 0
    assert "leads to {}, ref {}: 6 files written".format(*NEW) in capsys.readouterr().out
    assert notebook_form.public_address(course / "pyproject.toml") == NEW
    book = yaml.safe_load((course / "_config.yml").read_text())["repository"]
    assert (book["url"], book["branch"]) == NEW
    for path, stored in before.items():
        old_lines = stored.decode().splitlines()
        new_lines = path.read_text(encoding="utf-8").splitlines()
        changed = [new for old, new in zip(old_lines, new_lines, strict=True) if old != new]
        assert changed and len(changed) <= 8, f"{path}: {changed}"
        assert "OWNER/" not in path.read_text(encoding="utf-8")
    readme = links((course / "README.md").read_text(encoding="utf-8"))
    assert f"git+{NEW[0]}@{NEW[1]}`" in readme
    assert [link for link in readme if link.endswith("/blob/1.0/chapters/01-query-key-value.ipynb")]
    for kind in FOLDERS:
        (path,) = (course / kind).iterdir()
        first = notebook_form.code_cells(notebook_form.read(path))[0]
        assert first.source == notebook_form.set_up_source(NEW)


def test_there_and_back_is_where_it_was(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before, old = contents(course), point_at.public_address()
    assert point_at.main(list(old)) == 0
    assert "0 files written" in capsys.readouterr().out
    assert point_at.main([f"{NEW[0]}.git/"]) == 0  # as one copies it; the ref stays
    assert notebook_form.public_address(course / "pyproject.toml") == (NEW[0], old[1])
    monkeypatch.setattr(point_at, "public_address", lambda: (NEW[0], old[1]))
    assert point_at.main(list(old)) == 0
    assert contents(course) == before


BAD = {
    "no address": ("attention", "main", "REPO=attention is no address"),
    "nothing": ("", "main", "REPO= is no address"),
    "another host": ("https://gitlab.com/ada/book", "main", "is no address of a repository on"),
    "no repository": (f"{HOST}ada", "main", "is no address"),
    "more than one": (f"{HOST}ada/book/tree/main", "main", "is no address"),
    "dots": (f"{HOST}ada/..", "main", "is no address"),
    "a quote": (f'{HOST}ada/bo"ok', "main", "is no address"),
    "ssh": ("git@github.com:ada/book.git", "main", "is no address"),
    "a slash": (f"{HOST}ada/book", "feature/heads", "REF=feature/heads is no name"),
    "a hash": (f"{HOST}ada/book", "0" * 40, "no hash of a commit"),
    "a blank": (f"{HOST}ada/book", "my branch", "REF=my branch is no name"),
    "two dots": (f"{HOST}ada/book", "v1..2", "REF=v1..2 is no name"),
    "an option": (f"{HOST}ada/book", " -f", "is no name"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_address_or_ref_changes_nothing(
    bad: str, course: Path, capsys: pytest.CaptureFixture[str]
):
    repository, ref, said = BAD[bad]
    before = contents(course)
    assert point_at.main([repository, ref]) == 1
    error = capsys.readouterr().err
    assert said in error and "For example: " in error and "Nothing was changed." in error
    assert contents(course) == before


@pytest.mark.parametrize("trouble", ["a broken notebook", "a missing setting", "a full disk"])
def test_nothing_is_written_by_half(
    trouble: str, course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    if trouble == "a broken notebook":
        next((course / "exercises").iterdir()).write_text("{")
    if trouble == "a missing setting":
        (course / "_config.yml").write_text("title: no address here\n")
    before = contents(course)
    written = []

    def full_at_the_end(path: Path, content: str | bytes) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    if trouble == "a full disk":
        monkeypatch.setattr(point_at, "write_whole", full_at_the_end)
    assert point_at.main(list(NEW)) == 1
    assert "Nothing was changed." in capsys.readouterr().err
    assert contents(course) == before


def test_no_other_file_names_the_address():
    address = notebook_form.public_address()[0].removeprefix(HOST)
    listed = subprocess.run(
        ["git", "grep", "--untracked", "-lIF", address], cwd=ROOT, capture_output=True, text=True
    )
    allowed = {"pyproject.toml", "_config.yml", "README.md"}
    others = {name for name in listed.stdout.split() if Path(name).parent.name not in FOLDERS}
    assert others == allowed, "only what make point-at changes may name the address"


def test_make_hands_over_what_was_typed():
    make = [shutil.which("make"), "--dry-run", "point-at", "REPO=a b", "REF=c"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True)
    assert 'tools/point_at.py "$REPO" ${REF:+"$REF"}' in done.stdout
