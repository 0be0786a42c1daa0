"""The graph of operations in a module: walking it, finding producers, symbols, and erasing unused operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cmp_to_key
from typing import Any

from iree.compiler import ir


def walk(root: ir.Operation, bodies: bool = True, outside: bool = False) -> Iterator[ir.Operation]:
    """Yields all operations below `root`, each before those in its regions; safe against changes to the current one.

    Without `bodies` those of linalg operations are left out, which are most of a model's; `outside`: dispatches are.
    """
    pending = [root]
    while pending:
        op = pending.pop()
        if op is not root:
            if outside and op.name in _DISPATCHES:
                continue
            yield op
            if not bodies and op.name.startswith("linalg."):
                continue
        below = [view.operation for region in op.regions for block in region.blocks for view in block.operations]
        pending += reversed(below)


def rewrite(
    root: ir.Operation,
    wanted: Collection[str] | Callable[[ir.Operation], Any],
    change: Callable[[ir.Operation], Any],
    bodies: bool = False,
    outside: bool = False,
) -> None:
    """Calls `change` for each operation below `root` that is wanted, by its name or by what it is.

    What that builds has its location, and stands in front of it. `bodies` and `outside` are those of `walk`.
    """
    is_wanted = wanted if callable(wanted) else lambda op: op.name in wanted
    for op in [op for op in walk(root, bodies, outside) if is_wanted(op)]:
        with op.location, ir.InsertionPoint(op):
            change(op)


def constant(value: ir.Value) -> ir.Attribute | None:
    """Returns the attribute of a constant scalar, or of each element of a constant tensor of equal ones; else None."""
    attribute = None if (op := producer(value, "arith.constant")) is None else op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return attribute.get_splat_value() if attribute.is_splat else None
    return attribute if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr) else None


def number(value: ir.Value) -> int | None:
    """Returns the integer of a constant scalar, a boolean included; None for other values."""
    attribute = None if isinstance(value.type, ir.ShapedType) else constant(value)
    return ir.IntegerAttr(attribute).value if isinstance(attribute, ir.IntegerAttr) else None


def real(value: ir.Value) -> float | None:
    """Returns the number that a constant float is, or each element of a constant tensor; None for other values."""
    attribute = constant(value)
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None


def slicing(op: ir.Operation) -> tuple[list[int], list[int], list[int]]:
    """Returns the offsets, sizes and steps of a slice; those that the running program computes are dynamic."""
    view = op.opview
    return list(view.static_offsets), list(view.static_sizes), list(view.static_strides)


def symbol_name(op: ir.Operation) -> str:
    """Returns the symbol an operation defines, or ""."""
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def callee(call: ir.Operation) -> str:
    """Returns the symbol of the function that an operation calls."""
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def is_public(op: ir.Operation) -> bool:
    """Returns whether a symbol can be used from outside of its module."""
    return "sym_visibility" not in op.attributes or ir.StringAttr(op.attributes["sym_visibility"]).value == "public"


def location_text(location: ir.Location) -> str:
    """Returns file:line:column of a location: the innermost of nested ones, the first of several."""
    found = next(file_locations(location), None)
    return str(location) if found is None else f"{found.filename}:{found.start_line}:{found.start_col}"


def placed(what: str, location: ir.Location) -> str:
    """Returns a description with where it is, if that is known."""
    return what if location == ir.Location.unknown(location.context) else f"{what} at {location_text(location)}"


def location_name(location: ir.Location) -> str:
    """Returns the name that a location gives its operation, the outermost of several; "" for none."""
    names = (str(each.name_str) for each in located(location, ir.NameLoc))
    return next(filter(None, names), "")


def file_locations(location: ir.Location) -> Iterator[ir.FileLineColLoc]:
    """Yields the file locations in a location, the innermost first."""
    return located(location, ir.FileLineColLoc)


def located(location: ir.Location, kind: type[ir.Location]) -> Iterator[Any]:
    """Yields the outermost locations of a kind in a location, those of callees first."""
    match location:
        case kind():
            yield location
        case ir.NameLoc():
            yield from located(location.child_loc, kind)
        case ir.CallSiteLoc():
            yield from located(location.callee, kind)
            yield from located(location.caller, kind)
        case ir.FusedLoc():
            for each in location.locations:
                yield from located(each, kind)


def around(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yields an operation, and those in whose regions it is, the innermost first."""
    yield op
    while op.parent is not None:
        op = op.parent.operation
        yield op


