"""Models of many families compiled as they come, their layers in MX: against the same models in PyTorch.

Layers are E4M3: a rounding that flips is 6 % of one activation, and an operator that is wrong much more of all of them.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from zoo import ZOO, build

import mxcomp.torch

LARGEST_RMS = {torch.float32: 0.03, torch.bfloat16: 0.08}
SAMPLE = ("dit",)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def check(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, folder: Path) -> None:
    entry = ZOO[name]
    model = build(name, layers, dtype)
    mxcomp.torch.replace_linears(model, "E4M3", "E4M3")
    first = tuple(each.to(dtype) if each.is_floating_point() else each for each in entry.arguments)
    runs = [first]
    if is_dynamic:
        assert entry.dynamic is not None
        changing = [bool(sizes) for sizes in entry.dynamic]
        runs += [
            tuple(each[:, :count] if cut else each for each, cut in zip(first, changing, strict=True)) for count in (3,)
        ]
    shapes = (entry.dynamic,) if is_dynamic else None
    program = mxcomp.torch.compile(model, first, dynamic_shapes=shapes, parameters=folder / "model")
    for arguments in runs:
        (found,) = program.run(*map(as_numpy, arguments), parameters={"model": folder / "model.irpa"})
        with torch.no_grad():
            expected = model(*arguments).float().numpy()
        assert found.shape == expected.shape
        error = np.sqrt(np.square(found.astype(np.float64) - expected).mean() / np.square(expected).mean())
        print(f"{name} {layers} layers {dtype} {'dynamic' if is_dynamic else 'static'} rms error {error:.1e}")
        assert error <= LARGEST_RMS[dtype]


@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str, tmp_path: Path) -> None:
    check(name, 2, torch.float32, False, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", LARGEST_RMS)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("name", ZOO)
def test_zoo(name: str, layers: int, dtype: torch.dtype, is_dynamic: bool, tmp_path: Path) -> None:
    if is_dynamic and ZOO[name].dynamic is None:
        pytest.skip("its sizes are fixed")
    check(name, layers, dtype, is_dynamic, tmp_path)
