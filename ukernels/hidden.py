"""Kernels of gate and up that quantise hidden activations, and pack them as the LHS of the product behind.

They are kernels of two matrices of which a workgroup has whole blocks of 32 columns: `@activate` makes hidden
activations of a lane's eight gates and ups, four lanes exchange them, and `@quantise` makes a block. Both are the
model's arithmetic, which a dispatch brings. Operands are those of `dual_packed.py`, all given to each workgroup.

Elements lie by tiles and inner tiles of rows, K tile, step, block, half, row, and scales by K tile, block, row, step:
so what a workgroup stores is a part of each along some of its dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod

from iree.compiler import ir
from iree.compiler.dialects import rocdl

from mxcomp.layout import LHS, RHS
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, dual_packed, family, split_k, standing
from mxcomp.ukernels.brought import ACTIVATE, quantised
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.dual_packed import BOTH, DualPacked
from mxcomp.ukernels.softmax import swapped
from mxcomp.ukernels.waves import BLOCK, BLOCKS, INNER_ROWS, LANES, MFMA, STEPS, VALUES, in_columns, inner_tiled_layout

PART = BLOCK // BLOCKS
"""The number of columns of a block that a lane has."""
_INNER_TILES = BLOCK // INNER_ROWS
"""The inner tiles along N that have a block."""
_PIECE, _WORD_BITS = 16, 32
"""The bytes of a row that lie together."""


@dataclass(frozen=True)
class Instance(family.Instance):
    """A member; `plain` is the instance for one matrix with the columns of both, which takes the same time."""

    kernel: type[FewRows | ManyRows]
    plain: family.Instance

    prefix = "mx_packed_hidden_"

    def covers(self, problem: Problem) -> bool:
        """Returns whether it computes problems alike two at a time."""
        is_few = issubclass(self.kernel, FewRows)
        rows = 0 if problem.dynamic or problem.batch else problem.m or 0
        return self.types == problem.types and rows > 0 and (rows <= self.layout.workgroup_tile[0] or not is_few)


@dataclass(frozen=True)
class Hidden(standing.Plain):
    """The dispatch of an instance: rows and columns of so many tiles, K tiles, and blocks of hidden activations a row.

    Of a dynamic number of rows None is the number of their tiles.

    `element` is the type of what is quantised, `bits` are those of an activation before, `functions` a module of what
    is called.
    """

    instance: Instance
    target: Target = field(repr=False)
    """Not in the digest: sets are printed in any order."""
    tiles: tuple[int | None, int]
    k_tiles: int
    blocks: int
    element: str
    bits: int
    functions: str

    @property
    def name(self) -> str:
        return f"{self.instance.name}_{builder.digest(self)}"

    @property
    def threads(self) -> int:
        return self.instance.tile.threads

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [
            build.tensor_type([None if tiles is None else tiles * prod(tile)], "i8") for tiles, *tile in self._shapes
        ]

    @property
    def _shapes(self) -> list[tuple[int | None, int, int, int]]:
        """The dimensions of operands: tiles, inner tiles, K tiles, bytes of an inner tile."""
        steps, sides = self.instance.layout.intrinsics_k, (LHS, *[RHS] * len(BOTH))
        return [
            (self.tiles[side], self.instance.tile.inner_tiles[side], self.k_tiles, steps * LANES * size)
            for side in sides
            for size in (MFMA.lane_bytes(self.instance.elements[side]), 1)
        ]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        sizes = {**self._sizes, "tile": self.tiles[0]}
        return [build.tensor_type([sizes[name] for name in dims], "i8") for dims in _DIMS]

    @property
    def along(self) -> list[tuple[int, ...]]:
        """The dimensions of each result that workgroups have parts of."""
        return [tuple(map(dims.index, _LOOPS)) for dims in _DIMS]

    @property
    def _sizes(self) -> Mapping[str, int]:
        inner_m, inner_n = self.instance.tile.inner_tiles
        own = inner_n // _INNER_TILES
        return {
            "tile": self.tiles[0] or 0, "inner_tile": inner_m, "k_tile": -(-self.blocks // (STEPS * BLOCKS)),
            "step": STEPS, "part": BLOCKS // own, "block": own, "half": self._halves, "row": INNER_ROWS, "byte": _PIECE,
        }  # fmt: skip

    @property
    def _halves(self) -> int:
        return MFMA.lane_bytes(self.element) // _PIECE

    @property
    def llvm_func_attrs(self) -> Mapping[str, str]:
        return self.instance.tile.llvm_func_attrs

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        kernel = self.instance.kernel(self.instance, self.target)
        sizes = self._sizes
        in_row = sizes["k_tile"] * sizes["step"] * sizes["part"]
        row, column = workgroup // in_row, (workgroup % in_row).here
        _, columns = self.tiles
        there = column if in_row == columns else select(column < columns, column, 0).here
        tiles = [row, row, *[there] * (len(self.inputs) - 2)]
        operands = [_tile(*each) for each in zip(given[: len(tiles)], self._shapes, tiles, strict=True)]
        kernel.put(self, operands, threads, column * sizes["block"])
        threads.keep()

    # What kernels call.

    def activated(self, gates: ir.Value, ups: ir.Value) -> ir.Value:
        """Returns words of a lane's part of a block of hidden activations, from f32 gates and ups."""
        words = ir.VectorType.get([PART * self.bits // _WORD_BITS], builder.i32_type())
        return builder.call(ACTIVATE, [gates, ups], words)[0]

    def put(
        self, threads: Threads, at: Mapping[str, Index | int], words: Values, is_there: ir.Value,
        is_stored: ir.Value | None = None,
    ) -> None:  # fmt: skip
        """Puts a lane's block of hidden activations into results, or zeros where it is not there."""
        code, scale = (builder.masked(is_there, each) for each in quantised(self.element, builder.from_elements(words)))
        for half in range(self._halves):
            piece = partial(builder.part, code, half * _PIECE, _PIECE)
            threads.put(0, _place(0, {**at, "half": half}), _PIECE, piece, is_stored)
        threads.put(1, _place(1, at), 1, builder.from_elements([scale]), is_stored)


_LOOPS = "tile", "k_tile", "step", "part"
_DIMS = (
    ("tile", "inner_tile", "k_tile", "step", "part", "block", "half", "row", "byte"),
    ("tile", "inner_tile", "k_tile", "part", "block", "row", "step"),
)
"""The dimensions of elements and of scales."""


def _place(result: int, at: Mapping[str, Index | int]) -> list[Index | int]:
    return [at.get(name, 0) for name in _DIMS[result]]


def _tile(operand: ir.Value, shape: Sequence[int | None], number: Index) -> ir.Value:
    """Returns a tile of an operand: [1, inner tiles, K tiles, bytes]."""
    own = [1, *(each or 0 for each in shape[1:])]
    count = [(Index.of(build.dim(operand, 0)) // prod(own)).value] if shape[0] is None else []
    tiles = build.expand(operand, shape, sizes=count)
    return builder.without_size(build.sliced(tiles, [number.value, 0, 0, 0], own), 2)


def whole_blocks(parts: Sequence[ir.Value]) -> list[Values]:
    """Returns words of a block in each lane, from parts of four of them: of each one four lanes, 16 apart, have it.

    Groups of 16 lanes get the first block, the second, and so on.
    """
    count = ir.VectorType(parts[0].type).shape[0]
    rows = [[builder.element(part, word) for word in range(count)] for part in parts]
    for swap, distance in ((rocdl.Permlane16SwapOp, 1), (rocdl.Permlane32SwapOp, 2)):
        for first in range(BLOCKS):
            if first & distance == 0:
                pairs = [swapped(swap, *pair) for pair in zip(rows[first], rows[first + distance], strict=True)]
                rows[first], rows[first + distance] = ([pair[i] for pair in pairs] for i in range(2))
    return [word for row in rows for word in row]


# Few rows


class FewRows(split_k.Stream):
    """Writes the kernel of an instance: `split_k.Stream` of two matrices, whose sums a wave has of a whole block."""

    results = len(BOTH)

    def put(self, spec: Hidden, operands: Values, threads: Threads, block: Index) -> None:
        """Puts a workgroup's part into results, from a block on. A wave has a block of each row of an inner tile."""
        self._open(*operands, *threads.outs)
        self._distribute(threads.number)
        acc = self._main_loop(*self._prologue())
        inner_m, inner_n = self.inner_tiles
        in_turn = product(BOTH, range(inner_m), range(inner_n))
        self._exchange([acc[(m * self.results + of) * inner_n + n] for of, m, n in in_turn])
        count = inner_n // _INNER_TILES
        inner_tile, own = (self.wave // count).here, (self.wave % count).here
        group, row = (self.lane // INNER_ROWS).here, (self.lane % INNER_ROWS).here
        fragment = inner_tile * inner_n + own * _INNER_TILES + group // 2

        def put() -> None:
            lanes = [row + (group % 2 * 2 + i) * INNER_ROWS for i in range(PART // VALUES)]
            sums = self._added(lambda wave: [self._place(wave, fragment, lane) for lane in lanes], VALUES)
            gates, ups = (builder.joined(sums[i : i + len(lanes)]) for i in range(0, len(sums), len(lanes)))
            words = whole_blocks([spec.activated(gates, ups)] * BLOCKS)
            at = {"inner_tile": inner_tile, "block": own, "row": row}
            spec.put(threads, at, words, block + own < spec.blocks, group < 1)

        threads.where(self.wave < inner_m * count, put)


def _few_rows(plain: family.Instance) -> Instance | None:
    """Returns the instance with half of a plain one's columns for each matrix, if lanes have whole blocks."""
    tile, (inner_m, inner_n) = plain.tile, plain.tile.inner_tiles
    if tile.is_half or tile.max_m is not None or tile.waves.k < 2 or inner_n < 2 * _INNER_TILES:
        return None
    layout = in_columns(inner_tiled_layout(inner_m, inner_n // 2))
    return Instance(replace(tile, layout=layout), plain.elements, FewRows, plain)


# Many rows


class ManyRows(DualPacked):
    """Writes the kernel of an instance: `DualPacked`, in which a lane has eight columns of each of a wave's rows."""

    def put(self, spec: Hidden, operands: Values, threads: Threads, block: Index) -> None:
        """Puts a workgroup's part into results, from a block on. A lane gets blocks of one in four fragments."""
        self._open(*operands, *threads.outs)
        self._distribute(threads.number)
        acc = self._main_loop(*self._prologue())
        builder.wait_groups(0)
        (group, row), count = self.lane_place, self.columns // len(BOTH)
        for of_wave, first in product(range(0, count, _INNER_TILES), range(0, self.rows, BLOCKS)):
            own = (self.column + of_wave) // _INNER_TILES
            parts = [
                spec.activated(*(self._eight(acc, inner_tile, of * count + of_wave) for of in BOTH))
                for inner_tile in range(first, first + BLOCKS)
            ]
            at = {"inner_tile": self.row + first + group, "block": own, "row": row}
            spec.put(threads, at, whole_blocks(parts), block + own < spec.blocks)

    def _eight(self, acc: Values, inner_tile: int, column: int) -> ir.Value:
        """Returns what a lane has of two fragments that are joined."""
        first = inner_tile * self.columns + column
        return builder.joined(acc[first : first + _INNER_TILES])


def _many_rows(dual: dual_packed.Instance) -> Instance | None:
    """Returns the instance with a tile of `dual_packed.py`, if lanes have a part of a block."""
    *_, rhs = dual.tile.unstaged(dual.elements) if isinstance(dual.tile, dual_packed.Tile) else [None]
    is_whole = rhs is not None and rhs.joined and dual.tile.inner_tiles[LHS] // dual.tile.waves.m % BLOCKS == 0
    return Instance(dual.tile, dual.elements, ManyRows, dual.plain) if is_whole else None


INSTANCES = (
    *filter(None, map(_few_rows, split_k.INSTANCES)),
    *filter(None, map(_many_rows, dual_packed.INSTANCES)),
)
