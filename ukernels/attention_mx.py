"""Attention of MX operands, many queries: both products by scaled MFMA, weights quantised in registers.

A step has 128 keys. A wave has 32 queries, and computes scores[keys, queries] = keys · queriesᵀ, whose rows are in the
order in which a lane has the 32 weights that it gives as a factor of values · weights: they go through no memory.

Waves take turns: while one of a SIMD multiplies values by weights of a step, and keys of the next by queries, another
makes weights of scores. All of them copy keys and values to LDS, a step before they are multiplied.

Weights are powers of 2, in MX by blocks of 32 keys. A query's sums are scaled by an integer power of 2, which is known
from the first step on and changes only where a block's scale is far above it; scales of weights have the rest
(`mxcomp.ir.attention` defines the result). A fragment of ones in place of values sums the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl
from iree.compiler.dialects import math as mlir_math

from mxcomp.formats import E8M0, ElementFormat, element_format
from mxcomp.layout import INTRINSICS
from mxcomp.layout.units import BLOCK, LANES, SCALE
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.builder import Factor, Index, Threads, Values, element, loop, select, uniform
from mxcomp.ukernels.conversions import CONVERSIONS
from mxcomp.ukernels.operands import factor
from mxcomp.ukernels.softmax import LOWEST, exp2, largest, number, splat, swapped, tree
from mxcomp.ukernels.waves import BEYOND, UNIT_PIECES

_INTRINSIC = "MFMA_SCALE_F32_32x32x64_B32"
MFMA = INTRINSICS[_INTRINSIC]
ROWS, DEPTH, VALUES = MFMA.m, MFMA.k, MFMA.acc_outer * MFMA.acc_inner
"""The rows of a fragment, its depth along the other dimension, and the numbers that a lane has of a result."""
GROUPS = LANES // ROWS
"""The number of groups of lanes, each with a block of its own."""
STEP, PARTS = 128, 128 // DEPTH
"""Keys of a step, and factors of weights that they are."""
FRAGMENTS = STEP // ROWS
"""The number of fragments of a step's scores."""
SIZES = 2 * ROWS
"""Values are a multiple of so many: of two fragments for two factors MFMA choose scales from four."""
STAGGERED = 8
"""The number of waves that are two on each SIMD, of which one is a phase behind."""
_CHUNK, _BANKED = 16, 16
"""Bytes of a chunk; lanes that read one each at a time, from all banks."""
_POWERS = 8
"""Powers that are computed together: more than any waits for."""
_AHEAD = 3
"""Fragments that are read from LDS before they are multiplied."""
_ROOM = 16
"""The largest distance, as a power of 2, of a block's scale above the scale of a query's sums."""
_BIAS, _MOST_SCALE, _NO_SCALE = 127, 254, 255


