#!/usr/bin/env python
"""Point the course at its public repository: buttons, set-up cells, README and settings."""

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from notebook_form import ROOT, NotebookError, canonical_text, public_address, set_up_source
from notebooks import FILE_ERRORS, book_files, with_set_up
from qkv._files import write_whole

ADDRESS = re.compile(r"https://github\.com/(?!-)[A-Za-z0-9-]+/(?!\.+$)[A-Za-z0-9._-]+")
# No slash: Colab takes what follows one for a folder. No hash: pip and the buttons need a name.
REF = re.compile(r"(?![0-9a-f]{40}$)[A-Za-z0-9][A-Za-z0-9._-]*(?<!\.)(?<!\.lock)")
Address = tuple[str, str]  # the repository, and the branch or tag of it


class PointError(Exception):
    """The address cannot be set; the message says why and what to do."""


def given_address(repository: str, ref: str) -> Address:
    """What was asked for, in the one form; PointError where it is no address or no ref."""
    repository = repository.strip().removesuffix("/").removesuffix(".git")
    if not ADDRESS.fullmatch(repository):
        raise PointError(
            f"REPO={repository} is no address of a repository on GitHub. For example:"
            " make point-at REPO=https://github.com/OWNER/NAME"
        )
    if not REF.fullmatch(ref) or ".." in ref:
        raise PointError(
            f"REF={ref} is no name of a branch or tag that a button can lead to: letters, digits,"
            " dots, hyphens and underscores, and no hash of a commit. For example: REF=v1.0.0"
        )
    return repository, ref


def in_settings(text: str, keys: tuple[str, str], sign: str, address: Address) -> str:
    """Settings with the address and the ref behind these keys, each in a line of its own."""
    for key, value in zip(keys, address, strict=True):
        line = re.compile(rf"^( *{key}{sign} *)\S+$", re.MULTILINE)
        text, count = line.subn(lambda found, value=value: f'{found[1]}"{value}"', text)
        if count != 1:
            raise PointError(f"{count} lines  {key}{sign} …  where one is needed: mend them")
    return text


def in_prose(text: str, old: Address, new: Address) -> str:
    """A text with each link to the old address, to a file there or in Colab, leading to the new."""
    host = "https://github.com/"
    project = re.escape(old[0].removeprefix(host))
    links = re.compile(
        rf"(https://(?:colab\.research\.google\.com/github|github\.com)/){project}"
        rf"(?:(@|/blob/){re.escape(old[1])})?(?![\w-]|\.\w)"
    )

    def moved(link: re.Match[str]) -> str:
        ref = f"{link[2]}{new[1]}" if link[2] else ""
        return f"{link[1]}{new[0].removeprefix(host)}{ref}"

    return links.sub(moved, text)


def changed_files(old: Address, new: Address) -> dict[Path, str]:
    """All files that name the address, with the new one."""
    edits: dict[str, Callable[[str], str]] = {
        "pyproject.toml": lambda text: in_settings(text, ("repository", "ref"), " =", new),
        "_config.yml": lambda text: in_settings(text, ("url", "branch"), ":", new),
        "README.md": lambda text: in_prose(text, old, new),
    }
    files = {}
    for name, edit in edits.items():
        path = ROOT / name
        try:
            files[path] = edit(path.read_text(encoding="utf-8"))
        except PointError as error:
            raise PointError(f"{name}: {error}") from None
    for path in book_files("chapters", "solutions", "exercises"):
        files[path] = canonical_text(with_set_up(path, set_up_source(new)))
    return files


def write_all(files: dict[Path, str]) -> int:
    """Write all files or, where one cannot be written, none; say how many changed."""
    before = {path: path.read_bytes() for path in files}
    written: list[Path] = []
    try:
        for path, text in files.items():
            if text.encode() != before[path]:
                write_whole(path, text)
                written.append(path)
    except BaseException:
        for path in written:
            write_whole(path, before[path])
        raise
    return len(written)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", metavar="REPO", help="https://github.com/OWNER/NAME")
    parser.add_argument(
        "ref", metavar="REF", nargs="?", help="a branch or tag; as it is if left out"
    )
    given = parser.parse_args(arguments)
    try:
        old = public_address()
        new = given_address(given.repository, given.ref or old[1])
        count = write_all(changed_files(old, new))
    except (PointError, *FILE_ERRORS) as error:
        known = isinstance(error, PointError | NotebookError)
        reason = f"{error}" if known else f"{type(error).__name__}: {error}"
        print(f"error: {reason}\nNothing was changed.", file=sys.stderr)
        return 1
    print(f"The course leads to {new[0]}, ref {new[1]}: {count} files written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
