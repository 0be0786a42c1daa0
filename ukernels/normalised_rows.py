"""The kernel that normalises rows, quantises them to 4 bits, and packs them in inner tiles: a workgroup for each row.

Four lanes share a block, as in `once.py`, whose functions it calls: `@sum0`, …, `@normalise` and `@quantise`, the
model's arithmetic. A lane has a part of several blocks where a row is longer than the threads of a workgroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.formats import E2M1
from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.brought import CODE_BYTES, NORMALISE, SUM, quantised
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.softmax import added, of_wave
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, INNER_ROWS, LANES, MOST_THREADS, STEPS

_PARTS, _LOAD, _WORD_BITS = 4, 4, 32


def row_types(shape: Sequence[int | None], blocks: int, rows: int) -> list[ir.RankedTensorType]:
    """Returns the types of packed elements and scales of so many blocks and rows, with other dimensions in front."""
    shapes = [blocks, rows, CODE_BYTES], [blocks // STEPS, rows, STEPS]
    return [build.tensor_type([*shape, *each], "i8") for each in shapes]


@dataclass(frozen=True)
class NormalisedRows(standing.Plain):
    """Rows of so many blocks, of 16 bits an element, padded to so many inner tiles; None: a number that the program
    knows.

    `vectors` are the bits of what they are multiplied by, and the like; `functions` a module of what is called.
    """

    rows: int | None
    inner_tiles: int | None
    blocks: int
    sums: int
    vectors: tuple[int, ...]
    functions: str

    @property
    def name(self) -> str:
        vectors = "_".join(map(str, (self.sums, *self.vectors)))
        return f"mx_normalise_r{self.rows}_u{self.inner_tiles}_b{self.blocks}_{vectors}"

    @property
    def tiles(self) -> int:
        return -(-self.blocks // (STEPS * BLOCKS))

    @property
    def threads(self) -> int:
        return min(MOST_THREADS, self.tiles * STEPS * BLOCKS * _PARTS)

    @property
    def words(self) -> list[int]:
        """The words of a block of rows, and of vectors."""
        return [BLOCK * bits // _WORD_BITS for bits in (16, *self.vectors)]

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The words of rows, and of each vector, in one dimension."""
        rows, *vectors = (self.blocks * size for size in self.words)
        counts = [None if self.rows is None else self.rows * rows, *vectors]
        return [build.tensor_type([count], "i32") for count in counts]

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions of results that workgroups have parts of: rows, and inner tiles where there are several."""
        return (1,) if self.inner_tiles == 1 else (0, 2)

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return row_types([self.inner_tiles] * (len(self.along) - 1), self.tiles * STEPS * BLOCKS, INNER_ROWS)

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        of_row = self.blocks * self.words[0]
        count = Index.of(build.dim(given[0], 0)) // of_row if self.rows is None else self.rows
        buffers = [builder.whole_buffer(each) for each in given[: len(self.inputs)]]
        sums = [builder.lds(self.threads // LANES, "f32") for _ in range(self.sums)]
        _Row(self, workgroup, workgroup < count, threads, buffers, sums).write()
        threads.keep()


class _Row:
    def __init__(
        self, spec: NormalisedRows, row: Index, is_row: ir.Value, threads: Threads, buffers: Values, sums: Values
    ) -> None:
        self.spec, self.threads, self.buffers, self.sums, thread = spec, threads, buffers, sums, threads.number
        self.row, self.is_row = select(is_row, row, 0), is_row
        self.wave, self.lane = (thread // LANES).here, (thread % LANES).here
        self.quarter, first = thread % _PARTS, (thread // _PARTS).here
        count = spec.tiles * STEPS * BLOCKS
        self.blocks = [first + start for start in range(0, count, spec.threads // _PARTS)]
        self.words = [self._load(block) for block in self.blocks]

    def _load(self, block: Index) -> Values:
        """Loads a lane's quarter of a block, of rows and of vectors."""
        found = []
        for number, (buffer, words) in enumerate(zip(self.buffers, self.spec.words, strict=True)):
            quarter = words // _PARTS
            place = (self.row * self.spec.blocks + block if number == 0 else block) * words + self.quarter * quarter
            there = select(block < self.spec.blocks, place, BEYOND // 4)
            found.append(builder.joined([builder.load(buffer, [there + i], _LOAD) for i in range(0, quarter, _LOAD)]))
        return found

    def write(self) -> None:
        totals: Values = []
        for stage, parts in enumerate(self.sums):
            totals.append(self._total(stage, parts, totals))
        inner_tile = [0] * (len(self.spec.along) - 1)
        for block, words in zip(self.blocks, self.words, strict=True):
            (own,) = builder.call(NORMALISE, [*words, *totals], words[0].type)
            is_there = builder.both(block < self.spec.blocks, self.is_row)
            put_block(self.threads, inner_tile, block, own, self.quarter < 1, is_there)

    def _total(self, stage: int, parts: ir.Value, totals: Values) -> ir.Value:
        """Returns a sum of the row: what each lane has, then each wave."""
        part = builder.constant_zeros(ir.F32Type.get())
        for block, words in zip(self.blocks, self.words, strict=True):
            (of_block,) = builder.call(f"{SUM}{stage}", [*words, *totals], part.type)
            part = added(part, builder.masked(block < self.spec.blocks, of_block))
        whole = of_wave(part, added)
        with builder.when(self.lane < 1):
            builder.write_lds(builder.from_elements([whole]), parts, self.wave)
        builder.lds_barrier()
        is_wave = self.lane < self.spec.threads // LANES
        mine = builder.element(builder.read_lds(parts, select(is_wave, self.lane, 0), 1), 0)
        return of_wave(builder.masked(is_wave, mine), added)


def put_block(
    threads: Threads, inner_tile: Sequence[int], block: Index, own: ir.Value, is_stored: ir.Value,
    is_there: ir.Value | None,
) -> None:  # fmt: skip
    """Puts a block into packed elements and scales of a row, of which each lane of a quad has a quarter.

    One of them stores it; zeros where it is not there.
    """
    whole = builder.from_elements(builder.all_of_quad(own))
    code, scale = quantised(E2M1.mlir_type, whole)
    if is_there is not None:
        code, scale = builder.masked(is_there, code), builder.masked(is_there, scale)
    byte = builder.from_elements([scale])
    step, group, tile = block // BLOCKS % STEPS, block % BLOCKS, block // (STEPS * BLOCKS)
    threads.put(0, [*inner_tile, block, 0, 0], CODE_BYTES, code, is_stored)
    threads.put(1, [*inner_tile, tile * BLOCKS + group, 0, step], 1, byte, is_stored)
