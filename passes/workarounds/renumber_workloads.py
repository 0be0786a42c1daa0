"""mxcomp-renumber-workloads: refers to a size in a dispatch's workload by its first occurrence.

IREE drops operands of workloads that are there twice, and then takes all but the first of them for number 0 where
a kernel asks for them by number: of a kernel for [%m, %units, %units, %m], whose loop over workgroups has as many steps
as there are units, it launches %m workgroups. Those that are too many compute nothing that is stored.

Before:

    %r = flow.dispatch @f::@f[%m, %units, %units, %m](%a, %b) : (index, index) -> tensor<?xf32>{%m}
    func.func @f(…) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %a, 3 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %b, 2 : index

After:

    func.func @f(…) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %a, 0 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %b, 1 : index
"""

from __future__ import annotations

from collections import defaultdict

from iree.compiler import ir

from mxcomp.mlir import dispatches, graph
from mxcomp.mlir.dispatches import DISPATCH
from mxcomp.options import Options
from mxcomp.passes.workarounds import Unshown, Workaround

WORKAROUND = Workaround(
    fault="Workgroups are counted by another operand where a workload has one twice.",
    stock=Unshown("a dispatch of ours with the workload %m, %units, %units, %m; it has too many workgroups"),
)

_ASKED = "iree_tensor_ext.dispatch.workload.ordinal"
_NUMBER = "ordinal"


def run(module: ir.Operation, options: Options) -> None:
    """Renumbers workload ordinals in executables below `module`, considering all dispatches that may call them."""
    with module.context:
        workloads: dict[str, list[list[ir.Value]]] = defaultdict(list)
        for op in graph.walk(module, bodies=False):
            if op.name == DISPATCH:
                for called in dispatches.entry_points(op):
                    workloads[called.executable].append(dispatches.workload(op))
        for name, executable in graph.executables(module).items():
            _renumber(executable, workloads[name])


def _renumber(executable: ir.Operation, workloads: list[list[ir.Value]]) -> None:
    operands = list(zip(*workloads, strict=True))  # the operands of all calls, by position
    for op in graph.walk(executable):
        if op.name == _ASKED:
            number = ir.IntegerAttr(op.attributes[_NUMBER])
            if number.value < len(operands):
                op.attributes[_NUMBER] = ir.IntegerAttr.get(number.type, operands.index(operands[number.value]))
