"""Kernels of matmuls, written in Python with `builder`, a module for each kind; `mxcomp.registry` finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp.target import Target
from mxcomp.ukernels import (
    builder,
    data_tiled,
    dual_packed,
    gating,
    intrawave,
    multistage,
    once,
    quantising,
    split_k,
    swiglu,
    weight_only,
)

__all__ = ["KINDS", "PLAIN_KINDS", "Kernel", "builder"]

PLAIN_KINDS = (data_tiled, split_k, multistage, intrawave)
"""The modules of `KINDS` whose kernels take MX operands, and fuse nothing."""

KINDS = (*PLAIN_KINDS, gating, quantising, dual_packed, once, weight_only, swiglu)
"""The modules with `INSTANCES`: ukernels that one kernel is written for, of many types and tiles."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that is written by a function.

    Attributes:
        name: Of it.
        rule: The entries of its match rule.
        write: Makes the function, of this name and in no module: `builder.function` with a body.
    """

    name: str
    rule: dict[str, Any]
    write: Callable[[str], ir.Operation]

    def module(self, path: Path, target: Target) -> ir.Module:
        """Returns a module with its function, whose rule is an attribute."""
        return builder.module(self.write(self.name), self.rule)