@dataclass(frozen=True)
class MxPrefill(attention.ManyQueries):
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
        waves: Of a workgroup, each with 32 queries.
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
    result: str

    @property
    def threads(self) -> int:
        return self.waves * LANES

    @property
    def tile(self) -> int:
        """The number of queries of a workgroup."""
        return self.waves * ROWS

    def missing(self, target: Target) -> str:
        """Returns the matrix instruction that a GPU lacks for one of the products; "" if it has both."""
        qk, value, weights = self.elements
        scales = [E8M0.mlir_type] * 2
        lacking = (target.lacks_instruction(_INTRINSIC, (*pair, *scales)) for pair in ((qk, qk), (value, weights)))
        return next(filter(None, lacking), "")

    @property
    def padded_keys(self) -> int:
        return -(-self.keys // BLOCK) * BLOCK

    @property
    def steps(self) -> int:
        return -(-self.keys // STEP)

    @property
    def depths(self) -> int:
        """The number of MFMA along the size of a key."""
        return -(-self.size // DEPTH)

    @property
    def sums(self) -> int:
        """The number of fragments of a value."""
        return self.value_size // ROWS

    @property
    def name(self) -> str:
        """The name of the kernel: its purpose, and a digest of all parameters."""
        causal = "_causal" if self.is_causal else ""
        kinds = "_".join(f"f{element_format(kind).bits}" for kind in self.elements)
        return f"mx_attention_{kinds}_m{self.tile}_d{self.size}{causal}_{builder.digest(self)}"

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
            key_heads * self.value_size * self.padded_keys * v // 8, steps * PARTS * self.sums,
        )  # fmt: skip
        return [build.tensor_type([size], "i8") for size in sizes]

    @property
    def lds_bytes(self) -> int:
        return 2 * sum(each.bytes for each in self.staged)

    @property
    def staged(self) -> tuple[Staged, Staged]:
        """The LDS staging of keys and values of a step."""
        qk, v, _ = self.elements
        keys = Staged(qk, STEP, self.depths, self.size, self.waves)
        return keys, Staged(v, self.value_size, PARTS, STEP, self.waves)

    def result_types(self, workgroups: int) -> list[ir.RankedTensorType]:
        """Returns the types of rows of each wave's fragments, in order."""
        return [build.tensor_type([workgroups, self.waves, ROWS, self.sums, GROUPS, VALUES], self.result)]

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results = self.result_types(1)
        kinds = [*self.inputs, *results]
        return attention.module(self.name, kinds, results, self.threads, lambda *given: _Kernel(self, *given).write())


@dataclass(frozen=True)
class Staged:
    """The rows of an operand that LDS has in a step.

    Rows of elements of 4 and 8 bits lie one behind the other as they are stored, so that whole cache lines are copied;
    their chunks of 16 bytes lie in an order by which lanes that read the same chunk of their rows meet no bank twice.
    Of 6 bits it has fragments, each the bytes of its lanes.

    Attributes:
        rows: Keys, or elements of values.
        depths: Fragments along a row.
        size: Elements of a row.
    """

    element: str
    rows: int
    depths: int
    size: int
    waves: int

    @property
    def fragment_bytes(self) -> int:
        """The bytes of a fragment in a lane."""
        return MFMA.lane_bytes(self.element)

    @property
    def piece(self) -> int:
        """Bytes that a lane copies at a time."""
        return UNIT_PIECES[self.fragment_bytes].size

    @property
    def in_rows(self) -> bool:
        return self.piece == _CHUNK

    @property
    def row_bytes(self) -> int:
        return self.size * self.fragment_bytes // BLOCK

    @property
    def chunks(self) -> int:
        """The number of chunks of a row."""
        return self.row_bytes // _CHUNK

    @property
    def turns(self) -> int:
        """The number of copies of each wave."""
        total = self.rows * (self.row_bytes if self.in_rows else self.depths * GROUPS * self.fragment_bytes)
        return -(-total // (LANES * self.piece * self.waves))

    @property
    def bytes(self) -> int:
        """The bytes of LDS, including unused copies of waves behind the last row."""
        return self.turns * self.waves * LANES * self.piece

    def exchanged(self, of_fragment: Index) -> Index:
        """Returns the number by which chunks of a row of a fragment change places."""
        several = math.gcd(self.chunks, _BANKED)
        return of_fragment % _BANKED // (_BANKED // several)


def key_order(weights: str) -> tuple[list[tuple[str, int]], str]:
    """Returns factors of the keys of a step, outermost first, and the order of the scales of keys in a lane's step.

    Of a fragment ("f") of a part ("p") of the step a lane has four times ("k") four neighbours ("i") of those rows that
    its group ("g") has; all of a lane's weights are of one block, or halves of them are.
    """
    in_part = "gf" if MFMA.holds_blocks(weights) else "fg"
    sizes = {"p": PARTS, "f": FRAGMENTS // PARTS, "g": GROUPS, "k": MFMA.acc_outer, "i": MFMA.acc_inner}
    return [(name, sizes[name]) for name in f"p{in_part}ki"], "kgipf"


def size_order(value_size: int) -> tuple[list[tuple[str, int]], str]:
    """Returns factors of the elements of values, outermost first, and the order of their scales in a lane's step.

    A lane's sums of a fragment ("f") are neighbours.
    """
    sizes = [("f", value_size // ROWS), ("g", GROUPS), ("k", MFMA.acc_outer), ("i", MFMA.acc_inner)]
    return sizes, "kgipf"


class _Kernel:
    """Writes the kernel."""

    def __init__(self, spec: MxPrefill, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        self.qk, self.v, self.w = spec.elements
        self.weights: ElementFormat = element_format(self.w)
        self.wave = uniform(threads.number // LANES)
        self.lane = (threads.number % LANES).here
        self.column, self.group = (self.lane % ROWS).here, (self.lane // ROWS).here
        self.head, self.first = (workgroup // spec.tiles).here, (workgroup % spec.tiles * spec.tile).here
        self.key_head = (self.head // spec.shared).here
        self.sources = [builder.whole(builder.whole_buffer(value, [1]))[0] for value in given[: len(spec.inputs)]]
        self.lds = [builder.lds(2 * each.bytes) for each in spec.staged]
        row = self.first + self.wave * ROWS + self.column
        self.row = (row if spec.queries % spec.tile == 0 else _least(row, Index.of(spec.queries - 1))).here
        self.chunks = [self._read_chunks(operand) for operand in range(2)]
        self._bound()

    def _bound(self) -> None:
        """Finds the number of keys a query sees, that of steps, and that of steps that all queries see whole."""
        spec, keys = self.spec, Index.of(self.spec.keys)
        if not spec.is_causal:
            self.bound, self.steps, self.whole = keys, Index.of(spec.steps), keys // STEP
            return
        self.bound = _least(self.row + 1, keys)
        self.steps = ((_least(self.first + spec.tile, keys) + (STEP - 1)) // STEP).here
        self.whole = (_least(self.first + 1, keys) // STEP).here

    def write(self) -> None:
        """Phases, in turns: weights of scores; then values by weights, and the next keys by queries."""
        spec, first = self.spec, Index.of(0)
        query, zeros = self._load_query(), builder.f32_zeros(VALUES)
        state = [number(LOWEST), *[zeros] * (spec.sums + 1)]
        self._copy_keys(first)
        self._meet()
        self._copy_keys(first + 1)
        self._copy_values(first)
        fragments = self._read_ahead(self._key_fragments(first))
        scores = self._scores(fragments, query, self._key_scales(first))
        scales = [*self._key_scales(first + 1), self._value_scales(first)]
        self._meet()
        self._fall_behind(self.wave >= STAGGERED // 2)

        def turn(compares: bool) -> Callable[..., list[Values]]:
            def body(step: Index, scores: Values, scales: Values, state: Values) -> list[Values]:
                if compares:
                    scores = self._seen(step, scores)
                weights, state = self._weighed(scores, state)
                _barrier()
                builder.set_priority(1)
                fragments = self._read_ahead([*self._value_fragments(step), *self._key_fragments(step + 1)])
                *key_scales, value_scales = scales
                state, following = self._added(fragments, weights, value_scales, state, self._moves(step))
                scores = self._scores(fragments, query, key_scales)
                builder.set_priority(0)
                self._meet()
                return [scores, following, state]

            return body

        carried = loop(self.whole, turn(False), scores, scales, state)
        *_, state = loop(self.steps, turn(True), *carried, start=self.whole)
        self._fall_behind(self.wave < STAGGERED // 2)
        self._store(state)

    def _moves(self, step: Index) -> Iterator[Values]:
        """Starts copies, some behind each MFMA, and yields loads: last the scales of the following step."""
        self._copy_keys(step + 2)
        yield []
        self._copy_values(step + 1)
        yield []
        yield [*self._key_scales(step + 2), self._value_scales(step + 1)]

    def _fall_behind(self, waves: ir.Value) -> None:
        """Has some waves meet the others once more, which are a phase behind them from then on."""
        if self.spec.waves == STAGGERED:
            with builder.when(waves):
                builder.s_barrier()

    def _meet(self) -> None:
        """Waits for all waves, and for what each of them has copied."""
        builder.wait_groups(0)
        _barrier()

    # Memory

    def _load_query(self) -> list[Factor]:
        """Loads a query's factors, with zeros behind its last element."""
        spec, size = self.spec, MFMA.lane_bytes(self.qk)
        at, blocks = (self.head * spec.queries + self.row).here, spec.size // BLOCK
        row_bytes, pieces, factors = blocks * size, UNIT_PIECES[size], list[Factor]()
        for depth in range(spec.depths):
            block, parts = (self.group + depth * GROUPS).here, []
            scale = builder.load(self.sources[1], [self._in(block < blocks, at * blocks + block)], 1)
            for piece in range(pieces.count):
                if MFMA.holds_blocks(self.qk):
                    byte = block * size + piece * pieces.size
                else:
                    byte = (self.group + (piece + depth * 2) * GROUPS) * pieces.size
                place = self._in(byte < row_bytes, at * row_bytes + byte)
                parts.append(builder.load(self.sources[0], [place], pieces.size, alignment=4))
            factors.append(factor(builder.joined(parts), self.qk, scale, 0))
        return factors

    def _in(self, is_inside: ir.Value, place: Index) -> Index:
        return select(is_inside, place, BEYOND)

    def _key_scales(self, step: Index) -> Values:
        """Loads a lane's scales of the keys of a step."""
        depths = self.spec.depths
        return [self._load_scales(3, step, depths, depth, FRAGMENTS) for depth in range(depths)]

    def _value_scales(self, step: Index) -> ir.Value:
        return self._load_scales(5, step, 1, 0, PARTS * self.spec.sums)

    def _load_scales(self, source: int, step: Index, count: int, number_: int, size: int) -> ir.Value:
        at = (self.key_head * self.spec.steps + step) * count + number_
        place = (at * LANES + self.lane) * size
        return builder.load(self.sources[source], [self._in(step < self.steps, place)], size, alignment=4)

    def _copy_keys(self, step: Index) -> None:
        self._copy(0, step)

    def _copy_values(self, step: Index) -> None:
        self._copy(1, step)

    def _copy(self, operand: int, step: Index) -> None:
        """Asks for keys (0) or values (1) of a step; for nothing behind the last one."""
        staged, is_there = self.spec.staged[operand], step < self.steps
        for turn in range(staged.turns):
            copied = self.wave + turn * self.spec.waves
            row, byte = (self._chunk if staged.in_rows else self._of_fragment)(operand, copied)
            is_inside, place = (self._key_place, self._value_place)[operand](step, row.here, byte.here)
            place = self._in(builder.both(is_there, is_inside), place)
            at = step % 2 * staged.bytes + copied * (LANES * staged.piece)
            builder.copy_to_lds(self.sources[2 + 2 * operand], [place], self.lds[operand], at, staged.piece)
        builder.async_group()

    def _chunk(self, operand: int, copied: Index) -> tuple[Index, Index]:
        """Returns the row, and the byte in it, of the chunk that a lane copies."""
        staged = self.spec.staged[operand]
        chunk = (copied * LANES + self.lane).here
        row = (chunk // staged.chunks).here
        four, group = MFMA.acc_inner, row // self._group_stride(operand) % GROUPS
        of_fragment = row // four % 2 * (GROUPS * four) + group * four + row % four
        return row, (chunk % staged.chunks ^ staged.exchanged(of_fragment)) * _CHUNK

    def _of_fragment(self, operand: int, copied: Index) -> tuple[Index, Index]:
        """Returns the same of a piece of a fragment's bytes."""
        staged, size = self.spec.staged[operand], self.spec.staged[operand].fragment_bytes
        byte = ((copied * LANES + self.lane) * staged.piece).here
        lane, fragment = (byte // size % LANES).here, (byte // (size * LANES)).here
        row = self._row(operand, fragment // staged.depths, lane % ROWS)
        return row, (fragment % staged.depths * GROUPS + lane // ROWS) * size + byte % size

    def _group_stride(self, operand: int) -> int:
        """Returns the distance of rows that groups of lanes have, as `key_order` and `size_order` say."""
        return DEPTH // GROUPS if operand == 0 and MFMA.holds_blocks(self.w) else VALUES

    def _first_row(self, operand: int, fragment: Index) -> Index:
        if operand == 1:
            return fragment * ROWS
        of_part = FRAGMENTS // PARTS
        stride = VALUES if MFMA.holds_blocks(self.w) else DEPTH // of_part
        return fragment // of_part * DEPTH + fragment % of_part * stride

    def _row(self, operand: int, fragment: Index | int, of_fragment: Index) -> Index:
        """Returns the key of a step, or the element of values, that a row of a fragment is."""
        four, stride = MFMA.acc_inner, self._group_stride(operand)
        of_lanes = of_fragment // four % GROUPS * stride + of_fragment // (four * GROUPS) * four + of_fragment % four
        return self._first_row(operand, Index.of(fragment)) + of_lanes

    def _key_place(self, step: Index, row: Index, byte: Index) -> tuple[ir.Value, Index]:
        """Returns the place of a byte of a key of a step, and whether it exists."""
        spec, size = self.spec, self.spec.staged[0].row_bytes
        key = step * STEP + row
        if spec.padded_keys % STEP:
            key = _least(key, Index.of(spec.padded_keys - 1))
        return byte < size, (self.key_head * spec.padded_keys + key) * size + byte

    def _value_place(self, step: Index, row: Index, byte: Index) -> tuple[ir.Value, Index]:
        """Returns the place of a byte of a step of an element of values, and whether it exists."""
        spec, staged = self.spec, self.spec.staged[1]
        in_row = (step * staged.row_bytes + byte).here
        length = spec.padded_keys * staged.fragment_bytes // BLOCK
        is_inside = builder.both(in_row < length, row < spec.value_size)
        return is_inside, (self.key_head * spec.value_size + row) * length + in_row

    # Products

    def _key_fragments(self, step: Index) -> list[tuple[int, list[Index]]]:
        return [self._fragment(0, step, i, depth) for i in range(FRAGMENTS) for depth in range(self.spec.depths)]

    def _value_fragments(self, step: Index) -> list[tuple[int, list[Index]]]:
        return [self._fragment(1, step, i, part) for part in range(PARTS) for i in range(self.spec.sums)]

    def _fragment(self, operand: int, step: Index, fragment: int, depth: int) -> tuple[int, list[Index]]:
        """Returns an operand, and the places in LDS of a lane's bytes of a fragment of a step."""
        staged = self.spec.staged[operand]
        slot, size = step % 2 * staged.bytes, staged.fragment_bytes
        if not staged.in_rows:
            return operand, [slot + (fragment * staged.depths + depth) * (LANES * size) + self.lane * size]
        behind = slot + self._first_row(operand, Index.of(fragment)) * staged.row_bytes
        count = size // _CHUNK
        return operand, [behind + self.chunks[operand][depth * count + i] for i in range(count)]

    def _read_chunks(self, operand: int) -> list[Index]:
        """Returns the places of a lane's chunks in a fragment at row 0: of two that groups have, its own."""
        staged, of_fragment = self.spec.staged[operand], self.lane % ROWS
        if not staged.in_rows:
            return []
        own = (self.group ^ staged.exchanged(of_fragment)).here
        row = self._row(operand, 0, of_fragment) * staged.row_bytes
        count = staged.depths * staged.fragment_bytes // _CHUNK
        return [(row + (own ^ Index.of(i * GROUPS)) * _CHUNK).here for i in range(count)]

    def _read_ahead(self, fragments: list[tuple[int, list[Index]]]) -> Iterator[ir.Value]:
        """Fragments, some of which are read now, and each of the others so many before it is taken."""

        def read(operand: int, places: list[Index]) -> ir.Value:
            size = self.spec.staged[operand].fragment_bytes // len(places)
            return builder.joined([builder.read_lds(self.lds[operand], place, size, size & -size) for place in places])

        ahead = [read(*each) for each in fragments[:_AHEAD]]

        def each() -> Iterator[ir.Value]:
            for i in range(len(fragments)):
                ahead.extend(read(*following) for following in fragments[i + _AHEAD : i + _AHEAD + 1])
                yield ahead[i]

        return each()

    def _scores(self, fragments: Iterator[ir.Value], query: list[Factor], scales: Values) -> Values:
        """Keys of a step by the queries."""
        found = list[ir.Value]()
        for number_ in range(FRAGMENTS):
            score = builder.f32_zeros(VALUES)
            for each, scale in zip(query, scales, strict=True):
                score = _mfma(factor(next(fragments), self.qk, scale, number_), each, score)
            found.append(score)
        return found

    def _added(
        self, fragments: Iterator[ir.Value], weights: list[Factor], scales: ir.Value, state: Values,
        moves: Iterator[Values],
    ) -> tuple[Values, Values]:  # fmt: skip
        """Adds values of a step by weights, and weights, to the state; returns it, and what `moves` has loaded."""
        (high, total, *sums), moved = state, list[ir.Value]()
        for part, weight in enumerate(weights):
            total = _mfma(self._ones(), weight, total)
            for i in range(self.spec.sums):
                value = factor(next(fragments), self.v, scales, part * self.spec.sums + i)
                sums[i] = _mfma(value, weight, sums[i])
                moved += next(moves, [])
        for rest in moves:
            moved += rest
        return [high, total, *sums], moved

    def _ones(self) -> Factor:
        kind = ir.VectorType.get([BLOCK], ir.Type.parse("f4E2M1FN"))
        one = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 1.0))
        scale = ir.VectorType.get([4], ir.IntegerType.get_signless(8))
        bias = ir.DenseElementsAttr.get_splat(scale, ir.IntegerAttr.get(scale.element_type, _BIAS))
        scales = builder.bitcast(arith.ConstantOp(scale, bias).result, SCALE, 4)
        return arith.ConstantOp(kind, one).result, (scales, 0)

    def _seen(self, step: Index, scores: Values) -> Values:
        """Returns scores, without weight for keys that the query does not see."""
        nothing, found, inner = number(-math.inf), list[ir.Value](), MFMA.acc_inner
        for fragment, score in enumerate(scores):
            rows = [self.group * inner + (i // inner * GROUPS * inner + i % inner) for i in range(VALUES)]
            keys = [step * STEP + self._row(0, fragment, row) for row in rows]
            each = [arith.SelectOp(key < self.bound, element(score, i), nothing).result for i, key in enumerate(keys)]
            found.append(builder.from_elements(each))
        return found

    # Weights

    def _weighed(self, scores: Values, state: Values) -> tuple[list[Factor], Values]:
        """Returns a lane's weights, with the scales of its own blocks, and the state rescaled to fit them."""
        of_part = FRAGMENTS // PARTS
        parts = [scores[i * of_part : (i + 1) * of_part] for i in range(PARTS)]
        tops = [[tree(_maximum, [element(each, i) for i in range(VALUES)]) for each in part] for part in parts]
        exponents = [self._exponents(each) for each in tops]
        high, *sums = self._made_room(tree(largest, [own for own, _ in exponents]), state)
        weights = list[Factor]()
        for part, (own, of_fragments) in zip(parts, exponents, strict=True):
            words = [word for pair in zip(part, of_fragments, strict=True) for word in self._converted(*pair)]
            bits = builder.bitcast(builder.from_elements(words), "i8", MFMA.lane_bytes(self.w))
            weights.append(factor(bits, self.w, builder.from_elements([self._scale(own, high)]), 0))
        return weights, [high, *sums]

    def _exponents(self, tops: Values) -> tuple[ir.Value, Values]:
        """Returns exponents of a lane's own block, and of the blocks of a part's fragments, from the largest scores.

        The powers of 2 of scores less the exponent are at most what elements can be, in units of the largest power.
        """
        if MFMA.holds_blocks(self.w):
            own = self._exponent(_maximum(*tops))
            return own, [own] * len(tops)
        own = self._exponent(_maximum(*swapped(rocdl.Permlane32SwapOp, *tops)))
        return own, list(swapped(rocdl.Permlane32SwapOp, own, own))

    def _exponent(self, top: ir.Value) -> ir.Value:
        room = math.log2(self.weights.max_finite / 2**self.weights.emax)
        scaled = _alone("v_fma_f32", top, number(self.spec.scale), number(-room))
        return _maximum(mlir_math.CeilOp(scaled).result, number(LOWEST))

    def _made_room(self, exponent: ir.Value, state: Values) -> Values:
        """Rescales the state by a larger power of 2 where a lane's block has an exponent too far above."""
        high, *sums = state
        far = arith.CmpFOp(arith.CmpFPredicate.OGT, exponent, _alone("v_add_f32", high, number(float(_ROOM)))).result
        i64 = ir.IntegerType.get_signless(64)
        is_any = arith.CmpIOp(arith.CmpIPredicate.ne, rocdl.ballot(i64, far), arith.ConstantOp(i64, 0).result).result

        def scaled() -> Values:
            top = largest(high, largest(*swapped(rocdl.Permlane32SwapOp, exponent, exponent)))
            fades = splat(exp2(arith.SubFOp(high, top).result), VALUES)
            return [top, *(arith.MulFOp(each, fades).result for each in sums)]

        return builder.choose(is_any, scaled, state)

    def _scale(self, exponent: ir.Value, high: ir.Value) -> ir.Value:
        """Returns the code of a block's scale, also of a block without numbers."""
        i32, i8 = (ir.IntegerType.get_signless(bits) for bits in (32, 8))
        above = _alone("v_sub_f32", exponent, high)
        code = _alone("v_add_f32", above, number(float(_BIAS - self.weights.emax)))
        code = arith.MinNumFOp(arith.MaxNumFOp(code, number(0.0)).result, number(float(_MOST_SCALE))).result
        is_none = arith.CmpFOp(arith.CmpFPredicate.UNO, exponent, exponent).result
        bounded = arith.FPToUIOp(i32, code).result
        return arith.TruncIOp(i8, arith.SelectOp(is_none, builder.i32(_NO_SCALE), bounded).result).result

    def _converted(self, scores: ir.Value, exponent: ir.Value) -> Values:
        """Weights of a fragment of scores, in words."""
        less = _alone("v_sub_f32", number(float(self.weights.emax)), exponent)
        powers = [
            power
            for i in range(0, VALUES, _POWERS)
            for power in _powers([element(scores, i + j) for j in range(_POWERS)], number(self.spec.scale), less)
        ]
        conversion = CONVERSIONS[self.w, "f32"]
        pairs = [powers[i : i + 2] for i in range(0, VALUES, 2)]
        turns = conversion.turns
        any_ = llvm.UndefOp(ir.IntegerType.get_signless(32)).res
        return [conversion.word(pairs[i : i + turns], number(1.0), any_) for i in range(0, len(pairs), turns)]

    def _store(self, state: Values) -> None:
        spec, (_, total, *sums) = self.spec, state
        shares = [attention.rounded(attention.divided(each, element(total, 0)), spec.result) for each in sums]
        self.threads.store(shares, [1, 1, 1, spec.sums, 1, VALUES], [0, self.wave, self.column, 0, self.group, 0])


def _mfma(one: Factor, other: Factor, sums: ir.Value) -> ir.Value:
    """Returns the product added to sums. LLVM moves nothing past it, in either direction."""
    result = builder.scaled_mfma(MFMA, one, other, sums)
    builder.sched_barrier()
    return result


def _barrier() -> None:
    builder.sched_barrier()
    builder.s_barrier()
    builder.sched_barrier()


def _least(one: Index, other: Index) -> Index:
    return select(one < other, one, other)


def _maximum(one: ir.Value, other: ir.Value) -> ir.Value:
    """Returns the larger one, NaN if one is: `arith.maximumf`, which IREE replaces by one that ignores NaN."""
    return llvm.intr_maximum(one, other)


def _alone(name: str, *operands: ir.Value) -> ir.Value:
    """Writes an instruction on f32. LLVM would pack two of them, which wait for matrix instructions of other waves."""
    text = f"{name} {', '.join(f'${i}' for i in range(len(operands) + 1))}"
    constraints = ",".join(["=v"] + ["v"] * len(operands))
    return llvm.InlineAsmOp(operands[0].type, list(operands), text, constraints, has_side_effects=False).res


def _powers(scores: Values, scale: ir.Value, more: ir.Value) -> Values:
    """Returns 2 to the power of score · scale + more.

    LLVM would multiply two at a time, which does not run beside MFMA.
    Nothing waits for what is in front of it; behind the last power is the wait state that its use needs.
    """
    count = len(scores)
    lines = [f"v_fma_f32 ${i}, ${count + i}, ${2 * count}, ${2 * count + 1}" for i in range(count)]
    lines += [f"v_exp_f32 ${i}, ${i}" for i in range(count)]
    kind = ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")
    constraints = ",".join(["=&v"] * count + ["v"] * count + ["s", "v"])
    text = "\n".join([*lines, "s_nop 0"])
    made = llvm.InlineAsmOp(kind, [*scores, scale, more], text, constraints, has_side_effects=False).res
    return [llvm.ExtractValueOp(more.type, made, ir.DenseI64ArrayAttr.get([i])).res for i in range(count)]
