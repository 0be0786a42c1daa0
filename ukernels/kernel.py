"""What kernels in Python have in common: `Instance`, which writes one, and `Kernel`, the order of its parts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.target import GFX950, Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.operands import argument_types


@dataclass(frozen=True)
class Instance(family.Instance):
    """A tile, for the element types of LHS and RHS."""

    @property
    def kernel(self) -> type[Kernel]:
        """What writes its kernel."""
        raise NotImplementedError

    def path(self, folder: Path) -> Path:
        return Path(inspect.getfile(type(self)))

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        return argument_types(self.layout, self.elements)

    def module(self, path: Path, target: Target = GFX950) -> ir.Module:
        return builder.module(self.kernel(self, target).function(), family.attribute(self.rule))


class Kernel:
    """Writes the kernel of an instance."""

    results = 1
    """As many as there are accumulators among the arguments, behind all others."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.instance = instance

    def function(self) -> ir.Operation:
        """The function, in no module."""
        types = self.instance.arguments()
        results = types[-self.results :]
        function = builder.function(self.instance.name, types, *results)
        with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
            self._open(*function.operation.regions[0].blocks[0].arguments)
            with builder.threads(self.instance.tile.threads, *results) as threads:
                self._distribute(threads.number)
                first = self._prologue()
                acc = self._main_loop(*first)
                self._epilogue(acc, threads)
            util.ReturnOp(threads.results)
        return function.operation

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
