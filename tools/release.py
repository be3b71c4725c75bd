#!/usr/bin/env python
"""Make a release ready: set the version, test everything, and say which tag to push."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from notebook_form import ROOT, public_address
from qkv._files import write_whole

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
LINE = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)


class ReleaseError(Exception):
    """There can be no such release; the message says why and what to do."""


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def refuse(version: str, now: str) -> None:
    """ReleaseError where this version cannot be the next, or the checkout is not ready for it."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(
            f"VERSION={version} is no version: three whole numbers with dots between them. For"
            " example: make release VERSION=1.2.3"
        )
    if git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} is there already: choose a later version")
    if numbers(version) < numbers(now):
        raise ReleaseError(f"{version} comes before {now}, which the package has: choose a later")
    if changed := git("status", "--porcelain"):
        raise ReleaseError(f"the tree is not clean. Commit or remove first:\n{changed.rstrip()}")
    repository, ref = public_address()
    if repository.startswith("https://github.com/OWNER/"):
        raise ReleaseError(
            "the course has no public address yet: make point-at REPO=https://github.com/…, then"
            " commit"
        )
    if VERSION.fullmatch(ref.removeprefix("v")) and ref != f"v{version}":
        raise ReleaseError(
            f"Colab buttons and set-up cells lead to {ref}: make point-at REPO={repository}"
            f" REF=v{version} (or a branch), then commit"
        )


def green() -> bool:
    """Whether all tests pass; what they say is shown."""
    return subprocess.run(["make", "test"], cwd=ROOT).returncode == 0


def release(version: str, file: Path) -> str:
    """Set the version and test; where that fails, all is as before. Then: what is to be done."""
    before = file.read_text(encoding="utf-8")
    now = LINE.findall(before)[0]
    refuse(version, now)
    passed = False
    try:
        write_whole(file, LINE.sub(f'__version__ = "{version}"', before))
        passed = green()
    finally:
        if not passed:
            write_whole(file, before)
    if not passed:
        raise ReleaseError("make test failed, see above; the version is as it was")
    commit = f'  git commit --all --message "Version {version}"\n' if version != now else ""
    return (
        f"Version {version} is set and all is green. The tag to push is v{version}:\n{commit}"
        f"  git tag v{version}\n  git push origin HEAD v{version}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", metavar="VERSION", help="three numbers, such as 1.2.3")
    try:
        print(release(parser.parse_args(arguments).version, ROOT / "lib" / "qkv" / "__init__.py"))
    except (ReleaseError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
