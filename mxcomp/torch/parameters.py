"""Weights of an exported model as named parameters: as IR instead of constants, and their bytes for an archive.

util.global private @w = #flow.parameter.named<"model"::"layers.0.q.weight"> : tensor<256x128xi8>
…
%0 = util.global.load immutable @w : tensor<256x128xi8>
%1 = torch_c.from_builtin_tensor %0 : tensor<256x128xi8> -> !torch.vtensor<[256,128],ui8>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from iree.compiler import ir
from iree.compiler.dialects import arith, util
from iree.compiler.extras.fx_importer import FxImporterHooks, GraphNodeImporter, InputInfo

from mxcomp.errors import InputError
from mxcomp.mlir import attributes, build, graph
from mxcomp.passes.import_torch import builtin_type
from mxcomp.torch.state import Memory, State, memory_of
from mxcomp.weights.archive import Later, Streamed
from mxcomp.weights.checkpoint import Checkpoint, Tensor
from mxcomp.weights.views import Bytes

SMALL = 2**16
"""The size in bytes up to which tensors that no `state_dict` has, such as frequencies of rotary embeddings, are
constants."""


class Parameters(FxImporterHooks):
    """Answers FxImporter's requests for each tensor of a model. `scope` None: all are constants.

    Parameters and persistent buffers, which a `state_dict` has, have their names there; tensors with the same storage
    are one parameter, whatever function reads them. `names` are those of the program's other tensors, by identity.
    """

    def __init__(self, scope: str | None) -> None:
        self.scope = scope
        self.tensors: dict[str, torch.Tensor] = {}
        self.state = State()
        self._keys: dict[Memory, str] = {}
        self._narrowed: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._module: ir.Operation
        self._names: dict[int, str] = {}

    def prepare_module(self, module_op: ir.Operation) -> None:
        self._module = module_op

    def begin(self, function: str, constants: Mapping[str, Any]) -> None:
        """Begins the import of a program as a function."""
        self._names = {id(value): f"{function}.{name}" for name, value in constants.items()}

    def resolve_input(self, gni: GraphNodeImporter, value: Any, info: InputInfo) -> ir.Value | None:
        name = info.input_spec.target
        if value in self.state:
            return self.state.load(self._module, value, name, str(info.ir_type))
        stored = info.input_spec.persistent is not False
        return self._parameter(value, name, str(info.ir_type), 0 if stored else SMALL)

    def resolve_literal(self, gni: GraphNodeImporter, literal: Any, info: InputInfo | None) -> ir.Value | None:
        if not isinstance(literal, torch.Tensor) or info is not None:
            return None
        name = self._names.get(id(literal), f"constant_{len(self.tensors)}")
        return self._parameter(literal, name, str(gni._cc.tensor_to_vtensor_type(literal)), SMALL)

    def store_produced_value(self, gni: GraphNodeImporter, py_value: Any, produced_ir_value: Any, info: Any) -> None:
        self.state.store(self._module, py_value, info.input_spec.target, produced_ir_value)

    def _parameter(self, tensor: torch.Tensor, name: str, torch_type: str, small: int) -> ir.Value | None:
        """Returns a tensor as a parameter, or as a constant, of a `!torch.vtensor` type. None where the importer makes
        one."""
        kind = builtin_type(torch_type)
        if tensor.dtype == torch.bool or tensor.dim() == 0 or kind is None:
            return None
        if tensor.dtype == torch.float64:  # IREE makes f32 of them, but not of stored ones
            tensor = self._narrowed.setdefault(id(tensor), (tensor, tensor.detach().float()))[1]
        stored = builtin_type(_STORED.sub("f32", torch_type))
        assert stored is not None
        is_constant = self.scope is None or tensor.nbytes <= small
        if is_constant and stored == kind and tensor.dtype not in _NARROW:
            return None
        value = _constant(tensor, name, stored) if is_constant else self._loaded(tensor, name, stored)
        if stored != kind:
            value = arith.ExtFOp(kind, value).result
        back = [ir.Type.parse(torch_type)]
        return ir.Operation.create("torch_c.from_builtin_tensor", results=back, operands=[value]).result

    def _loaded(self, tensor: torch.Tensor, name: str, kind: ir.Type) -> ir.Value:
        """Returns a parameter of this type."""
        assert self.scope is not None
        key = self._key(tensor, name)
        symbol = f"parameter_{list(self.tensors).index(key)}"
        if symbol not in ir.SymbolTable(self._module):
            value = attributes.named_parameter(self.scope, key, kind)
            place = ir.InsertionPoint.at_block_begin(graph.module_block(self._module))
            util.GlobalOp(symbol, kind, sym_visibility="private", initial_value=value, ip=place)
        return util.GlobalLoadOp(kind, symbol, is_immutable=True).result

    def _key(self, tensor: torch.Tensor, name: str) -> str:
        same = memory_of(tensor)
        key = self._keys.get(same)
        if key is None:
            if name in self.tensors:
                raise InputError(f"two different tensors are called '{name}': expected functions of one model")
            key = self._keys[same] = name
            self.tensors[key] = tensor
        return key

    def checkpoint(self) -> Checkpoint:
        """Returns the tensors as `mxcomp.weights.checkpoint.pack` takes them. Raises InputError for one without
        data."""
        return Checkpoint({key: Tensor(as_bytes(tensor, key)) for key, tensor in self.tensors.items()}, "the model")

    def plain(self) -> Streamed:
        """Returns the tensors unpacked, each copied, if needed, when it is asked for."""
        checkpoint = self.checkpoint()
        return Streamed({key: Later(tensor.data.nbytes, partial(_data, tensor)) for key, tensor in checkpoint.items()})


_STORED = re.compile(r"\bf64\b")
_NARROW = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)
"""Types of constants that IREE cannot write except as bytes."""


def _constant(tensor: torch.Tensor, name: str, kind: ir.Type) -> ir.Value:
    """Returns a tensor as a constant of this type, 8-bit floats by their bytes."""
    if tensor.dtype not in _NARROW:
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get(tensor.cpu().contiguous().numpy())).result
    data = ir.DenseElementsAttr.get(np.ascontiguousarray(as_bytes(tensor, name)).view(np.int8))
    return build.bitcast(arith.ConstantOp(data.type, data).result, kind)


def _data(tensor: Tensor) -> Bytes:
    return tensor.data


def as_bytes(tensor: torch.Tensor, name: str) -> Bytes:
    """Returns a tensor's bytes, uint8 with its last dimension in bytes, in the same memory if possible.

    Raises InputError for one without data.
    """
    if tensor.is_meta:
        raise InputError(f"'{name}' has no data (it is on the device meta): mxcomp.torch.load gives it a checkpoint's")
    return tensor.detach().resolve_neg().resolve_conj().cpu().contiguous().view(torch.uint8).numpy()
