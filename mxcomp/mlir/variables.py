"""Globals of a module, as IREE's util dialect has them, and what loads and stores them."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

GLOBAL, LOAD, STORE = "util.global", "util.global.load", "util.global.store"
SYMBOL = "global"
"""The attribute of a load or a store that names its global."""


def of(access: ir.Operation) -> ir.Operation | None:
    """Returns the global that a load or a store names, if it is in the module."""
    table, symbol = ir.SymbolTable(graph.root(access)), ir.FlatSymbolRefAttr(access.attributes[SYMBOL]).value
    return table[symbol].operation if symbol in table else None


def is_mutable(op: ir.Operation) -> bool:
    """Returns whether a global is stored to."""
    return "is_mutable" in op.attributes


def elements(op: ir.Operation) -> ir.Attribute | None:
    """Returns the initial elements of a global, if they are in the module: a parameter's are not."""
    value = op.attributes.get("initial_value")
    return value if isinstance(value, ir.DenseElementsAttr | ir.DenseResourceElementsAttr) else None
