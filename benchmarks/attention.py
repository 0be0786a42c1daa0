"""Table of docs/attention.md: attention of many queries, modelled, beside AITER's code objects in the same model.

python benchmarks/attention.py --aiter DIR

Operands are not filled: sums of a query are scaled in its first step only. So they are with data whose scores do not
exceed the largest of that step by a factor of 2^8 in weights, as those of normal operands.
"""

from __future__ import annotations

import argparse
import re
import struct
import tempfile
from pathlib import Path

import aiter_attention
import marked
import numpy as np
import torch

import mxcomp.torch
from mxcomp.sim.device import Device
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import examine

PAGE = Path(__file__).parents[1] / "docs" / "attention.md"
_BINARIES = "--iree-hal-dump-executable-binaries-to"
_SIZE, _MEMORY = 128, 16 << 30
CASES = (
    (1, 64, 8, 2048, False), (1, 64, 8, 2048, True), (8, 64, 8, 8192, True), (16, 64, 8, 8192, True),
)  # fmt: skip
"""Batch, heads of queries and of keys, length, and whether a query sees keys up to its own only."""


class _Attention(torch.nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=self.is_causal, enable_gqa=True
        )


def us(batch: int, heads: int, key_heads: int, length: int, is_causal: bool) -> float:
    """Modelled µs of our kernel, of bf16."""
    shapes = [(batch, each, length, _SIZE) for each in (heads, key_heads, key_heads)]
    given = tuple(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)
    with tempfile.TemporaryDirectory() as folder:
        flags = (f"{_BINARIES}={folder}",)
        program = mxcomp.torch.compile(_Attention(is_causal), given, strict=True, iree_flags=flags)
        (path,) = Path(folder).glob("*.hsaco")
        code = path.read_bytes()
    tile = re.search(r"_m(\d+)_", str(program.report.attentions[0].ukernel))
    assert tile is not None
    device = Device(memory_bytes=_MEMORY, checks=())
    (kernel,) = device.load(code).kernels.values()
    buffers = [device.memory.alloc(2 * int(np.prod(shape)), fill=False).address for shape in (*shapes, shapes[0])]
    grid = (batch * heads * -(-length // int(tile[1])), 1, 1)
    return estimate(examine(device, kernel, grid, struct.pack("<4Q", *buffers), asks=False)).us


def rows(aiter: Path) -> list[str]:
    head = ["batch", "heads", "of keys", "length", "causal", "µs", "TFLOP/s", "AITER's, µs", "as fast as AITER's"]
    found = []
    for case in CASES:
        batch, heads, key_heads, length, is_causal = case
        ours, theirs = us(*case), aiter_attention.bf16_us(aiter, *case)
        flops = 4 * batch * heads * length**2 * _SIZE / (2 if is_causal else 1)
        numbers = batch, heads, key_heads, length, "yes" if is_causal else "no"
        found.append([*numbers, f"{ours:.1f}", f"{flops / ours / 1e6:.0f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"])
        print(*found[-1], flush=True)
    return [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, metavar="DIR", required=True, help="a checkout of ROCm/aiter")
    aiter = parser.parse_args().aiter
    begin, end = "<!-- times: written by benchmarks/attention.py -->", "<!-- end of times -->"
    PAGE.write_text(marked.put(PAGE.read_text(), begin, end, "\n".join(rows(aiter))))


if __name__ == "__main__":
    main()
