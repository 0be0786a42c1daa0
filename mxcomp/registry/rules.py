"""A ukernel's match rule, and its source: a file, or an instance of the family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp.errors import UkernelError
from mxcomp.layout import DataTiledLayout, layout_from
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.layout.problem import Problem
from mxcomp.mlir import graph
from mxcomp.target import Target
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
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"a constraint's min {self.min} is above its max {self.max}")

    def violation(self, name: str, size: int | None) -> str:
        """Returns why `size` does not satisfy the constraint, or ""."""
        if size is None:
            whole = name.lower() == "k" and self.div is not None and BLOCK % self.div == 0
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


Source = Callable[[Path, Target], ir.Module]
"""Writes a module with a kernel's function for a GPU, with the rule as attribute; the file is the kernel's own."""


@dataclass(frozen=True)
class Ukernel:
    """A ukernel's match rule, and the file of its code; an `instance` of the family writes the code.

    `target` is the GPU that it was read for; `archs` those that it is for; none: its layout says it.
    `types` are LHS, RHS, LHS scale, RHS scale and result element types; `operands` is one of `_OPERANDS`;
    `tile` is the workgroup tile (M, N, K) in elements. Of the ukernels that match, the highest benefit is taken.
    `line` is where it begins in its file; `source` writes one of a file in Python. `lds_bytes` are those of a file.
    """

    name: str
    path: Path
    target: Target
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
    source: Source | None = field(default=None, compare=False)
    line: int | None = field(default=None, compare=False)
    lds_bytes: int = field(default=0, compare=False)

    @property
    def has_inner_tiles(self) -> bool:
        """Whether its layout is over inner tiles."""
        return self.layout is not None and self.layout.inner_tiles is not None

    @property
    def location(self) -> str:
        """Its file, and the line if that is known."""
        return location_of(self.path, self.line)

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Returns the types of LHS, RHS, LHS scales, RHS scales and accumulator, in the current context."""
        return argument_types(self.function()) if self.instance is None else self.instance.arguments()

    @cached_property
    def objection(self) -> str:
        """Returns why the GPU cannot run it; "" if it can."""
        if not self._is_for_arch:
            return f"it is for {', '.join(self.archs)}, not {self.target.arch}"
        if self.instance is not None:
            return self.instance.objection(self.target)
        missing = "" if self.layout is None else self.target.lacks_instruction(self.layout.intrinsic, self.types)
        return missing or self.excess

    @property
    def _is_for_arch(self) -> bool:
        return not self.archs or self.target.arch in self.archs

    @property
    def excess(self) -> str:
        """Returns which resources exceed those of the GPU; "" if none does, or if it is for another GPU."""
        target, threads = self.target, prod(self.workgroup_size)
        if not self._is_for_arch:
            return ""
        if threads > (most := target.max_workgroup_threads):
            return f"workgroup_size has {threads} threads, expected at most {most} on {target.name}"
        if threads % target.wave_size:
            return f"workgroup_size has {threads} threads, expected a multiple of {target.wave_size} on {target.name}"
        if self.lds_bytes > target.lds_bytes:
            return f"it takes {self.lds_bytes} bytes of LDS, expected at most {target.lds_bytes} on {target.name}"
        return ""

    def mismatch(self, problem: Problem) -> str:
        """Returns why this ukernel does not fit a problem, or "" if it does."""
        for names in (slice(2), slice(2, 4)):
            if problem.types[names] != self.types[names]:
                what = "" if names.start is None else "scales of "
                return f"it takes {what}{' × '.join(self.types[names])}, not {' × '.join(problem.types[names])}"
        reasons = (rule.violation(name.upper(), problem.sizes[name]) for name, rule in self.constraints.items())
        return next((reason for reason in reasons if reason), "")

    def function(self, stores: family.Stores | None = None) -> ir.Operation:
        """Returns a new copy of the function in the current context, without its rule and in no module.

        `stores`: what its dispatch stores, where that is known.
        """
        module = self._module(stores)
        function = ruled(module, self.path).detach_from_parent().operation
        del function.attributes[RULE]
        ir.SymbolTable.set_symbol_name(function, self.name)
        return function

    def text(self, stores: family.Stores | None = None) -> str:
        """Returns it as a file of its own, as a directory of ukernels may contain it."""
        module = self._module(stores)
        ir.SymbolTable.set_symbol_name(ruled(module, self.path), self.name)
        return str(module)

    def _module(self, stores: family.Stores | None) -> ir.Module:
        instance = self.instance
        if instance is not None and stores is not None:
            instance = replace(instance, stores=stores)
        source = self.source if instance is None else instance.module
        return parse(self.path) if source is None else source(self.path, self.target)


