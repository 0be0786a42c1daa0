"""What kinds of kernels have in common, for every pair of MX element types: `Tile`, `Instance` and its match rule.

A kind is a module with `INSTANCES`: tiles, for element types that they have room for. Nothing is written before an
instance is linked into an executable.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from iree.compiler import ir

from mxcomp.formats import ELEMENT_TYPES, element_format
from mxcomp.layout import LHS, RHS, DataTiledLayout, layout_entries
from mxcomp.target import Target
from mxcomp.ukernels import builder
from mxcomp.ukernels.operands import argument_types
from mxcomp.ukernels.waves import BLOCK, HALF_STEPS, SCALE, Waves

if TYPE_CHECKING:
    from mxcomp.ukernels.kernel import Kernel

IN_ROWS = ("lhs_in_rows", "rhs_in_rows")
"""Operands of instances that take LHS, or RHS in its place, as it is stored, and all else data-tiled."""

_SIMDS = 4
"""Of a compute unit, for which workgroups have their waves."""
Pairs: TypeAlias = tuple[tuple[int, int], ...]
BITS: Pairs = tuple(product((4, 6, 8), (4, 6, 8)))
"""Of elements of LHS and RHS, that there are."""


def other_than(bits: Pairs) -> Pairs:
    """Those for which a tile has no instance, if it is for `bits` alone."""
    return tuple(pair for pair in BITS if pair not in bits)


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
        """What registers have to leave room for: two workgroups that are not over units share a compute unit."""
        return 2 if self.waves is None else max(1, self.waves.count * self.waves.occupancy // _SIMDS)

    def fits(self, elements: tuple[str, str]) -> bool:
        """Whether it is for these elements."""
        return tuple(element_format(kind).bits for kind in elements) not in self.without

    def objection(self, elements: tuple[str, str], target: Target) -> str:
        """Why a GPU cannot run it for these elements, whatever its instructions; "" if it can."""
        lanes = self.layout.shape.lanes
        if (target.wave_size, target.simds) != (lanes, _SIMDS):
            found = f"{target.simds} and {target.wave_size}"
            return f"it is for {_SIMDS} SIMDs and waves of {lanes}: {target.name} has {found}"
        most = target.max_workgroup_threads
        return f"it has {self.threads} threads: {target.name} has at most {most}" if self.threads > most else ""

    @property
    def pattern(self) -> str:
        """The names of its instances."""
        m, n, k = self.layout.workgroup_tile
        waves = self.waves or Waves(2)
        suffix = "_single_wave" * (waves.count == 1)
        suffix += f"_row_major_{'ab'[self.for_rhs]}" * self.lhs_in_rows
        suffix += "" if self.max_m is None else f"_max_m{self.max_m}"
        suffix += "" if waves.occupancy == 1 else f"_occupancy{waves.occupancy}"
        return f"mx_LHS_RHS_f32_m{m}_n{n}_k{k}{suffix}"


_MOST_HALF_K = 4095
"""Beyond it half a unit of padding is at most 6 %, which tiles over whole units make up for, modelled."""


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
    def kernel(self) -> type[Kernel]:
        """What writes its kernel."""
        raise NotImplementedError

    @property
    def path(self) -> Path:
        """The file that it is made from."""
        return Path(inspect.getfile(type(self)))

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Types of its function's arguments, of which the last ones are those of its results."""
        return argument_types(self.layout, self.elements)

    def lds_bytes(self, target: Target) -> int:
        """What a workgroup takes of LDS."""
        raise NotImplementedError

    def missing(self, target: Target) -> str:
        """Which of its instructions a GPU has not; "" if it has all."""
        return target.lacks_instruction(self.layout.intrinsic, self.types)

    def objection(self, target: Target) -> str:
        """Why a GPU cannot run it; "" if it can."""
        if reason := self.missing(target) or self.tile.objection(self.elements, target):
            return reason
        taken, room = self.lds_bytes(target), target.lds_bytes // (self.tile.waves or Waves()).occupancy
        return f"it takes {taken} bytes of LDS: there are {room} of {target.name}" if taken > room else ""

    def module(self, path: Path, target: Target) -> ir.Module:
        """A module with its function, whose rule is an attribute."""
        return builder.module(self.kernel(self, target).function(), attribute(self.rule))

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.elements, SCALE, SCALE, "f32")

    @property
    def rule(self) -> dict[str, Any]:
        """The entries of `mxcomp.ukernel`."""
        k_tile = self.layout.tile[2]
        k = {"div": BLOCK} | ({"odd": k_tile, "max": _MOST_HALF_K} if self.tile.is_half else {})
        if self.tile.lhs_in_rows:  # with a single K tile the largest spills registers
            k = {"div": k_tile, "min": 2 * k_tile}
        m = {key: size for key, size in (("min", self.tile.min_m), ("max", self.tile.max_m)) if size}
        bounds = {"k": k} | ({"m": m} if m else {})
        return {
            "types": list(self.types),
            **({"operands": IN_ROWS[self.tile.for_rhs]} if self.tile.lhs_in_rows else {}),
            "benefit": self.tile.benefit,
            "constraints": bounds,
            "layout": layout_entries(self.layout),
            "workgroup_size": [self.tile.threads, 1, 1],
            "llvm_func_attrs": {"amdgpu-waves-per-eu": str(self.tile.waves_per_simd)},
        }

    @property
    def stock(self) -> Instance:
        """The same for a compiler that stores no neighbours in one piece where rows are padding."""
        if not self.layout.lane_columns:
            return self
        return replace(self, tile=replace(self.tile, layout=replace(self.layout, lane_columns=False)))


_TYPES = (*ELEMENT_TYPES, SCALE, "f32")

PAIRS = tuple(product(ELEMENT_TYPES, ELEMENT_TYPES))


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
