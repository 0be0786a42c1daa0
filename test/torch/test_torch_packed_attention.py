"""Attention whose result is quantised and packed where its parts are combined: equal to doing so apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import mxcomp
import mxcomp.torch


class Output(torch.nn.Module):
    """Attention of one query of each of so many heads, and the linear layer behind it; also what that reads."""

    def __init__(self, size: int, is_read: bool) -> None:
        super().__init__()
        self.o_proj, self.is_read = torch.nn.Linear(size, 64, bias=False, dtype=torch.bfloat16), is_read

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
        found = found.transpose(1, 2).flatten(2)
        return self.o_proj(found), *[found] * self.is_read


def compiled(
    group: int = 4, size: int = 128, batch: int = 16, is_read: bool = False
) -> tuple[mxcomp.Program, list[np.ndarray]]:
    """Returns the program of eight heads of 70 keys in each sequence, and operands."""
    torch.manual_seed(0)
    model = Output(8 * group * size, is_read)
    mxcomp.torch.replace_linears(model, "f4E2M1FN", "f4E2M1FN")
    shapes = (batch, 8 * group, 1, size), *[(batch, 8, 70, size)] * 2
    given = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    program = mxcomp.torch.compile(model, tuple(given), strict=True)
    return program, [each.float().numpy().astype(ml_dtypes.bfloat16) for each in given]


def test_dispatches() -> None:
    program, _ = compiled()
    assert len(program.report.launches) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("group", "size"), [(4, 128), (8, 64), (8, 128)])
def test_packed(monkeypatch: pytest.MonkeyPatch, group: int, size: int) -> None:
    program, given = compiled(group, size)
    assert len(program.report.launches) == 2
    (found,) = program.run(*given)
    monkeypatch.setattr("mxcomp.ukernels.attention_decode.Decode.may_pack", False)
    apart, _ = compiled(group, size)
    assert len(apart.report.launches) == 3
    (expected,) = apart.run(*given)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.slow
@pytest.mark.parametrize("left", [{"is_read": True}, {"group": 3}, {"batch": 24}], ids=str)
def test_apart(left: dict[str, int]) -> None:
    """Where something else reads the result, a head is no whole K tile, or rows are more than a unit."""
    program, _ = compiled(**left)
    assert len(program.report.launches) == 3
