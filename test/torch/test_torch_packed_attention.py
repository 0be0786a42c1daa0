"""Attention that quantises and packs its result: equal to doing so apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import mxcomp
import mxcomp.torch


class Output(torch.nn.Module):
    """Attention of so many heads, and the linear layer behind it; also what that reads."""

    def __init__(self, size: int, is_read: bool, is_causal: bool) -> None:
        super().__init__()
        self.o_proj, self.is_read = torch.nn.Linear(size, 64, bias=False, dtype=torch.bfloat16), is_read
        self.is_causal = is_causal

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=self.is_causal, enable_gqa=True
        )
        found = found.transpose(1, 2).flatten(2)
        return self.o_proj(found), *[found] * self.is_read


def compiled(
    group: int = 4, size: int = 128, batch: int = 16, is_read: bool = False, heads: int = 8, queries: int = 1,
    **options: str,
) -> tuple[mxcomp.Program, list[np.ndarray]]:  # fmt: skip
    """Returns the program of so many heads of 70 keys in each sequence, or as many as queries, and operands."""
    torch.manual_seed(0)
    model = Output(heads * group * size, is_read, queries > 1)
    mxcomp.torch.replace_linears(model, "f4E2M1FN", "f4E2M1FN")
    keys = queries if queries > 1 else 70
    shapes = (batch, heads * group, queries, size), *[(batch, heads, keys, size)] * 2
    given = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    program = mxcomp.torch.compile(model, tuple(given), strict=True, **options)
    return program, [each.float().numpy().astype(ml_dtypes.bfloat16) for each in given]


MANY = {"heads": 2, "group": 2, "batch": 1}
"""Heads of many queries."""


@pytest.mark.parametrize("case", [{}, MANY | {"queries": 64}], ids=["one query", "many"])
def test_dispatches(case: Mapping[str, int]) -> None:
    program, _ = compiled(**case)
    assert len(program.report.launches) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"group": 8, "size": 64},
        {"group": 8},
        MANY | {"queries": 70},
        MANY | {"queries": 80, "size": 64, "group": 4, "batch": 2},
        MANY | {"queries": 40, "size": 256, "group": 1},
    ],
    ids=str,
)
def test_packed(monkeypatch: pytest.MonkeyPatch, case: Mapping[str, int]) -> None:
    check(monkeypatch, **case)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [300, 500])
def test_other_tiles(monkeypatch: pytest.MonkeyPatch, queries: int) -> None:
    """Results are right where tiles of attention (256 queries) and of the product (320 rows) end at different rows."""
    monkeypatch.setattr("mxcomp.matching.attention._FEW", 1)
    check(monkeypatch, **MANY, queries=queries, ukernels="mx_f4E2M1FN_f4E2M1FN_f32_m320_n256_k512_intrawave")


def check(monkeypatch: pytest.MonkeyPatch, **case: Any) -> None:
    """Checks that results are those of a program that quantises apart."""
    program, given = compiled(**case)
    assert len(program.report.launches) == 2
    (found,) = program.run(*given)
    for kernel in ("attention_decode.Decode", "attention_prefill.Prefill"):
        monkeypatch.setattr(f"mxcomp.ukernels.{kernel}.may_pack", False)
    apart, _ = compiled(**case)
    assert len(apart.report.launches) == 3
    (expected,) = apart.run(*given)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


@pytest.mark.slow
@pytest.mark.parametrize(
    "left",
    [
        {"is_read": True},
        {"group": 3},
        {"batch": 24},
        MANY | {"queries": 64, "is_read": True},
        MANY | {"queries": 64, "group": 3},
        MANY | {"queries": 70, "batch": 2},
    ],
    ids=str,
)
def test_apart(left: Mapping[str, int]) -> None:
    """Where something else reads the result, heads are no whole K tiles, or rows are more than a unit; or rows of a
    batch fill no units."""
    program, _ = compiled(**left)
    assert len(program.report.launches) > 2
