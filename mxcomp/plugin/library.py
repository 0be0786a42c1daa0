"""Functions that compute a model's matmuls, each compiled by itself up to dispatches."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp import pipeline
from mxcomp.matching.decision import left_to_iree
from mxcomp.matching.storage import is_slice, storage
from mxcomp.mlir import build
from mxcomp.options import Options
from mxcomp.packing.stored_operand import CONSTANT, is_constant
from mxcomp.plugin.dags import Dag

_SLICE = "mxcomp.slice"


def library(name: str, dag: Dag, options: Options) -> ir.Module:
    """Returns a module with the matmul's function, compiled up to dispatches, and their executables."""
    module = ir.Module.create()
    function = _function(name, dag, module)
    pipeline.run(module.operation, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
    if left_to_iree(module.operation):
        _hide(function)
    pipeline.run(module.operation, pipeline.BUILDING_PASSES, options)
    function = ir.SymbolTable(module.operation)[name].operation
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    return module


def key(dag: Dag) -> str:
    """Returns a key that is equal for matmuls that share a matcher and a function."""
    module = ir.Module.create()
    _function("key", dag, module)
    return str(module)  # a function by itself is printed without what is in it


def _function(name: str, dag: Dag, module: ir.Module) -> ir.Operation:
    """Returns a public function over `dag.inputs` that computes the same as the matmul's operations."""
    result = dag.root.results[0].type
    inputs = [value.type for value in dag.inputs]
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, [result])),
        "tied_operands": ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), -1)]),
    }
    marks = [_marks(value) for value in dag.inputs]
    if any(marks):
        attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(mark) for mark in marks])
    function = ir.Operation.create("util.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body))
    body = function.regions[0].blocks.append(*inputs)
    value = dag.clone(list(body.arguments), ir.InsertionPoint(body))
    ir.Operation.create("util.return", operands=[value], ip=ir.InsertionPoint(body))
    return function


def _marks(value: ir.Value) -> dict[str, ir.Attribute]:
    """Returns the attributes by which passes treat an operand that is a function's argument."""
    marked = {CONSTANT: is_constant(value), _SLICE: isinstance(value.type, ir.RankedTensorType) and _is_slice(value)}
    return {name: ir.UnitAttr.get() for name, is_so in marked.items() if is_so}


def _is_slice(value: ir.Value) -> bool:
    return not build.is_sub_byte(build.element(value)) and is_slice(storage(value))


def _hide(function: ir.Operation) -> None:
    """Keeps slices that a dispatch reads, and users of its result, out of it, as mxcomp-fall-back would."""
    body = function.regions[0].blocks[0]
    arguments, end = list(body.arguments), body.operations[len(body.operations) - 1].operation
    marks = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else [()] * len(arguments)
    with end.context, end.location:
        for argument in (argument for argument, mark in zip(arguments, marks, strict=True) if _SLICE in mark):
            users = [(use.owner.operation, use.operand_number) for use in argument.uses]
            with ir.InsertionPoint.at_block_begin(body):
                hidden = build.barrier(argument)
            for user, number in users:
                user.operands[number] = hidden
        with ir.InsertionPoint(end):
            end.operands[0] = build.barrier(end.operands[0])
