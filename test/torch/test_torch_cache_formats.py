"""Caches in narrow formats: written in place as they are converted, and read by attention without a converted copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.profiling.launches import Launch

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
    spelled: bool = False
    """Attention is two products and a softmax."""
    page: int = 0
    """Keys in each page of a cache that sequences find by a table; 0: a sequence has its own part."""
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
            elements, scales = (self.paged(each) for each in self.stored(name, first))
            self.register_buffer(name, elements, persistent=False)
            if self.is_mx(name):
                self.register_buffer(f"{name}_scales", scales, persistent=False)

    def is_mx(self, name: str) -> bool:
        return self.case.mx and (name == "keys" or not self.case.plain_values)

    def stored(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.is_mx(name):
            return mxcomp.torch.quantise(x, self.case.format)
        return x.to(FLOATS[self.case.plain_values or self.case.format]), x

    def paged(self, x: torch.Tensor) -> torch.Tensor:
        """Keys of all heads side by side, in one page more than there are."""
        if not self.case.page:
            return x
        pages = x.transpose(1, 2).reshape(-1, self.case.page, x.shape[1], x.shape[3])
        return torch.cat([pages[:1], pages])

    def cached(self, name: str, new: torch.Tensor, at: torch.Tensor, table: torch.Tensor) -> None:
        elements, scales = self.stored(name, new)
        self.put(self.get_buffer(name), elements, at, table)
        if self.is_mx(name):
            self.put(self.get_buffer(f"{name}_scales"), scales, at, table)

    def put(self, cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor, table: torch.Tensor) -> None:
        cache, new, page = cache.view(torch.uint8), new.view(torch.uint8), self.case.page
        if not page:
            cache.index_copy_(2, at, new)
        else:
            slots = table[:, at // page] * page + at % page
            rows = new.transpose(1, 2).reshape(-1, new.shape[1], new.shape[3])
            cache.view(-1, *cache.shape[2:]).index_copy_(0, slots.reshape(-1), rows)

    def whole(self, cache: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        if not self.case.page:
            return cache
        return cache[table].reshape(self.case.batch, -1, *cache.shape[2:]).transpose(1, 2)

    def read(self, name: str, scale: float, table: torch.Tensor) -> torch.Tensor:
        case, cache = self.case, self.whole(self.get_buffer(name), table)
        if self.is_mx(name):
            scales = self.whole(self.get_buffer(f"{name}_scales"), table)
            return mxcomp.torch.dequantise(cache, scales, case.format, case.dtype)
        return cache.to(case.dtype) if scale == 1.0 else cache.to(case.dtype) * scale

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor, table: torch.Tensor
    ) -> torch.Tensor:
        at = position + torch.arange(k.shape[2])
        self.cached("keys", k, at, table)
        self.cached("values", v, at, table)
        return self.attention(q, at, table, q.dtype)

    def attention(self, q: torch.Tensor, at: torch.Tensor, table: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        keys, values = (
            self.read(name, scale, table).to(dtype)
            for name, scale in (("keys", self.case.scale), ("values", self.case.scale / 2))
        )
        mask = torch.arange(self.case.length) <= at[:, None]
        if self.case.spelled:
            keys, values = (each.repeat_interleave(self.case.group, 1) for each in (keys, values))
            added = torch.where(mask, 0.0, -3e38).to(dtype)
            return (q.to(dtype) @ keys.transpose(2, 3) * 0.125 + added).softmax(-1) @ values
        return torch.nn.functional.scaled_dot_product_attention(
            q.to(dtype), keys, values, attn_mask=mask, enable_gqa=True
        )


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
    )


def check(case: Case) -> list[Launch]:
    """Returns the launches of a program that is called twice."""
    generator = torch.Generator().manual_seed(case.size)

    def numbers(heads: int, rows: int) -> torch.Tensor:
        return torch.randn(case.batch, heads, rows, case.size, generator=generator).to(case.dtype)

    model, heads, rows = Formatted(case, generator), case.key_heads * case.group, case.queries
    count = case.length // case.page if case.page else 1
    table = torch.randperm(case.batch * count, generator=generator).reshape(case.batch, count) + 1
    if count > 2:
        table[0, 1] -= case.batch * count + 1  # from the end
    calls = [
        (
            numbers(heads, rows),
            2 * numbers(case.key_heads, rows),
            numbers(case.key_heads, rows),
            torch.tensor([at]),
            table,
        )
        for at in (3, case.length - rows)
    ]
    calls[0][1][..., 0] = 3000.0  # above the largest E4M3
    program = mxcomp.torch.compile(model, calls[0])
    (attention,) = program.report.attentions
    assert attention.ukernel is not None, attention.reason
    assert (attention.note == "") == (case.queries <= 32 and case.page % 16 == 0)
    with program.session() as session:
        for call in calls:
            (found,) = session.main(*map(as_numpy, call))
            model(*call)
            exact = model.attention(call[0], call[3] + torch.arange(rows), table, torch.float64).numpy()
            largest = model.read("values", case.scale / 2, table).abs().max().item()
            np.testing.assert_allclose(found.astype(np.float64), exact, atol=2**-7 * largest, rtol=0)
    return list(program.report.launches)


def test_two_formats() -> None:
    """Keys have scales of blocks, and are quantised where they are written, values a scale for all; nothing is
    gathered of the pages of both."""
    launches = check(Case("E2M1", mx=True, page=16, plain_values="E4M3", scale=0.375))
    assert [each.part for each in launches if each.part] == ["rows", "rows", "attention"]
    assert len(launches) == 6  # places of rows, and their check; values in E4M3


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
@pytest.mark.parametrize("queries", [1, 40])
def test_spelled(queries: int) -> None:
    """The product with dequantised keys is one of attention, not a matmul with weights."""
    assert "attention" in [each.part for each in check(Case("E2M1", mx=True, queries=queries, spelled=True))]


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
    assume(case.queries * case.key_heads * case.group > 1)  # a single query is left to IREE
    page = data.draw(st.sampled_from([0, 8, 16, 32, 48]))  # the kernel is for multiples of 16
    check(replace(case, page=page, length=page * data.draw(st.integers(2, 5)) or case.length))


class Blocks(torch.nn.Module):
    """A tensor as elements and scales, and what these stand for."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        elements, scales = mxcomp.torch.quantise(x, "E2M1")
        return elements, scales, mxcomp.torch.dequantise(elements, scales, "E2M1", torch.float32)


def test_dynamic_sizes() -> None:
    """All but the last may be open."""
    open_sizes = {"x": {0: torch.export.Dim("batch"), 2: torch.export.Dim("rows")}}
    program = mxcomp.torch.compile(Blocks(), (torch.randn(2, 3, 5, 64),), dynamic_shapes=open_sizes, strict=True)
    for shape in ((2, 3, 5, 64), (1, 3, 17, 64)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        for found, expected in zip(program.run(x.numpy()), Blocks()(x), strict=True):
            np.testing.assert_array_equal(found.reshape(expected.shape).view(expected.numpy().dtype), expected.numpy())


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
