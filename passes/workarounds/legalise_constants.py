"""mxcomp-legalise-constants: stores constants of 4-, 6- and 8-bit floats as bytes.

IREE evaluates nothing that is computed from constants of such floats (`mxcomp.codes.constants`), those of globals that
never change among them.

    %w = arith.constant dense<…> : tensor<16x2x32xf8E4M3FN>   →   iree_tensor_ext.bitcast of a tensor<16x2x32xi8>
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes import constants
from mxcomp.mlir import build, graph, variables
from mxcomp.options import Options
from mxcomp.passes.workarounds import Omits, Workaround

WORKAROUND = Workaround(Omits("flow", r"\A(?!(?s:.*)flow\.dispatch )"))


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites constants and globals below `module`."""
    for op in list(graph.walk(module)):
        if op.name == variables.GLOBAL:
            _store_bytes(op, module)
        elif op.name == "arith.constant" and (data := constants.in_bytes(op.attributes["value"])) is not None:
            with op.location, ir.InsertionPoint(op):
                value = build.bitcast(arith.ConstantOp(data.type, data).result, op.results[0].type)
            graph.replace(op, value)


def _store_bytes(op: ir.Operation, module: ir.Operation) -> None:
    """Makes an immutable global store bytes."""
    if "initial_value" not in op.attributes or variables.is_mutable(op):
        return
    data, name = constants.in_bytes(op.attributes["initial_value"]), graph.symbol_name(op)
    if data is None:
        return
    for load in [each for each in graph.walk(module, bodies=False) if each.name == variables.LOAD]:
        if ir.FlatSymbolRefAttr(load.attributes[variables.SYMBOL]).value == name:
            kind = load.results[0].type
            load.results[0].set_type(data.type)
            with load.location, ir.InsertionPoint.after(load):
                value = build.bitcast(load.results[0], kind)
            load.results[0].replace_all_uses_except(value, value.owner.operation)
    op.attributes["initial_value"], op.attributes["type"] = data, ir.TypeAttr.get(data.type)
