"""mxcomp-declare-types: adds declarations of arguments and results to programs from PyTorch.

IREE wraps functions of tensors for its callers, and writes down their types, which say how numbers, and files of bytes,
are meant. Its importer of PyTorch's programs makes the wrapper itself, without the types. Of results that are unsigned
integers it forgets the sign: mxcomp-import-torch notes them on the module, and they are exported as such.

Before:

    util.func public @main$async(%x: !hal.buffer_view, %n: i64, …) -> !hal.buffer_view {
      %0 = hal.tensor.import wait(…) => %x : !hal.buffer_view -> tensor<?x6xf32>{…}   …
    util.func public @main(%x: !hal.buffer_view, %n: i64) -> !hal.buffer_view attributes {iree.abi.stub} {
      %r = util.call @main$async(%x, %n, …) …

After:

    util.func public @main(…) -> … attributes {iree.abi.stub, iree.reflection = {iree.abi.declaration =
      "sync func @main(%input0: tensor<?x6xf32>, %input1: i64) -> (%output0: tensor<6xf32>)"}}
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import UNSIGNED_RESULTS, to_python
from mxcomp.run.signature import DECLARATION


def run(module: ir.Operation) -> None:
    """Adds declarations to the wrappers below `module` that have none."""
    unsigned = to_python(module.attributes[UNSIGNED_RESULTS]) if UNSIGNED_RESULTS in module.attributes else {}
    functions = {graph.symbol_name(op): op for op in graph.walk(module, bodies=False) if op.name == "util.func"}
    for name, op in functions.items():
        is_wrapper = _WRAPPER in op.attributes and "iree.abi.model" not in op.attributes
        if is_wrapper and _REFLECTION not in op.attributes and len(op.regions[0].blocks) == 1:
            with op.location:
                for number in unsigned.get(name, ()):
                    _export_unsigned(_exporter(_returned(op)[number], functions))
                text = ir.StringAttr.get(_declaration(name, op, functions))
                op.attributes[_REFLECTION] = ir.DictAttr.get({DECLARATION: text})


_ENCODING = "source_encoding"
_WRAPPER, _REFLECTION = "iree.abi.stub", "iree.reflection"


def _declaration(name: str, op: ir.Operation, functions: dict[str, ir.Operation]) -> str:
    block = op.regions[0].blocks[0]
    arguments = [f"%input{i}: {_taken(value, functions)}" for i, value in enumerate(block.arguments)]
    results = [f"%output{i}: {_given(value, functions)}" for i, value in enumerate(_returned(op))]
    return f"sync func @{name}({', '.join(arguments)}) -> ({', '.join(results)})"


def _taken(value: ir.Value, functions: dict[str, ir.Operation]) -> ir.Type:
    """Returns the type that an argument is imported as, here or in the function that it is passed to. Its own if
    nowhere."""
    for use in value.uses:
        user = use.owner.operation
        if user.name == "hal.tensor.import":
            return user.results[0].type
        if (callee := _callee(user, functions)) is not None:
            return _taken(callee.regions[0].blocks[0].arguments[use.operand_number], functions)
    return value.type


def _given(value: ir.Value, functions: dict[str, ir.Operation]) -> ir.Type:
    """Returns the type that a result is exported as."""
    op = _exporter(value, functions)
    return value.type if op is None else ir.TypeAttr(op.attributes[_ENCODING]).value


def _exporter(value: ir.Value, functions: dict[str, ir.Operation]) -> ir.Operation | None:
    """Returns the operation that exports a result, here or in the function that is called for it."""
    op = graph.producer(value)
    if op is not None and (callee := _callee(op, functions)) is not None:
        return _exporter(_returned(callee)[ir.OpResult(value).result_number], functions)
    return op if op is not None and op.name == "hal.tensor.export" else None


def _export_unsigned(op: ir.Operation | None) -> None:
    if op is not None:
        kind = ir.RankedTensorType(op.operands[0].type)
        element = ir.IntegerType.get_unsigned(ir.IntegerType(kind.element_type).width)
        op.attributes[_ENCODING] = ir.TypeAttr.get(build.tensor_type(build.static_sizes(op.operands[0]), element))


def _callee(op: ir.Operation, functions: dict[str, ir.Operation]) -> ir.Operation | None:
    """Returns the function that an operation calls, if it is one with a body."""
    found = functions.get(graph.callee(op)) if op.name == "util.call" else None
    return found if found is not None and len(found.regions[0].blocks) == 1 else None


def _returned(op: ir.Operation) -> list[ir.Value]:
    return list(list(op.regions[0].blocks[0].operations)[-1].operands)
