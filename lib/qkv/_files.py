"""Files that appear whole or not at all."""

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write text as UTF-8, line ends as they are, or bytes; on failure an old file stays as it was.

    A link stays a link: the file that it leads to is written. A file keeps its mode.

    Errors:
        OSError: the folder is missing or may not be written to, or what stands at the path
            is no regular file or may not be written to
    """
    whole = Path(os.path.realpath(path))
    part = whole.with_name(f".{whole.name}.{os.getpid()}.tmp")
    try:
        mode = _mode(whole)
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            part.chmod(mode)
        os.replace(part, whole)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        with suppress(OSError):
            part.unlink()


def remove_tree(folder: str | os.PathLike[str]) -> None:
    """Remove a folder with all that is in it, closed folders as well; what stays is passed over."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            inner = os.path.join(place, name)
            if not os.path.islink(inner):
                with suppress(OSError):
                    os.chmod(inner, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _mode(whole: Path) -> int | None:
    """The mode of the old file, None where there is none; refuse what must not be replaced."""
    if not whole.exists():
        return None
    mode = whole.stat().st_mode
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise OSError(errno.EINVAL, f"{what} cannot be replaced by a file; give another path")
    if not os.access(whole, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(mode)
