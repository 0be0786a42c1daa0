"""Models of many families compiled as they come, their layers in MX: against the same models in PyTorch.

A difference must be proven to be activations that were rounded to another code: `mxcomp.torch.compare` looks at each
layer by itself, of the program that is run. Experts it compares as a whole, and a code that flips between their layers
is bounded here: by how much it changes the result of all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from zoo import ZOO, build

import mxcomp.torch
from mxcomp.torch.comparison import ULPS
from mxcomp.torch.taps import Call, Tapped, tapped

LARGEST_RMS_OF_EXPERTS = {torch.float32: 0.01, torch.bfloat16: 0.02}
SAMPLE = ("dit",)
Pairs = dict[str, list[tuple[torch.Tensor, torch.Tensor]]]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def as_torch(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def errors_of_experts(model: torch.nn.Module, arguments: Sequence[torch.Tensor], captured: Pairs) -> dict[str, float]:
    """By name of experts, the rms error of what they make of the program's rows, as a share of their result's."""
    left = {name: list(pairs) for name, pairs in captured.items()}
    errors: dict[str, float] = {}

    def look(call: Call) -> torch.Tensor:
        x, found = left[call.name].pop(0)
        if not isinstance(call.layer, mxcomp.torch.ScaledLinear):
            expected = call.layer.forward(x, *call.others).reshape(found.shape).double()
            share = (found.double() - expected).square().mean() / expected.square().mean()
            errors[call.name] = max(errors.get(call.name, 0.0), share.sqrt().item())
        return found

    with torch.no_grad(), tapped(model, look):
        model(*arguments)
    return errors


def check(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, folder: Path) -> None:
    entry = ZOO[name]
    model = build(name, layers, dtype)
    mxcomp.torch.replace_linears(model, "E4M3", "E4M3")
    first = tuple(each.to(dtype) if each.is_floating_point() else each for each in entry.arguments)
    runs = [first]
    if is_dynamic:
        assert entry.dynamic is not None
        changing = [bool(sizes) for sizes in entry.dynamic]
        runs.append(tuple(each[:, :3] if cut else each for each, cut in zip(first, changing, strict=True)))
    names: list[str] = []
    program = mxcomp.torch.compile(
        Tapped(model, lambda found: names.__setitem__(slice(None), found)), first,
        dynamic_shapes=(entry.dynamic,) if is_dynamic else None, parameters=folder / "model",
    )  # fmt: skip
    for arguments in runs:
        results = program.run(*map(as_numpy, arguments), parameters={"model": folder / "model.irpa"})
        output, *shown = map(as_torch, results)
        assert names and len(shown) == 2 * len(names)
        captured: Pairs = {}
        for layer, *pair in zip(names, shown[::2], shown[1::2], strict=True):
            captured.setdefault(layer, []).append((pair[0], pair[1]))
        ulps = ULPS | {torch.float32: entry.ulps}
        comparison = mxcomp.torch.compare(model, arguments, outputs=[output], captured=captured, ulps=ulps)
        experts = errors_of_experts(model, arguments, captured)
        print(f"{name}, {layers} layers, {dtype}: rms error {end_to_end(model, arguments, output):.1e}, {experts}")
        print(comparison.verdict)
        assert not [bug for bug in comparison.bugs if bug.name not in experts], f"{comparison}"
        assert all(error <= LARGEST_RMS_OF_EXPERTS[dtype] for error in experts.values()), experts


def end_to_end(model: torch.nn.Module, arguments: Sequence[Any], found: torch.Tensor) -> float:
    """The rms error of a result, flips and all that follows from them, as a share of the result's."""
    with torch.no_grad():
        expected = model(*arguments).double()
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, tmp_path: Path) -> None:
    check(name, 2, torch.float32, False, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", LARGEST_RMS_OF_EXPERTS)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, tmp_path: Path) -> None:
    if is_dynamic and ZOO[name].dynamic is None:
        pytest.skip("its sizes are fixed")
    check(name, layers, dtype, is_dynamic, tmp_path)
