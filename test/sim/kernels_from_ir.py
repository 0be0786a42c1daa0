"""Builds kernels from LLVM IR with the LLVM that the fast engine has, and IREE's linker."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import iree.compiler
import llvmlite.binding as llvm

LINKER = Path(iree.compiler.__path__[0], "_mlir_libs", "iree-lld")


@cache
def code_object(source: Path) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa")
    machine = target.create_target_machine(cpu="gfx950", reloc="pic")
    module = llvm.parse_assembly(source.read_text())
    with tempfile.TemporaryDirectory() as folder:
        made, linked = Path(folder, "kernels.o"), Path(folder, "kernels.hsaco")
        made.write_bytes(machine.emit_object(module))
        subprocess.run([LINKER, "-flavor", "gnu", "-shared", made, "-o", linked], check=True)
        return linked.read_bytes()
