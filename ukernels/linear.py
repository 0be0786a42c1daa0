"""Products of a few rows with weights of 16 bits: split-K over the waves of a workgroup, operands directly to
registers.

    result[M, 16 columns] = x[M, K] · weights[16 columns, K]ᵀ (+ bias) (+ residual, behind the rounding)

They are bound by reading the weights once. A workgroup has some fragments of up to 16 columns, and all rows. Units
of 64 elements along K, in which each row of weights is a cache line, are distributed to waves cyclically. A wave loads
all of its units at once, or as many as registers have room for, and replaces each behind its last use. At the end parts
are summed in the order of waves.

Columns may be those of several matrices: queries, keys and values. A workgroup reads one of them.

A norm of a single row in front is computed by each workgroup, while its weights are on their way: a lane has 8
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, product
from typing import Any

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.attention import COLUMNS, DEPTH
from mxcomp.ukernels.attention_memory import LANE
from mxcomp.ukernels.brought import NORMALISE, SUM
from mxcomp.ukernels.builder import Index, Threads, Values, load, loop, select
from mxcomp.ukernels.softmax import added, of_wave
from mxcomp.ukernels.waves import BEYOND, LANES, VALUES

MOST_ROWS = 64
"""The largest number of rows, whose sums are all in registers."""
_WIDTHS = ((1, COLUMNS), (2, COLUMNS), (4, COLUMNS), *((1, columns) for columns in range(VALUES, COLUMNS, VALUES)))
"""The possible numbers of fragments along columns of a workgroup, and of columns that each has."""
_WAVES = 8
_REGISTERS = 160
"""The registers of a lane for data in flight."""


@dataclass(frozen=True)
class Norm:
    """A norm in front, by functions on words of a lane's elements.

    Attributes:
        functions: A module of @sum0 and so on, and of @normalise.
        sums: How many sums along a row there are.
        vectors: The types of elements of what a row is multiplied by, and the like.
        is_kept: Its rows are a result, of which each workgroup stores a part.
    """

    functions: str
    sums: int
    vectors: tuple[str, ...]
    is_kept: bool


@dataclass(frozen=True)
class Linear(standing.Plain):
    """The kernel.

    Attributes:
        rows: Of x and the result.
        columns: Of the result.
        depth: Elements of a row of x and of weights.
        element: Their type.
        result: The type of an element of the result.
        bias: That of what is added to each row, if anything is.
        wide: Fragments along columns that a workgroup has.
        each: The columns of a fragment: fewer than 16 where there are compute units for all workgroups.
        parts: The columns of each of several matrices, which are together those of the result.
        residual: A tensor as the result is added to what is rounded, and the sum rounded again.
        norm: That of x, if it is part of the kernel.
    """

    rows: int
    columns: int
    depth: int
    element: str
    result: str
    bias: str | None = None
    wide: int = 1
    each: int = COLUMNS
    parts: tuple[int, ...] = ()
    residual: bool = False
    norm: Norm | None = None

    along, threads = (1,), _WAVES * LANES

    @property
    def matrices(self) -> tuple[int, ...]:
        """The columns of each matrix of weights."""
        return self.parts or (self.columns,)

    @property
    def name(self) -> str:
        """The name, for example mx_linear_bf16_m16_n5120_k2880_by32_bias_bf16_to_bf16."""
        columns = "_".join(map(str, self.matrices))
        sizes = f"m{self.rows}_n{columns}_k{self.depth}_by{self.width}"
        bias, residual = f"_bias_{self.bias}" if self.bias else "", "_residual" if self.residual else ""
        norm = f"_norm_{builder.digest(self.norm)}" if self.norm else ""
        return f"mx_linear_{self.element}_{sizes}{norm}{bias}{residual}_to_{self.result}"

    @property
    def objection(self) -> str:
        if self.rows > MOST_ROWS:
            return f"{self.rows} rows are more than {MOST_ROWS}"
        if not self._takes(COLUMNS):
            return f"{self.columns} columns are no multiple of {COLUMNS}"
        if self.depth % DEPTH:
            return f"K = {self.depth} is no multiple of {DEPTH}"
        if self.depth * max(self.rows, self.columns) * _BYTES > builder.MOST_BYTES:
            return f"an operand exceeds {builder.MOST_BYTES} bytes"
        return ""

    @property
    def fragments(self) -> tuple[int, int]:
        """The numbers of fragments of a workgroup, along columns and rows."""
        return self.wide, -(-self.rows // COLUMNS)

    def spread(self, cus: int) -> Linear | None:
        """Returns the kernel with the width of workgroups with which compute units read least, in rounds of workgroups.

        None where IREE's own kernel is faster: of many rows and columns, by 64 of which it reads rows less often.
        """
        shapes = [replace(self, wide=wide, each=each) for wide, each in _WIDTHS]
        fitting = [shape for shape in shapes if shape._is_fit(cus)]
        best = min(fitting, key=lambda shape: shape._turns(cus) * (shape.width + self.rows))
        is_slower = self.rows > 2 * COLUMNS and best._turns(cus) > 1
        return None if is_slower else best

    def _turns(self, cus: int) -> int:
        return -(-self.columns // (self.width * cus))

    def _is_fit(self, cus: int) -> bool:
        """Returns whether columns are whole workgroups of few fragments, which are whole or have a single turn."""
        along, down = self.fragments
        is_whole = self.each == COLUMNS or self._turns(cus) == 1
        return is_whole and along * down <= _WAVES and self._takes(self.width)

    def _takes(self, width: int) -> bool:
        """Returns whether columns are as many several times."""
        return all(each % width == 0 for each in self.matrices)

    @property
    def workgroups(self) -> int:
        return self.columns // self.width

    @property
    def width(self) -> int:
        return self.wide * self.each

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of the result, whose columns are distributed to workgroups, and of a kept row."""
        made = build.tensor_type([self.rows, self.workgroups, self.width], self.result)
        is_kept = self.norm is not None and self.norm.is_kept
        return [made, *[build.tensor_type([1, self.workgroups, self.share], self.element)] * is_kept]

    @property
    def share(self) -> int:
        """The elements of a kept row that a workgroup stores; of the last ones some are behind its end."""
        return -(-self.depth // (LANE * self.workgroups)) * LANE

    def takes(self, norm: Norm) -> bool:
        """Returns whether a norm may be a part of it."""
        is_single = self.rows == 1 and self.depth <= LANE * self.threads
        registers = 4 * self.wide * -(-self.depth // (_WAVES * DEPTH))  # of all weights of a lane
        return is_single and registers <= _REGISTERS

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        weights = [build.tensor_type([each, self.depth], self.element) for each in self.matrices]
        biases = [build.tensor_type([each], self.bias) for each in self.matrices] if self.bias else []
        residual = [build.tensor_type([self.rows, self.columns], self.result)] if self.residual else []
        vectors = [build.tensor_type([self.depth], kind) for kind in (self.norm.vectors if self.norm else ())]
        return [build.tensor_type([self.rows, self.depth], self.element), *vectors, *weights, *biases, *residual]

    @property
    def modules(self) -> list[str]:
        return [self.norm.functions] if self.norm else []

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        (_Normalising if self.norm else _Writing)(self, workgroup, given, threads).write()


_BYTES = 2
"""The bytes of an element of x and weights."""
_SHAPE = COLUMNS, COLUMNS, DEPTH


class _Writing:
    def __init__(self, spec: Linear, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.workgroup, self.threads = spec, workgroup, threads
        self.first = (workgroup * spec.width).here
        self.wave = builder.assume(builder.uniform(threads.number // LANES), 0, _WAVES - 1)
        self.lane = (threads.number % LANES).here
        self.column, self.quarter = (self.lane % COLUMNS).here, (self.lane // COLUMNS).here
        buffers = [builder.whole(builder.whole_buffer(value)) for value in given[: len(spec.inputs)]]
        vectors, count = len(spec.norm.vectors) if spec.norm else 0, len(spec.matrices)
        ((self.x, x_from), *self.vectors), others = buffers[: vectors + 1], buffers[vectors + 1 :]
        self.weights, rest = others[:count], others[count:]
        self.residual = rest.pop() if spec.residual else None
        self.x_at = self.x, x_from
        self.biases = rest
        self.steps = 2 if spec.depth % (2 * DEPTH) == 0 else 1
        self.unit = self.steps * DEPTH
        self.units = spec.depth // self.unit
        _, down = spec.fragments
        self.rows_of_x = [self._row(x_from, self.column + n * COLUMNS, spec.rows) for n in range(down)]
        self.starts = list(accumulate(spec.matrices, initial=0))

    def _of_matrix(self, kinds: Sequence[ir.Type], write: Callable[[int], Values], number: int = 0) -> Values:
        """Returns what `write` makes of the matrix of this workgroup, by its number."""
        if number + 1 == len(self.spec.matrices):
            return write(number)
        is_it = self.first < self.starts[number + 1]
        following = partial(self._of_matrix, kinds, write, number + 1)
        return builder.either(is_it, kinds, partial(write, number), following)

    def _row(self, start: Index, row: Index, count: int) -> Index:
        """Returns the index of a lane's part of a row, or an out-of-bounds one for a missing row."""
        at = start + row * self.spec.depth + self.quarter * LANE
        return (at if count % COLUMNS == 0 else select(row < count, at, _BEYOND)).here

    def write(self) -> None:
        along, down = self.spec.fragments
        mine, most = -(-self.units // _WAVES), max(1, _REGISTERS // (4 * self.steps * (along + down)))
        turns = -(-mine // most)
        acc = [builder.f32_zeros(VALUES) for _ in range(along * down)]
        self._store(self._added(self._accumulated(turns, -(-mine // turns), acc)))

    def _accumulated(self, turns: int, at_once: int, acc: Values) -> Values:
        """Computes so many units per turn. Behind its last use each is replaced by one of the next turn."""

        def turn(number: Index, loaded: list[Values], sums: Values) -> list[Any]:
            following = list[Values]()
            for place, unit in enumerate(loaded):
                sums = self._multiplied([unit], sums)
                builder.sched_barrier()
                following += self._loaded((number + 1) * at_once + place, 1)
            return [following, sums]

        loaded, acc = loop(Index.of(turns - 1), turn, self._loaded(Index.of(0), at_once), acc)
        return self._multiplied(loaded, acc)

    def _loaded(self, first: Index, count: int) -> list[Values]:
        """Loads so many of the wave's units from one on, with zeros beyond the last one."""
        kind, of_unit = ir.VectorType.get([LANE], ir.Type.parse(self.spec.element)), self.steps * self._fragments
        values = self._of_matrix([kind] * (count * of_unit), partial(self._loaded_of, first, count))
        return [values[start : start + of_unit] for start in range(0, len(values), of_unit)]

    @property
    def _fragments(self) -> int:
        return sum(self.spec.fragments)

    def _loaded_of(self, first: Index, count: int, matrix: int) -> Values:
        rows, loaded = self._rows(matrix), list[ir.Value]()
        for number in range(count):
            unit = ((first + number) * _WAVES + self.wave).here
            is_there = unit < self.units
            for (source, row), step in product(rows, range(self.steps)):
                at = select(is_there, row + unit * self.unit + step * DEPTH, _BEYOND)
                loaded.append(load(source, [at], LANE, alignment=LANE * _BYTES))
            builder.sched_barrier()  # results of loads are waited for in order
        return loaded

    def _rows(self, matrix: int) -> list[tuple[ir.Value, Index]]:
        weights, start = self.weights[matrix]
        columns = [self.first + -self.starts[matrix] + self.column + n * COLUMNS for n in range(self.spec.wide)]
        ats = (start + column * self.spec.depth + self.quarter * LANE for column in columns)
        of_weights = [select(self.column < self.spec.each, at, _BEYOND).here for at in ats]
        return [*((weights, row) for row in of_weights), *((self.x, row) for row in self.rows_of_x)]

    def _multiplied(self, units: Sequence[Values], acc: Values) -> Values:
        (along, _), sums = self.spec.fragments, list(acc)
        for unit, step in product(units, range(self.steps)):
            factors = unit[step :: self.steps]
            for number, (left, right) in enumerate(product(factors[:along], factors[along:])):
                sums[number] = builder.mfma(_SHAPE, left, right, sums[number])
        return sums

    def _added(self, acc: Values) -> ir.Value:
        """Returns the sum of all waves' parts of the fragment that this wave stores."""
        count = len(acc)
        parts = builder.lds(_WAVES * count * LANES * VALUES, "f32")
        for number, part in enumerate(acc):
            builder.write_lds(part, parts, ((self.wave * count + number) * LANES + self.lane) * VALUES)
        builder.lds_barrier()
        self.mine = select(self.wave < count, self.wave, count - 1).here
        total = builder.f32_zeros(VALUES)
        for wave in range(_WAVES):
            at = ((self.mine + wave * count) * LANES + self.lane) * VALUES
            (total,) = builder.sums([total], [builder.read_lds(parts, at, VALUES)])
        return total

    def _store(self, total: ir.Value) -> None:
        """Stores four neighbours of a row. Missing or already stored rows go beyond the end of the buffer."""
        spec, (along, down) = self.spec, self.spec.fragments
        row, first = self.mine % down * COLUMNS + self.column, self.quarter * VALUES
        is_column = first < spec.each
        column = self.mine // down * COLUMNS + select(is_column, first, 0)
        if spec.bias is not None:
            kind = ir.VectorType.get([VALUES], ir.Type.parse(spec.bias))
            (more,) = self._of_matrix([kind], lambda matrix: [self._bias(matrix, column)])
            (total,) = builder.sums([total], [builder.cast(more, "f32")])
        is_stored = builder.both(builder.both(self.wave < along * down, row < spec.rows), is_column)
        if self.residual is not None:
            source, start = self.residual
            at = select(row < spec.rows, start + row * spec.columns + self.first + column, _BEYOND)
            rounded = builder.cast(total, spec.result)
            (total,) = builder.sums([builder.cast(rounded, "f32")], [builder.cast(load(source, [at], VALUES), "f32")])
        value, size = builder.cast(total, spec.result), 4 if spec.result == "f32" else _BYTES
        place: list[Index | int] = [0, 0, select(is_stored, column, BEYOND // size)]
        if spec.rows > 1:
            place = [select(is_stored, row, BEYOND // (size * spec.columns) + 1), 0, column]
        self.threads.store_each(([value], [1, 1, VALUES], place), *self._kept())

    def _kept(self) -> list[builder.Part]:
        return []

    def _bias(self, matrix: int, column: Index) -> ir.Value:
        source, start = self.biases[matrix]
        return load(source, [start + self.first + -self.starts[matrix] + column], VALUES)


class _Normalising(_Writing):
    """Writes the kernel of a row with a norm in front."""

    def write(self) -> None:
        assert self.spec.norm is not None
        entry = self.threads.number
        self.is_part = entry < self.spec.depth // LANE
        at = select(self.is_part, entry * LANE, 0)
        given = [builder.words(load(source, [start + at], LANE)) for source, start in (self.x_at, *self.vectors)]
        builder.sched_barrier()
        weights = self._loaded(Index.of(0), -(-self.units // _WAVES))
        builder.fence()  # or LLVM would load the row behind them
        for number in range(self.spec.norm.sums):
            given.append(self._summed(*builder.call(f"{SUM}{number}", given, ir.F32Type.get())))
        (words,) = builder.call(NORMALISE, given, given[0].type)
        self.normalised = builder.bitcast(words, self.spec.element, LANE)
        row = builder.lds(self.spec.depth, self.spec.element)
        with builder.when(self.is_part):
            builder.write_lds(self.normalised, row, entry * LANE)
        builder.lds_barrier()
        acc = [builder.f32_zeros(VALUES) for _ in range(self.spec.wide)]
        self._store(self._added(self._multiplied(list(self._with_row(weights, row)), acc)))

    def _summed(self, part: ir.Value) -> ir.Value:
        """Returns the sum of all lanes' parts, in the order of waves."""
        parts, total = builder.lds(_WAVES, "f32"), of_wave(builder.masked(self.is_part, part), added)
        with builder.when(self.lane < 1):
            builder.write_lds(builder.from_elements([total]), parts, self.wave)
        builder.lds_barrier()
        each = builder.read_lds(parts, Index.of(0), _WAVES)
        return reduce(added, (builder.element(each, number) for number in range(_WAVES)))

    @property
    def _fragments(self) -> int:
        return self.spec.wide

    def _rows(self, matrix: int) -> list[tuple[ir.Value, Index]]:
        return super()._rows(matrix)[:-1]

    def _with_row(self, weights: Sequence[Values], row: ir.Value) -> Iterator[Values]:
        """Yields what a wave multiplies: of each unit its weights, and the row."""
        for number, unit in enumerate(weights):
            at = self.wave + number * _WAVES
            first = select(at < self.units, at, 0) * self.unit + self.quarter * LANE
            yield unit + [builder.read_lds(row, first + step * DEPTH, LANE) for step in range(self.steps)]

    def _kept(self) -> list[builder.Part]:
        assert self.spec.norm is not None
        if not self.spec.norm.is_kept:
            return []
        place = (self.threads.number * LANE + self.workgroup * -self.spec.share).here
        is_mine = builder.both(self.is_part, place < self.spec.share)
        return [([self.normalised], [1, 1, LANE], [0, 0, select(is_mine, place, _BEYOND)])]


_BEYOND = BEYOND // _BYTES
