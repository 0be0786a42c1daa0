"""Gathers: slices of a tensor selected at run time, such as rows by token ids and matrices by expert ids.

    %g = linalg.generic {indexing_maps = [(b, n, k) -> (b), (b, n, k) -> (b, n, k)], …} ins(%ids) outs(%empty) {
    ^bb0(%id: i32, %out: i8):
      … %e = arith.index_cast %id …      tensor.extract %w[%e, %n, %k]
    } -> tensor<24x2880x1440xi8>

Every subscript that is not an id is a loop of the result, in its order. Elements are gathered as bytes, and bitcast
behind. No such gather needs to be computed: an operand of a scaled matmul is read through the ids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout import LHS_SCALE, RHS_SCALE, DataTiledLayout
from mxcomp.matching import same_spelling
from mxcomp.matching.elements import ZERO, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.matching.storage import BITCASTS, is_gathered, storage
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.inline import constant
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, yielded


@dataclass(frozen=True)
class Gather:
    """Slices of `source` along its first dimension, by a subscript calculated from each of `ids`.

    Attributes:
        source: The tensor [parts, …].
        ids: Integers [count, …], one to each part that is wanted.
        subscript: What is calculated from an id, an index, in the body of the gather.
        id: The id in that body.
    """

    source: ir.Value
    ids: ir.Value
    subscript: ir.Value
    id: ir.Value

    @property
    def leading(self) -> int:
        """The number of dimensions of the ids."""
        return ir.RankedTensorType(self.ids.type).rank

    def part(self, id_: ir.Value) -> ir.Value:
        """Returns the subscript for an id, calculated at the insertion point."""
        known = {self.id: id_}

        def new(value: ir.Value) -> ir.Value:
            if value not in known:
                op = graph.producer(value)
                if op is None or op.block != self.id.owner:
                    return constant(value)
                known[value] = graph.copied(op, [new(operand) for operand in op.operands]).results[0]
            return known[value]

        return new(self.subscript)

    def same_parts(self, other: Gather) -> bool:
        """Returns whether another gather selects the same slices, of a tensor with as many."""
        counts = (static_sizes(gather.source)[0] for gather in (self, other))
        known = {other.id: self.id}
        is_same = same_spelling.find(self.subscript, other.subscript, known) is not None
        return self.ids == other.ids and len(set(counts)) == 1 and is_same

    def is_plain(self, gathered: ir.Value) -> bool:
        """Returns whether a tensor has the gathered slices as they are, with their sizes and element type."""
        inner = static_sizes(gathered)[self.leading :]
        return static_sizes(self.source)[1:] == inner and build.element(self.source) == build.element(gathered)

    def stored(self, operand: ir.Value) -> ir.Value:
        """Returns all slices, with the element type and inner sizes of an operand that is gathered from them."""
        parts, *_ = static_sizes(self.source)
        wanted = build.tensor_type([parts, *static_sizes(operand)[self.leading :]], build.element(operand))
        return build.bitcast(self.source, wanted)


def find(operand: ir.Value) -> Gather | None:
    """Returns the gather that an operand of a scaled matmul is, perhaps bitcast; None if it is none.

    All sizes are static.
    """
    op = graph.producer(graph.look_through(operand, BITCASTS))
    gather = None if op is None else _gather(op)
    if gather is None or None in (*static_sizes(operand), *static_sizes(gather.source)):
        return None
    count = gather.leading
    return gather if static_sizes(operand)[:count] == static_sizes(gather.ids) else None


def packed_bytes(gather: Gather, operand: ir.Value, layout: DataTiledLayout, index: int) -> int:
    """Returns the bytes of all slices of the source, packed as operand 0 … 3 of a layout."""
    parts, *_ = static_sizes(gather.source)
    element = str(build.element(operand))
    rows, blocks, *_ = static_sizes(operand)[gather.leading :]
    m, n, k = layout.workgroup_tile
    height, width = (
        math.ceil((size or 0) / step) * step
        for size, step in ((rows, (m, n)[index % 2]), (blocks, k // layout.shape.block))
    )
    block_bytes = 1 if index in (LHS_SCALE, RHS_SCALE) else layout.shape.lane_bytes(element)
    return (parts or 0) * height * width * block_bytes


def is_clamped(gather: Gather) -> bool:
    """Returns whether the subscript is the id, perhaps clamped to [0, parts) as a signed number."""
    parts, value = static_sizes(gather.source)[0], gather.subscript
    bounds = {"arith.maxsi": 0, "arith.minsi": (parts or 0) - 1}
    while value != gather.id:
        op = graph.producer(value)
        assert op is not None
        if op.name in bounds:
            value, *limits = sorted(op.operands, key=lambda operand: graph.number(operand) is not None)
            if [graph.number(limit) for limit in limits] != [bounds[op.name]]:
                return False
        elif op.name == "arith.index_cast":
            value = op.operands[0]
        else:
            return False
    return True


def is_wrapped(gather: Gather) -> bool | None:
    """Returns whether the subscript is the id, counted from the end if it is negative; False: it is the id alone.

    None: it is anything else.
    """
    value = graph.look_through(gather.subscript, ("arith.index_cast",))
    if value == gather.id:
        return False
    if (select := graph.producer(value, "arith.select")) is None:
        return None
    test, more = (graph.producer(each) for each in list(select.operands)[:2])
    if test is None or more is None or (test.name, more.name) != ("arith.cmpi", "arith.addi"):
        return None
    is_below = ir.IntegerAttr(test.attributes["predicate"]).value == arith.CmpIPredicate.slt
    numbers = graph.number(test.operands[1]), graph.number(more.operands[1])
    ids = select.operands[2], test.operands[0], more.operands[0]
    is_whole = is_below and numbers == (0, static_sizes(gather.source)[0]) and all(each == gather.id for each in ids)
    return True if is_whole else None


def are_given(elements: ir.Value) -> bool:
    """Returns whether elements [rows, K/32, 32] are bytes of an argument in their order, to be read without packing.

    Computed ones are none, as IREE might fuse their producers into the dispatch that reads them.
    """
    if is_gathered(elements) or find(elements) is not None:
        return False
    stored = storage(elements)
    return isinstance(stored.owner, ir.Block) and stored.owner.owner.name in ("func.func", "util.func")


def _gather(op: ir.Operation) -> Gather | None:
    if op.name != "linalg.generic" or len(op.operands) != 2 or not is_elementwise(op):
        return None
    ids, body = op.operands[0], op.regions[0].blocks[0]
    read = graph.producer(yielded(op), "tensor.extract")
    if not build.is_tensor(ids) or read is None or read.block != body or _is_inside(read.operands[0], body):
        return None
    source, subscript, *inner = read.operands
    sizes, leading = static_sizes(op.results[0]), ir.RankedTensorType(ids.type).rank
    place = tuple(ZERO if size == 1 else Index(f"axis {i}", 1, size) for i, size in enumerate(sizes))
    loops = loop_subscripts(op, place)
    try:
        of_ids = apply_map((indexing_maps(op) or [])[0], loops)
    except UntraceableError:
        return None
    kept = [graph.producer(value, "linalg.index") for value in inner]
    at = [None if each is None else loops[ir.IntegerAttr(each.attributes["dim"]).value] for each in kept]
    is_whole = (*of_ids, *at) == place and static_sizes(source)[1:] == sizes[leading:]
    return Gather(source, ids, subscript, body.arguments[0]) if is_whole and _is_calculated(subscript, body) else None


def _is_inside(value: ir.Value, body: ir.Block) -> bool:
    op = graph.producer(value)
    return (ir.BlockArgument(value).owner if op is None else op.block) == body


def _is_calculated(value: ir.Value, body: ir.Block) -> bool:
    """Returns whether a value is integer arithmetic on the first argument of a body and constants alone."""
    if not _is_inside(value, body):
        return graph.number(value) is not None
    op = graph.producer(value)
    if op is None:
        return value == body.arguments[0]
    arithmetic = op.name.startswith("arith.") and len(op.results) == 1 and not list(op.regions)
    return arithmetic and all(_is_calculated(operand, body) for operand in op.operands)


def are_hidden(product: ir.Value, ids: ir.Value) -> bool:
    """Returns whether every reader of a batch of matrices replaces those with a negative id: blocks without tokens.

        %y = linalg.generic {indexing_maps = [(b, m, n) -> (b, m, n), (b, m, n) -> (b), …]} ins(%product, %ids, …) {
        ^bb0(%p: f32, %id: i32, …):
          %has = arith.cmpi sge, %id, %c0 : i32
          %q = arith.select %has, %p, %zero : f32   // or anything else for %zero
          … nothing else uses %p

    A kernel need not compute such a product.
    """
    uses = [(use.owner.operation, use.operand_number) for use in product.uses]
    return bool(uses) and all(_hides(op, number, ids) for op, number in uses)


def _hides(op: ir.Operation, number: int, ids: ir.Value) -> bool:
    maps = indexing_maps(op)
    if maps is None or not is_elementwise(op) or number == len(op.operands) - 1:
        return False
    arguments = list(op.regions[0].blocks[0].arguments)
    batch = ir.AffineMap.get(maps[number].n_dims, 0, [maps[number].results[0]])
    of_id = [arguments[i] for i, value in enumerate(list(op.operands)[:-1]) if value == ids and maps[i] == batch]
    users = [(use.owner.operation, use.operand_number) for use in arguments[number].uses]
    return all(user.name == "arith.select" and at == 1 and _chooses(user, of_id) for user, at in users)


def _chooses(select: ir.Operation, ids: list[ir.Value]) -> bool:
    """Returns whether an `arith.select` takes its last operand where an id is negative."""
    if (compare := graph.producer(select.operands[0], "arith.cmpi")) is None:
        return False
    (id_, limit), predicate = compare.operands, ir.IntegerAttr(compare.attributes["predicate"]).value
    return predicate == arith.CmpIPredicate.sge and id_ in ids and graph.number(limit) == 0
