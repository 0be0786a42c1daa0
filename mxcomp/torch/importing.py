"""Imports exported programs to torch's dialect, with the torch module and source line of each operation."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from iree.compiler import ir
from iree.compiler.extras.fx_importer import ContextCache, FxImporter

from mxcomp.errors import InputError
from mxcomp.mlir.attributes import EQUAL_SIZES, from_python
from mxcomp.torch import decompositions
from mxcomp.torch.parameters import Parameters
from mxcomp.torch.state import with_buffers

_OUR_FRAME = re.compile(rf' *File "{re.escape(str(Path(__file__).parent))}/[^"]*", [^\n]*\n[^\n]*\n?')
"""Matches a frame of a stack trace, two lines."""

_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range")
"""Operators that check properties of the shapes and types that the program is compiled for."""


class _NamedLocations(ContextCache):
    """Adds the module's name to locations of nodes: `loc("layers.0.q"("model.py":7:0))`."""

    def get_node_location(self, node: torch.fx.Node) -> ir.Location | None:
        location = super().get_node_location(node)
        name = module_name(node)
        if not name:
            return location
        return ir.Location.name(name, location or ir.Location.unknown(self._c), context=self._c)


def module_name(node: torch.fx.Node) -> str:
    """Returns the innermost module of a node, by its name in the exported one; "" for the exported one."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def imported(programs: Mapping[str, torch.export.ExportedProgram], parameters: Parameters) -> ir.Module:
    """Returns a module with a function for each program. Raises InputError for operators that the importer does not
    know."""
    context = ir.Context()
    context.load_all_available_dialects()  # operations made before their dialect is loaded are malformed
    importer = FxImporter(context=context, hooks=parameters)
    importer._cc = _NamedLocations(context, py_attr_tracker=importer._py_attr_tracker)
    functions = {function: _lowered(program) for function, program in programs.items()}
    for lowered in functions.values():
        parameters.state.add(lowered)
    for function, lowered in functions.items():
        parameters.begin(function, lowered.constants)
        try:
            importer.import_program(lowered, func_name=function)
        except (NotImplementedError, TypeError) as error:
            raise InputError(f"@{function} cannot be imported: {error}") from None
    equal = {function: _equal(lowered) for function, lowered in functions.items()}
    if any(equal.values()):
        with context:
            importer.module.operation.attributes[EQUAL_SIZES] = from_python(equal)
    return importer.module


def _equal(program: torch.export.ExportedProgram) -> list[list[list[int]]]:
    """Returns groups of dimensions of arguments, each with its argument's number, whose sizes are one expression."""
    inputs = set(program.graph_signature.user_inputs)
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    arguments = enumerate(each for each in values if isinstance(each, (torch.Tensor, torch.SymInt)))
    found = dict[str, list[list[int]]]()
    for number, value in arguments:
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                found.setdefault(str(size), []).append([number, dim])
    return [each for each in found.values() if len(each) > 1]


def _lowered(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns a copy in the operators of core ATen, without checks, with locations of the caller's lines."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about torch
        lowered = with_buffers(program).run_decompositions(decompositions.table())
    decompositions.promote_bytes(lowered.graph)
    for node in reversed(list(lowered.graph.nodes)):
        if not node.users and any(check in str(node.target) for check in _CHECKS):
            lowered.graph.erase_node(node)
            continue
        callers = _OUR_FRAME.sub("", node.meta.get("stack_trace") or "")
        if callers.strip():
            node.meta["stack_trace"] = callers
    return lowered
