"""The declared arguments and results of a function of a compiled program."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from iree import runtime as rt

OF_ML_DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16)} | {
    f"f8{kind}": np.dtype(getattr(ml_dtypes, f"float8_{kind.lower()}"))
    for kind in ("E4M3FN", "E5M2", "E8M0FNU", "E4M3FNUZ", "E5M2FNUZ", "E4M3B11FNUZ")
}
"""The types of elements that NumPy has not, by their MLIR names. A .npy file has their codes as integers."""
ELEMENTS = OF_ML_DTYPES | {
    name: np.dtype(f"{name[0]}{int(name[1:]) // 8}") for name in ("i8", "i16", "i32", "i64", "f16", "f32", "f64")
}
"""The NumPy types of elements, by their MLIR names."""

_DECLARATION = re.compile(r"^(?:\w+ )?func @[^(]*\((?P<arguments>.*?)\) -> \((?P<results>.*)\)$", re.DOTALL)
_VALUE = re.compile(
    r"%(?:in|out)put\d+: (?:tensor<(?P<shape>(?:[\d?]+x)*)(?P<element>\w+)>|(?P<scalar>index|[su]?i\d+|b?f\d+\w*)\b)?"
)
DECLARATION = "iree.abi.declaration"
"""The reflection key of a function's declaration."""


@dataclass(frozen=True)
class TensorType:
    """A tensor type: sizes, None where dynamic, and the MLIR type of its elements."""

    shape: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        return f"tensor<{''.join('?x' if size is None else f'{size}x' for size in self.shape)}{self.element}>"


Type = TensorType | str | None
"""The type of a tensor, of a scalar by its MLIR name, or of anything else."""


def functions(module: rt.VmModule) -> list[str]:
    """Returns the names of functions that can be called: IREE adds some of its own."""
    return [name for name in module.function_names if not name.startswith("__") and not name.endswith("$async")]


def arguments(declaration: str) -> list[Type]:
    """Returns the types of a declaration's arguments; none if it is no declaration."""
    return _types(declaration, "arguments")


def results(declaration: str) -> list[Type]:
    """Returns the types of a declaration's results."""
    return _types(declaration, "results")


def _types(declaration: str, which: str) -> list[Type]:
    found = _DECLARATION.search(declaration)
    return [] if found is None else [_type(each) for each in _VALUE.finditer(found[which])]


def _type(found: re.Match[str]) -> Type:
    if found["element"] is None:
        return found["scalar"]
    sizes = found["shape"].split("x")[:-1]
    return TensorType(tuple(None if size == "?" else int(size) for size in sizes), found["element"])
