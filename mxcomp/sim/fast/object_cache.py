"""A cache of object code on disk, by name: entries are complete or absent, and a directory that cannot be used counts
as empty.

What is there is executed: entries that someone else could have written are none, and a directory of someone else's
cannot be used (`mxcomp.support.caches`). Any number of processes may share the directory: each writes a file of its own
and renames it when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from mxcomp.support import caches

KEPT = 8000
"""The number of entries that are kept, of 30 to 100 KB each. A model of 24 layers with its versions has hundreds, with
checks and without."""

ABANDONED = 3600.0
"""The age in seconds of a temporary file whose writer is taken to be dead. Writing takes milliseconds."""

_ENTRY, _PART = ".o", ".part"

_SEAL_BYTES = hashlib.sha256().digest_size


def load(name: str) -> bytes | None:
    """Returns what was saved last, or None. An entry that is damaged is removed."""
    try:
        path = directory() / f"{name}{_ENTRY}"
        with open(path, "rb") as file:
            found, stored = os.fstat(file.fileno()), file.read()  # of the file that is read, whatever its name is now
    except OSError:
        return None
    content = stored[:-_SEAL_BYTES]
    if not caches.is_own(found) or stored[-_SEAL_BYTES:] != _seal(name, content):
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):  # a disk that cannot be written
        os.utime(path)  # used just now, see `_evict`
    return content


def save(name: str, content: bytes) -> None:
    """Saves the content if possible, and removes the least recently used entries if there are too many."""
    with suppress(OSError):
        folder = directory()
        with suppress(OSError):  # a full disk is one more reason to evict
            _write(folder / f"{name}{_ENTRY}", content + _seal(name, content))
        _evict(folder)


def directory() -> Path:
    """Returns the user's cache directory, and makes it if needed. Raises CacheError, an OSError, and warns once."""
    try:
        return caches.own("sim")
    except caches.CacheError as error:
        caches.say_once(f"compiled kernels are not kept: {error}")
        raise


def _seal(name: str, content: bytes) -> bytes:
    """Returns a checksum to append to the content, where loaders of ELF do not look: a truncated entry lacks it, or has
    another."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _write(path: Path, content: bytes) -> None:
    """Writes the whole file or nothing. Raises OSError."""
    handle, part = tempfile.mkstemp(_PART, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def _evict(folder: Path) -> None:
    """Removes the entries used least recently, and abandoned temporary files. Another process may do so, too."""
    used: list[tuple[float, str]] = []
    abandoned: list[str] = []
    now = time.time()
    for file in os.scandir(folder):
        with suppress(OSError):  # gone since
            age = now - file.stat(follow_symlinks=False).st_mtime
            if file.name.endswith(_ENTRY):
                used.append((age, file.path))
            elif age > ABANDONED and (file.name.endswith(_PART) or file.name.startswith("tmp")):  # as they once were
                abandoned.append(file.path)
    for path in abandoned + [path for _, path in sorted(used)[KEPT:]]:
        with suppress(OSError):
            os.unlink(path)
