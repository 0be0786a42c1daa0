"""Reads `.mlir` files of ukernels, and checks those of a user; errors say what is wrong, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp.errors import UkernelError
from mxcomp.layout import ACC, OPERAND_NAMES
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.mlir import graph
from mxcomp.mlir.attributes import to_python
from mxcomp.registry import renamed
from mxcomp.registry.rules import (
    ENTRIES,
    FIVE,
    Source,
    Ukernel,
    argument_types,
    line_in,
    location_of,
    parse,
    ruled,
    ukernel_from,
)
from mxcomp.target import Target
from mxcomp.ukernels import family
from mxcomp.ukernels.builder import RULE


def read(path: Path, target: Target, strict: bool = True) -> Ukernel:
    """Reads one ukernel file and checks its rule and signature. Needs a current context. Raises UkernelError.

    If it is not `strict`, one that takes more than the GPU has is no error.
    """
    module = parse(path)  # owns the function
    function = ruled(module, path)
    name, line = graph.symbol_name(function), line_in(path, function.location)
    try:
        rule = to_python(function.attributes[RULE])
    except TypeError as error:
        raise UkernelError(f"{location_of(path, line)}: @{name}: {error}") from None
    return checked(described(name, path, target, rule, line), function, strict)


def described(
    name: str, path: Path, target: Target, rule: Any, line: int | None, source: Source | None = None
) -> Ukernel:
    """Returns a user's ukernel from its rule. Raises UkernelError."""
    try:
        _check_kinds(rule)
        ukernel = replace(ukernel_from(name, path, target, rule), line=line, source=source)
        _check(ukernel)
    except KeyError as error:
        raise UkernelError(f"{location_of(path, line)}: @{name}: {RULE} lacks the entry {error}") from None
    except (TypeError, ValueError) as error:
        raise UkernelError(f"{location_of(path, line)}: @{name}: {error}") from None
    return ukernel


def checked(ukernel: Ukernel, function: ir.Operation, strict: bool = True) -> Ukernel:
    """Returns a ukernel with the LDS that its function allocates, checked against its rule and the GPU. Raises
    UkernelError."""
    ukernel = replace(ukernel, lds_bytes=lds_bytes(function))
    for location, message in _faults(ukernel, function, strict):
        line = line_in(ukernel.path, location) or line_in(ukernel.path, function.location) or ukernel.line
        raise UkernelError(f"{location_of(ukernel.path, line)}: @{ukernel.name}: {message}")
    return ukernel


def _check_kinds(rule: Any) -> None:
    """Raises ValueError where a rule is not a dictionary, or an entry is of a wrong type (a boolean is no integer)."""
    if not isinstance(rule, dict):
        raise ValueError(f"{RULE} must be a dictionary, got {rule!r}")
    for key, value in rule.items():
        kind, item_kind = ENTRIES.get(key, (type(value), None))
        items = (value.values() if isinstance(value, dict) else value) if item_kind else ()
        if type(value) is not kind or any(type(item) is not item_kind for item in items):
            expected = f"{kind.__name__} of {item_kind.__name__}" if item_kind else kind.__name__
            raise ValueError(f"{key} must be a {expected}, got {value!r}")


_OPERANDS = ("data_tiled", "row_major", *family.ROW_MAJOR_SIDES)


def _check(ukernel: Ukernel) -> None:
    """Raises ValueError where a rule contradicts itself."""
    if ukernel.operands in renamed.OPERANDS:
        raise ValueError(f"operands {ukernel.operands!r} is now {renamed.OPERANDS[ukernel.operands]!r}")
    if ukernel.operands not in _OPERANDS:
        raise ValueError(f"operands must be {' or '.join(map(repr, _OPERANDS))}, got {ukernel.operands!r}")
    if len(ukernel.tile) != 3 or len(ukernel.workgroup_size) != 3 or len(ukernel.types) != 5:
        raise ValueError("expected 3 tile sizes, 3 workgroup sizes and 5 types")
    if min(*ukernel.tile, *ukernel.workgroup_size) < 1:
        raise ValueError("tile and workgroup sizes must be positive")
    if (ukernel.operands == "row_major") != (ukernel.layout is None):
        raise ValueError("a data_tiled ukernel has a layout, a row_major one has none")
    if ukernel.operands in family.ROW_MAJOR_SIDES and not ukernel.has_inner_tiles:
        raise ValueError(f"a ukernel that takes {ukernel.operands} has a layout of inner tiles")
    if ukernel.layout is None and not ukernel.archs:
        raise ValueError("a row_major ukernel says which archs it is for: it has no layout that does")


def _faults(ukernel: Ukernel, function: ir.Operation, strict: bool) -> Iterator[tuple[ir.Location, str]]:
    """Yields how a function contradicts its rule, or uses more than the GPU has."""
    try:
        arguments = argument_types(function)
    except ValueError as error:
        yield function.location, str(error)
        return
    expected = _expected_types(ukernel)
    if len(arguments) != len(expected):
        yield function.location, FIVE
        return
    values = function.regions[0].blocks[0].arguments
    for index, (have, want) in enumerate(zip(arguments, expected, strict=True)):
        takes_any = all(size is not None or have.is_dynamic_dim(i) for i, size in enumerate(want[0][: have.rank]))
        if not takes_any or not accepts(have, *want):
            yield values[index].location, f"argument {index} ({OPERAND_NAMES[index]}) is {have}, {_expected(want)}"
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    if list(results) != [arguments[ACC]]:
        found = ", ".join(map(str, results)) or "none"
        yield function.location, f"the result is {found}, expected {arguments[ACC]}, as the accumulator"
    if strict and ukernel.excess:
        yield function.location, ukernel.excess


def _expected(want: tuple[tuple[int | None, ...], str]) -> str:
    return f"expected tensor<{'x'.join('?' if size is None else str(size) for size in want[0])}x{want[1]}>"


_LDS = "#gpu.address_space<workgroup>"


def lds_bytes(function: ir.Operation) -> int:
    """Returns the bytes of LDS that a function allocates."""
    kinds = (ir.MemRefType(op.results[0].type) for op in graph.walk(function) if op.name == "memref.alloc")
    return sum(prod(kind.shape) * kind.element_type.width // 8 for kind in kinds if str(kind.memory_space) == _LDS)


def accepts(argument: ir.RankedTensorType, shape: Sequence[int | None], element: str) -> bool:
    """Returns whether `tensor.cast` takes a tensor of this shape and element type (None: any size) to `argument`."""
    if argument.rank != len(shape) or str(argument.element_type) != element:
        return False
    return all(
        size is None or argument.is_dynamic_dim(i) or argument.get_dim_size(i) == size for i, size in enumerate(shape)
    )


def _expected_types(ukernel: Ukernel) -> list[tuple[tuple[int | None, ...], str]]:
    m, n, _ = ukernel.tile
    shapes: list[tuple[int | None, ...]]
    if ukernel.layout is not None:
        layout = ukernel.layout
        inner_tiles = layout.inner_tiles or (1, 1)
        outer: list[tuple[int | None, ...]] = [(inner_tiles[i % 2], None) for i in range(ACC)]
        shapes = [layout.multiplied_shape(i, layout.packed_shape(i, o)) for i, o in enumerate([*outer, (1, 1)])]
    else:
        shapes = [(m, None, BLOCK), (n, None, BLOCK), (m, None), (n, None), (m, n)]
    return list(zip(shapes, ukernel.types, strict=True))
