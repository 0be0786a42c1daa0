"""Compiled kernels on disk: found only by the code that made them, whole or not at all, and never in a run's way."""

from __future__ import annotations

import ast
import ctypes
import errno
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numpy as np
import pytest
from corpus.triton import KERNELS

import mxcomp
from mxcomp.sim import code_object
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.fast import jit, object_cache
from mxcomp.sim.fast.engine import CompiledKernel
from mxcomp.sim.program import Program, program_of
from mxcomp.support import caches

PACKAGE = Path(mxcomp.__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's directory, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mxcomp" / "sim"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled from now on."""
    texts: list[str] = []
    compile_module = jit.compile_module

    def recorded(text: str) -> bytes:
        texts.append(text)
        return compile_module(text)

    monkeypatch.setattr(jit, "compile_module", recorded)
    return texts


def call(number: int = 42) -> None:
    """A function by way of the cache, whose key is what it returns."""
    code = jit.objects(f"key {number}", lambda: f"define i32 @f() {{ ret i32 {number} }}")
    library = jit.Compiled([code], "f")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(library.address)() == number


# What an entry depends on.


def digest_of_copy(root: Path) -> str:
    script = "from mxcomp.sim.fast import jit; print(jit.__file__, jit._digest('key'))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(root)}, cwd=root, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    file, digest = done.stdout.split()
    assert Path(file).is_relative_to(root)
    return digest


def test_another_format_table_is_another_entry(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "mxcomp", ignore=shutil.ignore_patterns("__pycache__", "_lib"))
    before = digest_of_copy(tmp_path)
    table = tmp_path / "mxcomp" / "formats" / "blocks.py"
    text = table.read_text()
    assert text.count("MX_BLOCK = 32") == 1
    table.write_text(text.replace("MX_BLOCK = 32", "MX_BLOCK = 16"))
    assert digest_of_copy(tmp_path) != before
    table.write_text(text)
    assert digest_of_copy(tmp_path) == before


def imported(path: Path) -> Iterator[Path]:
    """Files of the package that a file imports, for type checking or not."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            place = PACKAGE.parent.joinpath(*name.split("."))
            yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


COMPUTE_NOTHING = ("__init__.py", "errors.py", "support/__init__.py", "support/caches.py", "support/progress.py")


def test_all_sources_of_compiled_code_count() -> None:
    """Whatever the module that emits kernels imports, directly or not, but the exceptions, which compute nothing."""
    found: set[Path] = set()
    pending = [PACKAGE / "sim" / "fast" / "kernel.py"]
    while pending:
        path = pending.pop()
        if path not in found and path not in [PACKAGE / name for name in COMPUTE_NOTHING]:
            found.add(path)
            pending += imported(path)
    assert PACKAGE / "formats" / "blocks.py" in found
    assert found <= set(jit.sources())


@pytest.mark.parametrize("what", ["numpy", "llvmlite", "LLVM", "tinygrad", "Python", "processor", "features"])
def test_versions_count(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jit._digest("key")
    with monkeypatch.context() as patch:
        match what:
            case "numpy":
                patch.setattr(np, "__version__", "0")
            case "llvmlite":
                patch.setattr(llvmlite, "__version__", "0")
            case "LLVM":
                patch.setattr(llvm, "llvm_version_info", (0, 0, 0))
            case "tinygrad":
                version = metadata.version
                patch.setattr(metadata, "version", lambda name: "0" if name == what else version(name))
            case "Python":
                patch.setattr(sys, "version_info", (3, 0, 0))
            case "processor":
                patch.setattr(llvm, "get_host_cpu_name", lambda: "i386")
            case "features":
                patch.setattr(llvm, "get_host_cpu_features", lambda: llvm.targets.FeatureMap())
        jit.environment.cache_clear()
        changed = jit._digest("key")
    jit.environment.cache_clear()
    assert changed != before == jit._digest("key")


def test_where_functions_start_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is cut there, and counted by its pieces: the same code with other symbols is another entry."""
    keys: list[str] = []

    def objects(key: str, make: Callable[[], str]) -> bytes:
        keys.append(key)
        raise NotImplementedError

    monkeypatch.setattr(jit, "objects", objects)
    module = code_object.load(KERNELS["softmax"].code)
    program = program_of(next(iter(module.kernels.values())))
    addresses = list(program.instructions)
    other = replace(module, functions={**module.functions, "inner": addresses[len(addresses) // 3]})
    again = replace(module)
    checks = Reporter.__new__(Reporter)
    for name in ("late", "race", "hazard", "uninit"):
        monkeypatch.setattr(checks, name, False, raising=False)
    for variant in (module, other, again):
        with pytest.raises(NotImplementedError):
            CompiledKernel.of(Program(replace(program.kernel, module=variant), program.instructions), checks)
    assert keys[0] == keys[2] != keys[1]


# Entries that are not what they were.


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def without_its_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(42)] ^= 1
    path.write_bytes(content)


def someone_elses(path: Path) -> None:
    call(43)
    (other,) = set(path.parent.iterdir()) - {path}
    other.replace(path)


@pytest.mark.parametrize("damage", [truncated, without_its_end, empty, longer, flipped, someone_elses])
def test_a_damaged_entry_is_made_again(damage: Callable[[Path], None], folder: Path, compiled: list[str]) -> None:
    call()
    (entry,) = folder.iterdir()
    sound = entry.read_bytes()
    damage(entry)
    del compiled[:]
    call()
    assert len(compiled) == 1
    assert list(folder.iterdir()) == [entry]
    assert entry.read_bytes() == sound
    call()
    assert len(compiled) == 1


def test_a_damaged_entry_that_cannot_be_replaced_is_removed(folder: Path) -> None:
    call()
    (entry,) = folder.iterdir()
    truncated(entry)
    with small_files():
        call()
    assert list(folder.iterdir()) == []


# Entries that others could have written.


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_is_closed_to_others(folder: Path, tmp_path: Path) -> None:
    """Whatever the umask; what was open before is closed."""
    before = os.umask(0)
    try:
        call()
        (entry,) = folder.iterdir()
        assert [mode(path) for path in (folder.parent, folder, entry)] == [0o700, 0o700, 0o600]
        folder.chmod(0o777)
        folder.parent.chmod(0o775)
        call()
    finally:
        os.umask(before)
    assert [mode(path) for path in (folder.parent, folder, entry)] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
def test_an_entry_that_others_could_have_written_is_made_again(bits: int, folder: Path, compiled: list[str]) -> None:
    """Its seal is no secret: whoever writes an entry can write the seal, too."""
    call()
    (entry,) = folder.iterdir()
    entry.chmod(bits)
    del compiled[:]
    call()
    call()
    assert len(compiled) == 1
    (entry,) = folder.iterdir()
    assert mode(entry) == 0o600


def test_a_directory_of_another_user(
    folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither read nor written; said once."""
    call()
    (entry,) = folder.iterdir()
    before = entry.stat()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    monkeypatch.setattr(caches, "_said", set())
    del compiled[:]
    call()
    call(43)
    assert len(compiled) == 2
    assert list(folder.iterdir()) == [entry] and entry.stat() == before
    said = f"compiled kernels are not kept: {folder.parent} belongs to user {user}, who could replace what is executed"
    assert capsys.readouterr().err.count(said) == 1


# Writing that fails.


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 16 bytes: as on a full disk, some bytes are written before the error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    with small_files():
        call()
    assert list(folder.iterdir()) == []
    call()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=repr)
def test_an_entry_that_cannot_be_named_leaves_nothing(
    error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(source: str, target: str) -> None:
        raise error

    monkeypatch.setattr(os, "replace", failing)
    if isinstance(error, OSError):
        call()
    else:
        with pytest.raises(KeyboardInterrupt):
            call()
    assert list(folder.iterdir()) == []


def test_abandoned_files_are_evicted(folder: Path) -> None:
    """Those of a process that was killed, also where nothing can be written; not those being written now."""
    folder.mkdir(parents=True)
    now = time.time()
    ages = {"a.part": 7200, "tmp0123_abc": 7200, "b.part": 60, "tmp4567_def": 60, "notes.txt": 7200, "entry.o": 7200}
    for name, age in ages.items():
        (folder / name).touch()
        os.utime(folder / name, (now - age, now - age))
    with small_files():
        call()
    assert {path.name for path in folder.iterdir()} == {"b.part", "tmp4567_def", "notes.txt", "entry.o"}


def test_no_cache_is_none(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place; then no home to keep it in."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    folder.parent.touch()
    call()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    call()
    assert len(compiled) == 2


def test_a_cache_to_read_only(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries on a disk that cannot be written are used, though they cannot be marked as used."""

    def denied(*args: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    call()
    monkeypatch.setattr(os, "utime", denied)
    call()
    assert len(compiled) == 1


def test_entries_that_vanish_while_others_are_evicted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process evicts, too: here between finding an entry and looking at its age."""
    scandir = os.scandir

    def late(path: Path) -> list[os.DirEntry[str]]:
        entries = sorted(scandir(path), key=lambda entry: entry.name)
        os.unlink(entries[0].path)
        return entries

    monkeypatch.setattr(object_cache, "KEPT", 0)
    with monkeypatch.context() as patch:
        patch.setattr(object_cache, "KEPT", 4)
        for number in range(4):
            call(number)
    monkeypatch.setattr(os, "scandir", late)
    call(4)
    assert os.listdir(folder) == []


PROCESS = """
import sys
from mxcomp.sim.fast import object_cache
object_cache.KEPT = 5
found = 0
for round in range(60):
    for number in range(10):
        content = bytes([number]) * 50_000
        stored = object_cache.load(f"{number}")
        assert stored in (None, content), (round, number)
        if stored is None or number % 3 == round % 3:
            object_cache.save(f"{number}", content)
            found += object_cache.load(f"{number}") == content
print(found)
"""


def test_processes_share_a_cache(folder: Path) -> None:
    """They write, read and evict the same entries at once."""
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0 and not errors, errors
        assert int(output) > 0
    names = [path.name for path in folder.iterdir()]
    assert len(names) <= 5 and all(name.endswith(".o") for name in names)
