"""Reads what the host side of a program does from its IR after IREE's `hal` phase.

    hal.command_buffer.dispatch … workgroups([x, y, z]) constants([…]) bindings([(slot)[offset, length], …])
    hal.device.queue.execute.indirect … bindings([(buffer)[offset, length], …])    what the slots stand for
    hal.buffer_view.buffer, hal.device.queue.alloca, hal.buffer_view.create        arguments, transients, results

For functions of static shapes without constants that fill one command buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iree.compiler import ir

from corpus.iree.program import Dispatch, Program, Span

_UNKNOWN = {f"hal.command_buffer.{name}_buffer" for name in ("fill", "copy", "update")}


def read_program(text: str | bytes, code: Sequence[bytes]) -> Program:
    """The program of the IR of a module with one public function. Raises NotImplementedError for what is not read."""
    with ir.Context():
        module = ir.Module.parse(text)
        host = [op for op in _walk(module.operation) if not op.name.startswith("hal.executable.binary")]
        (function,) = [op for op in host if op.name == "util.func" and "iree.abi.stub" in op.attributes]
        body = list(_walk(function))
        arguments = [op.results[0] for op in body if op.name == "hal.buffer_view.buffer"]
        transients = [op.results[0] for op in body if op.name == "hal.device.queue.alloca"]
        handles = {value: index for index, value in enumerate((*arguments, *transients))}
        executions = [op for op in body if op.name.startswith("hal.device.queue.execute")]
        if len(executions) != 1 or _UNKNOWN & {op.name for op in host}:
            raise NotImplementedError("expected one command buffer that only dispatches")
        slots = [_span(*value, handles) for value in _bindings(executions[0], 5)]
        sizes = [_constant(value.owner.operation.operands[-1]) for value in transients]
        lengths = {span.buffer: span.offset + span.length for span in slots}
        results = [op for op in body if op.name == "hal.buffer_view.create"]
        return Program(
            tuple(code),
            (*(lengths[i] for i in range(len(arguments))), *sizes),
            len(arguments),
            tuple(_dispatch(op, slots, handles) for op in host if op.name == "hal.command_buffer.dispatch"),
            tuple(_span(op.operands[0], op.operands[1], op.operands[2], handles) for op in results),
        )


def _dispatch(op: ir.Operation, slots: list[Span], handles: dict[ir.Value, int]) -> Dispatch:
    counts = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    lookup = op.operands[2].owner.operation
    bindings = []
    for buffer, offset, length in _bindings(op, sum(list(counts)[:7])):
        if isinstance(buffer.type, ir.IndexType):
            slot = slots[_constant(buffer)]
            bindings.append(Span(slot.buffer, slot.offset + _constant(offset), _constant(length)))
        else:
            bindings.append(_span(buffer, offset, length, handles))
    x, y, z, *constants = (_constant(value) for value in list(op.operands)[3 : sum(list(counts)[:7])])
    kernel = str(lookup.attributes["entry_point"]).rpartition("@")[2].strip('"')
    return Dispatch(kernel, (x, y, z), tuple(constants), tuple(bindings))


def _bindings(op: ir.Operation, first: int) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
    """Buffers, offsets and lengths, which are the operands from `first` on."""
    operands = list(op.operands)[first:]
    count = len(operands) // 3
    return zip(operands[:count], operands[count : 2 * count], operands[2 * count :], strict=True)


def _span(buffer: ir.Value, offset: ir.Value, length: ir.Value, handles: dict[ir.Value, int]) -> Span:
    return Span(handles[buffer], _constant(offset), _constant(length))


def _constant(value: ir.Value) -> int:
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        raise NotImplementedError(f"{value} is not a constant")
    return ir.IntegerAttr(value.owner.operation.attributes["value"]).value


def _walk(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from _walk(view.operation)
