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


class Marked(torch.nn.Module):
    """The best one of each row, as DeepSeek's router marks groups, and two columns of fewer rows."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best = torch.zeros_like(x).scatter_(1, torch.topk(x, 1, sorted=False)[1], 1)
        return best, x.scatter(0, torch.tensor([[0, 1, 1], [2, 1, 0]]), -9.0)


def test_marks() -> None:
    """Any number of rows; the second's indices are of fewer columns, and stay a scatter."""
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    program = mxcomp.torch.compile(Marked(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=3, max=16)},))
    for rows in (7, 3):
        for found, expected in zip(program.run(x[:rows].numpy()), Marked()(x[:rows]), strict=True):
            assert (found == expected.numpy()).all()


NORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer": lambda x: torch.nn.functional.layer_norm(x, (40,), torch.ones_like(x[0]), x[0]),
    "group": lambda x: torch.nn.functional.group_norm(x[..., None], 4, torch.ones_like(x[0]), x[0])[..., 0],
}


class Normed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [norm(x.bfloat16()).float() for norm in NORMS.values()]


def test_norms_of_bf16() -> None:
    """They are computed in f32, and rounded once."""
    x = torch.randn(8, 40, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    results = mxcomp.torch.compile(Normed(), (x,)).run(x.numpy())
    for found, norm in zip(results, NORMS.values(), strict=True):
        expected = norm(x.double()).numpy()
        assert (np.abs(found - expected) <= 1.01 * 2.0**-8 * np.abs(expected) + 1e-5).all()


class Stable(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ascending, descending = torch.sort(x, stable=True), torch.sort(x, stable=True, descending=True)
        return *ascending, *descending, torch.argsort(y, stable=True, dim=0), torch.argsort(y, stable=True)


def test_stable_sort() -> None:
    """Of numbers that are equal to many others, which keep their order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 4, (3, 40), generator=generator)
    y = torch.randint(0, 3, (37, 5), generator=generator).float()
    found = mxcomp.torch.compile(Stable(), (x, y)).run(x.numpy(), y.numpy())
    for one, other in zip(found, Stable()(x, y), strict=True):
        np.testing.assert_array_equal(one, other)
