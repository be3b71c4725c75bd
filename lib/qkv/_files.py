"""Files that appear whole or not at all."""

import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write the text as UTF-8, line ends as they are; on failure an old file stays as it was.

    Errors:
        OSError: the folder is missing or may not be written to
    """
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}.tmp")
    try:
        part.write_bytes(text.encode())
        os.replace(part, whole)
    finally:
        part.unlink(missing_ok=True)
