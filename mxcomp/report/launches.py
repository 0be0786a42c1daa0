"""Finds the launch sites of a module in its host code at IREE's phase `executable-sources`.

stream.cmd.dispatch @main$async_dispatch_4::@…::@main$async_dispatch_4_reduction_…
    loc("mxcomp.0.matmul"("layers.0.mlp.up_proj"("model.py":31:0)))
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.profiling.launches import Launch

_DISPATCH = "stream.cmd.dispatch"
_OF_FUNCTION = "$async"
"""The suffix of a function whose arguments and results come with fences."""
_PART = re.compile(r"mxcomp\.(?:(?P<matmul>\d+)|attention|cache|linear|rotation|routing|rows)\.(?P<part>\w+)")
"""Matches the location name that `mxcomp.packing.packer` gives a part of a matmul, `mxcomp.packing.standing` others."""


def find(module: ir.Operation) -> list[Launch]:
    """Returns all launch sites in the order of the module; those of loading have no function."""
    found = []
    for top in graph.module_block(module).operations:
        function = graph.symbol_name(top.operation).removesuffix(_OF_FUNCTION)
        for op in graph.walk(top.operation, bodies=False):
            if op.name == _DISPATCH:
                found.append(_launch(op, function))
    return found


def _launch(op: ir.Operation, function: str) -> Launch:
    entry = ir.SymbolRefAttr(ir.ArrayAttr(op.attributes["entry_points"])[0])
    names = list(dict.fromkeys(_names(op.location)))
    found = next(filter(None, map(_PART.fullmatch, names)), None)
    part, number = ("", None) if found is None else (found["part"], found["matmul"])
    matmul = None if number is None else int(number)
    modules = tuple(name for name in names if not _PART.fullmatch(name))
    location = graph.location_text(op.location)
    return Launch(entry.value[-1], part, matmul, modules, "" if location == str(op.location) else location, function)


def _names(location: ir.Location) -> Iterator[str]:
    """Returns the outermost names of a location, and that of the part."""
    for each in graph.located(location, ir.NameLoc):
        name = str(each.name_str)
        yield name
        if _PART.fullmatch(name):
            yield from _names(each.child_loc)
