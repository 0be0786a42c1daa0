"""Microscaling (MX) matrix products for AMD CDNA4 GPUs, compiled through IREE.

    program = mxcomp.compile("model.mlir", target="gfx950")
    program.save("model.vmfb")

Attributes are loaded when first used, so that `import mxcomp` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mxcomp.support.version import __version__

if TYPE_CHECKING:
    from mxcomp.compiler import Program, compile
    from mxcomp.measuring.verification import verify

__all__ = ["Program", "__version__", "compile", "verify"]

_HOMES = {"compile": "mxcomp.compiler", "Program": "mxcomp.compiler", "verify": "mxcomp.measuring.verification"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mxcomp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
