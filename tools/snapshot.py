"""The checkout as the public address would serve it, without any network."""

import shutil
import subprocess
from pathlib import Path

from notebook_form import ROOT


def publish(folder: Path, ref: str) -> Path:
    """A bare repository in the folder, whose branch `ref` holds the files of this checkout.

    All files are in it but those that git ignores, so what is not committed yet is tried too.
    """
    work, bare = folder / "checkout", folder / "public.git"
    listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in _git(ROOT, *listed).split("\0"):
        if (ROOT / name).is_file():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, work / name)
    _git(work, "init", "--quiet", f"--initial-branch={ref}")
    _git(work, "add", "--all", "--force")
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    _git(work, *who, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message=as it stands")
    _git(folder, "clone", "--quiet", "--bare", str(work), str(bare))
    return bare


def redirect(address: str, bare: Path) -> dict[str, str]:
    """Environment variables by which git takes the bare repository where it is told the address."""
    key = f"url.{bare.as_uri()}.insteadOf"
    return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": key, "GIT_CONFIG_VALUE_0": address}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
