"""Taps inputs and results of a model's layers with MX weights: they are recorded, returned, or replaced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch

from mxcomp.torch.experts import ScaledExperts
from mxcomp.torch.linear import ScaledLinear

LAYERS = ScaledLinear, ScaledExperts


@dataclass(frozen=True)
class Call:
    """One call of a layer: its name in the model, its rows [M, K], and its result, [M, N].

    Of experts `others` are what they take besides rows: the experts chosen for each, and their shares.
    """

    name: str
    layer: Any
    x: torch.Tensor
    y: torch.Tensor
    others: tuple[Any, ...] = ()


Hook = Callable[[Call], torch.Tensor | None]
Shown = list[tuple[str, int]]
"""Calls by the names of their layers, and how many tensors are shown of each."""
_T = TypeVar("_T")


@contextmanager
def tapped(model: torch.nn.Module, hook: Hook) -> Iterator[None]:
    """Shows each call of a layer to a hook within the context. Rows that the hook returns replace the result."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, LAYERS):
                stack.callback(module.register_forward_hook(_around(name, hook), with_kwargs=True).remove)
        yield


def _around(name: str, hook: Hook) -> Callable[[Any, Any, Any, torch.Tensor], torch.Tensor | None]:
    def call(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], y: torch.Tensor) -> torch.Tensor | None:
        x, *others = [*args, *kwargs.values()]
        # copies, as some models add to a result in place
        taken, given = (each.reshape(-1, each.shape[-1]).clone() for each in (x, y))
        rows = hook(Call(name, layer, taken, given, tuple(others)))
        return None if rows is None else rows.reshape(y.shape).to(y.dtype, copy=True)

    return call


class Tapped(torch.nn.Module):
    """A model that also returns the tensors of each call of a layer, and tells `shown` which they are.

    Of each it returns rows, result, and the tensors that the layer takes besides rows: `parted` takes them apart. It is
    called with the arguments of the model, by their names, which is how dynamic shapes are given.
    """

    def __init__(self, model: torch.nn.Module, shown: Callable[[Shown], None]) -> None:
        super().__init__()
        self.model = model
        self._shown = shown  # and no list, as torch.export puts attributes back

        def forward(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
            return self._run(*args, **kwargs)

        forward.__signature__ = inspect.signature(model.forward)  # type: ignore[attr-defined]
        self.forward = forward

    def _run(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        calls: list[Call] = []
        with tapped(self.model, calls.append):
            outputs = tensors(self.model(*args, **kwargs))
        values = [[call.x, call.y, *tensors(call.others)] for call in calls]
        self._shown([(call.name, len(each)) for call, each in zip(calls, values, strict=True)])
        return (*outputs, *(value for each in values for value in each))


def parted(results: Sequence[_T], shown: Shown) -> tuple[list[_T], dict[str, list[tuple[_T, ...]]]]:
    """Splits the results of a `Tapped` model into its own and those of its calls, by the names of their layers."""
    outputs = len(results) - sum(count for _, count in shown)
    values, captured = iter(results[outputs:]), dict[str, list[tuple[_T, ...]]]()
    for name, count in shown:
        captured.setdefault(name, []).append(tuple(islice(values, count)))
    return list(results[:outputs]), captured


def tensors(outputs: Any) -> list[torch.Tensor]:
    """Returns the tensors of what a model returns, in the order of torch's programs."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
