"""The base of all kinds of kernels, for every pair of MX element types: `Tile`, `Instance`, and `Kernel`.

A kind is a module with `INSTANCES`: tiles, for the element types that they have room for, each with a match rule. The
code of an instance is written when it is linked into an executable.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.formats import ELEMENT_TYPES, element_format
from mxcomp.layout import DataTiledLayout, layout_entries
from mxcomp.target import Target
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Factor, Index, Values, assume
from mxcomp.ukernels.operands import argument_types
from mxcomp.ukernels.waves import BLOCK, HALF_STEPS, INNER_ROWS, LANES, ONE_WAVE, SCALE, SIMDS, Waves

ROW_MAJOR_SIDES = ("lhs_row_major", "rhs_row_major")
"""The operand forms of instances that read LHS, or RHS in its place, row-major, and all else data-tiled."""

Pairs: TypeAlias = tuple[tuple[int, int], ...]
ALL_BITS: Pairs = tuple(product((4, 6, 8), (4, 6, 8)))
"""The widths of elements of LHS and RHS."""


@dataclass(frozen=True)
class Tile:
    """A tile of the family, for M of at least `min_m`. Benefits are below the default of files, which are preferred.

    Attributes:
        layout: How operands are packed, and how much of them a workgroup takes.
        waves: Those of a workgroup, in addition to those that the layout has along N.
        bits: Of LHS and RHS elements for which there is an instance: of others registers would be spilled, or other
            tiles are as fast.
        for_rhs: Whether what is read in rows is RHS, and the result is computed transposed.
    """

    layout: DataTiledLayout
    benefit: int
    min_m: int | None = None
    waves: Waves = ONE_WAVE
    bits: Pairs = ALL_BITS
    for_rhs: bool = False

    @property
    def inner_tiles(self) -> tuple[int, int]:
        """The number of inner tiles along M and N; 1 each for a tile that is not over inner tiles."""
        return self.layout.inner_tiles or (1, 1)

    @property
    def fragments(self) -> tuple[int, int]:
        """The number of fragments of the result, along M and N; those along N are adjacent in a wave."""
        layout, (m, n) = self.layout, self.inner_tiles
        return m * layout.subgroups_m * layout.intrinsics_m, n * layout.intrinsics_n

    @property
    def is_half(self) -> bool:
        """Whether operands are packed in half inner tiles, as K would be padded by one otherwise."""
        return self.layout.inner_tiles is not None and self.layout.intrinsics_k == HALF_STEPS

    @property
    def lhs_row_major(self) -> bool:
        return self.waves.lhs_row_major

    @property
    def max_m(self) -> int | None:
        return None if self.waves.lhs_rows == INNER_ROWS else self.waves.lhs_rows

    @property
    def threads(self) -> int:
        return self.layout.threads // self.layout.subgroups_m * self.waves.count

    @property
    def waves_per_simd(self) -> int:
        """The number of waves per SIMD for which registers must have room."""
        return max(1, self.waves.count * self.waves.occupancy // SIMDS)

    @property
    def llvm_func_attrs(self) -> dict[str, str]:
        return {"amdgpu-waves-per-eu": str(self.waves_per_simd)}

    def fits(self, elements: tuple[str, str]) -> bool:
        return tuple(element_format(kind).bits for kind in elements) in self.bits

    def lds_bytes(self, elements: tuple[str, str], target: Target) -> int:
        """Returns the bytes of LDS of a workgroup."""
        raise NotImplementedError

    def objection(self, elements: tuple[str, str], target: Target) -> str:
        """Returns why a GPU cannot run it for these elements, whatever its instructions; "" if it can."""
        if (target.wave_size, target.simds) != (LANES, SIMDS):
            found = f"{target.simds} and {target.wave_size}"
            return f"it is for {SIMDS} SIMDs and waves of {LANES}: {target.name} has {found}"
        most = target.max_workgroup_threads
        return f"it has {self.threads} threads: {target.name} has at most {most}" if self.threads > most else ""

    @property
    def pattern(self) -> str:
        m, n, k = self.layout.workgroup_tile
        suffix = "_single_wave" * (self.threads == LANES)
        suffix += f"_row_major_{'ab'[self.for_rhs]}" * self.lhs_row_major
        suffix += "" if self.max_m is None else f"_max_m{self.max_m}"
        suffix += "" if self.waves.occupancy == 1 else f"_occupancy{self.waves.occupancy}"
        return f"mx_LHS_RHS_f32_m{m}_n{n}_k{k}{suffix}"


_MOST_HALF_K = 4095
"""The K above which half an inner tile of padding is at most 6 %: whole inner tiles make up for that, modelled."""


class Stores(NamedTuple):
    """The result of a kernel as its dispatch stores it: the bytes of an element, and whether tiles have padding."""

    element_bytes: int = 2
    padded: bool = False


@dataclass(frozen=True)
class Instance:
    """A member of the family: its tile, the element types of LHS and RHS, and the class that writes its kernel for what
    its dispatch stores."""

    tile: Tile
    elements: tuple[str, str]
    kernel: type[Kernel]
    stores: Stores = field(default=Stores(), kw_only=True)

    @property
    def layout(self) -> DataTiledLayout:
        return self.tile.layout

    @property
    def name(self) -> str:
        """The name, for example mx_f8E4M3FN_f4E2M1FN_f32_m128_n256_k128."""
        lhs, rhs, *_ = self.types
        return self.prefix + self.tile.pattern.removeprefix("mx_").replace("LHS", lhs).replace("RHS", rhs)

    @property
    def prefix(self) -> str:
        """The beginning of names of its kind."""
        return self.kernel.prefix

    @property
    def operands(self) -> str:
        """The match rule's name for its operands; "" for packed ones."""
        return ROW_MAJOR_SIDES[self.tile.for_rhs] if self.tile.lhs_row_major else self.kernel.operands

    @property
    def path(self) -> Path:
        return Path(inspect.getfile(self.kernel))

    @property
    def most_rows(self) -> int | None:
        return self.tile.max_m

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Returns the types of its function's arguments, of which the last ones are those of its results."""
        return argument_types(self.layout, self.elements)

    def lds_bytes(self, target: Target) -> int:
        return self.tile.lds_bytes(self.elements, target)

    def missing(self, target: Target) -> str:
        """Returns the instruction that a GPU lacks; "" if it has all."""
        return target.lacks_instruction(self.layout.intrinsic, self.types)

    def objection(self, target: Target) -> str:
        if reason := self.missing(target) or self.tile.objection(self.elements, target):
            return reason
        taken, room = self.lds_bytes(target), target.lds_bytes // self.tile.waves.occupancy
        return f"it takes {taken} bytes of LDS: there are {room} of {target.name}" if taken > room else ""

    def module(self, path: Path, target: Target) -> ir.Module:
        """Returns a module with its function, whose rule is an attribute."""
        return builder.module(self.kernel(self, target).function(), self.rule)

    @property
    def types(self) -> tuple[str, ...]:
        """The types in its rule: LHS, RHS, their scales, and the result."""
        return (*self.elements, SCALE, SCALE, "f32")

    @property
    def rule(self) -> dict[str, Any]:
        k_tile = self.layout.tile[2]
        k = {"div": BLOCK} | ({"odd": k_tile, "max": _MOST_HALF_K} if self.tile.is_half else {})
        if self.tile.lhs_row_major:  # with a single K tile the largest spills registers
            k = {"div": k_tile, "min": 2 * k_tile}
        m = {key: size for key, size in (("min", self.tile.min_m), ("max", self.most_rows)) if size}
        return {
            "types": list(self.types),
            **({"operands": self.operands} if self.operands else {}),
            "benefit": self.tile.benefit,
            "constraints": {"k": k} | ({"m": m} if m else {}),
            "layout": layout_entries(self.layout),
            "workgroup_size": [self.tile.threads, 1, 1],
            "llvm_func_attrs": self.tile.llvm_func_attrs,
        }

    @property
    def stock(self) -> Instance:
        """Returns the same instance for a compiler that does not store contiguously where rows are padding."""
        if not self.layout.lane_columns:
            return self
        return replace(self, tile=replace(self.tile, layout=replace(self.layout, lane_columns=False)))


