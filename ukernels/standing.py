"""Writes the module of a kernel that is a dispatch by itself, and no part of a matmul (`mxcomp.packing.standing`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeVar

from iree.compiler import ir
from iree.compiler.dialects import func, util

from mxcomp.mlir import build
from mxcomp.mlir.inline import insert
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Threads, Values

_Kernel = TypeVar("_Kernel")


def once(write: Callable[[_Kernel], str]) -> Callable[[_Kernel], str]:
    """Keeps what a method writes, by its kernel, of plain values: layers of a model have the same kernels."""
    return lru_cache(maxsize=16)(write)


class Digested(ABC):
    """Names a kernel by a digest of its module, so that all that compute the same are one."""

    @property
    @abstractmethod
    def prefix(self) -> str:
        """Returns what the name begins with."""

    @abstractmethod
    def written(self) -> str:
        """Returns the module of the kernel, with `prefix` for a name. Needs a current context."""

    @cached_property
    def _text(self) -> str:
        return self.written()

    @property
    def name(self) -> str:
        return f"{self.prefix}_{builder.digest(self._text)}"

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        return self._text.replace(f"@{self.prefix}(", f"@{self.name}(")


def module(
    name: str,
    kinds: Sequence[ir.RankedTensorType],
    results: Sequence[ir.RankedTensorType],
    threads: int,
    write: Callable[[Index, Values, Threads], None],
    called: Sequence[str] = (),
    brought: Mapping[str, ir.FunctionType] | None = None,
    in_place: int = 0,
) -> str:
    """Returns a module of a kernel, which `write` writes: of the workgroup's number, operands, and its threads.

    `called` are modules of functions that it calls, `brought` are others, which whoever takes the kernel brings.
    The first `in_place` results are written over what is there.
    """
    function = builder.function(name, kinds, *results)
    block = function.operation.regions[0].blocks[0]
    with ir.InsertionPoint(block):
        workgroup = builder.workgroup()
        given = list(block.arguments)
        kept = given[len(kinds) - len(results) :]
        fresh = zip(results[in_place:], kept[in_place:], strict=True)
        empty = [build.empty(result, build.dynamic_sizes(value)) for result, value in fresh]
        with builder.threads(threads, *results, inits=[*kept[:in_place], *empty]) as lanes:
            write(workgroup, given, lanes)
        util.ReturnOp(lanes.results)
    made = ir.Module.create()
    texts = [each for each in called if each]
    made.body.append(insert(function.operation, *texts) if texts else function.operation)
    with ir.InsertionPoint(made.body):
        for each, kind in (brought or {}).items():
            func.FuncOp(each, kind, visibility="private")
    return str(made)
