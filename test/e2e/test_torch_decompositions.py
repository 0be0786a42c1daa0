"""Operators that IREE does not take, or gets wrong, written by others: against PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import mxcomp.torch

CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "GELU by tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "GELU": torch.nn.functional.gelu,
    "roll": lambda x: torch.roll(x, (3, -5), (0, 1)),
    "roll of all": lambda x: torch.roll(x, 7),
    "histogram": lambda x: torch.histc(x[0], 6, -1, 1),
    "top-k in any order": lambda x: torch.topk(x, 4, sorted=False).values.sum(-1),
}


class Of(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CASES[self.name](x)


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    x = torch.linspace(-6, 6, 8 * 40)[torch.randperm(320, generator=torch.Generator().manual_seed(0))].reshape(8, 40)
    (found,) = mxcomp.torch.compile(Of(name), (x,)).run(x.numpy())
    expected = CASES[name](x.double()).numpy()
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(found, expected, atol=2e-6, rtol=1e-6)
