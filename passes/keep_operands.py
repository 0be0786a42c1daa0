"""mxcomp-keep-operands: what is read once more than IREE knows is not written over.

IREE 3.13 copies what an operation writes over if something reads it later. It overlooks two readers:

- The next step of a loop. What comes from outside of a loop, and has one use in it, is written over in the first step
  (`isSafeToElideCOW` asks for the number of users, `isSafeToElideCloneOp` likewise).
- The caller, where a function returns one of its arguments. The buffer itself is returned then, with nothing between
  it and what has been written into it.

A use behind the loop, and a value that IREE cannot look through, are readers that it sees.

Neither does it see that what comes out of a barrier is what went into it: a constant of the program perhaps, or read
on one side of it and written over on the other. The barrier has done its work by now, and goes.

Before:

    %x = hal.tensor.import %arg0 : !hal.buffer_view -> tensor<64xf32>
    %r = scf.for … {
      %s = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
      …
    }
    util.return %arg0, %r : !hal.buffer_view, !hal.buffer_view

After:

    %x = hal.tensor.import %arg0 : !hal.buffer_view -> tensor<64xf32>
    %r = scf.for … {
      %s = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
      …
    }
    %k = util.optimization_barrier %x : tensor<64xf32>
    %l = util.optimization_barrier %x : tensor<64xf32>
    %y = hal.tensor.export %l : tensor<64xf32> -> !hal.buffer_view
    util.return %y, %r : !hal.buffer_view, !hal.buffer_view

Before:

    %b = util.optimization_barrier %c : tensor<64xf32>
    %s = flow.dispatch @sort::@sort(%b) : (tensor<64xf32>) -> %b

After:

    %s = flow.dispatch @sort::@sort(%c) : (tensor<64xf32>) -> %c

It stands at the end of IREE's phase `flow`, where dispatches have got the operands that they write over, and in front
of mxcomp-place-results, which counts the uses.
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir
from iree.compiler.dialects import hal

from mxcomp.mlir import graph, overwriting
from mxcomp.options import Options

_LOOPS = ("scf.for", "scf.while")
_SAME = (*overwriting.VIEWS, overwriting.BARRIER)
_EXECUTABLE, _IMPORT, _ASKS = "flow.executable", "hal.tensor.import", "hal.buffer_view."


def run(module: ir.Operation, options: Options) -> None:
    """Adds uses of values below `module` that are written over while something needs them."""
    with module.context:
        functions = [view.operation for view in graph.module_block(module).operations]
        for function in functions:
            if function.name != _EXECUTABLE:
                _drop_barriers(function)
                for value in list(_tensors(function)):
                    if not overwriting.is_view(value) and (writers := overwriting.writers(value)):
                        _keep_for_later_steps(value, writers)
                        _keep_for_caller(value)


def _drop_barriers(function: ir.Operation) -> None:
    """Drops barriers of tensors that are written over on either side of them."""
    barriers = [op for op in graph.walk(function) if op.name == overwriting.BARRIER and _is_tensor(op.results[0])]
    dropped = [op for op in barriers if overwriting.writers(graph.behind(op.results[0], _SAME), _SAME)]
    for op in dropped:
        for result, value in zip(op.results, op.operands, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


def _tensors(function: ir.Operation) -> Iterator[ir.Value]:
    """All tensors of a function, arguments of its blocks included."""
    for op in (function, *graph.walk(function)):
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.arguments)):
            if _is_tensor(value):
                yield value


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _keep_for_later_steps(value: ir.Value, writers: list[ir.Operation]) -> None:
    """Adds a use behind what is around loops whose steps may write over a value from outside."""
    owner = value.owner
    scope = owner.owner if isinstance(owner, ir.Block) else owner.parent
    for outermost in {outer for writer in writers if (outer := _around_loops(writer, scope)) is not None}:
        with outermost.location, ir.InsertionPoint.after(outermost):
            _hidden(value)


def _around_loops(op: ir.Operation, scope: ir.Operation) -> ir.Operation | None:
    """What holds an operation directly inside `scope`; None if no loop is on the way."""
    has_loop = False
    while op.parent != scope:
        op = op.parent.operation
        has_loop |= op.name in _LOOPS
    return op if has_loop else None


def _keep_for_caller(value: ir.Value) -> None:
    """Exports an argument that is written over where it is used as it came, as by a return."""
    op = graph.producer(value)
    if op is None or op.name != _IMPORT:
        return
    source, *sizes = op.operands
    for use in list(source.uses):
        user = use.owner.operation
        if user.name != _IMPORT and not user.name.startswith(_ASKS):
            with user.location, ir.InsertionPoint(user):
                encoding = op.attributes["target_encoding"]
                user.operands[use.operand_number] = hal.TensorExportOp(
                    source.type, _hidden(value), encoding, sizes
                ).target


def _hidden(value: ir.Value) -> ir.Value:
    """The same value, with something that IREE cannot look through between."""
    return ir.Operation.create(overwriting.BARRIER, results=[value.type], operands=[value]).result
