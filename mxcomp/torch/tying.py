"""Tensors that a model shares between modules, and which of them a checkpoint contains.

As transformers does it: of tensors that are tied a file needs to have one, whichever; where it has several they are
tied only if they are equal, and a warning says so if they are not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import Any

import torch

Groups = tuple[tuple[str, ...], ...]
"""Names in a `state_dict` of tensors that are one, the one that the others are tied to first."""


def groups(model: torch.nn.Module) -> Groups:
    """Returns the tied tensors of a model, by transformers' configuration and by identity."""
    sources = {
        _join(prefix, target): _join(prefix, source)
        for prefix, module in model.named_modules()
        for target, source in _mapping(module).items()
    }

    def root(name: str) -> str:
        while name in sources:
            name = sources[name]
        return name

    names = model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    for name, tensor in names.items():
        one, other = root(first.setdefault(id(tensor), name)), root(name)
        if one != other:
            sources[other] = one
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(root(name), []).append(name)
    return tuple((source, *(n for n in all_ if n != source)) for source, all_ in found.items() if len(all_) > 1)


def chosen(
    tied: Groups, floats: Collection[str], others: Collection[str], equal: Callable[[str, str], bool], checkpoint: str
) -> tuple[dict[str, str], set[str]]:
    """Returns what each tied tensor is tied to, and those that a checkpoint unties by another value.

    It has `floats`, and `others` in another form: those have the values of a group only where there are no floats.
    """
    ties: dict[str, str] = {}
    own: set[str] = set()
    for group in tied:
        stored = [*(name for name in group if name in floats), *(name for name in group if name in others)]
        for name in group if stored else ():
            if name == (leader := stored[0]):
                continue
            if name not in stored or equal(leader, name):
                ties[name] = leader
                continue
            own.add(name)
            warnings.warn(
                f"{checkpoint} has '{leader}' and '{name}' with different values, which the model ties: both are "
                "loaded, and they are not tied (with tie_word_embeddings=False in its configuration nothing is said)",
                UserWarning,
                stacklevel=3,
            )
    return ties, own


def tie(model: torch.nn.Module, ties: dict[str, str], own: Collection[str]) -> None:
    """Makes tensors of a loaded model one, and unties the others in transformers."""
    for target, source in ties.items():
        parent, _, name = target.rpartition(".")
        at, _, last = source.rpartition(".")
        setattr(model.get_submodule(parent), name, getattr(model.get_submodule(at), last))
    for prefix, module in model.named_modules():
        for target in [target for target in _mapping(module) if _join(prefix, target) in own]:
            del _mapping(module)[target]


def _mapping(module: Any) -> dict[str, str]:
    """Returns a transformers model's ties, with names relative to it."""
    return getattr(module, "all_tied_weights_keys", None) or {}


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
