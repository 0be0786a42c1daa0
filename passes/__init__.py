"""The passes, by the name they have in a pipeline. Each is one file of that name with a `run(module, options)`.

Those of `workarounds` are there because of a fault of IREE's each, and for no other reason.

A pass that can be told something says what in `OPTIONS`: names as in `mxcomp-encode{ukernels=none data-tiling=on}`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules

from iree.compiler import ir

from mxcomp.options import Options
from mxcomp.passes import workarounds

PASSES = {f"mxcomp-{each.name.replace('_', '-')}": each.name for each in iter_modules(__path__) if not each.ispkg} | {
    name: f"workarounds.{workarounds.file(name)}" for name in workarounds.ALL
}
"""Pass names and the files they live in; imported when first used."""


@dataclass(frozen=True)
class Pass:
    """A pass: `run` changes a module in place and raises MxcompError, `options` are the names it can be told."""

    run: Callable[[ir.Operation, Options], None]
    options: tuple[str, ...]


def get_pass(name: str) -> Pass:
    """Returns a pass by its name in pipelines. Raises KeyError."""
    module = import_module(f"{__name__}.{PASSES[name]}")
    return Pass(module.run, getattr(module, "OPTIONS", ()))
