"""LHS and RHS of a kernel: from memory to the registers of an MFMA, directly (`Direct`), or through LDS.

`Staging` describes the part of an operand in LDS; `Operand` copies it there, and reads fragments of it. Operands in
memory are packed in inner tiles (preshuffled blocks, `mxcomp.layout`), or row-major (`RowMajor`).

In LDS, the fragments of a step along K are contiguous, and so are the bytes of a fragment's lanes, as they are read.
Scales are stored by K tiles: for each fragment those of all lanes, of all steps of the tile.

Where fragments are joined in pairs, a lane reads rows of both inner tiles. The quads of rows of every second inner tile
are swizzled in LDS so that they do not conflict on banks with those of the other inner tile that are read at the same
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from iree.compiler import ir

from mxcomp.layout import ACC, DataTiledLayout
from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Factor, Index, Values, Window, select
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, INNER_PIECES, INNER_ROWS, LANES, MFMA, SCALE, Pieces

COPIED_SCALES, SCALE_VECTOR = 4, 4
"""The number of scales that a lane copies at a time; and of those of which an MFMA selects one by its index."""


@dataclass(frozen=True)
class Staging:
    """The LDS staging of LHS or RHS.

    Attributes:
        fragments: Along M or N.
        steps: MFMA along K that a K tile takes.
        fragment_bytes: Of a fragment in a lane.
        waves: That copy.
        is_row_major: Whether elements are as they are stored, row-major (`RowMajor`).
        joined: Whether of each two of a wave's fragments the first one has the first four of each eight rows of both
            inner tiles, and the second one the others.
        stages, scale_slots: Steps of elements, and K tiles of scales, that LDS holds.
    """

    fragments: int
    steps: int
    fragment_bytes: int
    waves: int
    is_row_major: bool = False
    joined: bool = False
    stages: int = 0
    scale_slots: int = 0

    @property
    def pieces(self) -> Pieces:
        """The loads and reads of a fragment."""
        return INNER_PIECES[self.fragment_bytes]

    @property
    def inner_tile_stride(self) -> int:
        """The distance of fragments in LDS."""
        return LANES * self.fragment_bytes

    @property
    def copies(self) -> int:
        return self.fragments * self.pieces.count

    @property
    def copy_turns(self) -> int:
        return -(-self.copies // self.waves)

    @property
    def scale_copies(self) -> int:
        return self.fragments * self.steps // COPIED_SCALES

    @property
    def scale_span(self) -> int:
        """The number of inner tiles whose scales one copy has: of half inner tiles it is two."""
        return max(1, COPIED_SCALES // self.steps)

    @property
    def stage_bytes(self) -> int:
        """The bytes of a step, plus one fragment for waves that have none to copy."""
        is_uneven = self.copies % self.waves > 0
        return (self.fragments + is_uneven) * self.inner_tile_stride

    @property
    def scale_bytes(self) -> int:
        """The bytes of the scales of a K tile."""
        return (self.scale_copies + (self.scale_copies % self.waves > 0)) * LANES * COPIED_SCALES

    @property
    def ring_bytes(self) -> int:
        return self.stages * self.stage_bytes

    @property
    def scale_ring_bytes(self) -> int:
        return self.scale_slots * self.scale_bytes


def stages_in(sides: Sequence[Staging], scale_slots: int, room: int) -> int:
    """Returns the number of steps of LHS and RHS that fit into so many bytes of LDS, with scales of so many K tiles."""
    room -= sum(scale_slots * each.scale_bytes for each in sides)
    return room // sum(each.stage_bytes for each in sides)


def argument_types(layout: DataTiledLayout, elements: tuple[str, str]) -> tuple[ir.RankedTensorType, ...]:
    """Returns the argument types of a kernel over inner tiles: LHS, RHS, their scales, and its result."""
    kinds = (*elements, SCALE, SCALE)
    inner_tiles = layout.inner_tiles or (1, 1)
    taken = (
        layout.multiplied_shape(operand, layout.packed_shape(operand, (inner_tiles[operand % 2], None)))
        for operand in range(ACC)
    )
    operands = (build.tensor_type((1, *shape[1:]), kind) for shape, kind in zip(taken, kinds, strict=True))
    return (*operands, build.tensor_type(layout.packed_shape(ACC, (1, 1)), "f32"))


_QUAD = 4
"""The number of rows of a fragment whose accumulators a lane has."""

_INNER_TILES, _ROWS = 1, 6
"""Dimensions of an operand: [1, inner tiles, K tiles, 1, steps, blocks, rows, bytes]."""


class Operand:
    """LHS or RHS, packed in inner tiles.

    `fragments` are what a wave multiplies of it. `k_tiles` is how many K tiles there are: `beyond` is one that no
    buffer has, whose loads get nothing.
    """

    def __init__(
        self, elements: ir.Value, scales: ir.Value, element: str, fragments: int, staging: Staging, k_tiles: Index
    ) -> None:
        self.staging, self.element, self.fragments, self._k_tiles = staging, element, fragments, k_tiles
        self.beyond = -(-BEYOND // self._tile_bytes)
        self._source = self._opened(elements)
        self._scale_source = packed_buffer(scales, k_tiles)

    def _opened(self, elements: ir.Value) -> ir.Value:
        return packed_buffer(elements, self._k_tiles)

    def stage(self) -> None:
        self._ring = builder.lds(self.staging.ring_bytes)

    def stage_scales(self) -> None:
        self._scale_tiles = builder.lds(self.staging.scale_ring_bytes)

    def distribute(self, wave: Index, lane: Index, first: Index) -> None:
        """Sets the parts that a lane copies, and reads; `first` is the first of its wave's fragments."""
        self._wave = wave
        span = self.staging.scale_span
        self._copied = self._copied_by(lane)
        self._scales_copied = ((lane % (LANES // span) if span > 1 else lane) * COPIED_SCALES).here
        self._scale_inner_tile = (lane // (LANES // span)).here if span > 1 else Index.of(0)
        inner_tile, owner, copiers = self._reads(lane)
        self._read_from = [self._place_in_ring(first, inner_tile, each).here for each in copiers]
        self._scales_read_from = self._place_in_scales(first, inner_tile, owner).here

    def _place_in_ring(self, first: Index, inner_tile: Index, lane: Index) -> Index:
        """Returns the index in a step, in LDS, of a lane's part of an inner tile, counted from the wave's first one."""
        return (first + inner_tile) * self.staging.inner_tile_stride + lane * self.staging.pieces.read

    def _place_in_scales(self, first: Index, inner_tile: Index, lane: Index) -> Index:
        return ((first + inner_tile) * LANES + lane) * self.staging.steps

    def in_bounds(self, tile: Index) -> Index:
        """Returns a K tile, or the out-of-bounds one after the last."""
        return select(tile < self._k_tiles, tile, self.beyond)

    def copy(self, tile: Index, step: int, to: Index, turns: Iterable[int] | None = None) -> None:
        """Starts the copy of a step of a K tile to a stage of the ring buffer: each wave its part, or some rounds."""
        pieces, staging = self.staging.pieces, self.staging
        for number, is_real in self._shared_out(staging.copies, turns):
            fragment, piece = number // pieces.count, number % pieces.count
            place = to + piece * (pieces.size * LANES)
            real, place_of, real_tile = self._real(is_real, fragment, staging.fragments, tile)
            place += place_of * (LANES * staging.fragment_bytes)
            byte = self._copied + piece * pieces.step + step * self._step_bytes
            source = in_tile(self._source, real, real_tile, byte)
            builder.copy_to_lds(self._source, source, self._ring, place, pieces.size)

    def copy_scales(self, tile: Index, slot: Index | int) -> None:
        staging, scale_pieces = self.staging, -(-self.staging.steps // COPIED_SCALES)
        for number, is_real in self._shared_out(staging.scale_copies):
            real, place_of, real_tile = self._real(is_real, number, staging.scale_copies, tile)
            fragment = real // scale_pieces * staging.scale_span + self._scale_inner_tile
            byte = self._scales_copied + real % scale_pieces * (LANES * COPIED_SCALES)
            place = in_tile(self._scale_source, fragment, real_tile, byte)
            to = slot * staging.scale_bytes + place_of * (LANES * COPIED_SCALES)
            builder.copy_to_lds(self._scale_source, place, self._scale_tiles, Index.of(to), COPIED_SCALES)

    def fragment(self, number: int, place: Index) -> ir.Value:
        """Reads one of the wave's fragments of a step from a stage of the ring buffer."""
        staging, of_two = self.staging, number % len(self._read_from)
        first = place + (number - of_two) * staging.inner_tile_stride + self._read_from[of_two]
        return read_fragment(self._ring, first, staging.inner_tile_stride, staging.pieces)

    def scales(self, number: int, slot: Index | int) -> ir.Value:
        """Reads a lane's scales for one of the wave's fragments, of all steps of the K tile in a slot."""
        staging, of_two = self.staging, number % len(self._read_from)
        behind = ((number - of_two) * LANES + of_two * _QUAD) * staging.steps
        at = slot * staging.scale_bytes + behind + self._scales_read_from
        return builder.padded(builder.read_lds(self._scale_tiles, at, staging.steps), max(staging.steps, SCALE_VECTOR))

    def factor(self, fragment: ir.Value, scales: ir.Value, step: int) -> Factor:
        """Returns a fragment of a step as an MFMA takes it, and its scale, one of those of all steps."""
        return factor(fragment, self.element, scales, step)

    def _shared_out(self, copies: int, turns: Iterable[int] | None = None) -> Iterator[tuple[Index, ir.Value | None]]:
        """Yields the numbers of what this wave copies, and whether each exists, if copies are not shared evenly."""
        for turn in range(-(-copies // self.staging.waves)) if turns is None else turns:
            number = self._wave + turn * self.staging.waves
            yield number, number < copies if copies % self.staging.waves else None

    def _real(self, is_real: ir.Value | None, number: Index, count: int, tile: Index) -> tuple[Index, Index, Index]:
        """Returns the copied fragment, its index in LDS, and its K tile: out of bounds and unused if not real."""
        if is_real is None:
            return number, number, tile
        return select(is_real, number, 0), select(is_real, number, count), select(is_real, tile, self.beyond)

    # How it lies in memory

    @property
    def _tile_bytes(self) -> int:
        return self.staging.steps * self.staging.inner_tile_stride

    def _copied_by(self, lane: Index) -> Index:
        """Returns the byte of a piece of a fragment that a lane copies from."""
        pieces = self.staging.pieces
        if not self.staging.joined:
            return (lane * pieces.lane).here
        reader = lane * pieces.size // pieces.read ^ self._is_odd * _QUAD
        return (reader * pieces.read + lane * pieces.size % pieces.read).here

    @property
    def _is_odd(self) -> Index:
        """Returns 1 if this wave copies the second of each pair of inner tiles, else 0."""
        return self._wave // self.staging.pieces.count % 2

    def _reads(self, lane: Index) -> tuple[Index, Index, list[Index]]:
        """Returns whose part of a fragment a lane reads, by numbers of inner tile and lane, and who has copied it.

        Of two fragments that are joined, that of the first one, and who has copied them: the second one's is `_QUAD`
        rows behind.
        """
        if not self.staging.joined:
            return Index.of(0), lane, [lane]
        block, (second, row) = lane // INNER_ROWS, _of_two(lane % INNER_ROWS)
        keys = [row + second * _QUAD, row + _QUAD + second * -_QUAD]
        return second, block * INNER_ROWS + row, [block * INNER_ROWS + key for key in keys]

    @property
    def _step_bytes(self) -> int:
        return self._tile_bytes // self.staging.steps

    @property
    def _fragment_stride(self) -> Index:
        return self._k_tiles * self._tile_bytes


class Direct:
    """LHS or RHS, packed, loaded directly into registers: a lane's part of a fragment, as an MFMA takes it.

    Of few `rows` no others are loaded. With `row_lines` the four blocks of a row lie together: of 8-bit elements, first
    halves of its blocks and then second ones. Of elements of more bytes than a buffer has it reads those in a `window`.
    """

    def __init__(
        self, packed: tuple[ir.Value, ir.Value], k_tiles: Index, element: str, pieces: Mapping[int, Pieces],
        row_lines: bool = False, rows: int | None = None, window: Window | None = None,
    ) -> None:  # fmt: skip
        elements, scales = packed
        self._source, self._scale_source = packed_buffer(elements, k_tiles, window), packed_buffer(scales, k_tiles)
        self.element, self._row_lines, self._rows = element, row_lines, rows
        self._size = MFMA.lane_bytes(element)
        self._pieces, self._fragment_bytes = pieces[self._size], LANES * self._size

    def distribute(self, lane: Index) -> None:
        """Sets where a lane's part of a fragment begins, and the distance of its pieces."""
        stride, self._next_piece = self._pieces.direct
        at = lane * stride
        if self._row_lines:
            row, block, is_in_halves = lane % INNER_ROWS, lane // INNER_ROWS, not MFMA.holds_blocks(self.element)
            at = row * (BLOCKS * self._size) + block * (self._pieces.size if is_in_halves else self._size)
            self._next_piece = self._pieces.size * (BLOCKS if is_in_halves else 1)
            at = at if self._rows is None else select(row < self._rows, at, _NO_ROW)
        self._from = at.here

    def pieces(self, fragment: Index | int, tile: Index, byte: Index | int) -> Values:
        """Loads a lane's pieces of what begins at a byte of a K tile."""
        bytes_ = [self._from + byte + piece * self._next_piece for piece in range(self._pieces.count)]
        places = [in_tile(self._source, Index.of(fragment), tile, each) for each in bytes_]
        return [builder.load(self._source, place, self._pieces.size) for place in places]


_NO_ROW = 3 * 2**30
"""An out-of-bounds byte offset, for rows of a fragment that are not loaded.

With those of a K tile beyond the last one they are, modulo 2³², not the first ones again.
"""


def _of_two(row: Index) -> tuple[Index, Index]:
    """Returns the inner tile, and its row, that a lane reads for a row of the first of two joined fragments."""
    quad, second = (row // _QUAD).here, (row // (2 * _QUAD)).here
    return second, (quad % 2 * (2 * _QUAD) + row % _QUAD).here


class RowMajor(Operand):
    """Row-major elements of 4 bits, as they are stored; only scales are packed.

    A step takes 64 bytes of a row. A lane loads 16 of them, a chunk. Rows lie in LDS one after the other, their four
    chunks under a key of the row, by which the 16 lanes of a read meet no bank twice.
    """

    CHUNKS = 4
    """The number of chunks of a row in a step."""

    def _opened(self, elements: ir.Value) -> ir.Value:
        """Returns [1, inner tiles, K tiles, 1, steps, chunks, rows, bytes] strides of inner tiles and rows dynamic."""
        chunk, tile = self.staging.fragment_bytes, self.CHUNKS * self.staging.fragment_bytes
        shape = [*build.static_sizes(elements)[:-1], chunk]
        strides = [None, None, tile * self.staging.steps, tile * self.staging.steps, tile, chunk, None, 1]
        return builder.buffer(elements, self._k_tiles, shape, strides)

    @property
    def _tile_bytes(self) -> int:
        return self.staging.steps * self.CHUNKS * self.staging.fragment_bytes

    @property
    def _fragment_stride(self) -> Index:
        return builder.stride(self._source, _INNER_TILES)

    def _copied_by(self, lane: Index) -> Index:
        row, chunk = lane // self.CHUNKS, lane % self.CHUNKS
        key = _key(row) ^ self._is_odd if self.staging.joined else _key(row)
        return (row.times(builder.stride(self._source, _ROWS)) + (chunk ^ key) * self.staging.fragment_bytes).here

    def _reads(self, lane: Index) -> tuple[Index, Index, list[Index]]:
        inner_tile, row, block = Index.of(0), lane % INNER_ROWS, lane // INNER_ROWS
        if not self.staging.joined:
            return inner_tile, lane, [row * self.CHUNKS + (block ^ _key(row))]
        inner_tile, row = _of_two(row)
        copiers = [each * self.CHUNKS + (block ^ _key(each) ^ inner_tile) for each in (row, row + _QUAD)]
        return inner_tile, block * INNER_ROWS + row, copiers


def _key(row: Index) -> Index:
    """Returns the swizzle of the chunks of a row: 0, 2, 3, 1 for rows from 0, 4, 8 and 12."""
    return row // 8 + (row // 4 + row // 8) % 2 * 2


def _strides(shape: Sequence[int | None]) -> list[int | None]:
    """Returns the strides of a packed operand, contiguous in an inner tile, of an unknown number of K tiles."""
    k_tiles = shape.index(None)
    return [*[None] * k_tiles, *(prod(size or 1 for size in shape[i + 1 :]) for i in range(k_tiles, len(shape)))]


def packed_buffer(operand: ir.Value, k_tiles: Index, window: Window | None = None) -> ir.Value:
    """Returns packed elements or scales as bytes in global memory."""
    *outer, size = build.static_sizes(operand)
    shape = [*outer, (size or 0) * build.element(operand).width // 8]
    return builder.buffer(operand, k_tiles, shape, _strides(shape), window=window)


def read_fragment(ring: ir.Value, first: Index, size: int, pieces: Pieces) -> ir.Value:
    """Reads a lane's part of a fragment of so many bytes, whose pieces are contiguous by lanes."""
    starts = range(0, size, LANES * pieces.read)
    return builder.joined([builder.read_lds(ring, first + start, pieces.read) for start in starts])


def factor(fragment: ir.Value, element: str, scales: ir.Value, number: int) -> Factor:
    """Returns a lane's bytes of a fragment, and four of its scales. An MFMA selects the fragment's by its index."""
    first, (size,) = number // SCALE_VECTOR * SCALE_VECTOR, ir.VectorType(scales.type).shape
    block = builder.bitcast(fragment, element, BLOCK)
    four = builder.padded(builder.part(scales, first, min(SCALE_VECTOR, size)), SCALE_VECTOR)
    return block, (builder.bitcast(four, SCALE, SCALE_VECTOR), number - first)


def in_tile(buffer: ir.Value, fragment: Index, tile: Index, byte: Index) -> list[Index]:
    """Returns the index of a byte of a K tile: [(1,) inner tiles, K tiles, …], and the byte in the last dimension."""
    kind, zero = ir.MemRefType(buffer.type), Index.of(0)
    k_tiles = kind.shape.index(build.DYNAMIC)
    return [*[zero] * (k_tiles - 1), fragment, tile, *[zero] * (kind.rank - k_tiles - 2), byte]
