"""The passes, by the name they have in a pipeline. Each is one file of that name with a `run(module)`.

Those of `workarounds` are there because of a fault of IREE's each, and for no other reason.

One that depends on the options of a compilation has a `run(module, options)`. What `mxcomp-opt` can tell it is in
`OPTIONS`: names as in `mxcomp-encode{ukernels=none data-tiling=on}`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
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
    takes_options = "options" in signature(module.run).parameters
    run = module.run if takes_options else lambda changed, _: module.run(changed)
    return Pass(run, getattr(module, "OPTIONS", ()))
