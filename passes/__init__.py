"""The passes, by the name they have in a pipeline. Each is one file with a `run(module, options)`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from iree.compiler import ir

from mxcomp.options import Options

Pass = Callable[[ir.Operation, Options], None]

PASSES = {
    "mxcomp-import-torch": "import_torch",
    "mxcomp-legalise": "legalise",
    "mxcomp-recognise": "recognise",
    "mxcomp-hold-constants": "hold_constants",
    "mxcomp-encode": "encode",
    "mxcomp-fall-back": "fall_back",
    "mxcomp-widen-codes": "widen_codes",
    "mxcomp-fuse-consumers": "fuse_consumers",
    "mxcomp-materialise": "materialise",
    "mxcomp-outline": "outline",
    "mxcomp-link-ukernels": "link_ukernels",
}
"""Pass names and the files they live in; imported when first used."""


def get_pass(name: str) -> Pass:
    """The function of a pass. Raises KeyError."""
    return import_module(f"{__name__}.{PASSES[name]}").run
