"""Models the time of a grouped matmul of a mixture of experts with a ukernel, by the formulas of `times`.

Rows are sorted by expert in blocks of the ukernel's M. A block's rows are gathered from activations, and its columns
are those of its expert. Each workgroup has one block and one tile of N. Before it loads operands it waits once for the
ids that locate them; otherwise it is the workgroup of an ordinary matmul. Weights of experts with tokens are read once
from HBM. Not modelled are workgroups of unused blocks, which compute nothing, and instructions of an epilogue, except
where they were replayed (ukernels for experts); its bytes are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mxcomp.formats import element_format
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.selection import times
from mxcomp.selection.sharing import Shared, of_lines, ranges, tiles_of
from mxcomp.selection.streaming import streaming_us
from mxcomp.selection.times import SCALE_BITS, Grid, KernelTimes
from mxcomp.sim.timing.chip import Floats, Launch
from mxcomp.target import Target


@dataclass(frozen=True)
class Blocks:
    """The result of routing: blocks with a token, experts that have one, and slots, pairs of a token and an expert."""

    valid: int
    active: int
    slots: int


def expected(tokens: int, experts: int, top_k: int, block_m: int) -> Blocks:
    """Returns the expected blocks where each token goes to `top_k` different, equally likely experts: the tokens of an
    expert are binomial; means are rounded.
    """
    chance = _binomial(tokens, top_k / experts)
    needed = -(-np.arange(tokens + 1) // block_m)
    active = min(experts, max(1, round(experts * (1 - float(chance[0])))))
    return Blocks(max(active, round(experts * float(chance @ needed))), active, tokens * top_k)


def _binomial(count: int, probability: float) -> Floats:
    """Returns the probabilities of 0 to `count` successes."""
    successes = np.arange(count + 1)
    if probability >= 1:
        return (successes == count).astype(float)
    steps = np.log(np.arange(count, 0, -1)) - np.log(np.arange(1, count + 1)) + np.log(probability / (1 - probability))
    logarithms = np.concatenate([[0.0], np.cumsum(steps)]) + count * np.log1p(-probability)
    result: Floats = np.exp(logarithms)
    return result / result.sum()


@dataclass(frozen=True)
class Work(times.Work):
    """A grouped matmul: each block is a matrix of a batch, and bands of rows end with a matrix.

    Attributes:
        blocks: How many, of what.
        n, k: Columns of each expert's weights, and what is summed over.
        types: Elements of activations, of MX or bf16, and weights.
        rows: Different rows of activations: tokens, or slots if each slot has its own.
        result_bytes: Of what is stored for an element of the product.
    """

    blocks: Blocks
    n: int
    k: int
    types: tuple[str, str]
    rows: int
    result_bytes: float

    def orders(self, target: Target) -> tuple[Order, ...]:
        return PLAIN_ORDER, Order(target.xcds)

    def grid(self, known: KernelTimes, tile: Sequence[int], orders: tuple[Order, ...]) -> Grid:
        known, blocks = known.storing(self.result_bytes), self.blocks
        columns, k_tiles = -(-self.n // tile[1]), -(-self.k // tile[2])
        column_bits = element_format(self.types[1]).bits + SCALE_BITS
        row_bits = known.row_bits or element_format(self.types[0]).bits + SCALE_BITS
        depth = k_tiles * tile[2]
        filled = blocks.slots / blocks.valid
        step_bytes = np.array([filled * depth * row_bits / 8, tile[1] * depth * column_bits / 8])
        store_bytes = known.store_bytes * filled / tile[0]
        workgroups = blocks.valid * columns
        resident = known.occupancy(workgroups)
        unique = self.rows * depth * row_bits / 8 + blocks.active * columns * step_bytes[1]
        unique += workgroups * store_bytes
        launch = Launch((), resident, known.loaded(k_tiles), store_bytes, known.wide, workgroups, unique)
        shared = _batches(blocks.valid, blocks.active, columns, resident, orders, known.target)
        return Grid(known, k_tiles, launch, shared, step_bytes, latencies=1)


def reduction_us(target: Target, slots: int, tokens: int, n: int, size: int = 2) -> float:
    """Returns µs of a dispatch that sums each token's slots."""
    return streaming_us(target, (slots + tokens) * n * size)


@cache
def _batches(
    blocks: int, active: int, columns: int, resident: int, orders: tuple[Order, ...], target: Target
) -> tuple[Shared, ...]:
    """Returns batches as `sharing.batches` does: a row for each block, columns for each expert, whose blocks are
    contiguous."""
    least, more = divmod(blocks, active)
    expert = np.repeat(np.arange(active), [least + (k < more) for k in range(active)])
    found = []
    for ids, count in ranges(blocks * columns, resident * target.cus):
        _, row, column = tiles_of(ids, (1, blocks, columns), orders)
        found.append(of_lines(ids, count, row, expert[row] * columns + column, target.xcds))
    return tuple(found)
