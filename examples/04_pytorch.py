# REQUIRES: torch
# RUN: %python %s
"""A transformer block from PyTorch, its linear layers in MXFP4, as a gfx950 program that runs without the GPU.

Weights are quantised here, and become constants of the program; activations are quantised in it.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

import mxcomp
import mxcomp.torch

MODEL, HEADS, HIDDEN, TOKENS = 256, 2, 512, 32


class Block(torch.nn.Module):
    """Attention and a gated MLP, each behind a norm, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = (torch.nn.RMSNorm(MODEL, eps=1e-5) for _ in range(2))
        self.q, self.k, self.v, self.o = (torch.nn.Linear(MODEL, MODEL, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(MODEL, HIDDEN, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(HIDDEN, MODEL, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attention_norm(x)
        q = self.heads(self.q(h))
        k = self.heads(self.k(h))
        v = self.heads(self.v(h))
        attention = torch.softmax(q @ k.transpose(-1, -2) * (MODEL // HEADS) ** -0.5, dim=-1) @ v
        x = x + self.o(attention.transpose(1, 2).reshape(x.shape))
        h = self.mlp_norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))

    @staticmethod
    def heads(x: torch.Tensor) -> torch.Tensor:
        """[batch, heads, tokens, …] from [batch, tokens, …]."""
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)


def main() -> int:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(1, TOKENS, MODEL)
    with torch.no_grad():
        unquantised = model(x).numpy()
        mxcomp.torch.replace_linears(model)
        expected = model(x).numpy()

    program = mxcomp.compile(mxcomp.torch.export(model, (x,)), target="gfx950")
    program.report.print(sys.stdout)

    start = time.perf_counter()
    (y,) = program.run(x.numpy(), device="sim")
    seconds = time.perf_counter() - start
    change = expected - x.numpy()  # what the block adds to its input
    error = np.abs(y - expected).max() / np.abs(change).max()
    rms = np.sqrt(np.mean((expected - unquantised) ** 2) / np.mean((unquantised - x.numpy()) ** 2))
    print(f"run on the simulated gfx950 through IREE's runtime, {seconds:.1f} s, all checks on")
    print(f"against torch on the CPU: largest error {error:.1e} of what the block adds to its input")
    print(f"quantisation error of the block: {100 * rms:.1f} % (rms)")
    # Rounding differences in norms and softmax may move an activation to the next fp4 number: half a step is 1/8.
    return 0 if error <= 1 / 8 else 1


if __name__ == "__main__":
    sys.exit(main())
