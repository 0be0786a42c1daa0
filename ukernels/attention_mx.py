"""Attention of MX operands, many queries: both products by scaled MFMA, weights quantised in registers.

A step has 128 keys. Waves copy keys and values to LDS together while all multiply the previous step. For each 16 of its
queries a wave computes scores[keys, queries] = keys · queriesᵀ. Rows are ordered such that a lane has the 32 weights
that are its factor of values · weights, which therefore stay in registers.

Weights are powers of 2, in MX by blocks of 32 keys. A query's sums are scaled by an integer power of 2, which is known
from the first step on and changes only where a block's scale is far above it; scales of weights have the rest
(`mxcomp.ir.attention` defines the result). A fragment of ones in place of values sums the weights.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl
from iree.compiler.dialects import math as mlir_math

from mxcomp.formats import ElementFormat, element_format
from mxcomp.mlir import build
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.attention import Pieces, kept
from mxcomp.ukernels.builder import Factor, Index, Threads, Values, element, loop, select, uniform
from mxcomp.ukernels.conversions import CONVERSIONS
from mxcomp.ukernels.operands import factor
from mxcomp.ukernels.softmax import LOWEST, added, exp2, largest, number, of_column, splat, swapped, tree
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, LANES, MFMA, SCALE, UNIT_PIECES, UNIT_ROWS, VALUES

STEP = BLOCK * BLOCKS
"""The number of keys of a step, which is K of an MFMA."""
FRAGMENTS = STEP // UNIT_ROWS
"""The number of fragments of a step's scores."""
SIZES = 64
"""The number that sizes of values are a multiple of: four fragments, among whose scales an MFMA selects."""
_ROOM = 16
"""The largest distance, as a power of 2, of a block's scale above the scale of a query's sums."""
_BIAS, _MOST_SCALE, _NO_SCALE = 127, 254, 255


