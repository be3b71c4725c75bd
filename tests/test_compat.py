"""make compat: which versions it asks for, and which tests run where no tool is installed."""

import ast
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import compat  # noqa: E402
import environments  # noqa: E402

TESTS = ROOT / "tests"
# What the tests of the package may import on Python 3.10, which has no tomllib.
THERE = set(sys.stdlib_module_names) - {"tomllib"}
THERE |= {"PIL", "hypothesis", "matplotlib", "mutants", "nbclient", "nbformat", "numpy", "pytest"}
THERE |= {"qkv", "support", "torch", "tqdm"}


def test_the_lowest_version_within_the_bounds_is_asked_for():
    wanted = Requirement("torch>=2.5,!=2.5.1")
    served = ["2.10.0", "2.6.0+cpu", "2.5.1", "2.6.0rc1", "2.4.9"]
    assert compat.lowest(served, wanted) == "torch==2.6.0"
    assert [need.name for need in compat.requirements()] == ["matplotlib", "numpy", "torch", "tqdm"]


def test_what_is_not_served_is_told():
    with pytest.raises(environments.NotServed, match="torch>=2.5 is not served"):
        compat.lowest(["2.4.0"], Requirement("torch>=2.5"))


def test_a_missing_python_is_named(tmp_path: Path):
    with pytest.raises(environments.NotServed, match="python3.1 does not run here: install it"):
        environments.fresh(tmp_path, "3.1")


def test_the_tests_of_the_package_need_no_tool():
    files = [
        path
        for path in sorted(TESTS.glob("test_*.py"))
        if not any(fnmatch(path.name, f"test_{name}.py") for name in compat.OTHERS)
    ]
    assert len(files) > 20
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            needs = {name.split(".")[0] for name in names} - THERE
            assert not needs, f"{path.name} needs {needs}: add it to OTHERS or TESTERS in compat.py"


def test_the_table_has_a_line_for_each_environment():
    rows = [
        compat.Row("3.10", "oldest", {"numpy": "1.26.0"}, "9 passed in 1 s", passed=True),
        compat.Row("3.13", "newest", outcome="does not install: no room"),
    ]
    lines = compat.table(rows).splitlines()
    assert lines[0].split() == [
        "Python",
        "bounds",
        "matplotlib",
        "numpy",
        "torch",
        "tqdm",
        "outcome",
    ]
    assert lines[1].split()[:6] == ["3.10", "oldest", "-", "1.26.0", "-", "-"]
    assert lines[2].endswith("does not install: no room")
