"""Compiling with LLVM for this processor, with object code cached on disk."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from mxcomp.sim.fast import object_cache

OPTIMISATION = 0
"""The optimisation level of code generation. Level 2 takes three times as long, for code that is 6 % faster; LLVM's
passes in front of it would take as long again, for a tenth."""

_PACKAGE = Path(__file__).parents[2]


def sources() -> list[Path]:
    """Returns the files that compiled code depends on: the simulator with its semantics tables, formats, and facts of
    the GPU."""
    return [path for folder in ("formats", "sim", "target") for path in sorted((_PACKAGE / folder).rglob("*.py"))]


def _digest_of(paths: Iterable[Path]) -> str:
    """Returns the digest of files, by their names and contents."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_PACKAGE)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


_SOURCES = _digest_of(sources())
"""The digest of the sources, taken at import: they may change under a running process."""


class Compiled:
    """Loaded object code; `address` is that of one of its functions."""

    def __init__(self, objects: Iterable[bytes], name: str) -> None:
        engine, builder = _lljit(), llvm.JITLibraryBuilder()
        for image in objects:
            builder.add_object_img(image)
        builder.add_current_process().export_symbol(name)
        self._library = builder.link(engine, f"mxcomp.{name}.{next(_serials)}")
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


_serials = count()


def compile_module(text: str) -> bytes:
    """Compiles LLVM IR to object code."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    tuning = llvm.create_pipeline_tuning_options(speed_level=0)
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    result: bytes = machine.emit_object(module)
    return result


def objects(key: str, make: Callable[[], str]) -> bytes:
    """Returns the object code of this key from the cache. If it is not there, it is made from the LLVM IR that `make`
    gives."""
    digest = _digest(key)
    found = object_cache.load(digest)
    if found is None:
        found = compile_module(make())
        object_cache.save(digest, found)
    return found


def is_kept(key: str) -> bool:
    """Returns whether object code of this key is in the cache."""
    return object_cache.load(_digest(key)) is not None


def _digest(key: str) -> str:
    """Returns the digest of a key and of everything else that code generation depends on."""
    return hashlib.sha256("\0".join((key, *environment())).encode()).hexdigest()


@cache
def environment() -> tuple[str, ...]:
    """Returns what the object code depends on besides the key: our sources, libraries, Python, and the processor.

    NumPy computes constants and decides on types, and tinygrad's tables tell instructions apart.
    """
    python = f"{sys.implementation.name} {tuple(sys.version_info)}"
    libraries = (llvmlite.__version__, str(llvm.llvm_version_info), np.__version__, metadata.version("tinygrad"))
    processor = (llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return (_SOURCES, python, *libraries, *processor)
