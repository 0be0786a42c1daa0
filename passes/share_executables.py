"""mxcomp-share-executables: lets equal dispatches, as those of a model's layers, share one executable.

Before:

    flow.executable private @mxcomp_main_dispatch_0 { … }
    flow.executable private @mxcomp_main_dispatch_4 { … }        (the same, but for its name)
    %p = flow.dispatch @mxcomp_main_dispatch_0::@mxcomp_main_dispatch_0(%w)
    %q = flow.dispatch @mxcomp_main_dispatch_4::@mxcomp_main_dispatch_4(%v)

After:

    flow.executable private @mxcomp_main_dispatch_0 { … }
    %p = flow.dispatch @mxcomp_main_dispatch_0::@mxcomp_main_dispatch_0(%w)
    %q = flow.dispatch @mxcomp_main_dispatch_0::@mxcomp_main_dispatch_0(%v)

IREE would do the same later, at the end of its phase `flow`. Done now, its phases before that have a fraction of the
module to go over.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.mlir import graph

PIPELINE = "builtin.module(iree-flow-deduplicate-executables)"


def run(module: ir.Operation) -> None:
    """Lets dispatches below `module` share executables."""
    if graph.executables(module):
        PassManager.parse(PIPELINE).run(module)
