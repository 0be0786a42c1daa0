"""mxcomp-check-places: asserts at run time that rows are written to places that a cache has.

PyTorch's index_copy and index_put raise an error for others. IREE would write them where something else is.

Before:

    %u = iree_linalg_ext.scatter dimension_map = [0, 1, 2, 3] ins(%rows, %subscripts : …) outs(%cache : …)

After, at the beginning of the function where the position is known there, and else behind what computes it:

    %at = tensor.extract %position[%c0] : tensor<1xi64>
    %0 = arith.cmpi sge, %at, %c0_i64   %1 = arith.cmpi slt, %at, %c1024_i64   %inside = arith.andi %0, %1
    cf.assert %inside, "mxcomp: rows must be written to places 0 to 1023 of a cache, for …"

The host waits for the integer: once in a call, as all layers of a model write to the same place. Of several integers a
dispatch says whether each is inside. A choice by place (PyTorch's where) leaves rows out that have none, and is not
checked, nor are a router's tables, whose positions are counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from iree.compiler import ir
from iree.compiler.dialects import arith, cf, tensor

from mxcomp.matching import updates
from mxcomp.matching.size import FUNCTIONS
from mxcomp.matching.updates import SCATTER, Update
from mxcomp.mlir import attributes, build, graph, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import names, reduced
from mxcomp.mlir.variables import LOAD, STORE, SYMBOL
from mxcomp.run.statuses import LATE

_CALLS = ("util.call", "func.call")


_PURE = (
    "linalg.", "tensor.", "arith.", "affine.", "iree_tensor_ext.bitcast", "hal.tensor.import", "hal.buffer_view.dim",
    LOAD,
)  # fmt: skip
_MOST = 200
"""Operations that compute places at the beginning of a function."""


def run(module: ir.Operation) -> None:
    """Checks the places of updates below `module`."""
    checked = set[object]()
    for op in [op for op in graph.walk(module, bodies=False) if op.name == SCATTER]:
        update = None if graph.is_in_dispatch(op) or attributes.INSIDE in op.attributes else updates.find(op)
        if update is None:
            continue
        length = ir.RankedTensorType(update.cache.type).shape[update.axis]
        if (key := (update.places, update.count, length, op.block)) not in checked:
            checked.add(key)
            _check(update, length)


def _check(update: Update, length: int) -> None:
    table = update.places.table
    producer = graph.producer(table)
    is_near = producer is not None and producer.block == update.op.block
    with update.op.location, ir.InsertionPoint.after(producer) if is_near else ir.InsertionPoint(update.op):
        kind, ends = ir.RankedTensorType(table.type), _ends(update)
        if all(size == 1 for size in kind.shape):
            zeros = [build.constant_index(0)] * kind.rank
            inside = _inside(_wide(tensor.ExtractOp(table, zeros).result), update, length, ends)
        else:
            inside = _all_inside(update, length, ends)
        text = f"mxcomp: rows must be written to places 0 to {length - 1} of a cache"
        text += f", for {graph.location_text(update.op.location)}"
        made = cf.AssertOp(inside, text).operation
    if not _moved_up(made):
        made.attributes["msg"] = ir.StringAttr.get(text + LATE)


def _moved_up(check: ir.Operation) -> bool:
    """Moves a check and what computes it to the beginning of a function, where that changes nothing."""
    block, needed, pending = check.block, [check], [check]
    while pending:
        op = pending.pop()
        for value in (user.operands[i] for user, i in graph.inputs(op)):
            producer = graph.producer(value)
            if producer is None or producer in needed:
                continue
            if producer.block != block or not producer.name.startswith(_PURE) or len(needed) > _MOST:
                return False
            needed.append(producer)
            pending.append(producer)
    operations = [view.operation for view in block.operations]
    loaded = {str(op.attributes[SYMBOL]) for op in needed if op.name == LOAD}
    for op in operations[: operations.index(check)]:
        if (op.name == STORE and str(op.attributes[SYMBOL]) in loaded) or op.name in _CALLS:
            return False
    if block.owner.operation.name not in FUNCTIONS or block != block.region.blocks[0]:
        return False
    first, *rest = [op for op in operations if op in needed]
    if first != operations[0]:
        first.move_before(operations[0])
    for op in rest:
        op.move_after(first)
        first = op
    return True


def _wide(value: ir.Value) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    return value if value.type == i64 else arith.ExtSIOp(i64, value).result


def _ends(update: Update) -> list[ir.Value]:
    """Returns what is added to an integer for the first row that it is for, and for the last."""
    i64, places, count = ir.IntegerType.get_signless(64), update.places, update.count
    first = s.constant(places.number, i64)
    if places.by_row or count.number == 1:
        return [first]
    if count.number is not None:
        return [first, s.constant(places.number + (count.number - 1) * places.step, i64)]
    rows = arith.IndexCastOp(i64, count.build()).result
    return [first, s.plus(s.times(rows, places.step), places.number - places.step)]


def _inside(
    number: ir.Value, update: Update, length: int, ends: Sequence[ir.Value], row: ir.Value | None = None
) -> ir.Value:
    """Returns whether all rows that an integer is for, or its one `row`, have places in a cache."""
    if row is not None and update.places.step:
        number = s.plus(number, s.times(row, update.places.step))
    # As unsigned numbers, negative ones are the largest.
    size, at = s.constant(length, number.type), [s.plus(number, end) for end in ends]
    return reduce(s.both, [arith.CmpIOp(arith.CmpIPredicate.ult, each, size).result for each in at])


def _all_inside(update: Update, length: int, ends: Sequence[ir.Value]) -> ir.Value:
    """Computes on the device whether all integers of a table are places in a cache."""
    table, rank = update.places.table, ir.RankedTensorType(update.places.table.type).rank
    i32, i64 = (ir.IntegerType.get_signless(bits) for bits in (32, 64))
    loops = names(rank)

    def is_outside(number: ir.Value) -> ir.Value:
        row = arith.IndexCastOp(i64, linalg.IndexOp(rank - 1).result).result if update.places.by_row else None
        outside = s.flipped(_inside(_wide(number), update, length, ends, row), 1)
        return arith.ExtUIOp(i32, outside).result

    found = reduced(loops, "", (), "i32", [(loops, table)], lambda new, before: s.either(before, new), is_outside)
    return s.equal(s.at(found), 0)
