"""Models that dequantise MX weights in operators of PyTorch: right, and the report says why they are no MX weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mxcomp.torch

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Table(torch.nn.Module):
    """As transformers does it for GPT-OSS: two codes in a byte, looked up by 32-bit indices, times 2^(scale − 127)."""

    def __init__(self, is_stacked: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.is_stacked = is_stacked
        self.register_buffer("table", torch.tensor([*VALUES, *(-value for value in VALUES)]))
        self.register_buffer("blocks", torch.randint(0, 256, (64, 4, 16), dtype=torch.uint8, generator=generator))
        self.register_buffer("scales", torch.randint(120, 134, (64, 4), dtype=torch.uint8, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = (self.table[codes.to(torch.int)] for codes in (self.blocks & 0x0F, self.blocks >> 4))
        if self.is_stacked:
            values = torch.stack((low, high), -1).reshape(64, 4, 32)
        else:
            values = torch.empty(64, 4, 32)
            values[..., 0::2], values[..., 1::2] = low, high
        values = torch.ldexp(values, (self.scales.to(torch.int32) - 127)[..., None])
        return torch.nn.functional.linear(x, values.reshape(64, 128))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_table(is_stacked: bool) -> None:
    model, x = Table(is_stacked), torch.randn(8, 128, generator=torch.Generator().manual_seed(6))
    program = mxcomp.torch.compile(model, (x,))
    (found,) = program.run(x.numpy())
    expected = model(x).numpy()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    (matmul,) = program.report.matmuls
    assert matmul.reason is not None and "made of stored bytes by" in matmul.reason
    assert matmul.location.split(":")[0] == __file__
