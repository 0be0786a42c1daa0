"""Reads operands that are parameters in their packed layout: part of mxcomp-materialise with packed parameters.

Before:

    util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<128x128xi8>
    …
    %0 = util.global.load @w : tensor<128x128xi8>
    %b = iree_tensor_ext.bitcast %0 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>   (encoded as RHS of a layout)

After:

    util.global private @w_packed_rhs_… {mxcomp.packing = {source = "w", operand = "rhs", layout = {…}, …}}
        = #flow.parameter.named<"model"::"w.packed.rhs.128x256.…"> : tensor<1x1x1x2x4x2x4x16x16xi8>
    …
    %p = util.global.load immutable @w_packed_rhs_… : tensor<1x1x1x2x4x2x4x16x16xi8>

`mxcomp-pack` makes the new parameter from the old one. The operand may be stored in it in any order, or be a static
part of it (`origins`); if its position is known only at run time, the program packs it.
"""

from __future__ import annotations

from dataclasses import asdict

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.layout import LHS_SCALE, OPERAND_NAMES, DataTiledLayout, layout_entries
from mxcomp.mlir import attributes, build, graph, variables
from mxcomp.packing import origins
from mxcomp.packing.origins import NotStoredError
from mxcomp.weights.manifest import Manifest, Packing, Parameter, TensorType, packing_from

PACKING = "mxcomp.packing"
"""The attribute of globals made here, with the entries of their `Packing`."""


def load_packed(source: ir.Value, layout: DataTiledLayout, operand: int) -> ir.Value | str | None:
    """Returns `source` in a layout, as `stored_operand.pack` does, if it is a parameter or a static slice of one.

    If it is made of a parameter in any other way: the reason why it is not read packed; of anything else: None.
    `source` is [(batch,) rows, K/32, 32] elements or [(batch,) rows, K/32] scales.
    """
    load = origins.root(source)
    try:
        parameter = None if load is None else _parameter_of(load)
        if load is None or parameter is None:
            return None
        found, scope, key = parameter
        packing = _packing(key, load.results[0], source, layout, operand)
    except NotStoredError as reason:
        return str(reason)
    packed = build.tensor_type(packing.packed.shape, packing.packed.element)
    symbol = f"{graph.symbol_name(found)}{packing.key.removeprefix(key).replace('.', '_')}"
    table = ir.SymbolTable(graph.root(found))
    if symbol not in table:
        new = found.clone(ip=ir.InsertionPoint(found)).operation
        new.attributes["sym_name"] = ir.StringAttr.get(symbol)
        new.attributes["sym_visibility"] = ir.StringAttr.get("private")
        new.attributes["type"] = ir.TypeAttr.get(packed)
        new.attributes["initial_value"] = attributes.named_parameter(scope, packing.key, packed)
        new.attributes[PACKING] = attributes.from_python(asdict(packing))
    return util.GlobalLoadOp(packed, symbol, is_immutable=True).result


def is_one(source: ir.Value) -> bool:
    """Returns whether all that an operand is made of is a parameter, which the program does not change."""
    load = origins.root(source)
    try:
        return load is not None and _parameter_of(load) is not None
    except NotStoredError:
        return False


def _packing(key: str, stored: ir.Value, source: ir.Value, layout: DataTiledLayout, operand: int) -> Packing:
    """Returns the packing of a parameter. Raises NotStoredError."""
    view = origins.view(source)
    plain = ir.RankedTensorType(source.type)
    *batch, rows, blocks = list(plain.shape)[: -1 if operand < LHS_SCALE else None]
    packing = Packing(
        source=key,
        type=_tensor_type(ir.RankedTensorType(stored.type)),
        operand=OPERAND_NAMES[operand],
        element=str(plain.element_type),
        rows=rows,
        k=blocks * layout.shape.block,
        batch=tuple(batch),
        view=view,
        layout=layout_entries(layout),
    )
    if packing.misfit:
        raise NotStoredError("its elements begin inside of others")
    return packing


def _parameter_of(load: ir.Operation) -> tuple[ir.Operation, str, str] | None:
    """Returns the global that is loaded, and the scope and key of its parameter, if it is one.

    Raises NotStoredError where it may be another at run time.
    """
    found = variables.of(load)
    if found is None or "initial_value" not in found.attributes:
        return None
    value_attribute = found.attributes["initial_value"]
    name = attributes.parameter_name(value_attribute)
    if name is not None and variables.is_mutable(found):
        raise NotStoredError("the program may change it")
    # IREE prints names without escapes: the parsed name is right if it gives the same attribute again.
    if name is None or attributes.named_parameter(*name, ir.RankedTensorType(load.results[0].type)) != value_attribute:
        return None
    return found, *name


def collect(module: ir.Operation) -> Manifest:
    """Returns every parameter that is named below `module`. IREE may have dropped dimensions of size 1 from types."""
    found: dict[tuple[str, str], Parameter] = {}
    for op in graph.walk(module):
        for attribute in (op.attributes[entry] for entry in op.attributes):
            name = attributes.parameter_name(attribute)
            if name is None:
                continue
            if PACKING in op.attributes:
                packing = packing_from(attributes.to_python(op.attributes[PACKING]))
                found[name] = Parameter(*name, packing.packed, packing)
            else:
                found[name] = Parameter(*name, _tensor_type(ir.RankedTensorType(attribute.type)))
    return Manifest(tuple(found[name] for name in sorted(found)))


def _tensor_type(plain: ir.RankedTensorType) -> TensorType:
    return TensorType(tuple(plain.shape), str(plain.element_type))
