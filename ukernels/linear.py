"""Products of a few rows with weights of 16 bits: split-K over the waves of a workgroup, operands directly to
registers.

    result[M, 16 columns] = x[M, K] · weights[16 columns, K]ᵀ (+ bias) (+ residual, behind the rounding)

They are bound by reading the weights once. A workgroup has some fragments of 16 columns, and all rows. Units of 64
elements along K, in which each row of weights is a cache line, are distributed to waves cyclically. A wave loads all of
its units at once, or as many as registers have room for, with the next ones in flight. At the end parts are summed in
the order of waves.

Columns may be those of several matrices: queries, keys and values. A workgroup reads one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.attention import COLUMNS, DEPTH, LANE
from mxcomp.ukernels.builder import Index, Threads, Values, load, loop, select
from mxcomp.ukernels.waves import BEYOND, LANES, VALUES

MOST_ROWS = 64
"""The largest number of rows, whose sums are all in registers."""
_WIDTHS = (1, 2, 4)
"""The possible numbers of fragments along columns of a workgroup."""
_WAVES = 8
_REGISTERS = 160
"""The registers of a lane for data in flight."""


@dataclass(frozen=True)
class Linear:
    """The kernel.

    Attributes:
        rows: Of x and the result.
        columns: Of the result.
        depth: Elements of a row of x and of weights.
        element: Their type.
        result: The type of an element of the result.
        bias: That of what is added to each row, if anything is.
        wide: Fragments along columns that a workgroup has.
        parts: The columns of each of several matrices, which are together those of the result.
        residual: A tensor as the result is added to what is rounded, and the sum rounded again.
    """

    rows: int
    columns: int
    depth: int
    element: str
    result: str
    bias: str | None = None
    wide: int = 1
    parts: tuple[int, ...] = ()
    residual: bool = False

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
        return f"mx_linear_{self.element}_{sizes}{bias}{residual}_to_{self.result}"

    @property
    def objection(self) -> str:
        """Returns why there is no such kernel; "" if there is."""
        if self.rows > MOST_ROWS:
            return f"{self.rows} rows are more than {MOST_ROWS}"
        if not self._takes(1):
            return f"{self.columns} columns are not several times {COLUMNS}"
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
        _, down = self.fragments
        turns = {
            wide: -(-self.columns // (wide * COLUMNS * cus))
            for wide in _WIDTHS
            if self._takes(wide) and wide * down <= _WAVES
        }
        best = min(turns, key=lambda wide: turns[wide] * (wide * COLUMNS + self.rows))
        is_slower = self.rows > 2 * COLUMNS and turns[best] > 1
        return None if is_slower else replace(self, wide=best)

    def _takes(self, wide: int) -> bool:
        """Returns whether there are several times as many columns, as IREE would drop a dimension of size 1."""
        return all(each % (wide * COLUMNS) == 0 for each in self.matrices) and self.columns > wide * COLUMNS

    @property
    def workgroups(self) -> int:
        return self.columns // self.width

    @property
    def width(self) -> int:
        """The number of columns of a workgroup."""
        return self.fragments[0] * COLUMNS

    @property
    def threads(self) -> int:
        return _WAVES * LANES

    @property
    def along(self) -> int:
        """The dimension of the result that is distributed to workgroups."""
        return int(self.rows > 1)

    def result_type(self, workgroups: int) -> ir.RankedTensorType:
        """Returns the result type without dimensions of size 1. IREE drops those, and with them the name of the
        kernel."""
        return build.tensor_type([*attention.kept([self.rows]), workgroups, self.width], self.result)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        rows = attention.kept([self.rows])
        weights = [build.tensor_type([each, self.depth], self.element) for each in self.matrices]
        biases = [build.tensor_type([each], self.bias) for each in self.matrices] if self.bias else []
        residual = [build.tensor_type([*rows, self.columns], self.result)] if self.residual else []
        return [build.tensor_type([*rows, self.depth], self.element), *weights, *biases, *residual]

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        result = self.result_type(1)
        kinds = [*self.inputs, result]
        return attention.module(self.name, kinds, [result], self.threads, lambda *given: _Writing(self, *given).write())


_BYTES = 2
"""The bytes of an element of x and weights."""
_SHAPE = COLUMNS, COLUMNS, DEPTH


class _Writing:
    """Writes the kernel."""

    def __init__(self, spec: Linear, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        self.first = (workgroup * spec.width).here
        self.wave = builder.assume(builder.uniform(threads.number // LANES), 0, _WAVES - 1)
        self.lane = (threads.number % LANES).here
        self.column, self.quarter = (self.lane % COLUMNS).here, (self.lane // COLUMNS).here
        buffers = [_flat(value) for value in given[: len(spec.inputs)]]
        count = len(spec.matrices)
        (self.x, x_from), self.weights, rest = buffers[0], buffers[1 : count + 1], buffers[count + 1 :]
        self.residual = rest.pop() if spec.residual else None
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
        registers = 4 * self.steps * (along + down)  # of a unit
        mine, most = -(-self.units // _WAVES), max(1, _REGISTERS // registers)
        acc = [builder.f32_zeros(VALUES) for _ in range(along * down)]
        if mine <= most:
            acc = self._multiplied(self._loaded(Index.of(0), mine), acc)
        else:
            acc = self._looped(max(1, most // 2), mine, acc)
        self._store(self._added(acc))

    def _looped(self, at_once: int, mine: int, acc: Values) -> Values:
        """Loops over so many units per iteration, with the next ones in flight."""

        def turn(number: Index, loaded: Values, sums: Values) -> list[Values]:
            following = self._loaded((number + 1) * at_once, at_once)
            return [following, self._multiplied(loaded, sums)]

        count = Index.of(-(-mine // at_once) - 1)
        loaded, acc = loop(count, turn, self._loaded(Index.of(0), at_once), acc)
        return self._multiplied(loaded, acc)

    def _loaded(self, first: Index, count: int) -> Values:
        """Loads the wave's units from one on, with zeros beyond the last one."""
        kind = ir.VectorType.get([LANE], ir.Type.parse(self.spec.element))
        kinds = [kind] * (count * self.steps * sum(self.spec.fragments))
        return self._of_matrix(kinds, partial(self._loaded_of, first, count))

    def _loaded_of(self, first: Index, count: int, matrix: int) -> Values:
        rows, loaded = self._rows(matrix), list[ir.Value]()
        for number in range(count):
            unit = ((first + number) * _WAVES + self.wave).here
            is_there = unit < self.units
            for (source, row), step in product(rows, range(self.steps)):
                at = select(is_there, row + unit * self.unit + step * DEPTH, _BEYOND)
                loaded.append(load(source, [at], LANE, alignment=LANE * _BYTES))
        builder.sched_barrier()
        return loaded

    def _rows(self, matrix: int) -> list[tuple[ir.Value, Index]]:
        weights, start = self.weights[matrix]
        columns = [self.first + -self.starts[matrix] + self.column + n * COLUMNS for n in range(self.spec.wide)]
        of_weights = [self._row(start, column, self.spec.matrices[matrix]) for column in columns]
        return [*((weights, row) for row in of_weights), *((self.x, row) for row in self.rows_of_x)]

    def _multiplied(self, loaded: Values, acc: Values) -> Values:
        along, down = self.spec.fragments
        sums, of_unit = list(acc), self.steps * (along + down)
        for start, step in product(range(0, len(loaded), of_unit), range(self.steps)):
            factors = loaded[start + step : start + of_unit : self.steps]
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
        row, column = self.mine % down * COLUMNS + self.column, self.mine // down * COLUMNS + self.quarter * VALUES
        if spec.bias is not None:
            kind = ir.VectorType.get([VALUES], ir.Type.parse(spec.bias))
            (more,) = self._of_matrix([kind], lambda matrix: [self._bias(matrix, column)])
            (total,) = builder.sums([total], [attention.widened(more)])
        is_stored = builder.both(self.wave < along * down, row < spec.rows)
        if self.residual is not None:
            source, start = self.residual
            at = select(row < spec.rows, start + row * spec.columns + self.first + column, _BEYOND)
            rounded = attention.rounded(total, spec.result)
            (total,) = builder.sums([attention.widened(rounded)], [attention.widened(load(source, [at], VALUES))])
        value, size = attention.rounded(total, spec.result), 4 if spec.result == "f32" else _BYTES
        if spec.rows == 1:
            self.threads.store([value], [1, VALUES], [0, select(is_stored, column, BEYOND // size)])
        else:
            place = select(is_stored, row, BEYOND // (size * spec.columns) + 1)
            self.threads.store([value], [1, 1, VALUES], [place, 0, column])

    def _bias(self, matrix: int, column: Index) -> ir.Value:
        source, start = self.biases[matrix]
        return load(source, [start + self.first + -self.starts[matrix] + column], VALUES)


_BEYOND = BEYOND // _BYTES


def _flat(value: ir.Value) -> tuple[ir.Value, Index]:
    """Returns an operand's memory, and its offset in elements."""
    shape, strides = ir.RankedTensorType(value.type).shape, [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return builder.whole(builder.whole_buffer(value, strides))
