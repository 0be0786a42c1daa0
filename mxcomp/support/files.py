"""Writes results: all files of a command completely, or none.

A result is written to a file without a name, on the disk of its place, which gets that name when it is complete: a
process that is killed leaves nothing. Otherwise it is as if `open` had written it: symbolic links stay and the file
they lead to is replaced, a new file has the permissions that the umask leaves, another one keeps its own. Hard links
are the exception, the other names keep the old content.

Several results are in place one after the other; where one fails, those before it are undone. A process that is killed
in between leaves `.mxcomp-*.old` with the content of files that were there before. Where a file system has no files
without a name, one that is killed leaves `.mxcomp-*.part`, which the next result next to it removes.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from io import StringIO
from pathlib import Path

from mxcomp.errors import InputError

ABANDONED = 60.0
"""The age in seconds up to which a partial file without a lock is kept: its writer may be about to lock it."""


def table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Returns CSV: the names of the columns, then a line for each row. Raises ValueError for a field that has no
    column."""
    text = StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write(results: Mapping[str | Path, bytes]) -> None:
    """Writes every result to its path ("-" is stdout): all of them, or none as far as possible.

    Streams, devices and pipes are written last: they cannot be taken back. Raises InputError, and BrokenPipeError
    where nobody reads stdout any more.
    """
    files: list[_File] = []
    streams: dict[str | Path, bytes] = {}
    name: str | Path = ""
    try:
        for name, data in results.items():
            if _is_stream(name):
                streams[name] = data
                continue
            files.append(_File(name))
            files[-1].create()
            files[-1].content.write_bytes(data)
        for file in files:
            name = file.name
            file.commit(may_be_undone=len(results) > 1)
        for name, data in streams.items():
            _write_stream(name, data)
    except BaseException as error:
        lost = _undo(files)
        if not isinstance(error, OSError) or (str(name) == "-" and isinstance(error, BrokenPipeError)):
            raise
        raise _input_error(name, error, lost) from None
    else:
        for file in files:
            file.settled = True
    finally:
        for file in files:
            file.close()


def read(name: str | Path) -> bytes:
    """Returns the contents of a file. Raises InputError."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None
    except ValueError as error:  # a name with NUL
        raise InputError(f"cannot read {str(name)!r}: {error}") from None


@contextmanager
def writing(name: str | Path) -> Iterator[Path]:
    """Yields an empty file for someone else to write a large result to: renamed to `name` if all goes well, else
    removed.

    Raises InputError.
    """
    try:
        with closing(_File(name)) as file:
            if _is_stream(name) or file.path.is_dir():
                raise InputError(f"cannot write {name}: expected a file")
            file.create()
            yield file.content
            file.commit()
    except OSError as error:
        raise _input_error(name, error) from None


def check_writable(name: str | Path | None, flag: str = "") -> None:
    """Raises InputError for a file that cannot be written, before its contents take long to compute."""
    try:
        if name is not None and not _is_stream(name):
            with closing(_File(name)) as file:
                file.create()
    except OSError as error:
        raise InputError(f"{flag}{_input_error(name or '', error)}") from None


def folder(path: str | Path, what: str) -> Path:
    """Returns a directory for something, created if needed. Raises InputError."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{what} cannot be written: {error}") from None
    return Path(path)


