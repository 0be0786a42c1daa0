"""Compiles the loops with eight waves for gfx950 and writes code objects with their manifest beside this file.

    pip install "triton==3.9.*" pyelftools msgspec && python test/sim/corpus/loops/make_loops.py

No GPU is needed. The same version of Triton gives the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import GluonASTSource

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))
from corpus.code_objects import metadata, write  # noqa: E402

TARGET = GPUTarget("hip", "gfx950", 64)
WAVES = 8
VECTORS_ONLY = ("amdgpu-agpr-alloc", "0,0")
"""All registers of a wave are VGPRs, as AMD compiles such loops."""
ORDER = "amdgpu-sched-strategy"
"""How LLVM orders instructions: for loops with scales, in a way in which it spills nothing."""


class Variant(NamedTuple):
    """One loop. Its grid has ⌈size / divisor⌉ workgroups along each axis."""

    name: str
    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    grid: list[tuple[str, int]]
    attributes: tuple[tuple[str, str], ...] = (VECTORS_ONLY,)

    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """The code object and its entry in the manifest."""
        aligned, near = ["tt.divisibility", 16], ["tt.pointer_range", 32]
        kinds = {"*": [aligned, near], "i": [aligned]}
        known = {(i,): kinds[kind[0]] for i, kind in enumerate(self.types.values()) if kind[0] in kinds}
        signature = self.types | dict.fromkeys(self.constants, "constexpr")
        source = GluonASTSource(self.kernel, signature, self.constants, known)
        options = {"num_warps": WAVES, "waves_per_eu": WAVES // 4, "llvm_fn_attrs": self.attributes}
        compiled = triton.compile(source, target=TARGET, options=options)
        code = compiled.asm["hsaco"]
        (found,) = metadata(code)
        assert not found[".vgpr_spill_count"], f"{self.name}: {found['.vgpr_spill_count']} registers are spilled"
        explicit = [entry for entry in found[".args"] if not entry[".value_kind"].startswith("hidden")]
        arguments = zip(self.types.items(), explicit, strict=False)  # two scratch pointers follow
        return code, {
            "name": self.name,
            "kernel": compiled.metadata.name,
            "block": [64 * WAVES, 1, 1],
            "grid": self.grid,
            "dynamic_lds": compiled.metadata.shared,
            "kernarg_size": explicit[-1][".offset"] + explicit[-1][".size"],
            "arguments": [{"name": n, "type": t, "offset": entry[".offset"]} for (n, t), entry in arguments],
            "constants": self.constants,
            "options": {"vgprs": found[".vgpr_count"]},
        }


def variants() -> Iterator[Variant]:
    sizes = dict.fromkeys(("n", "k", "scale_pitch"), "i32")
    types = dict.fromkeys(("a", "b", "a_scale", "b_scale"), "*u8") | {"c": "*fp32"} | sizes
    tiles = [("m", 256), ("n", 256)]
    for name, shape, scales, order in (
        ("mxfp4_16", [16, 16, 128], "halves", [(ORDER, "max-memory-clause")]),
        ("mxfp4_16_combined", [16, 16, 128], "combined", [(ORDER, "iterative-maxocc")]),
        ("mxfp4_32_combined", [32, 32, 64], "combined", []),
    ):
        constants = {"shape": shape, "k_width": 16, "vector": 16, "format": "e2m1", "scales": scales}
        yield Variant(name, kernels.product, types, constants, tiles, (VECTORS_ONLY, *order))
    constants = {"shape": [16, 16, 128], "k_width": 16, "vector": 16, "format": "e5m2", "scales": "none"}
    yield Variant("fp8", kernels.product, types, constants, tiles)
    constants = {"shape": [16, 16, 32], "k_width": 8, "vector": 8, "format": None, "scales": "none"}
    yield Variant("f16", kernels.product, types | {"a": "*fp16", "b": "*fp16"}, constants, tiles)
    types = dict.fromkeys(("q", "k", "v", "o"), "*bf16") | {"keys": "i32", "scale": "fp32"}
    yield Variant("attention", kernels.attention, types, {}, [("queries", 256), ("heads", 1)])


def main() -> None:
    triton.knobs.compilation.disable_line_info = True  # it would name this machine's folders
    with tempfile.TemporaryDirectory() as cache:
        triton.knobs.cache.dir = cache
        write(HERE, f"triton {triton.__version__}", variants())


if __name__ == "__main__":
    main()
