"""Buffers that a model changes, such as a cache of keys: globals, which all functions of a program share.

util.global private mutable @state_0 = dense<0.0> : tensor<1x8x1024x128xbf16>
…
%0 = util.global.load @state_0 : tensor<1x8x1024x128xbf16>
%1 = torch_c.from_builtin_tensor %0 : tensor<1x8x1024x128xbf16> -> !torch.vtensor<[1,8,1024,128],bf16>
…
%3 = torch_c.to_builtin_tensor %2 : !torch.vtensor<[1,8,1024,128],bf16> -> tensor<1x8x1024x128xbf16>
util.global.store %3, @state_0 : tensor<1x8x1024x128xbf16>
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from iree.compiler import ir
from iree.compiler.dialects import util
from torch.export.graph_signature import InputKind

from mxcomp.errors import InputError
from mxcomp.mlir import graph
from mxcomp.passes.import_torch import builtin_type

Memory: TypeAlias = tuple[Any, ...]
"""The memory of a tensor: tensors with equal values are one."""

_KINDS = (
    torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu,
)  # fmt: skip
_AS_INTEGERS = {1: torch.int8, 2: torch.int16}
"""The types by bytes in which NumPy gets floats that it does not know."""
_MOST_BYTES = 2**24
"""The largest initial value, in bytes, that is not everywhere the same, which is in the program."""


def memory_of(tensor: torch.Tensor) -> Memory:
    """Returns the memory of a tensor, and how it lies there."""
    start = 0 if tensor.is_meta else tensor.untyped_storage().data_ptr()
    return start or id(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def with_buffers(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns the program with all tensors that it changes as buffers, also those of an object that is no module.

    A cache of transformers is such an object. What else it has in common with a module is one buffer, not two.
    """
    specs = program.graph_signature.input_specs
    graph_module = copy.deepcopy(program.graph_module)
    nodes = {node.name: node for node in graph_module.graph.nodes if node.op == "placeholder"}
    kept, buffers, is_other = [], dict[Memory, torch.fx.Node](), False
    for spec in sorted(specs, key=lambda spec: spec.kind != InputKind.BUFFER):
        if spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert spec.target is not None
            known = program.state_dict if spec.target in program.state_dict else program.constants
            node, at = nodes[spec.arg.name], memory_of(known[spec.target])
            if spec.kind == InputKind.CONSTANT_TENSOR and at in buffers:
                node.replace_all_uses_with(buffers[at])
                graph_module.graph.erase_node(node)
                is_other = True
                continue
            if spec.kind == InputKind.CONSTANT_TENSOR and any(_changes(user, node) for user in node.users):
                spec, is_other = replace(spec, kind=InputKind.BUFFER, persistent=False), True
            if spec.kind == InputKind.BUFFER:
                buffers.setdefault(at, node)
        kept.append(spec)
    if not is_other:
        return program
    order = [spec.arg.name for spec in specs]
    kept.sort(key=lambda spec: order.index(spec.arg.name))
    return torch.export.ExportedProgram(
        graph_module, graph_module.graph, replace(program.graph_signature, input_specs=kept), program.state_dict,
        program.range_constraints, program.module_call_graph, program.example_inputs, program.constants,
        verifiers=program.verifiers,
    )  # fmt: skip


def _changes(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Returns whether an operator writes into a tensor."""
    if not isinstance(user.target, torch._ops.OpOverload):
        return False
    arguments = zip(user.target._schema.arguments, user.args, strict=False)
    return any(value is node and each.alias_info is not None and each.alias_info.is_write for each, value in arguments)


class State:
    """The buffers that functions of a model change."""

    def __init__(self) -> None:
        self._names: dict[Memory, str] = {}

    def add(self, program: torch.export.ExportedProgram) -> None:
        """Adds the buffers that a function changes. All functions must be added before the first is imported."""
        for name in program.graph_signature.buffers_to_mutate.values():
            tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
            self._names.setdefault(memory_of(tensor), f"state_{len(self._names)}")

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return memory_of(tensor) in self._names

    def load(self, module: ir.Operation, tensor: torch.Tensor, name: str, torch_type: str) -> ir.Value:
        """Returns a buffer's value when the function begins. Raises InputError for one that no global can be.

        Values are imported where they are used first, which may be behind the store of the next one.
        """
        kind = self._declare(module, tensor, name, torch_type)
        with ir.InsertionPoint.at_block_begin(ir.InsertionPoint.current.block):
            value = util.GlobalLoadOp(kind, self._names[memory_of(tensor)]).result
            back = [ir.Type.parse(torch_type)]
            return ir.Operation.create("torch_c.from_builtin_tensor", results=back, operands=[value]).result

    def store(self, module: ir.Operation, tensor: torch.Tensor, name: str, value: ir.Value) -> None:
        """Stores a buffer's next value."""
        kind = self._declare(module, tensor, name, str(value.type))
        plain = ir.Operation.create("torch_c.to_builtin_tensor", results=[kind], operands=[value]).result
        util.GlobalStoreOp(plain, self._names[memory_of(tensor)])

    def _declare(self, module: ir.Operation, tensor: torch.Tensor, name: str, torch_type: str) -> ir.Type:
        """Declares the global of a buffer, if there is none, and returns its type."""
        kind = builtin_type(torch_type)
        if kind is None or tensor.dtype not in _KINDS:
            kinds = ", ".join(str(each).removeprefix("torch.") for each in _KINDS)
            raise InputError(f"the model changes its buffer '{name}' of {tensor.dtype}: expected one of {kinds}")
        symbol = self._names[memory_of(tensor)]
        if symbol not in ir.SymbolTable(module):
            first = _first(tensor, name, ir.RankedTensorType(kind))
            place = ir.InsertionPoint.at_block_begin(graph.module_block(module))
            util.GlobalOp(symbol, kind, sym_visibility="private", is_mutable=True, initial_value=first, ip=place)
        return kind


def _first(tensor: torch.Tensor, name: str, kind: ir.RankedTensorType) -> ir.Attribute:
    """Returns the initial value of a buffer."""
    if tensor.is_meta:
        raise InputError(f"the model changes its buffer '{name}', which has no data (it is on the device meta)")
    values = tensor.detach().cpu().contiguous()
    if not values.numel():
        raise InputError(f"the model changes its buffer '{name}', which has no elements")
    first = values.reshape(-1)[0]
    bits = values.view(torch.uint8) if values.dim() else values.reshape(1).view(torch.uint8)
    if (bits.reshape(values.numel(), -1) == first.reshape(1).view(torch.uint8)).all():
        element = kind.element_type
        if isinstance(element, ir.FloatType):
            return ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(element, first.item()))
        return ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(element, first.item()))
    if values.nbytes > _MOST_BYTES:
        raise InputError(
            f"the model changes its buffer '{name}', {values.nbytes:,} bytes that are not all the same at first: "
            f"expected at most {_MOST_BYTES:,}, or an argument that is returned"
        )
    is_known = values.dtype in (torch.float32, torch.float16) or not values.is_floating_point()
    array = (values if is_known else values.view(_AS_INTEGERS[values.itemsize])).numpy()
    return ir.DenseElementsAttr.get(array, type=kind.element_type, shape=list(kind.shape))
