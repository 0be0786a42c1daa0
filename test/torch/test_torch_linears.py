"""bf16 linear layers of PyTorch of a single row, with norms in front of them, on the simulator with all checks."""

from __future__ import annotations

import torch
from torch import nn

import mxcomp.torch
from mxcomp.torch.values import as_array

SIZE = 320


class Norm(nn.Module):
    """RMSNorm as transformers writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(x.dtype)


class Layer(nn.Module):
    """Two products of a norm's row, and one of another norm's, whose row something else reads as well.

    Ten of twelve workgroups store that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.keys, self.values = Norm(), nn.Linear(SIZE, 128), nn.Linear(SIZE, 64)
        self.after, self.router = Norm(), nn.Linear(SIZE, 48)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        row, other = self.norm(x), self.after(x * 2)
        return self.keys(row), self.values(row), self.router(other), other * 4


def test_norms_are_part_of_products() -> None:
    torch.manual_seed(0)
    layer = Layer().bfloat16().eval()
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape).mul(0.5).bfloat16()
    x = (torch.randn(1, 1, SIZE) * torch.exp2(torch.randint(-2, 3, (1, 1, SIZE)))).bfloat16()
    program = mxcomp.torch.compile(torch.export.export(layer, (x,)))
    assert program.report.fallback is None
    with torch.no_grad():
        expected = layer(x)
    for found, value in zip(program.run(as_array(x)), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(found.astype("float32")), value.float(), rtol=2**-7, atol=2**-7)
    owners = [each.owner for each in program.profile(as_array(x)).dispatches]
    assert [owner.split()[0] for owner in owners if owner] == ["linear", "linear"]
