"""Records which modules of a model stay in floats, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mxcomp.report.table import floats_lines
from mxcomp.torch import torchao, tying

NOT_CALLED = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
"""Layers whose weights are read by the module around them, which a replacement would break."""

_REASON = "_mxcomp_left_in_floats"
"""The attribute of a module with the reason why it stays as it is."""

_KINDS: tuple[tuple[Callable[[torch.nn.Module], bool], str], ...] = (
    (lambda module: isinstance(module, NOT_CALLED), "the module around it reads its weights itself"),
    (lambda module: isinstance(module, torch.nn.Linear), "nothing has replaced it"),
    (lambda module: isinstance(module, torch.nn.Embedding), "rows are looked up in it, and not multiplied"),
    (lambda module: isinstance(module, torch.nn.modules.conv._ConvNd), "a convolution"),
    (lambda module: type(module).__name__ == "Conv1D", "a Conv1D of transformers, [K, N], and no torch.nn.Linear"),
)


class Floats(dict[str, str]):
    """Reasons by the names of modules; as text, a line for those that differ in numbers only."""

    def __str__(self) -> str:
        return "\n".join(floats_lines(self)) or "nothing is left in floats"


def left_in_floats(model: torch.nn.Module) -> Floats:
    """Returns the modules of a model whose weights, of two or more dimensions, stay floats, and the reason for each."""
    return Floats(
        {
            name: getattr(module, _REASON, None) or _reason(module)
            for name, module in model.named_modules()
            if any(_is_matrix(each) for each in module.parameters(recurse=False))
        }
    )


def note(module: torch.nn.Module, reason: str) -> None:
    """Records why a module stays in floats."""
    setattr(module, _REASON, reason)


def note_ties(model: torch.nn.Module, replaced: dict[str, Any]) -> None:
    """Records that modules stay which are tied with layers that are about to be replaced."""
    for group in tying.groups(model):
        names = [name.rpartition(".")[0] for name in group]
        for name in [name for name in names if name not in replaced]:
            others = [f"'{other}'" for other in names if other in replaced]
            if others:
                module = model.get_submodule(name)
                note(module, f"{_reason(module)}; {others[0]}, which it was tied with, has MX weights of its own")


def _is_matrix(parameter: torch.Tensor) -> bool:
    return parameter.dim() > 1 and parameter.is_floating_point() and not torchao.is_mx(parameter)


def _reason(module: torch.nn.Module) -> str:
    found = next((reason for holds, reason in _KINDS if holds(module)), None)
    return found or f"a {type(module).__name__}, which has weights itself, and no torch.nn.Linear"