def root(op: ir.Operation) -> ir.Operation:
    """Returns the outermost operation around `op`: its module."""
    *_, outermost = around(op)
    return outermost


def module_block(root: ir.Operation) -> ir.Block:
    return root.regions[0].blocks[0]


def executables(module: ir.Operation) -> dict[str, ir.Operation]:
    """Returns the executables of a module at IREE's flow phase, by their symbols."""
    top = (view.operation for view in module_block(module).operations)
    return {symbol_name(op): op for op in top if op.name == "flow.executable"}


_DISPATCHES = ("flow.dispatch.region", "flow.dispatch.workgroups", "flow.executable", "hal.executable")


def is_in_dispatch(op: ir.Operation) -> bool:
    """Returns whether an operation is part of a dispatch, which IREE moves nothing into."""
    return any(each.name in _DISPATCHES for each in around(op) if each != op)


def producer(value: ir.Value, *names: str) -> ir.Operation | None:
    """Returns the operation that defines a value, if it is one of these names, or no names are given; else None."""
    owner = value.owner
    op = owner.operation if isinstance(owner, ir.OpView | ir.Operation) else None
    return op if op is None or not names or op.name in names else None


def producers(
    values: Iterable[ir.Value],
    follows: Callable[[ir.Operation], bool],
    sources: Callable[[ir.Operation], Iterable[ir.Value]] = lambda op: op.operands,
) -> Iterator[ir.Operation]:
    """Yields the operations that values are computed from, each once, and followed back to its sources if wanted."""
    seen, pending = set[ir.Operation](), list(values)
    while pending:
        op = producer(pending.pop())
        if op is not None and op not in seen and follows(op):
            seen.add(op)
            yield op
            pending += sources(op)


SORT = "iree_linalg_ext.sort"
RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
VIEWS = (*RESHAPES, "tensor.cast")


def look_through(value: ir.Value, wanted: Collection[str] | Callable[[ir.Operation], bool]) -> ir.Value:
    """Follows a value through operations that are wanted, by name or by what they are, by their first operand."""
    is_wanted = wanted if callable(wanted) else lambda op: op.name in wanted
    while (op := producer(value)) is not None and is_wanted(op):
        value = op.operands[0]
    return value


def look_through_views(value: ir.Value) -> ir.Value:
    """Follows a value through reshapes and casts."""
    return look_through(value, VIEWS)


