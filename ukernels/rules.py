"""What a ukernel's match rule says, and where it is read: from a file, or made for an instance of the family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp.errors import UkernelError
from mxcomp.formats import BLOCK_SIZE
from mxcomp.layout import ACC, OPERAND_NAMES, DataTiledLayout, layout_from
from mxcomp.mlir import graph
from mxcomp.mlir.attributes import to_python
from mxcomp.problem import Problem
from mxcomp.ukernels import family
from mxcomp.ukernels.builder import RULE


@dataclass(frozen=True)
class Constraint:
    """Bounds of a problem size in elements. A dynamic size counts as large: it satisfies any `min`, no other bound.

    But a dynamic K is a number of blocks of 32. With `odd`, a size that is padded to multiples of it is an odd one.
    """

    min: int | None = None
    max: int | None = None
    div: int | None = None
    odd: int | None = None

    def __post_init__(self) -> None:
        for bound in (self.min, self.max, self.div, self.odd):
            if bound is not None and (type(bound) is not int or bound < 1):
                raise ValueError(f"a constraint must be a positive integer, got {bound!r}")

    def violation(self, name: str, size: int | None) -> str:
        """Why `size` does not satisfy the constraint, or ""."""
        if size is None:
            whole = name.lower() == "k" and self.div is not None and BLOCK_SIZE % self.div == 0
            bounds = [b for b in ("max", "div", "odd") if getattr(self, b) is not None and not (b == "div" and whole)]
            return f"{name} is dynamic, but has a bound ({', '.join(bounds)})" if bounds else ""
        if self.min is not None and size < self.min:
            return f"{name} = {size} is below {self.min}"
        if self.max is not None and size > self.max:
            return f"{name} = {size} is above {self.max}"
        if self.div is not None and size % self.div:
            return f"{name} = {size} is not a multiple of {self.div}"
        if self.odd is not None and -(-size // self.odd) % 2 == 0:
            return f"{name} = {size}, padded to multiples of {self.odd}, is an even number of them"
        return ""


@dataclass(frozen=True)
class Ukernel:
    """A ukernel's match rule, and where its code is: a file, which for an `instance` of the family is its body.

    `types` are LHS, RHS, LHS scale, RHS scale and result element types; `operands` is one of `_OPERANDS`;
    `tile` is the workgroup tile (M, N, K) in elements. Of the ukernels that match, the highest benefit is taken.
    """

    name: str
    path: Path
    archs: tuple[str, ...]
    types: tuple[str, ...]
    operands: str
    benefit: int
    constraints: dict[str, Constraint]
    tile: tuple[int, int, int]
    workgroup_size: tuple[int, int, int]
    llvm_func_attrs: dict[str, str]
    layout: DataTiledLayout | None
    instance: family.Instance | None = None

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Types of LHS, RHS, LHS scales, RHS scales and accumulator, in the current context."""
        known = None if self.instance is None else self.instance.arguments()
        return known or _argument_types(self.function())

    def mismatch(self, arch: str, problem: Problem) -> str:
        """Why this ukernel does not fit a problem, or "" if it does."""
        if arch not in self.archs:
            return f"it is for {', '.join(self.archs)}, not {arch}"
        if problem.types != self.types:
            return f"it takes {' × '.join(self.types[:2])}, not {' × '.join(problem.types[:2])}"
        reasons = (rule.violation(name.upper(), problem.sizes[name]) for name, rule in self.constraints.items())
        return next((reason for reason in reasons if reason), "")

    def function(self) -> ir.Operation:
        """A new copy of the function in the current context, without its rule and in no module."""
        module = _parse(self.path, self.instance)
        function = _function(module, self.path).detach_from_parent().operation
        del function.attributes[RULE]
        ir.SymbolTable.set_symbol_name(function, self.name)
        return function

    def text(self) -> str:
        """It as a file of its own, as a directory of ukernels may hold it."""
        module = _parse(self.path, self.instance)
        ir.SymbolTable.set_symbol_name(_function(module, self.path), self.name)
        return str(module)


