"""Assembles the kernels beside it: make.py [LLVM-MC] [LLD]. Takes LLVM 22's assembler and IREE's linker by default."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(assembler: str = "llvm-mc-22", linker: str = "") -> None:
    if not linker:
        import iree.compiler

        linker = str(Path(iree.compiler.__path__[0], "_mlir_libs", "iree-lld"))
    for source in HERE.glob("*.s"):
        target, binary = source.with_suffix(".o"), source.with_suffix(".hsaco")
        options = ["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-filetype=obj"]
        subprocess.run([assembler, *options, str(source), "-o", str(target)], check=True)
        subprocess.run(
            [linker, "-flavor", "gnu", "-shared", "--strip-debug", str(target), "-o", str(binary)], check=True
        )
        target.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