def parse(path: Path) -> ir.Module:
    """Parses a module. Raises UkernelError."""
    try:
        return ir.Module.parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except ir.MLIRError as error:
        raise UkernelError(f"{said(path, error, what='the ukernel file does not parse: ')}") from None


def unreadable(path: Path, error: Exception) -> UkernelError:
    return UkernelError(f"cannot read ukernel file {path}: {error}")


def said(path: Path, error: ir.MLIRError, line: int | None = None, what: str = "") -> str:
    """Returns MLIR's first message in one line, after its location: in the file, else at this line of it."""
    first = next(iter(error.error_diagnostics), None)
    # The bindings do not tell the kind of a diagnostic's location, unlike that of an operation.
    found = None if first is None else line_in(path, ir.Location.from_attr(first.location.attr))
    text = str(error) if first is None else first.message
    return f"{location_of(path, found or line)}: {what}{' '.join(text.split())}"


def line_in(path: Path, location: ir.Location) -> int | None:
    """Returns the line of a file that a location names."""
    files = (_TEXT, str(path))
    return next((each.start_line for each in graph.file_locations(location) if each.filename in files), None)


_TEXT = "-"
"""The file name of source that is parsed as text."""


def location_of(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line else str(path)


def ruled(module: ir.Module, path: Path) -> ir.Operation:
    """Returns the function of a module, which has the rule. Raises UkernelError."""
    functions = [view.operation for view in module.body.operations if RULE in view.operation.attributes]
    if len(functions) != 1 or functions[0].name != "util.func":
        where = functions[-1] if functions else next((view.operation for view in module.body.operations), None)
        location = location_of(path, where and line_in(path, where.location))
        raise UkernelError(f"{location}: expected one util.func with a {RULE} attribute, found {len(functions)}")
    return functions[0]


def ukernel_from(
    name: str, path: Path, target: Target, rule: dict[str, Any], instance: family.Instance | None = None
) -> Ukernel:
    """Returns a ukernel from the entries of its rule. Raises KeyError, TypeError, ValueError."""
    rule = dict(rule)
    layout = layout_from(rule.pop("layout")) if "layout" in rule else None
    ukernel = Ukernel(
        name=name,
        path=path,
        target=target,
        archs=tuple(rule.pop("archs", ())),
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
        raise ValueError(f"unknown entries {', '.join(rule)}: expected {', '.join(ENTRIES)}")
    return ukernel


ENTRIES: dict[str, tuple[type, type | None]] = {
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
"""The type of each entry of a rule, and of its items."""


def _constraint(axis: str, bounds: dict[str, Any]) -> Constraint:
    """Parses a constraint. Raises ValueError for an unknown size or bound."""
    if axis not in ("m", "n", "k"):
        raise ValueError(f"constraints of '{axis}': expected m, n or k")
    known = [each.name for each in fields(Constraint)]
    if unknown := [bound for bound in bounds if bound not in known]:
        raise ValueError(f"constraints of {axis}: unknown {', '.join(unknown)}: expected {', '.join(known)}")
    return Constraint(**bounds)


_COUNTS = (5, 4, 7)
"""The possible numbers of arguments of a ukernel: packed operands, activations, and activations with two matrices."""


FIVE = "expected five tensor arguments: LHS, RHS, LHS scales, RHS scales, accumulator"


def argument_types(function: ir.Operation) -> tuple[ir.RankedTensorType, ...]:
    """Parses the types of arguments. Raises ValueError."""
    if not function.regions[0].blocks:
        raise ValueError("a ukernel needs a body")
    kinds = [argument.type for argument in function.regions[0].blocks[0].arguments]
    if len(kinds) not in _COUNTS or not all(isinstance(kind, ir.RankedTensorType) for kind in kinds):
        raise ValueError(FIVE)
    return tuple(ir.RankedTensorType(kind) for kind in kinds)
