"""make release: a version is set only where it can be published as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import notebook_form  # noqa: E402
import release  # noqa: E402

FILE = "lib/qkv/__init__.py"
SETTINGS = '[tool.ask-match-blend]\nrepository = "{}"\nref = "{}"\n'


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository, clean, at version 0.9.0 with the tag of 0.8.0, whose tests pass."""
    (tmp_path / "lib" / "qkv").mkdir(parents=True)
    (tmp_path / FILE).write_text('"""A package."""\n\n__version__ = "0.9.0"\n')
    (tmp_path / "Makefile").write_text("test:\n\tgrep -q 0.9.1 lib/qkv/__init__.py\n")
    (tmp_path / "pyproject.toml").write_text(SETTINGS.format("https://github.com/ada/x", "main"))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    git(tmp_path, "tag", "v0.8.0")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(
        release, "public_address", lambda: notebook_form.public_address(tmp_path / "pyproject.toml")
    )
    return tmp_path


def changed(course: Path) -> str:
    return git(course, "status", "--porcelain") + git(course, "tag")


def test_a_release_sets_the_version_and_says_the_tag(
    course: Path, capsys: pytest.CaptureFixture[str]
):
    assert release.main(["0.9.1"]) == 0
    said = capsys.readouterr().out
    assert "The tag to push is v0.9.1" in said and "git push origin HEAD v0.9.1" in said
    assert git(course, "diff", "--unified=0").splitlines()[-2:] == [
        '-__version__ = "0.9.0"',
        '+__version__ = "0.9.1"',
    ]
    assert changed(course) == f" M {FILE}\nv0.8.0\n"  # committing and tagging is left to you


def test_the_version_that_is_set_can_be_released(course: Path, capsys: pytest.CaptureFixture[str]):
    (course / "Makefile").write_text("test:\n")
    git(course, "commit", "--all", "--quiet", "--message", "green")
    assert release.main(["0.9.0"]) == 0
    assert "git commit" not in capsys.readouterr().out
    assert changed(course) == "v0.8.0\n"


@pytest.mark.parametrize("version", ["", "v1.0.0", "1.0", "1.0.0rc1", "01.0.0", "1.0.0\n", "x"])
def test_what_is_no_version_is_refused(
    version: str, course: Path, capsys: pytest.CaptureFixture[str]
):
    assert release.main([version]) == 1
    error = capsys.readouterr().err
    assert f"VERSION={version} is no version" in error and "make release VERSION=1.2.3" in error
    assert changed(course) == "v0.8.0\n"


@pytest.mark.parametrize(
    ("version", "said"),
    [("0.8.0", "the tag v0.8.0 is there already"), ("0.8.9", "0.8.9 comes before 0.9.0")],
)
def test_an_earlier_version_is_refused(
    version: str, said: str, course: Path, capsys: pytest.CaptureFixture[str]
):
    assert release.main([version]) == 1
    assert said in capsys.readouterr().err
    assert changed(course) == "v0.8.0\n"


def test_a_tree_that_is_not_clean_is_refused(course: Path, capsys: pytest.CaptureFixture[str]):
    (course / "note.txt").write_text("to do")
    assert release.main(["0.9.1"]) == 1
    assert "the tree is not clean. Commit or remove first:\n?? note.txt" in capsys.readouterr().err
    assert changed(course) == "?? note.txt\nv0.8.0\n"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (("https://github.com/OWNER/x", "main"), "no public address yet: make point-at REPO="),
        (("https://github.com/ada/x", "v0.8.0"), "lead to v0.8.0: make point-at REPO="),
    ],
)
def test_an_address_that_would_mislead_is_refused(
    address: tuple[str, str], said: str, course: Path, capsys: pytest.CaptureFixture[str]
):
    (course / "pyproject.toml").write_text(SETTINGS.format(*address))
    git(course, "commit", "--all", "--quiet", "--message", "led elsewhere")
    assert release.main(["0.9.1"]) == 1
    assert said in capsys.readouterr().err
    assert changed(course) == "v0.8.0\n"


def test_where_tests_fail_the_version_stays(course: Path, capsys: pytest.CaptureFixture[str]):
    assert release.main(["0.9.2"]) == 1
    assert "make test failed, see above; the version is as it was" in capsys.readouterr().err
    assert changed(course) == "v0.8.0\n"
