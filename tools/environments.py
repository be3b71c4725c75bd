"""Fresh environments of other Pythons than the one that runs the tools."""

import shutil
import subprocess
from pathlib import Path


class NotServed(Exception):
    """A Python, or a version of a package, is not to be had here; the message says which."""


def fresh(folder: Path, version: str) -> Path:
    """A new environment of this Python, such as 3.13, in the folder; its Python."""
    named = f"python{version}"
    # A version manager may put a name on the path that does not run.
    is_it = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    probe = [named, "-c", is_it]
    if not shutil.which(named) or subprocess.run(probe, capture_output=True).returncode:
        raise NotServed(f"{named} does not run here: install it")
    subprocess.run([named, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"