@dataclass(frozen=True)
class MxPrefill:
    """The kernel's parameters.

    Attributes:
        heads: Of queries, in all batches.
        queries: Of each head.
        shared: Heads of queries, one behind the other, that share keys.
        size, value_size: Of a query or key, and of a value.
        keys: Behind which there is padding, up to a whole block.
        scale: Of scores, times log2(e).
        is_causal: Whether query t sees keys up to t only.
        elements: Types of queries and keys, of values, and of weights.
        waves, fragments: Of a workgroup; of 16 queries that a wave has.
        result: The type of results.
    """

    heads: int
    queries: int
    shared: int
    size: int
    value_size: int
    keys: int
    scale: float
    is_causal: bool
    elements: tuple[str, str, str]
    waves: int
    fragments: int
    result: str

    @property
    def threads(self) -> int:
        return self.waves * LANES

    @property
    def tile(self) -> int:
        """The number of queries of a workgroup."""
        return self.waves * UNIT_ROWS * self.fragments

    @property
    def tiles(self) -> int:
        """The number of workgroups of a head."""
        return -(-self.queries // self.tile)

    @property
    def workgroups(self) -> int:
        return self.heads * self.tiles

    @property
    def padded_keys(self) -> int:
        return -(-self.keys // BLOCK) * BLOCK

    @property
    def steps(self) -> int:
        return -(-self.keys // STEP)

    @property
    def depths(self) -> int:
        """The number of MFMA along the size of a key."""
        return -(-self.size // STEP)

    @property
    def sums(self) -> int:
        """The number of fragments of a value."""
        return self.value_size // UNIT_ROWS

    @property
    def name(self) -> str:
        """The name of the kernel: its purpose, and a digest of all parameters."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:8]
        causal = "_causal" if self.is_causal else ""
        kinds = "_".join(f"f{element_format(kind).bits}" for kind in self.elements)
        return f"mx_attention_{kinds}_m{self.tile}_d{self.size}{causal}_{digest}"

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The inputs as bytes: elements and scales of queries, keys and values; scales of both latter as `key_order`
        says."""
        rows, key_heads = self.heads * self.queries, self.heads // self.shared
        qk, v = (element_format(kind).bits for kind in self.elements[:2])
        steps = key_heads * self.steps * LANES
        sizes = (
            rows * self.size * qk // 8, rows * self.size // BLOCK,
            key_heads * self.padded_keys * self.size * qk // 8, steps * self.depths * FRAGMENTS,
            key_heads * self.value_size * self.padded_keys * v // 8, steps * self.sums,
        )  # fmt: skip
        return [build.tensor_type([size], "i8") for size in sizes]

    @property
    def lds_bytes(self) -> int:
        return 2 * sum(each.bytes for each in self.staged)

    @property
    def staged(self) -> tuple[Staged, Staged]:
        """The LDS staging of keys and values of a step."""
        qk, v, _ = self.elements
        return Staged(qk, FRAGMENTS * self.depths, self.waves), Staged(v, self.sums, self.waves)

    def result_types(self, workgroups: int) -> list[ir.RankedTensorType]:
        """Returns the types of rows of each wave's fragments, in order."""
        row = Pieces.of(self.value_size).shape
        return [build.tensor_type([workgroups, self.waves, *kept([self.fragments]), UNIT_ROWS, *row], self.result)]

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results = self.result_types(1)
        kinds = [*self.inputs, *results]
        return attention.module(self.name, kinds, results, self.threads, lambda *given: _Kernel(self, *given).write())


@dataclass(frozen=True)
class Staged:
    """The LDS staging of an operand: so many fragments, each the bytes of its lanes, as they are read."""

    element: str
    fragments: int
    waves: int

    @property
    def fragment_bytes(self) -> int:
        """The bytes of a fragment in a lane."""
        return MFMA.lane_bytes(self.element)

    @property
    def turns(self) -> int:
        """The number of copies of each wave."""
        return -(-self.fragments * UNIT_PIECES[self.fragment_bytes].count // self.waves)

    @property
    def bytes(self) -> int:
        """The bytes of LDS, including unused copies of waves after the last fragment."""
        return self.turns * self.waves * LANES * UNIT_PIECES[self.fragment_bytes].size

    def copied(self, lane: Index, piece: Index) -> tuple[Index, Index]:
        """Returns whose part of a fragment a lane copies a piece of, and where that begins in 128 elements of a row."""
        size = self.fragment_bytes
        if not MFMA.holds_blocks(self.element):  # in halves: all first ones precede all second ones
            return lane, (lane // UNIT_ROWS + piece * BLOCKS) * (size // 2)
        pieces = UNIT_PIECES[size]
        byte = (piece * LANES + lane) * pieces.size
        owner = (byte // size).here
        return owner, owner // UNIT_ROWS * size + byte % size

    def read(self, lds: ir.Value, place: Index, lane: Index) -> ir.Value:
        """Reads a lane's bytes of the fragment at an index."""
        read = UNIT_PIECES[self.fragment_bytes].read
        starts = range(0, LANES * self.fragment_bytes, LANES * read)
        return builder.joined([builder.read_lds(lds, place + lane * read + start, read) for start in starts])


def key_order(weights: str) -> tuple[list[tuple[str, int]], str]:
    """Returns factors of the keys of a step, outermost first, and the order of the scales of keys in a lane's step.

    A lane has four neighbours ("i") of each fragment ("f") by the quarter ("q") that its scores are in; of weights in
    two halves ("h") it has some of each.
    """
    if MFMA.holds_blocks(weights):
        return [("q", BLOCKS), ("f", FRAGMENTS), ("i", VALUES)], "qif"
    return [("h", 2), ("q", BLOCKS), ("f", FRAGMENTS // 2), ("i", VALUES)], "qihf"


def size_order(value_size: int) -> tuple[list[tuple[str, int]], str]:
    """Returns factors of the elements of values, outermost first, and the order of their scales in a lane's step.

    A lane's sums of a piece ("p") are neighbours: four rows ("i") of each of its fragments ("f").
    """
    pieces = Pieces.of(value_size)
    return [("p", pieces.count), ("q", BLOCKS), ("f", pieces.width), ("i", VALUES)], "qipf"


class _Kernel:
    """Writes the kernel."""

    def __init__(self, spec: MxPrefill, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        self.qk, self.v, self.w = spec.elements
        self.weights: ElementFormat = element_format(self.w)
        self.wave = uniform(threads.number // LANES)
        self.lane = (threads.number % LANES).here
        self.column, self.group = (self.lane % UNIT_ROWS).here, (self.lane // UNIT_ROWS).here
        self.head, self.first = (workgroup // spec.tiles).here, (workgroup % spec.tiles * spec.tile).here
        self.key_head = (self.head // spec.shared).here
        self.sources = [builder.whole(builder.whole_buffer(value, [1]))[0] for value in given[: len(spec.inputs)]]
        self.keys, self.values = spec.staged
        self.lds = [builder.lds(2 * each.bytes) for each in spec.staged]
        self.rows = [self._row(fragment).here for fragment in range(spec.fragments)]
        self.is_odd = self.group % 2 >= 1
        self._bound()

    def _row(self, fragment: int) -> Index:
        """Returns the query of a lane's column; columns beyond the last query repeat it."""
        spec = self.spec
        row = self.first + self.wave * (UNIT_ROWS * spec.fragments) + self.column + fragment * UNIT_ROWS
        return row if spec.queries % spec.tile == 0 else select(row < spec.queries, row, spec.queries - 1)

    def _bound(self) -> None:
        """Returns the number of keys each query sees, the number of steps, and of steps that all queries see whole."""
        spec = self.spec
        keys = Index.of(spec.keys)
        if not spec.is_causal:
            self.bounds = [keys] * spec.fragments
            self.steps, self.whole = Index.of(spec.steps), keys // STEP
            return
        self.bounds = [_least(row + 1, keys) for row in self.rows]
        self.steps = ((_least(self.first + spec.tile, keys) + (STEP - 1)) // STEP).here
        self.whole = (_least(self.first + 1, keys) // STEP).here

    def write(self) -> None:
        spec = self.spec
        queries = [self._load_query(row) for row in self.rows]
        zeros = builder.f32_zeros(VALUES)
        state = [each for _ in range(spec.fragments) for each in (number(LOWEST), *[zeros] * (spec.sums + 1))]

        def turn(compares: bool) -> Callable[..., list[Values]]:
            def body(step: Index, scales: Values, carried: Values) -> list[Values]:
                builder.wait_groups(0)
                builder.lds_barrier()
                following = self._load_scales(step + 1)
                self._copy(step + 1)
                return [following, self._multiply(step, queries, scales, carried, compares)]

            return body

        self._copy(Index.of(0))
        scales, state = loop(self.whole, turn(False), self._load_scales(Index.of(0)), state)
        _, state = loop(self.steps, turn(True), scales, state, start=self.whole)
        self._store(state)

    # Memory

    def _load_query(self, row: Index) -> list[Factor]:
        """Loads a query's factors, with zeros behind its last element."""
        spec, size = self.spec, MFMA.lane_bytes(self.qk)
        at, blocks = (self.head * spec.queries + row).here, spec.size // BLOCK
        row_bytes, pieces, factors = blocks * size, UNIT_PIECES[size], list[Factor]()
        for depth in range(spec.depths):
            block, parts = (self.group + depth * BLOCKS).here, []
            scale = builder.load(self.sources[1], [self._in(block < blocks, at * blocks + block)], 1)
            for piece in range(pieces.count):
                if MFMA.holds_blocks(self.qk):
                    byte = block * size + piece * pieces.size
                else:
                    byte = (self.group + (piece + depth * 2) * BLOCKS) * pieces.size
                place = self._in(byte < row_bytes, at * row_bytes + byte)
                parts.append(builder.load(self.sources[0], [place], pieces.size, alignment=4))
            factors.append(factor(builder.joined(parts), self.qk, scale, 0))
        return factors

    def _in(self, is_inside: ir.Value, place: Index) -> Index:
        return select(is_inside, place, BEYOND)

    def _load_scales(self, step: Index) -> Values:
        """Loads a lane's scales of the keys and values of a step."""
        spec = self.spec
        is_there, at = step < self.steps, (self.key_head * spec.steps + step).here
        places = [
            *((3, (at * spec.depths + depth) * LANES + self.lane, FRAGMENTS) for depth in range(spec.depths)),
            (5, at * LANES + self.lane, spec.sums),
        ]
        return [
            builder.load(self.sources[source], [self._in(is_there, place * size)], size, alignment=4)
            for source, place, size in places
        ]

    def _copy(self, step: Index) -> None:
        """Starts the copy of keys and values of a step; nothing is copied after the last one."""
        spec, is_there = self.spec, step < self.steps
        for operand, source, place_of in ((0, 2, self._key_place), (1, 4, self._value_place)):
            staged = spec.staged[operand]
            pieces, to = UNIT_PIECES[staged.fragment_bytes], step % 2 * staged.bytes
            for turn in range(staged.turns):
                copied = self.wave + turn * spec.waves
                piece = (copied % pieces.count).here
                owner, byte = staged.copied(self.lane, piece)
                is_inside, place = place_of(step, (copied // pieces.count).here, owner.here, byte)
                place = self._in(builder.both(is_there, is_inside), place)
                at = to + copied * (LANES * pieces.size)
                builder.copy_to_lds(self.sources[source], [place], self.lds[operand], at, pieces.size)
        builder.async_group()

    def _key_place(self, step: Index, fragment: Index, lane: Index, byte: Index) -> tuple[ir.Value, Index]:
        """Returns the index of a byte of a lane's part of a fragment of keys, and whether it exists."""
        spec, bits = self.spec, element_format(self.qk).bits
        number_, depth = fragment // spec.depths, fragment % spec.depths
        key = step * STEP + self._key(number_, lane % UNIT_ROWS // VALUES, lane % VALUES)
        if spec.padded_keys % STEP:
            key = _least(key, Index.of(spec.padded_keys - 1))
        in_row = (depth * (STEP * bits // 8) + byte).here
        size = spec.size * bits // 8
        row = self.key_head * spec.padded_keys + key
        return in_row < size, row * size + in_row

    def _key(self, fragment: Index | int, quarter: Index, of_four: Index | int) -> Index:
        """Returns the key of a step for a row of a fragment of scores."""
        fragment = Index.of(fragment)
        if MFMA.holds_blocks(self.w):
            return quarter * BLOCK + fragment * VALUES + of_four
        half = fragment // (FRAGMENTS // 2)
        return half * (STEP // 2) + quarter * (BLOCK // 2) + fragment % (FRAGMENTS // 2) * VALUES + of_four

    def _value_place(self, step: Index, fragment: Index, lane: Index, byte: Index) -> tuple[ir.Value, Index]:
        """Returns the index of a byte of a lane's part of a fragment of values, and whether it exists."""
        spec, bits = self.spec, element_format(self.v).bits
        width = Pieces.of(spec.value_size).width
        row = lane % UNIT_ROWS
        size = fragment // width * (UNIT_ROWS * width) + row // VALUES * (VALUES * width)
        size = size + fragment % width * VALUES + row % VALUES
        in_row = (step * (STEP * bits // 8) + byte).here
        length = spec.padded_keys * bits // 8
        is_inside = builder.both(in_row < length, fragment < spec.sums)
        return is_inside, (self.key_head * spec.value_size + size) * length + in_row

    # Products

    def _read(self, operand: int, step: Index, fragment: int) -> ir.Value:
        staged = self.spec.staged[operand]
        place = step % 2 * staged.bytes + fragment * (LANES * staged.fragment_bytes)
        return staged.read(self.lds[operand], place, self.lane)

    def _multiply(
        self, step: Index, queries: list[list[Factor]], scales: Values, carried: Values, compares: bool
    ) -> Values:
        """Multiplies the keys of a step, and returns the state that the loop carries."""
        spec, shape = self.spec, MFMA
        *key_scales, value_scales = scales
        scores: list[Values] = [[] for _ in queries]
        for fragment in range(FRAGMENTS):
            keys = [
                factor(self._read(0, step, fragment * spec.depths + depth), self.qk, each, fragment)
                for depth, each in enumerate(key_scales)
            ]
            for query, found in zip(queries, scores, strict=True):
                score = builder.f32_zeros(VALUES)
                for one, other in zip(keys, query, strict=True):
                    score = builder.scaled_mfma(shape, one, other, score)
                found.append(score)
        size = spec.sums + 2
        states = [carried[i : i + size] for i in range(0, len(carried), size)]
        weights = list[Factor]()
        for i, (found, state) in enumerate(zip(scores, states, strict=True)):
            if compares:
                found = self._seen(step, self.bounds[i], found)
            weight, states[i] = self._weighed(found, state)
            weights.append(weight)
        ones = self._ones()
        for i, weight in enumerate(weights):
            states[i][1] = builder.scaled_mfma(shape, ones, weight, states[i][1])
        for fragment in range(spec.sums):
            value = factor(self._read(1, step, fragment), self.v, value_scales, fragment)
            for state, weight in zip(states, weights, strict=True):
                state[2 + fragment] = builder.scaled_mfma(shape, value, weight, state[2 + fragment])
        return [value for state in states for value in state]

    def _ones(self) -> Factor:
        kind = ir.VectorType.get([BLOCK], ir.Type.parse("f4E2M1FN"))
        one = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 1.0))
        scale = ir.VectorType.get([4], ir.IntegerType.get_signless(8))
        bias = ir.DenseElementsAttr.get_splat(scale, ir.IntegerAttr.get(scale.element_type, _BIAS))
        scales = builder.bitcast(arith.ConstantOp(scale, bias).result, SCALE, 4)
        return arith.ConstantOp(kind, one).result, (scales, 0)

    def _seen(self, step: Index, bound: Index, scores: Values) -> Values:
        """Returns scores, without weight for keys that the query does not see."""
        nothing, found = number(-math.inf), list[ir.Value]()
        for fragment, score in enumerate(scores):
            keys = [(step * STEP + self._key(fragment, self.group, i)) for i in range(VALUES)]
            each = [arith.SelectOp(key < bound, element(score, i), nothing).result for i, key in enumerate(keys)]
            found.append(builder.from_elements(each))
        return found

    # Weights

    def _weighed(self, scores: Values, state: Values) -> tuple[Factor, Values]:
        """Returns a lane's weights, with the scale of its own block, and the state rescaled to fit them."""
        halves = 1 if MFMA.holds_blocks(self.w) else 2
        count = len(scores) // halves
        parts = [scores[i * count : (i + 1) * count] for i in range(halves)]
        tops = [tree(_maximum, [element(each, i) for each in part for i in range(VALUES)]) for part in parts]
        own, of_parts = self._exponents(tops)
        high, *sums = self._made_room(own, state)
        words = [self._converted(builder.joined(part), top) for part, top in zip(parts, of_parts, strict=True)]
        code = builder.from_elements([word for part in words for word in part])
        scale = builder.from_elements([self._scale(own if halves == 1 else self._of_group(of_parts), high)])
        bits = builder.bitcast(code, "i8", MFMA.lane_bytes(self.w))
        return factor(bits, self.w, scale, 0), [high, *sums]

    def _exponents(self, tops: Values) -> tuple[ir.Value, Values]:
        """Returns the exponent of a block in its lanes, and of each of a lane's parts, from their largest scores.

        The powers of 2 of scores less the exponent are at most what elements can be, in units of the largest power.
        """
        if len(tops) == 1:
            own = self._exponent(tops[0])
            return own, [own]
        # Blocks 0, 2, 1 and 3 in lanes of 16 each, from first parts of blocks 0, 0, 1, 1 and second ones of 2, 2, 3, 3.
        own = self._exponent(_maximum(*swapped(rocdl.Permlane16SwapOp, *tops)))
        return own, list(swapped(rocdl.Permlane16SwapOp, own, own))

    def _of_group(self, of_parts: Values) -> ir.Value:
        """Returns the exponents of blocks 0 to 3, in lanes of 16 each."""
        even, odd = swapped(rocdl.Permlane32SwapOp, *of_parts)
        return arith.SelectOp(self.is_odd, odd, even).result

    def _exponent(self, top: ir.Value) -> ir.Value:
        room = math.log2(self.weights.max_finite / 2**self.weights.emax)
        scaled = mlir_math.FmaOp(top, number(self.spec.scale), number(-room)).result
        return _maximum(mlir_math.CeilOp(scaled).result, number(LOWEST))

    def _made_room(self, exponent: ir.Value, state: Values) -> Values:
        """Rescales the state by a larger power of 2 where a lane's block has an exponent too far above."""
        high, *sums = state
        far = arith.CmpFOp(arith.CmpFPredicate.OGT, exponent, added(high, number(float(_ROOM)))).result
        i64 = ir.IntegerType.get_signless(64)
        is_any = arith.CmpIOp(arith.CmpIPredicate.ne, rocdl.ballot(i64, far), arith.ConstantOp(i64, 0).result).result

        def scaled() -> Values:
            top = largest(high, of_column(exponent, largest))
            fades = splat(exp2(arith.SubFOp(high, top).result), VALUES)
            return [top, *(arith.MulFOp(each, fades).result for each in sums)]

        return builder.choose(is_any, scaled, state)

    def _scale(self, exponent: ir.Value, high: ir.Value) -> ir.Value:
        """Returns the code of a block's scale, also of a block without numbers."""
        i32, i8 = (ir.IntegerType.get_signless(bits) for bits in (32, 8))
        code = added(arith.SubFOp(exponent, high).result, number(float(_BIAS - self.weights.emax)))
        code = arith.MinNumFOp(arith.MaxNumFOp(code, number(0.0)).result, number(float(_MOST_SCALE))).result
        is_none = arith.CmpFOp(arith.CmpFPredicate.UNO, exponent, exponent).result
        bounded = arith.FPToUIOp(i32, code).result
        return arith.TruncIOp(i8, arith.SelectOp(is_none, builder.i32(_NO_SCALE), bounded).result).result

    def _converted(self, scores: ir.Value, exponent: ir.Value) -> Values:
        """Returns weights of scores, in words."""
        (size,) = ir.VectorType(scores.type).shape
        less = arith.SubFOp(number(float(self.weights.emax)), exponent).result
        powers = mlir_math.FmaOp(scores, splat(number(self.spec.scale), size), splat(less, size)).result
        conversion = CONVERSIONS[self.w, "f32"]
        pairs = [[exp2(element(powers, i + j)) for j in range(2)] for i in range(0, size, 2)]
        turns = conversion.turns
        return [conversion.word(pairs[i : i + turns], number(1.0)) for i in range(0, len(pairs), turns)]

    def _store(self, carried: Values) -> None:
        spec, size, rows = self.spec, self.spec.sums + 2, list[ir.Value]()
        for first in range(0, len(carried), size):
            _, total, *sums = carried[first : first + size]
            rows.append(attention.rounded(attention.divided(builder.joined(sums), element(total, 0)), spec.result))
        shape, place = Pieces.of(spec.value_size).part(self.group)
        fragments = kept([spec.fragments])
        self.threads.store(
            rows, [1, 1, *fragments, 1, *shape], [0, self.wave, *(0 for _ in fragments), self.column, *place]
        )


def _least(one: Index, other: Index) -> Index:
    return select(one < other, one, other)


def _maximum(one: ir.Value, other: ir.Value) -> ir.Value:
    """Returns the larger one, NaN if one is: `arith.maximumf`, which IREE replaces by one that ignores NaN."""
    return llvm.intr_maximum(one, other)
