"""Files that are never half-written."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that at any moment a reader sees the old content or the new, never a part.

    Args:
        path: The file; it may exist.
        content: All of its bytes.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a.txt"), b"all of it")
        ...     Path(folder, "a.txt").read_text()
        'all of it'
    """
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
