"""The passes in order, and their position in IREE's pipeline.

    source ─ IMPORTING ─ IREE: input ─ ENTRY, PREPARING, CHOOSING, BUILDING ─ IREE: flow ─ DISPATCH
           ─ IREE: stream, executable-sources ─ EXECUTABLE ─ IREE: executable-configurations ─ CONFIGURED ─ IREE: vmfb

Workarounds for faults of IREE run between them (`mxcomp.passes.workarounds`, docs/iree.md).

Constants are deferred once more for matmuls that fall back. Elements are unpacked twice: first before consumers are
fused, as quantisers of a result are consumers; then in quantised operands that packing has not taken over. Other
workarounds for a model's operations run when no recognised quantiser is left.

Ukernels are linked when executables exist: in the model's module they would be removed as dead code. Workgroups are
ordered just before IREE distributes them; gathers and rows are folded after that.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from iree.compiler import ir

from mxcomp.errors import InternalError, MxcompError
from mxcomp.options import Options
from mxcomp.passes import get_pass, workarounds

IMPORTING_PASSES = ("mxcomp-import-torch",)
ENTRY_PASSES = (*workarounds.ENTRY, "mxcomp-unite-sizes")
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
CHOOSING_PASSES = (
    "mxcomp-join-products",
    "mxcomp-write-rows",
    "mxcomp-take-attention",
    "mxcomp-join-norms",
    *_HOLDING,
    "mxcomp-encode",
)
BUILDING_PASSES = (
    "mxcomp-take-linears",
    *workarounds.LEFT_TO_IREE,
    *_HOLDING,
    *workarounds.NARROW,
    "mxcomp-fuse-consumers",
    "mxcomp-materialise",
    "mxcomp-join-rows",
    "mxcomp-join-rotations",
    "mxcomp-rank-sorts",
    *workarounds.NARROW,
    *workarounds.OTHERS,
    "mxcomp-join-routing",
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
)

_VERIFIED = ("mxcomp-recognise", "mxcomp-materialise", "mxcomp-sort-slots")
"""The passes after which the module is verified; the last one precedes passes of IREE, which may end the process over
invalid IR."""


def run(module: ir.Operation, names: tuple[str, ...], options: Options) -> None:
    """Runs passes by name on a module, in place and in its context, and verifies it.

    That is where much has changed, and at the end; with strict options, after each. Raises MxcompError; of what it is
    not to blame for, InternalError.
    """
    for name in names:
        try:
            with module.context:
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
