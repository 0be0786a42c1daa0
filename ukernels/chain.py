"""Chains of operations on small tensors, in one workgroup: what is read more than once of them is kept in LDS.

Each such operation that IREE cannot fuse is a dispatch, and takes 2 µs for a launch and a load's latency. Here it takes
a barrier. A thread computes an element of a result, with all of what is reduced into it, by the bodies of the model's
own operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import memref

from mxcomp.layout.inner_tiles import LANES
from mxcomp.mlir import build, composing, graph
from mxcomp.mlir.index import row_major
from mxcomp.mlir.inline import constant, inlined
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, iterators, loop_sizes, reads_init, steps_reduced
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels import chain_operations as operations
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.chain_operations import size
from mxcomp.ukernels.top_k import TopK
from mxcomp.ukernels.waves import BEYOND, MOST_THREADS

_AT_ONCE = 16
_BETWEEN = 4
"""The steps of a reduction that a barrier takes as long as."""


@dataclass(frozen=True)
class Chain(standing.Digested):
    """The kernel of operations, in order, that has a result for each of `values`.

    Attributes:
        ops: What is computed; each `is_possible`.
        operands: The tensors from outside, as which it takes flat ones.
        values: Those of the results.
    """

    ops: Sequence[ir.Operation]
    operands: Sequence[ir.Value]
    values: Sequence[ir.Value]

    prefix = "mx_chain"

    along = ()

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        Writing(self, given, threads.number, self.threads).write(threads)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([size(value)], build.element(value)) for value in self.operands]

    @cached_property
    def chosen(self) -> dict[ir.Operation, TopK]:
        """The sorts whose first elements waves choose, by the operations that find places."""
        return {each.place: each for op in self.ops if (each := TopK.of(op)) is not None}

    @cached_property
    def steps(self) -> list[ir.Operation]:
        """The operations, those in dispatch regions by themselves."""
        counting = {each.ranking for each in self.chosen.values()}
        ops = [op for op in self.ops if op not in counting]
        return [each for op in ops for each in (operations.inner(op) if op.name == operations.REGION else [op])]

    def _slots(self, op: ir.Operation) -> int:
        """Returns about how many instructions compute all elements of a result."""
        return self.chosen[op].slots if op in self.chosen else operations.slots(op)

    def _read(self, op: ir.Operation) -> list[ir.Value]:
        return [self.chosen[op].source] if op in self.chosen else operations.read(op)

    @property
    def costly(self) -> list[ir.Operation]:
        """The operations that are not computed with what reads them, but by a dispatch, where there is no chain."""
        ops = {*self.steps, *(each.ranking for each in self.chosen.values())}
        costly = [op for op in filter(operations.is_costly, self.steps) if all(map(operations.has_numbers, op.results))]
        return [op for op in costly if any(operations.is_read(value, ops) for value in op.results)]

    @cached_property
    def stages(self) -> list[list[ir.Operation]]:
        """The operations whose results are kept, by stages: each reads what those before have kept. Others are computed
        where they are read."""
        found, costly = list[list[ir.Operation]](), set(self.costly)
        stage, work = dict[ir.Value, int](), dict[ir.Value, int]()
        for op in self.steps:
            sources = list(map(operations.source, self._read(op)))
            last = max((stage.get(value, 0) for value in sources), default=0)
            slots = self._slots(op) + sum(work.get(value, 0) for value in sources)
            is_kept = op in costly and slots > operations.FEW_SLOTS
            if is_kept and last == len(found):
                found.append([])
            if is_kept:
                found[last].append(op)
            stage |= dict.fromkeys(op.results, last + is_kept)
            work |= dict.fromkeys(op.results, 0 if is_kept else slots)
        return found

    @property
    def stored(self) -> list[ir.Operation]:
        """The operations whose results are kept, in order."""
        return [op for stage in self.stages for op in stage]

    @property
    def slots(self) -> int:
        """About how many instructions compute what is kept."""
        return sum(map(self._slots, self.stored))

    @property
    def lds_bytes(self) -> int:
        values = [*self.operands, *(value for op in self.stored for value in operations.read_results(op))]
        parts = [(op.results[0], self.parts(op)) for op in self.stored if op not in self.chosen and self.parts(op) > 1]
        counts = [*((value, 1) for value in values), *parts]
        return sum(size(value) * count * build.element(value).width // 8 for value, count in counts)

    @staticmethod
    def parts(op: ir.Operation) -> int:
        """Returns the number of threads that reduce into an element, whose parts are then added up."""
        steps, count = steps_reduced(op) or 1 if op.name.startswith("linalg.") else 1, size(op.results[0])
        able = [n for n in range(1, steps + 1) if steps % n == 0 and n * count <= MOST_THREADS]
        if not able or not operations.combining(op):
            return 1
        return min(able, key=lambda n: steps // n + (n > 1) * (n + _BETWEEN))

    @property
    def threads(self) -> int:
        counts = [self.parts(op) * size(op.results[0]) for op in self.stored if op not in self.chosen]
        waves = [math.prod(each.rows) * LANES for each in self.chosen.values()]
        most = max(*map(size, self.values), *map(size, self.operands), *counts, *waves)
        return min(MOST_THREADS, -(-most // LANES) * LANES)

    def piece(self, value: ir.Value) -> int:
        """Returns the number of elements of a result that a thread stores."""
        return -(-size(value) // self.threads)

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of results, each flat and in whole pieces."""
        pieces = [self.piece(value) for value in self.values]
        sizes = [-(-size(value) // piece) * piece for value, piece in zip(self.values, pieces, strict=True)]
        return [build.tensor_type([each], build.element(value)) for value, each in zip(self.values, sizes, strict=True)]


@dataclass(frozen=True)
class Memory:
    buffer: ir.Value
    sizes: Sequence[int]

    def load(self, place: Sequence[ir.Value]) -> ir.Value:
        return memref.LoadOp(self.buffer, [row_major(place, self.sizes).value]).result


Load: TypeAlias = Callable[[Sequence[ir.Value]], ir.Value]
"""Returns the element of a tensor at a place."""


class Elements(composing.Elements):
    """Elements of a chain in one body, from tensors that are kept."""

    def __init__(self, kept: Mapping[ir.Value, Load]) -> None:
        super().__init__()
        self.kept = kept

    def _built(self, value: ir.Value, place: Sequence[ir.Value]) -> ir.Value:
        if value in self.kept:
            return self.kept[value](place)
        op = graph.producer(value)
        assert op is not None
        number = list(op.results).index(value)
        if op.name == operations.BARRIER:
            return self.at(op.operands[number], place)
        if op.name == operations.REGION:
            return self.at(operations.source(value), place)
        if op.name.startswith("linalg."):
            return self.computed(op, place)[number]
        return super()._built(value, place)

    def computed(
        self, op: ir.Operation, place: Sequence[ir.Value], of: tuple[Index, int] | None = None
    ) -> list[ir.Value]:
        """Returns the elements of all results of a linalg operation at a place.

        `of`: of what is reduced only each so manieth from some one on, to which nothing is added.
        """
        maps = indexing_maps(op) or []
        loops = {
            ir.AffineDimExpr(expr).position: each
            for expr, each in zip(maps[-1].results, place, strict=True)
            if isinstance(expr, ir.AffineDimExpr)
        }
        outs = list(op.operands)[len(inputs(op)) :]
        sizes = loop_sizes(op, maps)
        reduced = [loop for loop, kind in enumerate(iterators(op)) if kind == "reduction"]
        first = [self.at(out, place) if reduced or reads_init(op) else out for out in outs]
        if of is not None:
            first = [operations.identity(op, value.type) for value in first]
        if not reduced:
            return self._body(op, maps, loops, first)
        counts = [sizes[loop] or 1 for loop in reduced]
        start, every = of or (Index.of(0), 1)
        turns = math.prod(counts) // every
        at_once = max(count for count in range(1, _AT_ONCE + 1) if turns % count == 0)

        def turn(number: Index, sums: Values) -> list[Values]:
            for i in range(at_once):
                at = start + (number * at_once + i) * every
                inner = dict(zip(reduced, composing.split(at.value, counts), strict=True))
                sums = Elements(self.kept)._body(op, maps, {**loops, **inner}, sums)
            return [sums]

        (sums,) = builder.loop(Index.of(turns // at_once), turn, first) if turns > at_once else turn(Index.of(0), first)
        return sums

    def _body(
        self, op: ir.Operation, maps: Sequence[ir.AffineMap], loops: Mapping[int, ir.Value], outs: Sequence[ir.Value]
    ) -> list[ir.Value]:
        def taken(inner: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
            if inner.name == "linalg.index":
                return loops[ir.IntegerAttr(inner.attributes["dim"]).value]
            return self.at(inner.operands[0], operands[1:]) if inner.name == "tensor.extract" else None

        given = []
        for value, affine_map, argument in zip(inputs(op), maps, op.regions[0].blocks[0].arguments, strict=False):
            at = [composing.subscript(expr, loops) for expr in affine_map.results]
            is_used = any(True for _ in argument.uses)
            given.append((self.at(value, at) if build.is_tensor(value) else constant(value)) if is_used else value)
        return inlined(op, [*given, *outs], taken)


def _loaded(source: ir.Value, at: Index) -> Values:
    return [memref.LoadOp(source, [at.value]).result]


class Writing:
    """Writes a chain in a workgroup of so many threads, whose first arguments are its operands."""

    def __init__(self, chain: Chain, given: Values, thread: Index, threads: int) -> None:
        self.chain, self.thread, self.threads = chain, thread, threads
        self.given = [builder.whole_buffer(each) for each in given[: len(chain.operands)]]
        self.kept: dict[ir.Value, Load] = {}

    def write(self, threads: Threads) -> None:
        self._compute()
        threads.store_each(*map(self._stored, self.chain.values, self.chain.results))

    def results(self) -> list[Memory]:
        """Computes results, and returns them in LDS."""
        self._compute()
        made = [self._memory(value) for value in self.chain.values]
        for value, memory in zip(self.chain.values, made, strict=True):
            self._each(size(value), partial(self._element, value, memory.sizes), [memory])
        builder.lds_barrier()
        return made

    def _element(self, value: ir.Value, sizes: Sequence[int], at: Index) -> Values:
        return [Elements(self.kept).at(value, composing.split(at.value, sizes))]

    def _compute(self) -> None:
        for value, source in zip(self.chain.operands, self.given, strict=True):
            memory = self._memory(value)
            self._each(size(value), partial(_loaded, source), [memory])
            self.kept[value] = memory.load
        builder.lds_barrier()
        for stage in self.chain.stages:
            for op in stage:
                self._keep(op)
            builder.lds_barrier()

    def _memory(self, value: ir.Value) -> Memory:
        buffer = builder.lds(size(value), str(build.element(value)))
        return Memory(buffer, [each or 1 for each in build.static_sizes(value)])

    def _keep(self, op: ir.Operation) -> None:
        values = operations.read_results(op)
        memory = [self._memory(value) for value in values]
        self.kept |= {value: each.load for value, each in zip(values, memory, strict=True)}
        if op in self.chain.chosen:
            return self._choose(self.chain.chosen[op], memory[0])
        sizes, numbers = memory[0].sizes, [list(op.results).index(value) for value in values]

        def computed(at: Index) -> Values:
            elements = Elements(self.kept)
            if op.name == operations.SCATTER:
                return [elements.at(op.operands[2], [at.value])]
            found = elements.computed(op, composing.split(at.value, sizes))
            return [found[number] for number in numbers]

        parts = self.chain.parts(op)
        self._each(math.prod(sizes), self._in_parts(op, sizes, parts) if parts > 1 else computed, memory)
        if op.name == operations.SCATTER:
            builder.lds_barrier()
            self._scatter(op, memory[0])

    def _choose(self, sort: TopK, memory: Memory) -> None:
        """Stores the places of the first elements of each row, which a wave chooses."""

        def chosen(at: Index) -> None:
            row, lane = builder.uniform(at // LANES), (at % LANES).here

            def element(column: Index) -> ir.Value:
                place = [*composing.split(row.value, sort.rows), column.value]
                return Elements(self.kept).at(sort.source, place)

            found = sort.places(element, lane)
            with builder.when(lane < sort.count):
                memref.StoreOp(found, memory.buffer, [(row * sort.count + lane).value])

        self._turns(math.prod(sort.rows) * LANES, chosen)

    def _in_parts(self, op: ir.Operation, sizes: Sequence[int], parts: int) -> Callable[[Index], Values]:
        """Reduces into each element in so many threads, and returns what adds up their parts."""
        count, kind = math.prod(sizes), build.element(op.results[0])
        memory = Memory(builder.lds(count * parts, str(kind)), [count, parts])

        def reduced(at: Index) -> Values:
            place = composing.split((at // parts).value, sizes)
            return Elements(self.kept).computed(op, place, (at % parts, parts))[:1]

        self._each(count * parts, reduced, [memory])
        builder.lds_barrier()

        def added(at: Index) -> Values:
            total = Elements(self.kept).at(op.operands[len(inputs(op))], composing.split(at.value, sizes))
            for number in range(parts):
                total = operations.combined(op, total, memory.load([at.value, build.constant_index(number)]))
            return [total]

        return added

    def _scatter(self, op: ir.Operation, memory: Memory) -> None:
        updates, indices, _ = op.operands

        def scattered(at: Index) -> None:
            elements = Elements(self.kept)
            to = Index.of(elements.at(indices, [at.value, build.constant_index(0)][: len(build.static_sizes(indices))]))
            with builder.when(to < memory.sizes[0]):
                memref.StoreOp(elements.at(updates, [at.value]), memory.buffer, [to.value])

        self._turns(size(updates), scattered)

    def _each(self, count: int, computed: Callable[[Index], Values], memory: Sequence[Memory]) -> None:
        """Stores so many elements of each result of an operation."""

        def stored(at: Index) -> None:
            for value, to in zip(computed(at), memory, strict=True):
                memref.StoreOp(value, to.buffer, [at.value])

        self._turns(count, stored)

    def _turns(self, count: int, body: Callable[[Index], None]) -> None:
        """Executes `body` for so many numbers, each in one thread."""

        def turn(number: Index) -> list[Values]:
            at = (number * self.threads + self.thread).here
            with builder.when(at < count):
                body(at)
            return []

        turns = -(-count // self.threads)
        if turns == 1:
            turn(Index.of(0))
        else:
            builder.loop(Index.of(turns), turn)

    def _stored(self, value: ir.Value, kind: ir.RankedTensorType) -> builder.Part:
        """Returns a thread's piece of a result, and where it is."""
        piece, (width,) = self.chain.piece(value), kind.shape
        elements, sizes = Elements(self.kept), [each or 1 for each in build.static_sizes(value)]
        first = (self.thread * piece).here
        numbers = [(first + i).value for i in range(piece)]
        places = [composing.split(build.clamp(at, size(value)), sizes) for at in numbers]
        found = builder.from_elements([elements.at(value, place) for place in places])
        beyond = BEYOND * 8 // kind.element_type.width
        return [found], [piece], [select(first < width, first, beyond)]
