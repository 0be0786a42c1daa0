"""mxcomp-deduplicate-workloads: gives a dispatch each operand of its workload once.

IREE drops those that are there twice (`FoldUniformOperands`), and then takes all but the first of them for number 0
where a kernel asks for them by number, and what follows them for what stood in its place. So workgroups are counted by
other sizes: of a kernel for [%m, %units, %units, %m], whose loop over workgroups has as many steps as there are units,
it launches %m workgroups.

Before:

    %r = flow.dispatch @f::@f[%m, %units, %units, %m](%a, %b) : (index, index) -> tensor<?xf32>{%m}
    workgroups(%0: index, %1: index, %2: index, %3: index) {
      … iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1, %2, %3)
    func.func @f(…) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %a, 3 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %b, 2 : index

After:

    %r = flow.dispatch @f::@f[%m, %units](%a, %b) : (index, index) -> tensor<?xf32>{%m}
    workgroups(%0: index, %1: index) {
      … iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1)
    func.func @f(…) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %a, 0 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %b, 1 : index
"""

from __future__ import annotations

from collections import defaultdict

from iree.compiler import ir

from mxcomp.mlir import dispatches, graph
from mxcomp.mlir.dispatches import DISPATCH

_EXPORT = "flow.executable.export"
_COUNT = "iree_tensor_ext.dispatch.workgroup_count_from_slice"
_ORDINAL = "iree_tensor_ext.dispatch.workload.ordinal"


def run(module: ir.Operation) -> None:
    """Shortens workloads of executables below `module`, considering all dispatches that call them."""
    calls: dict[str, list[ir.Operation]] = defaultdict(list)
    for op in graph.walk(module, bodies=False):
        if op.name == DISPATCH:
            calls[dispatches.entry_point(op).executable].append(op)
    executables = graph.executables(module)
    for name, callers in calls.items():
        _deduplicate(executables[name], callers)


def _deduplicate(executable: ir.Operation, callers: list[ir.Operation]) -> None:
    """Drops the operands of a workload that equal an earlier one in all calls."""
    operands = list(zip(*map(dispatches.workload, callers), strict=True))
    first = [operands.index(each) for each in operands]
    if first == sorted(set(first)):
        return
    kept = sorted(set(first))
    for op in graph.walk(executable):
        if op.name == _EXPORT:
            for block in op.regions[0].blocks:
                _shorten(block, first)
        elif op.name == _ORDINAL:
            number = ir.IntegerAttr(op.attributes["ordinal"])
            op.attributes["ordinal"] = ir.IntegerAttr.get(number.type, kept.index(first[number.value]))
    for op in callers:
        with op.location, ir.InsertionPoint(op):
            graph.replace(op, *dispatches.with_workload(op, [dispatches.workload(op)[i] for i in kept]).results)


def _shorten(count: ir.Block, first: list[int]) -> None:
    """Gives a function that counts workgroups the first of equal arguments only."""
    slices = [op.operation for op in count.operations if op.operation.name == _COUNT]
    for op in slices:
        with op.location, ir.InsertionPoint(op):
            given = [value for i, value in enumerate(op.operands) if first[i] == i]
            graph.replace(op, *ir.Operation.create(_COUNT, [result.type for result in op.results], given).results)
    arguments = list(count.arguments)
    for i in reversed(range(len(first))):
        if first[i] != i:
            arguments[i].replace_all_uses_with(arguments[first[i]])
            count.erase_argument(i)
