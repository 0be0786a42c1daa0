"""Finds quantisers: operations that compute an operand from activations in front of a matmul, block by block.

A dynamic quantiser is a few linalg ops: the largest magnitude of each block of 32, a scale from it, elements divided
by the scale. `find` follows elements and scales back through them to the tensors they are read from, as `elements` does
for stored operands, but through reductions over a block as well:

    Compute(truncf, (Read(%x[m, k]), Compute(scale, (Compute(maximumf, (Read(%x[m, k]),)),))))

Any arithmetic will do: it is carried over as it is. Activations before the quantiser (casts, a product, a
normalisation's last step) belong to it where nothing else uses them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.formats import UNLOADABLE
from mxcomp.matching.elements import RESHAPES, ZERO, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.matching.replacing import Reading
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import is_narrow, is_sub_byte
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, loop_sizes, only_calculates, reads_init

TRUNCATIONS = ("arith.truncf", "arith.scaling_truncf")
"""Operations that produce narrow elements."""

_RANK = 3
"""The rank of elements that are quantised while they are packed; those with a batch are quantised separately."""


@dataclass(frozen=True, eq=False)
class Read:
    """An element of a tensor; the subscripts are parts of the axes `row` and `k`.

    `inside`: it differs inside a block.
    """

    value: ir.Value
    subscripts: tuple[Index, ...]
    inside: bool


@dataclass(frozen=True, eq=False)
class Compute:
    """The result of a linalg op at given subscripts. A reduction goes over the 32 elements of a block, from `start`.

    The last of the operands is what the op's result is made from in place, if its body reads that.
    """

    op: ir.Operation
    operands: tuple[Node, ...]
    inside: bool
    start: ir.Operation | None = None


Node = Read | Compute


def below(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields these nodes and all that they are computed from, each before its operands."""
    for node in nodes:
        yield node
        yield from below(node.operands) if isinstance(node, Compute) else ()


def computed(nodes: Iterable[Node]) -> Iterator[Compute]:
    """Yields those of these nodes, and of what they are computed from, that are computed."""
    return (node for node in below(nodes) if isinstance(node, Compute))


@dataclass(frozen=True)
class Producer:
    """The computation of elements and their scales; `readings` are all operands that were followed back."""

    elements: Compute
    scales: Compute
    readings: tuple[Reading, ...]

    @property
    def nodes(self) -> tuple[Compute, Compute]:
        return self.elements, self.scales

    def reads(self, wide: bool = False) -> set[ir.Value]:
        """Returns the tensors that it reads; `wide`: those that differ between rows and within a block."""
        return {
            node.value
            for node in reads(self.nodes)
            if not wide or (node.inside and any(index.axis == "row" for index in node.subscripts))
        }


def is_repeated(node: Node) -> bool:
    """Returns whether a value is the same for all elements of a block, although there is one for each."""
    if isinstance(node, Read):
        return not node.inside
    return node.start is not None or all(is_repeated(operand) for operand in node.operands)


def reads(nodes: Iterable[Node]) -> list[Read]:
    """Returns the elements of tensors that nodes are computed from, each once."""
    found = (node for node in below(nodes) if isinstance(node, Read))
    return list({(node.value, node.subscripts): node for node in found}.values())


def find(elements: ir.Value, scales: ir.Value, stops: Iterable[ir.Operation] = ()) -> Producer | None:
    """Returns the computation of elements [rows, blocks, block] and their scales [rows, blocks]. None if they are
    stored.

    What `stops` compute is read, not followed back.
    """
    if ir.RankedTensorType(elements.type).rank != _RANK or None in build.static_sizes(elements)[1:]:
        return None
    height, blocks, size = build.static_sizes(elements)
    assert size is not None
    row, block = Index("row", 1, height), Index("k", size, blocks)
    accesses = ((elements, (row, block, Index("k", 1, size))), (scales, (row, block)))
    known = {*stops}
    try:
        while True:
            finder = _Finder(size, known)
            first, second = (finder.node(value, subscripts) for value, subscripts in accesses)
            if not (more := _foreign(finder.ops) | _narrow_readers((first, second))):
                break
            known |= more
    except UntraceableError:
        return None
    if not (isinstance(first, Compute) and isinstance(second, Compute)) or second.inside:
        return None
    if any(str(build.element(each.value)) in UNLOADABLE for each in reads((first, second))):
        return None  # IREE cannot load them
    return Producer(first, second, tuple(finder.readings))


