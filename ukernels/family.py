"""The family of ukernels that share hand-written bodies: every pair of MX element types, both MFMA shapes.

A body is MLIR over aliases. An instance is a tile, of one of the bodies, and two element types; `Instance.text` is the
body behind the aliases that these give (`aliases`), among them the match rule, #rule. Nothing is parsed
before an instance is linked into an executable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

from iree.compiler import ir

from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES, element_format
from mxcomp.layout import LHS, RHS, DataTiledLayout, layout_entries
from mxcomp.ukernels.aliases import Aliases
from mxcomp.ukernels.streamed_aliases import StreamedAliases
from mxcomp.ukernels.waves import HALF_STEPS, Waves

BODY = "mx_data_tiled.mlir.in"
"""A body with RHS in registers and LHS through LDS."""

EXPERTS = "mx_experts.mlir.in"
"""A body on tiles of the first, with K split among waves."""

IN_ROWS = ("lhs_in_rows", "rhs_in_rows")
"""Operands of instances that take LHS, or RHS in its place, as it is stored, and all else data-tiled."""

_SIMDS = 4
"""Of a compute unit."""
M16, _M32 = "MFMA_SCALE_F32_16x16x128_B32", "MFMA_SCALE_F32_32x32x64_B32"


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


Pairs: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Tile:
    """A tile of the family, for M of `min_m` and more. Benefits are below the default of files, which so come first.

    Attributes:
        layout: How operands are packed, and how much of them a workgroup takes.
        waves: Of a workgroup, where the layout does not say it: those over units.
        without: Bits of LHS and RHS elements for which there is no instance, as registers would be spilled.
        for_rhs: Whether what is read in rows is RHS, and the result is computed transposed.
    """

    layout: DataTiledLayout
    benefit: int
    min_m: int | None = None
    body: str = BODY
    waves: Waves | None = None
    without: Pairs = ()
    for_rhs: bool = False

    @property
    def is_half(self) -> bool:
        """Whether operands are packed in half units: for K that would be padded by half a unit otherwise."""
        return self.layout.units is not None and self.layout.intrinsics_k == HALF_STEPS

    @property
    def lhs_in_rows(self) -> bool:
        """Whether LHS is read as it is stored."""
        return self.waves is not None and self.waves.lhs_in_rows

    @property
    def max_m(self) -> int | None:
        """The largest M that it is for."""
        rows = None if self.waves is None else self.waves.lhs_rows
        return None if rows == Waves().lhs_rows else rows

    @property
    def threads(self) -> int:
        """Of a workgroup: waves stand side by side along N, but over units."""
        return self.layout.threads // self.layout.subgroups_m * (1 if self.waves is None else self.waves.count)

    @property
    def waves_per_simd(self) -> int:
        """What registers have to leave room for: two of the bodies that are not over units share a compute unit."""
        return 2 if self.waves is None else max(1, self.waves.count * self.waves.beside // _SIMDS)

    def aliases(self, elements: tuple[str, str]) -> Aliases:
        if self.waves is None:
            return Aliases(self.layout, elements)
        return StreamedAliases(self.layout, elements, self.waves)

    def fits(self, elements: tuple[str, str]) -> bool:
        """Whether LDS, and registers, hold what an instance for these elements needs of them."""
        return tuple(element_format(kind).bits for kind in elements) not in self.without

    @property
    def pattern(self) -> str:
        """The names of its instances."""
        m, n, k = self.layout.workgroup_tile
        shape = self.layout.multiplied.shape
        suffix = "" if self.layout.multiplied.intrinsic == M16 else f"_mfma{shape.m}"
        is_alone = self.waves is not None and self.waves.count == 1
        suffix += "_half" * self.is_half + "_w1" * is_alone + "_rhs" * self.for_rhs + "_rows" * self.lhs_in_rows
        suffix += "" if self.max_m is None else f"_r{self.max_m}"
        suffix += "_x2" if self.waves is not None and self.waves.beside > 1 else ""
        return f"mx_LHS_RHS_f32_m{m}_n{n}_k{k}{suffix}"


_MOST_HALF_K = 4095
"""Beyond it half a unit of padding is at most 6 %, which tiles over whole units make up for, modelled."""

TILES = (
    Tile(_layout(M16, 8, 4, 1), benefit=0, min_m=65),
    Tile(_layout(M16, 4, 2, 2), benefit=-1),
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
    def body(self) -> str:
        """The file of its body."""
        return self.tile.body

    def path(self, folder: Path) -> Path:
        """The file that it is made from; `folder` has those of bodies."""
        return folder / self.body

    def module(self, path: Path) -> ir.Module:
        """A module with its function, whose rule is an attribute. Raises OSError."""
        return ir.Module.parse(self.text(path.read_text()))

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.elements, "f8E8M0FNU", "f8E8M0FNU", "f32")

    @property
    def rule(self) -> dict[str, Any]:
        """The entries of `mxcomp.ukernel`."""
        k_tile = self.layout.tile[2]
        k = {"div": BLOCK_SIZE} | ({"odd": k_tile, "max": _MOST_HALF_K} if self.tile.is_half else {})
        if self.tile.lhs_in_rows:  # with a single K tile the largest spills registers
            k = {"div": k_tile, "min": 2 * k_tile}
        m = {key: size for key, size in (("min", self.tile.min_m), ("max", self.tile.max_m)) if size}
        bounds = {"k": k} | ({"m": m} if m else {})
        return {
            "archs": ["gfx950"],
            "types": list(self.types),
            **({"operands": IN_ROWS[self.tile.for_rhs]} if self.tile.lhs_in_rows else {}),
            "benefit": self.tile.benefit,
            "constraints": bounds,
            "layout": layout_entries(self.layout),
            "workgroup_size": [self.tile.threads, 1, 1],
            "llvm_func_attrs": {"amdgpu-waves-per-eu": str(self.tile.waves_per_simd)},
        }

    def arguments(self) -> tuple[ir.RankedTensorType, ...] | None:
        """Types of its function's arguments, where they are known without it."""
        return None

    def text(self, body: str) -> str:
        """The ukernel's file: `body` behind its aliases."""
        rule = f"#rule = {attribute(self.rule)}"
        return "\n".join([*self.lines(), rule, "", Template(body).substitute(self.lists())])

    @property
    def stock(self) -> Instance:
        """The same for a compiler that stores no neighbours in one piece where rows are padding."""
        if not self.layout.lane_columns:
            return self
        return replace(self, tile=replace(self.tile, layout=replace(self.layout, lane_columns=False)))

    def lists(self) -> dict[str, str]:
        """Lists of values, for which there are no aliases: a zero for each rank of the result."""
        return {"acc_origin": ", ".join(["%c0"] * len(self.tile.aliases(self.elements).acc_lane))}

    def lines(self) -> Iterator[str]:
        """The aliases that its body is written in."""
        yield from self.tile.aliases(self.elements).lines()


_TYPES = (*ELEMENT_TYPES, "f8E8M0FNU", "f32")

PAIRS = tuple(product(ELEMENT_TYPES, ELEMENT_TYPES))
INSTANCES = tuple(Instance(tile, pair) for tile in TILES for pair in PAIRS if tile.fits(pair))
"""All of them: for every tile the pairs of element types that it has room for, all 25 but for large tiles of units."""


def attribute(value: object) -> str:
    """Dictionaries, lists, strings, numbers and truth values as attributes; names of types as types."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            entries = (f'"{key}" = {attribute(item)}' for key, item in value.items())
            return f"{{{', '.join(entries)}}}"
        case list():
            return f"[{', '.join(map(attribute, value))}]"
        case str():
            return value if value in _TYPES else f'"{value}"'
    return str(value)
