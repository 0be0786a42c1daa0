"""Results of a command: whole or not at all, alone or together, and otherwise as `open` would write them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxcomp.errors import InputError
from mxcomp.support import files

Fail = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where two of three results were written before."""
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"old " + name.encode())
    return tmp_path


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Makes renaming to one name fail, from files with one ending."""

    def install(name: str, error: BaseException, ending: str = ".part") -> None:
        replace = os.replace

        def failing(source: str | Path, target: str | Path) -> None:
            if Path(target).name == name and str(source).endswith(ending):
                raise error
            replace(source, target)

        monkeypatch.setattr(os, "replace", failing)

    return install


def results(folder: Path) -> dict[str | Path, bytes]:
    return {folder / name: b"new" for name in ("third", "first", "second")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def no_links(*args: object, **kwargs: object) -> None:
    raise PermissionError(errno.EPERM, "no hard links here")


# Several results.


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_rename_that_fails_undoes_those_before(
    folder: Path, fail: Fail, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on file systems without hard links, where the old file is renamed."""
    before = contents(folder)
    fail("second", OSError(errno.EIO, "Input/output error"))
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(InputError, match=r"^cannot write .*second: Input/output error$"):
        files.write(results(folder))
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["third", "first", "second"])
def test_an_interrupt_undoes_as_well(folder: Path, fail: Fail, name: str) -> None:
    before = contents(folder)
    fail(name, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        files.write(results(folder))
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["third", "first", "second"])
def test_an_interrupt_right_after_a_rename(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several results are undone; a single one is complete."""
    before, replace = contents(folder), os.replace

    def interrupted(source: str | Path, target: str | Path) -> None:
        replace(source, target)
        if Path(target).name == name and str(source).endswith(".part"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(results(folder))
    assert contents(folder) == before
    with pytest.raises(KeyboardInterrupt):
        files.write({folder / name: b"new"})
    assert contents(folder) == {**before, name: b"new"}


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_nothing_but_the_results_is_left(folder: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    files.write(results(folder))
    assert contents(folder) == {name: b"new" for name in ("first", "second", "third")}


def test_an_old_file_that_cannot_be_put_back_is_kept(folder: Path, fail: Fail) -> None:
    """The error says where."""
    fail("second", OSError(errno.EIO, "Input/output error"))
    fail("first", OSError(errno.EIO, "Input/output error"), ".old")
    with pytest.raises(InputError, match=r"cannot write .*second: .*error; the old .*first is now (.*)$") as caught:
        files.write(results(folder))
    kept = Path(str(caught.value).rpartition(" is now ")[2])
    assert kept.read_bytes() == b"old first"
    assert contents(folder) == {"first": b"new", "second": b"old second", kept.name: b"old first"}


def test_what_another_process_wrote_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def failing(source: str | Path, target: str | Path) -> None:
        if Path(target).name == "second":
            for name in ("third", "first"):
                (folder / "theirs").write_bytes(b"theirs")
                replace(folder / "theirs", folder / name)
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(InputError):
        files.write(results(folder))
    assert contents(folder) == {"first": b"theirs", "second": b"old second", "third": b"theirs"}


# Streams.


def test_a_stream_that_fails_undoes_the_files(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device"):
        files.write({"/dev/full": b"data", **results(folder)})
    assert contents(folder) == before


def test_a_reader_that_leaves_undoes_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools end quietly on a BrokenPipeError, see `mxcomp.tools.common`."""

    def write(data: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    before = contents(folder)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(write=write)))
    with pytest.raises(BrokenPipeError):
        files.write({"-": b"data", **results(folder)})
    assert contents(folder) == before


def test_an_open_file_without_a_name(tmp_path: Path) -> None:
    """Such as /dev/stdout, where the shell's file was removed: it is written to, for it cannot be replaced."""
    path = tmp_path / "file"
    with path.open("wb+") as file:
        path.unlink()
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        files.write({tmp_path / "link": b"data"})
        assert file.read() == b"data"
    assert os.listdir(tmp_path) == ["link"]


# Partial files.


def test_writers_of_the_same_results_do_not_meet(tmp_path: Path) -> None:
    """Each is whole, and the last one wins."""
    paths = [tmp_path / "first", tmp_path / "second"]

    def write(number: int) -> None:
        for path in paths:
            files.write({path: bytes([number]) * 100_000})
        files.write({path: bytes([number]) * 100_000 for path in paths})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(100)))
    assert sorted(tmp_path.iterdir()) == paths
    assert all(path.read_bytes() == path.read_bytes()[:1] * 100_000 for path in paths)


def test_someone_elses_results_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with files.writing(path) as one:
        with files.writing(path) as other:
            one.write_bytes(b"one")
            other.write_bytes(b"other")
        assert path.read_bytes() == b"other"
    assert contents(tmp_path) == {"result": b"one"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), InputError("no")], ids=repr)
def test_someone_elses_result_that_fails_is_removed(folder: Path, error: BaseException) -> None:
    before = contents(folder)
    with pytest.raises(type(error)), files.writing(folder / "first") as part:
        part.write_bytes(b"half")
        raise error
    assert contents(folder) == before


