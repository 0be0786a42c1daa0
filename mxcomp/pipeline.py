"""The passes in order, and where in IREE's pipeline they stand.

    source ─ import torch ─ IREE: input ─ recognise, encode, materialise, outline ─ IREE: flow … executable-sources
           ─ link ukernels ─ IREE: vmfb

A ukernel put into the model's module would be removed as dead code before executables exist; so linking comes second.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.errors import CompileError
from mxcomp.options import Options
from mxcomp.passes import get_pass

IMPORTING_PASSES = ("mxcomp-import-torch",)
CHOOSING_PASSES = ("mxcomp-recognise", "mxcomp-encode")
BUILDING_PASSES = ("mxcomp-fuse-consumers", "mxcomp-fall-back", "mxcomp-materialise", "mxcomp-outline")
EXECUTABLE_PASSES = ("mxcomp-link-ukernels",)


def run(module: ir.Operation, names: tuple[str, ...], options: Options) -> None:
    """Runs passes by name on a module, in place, and verifies it after each. Raises MxcompError."""
    for name in names:
        get_pass(name)(module, options)
        try:
            module.verify()
        except ir.MLIRError as error:
            raise CompileError(f"invalid IR after {name}: this is a bug in mxcomp", (str(error),)) from None
