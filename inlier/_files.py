"""Files that are never half-written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a part of it.

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
    # A name that nobody can foresee, so that no link may wait there; opened for this process only.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the permissions that new files lack; the system tells them only while setting others."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