def _parse(path: Path, instance: family.Instance | None = None) -> ir.Module:
    try:
        return ir.Module.parse(path.read_text()) if instance is None else instance.module(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UkernelError(f"cannot read ukernel file {path}: {error}") from None
    except ir.MLIRError as error:
        raise UkernelError(f"ukernel file {path} does not parse:\n{error}") from None


def _function(module: ir.Module, path: Path) -> ir.Operation:
    functions = [view.operation for view in module.body.operations if RULE in view.operation.attributes]
    if len(functions) != 1 or functions[0].name != "util.func":
        raise UkernelError(f"{path}: expected one util.func with a {RULE} attribute, found {len(functions)}")
    return functions[0]


def read(path: Path) -> Ukernel:
    """Reads one ukernel file and checks its rule and signature. Needs a current context. Raises UkernelError."""
    module = _parse(path)  # owns the function
    function = _function(module, path)
    name = graph.symbol_name(function)
    try:
        rule = to_python(function.attributes[RULE])
        _check_kinds(rule)
        ukernel = ukernel_from(name, path, rule)
        _check(ukernel, _argument_types(function))
    except KeyError as error:
        raise UkernelError(f"{path}: @{name}: {RULE} lacks the entry {error}") from None
    except (TypeError, ValueError) as error:
        raise UkernelError(f"{path}: @{name}: {error}") from None
    return ukernel


def ukernel_from(name: str, path: Path, rule: dict[str, Any], instance: family.Instance | None = None) -> Ukernel:
    """A ukernel from the entries of its rule. Raises KeyError, TypeError, ValueError."""
    rule = dict(rule)
    layout = layout_from(rule.pop("layout")) if "layout" in rule else None
    ukernel = Ukernel(
        name=name,
        path=path,
        archs=tuple(rule.pop("archs")),
        types=tuple(rule.pop("types")),
        operands=rule.pop("operands", "data_tiled"),
        benefit=rule.pop("benefit", 1),
        constraints={axis: _constraint(axis, bounds) for axis, bounds in rule.pop("constraints", {}).items()},
        tile=tuple(rule.pop("tile", layout.workgroup_tile if layout else ())),
        workgroup_size=tuple(rule.pop("workgroup_size")),
        llvm_func_attrs=rule.pop("llvm_func_attrs", {}),
        layout=layout,
        instance=instance,
    )
    if rule:
        raise ValueError(f"unknown entries {', '.join(rule)}: expected {', '.join(_KINDS)}")
    return ukernel


def _constraint(axis: str, bounds: dict[str, Any]) -> Constraint:
    """Raises ValueError for a size or a bound that there is not."""
    if axis not in ("m", "n", "k"):
        raise ValueError(f"constraints of '{axis}': expected m, n or k")
    known = [each.name for each in fields(Constraint)]
    if unknown := [bound for bound in bounds if bound not in known]:
        raise ValueError(f"constraints of {axis}: unknown {', '.join(unknown)}: expected {', '.join(known)}")
    return Constraint(**bounds)


_KINDS: dict[str, tuple[type, type | None]] = {
    "archs": (list, str),
    "types": (list, str),
    "operands": (str, None),
    "benefit": (int, None),
    "constraints": (dict, dict),
    "layout": (dict, None),
    "tile": (list, int),
    "workgroup_size": (list, int),
    "llvm_func_attrs": (dict, str),
}
"""The kind of each entry of a rule, and of its items."""


def _check_kinds(rule: Any) -> None:
    """Raises ValueError where a rule is not a dictionary, or an entry not of its kind (a boolean is no integer)."""
    if not isinstance(rule, dict):
        raise ValueError(f"{RULE} must be a dictionary, got {rule!r}")
    for key, value in rule.items():
        kind, item_kind = _KINDS.get(key, (type(value), None))
        items = (value.values() if isinstance(value, dict) else value) if item_kind else ()
        if type(value) is not kind or any(type(item) is not item_kind for item in items):
            expected = f"{kind.__name__} of {item_kind.__name__}" if item_kind else kind.__name__
            raise ValueError(f"{key} must be a {expected}, got {value!r}")


_OPERANDS = ("data_tiled", "row_major", *family.IN_ROWS)


def _check(ukernel: Ukernel, arguments: tuple[ir.RankedTensorType, ...]) -> None:
    """Raises ValueError where rule and signature contradict each other."""
    if ukernel.operands not in _OPERANDS:
        raise ValueError(f"operands must be {' or '.join(map(repr, _OPERANDS))}, got {ukernel.operands!r}")
    if len(ukernel.tile) != 3 or len(ukernel.workgroup_size) != 3 or len(ukernel.types) != 5:
        raise ValueError("expected 3 tile sizes, 3 workgroup sizes and 5 types")
    if min(*ukernel.tile, *ukernel.workgroup_size) < 1:
        raise ValueError("tile and workgroup sizes must be positive")
    if (ukernel.operands == "row_major") != (ukernel.layout is None):
        raise ValueError("a data_tiled ukernel has a layout, a row_major one has none")
    if ukernel.operands in family.IN_ROWS and (ukernel.layout is None or ukernel.layout.units is None):
        raise ValueError(f"a ukernel that takes {ukernel.operands} has a layout of units")
    for index, (have, want) in enumerate(zip(arguments, _expected_types(ukernel), strict=True)):
        if not accepts(have, *want):
            shape = "x".join("?" if size is None else str(size) for size in want[0])
            raise ValueError(f"argument {index} ({OPERAND_NAMES[index]}) is {have}, expected tensor<{shape}x{want[1]}>")


_COUNTS = (5, 4, 7)
"""Arguments of ukernels: of packed operands, of activations, and of activations and two matrices."""


def _argument_types(function: ir.Operation) -> tuple[ir.RankedTensorType, ...]:
    if not function.regions[0].blocks:
        raise ValueError("a ukernel needs a body")
    kinds = [argument.type for argument in function.regions[0].blocks[0].arguments]
    if len(kinds) not in _COUNTS or not all(isinstance(kind, ir.RankedTensorType) for kind in kinds):
        raise ValueError("expected five tensor arguments: LHS, RHS, LHS scales, RHS scales, accumulator")
    return tuple(ir.RankedTensorType(kind) for kind in kinds)


def accepts(argument: ir.RankedTensorType, shape: Sequence[int | None], element: str) -> bool:
    """Whether `tensor.cast` takes a tensor of this shape and element type (None: any size) to `argument`."""
    if argument.rank != len(shape) or str(argument.element_type) != element:
        return False
    return all(
        size is None or argument.is_dynamic_dim(i) or argument.get_dim_size(i) == size for i, size in enumerate(shape)
    )


def _expected_types(ukernel: Ukernel) -> list[tuple[tuple[int | None, ...], str]]:
    m, n, _ = ukernel.tile
    shapes: list[tuple[int | None, ...]]
    if ukernel.layout is not None:
        layout = ukernel.layout.multiplied
        units = layout.units or (1, 1)
        outer: list[tuple[int | None, ...]] = [(units[i % 2], None) for i in range(ACC)]
        shapes = [layout.multiplied_shape(i, layout.packed_shape(i, o)) for i, o in enumerate([*outer, (1, 1)])]
    else:
        shapes = [(m, None, 32), (n, None, 32), (m, None), (n, None), (m, n)]
    return list(zip(shapes, ukernel.types, strict=True))
