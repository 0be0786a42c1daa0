"""Compiles the corpus for gfx950 and writes code objects with their manifest beside this file.

    pip install "flydsl==0.4.2" "torch==2.13.*" "iree-base-compiler==3.13.*" pyelftools msgspec
    python test/sim/corpus/flydsl/make_flydsl.py

No GPU and no ROCm are needed: FlyDSL asks for ROCm's linker only, for which IREE's, the same LLD, stands in.
The same version of FlyDSL gives the same bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROCM = tempfile.TemporaryDirectory()
os.environ |= {"ARCH": "gfx950", "COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0", "ROCM_PATH": ROCM.name}
sys.path.insert(0, str(HERE.parent.parent))

import flydsl.compiler as flyc  # noqa: E402
import flydsl.expr as fx  # noqa: E402
import kernels  # noqa: E402
from flydsl._mlir import ir  # noqa: E402
from flydsl._mlir.dialects import gpu  # noqa: E402

from corpus.code_objects import metadata, write  # noqa: E402

POINTERS = {"u8": fx.Uint8, "bf16": fx.BFloat16, "fp32": fx.Float32}
NUMBERS = {"i32": 1, "fp32": 1.0}


@dataclass(frozen=True)
class Variant:
    """One specialisation of a kernel. The grid has ⌈size / divisor⌉ workgroups along each axis."""

    name: str
    launch: flyc.jit
    types: dict[str, str]
    grid: list[tuple[str, int]]
    constants: dict[str, Any]

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """The code object and its entry in the manifest."""
        values = [argument(kind) for kind in self.types.values()]
        self.launch(*values, **self.constants)
        _, compiled = self.launch._last_compiled  # no public way to it without a GPU's runtime
        code = binary(compiled.ir)
        (found,) = metadata(code)
        explicit = [entry for entry in found[".args"] if not entry[".value_kind"].startswith("hidden")]
        return code, {
            "name": self.name,
            "kernel": found[".name"],
            "block": found[".reqd_workgroup_size"],
            "grid": self.grid,
            "dynamic_lds": 0,
            "kernarg_size": explicit[-1][".offset"] + explicit[-1][".size"],
            "arguments": [
                {"name": name, "type": kind, "offset": entry[".offset"]}
                for (name, kind), entry in zip(self.types.items(), explicit, strict=True)
            ],
            "constants": self.constants,
            "options": {},
        }


def argument(kind: str) -> Any:
    """Stands for an argument that is known at run time."""
    return flyc.from_c_void_p(POINTERS[kind[1:]], None, assumed_align=16) if kind[0] == "*" else NUMBERS[kind]


def binary(module: str) -> bytes:
    """The code object in the host module of a kernel."""
    with ir.Context():
        (found,) = (op for op in ir.Module.parse(module).body if op.operation.name == "gpu.binary")
        return gpu.ObjectAttr(ir.ArrayAttr(found.operation.attributes["objects"])[0]).object


def variants() -> Iterator[Variant]:
    scaled = dict.fromkeys(("a", "b", "a_scale", "b_scale"), "*u8") | {"c": "*fp32"} | dict.fromkeys("mnk", "i32")
    for a, b in (("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e4m3", "e4m3")):
        for staged in (False, True):
            name = f"scaled_{a}_{b}" + "_staged" * staged
            constants = {"a_format": a, "b_format": b, "staged": staged}
            yield Variant(name, kernels.launch_scaled_matmul, scaled, [("m", 64), ("n", 64)], constants)
    types = {"x": "*fp32", "y": "*fp32", "columns": "i32"}
    yield Variant("softmax", kernels.launch_softmax, types, [("rows", 1)], {"per_thread": 4})
    types = {"x": "*bf16", "weight": "*fp32", "y": "*bf16", "rows": "i32", "epsilon": "fp32"}
    yield Variant("rms_norm", kernels.launch_rms_norm, types, [("rows", 4)], {})


def main() -> None:
    linker = Path(ROCM.name, "llvm", "bin", "ld.lld")
    linker.parent.mkdir(parents=True)
    (compiler,) = find_spec("iree.compiler").submodule_search_locations  # importing it would clash with FlyDSL's MLIR
    found = Path(compiler, "_mlir_libs", "iree-lld")
    linker.write_text(f'#!/bin/sh\nexec "{found}" -flavor gnu "$@"\n')
    linker.chmod(0o755)
    write(HERE, f"flydsl {version('flydsl')}", variants())


if __name__ == "__main__":
    main()
