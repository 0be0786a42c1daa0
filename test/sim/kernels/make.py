"""Assembles the kernels beside it with what is installed anyhow: llvmlite writes bitcode, IREE's linker takes it.

llvmlite comes without an assembler for this target. The linker has one, for the inline assembly of functions: so a file
is that of a function, which is the only thing in the code object that the file does not say. Its section comes back at
the end, for the function to end there as well.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import iree.compiler
import llvmlite.binding as llvm

HERE = Path(__file__).parent
LINKER = Path(iree.compiler.__path__[0], "_mlir_libs", "iree-lld")
LAYOUT = (
    "e-m:e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128:128:48-"
    "p9:192:256:256:32-p10:32:32-p11:32:32-p12:32:32-p13:32:32-p14:32:32-p15:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-"
    "v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
)
"""As the linker's LLVM has it, which is not llvmlite's."""

MODULE = """
target datalayout = "{layout}"
target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @file() #0 {{
  call void asm sideeffect "{text}\\0A.section .text.file,\\22ax\\22,@progbits", ""()
  ret void
}}
attributes #0 = {{ "target-cpu"="gfx950" }}
"""
_ESCAPES = {"\\": "\\5C", '"': "\\22", "\n": "\\0A", "\t": "\\09", "$": "$$"}


def main() -> None:
    llvm.initialize_all_targets()
    for source in HERE.glob("*.s"):
        text = "".join(_ESCAPES.get(letter, letter) for letter in source.read_text())
        bitcode = source.with_suffix(".bc")
        bitcode.write_bytes(llvm.parse_assembly(MODULE.format(layout=LAYOUT, text=text)).as_bitcode())
        options = ["-flavor", "gnu", "-shared", "--strip-debug", "-plugin-opt=mcpu=gfx950"]
        subprocess.run([LINKER, *options, str(bitcode), "-o", str(source.with_suffix(".hsaco"))], check=True)
        bitcode.unlink()


if __name__ == "__main__":
    main()
