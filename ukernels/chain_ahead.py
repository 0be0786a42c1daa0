"""Computes a chain (`chain.py`) in front of a kernel that reads a result of it, as an expert's product reads ids.

Workgroups of that kernel would wait for what the chain stores. Here each of them computes it, and stores a copy of its
results behind the kernel's own, for whatever else reads them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

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
        parts: How many dimensions of the result workgroups are counted along.
    """

    chain: Chain
    kernel: str
    reads: dict[int, ir.Value]
    threads: int
    parts: int

    @property
    def is_short(self) -> bool:
        """Whether computing the chain in each workgroup takes less time than a dispatch."""
        is_small = max(map(size, self.chain.values)) <= self.threads and self.chain.lds_bytes <= _MOST_BYTES
        return is_small and self.chain.slots <= _MOST_SLOTS * self.threads

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of a workgroup's copy of the chain's results."""
        ones = [1] * self.parts
        return [build.tensor_type([*ones, size(value)], build.element(value)) for value in self.chain.values]

    @property
    def prefix(self) -> str:
        module = ir.Module.parse(self.kernel)  # which lives as long as this name
        return graph.symbol_name(_function(module)).rpartition("_")[0]

    def written(self) -> str:
        module = ir.Module.parse(self.kernel)
        kinds = [ir.RankedTensorType(value.type) for value in _function(module).regions[0].blocks[0].arguments]
        of_chain = [build.tensor_type([size(value)], build.element(value)) for value in self.chain.operands]
        taken = [kind for number, kind in enumerate(kinds[:-1]) if number not in self.reads]
        results = [kinds[-1], *self.results]

        def write(workgroup: Index, given: Values, threads: Threads) -> None:
            self._write(_function(module), workgroup, given, threads)

        return standing.module(self.prefix, [*of_chain, *taken, *results], results, self.threads, write)

    def _write(self, kernel: ir.Operation, workgroup: Index, given: Values, threads: Threads) -> None:
        """Writes the chain, and moves a kernel's operations behind it."""
        (*arguments, _), (first, _, *body) = kernel.regions[0].blocks[0].arguments, _ops(kernel)
        forall = body[0]
        count, (own, *outs) = len(self.chain.operands), threads.outs
        made = Writing(self.chain, given[:count], threads.number, self.threads).results()
        known = dict(zip(self.chain.values, made, strict=True))
        Threads(threads.number, outs, []).store_each(*map(partial(_stored, threads.number), made, self.results))
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
        stored = list(end)[-1].operation
        for op in moved:
            op.move_before(stored)
        for op in _ops(last):
            op.move_before(_ops(stored)[0])


def _ops(op: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in op.regions[0].blocks[0].operations]


def _function(module: ir.Module) -> ir.Operation:
    return module.body.operations[0].operation


def _read(argument: ir.Value, memory: Memory) -> None:
    """Reads LDS wherever a kernel reads an operand."""
    for use in list(argument.uses):
        op = use.owner.operation
        if op.name == "tensor.extract":
            with ir.InsertionPoint(op):
                at = Index.of(op.operands[1])
                graph.replace(op, memref.LoadOp(memory.buffer, [at.value]).result)
        else:
            op.results[0].replace_all_uses_with(memory.buffer)
            op.erase()


def _stored(thread: Index, memory: Memory, kind: ir.RankedTensorType) -> builder.Part:
    """Returns a thread's element of a copy of a result."""
    *ones, count = kind.shape
    element = memory.load(composing.split(build.clamp(thread.value, math.prod(memory.sizes)), memory.sizes))
    at = select(thread < count, thread, BEYOND * 8 // kind.element_type.width)
    return [builder.from_elements([element])], [*ones, 1], [*(0 for _ in ones), at]