def _foreign(ops: dict[ir.Operation, bool]) -> set[ir.Operation]:
    """Returns the activations among `ops` that have other users as well: they are computed anyway."""
    own = set(ops)
    while foreign := {op for op in own if ops[op] and not _users(op) <= own}:
        own -= foreign
    return set(ops) - own


def _narrow_readers(nodes: Iterable[Node]) -> set[ir.Operation]:
    """Returns the operations that read numbers below 8 bits from memory: IREE cannot gather them, as packing in order
    may."""
    pairs = ((node.op, operand) for node in computed(nodes) for operand in node.operands)
    return {op for op, each in pairs if isinstance(each, Read) and is_sub_byte(build.element(each.value))}


def _users(op: ir.Operation) -> set[ir.Operation]:
    """Returns the users of an op's result, through reshapes."""
    return {user for user in graph.readers(op.results[0], RESHAPES) if user.name != "tensor.dim"}


class _Finder:
    """Follows values back within blocks of so many elements.

    What `stops` compute is read, and not followed. `ops` are the operations passed, with whether they
    are activations.
    """

    def __init__(self, block: int, stops: Collection[ir.Operation]) -> None:
        self._block = block
        self.ops: dict[ir.Operation, bool] = {}
        self.readings: list[Reading] = []
        self._stops = frozenset(stops)
        self._known: dict[tuple[ir.Value, tuple[Index, ...]], Node] = {}

    def node(self, value: ir.Value, subscripts: tuple[Index, ...]) -> Node:
        """Returns the node of a value at subscripts. Raises UntraceableError for those that `Index` cannot express."""
        key = value, tuple(index if index.axis else ZERO for index in subscripts)
        if key not in self._known:
            self._known[key] = self._follow(*key)
        return self._known[key]

    def _read(self, value: ir.Value, subscripts: tuple[Index, ...]) -> Read:
        return Read(value, subscripts, self._is_inside(subscripts))

    def _is_inside(self, subscripts: tuple[Index, ...]) -> bool:
        return any(index.axis == "k" and index.stride < self._block for index in subscripts)

    def _follow(self, value: ir.Value, subscripts: tuple[Index, ...]) -> Node:
        op = graph.producer(value)
        if op is None or op in self._stops:
            return self._read(value, subscripts)
        if op.name in RESHAPES:
            try:
                source = RESHAPES[op.name](op, subscripts)
            except UntraceableError:  # e.g. [2, ?] rows collapsed to one dimension: read after the collapse
                return self._read(value, subscripts)
            return self._operand(op, 0, source)
        if op.name in BITCASTS and (regrouped := _regrouped(op, subscripts)) is not None:
            return self._operand(op, 0, regrouped)
        if not _is_calculation(op) or is_sum(op):
            return self._read(value, subscripts)
        inside = self._is_inside(subscripts)
        if is_elementwise(op):
            loops = loop_subscripts(op, subscripts)
            self.ops[op] = inside and not is_narrow(ir.RankedTensorType(value.type).element_type)
            return Compute(op, self._operands(op, loops, with_init=reads_init(op)), inside)
        start = graph.producer(op.operands[len(op.operands) - 1], "linalg.fill")
        block = _reduction_loops(op, subscripts, self._block)
        if inside or start is None or block is None:
            return self._read(value, subscripts)
        self.ops[op] = False
        return Compute(op, self._operands(op, block), inside, start)

    def _operands(self, op: ir.Operation, loops: list[Index], with_init: bool = False) -> tuple[Node, ...]:
        maps = indexing_maps(op) or []
        followed = maps if with_init else maps[:-1]
        return tuple(self._operand(op, i, apply_map(m, loops)) for i, m in enumerate(followed))

    def _operand(self, op: ir.Operation, position: int, subscripts: tuple[Index, ...]) -> Node:
        self.readings.append(Reading(op, position, subscripts))
        return self.node(op.operands[position], subscripts)


