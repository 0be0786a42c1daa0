"""Caches in narrow formats: written in place as they are converted, and read by attention without a converted copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxcomp.torch
from mxcomp.errors import InputError

FLOATS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}


@dataclass(frozen=True)
class Case:
    format: str
    mx: bool = False
    queries: int = 1
    size: int = 64
    batch: int = 2
    key_heads: int = 2
    group: int = 2
    length: int = 64
    dtype: torch.dtype = torch.bfloat16
    plain_values: str = ""
    """The format of values without scales of blocks, if that is not that of keys."""
    scale: float = 1.0
    """What keys are multiplied by, and values by half of it, where there are no scales of blocks."""


class Formatted(torch.nn.Module):
    """Attention of new rows and those before in a cache."""

    def __init__(self, case: Case, generator: torch.Generator) -> None:
        super().__init__()
        self.case = case
        for name in ("keys", "values"):
            first = torch.randn(case.batch, case.key_heads, case.length, case.size, generator=generator)
            first = first * torch.randn(case.batch, case.key_heads, case.length, 1, generator=generator).exp2()
            elements, scales = self.stored(name, first)
            self.register_buffer(name, elements, persistent=False)
            if self.is_mx(name):
                self.register_buffer(f"{name}_scales", scales, persistent=False)

    def is_mx(self, name: str) -> bool:
        return self.case.mx and (name == "keys" or not self.case.plain_values)

    def stored(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.is_mx(name):
            return mxcomp.torch.quantise(x, self.case.format)
        return x.to(FLOATS[self.case.plain_values or self.case.format]), x

    def cached(self, name: str, new: torch.Tensor, at: torch.Tensor) -> None:
        elements, scales = self.stored(name, new)
        self.get_buffer(name).view(torch.uint8).index_copy_(2, at, elements.view(torch.uint8))
        if self.is_mx(name):
            self.get_buffer(f"{name}_scales").index_copy_(2, at, scales)

    def read(self, name: str, scale: float) -> torch.Tensor:
        case, cache = self.case, self.get_buffer(name)
        if self.is_mx(name):
            return mxcomp.torch.dequantise(cache, self.get_buffer(f"{name}_scales"), case.format, case.dtype)
        return cache.to(case.dtype) if scale == 1.0 else cache.to(case.dtype) * scale

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        at = position + torch.arange(k.shape[2])
        self.cached("keys", k, at)
        self.cached("values", v, at)
        keys, values = self.read("keys", self.case.scale), self.read("values", self.case.scale / 2)
        mask = torch.arange(self.case.length) <= at[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)

    def exact(self, q: torch.Tensor, position: int) -> torch.Tensor:
        """The same in float64, from the cache as it is by now."""
        keys, values = (
            self.read(*each).double() for each in (("keys", self.case.scale), ("values", self.case.scale / 2))
        )
        mask = torch.arange(self.case.length) <= position + torch.arange(q.shape[2])[:, None]
        return torch.nn.functional.scaled_dot_product_attention(
            q.double(), keys, values, attn_mask=mask, enable_gqa=True
        )


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
    )


def check(case: Case) -> list[str]:
    """Returns the kernels' parts of a program that is called three times."""
    generator = torch.Generator().manual_seed(case.size)

    def numbers(heads: int, rows: int) -> torch.Tensor:
        return torch.randn(case.batch, heads, rows, case.size, generator=generator).to(case.dtype)

    model, heads, rows = Formatted(case, generator), case.key_heads * case.group, case.queries
    calls = [
        (numbers(heads, rows), 2 * numbers(case.key_heads, rows), numbers(case.key_heads, rows), torch.tensor([at]))
        for at in (3, case.length - rows)
    ]
    calls[0][1][..., 0] = 3000.0  # above the largest E4M3
    program = mxcomp.torch.compile(model, calls[0])
    (attention,) = program.report.attentions
    assert attention.ukernel is not None, attention.reason
    with program.session() as session:
        for call in calls:
            (found,) = session.main(*map(as_numpy, call))
            model(*call)
            exact = model.exact(call[0], int(call[3])).numpy()
            largest = model.read("values", case.scale / 2).abs().max().item()
            np.testing.assert_allclose(found.astype(np.float64), exact, atol=2**-7 * largest, rtol=0)
    return [each.part for each in program.report.launches if each.part]


def test_two_formats() -> None:
    """Keys have scales of blocks, values a scale for all."""
    parts = check(Case("E2M1", mx=True, batch=1, group=1, plain_values="E4M3", scale=0.375))
    assert parts.count("attention") == 1 and parts.count("rows") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("format", ["E4M3", "E5M2", "E2M1"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("queries", "size"), [(1, 128), (3, 96), (1, 256), (40, 64)])
def test_formats(format: str, dtype: torch.dtype, queries: int, size: int) -> None:
    """Many queries read what is converted in memory."""
    if dtype == torch.bfloat16 or queries < 40:
        check(Case(format, True, queries, size, dtype=dtype))
    if format in FLOATS:
        check(Case(format, False, queries, size, dtype=dtype))


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    mx = data.draw(st.booleans())
    case = Case(
        data.draw(st.sampled_from([*FLOATS, "E2M1"] if mx else [*FLOATS])), mx, data.draw(st.integers(1, 5)),
        data.draw(st.sampled_from([64, 96, 128, 192] if mx else [16, 48, 64, 80, 128])), data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)), data.draw(st.integers(20, 100)),
    )  # fmt: skip
    check(case)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mxcomp.torch.quantise(torch.ones(4, 48)), r"quantise torch.float32 \[4, 48\]: expected float32"),
        (
            lambda: mxcomp.torch.dequantise(torch.ones(4, 32, dtype=torch.uint8), torch.ones(4, 2, dtype=torch.uint8)),
            r"dequantise .*: expected uint8 \[..., K \* 8/8\]",
        ),
    ],
)
def test_what_is_no_block(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()
