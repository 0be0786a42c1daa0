"""Object code on disk, by name: entries are whole or none, and a directory that cannot be used is an empty one.

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
"""Entries, 30 to 100 KB each. A model of 24 layers with its versions has hundreds, with checks and without."""

ABANDONED = 3600.0
"""Seconds after which a temporary file's writer is taken to be dead. Writing takes milliseconds."""

_ENTRY, _PART = ".o", ".part"

_SEAL_BYTES = hashlib.sha256().digest_size


def load(name: str) -> bytes | None:
    """What was saved last, None if there is nothing. An entry that is not as it was saved is removed."""
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
    """Keeps the content if that is possible, and removes what was not used for longest if there is too much."""
    with suppress(OSError):
        folder = directory()
        with suppress(OSError):  # a full disk is one more reason to evict
            _write(folder / f"{name}{_ENTRY}", content + _seal(name, content))
        _evict(folder)


def directory() -> Path:
    """The user's, which is made if it is not there. Raises CacheError, an OSError, and says why, once."""
    try:
        return caches.own("sim")
    except caches.CacheError as error:
        caches.say_once(f"compiled kernels are not kept: {error}")
        raise


def _seal(name: str, content: bytes) -> bytes:
    """Stands behind the content, where loaders of ELF do not look: an entry cut short loses it, or ends in another."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


def _write(path: Path, content: bytes) -> None:
    """The whole file or none. Raises OSError."""
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
    """Removes the entries used least recently, and temporary files that were left. Another process may do so, too."""
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
