"""Rejects ukernels of a user's directories that spill registers, unless they are asked for by name.

Such a ukernel is correct but slow, which its author wants to know.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from iree.compiler import ir

from mxcomp.errors import UkernelError
from mxcomp.mlir import graph
from mxcomp.options import Options
from mxcomp.registry import Registry, Ukernel
from mxcomp.report.report import Report
from mxcomp.sim import code_object

_BINARY = "hal.executable.binary"


def refuse(module: ir.Operation, report: Report, options: Options) -> None:
    """Checks the code of a module at IREE's phase `hal`. Raises UkernelError."""
    own = _own(module, report, options)
    for kernel in _kernels(module) if own else ():
        ukernel, taken = own.get(kernel.name), kernel.metadata
        spilled = taken.vgpr_spills + taken.sgpr_spills
        if ukernel is not None and spilled:
            raise UkernelError(
                f"{ukernel.location}: @{ukernel.name} spills {spilled} registers, in addition to "
                f"{taken.vgprs} VGPRs and {taken.sgprs} SGPRs that it has, "
                f"in {kernel.name}: expected none; --ukernels={ukernel.name} takes it all the same"
            )


def _own(module: ir.Operation, report: Report, options: Options) -> dict[str, Ukernel]:
    """Returns the user's ukernels that were chosen, by the kernels they are in."""
    with module.context, module.location:
        registry = Registry(options.target, options.ukernel_dirs)
    chosen = ((part.kernel, registry.ukernels.get(part.ukernel or "")) for part in report.parts)
    return {
        kernel: ukernel
        for kernel, ukernel in chosen
        if kernel and ukernel and registry.is_foreign(ukernel) and ukernel.name != options.ukernels
    }


def _kernels(module: ir.Operation) -> Iterator[code_object.Kernel]:
    for op in graph.walk(module):
        if op.name == _BINARY:
            data = np.array(ir.DenseElementsAttr(op.attributes["data"])).tobytes()
            for image in code_object.images(data):
                yield from code_object.load(image).kernels.values()
