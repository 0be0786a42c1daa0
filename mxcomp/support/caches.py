"""Cache directories of compiled code of this user, which will be executed: files that others could have written are not
used.

A directory is this user's own and closed to others, or it is refused; so is a file in it that is not. Who can write
where the directory stands could put one of theirs there: then it is theirs, which shows.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_HINT = "set XDG_CACHE_HOME to a directory of your own"

_said: set[str] = set()


class CacheError(OSError):
    """There is no directory that can be used as cache: the message says why, and what to do."""


def location(*names: str) -> Path:
    """Returns the path of a cache directory, by the XDG base directory specification. Raises CacheError without a
    home."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise CacheError("there is no home to keep them in; set XDG_CACHE_HOME") from None
    return root.joinpath("mxcomp", *names)


def own(*names: str) -> Path:
    """Returns that directory, and creates it with its parents below the user's cache. Raises CacheError."""
    folder = location()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for name in ("", *names):
            folder /= name
            folder.mkdir(mode=0o700, exist_ok=True)
            _claim(folder)
    except OSError as error:
        raise error if isinstance(error, CacheError) else CacheError(f"{folder}: {error.strerror}") from None
    return folder


def is_own(file: os.stat_result) -> bool:
    """Returns whether only this user can have written a file."""
    return file.st_uid == os.geteuid() and not file.st_mode & _OTHERS_WRITE


def say_once(what: str) -> None:
    """Prints a warning on stderr, once in a process."""
    if what not in _said:
        _said.add(what)
        print(f"mxcomp: warning: {what}", file=sys.stderr, flush=True)


def _claim(folder: Path) -> None:
    """Closes a directory of this user to others; entries they left before are detected one by one.

    Raises CacheError for one of another user's.
    """
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise CacheError(f"{folder} belongs to user {found.st_uid}, who could replace what is executed; {_HINT}")
    if not is_own(found):
        folder.chmod(0o700)