class _File:
    """A file that is being written.

    Attributes:
        path: Its place.
        content: Where to write what will be there.
        part: Its name next to the place, from when it is complete until it is there.
        aside: What was there before, if it may have to come back.
        settled: What is in place stays there, whatever was aside is not needed.
    """

    def __init__(self, name: str | Path) -> None:
        self.name, self.path, self.settled = name, Path(os.path.realpath(name)), False
        unique = f".mxcomp-{secrets.token_hex(8)}"  # short: names next to it may be as long as they get
        self.part, self.aside = self.path.with_name(f"{unique}.part"), self.path.with_name(f"{unique}.old")
        self._handle = -1
        self._permissions: int | None = None
        self._made: tuple[int, int] | None = None
        self._is_new = False

    @property
    def content(self) -> Path:
        return Path(f"/proc/self/fd/{self._handle}")

    def create(self) -> None:
        """Creates an empty partial file, and removes abandoned ones. Raises OSError."""
        with suppress(FileNotFoundError):
            mode = os.stat(self.name).st_mode  # of the link, where there is one: links in a circle are an error
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._permissions = mode & 0o777
        # 0o666 is what `open` asks for; a replaced file that others may not read stays so
        mode = 0o666 if self._permissions is None else 0o600
        try:
            self._handle = os.open(self.path.parent, os.O_TMPFILE | os.O_RDWR, mode)
        except OSError:  # for file systems without them; what else may be wrong, this finds as well
            self._handle = os.open(self.part, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
        with suppress(OSError):  # file systems without locks
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        _remove_abandoned(self.path.parent)

    def commit(self, may_be_undone: bool = False) -> None:
        """Names the partial file, and renames it to its path. Raises OSError."""
        if not self.part.exists():
            try:
                os.link(self.content, self.part, src_dir_fd=self._handle)  # which has it follow the link in /proc
            except OSError:  # file systems without hard links
                os.close(os.open(self.part, os.O_CREAT | os.O_EXCL, self.content.stat().st_mode & 0o777))
                shutil.copyfile(self.content, self.part)
        self._made = _identity(self.part)
        if self._permissions is not None:
            with suppress(OSError):  # file systems without permissions
                self.part.chmod(self._permissions)
        if may_be_undone:
            self._keep()
        os.replace(self.part, self.path)

    def _keep(self) -> None:
        try:
            os.link(self.path, self.aside)  # rather than a rename: there is never no file
        except OSError:  # no file, or a file system without hard links
            try:
                os.rename(self.path, self.aside)
            except FileNotFoundError:
                self._is_new = True

    def undo(self) -> None:
        """Restores the old content, unless someone else has written the file since. Raises OSError.

        Goes by what it finds: the step before may have been interrupted at any point.
        """
        if _identity(self.path) in (None, self._made):
            if self.aside.exists():
                os.replace(self.aside, self.path)
            elif self._is_new:
                self.path.unlink(missing_ok=True)
        self.settled = True

    def close(self) -> None:
        """Removes what is not needed any more."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        for path in (self.part, self.aside) if self.settled else (self.part,):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    """Removes partial files whose writers were killed: they are old, and nobody locks them."""
    with suppress(OSError):
        for path in folder.glob(".mxcomp-*.part"):
            with suppress(OSError):  # gone since, or someone else's
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - os.fstat(handle).st_mtime > ABANDONED:
                        path.unlink()
                finally:
                    os.close(handle)


def _undo(files: Sequence[_File]) -> list[_File]:
    """Undoes all files, last first, and returns those whose old content could not be restored."""
    lost = []
    for file in reversed(files):
        try:
            file.undo()
        except OSError:
            lost.append(file)
    return [file for file in lost if os.path.lexists(file.aside)]


def _input_error(name: str | Path, error: OSError, lost: Sequence[_File] = ()) -> InputError:
    where = "".join(f"; the old {file.name} is now {file.aside}" for file in lost)
    return InputError(f"cannot write {'stdout' if str(name) == '-' else Path(name)}: {error.strerror or error}{where}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns the device and inode of a file, or None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_stream(name: str | Path) -> bool:
    """Returns whether the path is something that cannot be replaced, and is no directory. Raises OSError and
    InputError."""
    if str(name) == "-":
        return True
    try:
        found = os.stat(name)
    except FileNotFoundError:
        return False
    except ValueError as error:  # a name with NUL
        raise InputError(f"cannot write {str(name)!r}: {error}") from None
    if stat.S_ISREG(found.st_mode):  # an open file that has no name any more, such as /proc/self/fd/1, is a stream
        return _identity(Path(os.path.realpath(name))) != (found.st_dev, found.st_ino)
    return not stat.S_ISDIR(found.st_mode)


def _write_stream(name: str | Path, data: bytes) -> None:
    if str(name) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(name).write_bytes(data)
