"""Finds operands that are row-major arguments of the program, which a kernel can read without packing.

Operands that are computed are excluded, as IREE might fuse their producers into the dispatch that reads them.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching import gathers
from mxcomp.matching.storage import is_gathered, storage

_FUNCTIONS = ("func.func", "util.func")


def are_given(elements: ir.Value) -> bool:
    """Returns whether elements [rows, K/32, 32] are bytes of an argument, in their order."""
    if is_gathered(elements) or gathers.find(elements) is not None:
        return False
    stored = storage(elements)
    return isinstance(stored.owner, ir.Block) and stored.owner.owner.name in _FUNCTIONS
