"""Compiles the driver library. It runs while mxcomp is being installed, and imports no other module of it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCES = Path(__file__).parent / "driver"
NAME = "libamdhip64.so"
"""The file name that IREE looks for."""

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-pthread")
_ZIG_TARGETS = {"x86_64": "x86_64-linux-gnu.2.28", "aarch64": "aarch64-linux-gnu.2.28"}
"""Targets with an old C library, so that the file runs on other machines too."""

_PROBE = '#include <pthread.h>\n#include <stdio.h>\nint probe(void) { return puts(""); }\n'


class BuildError(Exception):
    """The library cannot be built: the message says why, and what to install."""


def digest() -> str:
    """Returns the digest of the sources and the machine. The library contains it, so that a stale one is recognised."""
    content = hashlib.sha256(platform.machine().encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        content.update(path.read_bytes())
    return content.hexdigest()


def is_current(library: Path) -> bool:
    """Returns whether a library exists and was built from these sources."""
    return library.is_file() and digest().encode() in library.read_bytes()


def build(library: Path, flags: Sequence[str] = ()) -> None:
    """Builds the library completely or not at all; `flags` are for the compiler, such as sanitizers. Raises
    BuildError."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        result = Path(directory) / NAME
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        command = (*compiler(), *_FLAGS, *flags, f'-DMX_SOURCES="{digest()}"', "-o", str(result), *sources, "-ldl")
        _run(command)
        os.replace(result, library)


def platform_tag(library: Path, tag: str) -> str:
    """Returns the wheel tag of the library, by the newest glibc version whose functions it uses. It needs no other
    library.

    `tag` is what one has where there are no such functions, as with musl.
    """
    found = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
    return f"manylinux_2_{max(found)}_{platform.machine()}" if found and sys.platform == "linux" else tag


def compiler() -> tuple[str, ...]:
    """Returns the first C compiler that works. Raises BuildError."""
    tried = []
    for command in _candidates():
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "probe.c"
            source.write_text(_PROBE)
            try:
                _run((*command, "-fPIC", "-shared", "-o", str(source.with_suffix(".so")), str(source)))
            except BuildError as error:
                tried.append(str(error))
                continue
            return command
    found = "; ".join(tried) or "neither cc nor the Python package ziglang is there"
    raise BuildError(f"no C compiler for the simulated HIP driver ({found}): pip install ziglang")


def _candidates() -> Iterator[tuple[str, ...]]:
    if given := os.environ.get("CC"):
        yield tuple(given.split())
    yield from ((name,) for name in ("cc", "gcc", "clang") if shutil.which(name))
    if importlib.util.find_spec("ziglang") and platform.machine() in _ZIG_TARGETS:
        yield (sys.executable, "-m", "ziglang", "cc", "-target", _ZIG_TARGETS[platform.machine()])


def _run(command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise BuildError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-2000:]}")
