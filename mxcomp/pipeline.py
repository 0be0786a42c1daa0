"""The passes in order, and their position in IREE's pipeline.

    source ─ import torch ─ IREE: input ─ inline calls, expand reshapes, group experts, legalise bitcasts, check scales,
           take MX attention, recognise, check sizes, check places, write rows, take attention, join norms,
           hold constants, encode, take linears, fuse consumers, materialise, join rotations, rank sorts, sort slots,
           outline, skip versions, share executables
           ─ IREE: flow ─ share slices, drop barriers
           ─ IREE: stream, executable-sources ─ link ukernels ─ IREE: executable-configurations
           ─ unmask stores, order workgroups, fold gathers, fold rows, narrow attention ─ IREE: vmfb

Between them stand workarounds for what IREE gets wrong (`mxcomp.passes.workarounds`, docs/iree.md), by their places.

Constants are held once more for what falls back. Codes are widened twice: first in front of consumers, which the codes
of a result are; then what is left of quantised operands that did not become part of packing. What else a model computes
is put right where all quantisers that are recognised have become something else.

A ukernel put into the model's module would be removed as dead code before executables exist; so linking comes second.
Workgroups are ordered where IREE has decided all else, and distributes them next; gathers and rows are folded where it
has.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from iree.compiler import ir

from mxcomp.errors import InternalError, MxcompError
from mxcomp.options import Options
from mxcomp.passes import get_pass, workarounds

IMPORTING_PASSES = ("mxcomp-import-torch",)
ENTRY_PASSES = workarounds.ENTRY
"""The passes for whole programs; a plugin's functions are none."""
PREPARING_PASSES = (
    "mxcomp-inline-calls",
    "mxcomp-expand-reshapes",
    "mxcomp-group-experts",
    "mxcomp-legalise-bitcasts",
    "mxcomp-check-scales",
    *workarounds.UNRECOGNISED,
    "mxcomp-take-mx-attention",
    "mxcomp-recognise",
    "mxcomp-check-sizes",
    "mxcomp-check-places",
)
_HOLDING = (*workarounds.CONSTANT, "mxcomp-defer-constants")
CHOOSING_PASSES = ("mxcomp-write-rows", "mxcomp-take-attention", "mxcomp-join-norms", *_HOLDING, "mxcomp-encode")
BUILDING_PASSES = (
    "mxcomp-take-linears",
    *workarounds.LEFT_TO_IREE,
    *_HOLDING,
    *workarounds.NARROW,
    "mxcomp-fuse-consumers",
    "mxcomp-materialise",
    "mxcomp-join-rotations",
    "mxcomp-rank-sorts",
    *workarounds.NARROW,
    *workarounds.OTHERS,
    "mxcomp-sort-slots",
    "mxcomp-outline",
    *workarounds.OUTLINED,
    "mxcomp-skip-versions",
    "mxcomp-share-executables",
)
MODULE_PASSES = (*PREPARING_PASSES, *CHOOSING_PASSES, *BUILDING_PASSES)
DISPATCH_PASSES = ("mxcomp-share-slices", "mxcomp-drop-barriers", *workarounds.DISPATCHES)
EXECUTABLE_PASSES = ("mxcomp-link-ukernels",)
CONFIGURED_PASSES = (
    "mxcomp-unmask-stores",
    "mxcomp-order-workgroups",
    "mxcomp-fold-gathers",
    "mxcomp-fold-rows",
    "mxcomp-narrow-attention",
)

_VERIFIED = ("mxcomp-recognise", "mxcomp-materialise", "mxcomp-sort-slots")
"""The passes after which the module is verified; the last one precedes passes of IREE, which may end the process over
invalid IR."""


def run(module: ir.Operation, names: tuple[str, ...], options: Options) -> None:
    """Runs passes by name on a module, in place, and verifies it: in between where much has changed, and at the end.

    Where options are strict, after each. Raises MxcompError; of what it is not to blame for, InternalError.
    """
    for name in names:
        try:
            get_pass(name).run(module, options)
            if options.strict or name in (*_VERIFIED, names[-1]):
                module.verify()
        except MxcompError:
            raise
        except ir.MLIRError as error:
            raise InternalError(f"invalid IR after {name}", (str(error),)) from None
        except Exception as error:  # whatever a pass did not think of
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            raise InternalError(f"{name} failed", (f"{type(error).__name__}: {error} ({where})",)) from error
