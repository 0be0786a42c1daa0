"""The declared arguments and results of the function that iree-run-module is to call, known before anything runs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iree import runtime as rt

from mxcomp.run import signature
from mxcomp.run.signature import Type


def results(flags: Sequence[str]) -> list[Type]:
    """Returns the types of the results of the function that flags of iree-run-module name."""
    return signature.results(_declaration(flags))


def arguments(flags: Sequence[str]) -> list[Type]:
    """Returns the types of its arguments."""
    return signature.arguments(_declaration(flags))


def _declaration(flags: Sequence[str]) -> str:
    """Returns the declaration in the function's reflection.

    Empty where flags, module or function are such that iree-run-module will say what is wrong.
    """
    modules, functions = _values(flags, "module"), _values(flags, "function")
    if not modules:
        return ""
    try:
        module = rt.VmModule.mmap(rt.VmInstance(), modules[-1])
        named = functions[-1:] or signature.functions(module)  # IREE calls the only one if none is named
        function = module.lookup_function(named[0]) if len(named) == 1 else None
    except (OSError, RuntimeError, ValueError):
        return ""
    return function.reflection.get(signature.DECLARATION, "") if function is not None else ""


def _values(flags: Sequence[str], name: str) -> list[str]:
    matches = (re.fullmatch(rf"--?{name}=(.*)", flag, re.DOTALL) for flag in flags)
    return [match[1] for match in matches if match]
