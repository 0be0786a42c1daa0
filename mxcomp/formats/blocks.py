"""Block formats: elements that lie in blocks along K, each with a scale. A row of `BLOCK_FORMATS` adds one."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.formats.elements import E2M1, E2M3, E3M2, E4M3, E5M2, ElementFormat, element_format


@dataclass(frozen=True)
class ScaleFormat:
    """The format in which a block's scale is stored."""

    name: str
    mlir_type: str
    bits: int = 8


E8M0 = ScaleFormat("E8M0", "f8E8M0FNU")
"""A power of two (OCP Microscaling v1.0, section 5.4.1)."""

MX_BLOCK = 32
"""The block size of all formats of OCP Microscaling v1.0 (section 5.2)."""


@dataclass(frozen=True)
class BlockFormat:
    """An element format, the scale format of a block, and the number of elements of a block."""

    name: str
    element: ElementFormat
    scale: ScaleFormat
    size: int

    @property
    def block_bytes(self) -> int:
        """The bytes of the elements of one block, without gaps."""
        return self.size * self.element.bits // 8

    def __str__(self) -> str:
        return self.name


BLOCK_FORMATS = (
    BlockFormat("MXFP4", E2M1, E8M0, MX_BLOCK),
    BlockFormat("MXFP6 (E2M3)", E2M3, E8M0, MX_BLOCK),
    BlockFormat("MXFP6 (E3M2)", E3M2, E8M0, MX_BLOCK),
    BlockFormat("MXFP8 (E4M3)", E4M3, E8M0, MX_BLOCK),
    BlockFormat("MXFP8 (E5M2)", E5M2, E8M0, MX_BLOCK),
)
"""The block formats that are recognised. The match rule of a ukernel says which it computes."""


def mx_format(element: ElementFormat | str) -> BlockFormat:
    """Returns the format of OCP Microscaling with these elements. Raises ValueError."""
    fmt = element_format(element)
    return next(each for each in BLOCK_FORMATS if each.element == fmt and each.scale == E8M0)


def block_format(element: str, scale: str = E8M0.mlir_type) -> BlockFormat | None:
    """Returns the format with these MLIR types of elements and scales, if there is one."""
    return next(
        (each for each in BLOCK_FORMATS if (each.element.mlir_type, each.scale.mlir_type) == (element, scale)), None
    )