def test_someone_elses_disk_is_full(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(InputError, match=r"cannot write .*first: No space"), files.writing(folder / "first") as part:
        part.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert contents(folder) == before


def test_an_interrupt_while_writing_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = contents(folder), Path.write_bytes

    def interrupted(self: Path, data: bytes) -> int:
        write(self, data[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            files.write(results(folder))
    assert contents(folder) == before


def test_names_as_long_as_they_get(tmp_path: Path) -> None:
    path = tmp_path / ("x" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    files.write({path: b"data", tmp_path / "other": b"more"})
    assert path.read_bytes() == b"data"
    with files.writing(path) as part:
        part.write_bytes(b"new")
    assert path.read_bytes() == b"new"


KILLED = """
import signal, sys
from mxcomp.support import files
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's processes ignore it
with files.writing(sys.argv[1]) as part:
    part.write_bytes(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_writer_that_is_killed_leaves_nothing(folder: Path, way: signal.Signals) -> None:
    before = contents(folder)
    command = [sys.executable, "-c", KILLED, str(folder / "first")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(way)
    assert process.wait() == -way
    process.communicate()
    assert contents(folder) == before


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose files all have names."""
    opened = os.open

    def failing(path: str | Path, flags: int, *args: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return opened(path, flags, *args)

    monkeypatch.setattr(os, "open", failing)


@pytest.mark.usefixtures("named")
def test_results_where_all_files_have_names(folder: Path, fail: Fail) -> None:
    """Its own partial file is next to the place meanwhile, and stays though it may look abandoned."""
    with files.writing(folder / "first") as one:
        one.write_bytes(b"one")
        (part,) = folder.glob(".*")
        os.utime(part, (0, 0))
        files.write(results(folder))
        assert part.exists()
    assert contents(folder) == {"first": b"one", "second": b"new", "third": b"new"}
    with pytest.raises(ValueError, match="no"), files.writing(folder / "first") as one:
        raise ValueError("no")
    before = contents(folder)
    fail("second", OSError(errno.EIO, "Input/output error"))
    with pytest.raises(InputError):
        files.write(results(folder))
    assert contents(folder) == before


def test_abandoned_partial_files_are_removed(folder: Path) -> None:
    """By whoever writes next to them; not what may be about to be locked, not what is no partial file of ours."""
    now = time.time()
    old, young, named = (f".mxcomp-{name}.part" for name in ("0", "1", "2"))
    for name, age in {old: 3600, young: 1, "mine.part": 3600, ".mxcomp-3.old": 3600}.items():
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (now - age, now - age))
    (folder / named).mkdir()
    (folder / ".mxcomp-4.part").symlink_to("first")
    os.mkfifo(folder / ".mxcomp-5.part")
    os.utime(folder / ".mxcomp-5.part", (0, 0))
    before = {path.name for path in folder.iterdir()}
    files.write({folder / "first": b"new"})
    assert before - {path.name for path in folder.iterdir()} == {old, ".mxcomp-5.part"}


# As `open` would.


@pytest.mark.usefixtures("umask")
def test_permissions(tmp_path: Path) -> None:
    """A new file has those that the umask leaves, another keeps its own; nobody else reads it before it does."""
    new, secret, program = tmp_path / "new", tmp_path / "secret", tmp_path / "program"
    for path, mode in ((secret, 0o600), (program, 0o755)):
        path.touch()
        path.chmod(mode)
    for _ in range(2):
        files.write(dict.fromkeys((new, secret, program), b"data"))
        for path in (new, secret, program):
            with files.writing(path) as part:
                assert part.stat().st_mode & 0o777 == 0o600
        assert [path.stat().st_mode & 0o777 for path in (new, secret, program)] == [0o640, 0o600, 0o755]
    with files.writing(tmp_path / "other") as part:
        part.write_bytes(b"data")
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o640


def test_links_stay(tmp_path: Path) -> None:
    """The file they lead to is written, and made where there is none."""
    (tmp_path / "there").mkdir()
    file, link, dangling = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "dangling"
    file.touch()
    link.symlink_to("there/file")
    dangling.symlink_to(link.parent / "there" / "new")
    files.write({link: b"data", dangling: b"more"})
    assert link.is_symlink() and dangling.is_symlink()
    assert contents(tmp_path / "there") == {"file": b"data", "new": b"more"}
    with files.writing(link) as part:
        part.write_bytes(b"other")
    assert link.is_symlink() and file.read_bytes() == b"other"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "link", "there"]


def test_where_nothing_can_be_written(folder: Path) -> None:
    """The error names the path as it was given."""
    (folder / "loop").symlink_to("loop")
    before = sorted(folder.iterdir())
    for path in (folder, folder / "loop", folder / "absent" / "x", folder / "first" / "x", folder / ("x" * 256)):
        with pytest.raises(InputError, match=f"^cannot write {path}: [^;]*$"):
            files.write({**results(folder), path: b"data"})
        with pytest.raises(InputError, match=f"^cannot write {path}: "), files.writing(path):
            pytest.fail("nothing to write to")
        assert sorted(folder.iterdir()) == before
    assert (folder / "first").read_bytes() == b"old first"
