"""Kernels that are dispatches by themselves, and no part of a matmul (`mxcomp.packing.standing`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.mlir import build
from mxcomp.mlir.inline import insert
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Threads, Values


class Kernel(ABC):
    """A kernel whose workgroups are each given all of its operands, and have a part of each result, or all of it."""

    functions: str = ""
    """The module of functions that it calls."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the function, the same for all that compute the same."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """The number of threads of a workgroup."""

    @property
    @abstractmethod
    def inputs(self) -> Sequence[ir.RankedTensorType]:
        """The types of operands, as a workgroup is given them."""

    @property
    @abstractmethod
    def results(self) -> Sequence[ir.RankedTensorType]:
        """The types of results, whole."""

    @abstractmethod
    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        """Writes what a workgroup does, by its number, of operands and results as it is given them."""

    @property
    def along(self) -> tuple[int, ...] | list[tuple[int, ...]]:
        """The dimensions that workgroups have parts of: of all results, or of each."""
        return (0,)

    @property
    def tiled(self) -> Sequence[int]:
        """The sizes of a workgroup's part along each of these, where they are not 1; the last one may have less."""
        return ()

    @property
    def divided(self) -> Sequence[int]:
        """The dimension of each first operand of which workgroups are given parts, too."""
        return ()

    @property
    def in_place(self) -> int:
        """The number of first results that are written over what is there."""
        return 0

    @property
    def llvm_func_attrs(self) -> Mapping[str, str]:
        return {}

    @property
    def modules(self) -> Sequence[str]:
        """All modules of functions that it calls; without any, whoever takes the kernel brings these."""
        return [self.functions]

    @property
    def places(self) -> list[tuple[int, ...]]:
        """The dimensions of each result that workgroups have parts of."""
        return self.along if isinstance(self.along, list) else [self.along] * len(self.results)

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        return self._written(self.name)

    def _written(self, name: str) -> str:
        results = [_part(*each, self.tiled) for each in zip(self.results, self.places, strict=True)]
        function = builder.function(name, [*self.inputs, *results], *results)
        given = list(function.operation.regions[0].blocks[0].arguments)
        kept = given[len(self.inputs) :]
        with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
            workgroup = builder.workgroup()
            fresh = zip(results[self.in_place :], kept[self.in_place :], strict=True)
            empty = [build.empty(result, build.dynamic_sizes(value)) for result, value in fresh]
            with builder.threads(self.threads, *results, inits=[*kept[: self.in_place], *empty]) as lanes:
                self.write(workgroup, given, lanes)
            util.ReturnOp(lanes.results)
        made = ir.Module.create()
        texts = [each for each in self.modules if each]
        made.body.append(insert(function.operation, *texts) if texts else function.operation)
        builder.declare(made, function.operation)
        return str(made)


def _part(result: ir.RankedTensorType, along: Sequence[int], tiled: Sequence[int]) -> ir.RankedTensorType:
    """Returns the type of a workgroup's part of a result."""
    sizes = [None if size == build.DYNAMIC else size for size in result.shape]
    for dim, size in zip(along, tiled or [1] * len(along), strict=False):
        sizes[dim] = 1 if size == 1 else None
    return build.tensor_type(sizes, result.element_type)


class Plain(Kernel):
    """A kernel of plain values, whose module is kept by them: layers of a model have the same kernels."""

    def text(self) -> str:
        return _kept(self)


@lru_cache(maxsize=128)
def _kept(kernel: Plain) -> str:
    return super(Plain, kernel).text()


class Digested(Kernel):
    """Names a kernel by a digest of its module, so that all that compute the same are one."""

    @property
    @abstractmethod
    def prefix(self) -> str:
        """Returns what the name begins with."""

    @cached_property
    def _text(self) -> str:
        return self._written(self.prefix)

    @property
    def name(self) -> str:
        return f"{self.prefix}_{builder.digest(self._text)}"

    def text(self) -> str:
        return self._text.replace(f"@{self.prefix}(", f"@{self.name}(")
