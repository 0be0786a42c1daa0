"""Assembles gfx950 code with what every install has: llvmlite writes bitcode around the text, IREE's lld assembles it.

lld takes the module's data layout and triple as LLVM's trunk spells them; a release that spells them otherwise says so.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import iree.compiler
import llvmlite.binding
from elftools.elf.elffile import ELFFile

_TRIPLE = "amdgpu9.50-amd-amdhsa"
_LAYOUT = (
    "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
    "p9:192:256:256:32-p10:32:32-p11:32:32-p12:32:32-p13:32:32-p14:32:32-p15:32:32-i64:64-v16:16-v24:32-v32:32-"
    "v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)
_LLD = Path(iree.compiler.__file__).parent / "_mlir_libs" / "iree-lld"


def code_object(text: str) -> bytes:
    """The code object of assembly with its directives (.amdhsa_kernel, .amdgpu_metadata). Raises ValueError."""
    header = f'target triple = "{_TRIPLE}"\ntarget datalayout = "{_LAYOUT}"\n'
    escaped = (line.replace("\\", r"\5C").replace('"', r"\22") for line in text.splitlines())
    module = llvmlite.binding.parse_assembly(header + "".join(f'module asm "{line}"\n' for line in escaped))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "x.bc"), Path(folder, "x.hsaco")
        source.write_bytes(module.as_bitcode())
        command = [str(_LLD), "-flavor", "gnu", "-shared", str(source), "-o", str(target)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise ValueError(result.stderr)
        return target.read_bytes()


def instructions(text: str) -> bytes:
    """The bytes of some instructions."""
    whole = code_object(f".text\n.globl first, last\nfirst:\n{text}\nlast:\n")
    with tempfile.TemporaryFile() as file:
        file.write(whole)
        elf: Any = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        first, last = (symbols.get_symbol_by_name(name)[0]["st_value"] for name in ("first", "last"))
        section = elf.get_section_by_name(".text")
        start = first - section["sh_addr"]
        return bytes(section.data()[start : start + last - first])