def instances(kernel: type[Kernel], tiles: Iterable[Tile]) -> tuple[Instance, ...]:
    """Returns the instances of tiles of a kind, for all elements that each is for."""
    pairs = tuple(product(ELEMENT_TYPES, ELEMENT_TYPES))
    return tuple(Instance(tile, pair, kernel) for tile in tiles for pair in pairs if tile.fits(pair))


class Kernel:
    """Writes the kernel of an instance, part by part."""

    prefix, operands = "mx_", ""
    """The beginning of its instances' names, and the match rule's name for other operands than packed ones."""
    results = 1
    """The number of results, whose accumulators are the last arguments."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.instance, self.layout = instance, instance.layout

    def function(self) -> ir.Operation:
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
        """Returns the type in which threads store a result: its own, or with expanded dimensions."""
        return result

    def _open(self, *arguments: ir.Value) -> None:
        """Sets up the operands, and their parts of LDS."""
        raise NotImplementedError

    def _pairs(self, *operands: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        """Returns elements and scales of LHS, and of each RHS. Of several RHS, scales follow what they are of."""
        elements, scales = (operands[:2], operands[2:]) if self.results == 1 else (operands[::2], operands[1::2])
        return list(zip(elements, scales, strict=True))

    def _ordered(self, a: Factor, b: Factor) -> tuple[Factor, Factor]:
        """Returns the factors of an MFMA: swapped where a lane's accumulators are adjacent in a row of the result."""
        return (b, a) if self.layout.lane_columns else (a, b)

    def _distribute(self, thread: Index) -> None:
        """Computes the wave and lane, and their parts of the tile."""
        waves, self.wave = self.instance.tile.threads // LANES, builder.uniform(thread // LANES)
        if waves > 1:  # with a single wave LLVM would keep more addresses in registers
            self.wave = assume(self.wave, 0, waves - 1)
        self.lane = (thread % LANES).here

    def _prologue(self) -> Sequence[Any]:
        """Returns the values with which the first K tile begins, in any form that a loop carries."""
        raise NotImplementedError

    def _main_loop(self, *first: Any) -> Values:
        """Computes all K tiles, and returns the accumulators."""
        raise NotImplementedError

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        raise NotImplementedError