def is_sum(op: ir.Operation) -> bool:
    """Returns whether it sums parts of a product (`mxcomp.plans.split_k`): it reads a tensor at several places."""
    inputs = list(op.operands)[:-1]
    return len(inputs) > 1 and len(set(inputs)) == 1 and bool(is_elementwise(op)) and _is_placed(op)


def _is_placed(op: ir.Operation) -> bool:
    return all(isinstance(m.results[0], ir.AffineConstantExpr) for m in (indexing_maps(op) or [])[:-1])


def _is_calculation(op: ir.Operation) -> bool:
    """Returns whether it is a linalg op on tensors whose body uses nothing but its arguments."""
    maps = indexing_maps(op)
    if maps is None or len(op.results) != 1 or len(maps) != len(op.operands):
        return False
    if not all(isinstance(operand.type, ir.RankedTensorType) for operand in op.operands):
        return False
    return only_calculates(op) and _can_be_codes(op)


def _can_be_codes(op: ir.Operation) -> bool:
    """Returns whether the body of a linalg op uses 6-bit types at most to truncate to them what it yields."""
    block = op.regions[0].blocks[0]
    *inputs, out = block.arguments
    if any(str(argument.type) in UNLOADABLE for argument in inputs):
        return False
    if str(out.type) in UNLOADABLE and any(True for _ in out.uses):
        return False
    *body, end = (view.operation for view in block.operations)
    narrow = [inner for inner in body if str(inner.results[0].type) in UNLOADABLE]
    return all(inner.name in TRUNCATIONS and inner.results[0] == end.operands[0] for inner in narrow)


def _reduction_loops(op: ir.Operation, subscripts: tuple[Index, ...], block: int) -> list[Index] | None:
    """Returns a subscript for each loop of a reduction over one block; None if it is over something else.

    Dimensions that are reduced may stay in the result, with size 1 (`keepdim`).
    """
    *inputs, output = indexing_maps(op) or []
    placed = [pair for pair in zip(output.results, subscripts, strict=True) if not _is_index_0(pair[0])]
    subscripted = [expr for m in inputs for expr in m.results] + [expr for expr, _ in placed]
    if not all(isinstance(expr, ir.AffineDimExpr) for expr in subscripted):
        return None
    loops = {expr.position: index for expr, index in placed}
    sizes = loop_sizes(op, [*inputs, output])
    reduced = [d for d in range(output.n_dims) if d not in loops]
    lengths = [sizes.get(d) for d in reduced]
    if math.prod(length or 0 for length in lengths) != block:
        return None
    loops |= dict(zip(reduced, Index("k", 1, block).split(lengths), strict=True))
    return [loops[d] for d in range(output.n_dims)]


def _is_index_0(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineConstantExpr) and expr.value == 0


def _regrouped(op: ir.Operation, subscripts: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Returns the subscripts of the source of a bitcast that only joins [K/32, 32] or splits K."""
    source, result = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
    if source.element_type != result.element_type:
        return None
    if source == result:
        return subscripts
    if (source.rank, result.rank) == (2, 3):
        return (subscripts[0], Index.join(subscripts[1:]))
    if (source.rank, result.rank) == (3, 2):
        return (subscripts[0], *subscripts[1].split(build.static_sizes(op.operands[0])[1:]))
    return None
