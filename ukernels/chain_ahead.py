"""Computes a chain (`chain.py`) in front of a kernel that reads a result of it, as an expert's product reads ids.

Workgroups of that kernel would wait for what the chain stores. Here each of them computes it, and stores a copy of its
results behind the kernel's own, for whatever else reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from iree.compiler import ir
from iree.compiler.dialects import memref

from mxcomp.mlir import build, composing, graph
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.chain import Chain, Memory, Writing
from mxcomp.ukernels.chain_operations import size
from mxcomp.ukernels.waves import BEYOND

_MOST_SLOTS = 128
"""The most instructions of a thread: several workgroups of a CU execute them, one behind the other."""
_MOST_BYTES = 2**14
"""The most bytes of LDS beside those of the kernel."""


@dataclass(frozen=True)
class ChainAhead(standing.Digested):
    """A kernel of so many threads with a chain in front.

    Attributes:
        kernel: The module of the kernel, which has one result.
        reads: The values of the chain that operands of the kernel are, by their numbers.
        own: The type of its result.
        dims: The dimensions of that by which workgroups are counted.
        attrs: What LLVM is told of it.
    """

    chain: Chain
    kernel: str
    reads: dict[int, ir.Value]
    count: int
    own: ir.RankedTensorType
    dims: tuple[int, ...]
    attrs: Mapping[str, str]

    @property
    def threads(self) -> int:
        return self.count

    @property
    def is_short(self) -> bool:
        """Whether computing the chain in each workgroup takes less time than a dispatch."""
        is_small = max(map(size, self.chain.values)) <= self.threads and self.chain.lds_bytes <= _MOST_BYTES
        return is_small and self.chain.slots <= _MOST_SLOTS * self.threads

    @cached_property
    def _module(self) -> ir.Module:
        return ir.Module.parse(self.kernel)

    @property
    def _function(self) -> ir.Operation:
        return self._module.body.operations[0].operation

    @cached_property
    def prefix(self) -> str:
        return graph.symbol_name(self._function).rpartition("_")[0]

    @cached_property
    def inputs(self) -> list[ir.RankedTensorType]:
        *kinds, _ = (ir.RankedTensorType(value.type) for value in self._function.regions[0].blocks[0].arguments)
        return [*self.chain.inputs, *(kind for number, kind in enumerate(kinds) if number not in self.reads)]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of the kernel's result, and of copies of the chain's."""
        sizes, values = [self.own.shape[each] for each in self.dims], self.chain.values
        return [self.own, *(build.tensor_type([*sizes, size(value)], build.element(value)) for value in values)]

    @property
    def along(self) -> list[tuple[int, ...]]:
        return [self.dims, *[tuple(range(len(self.dims)))] * len(self.chain.values)]

    @property
    def llvm_func_attrs(self) -> Mapping[str, str]:
        return self.attrs

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        """Writes the chain, and moves a kernel's operations behind it."""
        kernel = self._function
        (*arguments, _), (first, _, *body) = kernel.regions[0].blocks[0].arguments, _ops(kernel)
        forall = body[0]
        count, (own, *outs) = len(self.chain.operands), threads.outs
        made = Writing(self.chain, given[:count], threads.number, self.threads).results()
        known = dict(zip(self.chain.values, made, strict=True))
        stored = partial(_stored, threads.number, len(self.dims))
        Threads(threads.number, outs, []).store_each(*map(stored, made, self.chain.values))
        others = iter(given[count:])
        for number, argument in enumerate(arguments):
            if number in self.reads:
                _read(argument, known[self.reads[number]])
            else:
                argument.replace_all_uses_with(next(others))
        first.results[0].replace_all_uses_with(workgroup.value)
        for old, new in zip(forall.regions[0].blocks[0].arguments, (threads.number.value, own), strict=True):
            old.replace_all_uses_with(new)
        end = ir.InsertionPoint.current.block.operations
        *moved, last = _ops(forall)
        store = list(end)[-1].operation
        for op in moved:
            op.move_before(store)
        for op in _ops(last):
            op.move_before(_ops(store)[0])


def _ops(op: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in op.regions[0].blocks[0].operations]


def _read(argument: ir.Value, memory: Memory) -> None:
    for use in list(argument.uses):
        op = use.owner.operation
        if op.name == "tensor.extract":
            with ir.InsertionPoint(op):
                at = Index.of(op.operands[1])
                graph.replace(op, memref.LoadOp(memory.buffer, [at.value]).result)
        else:
            op.results[0].replace_all_uses_with(memory.buffer)
            op.erase()


def _stored(thread: Index, outer: int, memory: Memory, value: ir.Value) -> builder.Part:
    """Returns a thread's element of a copy of a result, behind so many dimensions of size 1."""
    element = memory.load(composing.split(build.clamp(thread.value, math.prod(memory.sizes)), memory.sizes))
    at = select(thread < size(value), thread, BEYOND * 8 // build.element(value).width)
    return [builder.from_elements([element])], [1] * (outer + 1), [*[0] * outer, at]
