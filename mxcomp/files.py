"""Writing results: all files of a command whole, or none."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mxcomp.errors import InputError


def write(results: Mapping[str | Path, bytes]) -> None:
    """Writes every result to its path ("-" is stdout), renaming finished files into place. Raises InputError."""
    parts: dict[Path, Path] = {}
    path = Path()
    try:
        for name, data in results.items():
            path = Path(name)
            if str(name) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
                continue  # streams, devices and pipes are written last: they cannot be taken back
            part = path.with_name(f".{path.name}.part")
            parts[part] = path
            if path.is_dir():
                raise IsADirectoryError(21, "is a directory")
            part.write_bytes(data)
        for part, path in parts.items():
            part.replace(path)
    except OSError as error:
        for part in parts:
            if part.parent.is_dir():
                part.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    for name, data in results.items():
        if str(name) == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        elif Path(name) not in parts.values():
            Path(name).write_bytes(data)


@contextmanager
def writing(name: str | Path) -> Iterator[Path]:
    """A path for someone else to write a large result to: renamed to `name` if all goes well, removed otherwise.

    Raises InputError.
    """
    path = Path(name)
    if str(name) == "-" or (path.exists() and not path.is_file()):
        raise InputError(f"cannot write {name}: expected a file")
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if part.parent.is_dir():
            part.unlink(missing_ok=True)
