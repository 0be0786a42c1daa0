"""What kernels in Python have in common: the order of their parts."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.target import Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.builder import Index, Values


class Kernel:
    """Writes the kernel of an instance."""

    results = 1
    """As many as there are accumulators among the arguments, behind all others."""

    def __init__(self, instance: family.Instance, target: Target) -> None:
        self.instance = instance

    def function(self) -> ir.Operation:
        """The function, in no module."""
        types = self.instance.arguments()
        results = types[-self.results :]
        function = builder.function(self.instance.name, types, *results)
        with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
            self._open(*function.operation.regions[0].blocks[0].arguments)
            with builder.threads(self.instance.tile.threads, *map(self._stored_type, results)) as threads:
                self._distribute(threads.number)
                first = self._prologue()
                acc = self._main_loop(*first)
                self._epilogue(acc, threads)
            util.ReturnOp([builder.collapsed(*each) for each in zip(threads.results, results, strict=True)])
        return function.operation

    def _stored_type(self, result: ir.RankedTensorType) -> ir.RankedTensorType:
        """As what threads store a result: itself, or with dimensions in parts."""
        return result

    def _open(self, *arguments: ir.Value) -> None:
        """The operands, and their places in LDS."""
        raise NotImplementedError

    def _distribute(self, thread: Index) -> None:
        """Which wave and lane this is, and what they have of the tile."""
        raise NotImplementedError

    def _prologue(self) -> Sequence[Values]:
        """What the first K tile begins with."""
        raise NotImplementedError

    def _main_loop(self, *first: Values) -> Values:
        """All K tiles: the accumulators."""
        raise NotImplementedError

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """Stores them."""
        raise NotImplementedError
