"""Compiles the corpus for gfx950 and writes code objects with their manifest beside this file.

    pip install "triton==3.9.*" pyelftools msgspec && python test/sim/corpus/triton/make_triton.py

No GPU is needed. The same version of Triton gives the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))
from corpus.code_objects import metadata, write  # noqa: E402

TARGET = GPUTarget("hip", "gfx950", 64)
SIZES = {"m": "i32", "n": "i32", "k": "i32"}


@dataclass(frozen=True)
class Variant:
    """One specialisation of a kernel. The grid has ⌈size / divisor⌉ workgroups along each axis."""

    name: str
    kernel: triton.JITFunction
    types: dict[str, str]
    constants: dict[str, Any]
    grid: list[tuple[str, int]]
    options: dict[str, int] = field(default_factory=dict)

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """The code object and its entry in the manifest."""
        aligned = [i for i, (name, kind) in enumerate(self.types.items()) if kind[0] == "*" or name in ("n", "k")]
        pointers = [i for i, kind in enumerate(self.types.values()) if kind[0] == "*"]
        attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
        for i in pointers:
            attributes[(i,)].append(["tt.pointer_range", 32])
        signature = self.types | dict.fromkeys(self.constants, "constexpr")
        source = ASTSource(self.kernel, signature, self.constants, attributes)
        compiled = triton.compile(source, target=TARGET, options={"enable_fp_fusion": True, **self.options})
        code = compiled.asm["hsaco"]
        (found,) = metadata(code)
        explicit = [entry for entry in found[".args"] if not entry[".value_kind"].startswith("hidden")]
        arguments = zip(self.types.items(), explicit, strict=False)  # two scratch pointers follow
        return code, {
            "name": self.name,
            "kernel": compiled.metadata.name,
            "block": [64 * compiled.metadata.num_warps, 1, 1],
            "grid": self.grid,
            "dynamic_lds": compiled.metadata.shared,
            "kernarg_size": explicit[-1][".offset"] + explicit[-1][".size"],
            "arguments": [{"name": n, "type": t, "offset": entry[".offset"]} for (n, t), entry in arguments],
            "constants": self.constants,
            "options": self.options,
        }


def blocks(m: int, n: int, k: int) -> dict[str, int]:
    return {"block_m": m, "block_n": n, "block_k": k}


def pointers(**types: str) -> dict[str, str]:
    return {name: f"*{kind}" for name, kind in types.items()}


def variants() -> Iterator[Variant]:
    mx = pointers(a="u8", b="u8", a_scale="u8", b_scale="u8", c="fp32") | SIZES
    for a, b in (("e2m1", "e2m1"), ("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e2m1")):
        for width in (16, 32):
            for stages in (2, 3):
                yield Variant(
                    f"scaled_{a}_{b}_mfma{width}_stages{stages}",
                    kernels.scaled_matmul,
                    mx,
                    {"a_format": a, "b_format": b, **blocks(128, 128, 256 if a == "e2m1" else 128)},
                    [("m", 128), ("n", 128)],
                    {"matrix_instr_nonkdim": width, "num_stages": stages},
                )
    small = [("m", 64), ("n", 64)]
    for width in (16, 32):
        options = {"matrix_instr_nonkdim": width}
        yield Variant(f"scaled_kn_mfma{width}", kernels.scaled_matmul_kn, mx, blocks(64, 64, 128), small, options)
        types = pointers(a="fp16", b="fp16", c="fp32") | SIZES
        yield Variant(f"f16_mfma{width}", kernels.matmul, types, blocks(64, 64, 64), small, options)
        yield Variant(f"f16_kn_mfma{width}", kernels.matmul_kn, types, blocks(64, 64, 64), small, options)
    for kind, name in (("bf16", "bf16"), ("fp16", "f16")):
        types = pointers(a=kind, b="u8", b_scale="u8", c="fp32") | SIZES
        constants = {"a_format": kind, **blocks(64, 64, 128)}
        yield Variant(f"weights_{name}", kernels.weight_matmul, types, constants, small)
    types = pointers(a="bf16", b="bf16", c="fp32") | SIZES
    yield Variant("bf16_stages3", kernels.matmul, types, blocks(64, 64, 64), small, {"num_stages": 3})
    types = pointers(a="fp8e4nv", b="fp8e4nv", c="fp32") | SIZES
    yield Variant("e4m3_kn", kernels.matmul_kn, types, blocks(64, 64, 128), small)
    for kind, name in (("fp32", "f32"), ("bf16", "bf16")):
        types = pointers(a="bf16", b="bf16", c=kind) | SIZES
        yield Variant(f"split_{name}", kernels.split_matmul, types, blocks(64, 64, 64), [*small, ("k", 64)])
    row = [("rows", 1)]
    yield Variant("softmax", kernels.softmax, pointers(x="fp32", y="fp32") | {"columns": "i32"}, {"block": 1024}, row)
    types = pointers(x="bf16", weight="fp32", bias="fp32", y="bf16") | {"columns": "i32", "epsilon": "fp32"}
    yield Variant("layer_norm", kernels.layer_norm, types, {"block": 512}, row)
    constants, grid = {"block_m": 16, "block_k": 128}, [("rows", 16), ("columns", 128)]
    for function, element in ((kernels.quantize_mxfp4, "bf16"), (kernels.convert_mxfp4, "u32")):
        types = pointers(x=element, codes="u8", scales="u8") | {"columns": "i32"}
        yield Variant(function.__name__, function, types, constants, grid)


def main() -> None:
    triton.knobs.compilation.disable_line_info = True  # it would name this machine's folders
    with tempfile.TemporaryDirectory() as cache:
        triton.knobs.cache.dir = cache
        write(HERE, f"triton {triton.__version__}", variants())


if __name__ == "__main__":
    main()
