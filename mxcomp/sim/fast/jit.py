"""Compiling with LLVM for this processor, with object code cached on disk."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

OPTIMISATION = 2

KEPT = 1000
"""Objects in the cache, some 100 KB each."""


def _digest_of_sources() -> str:
    """Of the simulator's own sources: object code is only as good as the code that made it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _digest_of_sources()
"""Taken when they are imported, not later: they may change under a running process."""


class Compiled:
    """A loaded object; `address` finds its functions."""

    def __init__(self, objects: bytes, name: str) -> None:
        engine = _lljit()
        builder = llvm.JITLibraryBuilder().add_object_img(objects).add_current_process().export_symbol(name)
        self._library = builder.link(engine, f"mxcomp.{name}.{_serial()}")
        self.address = self._library[name]


@cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=OPTIMISATION, reloc="static", codemodel="large"
    )  # large: the loader may put constants more than 2 GiB from code, device memory in between


@cache
def _lljit() -> Any:
    return llvm.create_lljit_compiler(_machine())


_serials = iter(range(1 << 62))


def _serial() -> int:
    return next(_serials)


def compile_module(text: str) -> bytes:
    """Object code of LLVM IR."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=OPTIMISATION)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    result: bytes = machine.emit_object(module)
    return result


def cached(key: str, make: Callable[[], str], name: str) -> Compiled:
    """The compiled module of this key, from the cache if it is there."""
    path = cache_directory() / f"{_digest(key)}.o"
    try:
        found = Compiled(path.read_bytes(), name)
        os.utime(path)  # used just now, see `_evict`
        return found
    except OSError:
        objects = compile_module(make())
        _save(path, objects)
        return Compiled(objects, name)


def _digest(key: str) -> str:
    """Of the key and all that code generation depends on: processor, LLVM, and the sources of the simulator."""
    processor = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    parts = (key, *processor, str(llvm.llvm_version_info), _SOURCES)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "mxcomp" / "sim"


def _save(path: Path, content: bytes) -> None:
    """Atomically; a cache that cannot be written is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
        _evict(path.parent)
    except OSError:
        pass


def _evict(directory: Path) -> None:
    """Removes what was not used for longest. Another process may do so, too."""
    entries = sorted(directory.glob("*.o"), key=lambda path: path.stat().st_mtime)
    for path in entries[:-KEPT]:
        path.unlink(missing_ok=True)
