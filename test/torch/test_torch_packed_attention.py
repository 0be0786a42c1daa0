"""Attention that quantises and packs its result: equal to doing so apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import mxcomp
import mxcomp.torch


class Output(torch.nn.Module):
    """Attention of so many heads, and the linear layer behind it; also what that reads."""

    def __init__(self, size: int, columns: int, is_read: bool, is_causal: bool) -> None:
        super().__init__()
        self.o_proj, self.is_read = torch.nn.Linear(size, columns, bias=False, dtype=torch.bfloat16), is_read
        self.is_causal = is_causal

    def forward(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=self.is_causal, enable_gqa=True
        )
        found = found.transpose(1, 2).flatten(2)
        return self.o_proj(found), *[found] * self.is_read


def compiled(
    group: int = 4, size: int = 128, batch: int = 16, is_read: bool = False, heads: int = 8, queries: int = 1,
    columns: int = 64, dynamic: bool = False, **options: str,
) -> tuple[mxcomp.Program, list[np.ndarray]]:  # fmt: skip
    """Returns the program of so many heads of 70 keys in each sequence, or as many as queries, and operands."""
    torch.manual_seed(0)
    model = Output(heads * group * size, columns, is_read, queries > 1)
    mxcomp.torch.replace_linears(model, "f4E2M1FN", "f4E2M1FN")
    keys = queries if queries > 1 else 70
    shapes = (batch, heads * group, queries, size), *[(batch, heads, keys, size)] * 2
    given = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
    sizes = ({2: torch.export.Dim("queries", max=4096)},) * 3 if dynamic else None
    program = mxcomp.torch.compile(model, tuple(given), dynamic_shapes=sizes, strict=True, **options)
    return program, [each.float().numpy().astype(ml_dtypes.bfloat16) for each in given]


MANY = {"heads": 2, "group": 2, "batch": 1}
"""Heads of many queries."""


@pytest.mark.parametrize("case", [{}, MANY | {"queries": 64}], ids=["one query", "many"])
def test_dispatches(case: Mapping[str, int]) -> None:
    program, _ = compiled(**case, compile_to="executable-configurations")
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
@pytest.mark.parametrize("few", [32, 1 / 256])
def test_dynamic(monkeypatch: pytest.MonkeyPatch, few: float) -> None:
    """Tiles of attention have 64 queries, or 256, those of the product what so many rows have."""
    monkeypatch.setattr("mxcomp.matching.attention._FEW", few)
    check(monkeypatch, (5, 70, 300), **MANY, queries=40, columns=2048, dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [300, 500])
def test_other_tiles(monkeypatch: pytest.MonkeyPatch, queries: int) -> None:
    """Results are right where tiles of attention (256 queries) and of the product (320 rows) end at different rows."""
    monkeypatch.setattr("mxcomp.matching.attention._FEW", 1 / 256)
    check(monkeypatch, **MANY, queries=queries, ukernels="mx_f4E2M1FN_f4E2M1FN_f32_m320_n256_k512_intrawave")


def check(monkeypatch: pytest.MonkeyPatch, others: Sequence[int] = (), **case: Any) -> None:
    """Checks that results are those of a program that quantises apart, also of other numbers of queries."""
    program, given = compiled(**case)
    rng = np.random.default_rng(0)
    shapes = ([(*each.shape[:2], count, each.shape[3]) for each in given] for count in others)
    runs = [given, *([rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in each] for each in shapes)]
    assert _launched(program, given) == 2
    found = [program.run(*each)[0] for each in runs]
    for kernel in ("attention_decode.Decode", "attention_prefill.Prefill"):
        monkeypatch.setattr(f"mxcomp.ukernels.{kernel}.may_pack", False)
    apart, _ = compiled(**case)
    assert _launched(apart, given) == 3
    for one, each in zip(found, runs, strict=True):
        np.testing.assert_array_equal(one.view(np.uint16), apart.run(*each)[0].view(np.uint16))


def _launched(program: mxcomp.Program, given: Sequence[np.ndarray]) -> int:
    return len(program.profile(*given, execute=False).called)


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
    """Where something else reads the result, heads are no whole K tiles, or rows are more than an inner tile; or
    rows of a batch fill none."""
    program, _ = compiled(**left)
    assert len(program.report.launches) > 2
