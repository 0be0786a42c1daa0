"""What the function that iree-run-module is to call declares of its results, known before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from iree import runtime as rt

_DECLARATION = "iree.abi.declaration"
_RESULT = re.compile(r"%output\d+: (?:tensor<(?P<shape>(?:[\d?]+x)*)(?P<element>\w+))?")


@dataclass(frozen=True)
class TensorType:
    """A result: sizes, None where dynamic, and the MLIR type of its elements."""

    shape: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        return f"tensor<{''.join('?x' if size is None else f'{size}x' for size in self.shape)}{self.element}>"


def results(flags: Sequence[str]) -> list[TensorType | None]:
    """Types of the results of the function that flags of iree-run-module name, None for one that is no tensor.

    Empty where flags, module or function are such that iree-run-module will say what is wrong.
    """
    modules, functions = _values(flags, "module"), _values(flags, "function")
    if not modules:
        return []
    try:
        module = rt.VmModule.mmap(rt.VmInstance(), modules[-1])
        function = module.lookup_function(functions[-1]) if functions else _only(module)
    except (OSError, RuntimeError, ValueError):
        return []
    declaration = function.reflection.get(_DECLARATION, "") if function is not None else ""
    _, _, declared = declaration.partition(" -> ")
    return [_type(found) for found in _RESULT.finditer(declared)]


def _type(found: re.Match[str]) -> TensorType | None:
    if found["element"] is None:
        return None
    sizes = found["shape"].split("x")[:-1]
    return TensorType(tuple(None if size == "?" else int(size) for size in sizes), found["element"])


def _only(module: rt.VmModule) -> rt.VmFunction | None:
    """The function that IREE takes without a name: the only one that is not its own."""
    names = [name for name in module.function_names if not name.startswith("__") and not name.endswith("$async")]
    return module.lookup_function(names[0]) if len(names) == 1 else None


def _values(flags: Sequence[str], name: str) -> list[str]:
    matches = (re.fullmatch(rf"--?{name}=(.*)", flag, re.DOTALL) for flag in flags)
    return [match[1] for match in matches if match]