def uses(value: ir.Value, through: Collection[str]) -> Iterator[ir.OpOperand]:
    """Yields the uses of a value, and of what operations of the names `through` make of it."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in through:
            yield from uses(op.results[0], through)
        else:
            yield use


def readers(value: ir.Value, through: Collection[str]) -> Iterator[ir.Operation]:
    """Yields the operations that read a value, also what operations of the names `through` make of it."""
    return (use.owner.operation for use in uses(value, through))


def in_order(ops: Iterable[ir.Operation]) -> list[ir.Operation]:
    """Returns operations of one block, each once, as they follow one another there."""
    return sorted(set(ops), key=_PLACE)


def _compared(one: ir.Operation, other: ir.Operation) -> int:
    return -1 if one.is_before_in_block(other) else 1


_PLACE = cmp_to_key(_compared)


def in_block(op: ir.Operation, block: ir.Block) -> ir.Operation:
    """Returns the operation of a block that contains `op`, or is it."""
    while op.block != block:
        assert op.parent is not None, "an operation of another function"
        op = op.parent.operation
    return op


def only_user(op: ir.Operation) -> ir.Operation | None:
    """Returns the operation that is the only user of the first result, or None."""
    users = [use.owner.operation for use in op.results[0].uses]
    return users[0] if len(users) == 1 else None


def users_in_order(values: list[ir.Value]) -> Iterator[ir.Operation]:
    """Yields operations of the block that use one of `values`, to which more may be added meanwhile, in block order."""
    block, followed = values[0].owner.operation.block, 0
    pending: list[ir.Operation] = []
    while True:
        for value in values[followed:]:
            users = dict.fromkeys(use.owner.operation for use in value.uses)  # one may read a value twice
            pending += [user for user in users if user.block == block and user not in pending]
        followed = len(values)
        if not pending:
            return
        first = min(pending, key=_PLACE)
        pending.remove(first)
        yield first


def chain_behind(op: ir.Operation, fits: Callable[[ir.Operation], bool]) -> list[ir.Operation]:
    """Returns the longest chain of fitting operations on a result of which only the last result has other readers."""
    values, inside, longest = [op.results[0]], list[ir.Operation](), list[ir.Operation]()
    for user in users_in_order(values):
        if len(user.results) != 1 or not fits(user):
            break
        inside.append(user)
        if all(use.owner.operation in inside for value in values for use in value.uses):
            longest = list(inside)
        values.append(user.results[0])
    return longest


def captures(op: ir.Operation) -> bool:
    """Returns whether a body takes anything from outside but constants."""
    taken = (producer(user.operands[i]) for user, i in inputs(op) if user != op)
    return any(source is None or source.name != "arith.constant" for source in taken)


def inputs(op: ir.Operation) -> list[tuple[ir.Operation, int]]:
    """Yields the uses of values from outside of an operation: its own operands, and those of operations in its
    regions."""
    inner = list(walk(op))
    made = {value for below in inner for value in below.results}
    made |= {
        value for at in (op, *inner) for region in at.regions for block in region.blocks for value in block.arguments
    }
    own = [(op, i) for i in range(len(op.operands))]
    return own + [(user, i) for user in inner for i, value in enumerate(user.operands) if value not in made]


def without_cast(value: ir.Value) -> ir.Value:
    """Returns the tensor in front of a `tensor.cast`, which may know more or fewer of its sizes."""
    return look_through(value, ("tensor.cast",))


def copied(op: ir.Operation, operands: Iterable[ir.Value]) -> ir.Operation:
    """Returns a copy of an operation with other operands, at the insertion point."""
    copy: ir.Operation = op.clone().operation
    for position, operand in enumerate(operands):
        copy.operands[position] = operand
    return copy


def remade(op: ir.Operation, operands: Iterable[ir.Value], **changed: ir.Attribute) -> ir.Operation:
    """Returns an operation without regions once more, at the insertion point, with other operands and attributes."""
    attributes = {name: op.attributes[name] for name in op.attributes} | changed
    kinds = [result.type for result in op.results]
    return ir.Operation.create(op.name, kinds, list(operands), attributes, loc=op.location)


def replace(op: ir.Operation, *values: ir.Value) -> None:
    """Erases an operation, in the place of whose results these values are read."""
    for old, value in zip(op.results, values, strict=True):
        old.replace_all_uses_with(value)
    op.erase()


def erase_dead(op: ir.Operation) -> None:
    """Erases an unused operation, and the empty tensors that only it used."""
    if any(True for result in op.results for _ in result.uses):
        return
    inits = [operand.owner for operand in op.operands if isinstance(operand.owner, ir.OpView)]
    op.erase()
    for init in dict.fromkeys(view.operation for view in inits):
        if init.name == "tensor.empty":
            erase_dead(init)


PURE = (
    "linalg.", "tensor.", "iree_tensor_ext.bitcast", "flow.tensor.tie_shape", "arith.constant", "arith.select",
    "util.optimization_barrier",
)  # fmt: skip
"""Beginnings of the names of operations without side effects."""


def erase_unused(values: Iterable[ir.Value]) -> None:
    """Erases the operations that compute these values and nothing else, as far as they have no side effects."""
    found = set(producers(values, lambda op: op.name.startswith(PURE)))
    for block in {op.block for op in found}:
        for op in reversed([view.operation for view in block.operations]):
            if op in found and not any(True for result in op.results for _ in result.uses):
                op.erase()
