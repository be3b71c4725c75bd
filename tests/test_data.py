"""data/: what ships with the package is what the package makes, and README.md describes it."""

import hashlib
import importlib.resources
import re
from pathlib import Path

import pytest

from qkv.tasks import addition, write_tsv

DATA = Path(__file__).resolve().parent.parent / "data"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix == ".tsv")


def test_the_data_set_is_there() -> None:
    assert "addition.tsv" in FILES


def test_the_package_makes_addition_tsv_again_byte_for_byte(tmp_path: Path) -> None:
    write_tsv(addition(), tmp_path / "addition.tsv")
    assert (tmp_path / "addition.tsv").read_bytes() == (DATA / "addition.tsv").read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_readme_has_each_file_with_its_sha256(name: str) -> None:
    sections = re.split(r"^## ", (DATA / "README.md").read_text(encoding="utf-8"), flags=re.M)
    section = next((text for text in sections if text.startswith(name)), None)
    assert section is not None, f"data/README.md has no section '## {name}'"
    digest = hashlib.sha256((DATA / name).read_bytes()).hexdigest()
    assert digest in section, f"data/README.md: the sha256 of {name} is {digest}"
    assert "CC BY 4.0" in section


@pytest.mark.parametrize("name", FILES)
def test_each_file_ships_with_the_package(name: str) -> None:
    shipped = importlib.resources.files("qkv.data") / name
    assert shipped.read_bytes() == (DATA / name).read_bytes()
