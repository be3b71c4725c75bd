"""Write README.md, which counts the answers."""

from pathlib import Path

from mutants import table

Path(__file__).with_name("README.md").write_text(table(), encoding="utf-8")
