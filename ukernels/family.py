"""The family of ukernels that share one hand-written body: every pair of MX element types, both MFMA shapes.

The body, `mx_data_tiled.mlir.in`, is MLIR over aliases. An instance is a tile and two element types; `Instance.text` is
the body behind the aliases that these give (`aliases`), among them the match rule, #rule. Nothing is parsed before an
instance is linked into an executable.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import Any

from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES
from mxcomp.layout import LHS, RHS, DataTiledLayout, layout_entries
from mxcomp.ukernels.aliases import Aliases

BODY = "mx_data_tiled.mlir.in"
_M16, _M32 = "MFMA_SCALE_F32_16x16x128_B32", "MFMA_SCALE_F32_32x32x64_B32"


def _layout(intrinsic: str, m: int, n: int, k: int) -> DataTiledLayout:
    """So many MFMA in each of four waves along N; a lane's scales follow each other."""
    return DataTiledLayout(
        intrinsic,
        m,
        n,
        k,
        subgroups_n=4,
        operands_interleaving_intrinsics_m=(2,),
        operands_interleaving_intrinsics_n=(3,),
        operands_interleaving_intrinsics_k=(2, 3),
    )


@dataclass(frozen=True)
class Tile:
    """A tile of the family, for M of `min_m` and more. Benefits are below the default of files, which so come first."""

    layout: DataTiledLayout
    benefit: int
    min_m: int | None = None

    @property
    def pattern(self) -> str:
        """The names of its instances."""
        m, n, k = self.layout.tile
        suffix = "" if self.layout.intrinsic == _M16 else f"_mfma{self.layout.shape.m}"
        return f"mx_LHS_RHS_f32_m{m}_n{n}_k{k}{suffix}"


TILES = (
    Tile(_layout(_M16, 8, 4, 1), benefit=0, min_m=65),
    Tile(_layout(_M16, 4, 2, 2), benefit=-1),
    Tile(_layout(_M32, 4, 2, 2), benefit=-2, min_m=65),
    Tile(_layout(_M32, 2, 1, 4), benefit=-3),
)


@dataclass(frozen=True)
class Instance:
    """A member of the family: its tile, and the element types of LHS and RHS."""

    tile: Tile
    elements: tuple[str, str]

    @property
    def layout(self) -> DataTiledLayout:
        return self.tile.layout

    @property
    def name(self) -> str:
        """For example mx_f8E4M3FN_f4E2M1FN_f32_m128_n256_k128."""
        return self.tile.pattern.replace("LHS", self.elements[LHS]).replace("RHS", self.elements[RHS])

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.elements, "f8E8M0FNU", "f8E8M0FNU", "f32")

    @property
    def rule(self) -> dict[str, Any]:
        """The entries of `mxcomp.ukernel`."""
        bounds = {"k": {"div": BLOCK_SIZE}} | ({"m": {"min": self.tile.min_m}} if self.tile.min_m else {})
        return {
            "archs": ["gfx950"],
            "types": list(self.types),
            "benefit": self.tile.benefit,
            "constraints": bounds,
            "layout": layout_entries(self.layout),
            "workgroup_size": [self.layout.threads, 1, 1],
            "llvm_func_attrs": {"amdgpu-waves-per-eu": "2"},
        }

    def text(self, body: str) -> str:
        """The ukernel's file: `body` behind its aliases. One list can have none: a zero for each rank of the result."""
        aliases = Aliases(self.layout, self.elements)
        origin = ", ".join(["%c0"] * len(aliases.acc_lane))
        rule = f"#rule = {_attribute(self.rule)}"
        return "\n".join([*aliases.lines(), rule, "", Template(body).substitute(acc_origin=origin)])


_TYPES = (*ELEMENT_TYPES, "f8E8M0FNU", "f32")

INSTANCES = tuple(Instance(tile, (lhs, rhs)) for tile in TILES for lhs in ELEMENT_TYPES for rhs in ELEMENT_TYPES)
"""All of them: 25 pairs of element types for every tile."""

PATTERNS = tuple(tile.pattern for tile in TILES)
"""Their names, with LHS and RHS for the element types."""


def _attribute(value: object) -> str:
    """Dictionaries, lists, strings and integers as attributes; names of types as types."""
    match value:
        case dict():
            entries = (f'"{key}" = {_attribute(item)}' for key, item in value.items())
            return f"{{{', '.join(entries)}}}"
        case list():
            return f"[{', '.join(map(_attribute, value))}]"
        case str():
            return value if value in _TYPES else f'"{value}"'
    return str(value)
