"""The data-tiled layouts that IREE itself chooses for a scaled matmul on gfx950, read from the IR it makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from iree.compiler import ir

from mxcomp.layout import DataTiledLayout
from mxcomp.layout.swizzle import Dim, TileSwizzle
from mxcomp.mlir import graph
from mxcomp.mlir.attributes import to_python
from mxcomp.mlir.session import Session

FLAGS = (
    "--iree-hal-target-device=hip",
    "--iree-rocm-target=gfx950",
    "--iree-rocm-encoding-layout-resolver=data-tiling",
)
BUILTIN_UKERNELS = "--iree-rocm-enable-tensor-ukernels"
_ANY_WORK = b"""
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


@dataclass(frozen=True)
class Encoding:
    """`encoding_info` of one operand: which source dimensions are tiled, by how much, in what order."""

    inner_dims: tuple[int, ...]
    inner_tiles: tuple[int, ...]
    outer_permutation: tuple[int, ...]
    swizzle: TileSwizzle


@dataclass(frozen=True)
class Choice:
    """What IREE chose: the fields of its layout attribute, the packed types of a kernel, and the encodings."""

    layout: DataTiledLayout
    packed_shapes: tuple[tuple[int, ...], ...]
    encodings: tuple[Encoding, ...]


@cache
def choose(m: int, n: int, k: int, builtin_ukernels: bool) -> Choice:
    """IREE's layout for a static problem, of its builtin ukernel where it has one and is allowed to use it."""
    device = _device((*FLAGS, BUILTIN_UKERNELS) if builtin_ukernels else FLAGS)
    executable = device[device.index("[") + 1 : device.rindex("]")]
    template = Template((Path(__file__).parent / "encodings.mlir.in").read_text())
    text = template.substitute(m=m, n=n, blocks=k // 32, device=device, executable=executable)
    session = Session()
    session.load(text.encode(), "encodings")
    session.run_passes("iree-stream-specialize-encodings, func.func(iree-codegen-materialize-device-encoding)")
    with session.context:
        ops = list(graph.walk(session.module))
        encodings = tuple(_encoding(op) for op in ops if op.name == "stream.tensor.sizeof")
        (inner_tiled,) = [op for op in ops if op.name == "iree_codegen.inner_tiled"]
        shapes = tuple(tuple(ir.RankedTensorType(operand.type).shape) for operand in inner_tiled.operands)
        return Choice(_layout(str(inner_tiled.attributes["kind"])), shapes, encodings)


def _device(flags: tuple[str, ...]) -> str:
    """The `#hal.device.target` attribute that iree-compile makes from its flags."""
    session = Session(flags)
    session.load(_ANY_WORK, "any")
    session.run("start", "flow")
    for op in graph.walk(session.module):
        if op.name == "util.global":
            return str(op.attributes["initial_value"])
    raise AssertionError("IREE made no device")


def _encoding(sizeof: ir.Operation) -> Encoding:
    text = str(ir.TypeAttr(sizeof.attributes["encoding"]).value)
    start = text.index("{encoding_info")
    info = to_python(ir.Attribute.parse(text[start : text.rindex("}") + 1]))["encoding_info"]
    expand = tuple(tuple(Dim(dim[0], dim[1]) for dim in dims) for dims in info["swizzle"]["expandShape"])
    return Encoding(
        tuple(info["innerDimsPos"]),
        tuple(info["innerTileSizes"]),
        tuple(info["outerDimsPerm"]),
        TileSwizzle(expand, tuple(info["swizzle"]["permutation"])),
    )


def _layout(kind: str) -> DataTiledLayout:
    """Our layout with the fields of `#iree_gpu.data_tiled_scaled_mma_layout`."""
    assert kind.startswith("#iree_gpu.data_tiled_scaled_mma_layout<"), kind
    fields: dict[str, Any] = {}
    for key, value in re.findall(r"(\w+) = (\[[^\]]*\]|\w+)", kind):
        if value.startswith("["):
            fields[key] = tuple(int(item) for item in value.strip("[]").split(","))
        elif not key.endswith("_elem_type"):
            fields[key] = int(value) if value.isdigit() else value
    return DataTiledLayout(**fields)
