"""Rotary embeddings that are computed, and quantised, where rows are written to caches: PyTorch's bits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import mxcomp.torch
from mxcomp.torch.values import array


class Step(torch.nn.Module):
    """Queries, keys and values of one token, as Llama's layers have them: rotated, and written to caches.

    With a format, caches are those of elements and of scales, of keys and then of values.
    """

    def __init__(self, heads: int, groups: int, size: int, format: str = "") -> None:
        super().__init__()
        self.format = format
        self.parts, self.size = (heads * size, groups * size, groups * size), size
        self.register_buffer("frequencies", 10000 ** (-torch.arange(0, size, 2) / size))

    def forward(self, qkv: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor) -> tuple[torch.Tensor, ...]:
        angles = position[:, None].float() * self.frequencies
        cos, sin = (function(torch.cat([angles, angles], -1)).to(qkv.dtype) for function in (torch.cos, torch.sin))
        q, k, v = (
            each.view(*qkv.shape[:2], -1, self.size).transpose(1, 2) for each in torch.split(qkv, self.parts, -1)
        )

        def rotated(x: torch.Tensor) -> torch.Tensor:
            first, second = x[..., : self.size // 2], x[..., self.size // 2 :]
            return x * cos + torch.cat([-second, first], -1) * sin

        new = self.stored(rotated(k), v)
        return rotated(q), *(old.index_copy(2, position, rows) for old, rows in zip(caches, new, strict=True))

    def stored(self, *rows: torch.Tensor) -> list[torch.Tensor]:
        return [part for x in rows for part in mxcomp.torch.quantise(x, self.format)] if self.format else [*rows]


@pytest.mark.parametrize(
    "batch, heads, groups, size, position, format",
    [
        (1, 4, 2, 64, 5, "E4M3"),
        pytest.param(1, 4, 2, 64, 5, "", marks=pytest.mark.slow),
        pytest.param(3, 8, 8, 128, 31, "", marks=pytest.mark.slow),
        pytest.param(2, 64, 4, 80, 0, "", marks=pytest.mark.slow),
        pytest.param(3, 32, 8, 128, 31, "E2M1", marks=pytest.mark.slow),
        pytest.param(2, 8, 8, 96, 0, "E5M2", marks=pytest.mark.slow),
    ],
)
def test_bits_of_pytorch(batch: int, heads: int, groups: int, size: int, position: int, format: str) -> None:
    torch.manual_seed(batch)
    step, length = Step(heads, groups, size, format), 32
    qkv = torch.randn(batch, 1, (heads + 2 * groups) * size, dtype=torch.bfloat16)
    caches = step.stored(*(torch.randn(batch, groups, length, size, dtype=torch.bfloat16) for _ in range(2)))
    given = qkv, torch.tensor([position]), *caches
    program = mxcomp.torch.compile(step, given)
    assert [launch.part for launch in program.report.launches] == ["rows"]
    found = program.run(*(array(each) for each in given))
    for value, expected in zip(found, step(*given), strict=True):
        assert (value.astype("float32") == expected.float().numpy()).all()


class Attending(Step):
    """Attention of queries to what is in the caches.

    `returns_queries`: these are a result as well, for which a dispatch stores them.
    """

    def __init__(self, case: Case, returns_queries: bool = False) -> None:
        super().__init__(case.heads, case.groups, case.size, case.format)
        self.case, self.returns_queries = case, returns_queries
        if case.is_packed:
            self.o_proj = torch.nn.Linear(case.heads * case.size, 64, bias=False, dtype=case.dtype)

    def forward(self, qkv: torch.Tensor, position: torch.Tensor, *caches: torch.Tensor) -> tuple[torch.Tensor, ...]:
        queries, *stored = super().forward(qkv, position, *caches)
        behind = position[:, None] - torch.arange(self.case.length)
        seen = (behind >= 0) & (behind < (self.case.window or self.case.length))
        made = torch.nn.functional.scaled_dot_product_attention(
            queries, *self.read(stored), attn_mask=seen[None, None], enable_gqa=True
        )
        if self.case.is_packed:
            made = self.o_proj(made.transpose(1, 2).flatten(2))
        return (made, *stored, *[queries] * self.returns_queries)

    def read(self, stored: list[torch.Tensor]) -> list[torch.Tensor]:
        if not self.format:
            return stored
        pairs = zip(stored[::2], stored[1::2], strict=True)
        return [mxcomp.torch.dequantise(one, scales, self.format, self.case.dtype) for one, scales in pairs]


@dataclass(frozen=True)
class Case:
    """Sequences, heads of queries and of keys, their size, slots of a cache, how many of them a query sees, whether a
    product in MXFP4 is behind, and the format of caches."""

    batch: int
    heads: int
    groups: int
    size: int
    length: int
    position: int
    window: int = 0
    dtype: torch.dtype = torch.bfloat16
    is_packed: bool = False
    format: str = ""

    def check(self) -> None:
        """Compares the bits of attention that computes queries and rows with those of two dispatches."""
        torch.manual_seed(self.length)
        qkv = torch.randn(self.batch, 1, (self.heads + 2 * self.groups) * self.size, dtype=self.dtype)
        first = (torch.randn(self.batch, self.groups, self.length, self.size, dtype=self.dtype) for _ in range(2))
        given = qkv, torch.tensor([self.position]), *Attending(self).stored(*first)
        found = []
        for returns_queries in (False, True):
            torch.manual_seed(0)
            model = Attending(self, returns_queries)
            mxcomp.torch.replace_linears(model, "f4E2M1FN", "f4E2M1FN")
            program = mxcomp.torch.compile(model, given, strict=True)
            found.append(program.run(*(array(each) for each in given)))
            parts = [launch.part for launch in program.report.launches]
            assert parts[: 1 + returns_queries] == ["rows"] * returns_queries + ["attention"]
        for one, other in zip(*found, strict=False):
            assert one.tobytes() == other.tobytes()
        for cache, expected in zip(found[0][1:], model(*given)[1:-1], strict=True):
            assert (cache.astype("float32") == expected.float().numpy()).all()


@pytest.mark.parametrize(
    "case",
    [
        Case(1, 4, 2, 64, 64, 37, format="E2M1"),
        pytest.param(Case(1, 4, 2, 64, 64, 37), marks=pytest.mark.slow, id="16 bits"),
        pytest.param(Case(1, 8, 2, 128, 544, 543), marks=pytest.mark.slow, id="parts"),
        pytest.param(Case(3, 4, 2, 96, 96, 0), marks=pytest.mark.slow, id="sequences"),
        pytest.param(Case(2, 16, 2, 80, 128, 100, 48, torch.float16), marks=pytest.mark.slow, id="window"),
        pytest.param(Case(2, 3, 3, 160, 61, 60), marks=pytest.mark.slow, id="long rows"),
        pytest.param(Case(16, 32, 8, 128, 70, 37, is_packed=True), marks=pytest.mark.slow, id="packed"),
        pytest.param(Case(1, 8, 2, 128, 544, 543, format="E4M3"), marks=pytest.mark.slow, id="E4M3 in parts"),
        pytest.param(Case(3, 4, 2, 96, 96, 0, format="E5M2"), marks=pytest.mark.slow, id="E5M2 of sequences"),
        pytest.param(
            Case(16, 32, 8, 128, 70, 37, is_packed=True, format="E2M1"), marks=pytest.mark.slow, id="E2M1 packed"
        ),
    ],
)
def test_attention_computes_them(case: Case) -> None:
    case.check()


def test_tables_of_many_rows() -> None:
    """Cosines and sines of many rows are one dispatch, as the model rounds them."""
    torch.manual_seed(0)
    step, rows = Step(32, 1, 64), 40
    caches = [torch.randn(1, 1, rows, 64, dtype=torch.bfloat16) for _ in range(2)]
    given = torch.randn(1, rows, 34 * 64, dtype=torch.bfloat16), torch.arange(rows), *caches
    program = mxcomp.torch.compile(step, given)
    found = program.run(*(array(each) for each in given))
    for value, expected in zip(found, step(*given), strict=True):
        assert (value.astype("float32") == expected.float().numpy()).all()
    text = mxcomp.torch.compile(step, given, compile_to="flow").vmfb.decode()
    assert text.count("math.cos") == text.count("math.sin") == 1
    assert "(tensor<40x64xbf16>, tensor<40x64xbf16>)" in text
