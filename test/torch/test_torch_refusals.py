"""Operators of PyTorch's that IREE cannot import are named with their module and line, and no others are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
import torch
from iree.compiler import ir
from torch.export import Dim

import mxcomp
import mxcomp.torch
from mxcomp.errors import CompileError
from mxcomp.mlir import refusals

ARGUMENTS = torch.ones(4, 8), torch.ones(1, 4)
SHAPES = {0: Dim("rows", max=16)}, None


class Reshaped(torch.nn.Module):
    """What takes lists, and sizes that change: all of it can be imported."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        return torch.cat([x.view(rows * 2, -1), y.expand(rows * 2, -1)], -1).reshape(rows, -1)[torch.arange(rows)]


class Bessel(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x) + torch.special.bessel_j0(2 * x)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reshaped, self.bessel = Reshaped(), Bessel()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.bessel(self.reshaped(x, y)), torch.nanmedian(x)


COMPILERS: dict[str, Callable[[ir.Module], object]] = {
    "torch": lambda _: mxcomp.torch.compile(Model(), ARGUMENTS, dynamic_shapes=SHAPES),
    "module": mxcomp.compile,
    "text": lambda module: mxcomp.compile(module.operation.get_asm(enable_debug_info=True)),
}


@pytest.fixture(scope="module")
def exported() -> ir.Module:
    return mxcomp.torch.export(Model(), ARGUMENTS, dynamic_shapes=SHAPES)


@pytest.mark.parametrize("way", COMPILERS)
def test_operators_are_named(way: str, exported: ir.Module) -> None:
    """Each kind once, however it gets here, with the first line that it is on."""
    with pytest.raises(CompileError) as caught:
        COMPILERS[way](exported)
    lines, begin = inspect.getsourcelines(Bessel)
    bessel = begin + next(i for i, line in enumerate(lines) if "bessel_j0" in line)
    message = caught.value.message
    assert re.findall(r"aten\.\w+", message) == ["aten.special_bessel_j0", "aten.nanmedian"], message
    assert re.search(rf'special_bessel_j0, loc\("bessel"\(.*{re.escape(__file__)}":{bessel}:', message), message


def test_what_can_be_imported_is_not_named() -> None:
    """A model whose compilation fails behind the import has no such operators."""
    assert refusals.refused(mxcomp.torch.export(Reshaped(), ARGUMENTS, dynamic_shapes=SHAPES)) == []
