"""What kinds of kernels have in common, for every pair of MX element types: `Tile`, `Instance`, and `Kernel`.

A kind is a module with `INSTANCES`: tiles, for element types that they have room for, each with a match rule. Nothing
is written before an instance is linked into an executable.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.formats import ELEMENT_TYPES, element_format
from mxcomp.layout import DataTiledLayout, layout_entries
from mxcomp.target import Target
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.operands import argument_types
from mxcomp.ukernels.waves import ALONE, BLOCK, HALF_STEPS, LANES, SCALE, UNIT_ROWS, Waves

IN_ROWS = ("lhs_in_rows", "rhs_in_rows")
"""Operands of instances that take LHS, or RHS in its place, as it is stored, and all else data-tiled."""

_SIMDS = 4
"""Of a compute unit, for which workgroups have their waves."""

Pairs: TypeAlias = tuple[tuple[int, int], ...]
ALL_BITS: Pairs = tuple(product((4, 6, 8), (4, 6, 8)))
"""Of elements of LHS and RHS, that there are."""


@dataclass(frozen=True)
class Tile:
    """A tile of the family, for M of `min_m` and more. Benefits are below the default of files, which so come first.

    Attributes:
        layout: How operands are packed, and how much of them a workgroup takes.
        waves: Of a workgroup, beside those that the layout has side by side along N.
        bits: Of LHS and RHS elements for which there is an instance: of others registers would be spilled, or other
            tiles are as fast.
        for_rhs: Whether what is read in rows is RHS, and the result is computed transposed.
    """

    layout: DataTiledLayout
    benefit: int
    min_m: int | None = None
    waves: Waves = ALONE
    bits: Pairs = ALL_BITS
    for_rhs: bool = False

    @property
    def units(self) -> tuple[int, int]:
        """Along M and N: one of both where a tile is not over units."""
        return self.layout.units or (1, 1)

    @property
    def fragments(self) -> tuple[int, int]:
        """Of the result, along M and N: of those that are side by side along N, in a wave."""
        layout, (m, n) = self.layout, self.units
        return m * layout.subgroups_m * layout.intrinsics_m, n * layout.intrinsics_n

    @property
    def is_half(self) -> bool:
        """Whether operands are packed in half units: for K that would be padded by half a unit otherwise."""
        return self.layout.units is not None and self.layout.intrinsics_k == HALF_STEPS

    @property
    def lhs_in_rows(self) -> bool:
        """Whether LHS is read as it is stored."""
        return self.waves.lhs_in_rows

    @property
    def max_m(self) -> int | None:
        """The largest M that it is for."""
        return None if self.waves.lhs_rows == UNIT_ROWS else self.waves.lhs_rows

    @property
    def threads(self) -> int:
        """Of a workgroup."""
        return self.layout.threads // self.layout.subgroups_m * self.waves.count

    @property
    def waves_per_simd(self) -> int:
        """What registers have to leave room for."""
        return max(1, self.waves.count * self.waves.occupancy // _SIMDS)

    def fits(self, elements: tuple[str, str]) -> bool:
        """Whether it is for these elements."""
        return tuple(element_format(kind).bits for kind in elements) in self.bits

    def lds_bytes(self, elements: tuple[str, str], target: Target) -> int:
        """What a workgroup takes of LDS."""
        raise NotImplementedError

    def objection(self, elements: tuple[str, str], target: Target) -> str:
        """Why a GPU cannot run it for these elements, whatever its instructions; "" if it can."""
        if (target.wave_size, target.simds) != (LANES, _SIMDS):
            found = f"{target.simds} and {target.wave_size}"
            return f"it is for {_SIMDS} SIMDs and waves of {LANES}: {target.name} has {found}"
        most = target.max_workgroup_threads
        return f"it has {self.threads} threads: {target.name} has at most {most}" if self.threads > most else ""

    @property
    def pattern(self) -> str:
        """The names of its instances."""
        m, n, k = self.layout.workgroup_tile
        suffix = "_single_wave" * (self.threads == LANES)
        suffix += f"_row_major_{'ab'[self.for_rhs]}" * self.lhs_in_rows
        suffix += "" if self.max_m is None else f"_max_m{self.max_m}"
        suffix += "" if self.waves.occupancy == 1 else f"_occupancy{self.waves.occupancy}"
        return f"mx_LHS_RHS_f32_m{m}_n{n}_k{k}{suffix}"


_MOST_HALF_K = 4095
"""Beyond it half a unit of padding is at most 6 %, which tiles over whole units make up for, modelled."""


@dataclass(frozen=True)
class Instance:
    """A member of the family: its tile, the element types of LHS and RHS, and what writes its kernel."""

    tile: Tile
    elements: tuple[str, str]
    kernel: type[Kernel]

    @property
    def layout(self) -> DataTiledLayout:
        return self.tile.layout

    @property
    def name(self) -> str:
        """For example mx_f8E4M3FN_f4E2M1FN_f32_m128_n256_k128."""
        lhs, rhs, *_ = self.types
        return self.tile.pattern.replace("LHS", lhs).replace("RHS", rhs)

    @property
    def path(self) -> Path:
        """The file that it is made from."""
        return Path(inspect.getfile(self.kernel))

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Types of its function's arguments, of which the last ones are those of its results."""
        return argument_types(self.layout, self.elements)

    def lds_bytes(self, target: Target) -> int:
        """What a workgroup takes of LDS."""
        return self.tile.lds_bytes(self.elements, target)

    def missing(self, target: Target) -> str:
        """Which of its instructions a GPU has not; "" if it has all."""
        return target.lacks_instruction(self.layout.intrinsic, self.types)

    def objection(self, target: Target) -> str:
        """Why a GPU cannot run it; "" if it can."""
        if reason := self.missing(target) or self.tile.objection(self.elements, target):
            return reason
        taken, room = self.lds_bytes(target), target.lds_bytes // self.tile.waves.occupancy
        return f"it takes {taken} bytes of LDS: there are {room} of {target.name}" if taken > room else ""

    def module(self, path: Path, target: Target) -> ir.Module:
        """A module with its function, whose rule is an attribute."""
        return builder.module(self.kernel(self, target).function(), self.rule)

    @property
    def types(self) -> tuple[str, ...]:
        """What its rule says that it takes: LHS, RHS, their scales, and the result."""
        return (*self.elements, SCALE, SCALE, "f32")

    @property
    def rule(self) -> dict[str, Any]:
        """The entries of `mxcomp.ukernel`."""
        k_tile = self.layout.tile[2]
        k = {"div": BLOCK} | ({"odd": k_tile, "max": _MOST_HALF_K} if self.tile.is_half else {})
        if self.tile.lhs_in_rows:  # with a single K tile the largest spills registers
            k = {"div": k_tile, "min": 2 * k_tile}
        m = {key: size for key, size in (("min", self.tile.min_m), ("max", self.tile.max_m)) if size}
        return {
            "types": list(self.types),
            **({"operands": IN_ROWS[self.tile.for_rhs]} if self.tile.lhs_in_rows else {}),
            "benefit": self.tile.benefit,
            "constraints": {"k": k} | ({"m": m} if m else {}),
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


def instances(kernel: type[Kernel], tiles: Iterable[Tile]) -> tuple[Instance, ...]:
    """Those of tiles of a kind, for all elements that each is for."""
    pairs = tuple(product(ELEMENT_TYPES, ELEMENT_TYPES))
    return tuple(Instance(tile, pair, kernel) for tile in tiles for pair in pairs if tile.fits(pair))


class Kernel:
    """Writes the kernel of an instance: its parts in their order."""

    results = 1
    """As many as there are accumulators among the arguments, behind all others."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.instance = instance

    def function(self) -> ir.Operation:
        """The function, in no module."""
        types = self.instance.arguments()
        results = types[-self.results :]
        function = builder.function(self.instance.name, types, *results)
        with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
            self._open(*function.operation.regions[0].blocks[0].arguments)
            with builder.threads(self.instance.tile.threads, *map(self._stored_type, results)) as threads:
                self._distribute(threads.number)
                acc = self._main_loop(*self._prologue())
                self._epilogue(acc, threads)
            util.ReturnOp([builder.collapsed(*each) for each in zip(threads.results, results, strict=True)])
        return function.operation

    def _stored_type(self, result: ir.RankedTensorType) -> ir.RankedTensorType:
        """As what threads store a result: itself, or with dimensions in parts."""
        return result

    def _open(self, *arguments: ir.Value) -> None:
        """The operands, and their places in LDS."""
        raise NotImplementedError

    def _distribute(self, thread: Index) -> None:
        """Which wave and lane this is, and what they have of the tile."""
        raise NotImplementedError

    def _prologue(self) -> Sequence[Any]:
        """What the first K tile begins with: values in any form, as a loop carries them."""
        raise NotImplementedError

    def _main_loop(self, *first: Any) -> Values:
        """All K tiles: the accumulators."""
        raise NotImplementedError

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """Stores them."""
        raise NotImplementedError
