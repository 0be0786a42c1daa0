"""Rotary embeddings that are computed, and quantised, where rows are written to caches: PyTorch's bits."""

from __future__ import annotations

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
        (1, 4, 2, 64, 5, ""),
        (1, 4, 2, 64, 5, "E4M3"),
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
