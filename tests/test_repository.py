"""Facts about the repository's frame that would fail silently, or only for other people."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as `pip install` would lay it down, from a wheel."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("made")
    for name in ("lib", "data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "-w", made, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = made.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(made / "site")
    return made / "site"


def files(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_module_and_every_data_file(installed: Path):
    expected = files(ROOT / "lib" / "qkv") | {f"data/{name}" for name in files(ROOT / "data")}
    assert files(installed / "qkv") == expected, "see packages and package-data in pyproject.toml"


@pytest.mark.parametrize("how", ["from a wheel", "as make installs it"])
def test_the_installed_package_finds_its_version_and_data(how: str, installed: Path):
    code = (
        "import qkv, sys, importlib.metadata as m, importlib.resources as r;"
        "print(qkv.__version__, m.version('ask-match-blend'),"
        " r.files('qkv.data').joinpath('README.md').is_file(), 'torch' in sys.modules)"
    )
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if how == "from a wheel":
        env["PYTHONPATH"] = str(installed)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=installed.parent
    )
    assert done.returncode == 0, f"{done.stderr}\nIs it installed? make test does that."
    version, recorded, data, torch_loaded = done.stdout.split()
    assert version == recorded
    assert (data, torch_loaded) == ("True", "False"), "importing qkv is instant: no torch"


def test_the_public_address_is_the_same_everywhere():
    address = PYPROJECT["tool"]["ask-match-blend"]
    book = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    assert (book["url"], book["branch"]) == (address["repository"], address["ref"])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"https://github\.com/[\w.-]+/[\w.-]+?(?=\.git|[/)`@\s])", readme))
    assert named == {address["repository"]}


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_what_is_there(path: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step for job in jobs for step in job["steps"]]
    called = set(re.findall(r"\bmake ([a-z-]+)", "\n".join(s.get("run", "") for s in steps)))
    assert called <= targets, f"no target of the Makefile: {called - targets}"
    used = [step["uses"] for step in steps if "uses" in step]
    loose = [action for action in used if not re.fullmatch(r".+@[0-9a-f]{40}", action)]
    assert not loose, f"actions not pinned by a commit: {loose}"


def test_only_a_versions_tag_publishes():
    publish = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text("utf-8"))
    assert publish[True] == {"push": {"tags": ["v*.*.*"]}}  # YAML takes the key `on` for true


@pytest.mark.parametrize("name", ["requirements-book.txt", "requirements.txt"])
def test_every_requirement_is_pinned_exactly(name: str):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line and not line.startswith(("#", "-r "))]
    loose = [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+( ?; .+)?", line)]
    assert lines and not loose


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess:
    """Run make in a folder that holds nothing but our Makefile."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements-book.txt").touch()
    command = [shutil.which("make"), *arguments]
    env = {"PATH": path or os.environ["PATH"]}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)


def stand_in(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_python_that_is_too_old_is_named_with_what_to_do(tmp_path: Path):
    old = stand_in(
        tmp_path / "old", 'case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac'
    )
    done = make(tmp_path, "book", f"PYTHON={old}")
    assert done.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert f"{old}: Python 3.9.18" in done.stderr
    assert "make book PYTHON=/path/to/" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_missing_git_is_named_with_what_to_do(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "cat", "rm"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    done = make(tmp_path, "book", path=str(tmp_path / "bin"))
    assert done.returncode != 0
    assert "git is missing. Install it" in done.stderr


def test_an_install_that_failed_is_tried_again(tmp_path: Path):
    # A Python that fits and makes a .venv whose pip fails.
    pip_fails = 'case "$*" in *pip*) exit 1;; *) exit 0;; esac'
    venv = f"mkdir -p .venv/bin && printf '#!/bin/sh\\n%s\\n' '{pip_fails}' > .venv/bin/python"
    venv += " && chmod +x .venv/bin/python"
    python = stand_in(tmp_path / "new", f'case "$*" in *venv\\ .venv) {venv};; *) exit 0;; esac')
    for _ in range(2):
        done = make(tmp_path, "book", f"PYTHON={python}")
        assert done.returncode != 0
        assert "Installing what the book needs" in done.stdout
        assert not (tmp_path / ".venv" / "book.stamp").exists()


@pytest.mark.parametrize("count", ["ten", "0", "-1", "1.5", ""])
def test_repeat_refuses_what_is_no_number_of_rounds(count: str, tmp_path: Path):
    done = make(tmp_path, "repeat", f"N={count}")
    assert done.returncode != 0
    assert f"make repeat: N={count} is no whole number from 1 up" in done.stderr
    assert not (tmp_path / ".venv").exists()
