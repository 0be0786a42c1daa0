"""Registers dialects for whose operations IREE's bindings have no Python classes.

The bindings look up the module of an operation's dialect whenever they return the operation. They cache a module that
exists; otherwise they ask Python's import system again, 70 µs each time, which was more than half of the time of our
passes for a model with 24 layers.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

from iree.compiler import ir  # noqa: F401 (loads the library)
from iree.compiler._mlir_libs import _mlir

_PACKAGE = "iree.compiler.dialects"
_WITHOUT_CLASSES = (
    "bufferization", "iree_encoding", "iree_linalg_ext", "iree_vector_ext", "tm_tensor", "torch", "torch_c",
)  # fmt: skip
"""Dialects without a module in IREE 3.13 whose operations our passes meet."""
_LINALG = "linalg"
"""The dialect whose module nobody needs: `mxcomp.mlir.linalg` has its classes."""


def register(name: str) -> None:
    """Makes the bindings remember that a dialect's operations have no classes, unless there is a module with them.

    They are shown an empty module for this once. Bindings that cannot be asked stay as they are, which is only slower.
    """
    qualified = f"{_PACKAGE}.{name}"
    look = getattr(_mlir.globals, "_check_dialect_module_loaded", None)
    if look is None or qualified in sys.modules or (name != _LINALG and find_spec(qualified) is not None):
        return
    sys.modules[qualified] = ModuleType(qualified)
    try:
        look(name)
    finally:
        del sys.modules[qualified]


def register_all() -> None:
    """Registers all dialects without classes."""
    for name in (*_WITHOUT_CLASSES, _LINALG):
        register(name)
