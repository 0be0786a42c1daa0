"""mxcomp-share-slices: lets dispatches share one executable that differ only in the slices that they read.

So do the layers of a decoder whose caches are one tensor, or of which weights are: without it each layer has kernels
of its own, and a model's compilation takes as long as that of all of them.

Before:

    flow.executable private @layer_0 { … func.func @layer_0(%x: …<readonly:tensor<8x64xf32>>, %y: …) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [0, 0], sizes = [1, 64], … }
    flow.executable private @layer_1 { … func.func @layer_1(%x: …<readonly:tensor<8x64xf32>>, %y: …) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [1, 0], sizes = [1, 64], … }
    %p = flow.dispatch @layer_0::@layer_0(%s) : (tensor<8x64xf32>) -> tensor<64xf32>
    %q = flow.dispatch @layer_1::@layer_1(%s) : (tensor<8x64xf32>) -> tensor<64xf32>

After:

    flow.executable private @layer_0 { … func.func @layer_0(%x: …<readonly:tensor<8x64xf32>>, %i: index, %y: …) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [%i, 0], sizes = [1, 64], … }
    %p = flow.dispatch @layer_0::@layer_0(%s, %c0) : (tensor<8x64xf32>, index) -> tensor<64xf32>
    %q = flow.dispatch @layer_0::@layer_0(%s, %c1) : (tensor<8x64xf32>, index) -> tensor<64xf32>

It stands at the end of IREE's phase `flow`, where executables are what they will be and have been shared as they are.
Offsets become operands only in dimensions of which one element is read or written, and only where they differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.mlir import build, dispatches, graph
from mxcomp.mlir.dispatches import DISPATCH, SEGMENTS

_ACCESSES = ("iree_tensor_ext.dispatch.tensor.load", "iree_tensor_ext.dispatch.tensor.store")
_OFFSETS_FROM_THE_END = 3
"""The index from the end of the segment of an access's offsets, which sizes and strides follow."""

AccessDim = tuple[int, int]
"""An access of a function by number, and a dimension of it."""


def run(module: ir.Operation) -> None:
    """Lets dispatches below `module` that differ only in slices share executables."""
    for of_one_type in _alike(_executables(module), _Executable.type):  # printing is slow
        for group in _alike(of_one_type, _Executable.text_without_slices):
            _share(group)


def _alike(
    executables: Iterable[_Executable], what: Callable[[_Executable], Hashable]
) -> Iterator[Sequence[_Executable]]:
    """Yields groups of two or more executables that are equal in a property."""
    groups: dict[Hashable, list[_Executable]] = defaultdict(list)
    for executable in executables:
        groups[what(executable)].append(executable)
    return (group for group in groups.values() if len(group) > 1)


@dataclass(frozen=True)
class _Executable:
    """An executable of one function, its dispatches, and its slices."""

    op: ir.Operation
    function: ir.Operation
    dispatches: tuple[ir.Operation, ...] = ()

    def type(self) -> ir.Attribute:
        return self.function.attributes["function_type"]

    def accesses(self) -> list[ir.Operation]:
        return [op for op in graph.walk(self.function, bodies=False) if op.name in _ACCESSES]

    def slices(self) -> dict[AccessDim, int]:
        """Returns the offset of each access dimension of which one element is accessed."""
        return {
            (number, dimension): offset
            for number, op in enumerate(self.accesses())
            for dimension, (offset, size) in enumerate(zip(_static(op, "offsets"), _static(op, "sizes"), strict=True))
            if size == 1 and offset != _DYNAMIC
        }

    def text_without_slices(self) -> str:
        """Returns the text that has to be equal in executables that are merged."""
        sliced, accesses = self.slices(), self.accesses()
        kept = [op.attributes["static_offsets"] for op in accesses]
        for number, op in enumerate(accesses):
            offsets = enumerate(_static(op, "offsets"))
            _set_offsets(op, [0 if (number, dimension) in sliced else offset for dimension, offset in offsets])
        text = self.op.get_asm(use_local_scope=True).replace(graph.symbol_name(self.op), "")
        for op, offsets_ in zip(accesses, kept, strict=True):
            op.attributes["static_offsets"] = offsets_
        return text


_DYNAMIC = ir.ShapedType.get_dynamic_stride_or_offset()


def _static(op: ir.Operation, name: str) -> list[int]:
    return list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"]))


def _set_offsets(op: ir.Operation, offsets: Sequence[int]) -> None:
    op.attributes["static_offsets"] = ir.DenseI64ArrayAttr.get(offsets)


def _executables(module: ir.Operation) -> Iterator[_Executable]:
    """Yields the executables of one function that only dispatches refer to."""
    found = {
        name: _Executable(op, function)
        for name, op in graph.executables(module).items()
        if (function := _only(op)) is not None
    }
    for op in graph.walk(module, bodies=False):
        if op.name == DISPATCH:
            names = [each.executable for each in dispatches.entry_points(op)]
            for name in names:
                if len(names) > 1:  # which of them runs is decided later
                    found.pop(name, None)
                elif name in found:
                    found[name] = replace(found[name], dispatches=(*found[name].dispatches, op))
    yield from (each for each in found.values() if each.dispatches)


def _only(executable: ir.Operation) -> ir.Operation | None:
    """Returns the function of an executable, if it has one, without attributes of arguments."""
    functions = [op for op in graph.walk(executable, bodies=False) if op.name == "func.func"]
    return functions[0] if len(functions) == 1 and "arg_attrs" not in functions[0].attributes else None


def _share(group: Sequence[_Executable]) -> None:
    """Makes all dispatches of a group call the first executable, with the offsets in which they differ as operands."""
    slices = [each.slices() for each in group]
    operands: dict[tuple[int, ...], list[AccessDim]] = defaultdict(list)
    for each_dim in slices[0]:
        values = tuple(each[each_dim] for each in slices)
        if len(set(values)) > 1:
            operands[values].append(each_dim)
    first = group[0]
    entry_points = first.dispatches[0].attributes["entry_points"]
    _add_operands(first, list(operands.values()))
    for number, each in enumerate(group):
        for dispatch in each.dispatches:
            _call(dispatch, entry_points, [values[number] for values in operands])
        if each is not first:
            each.op.erase()


def _add_operands(executable: _Executable, operands: Sequence[Sequence[AccessDim]]) -> None:
    """Adds operands for offsets of these access dimensions to a function, in front of its results."""
    function, accesses = executable.function, executable.accesses()
    inputs, block = dispatches.arguments(executable.dispatches[0]), function.regions[0].blocks[0]
    old = list(block.arguments)
    types = [argument.type for argument in old]
    types[inputs:inputs] = [ir.IndexType.get()] * len(operands)
    new = [block.add_argument(kind, function.location) for kind in types]
    added = new[inputs : inputs + len(operands)]
    for argument, value in zip(old, [value for value in new if value not in added], strict=True):
        argument.replace_all_uses_with(value)
    for _ in old:
        block.erase_argument(0)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    for number, access in enumerate(accesses):
        offsets = {
            dimension: value
            for access_dims, value in zip(operands, added, strict=True)
            for at, dimension in access_dims
            if at == number
        }
        if offsets:
            _replace(access, offsets)


def _replace(access: ir.Operation, offsets: dict[int, ir.Value]) -> None:
    """Sets offsets of an access to these values, by dimension."""
    segments = list(ir.DenseI32ArrayAttr(access.attributes[SEGMENTS]))
    start = sum(segments[:-_OFFSETS_FROM_THE_END])
    end = start + segments[-_OFFSETS_FROM_THE_END]
    before, given, behind = (list(access.operands)[of] for of in (slice(start), slice(start, end), slice(end, None)))
    numbers = enumerate(build.mixed(_static(access, "offsets"), given))
    dynamic, static = build.parted([offsets.get(dimension, number) for dimension, number in numbers])
    segments[-_OFFSETS_FROM_THE_END] = len(dynamic)
    changed = {SEGMENTS: ir.DenseI32ArrayAttr.get(segments), "static_offsets": ir.DenseI64ArrayAttr.get(static)}
    with ir.InsertionPoint(access):
        graph.replace(access, *graph.remade(access, [*before, *dynamic, *behind], **changed).results)


def _call(dispatch: ir.Operation, entry_points: ir.Attribute, values: Sequence[int]) -> None:
    """Makes a dispatch call one of these entry points, with additional operands."""
    with dispatch.location, ir.InsertionPoint(dispatch):
        added = [build.constant_index(value) for value in values]
        new = dispatches.with_operands(dispatch, arguments=added, entry_points=entry_points)
    graph.replace(dispatch, *new.results)
