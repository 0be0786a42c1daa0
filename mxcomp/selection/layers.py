"""Ways to compute the experts of a layer, each with the ukernels that are modelled to be fastest in it.

- in tiles: hidden activations are quantised in tiles of the product that is gate and up (`mxcomp.ukernels.gating`);
- apart: of that product, in f32, with any ukernels, they are computed and quantised in a dispatch behind it; or, of few
  rows, by the ukernel for down (`mxcomp.ukernels.swiglu`);
- unquantised: rows of bf16 are gathered, gate and up are one product of f32, activations are computed behind it.

Each is followed by down, whose bf16 results are summed. Routing, and the quantisation of tokens, are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from mxcomp.formats import element_format
from mxcomp.layout import RHS
from mxcomp.layout.inner_tiles import BLOCK, BLOCKS, INNER_ROWS, STEPS
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import grouped, streaming, times
from mxcomp.selection.ranking import LAYERS
from mxcomp.selection.times import SCALE_BITS
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.ukernels import gating, once, quantising, swiglu, token_experts, weight_only
from mxcomp.ukernels.family import Instance

_F32, _BF16 = 4, 2
"""The bytes of an element."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a layer, and types of its activations, of MX or bf16, and weights."""

    tokens: int
    model_dim: int
    inter_dim: int
    experts: int
    top_k: int
    a_type: str
    w_type: str


@dataclass(frozen=True)
class Product:
    """A ukernel for a grouped matmul, and its time.

    Attributes:
        tile: Rows of blocks, columns of weights, and K of a workgroup.
        us: Modelled, of one dispatch.
        others: µs of other dispatches that belong to it.
    """

    ukernel: Ukernel
    known: times.KernelTimes
    tile: tuple[int, int, int]
    work: grouped.Work
    order: Order
    us: float
    others: tuple[float, ...] = ()

    @property
    def whole_us(self) -> float:
        return self.us + sum(self.others)

    @property
    def interval(self) -> tuple[float, float]:
        """The µs between which 80 % of measurements of such estimates were."""
        p = parameters_of(self.ukernel.target)
        pairs = [p.interval(us) for us in (self.us, *self.others)]
        low, high = (sum(values) for values in zip(*pairs, strict=True))
        return low, high

    @property
    def bound(self) -> str:
        """The resource that binds, as in `times.bound`; "other dispatches" where those of the product take longer."""
        if sum(self.others) > self.us:
            return "other dispatches"
        return times.bound(self.known, self.tile, self.work, self.order)


Pair: TypeAlias = tuple[Product, Product]
"""The products of gate and up, and of down."""


def fastest(sizes: Sizes, block_m: int, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns the fastest way for blocks of so many rows, in the expected number; None where there is none."""
    blocks = grouped.expected(sizes.tokens, sizes.experts, sizes.top_k, block_m)
    if sizes.a_type == weight_only.ACTIVATIONS:
        return unquantised(sizes, blocks, block_m, ukernels)
    return better(in_tiles(sizes, blocks, block_m, ukernels), apart(sizes, blocks, block_m, ukernels))


@lru_cache(maxsize=LAYERS)
def ways(consumer: Problem, registry: Registry, itself: bool = False) -> tuple[Pair | None, Pair | None]:
    """Returns gate and up and the product behind them, fused in tiles and separate: the rows of all blocks are those of
    tokens.

    `itself`: apart, the product behind them quantises if it can.
    """
    sizes, blocks, rows = _of_rows(consumer), _blocks(consumer), consumer.m or 0
    inside, outside = (way(sizes, blocks, rows, registry.ukernels) for way in (in_tiles, apart))
    down = quantising_down(sizes, blocks, rows, registry.ukernels) if itself else None
    return inside, outside if outside is None or down is None else (replace(outside[0], others=()), down)


@lru_cache(maxsize=LAYERS)
def token_ways(consumer: Problem, registry: Registry) -> tuple[Pair | None, Pair | None]:
    """Returns the ways of a single token's gate and up, which quantise it, and the product behind: with a sum over
    experts in that, and without."""
    sizes, blocks = _of_rows(consumer), _blocks(consumer)
    one = replace(sizes, tokens=1, top_k=blocks.slots)
    up, down = quantising_up(one, blocks, registry.ukernels), quantising_down(one, blocks, 1, registry.ukernels)
    return of_token(one, blocks, registry.ukernels), None if up is None or down is None else (up, down)


def _blocks(consumer: Problem) -> grouped.Blocks:
    count = consumer.matrices
    return grouped.Blocks(count, min(count, consumer.stored[RHS] or count), count * (consumer.m or 0))


def _of_rows(consumer: Problem) -> Sizes:
    """Returns the sizes of a layer that has each row of blocks as a token."""
    (hidden, weights, *_), blocks = consumer.types, _blocks(consumer)
    return Sizes(blocks.slots, consumer.n or 0, consumer.k or 0, blocks.active, 1, hidden, weights)


def better(one: Pair | None, other: Pair | None) -> Pair | None:
    """Returns the pair that takes less time."""
    return min(filter(None, (one, other)), key=us_of, default=None)


def us_of(pair: Pair) -> float:
    """Returns modelled µs of all dispatches of a pair."""
    return sum(each.whole_us for each in pair)


def in_tiles(sizes: Sizes, blocks: grouped.Blocks, block_m: int, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns the pair with ukernels of `mxcomp.ukernels.gating`, of the fastest number of rows: one packs the other's
    LHS."""
    hidden, weights = sizes.a_type, sizes.w_type
    if hidden not in gating.ELEMENTS or weights not in gating.ELEMENTS:
        return None
    pairs = []
    for up, down in zip(gating.GATED, gating.down(hidden), strict=True):
        first = _transposed(gating.instance(up, (weights, hidden)), _gate_up(sizes, blocks), block_m, ukernels)
        second = _transposed(gating.instance(down, (weights, hidden)), _down(sizes, blocks), block_m, ukernels)
        if first is not None and second is not None:
            pairs.append((first, replace(second, others=_summed(second, sizes, blocks))))
    return min(pairs, key=us_of, default=None)


def _transposed(
    instance: Instance, work: grouped.Work, block_m: int, ukernels: Mapping[str, Ukernel]
) -> Product | None:
    """Returns a product with weights as LHS; blocks of more rows than a tile are several tiles."""
    ukernel = ukernels.get(instance.name)
    known = None if ukernel is None else times.replays(instance, ukernel.target, times.EXPERTS)
    if ukernel is None or known is None:
        return None
    columns, rows, k = ukernel.tile
    mine = replace(work, blocks=replace(work.blocks, valid=work.blocks.valid * -(-block_m // rows)))
    tile = (rows, columns, k)
    order, us = times.ordered(known, tile, mine)
    return Product(ukernel, known, tile, mine, order, us)


def apart(sizes: Sizes, blocks: grouped.Blocks, block_m: int, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns the pair with any ukernels, and either a dispatch between them or one that quantises itself."""
    kinds = sizes.a_type, sizes.w_type
    fitting = [
        ukernel
        for ukernel in ukernels.values()
        if ukernel.operands == DATA_TILED and ukernel.types[:2] == kinds and _takes(ukernel, block_m)
    ]
    first, second = (_fastest(fitting, work) for work in (_gate_up(sizes, blocks), _down(sizes, blocks)))
    if first is None or second is None:
        return None
    with_dispatch = (
        replace(first, others=_between(first, sizes, blocks)),
        replace(second, others=_summed(second, sizes, blocks)),
    )
    itself = quantising_down(sizes, blocks, block_m, ukernels)
    return better(with_dispatch, None if itself is None else (first, itself))


def _between(first: Product, sizes: Sizes, blocks: grouped.Blocks) -> tuple[float, ...]:
    """Returns µs of the dispatch between products, which computes hidden activations and quantises them."""
    target, elements = first.ukernel.target, blocks.slots * sizes.inter_dim
    bits = element_format(sizes.a_type).bits
    is_together = bits < 8 or blocks.slots <= streaming.TOGETHER
    calculated = max(_HIDDEN_US, streaming.calculating_us(target, elements, _HIDDEN_SLOTS[bits, is_together]))
    size = elements * (2 * _F32 + (bits + SCALE_BITS) / 8)
    passing = streaming.streaming_us(target, size) + streaming.latency_us(target)
    return (passing + calculated,) if is_together else (passing + calculated, passing)


_HIDDEN_US = 1.5
_HIDDEN_SLOTS = {(4, True): 52, (6, True): 52, (8, True): 295, (8, False): 147}
"""The issue slots of a hidden activation by its bits, and whether scales are stored with elements; and the µs that all
take at least. Of 8 bits cache lines bind, which are read for each half of a block. Fitted to replays."""


def quantising_down(
    sizes: Sizes, blocks: grouped.Blocks, block_m: int, ukernels: Mapping[str, Ukernel]
) -> Product | None:
    """Returns down with the fastest ukernel that computes hidden activations itself, if there is one."""
    best = _fastest_of_rows(swiglu.INSTANCES, _down(sizes, blocks), block_m, ukernels)
    return None if best is None else replace(best, others=_summed(best, sizes, blocks))


def quantising_up(sizes: Sizes, blocks: grouped.Blocks, ukernels: Mapping[str, Ukernel]) -> Product | None:
    """Returns gate and up of a single token with the fastest ukernel that quantises it, if there is one."""
    singles = [each for each in once.INSTANCES if each.matrices == 1]
    return _fastest_of_rows(singles, _gate_up(sizes, blocks), 1, ukernels)


def of_token(sizes: Sizes, blocks: grouped.Blocks, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns two dispatches for a single token's experts (`mxcomp.ukernels.token_experts`), whose sum is in down's.

    They take as long as kernels with the same tiles, down as one product of all experts along K.
    """
    wide = [each for each in once.INSTANCES if each.matrices == 1 and each.tile.inner_tiles[RHS] == token_experts.UNITS]
    up = _fastest_of_rows(wide, _gate_up(sizes, blocks), 1, ukernels)
    kinds, step = (sizes.a_type, sizes.w_type), STEPS * BLOCKS * BLOCK
    depth = blocks.valid * -(-sizes.inter_dim // step) * step
    tile = INNER_ROWS, INNER_ROWS, step
    narrow = [
        each
        for each in ukernels.values()
        if each.operands == DATA_TILED and each.types[:2] == kinds and each.tile == tile
    ]
    down = _fastest(narrow, grouped.Work(grouped.Blocks(1, 1, 1), sizes.model_dim, depth, kinds, 1, _BF16))
    return None if up is None or down is None else (up, down)


def _takes(ukernel: Ukernel, block_m: int) -> bool:
    """Returns whether a ukernel is for blocks of so many rows, and has no tile for twice as many."""
    bounds = ukernel.constraints.get("m")
    fits = bounds is None or not bounds.violation("M", block_m)
    return fits and ukernel.tile[0] == max(block_m, INNER_ROWS)


def _fastest(ukernels: Iterable[Ukernel], work: grouped.Work) -> Product | None:
    """Returns the fastest of the ukernels that support K of a matmul, and whose times are known."""
    products = []
    for ukernel in ukernels:
        known = times.of(ukernel)
        if known is not None and not ukernel.constraints["k"].violation("K", work.k):
            order, us = times.ordered(known, ukernel.tile, work)
            products.append(Product(ukernel, known, ukernel.tile, work, order, us))
    return min(products, key=lambda each: each.us, default=None)


def unquantised(sizes: Sizes, blocks: grouped.Blocks, block_m: int, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns the pair with ukernels that dequantise weights in registers, for activations of bf16."""
    products = []
    for work in (replace(_gate_up(sizes, blocks), rows=blocks.slots), _down(sizes, blocks)):
        if (best := _fastest_of_rows(weight_only.INSTANCES, work, block_m, ukernels)) is None:
            return None
        products.append(best)
    first, second = products
    target = first.ukernel.target
    gathered = streaming.streaming_us(target, 2 * blocks.slots * sizes.model_dim * _BF16)
    activated = streaming.streaming_us(target, blocks.slots * sizes.inter_dim * (2 * _F32 + _BF16))
    return replace(first, others=(gathered, activated)), replace(second, others=_summed(second, sizes, blocks))


def _fastest_of_rows(
    instances: Iterable[quantising.Instance], work: grouped.Work, block_m: int, ukernels: Mapping[str, Ukernel]
) -> Product | None:
    """Returns the fastest of the ukernels that take a matmul's types, so many rows, and its K."""
    able = (each for each in instances if each.name in ukernels and each.types[:2] == work.types)
    fitting = (each for each in able if each.covers(block_m, work.n, work.k))
    whole = (each for each in fitting if not ukernels[each.name].constraints["k"].violation("K", work.k))
    found = (_with_rows(each, ukernels[each.name], work, block_m) for each in whole)
    return min((each for each in found if each is not None), key=lambda each: each.us, default=None)


def _with_rows(instance: quantising.Instance, ukernel: Ukernel, work: grouped.Work, block_m: int) -> Product | None:
    """Returns a product with a ukernel whose times are known for the fewest, and for all rows of its tile."""
    known = {
        rows: replace(each, row_bits=instance.bits)
        for rows in instance.timed_rows
        if (each := times.replays(instance, ukernel.target, times.with_rows(rows))) is not None
    }
    us = {rows: times.modelled(each, ukernel.tile, work) for rows, each in known.items()}
    if len(us) < len(instance.timed_rows):
        return None
    between = float(np.interp(block_m, list(us), list(us.values())))
    return Product(ukernel, known[max(us)], ukernel.tile, work, PLAIN_ORDER, between)


def _gate_up(sizes: Sizes, blocks: grouped.Blocks) -> grouped.Work:
    """Returns gate and up stored as in the replay: in f32, or quantised in tiles."""
    kinds = sizes.a_type, sizes.w_type
    return grouped.Work(blocks, 2 * sizes.inter_dim, sizes.model_dim, kinds, sizes.tokens, _F32)


def _down(sizes: Sizes, blocks: grouped.Blocks) -> grouped.Work:
    kinds = sizes.a_type, sizes.w_type
    return grouped.Work(blocks, sizes.model_dim, sizes.inter_dim, kinds, blocks.slots, _BF16)


def _summed(product: Product, sizes: Sizes, blocks: grouped.Blocks) -> tuple[float, ...]:
    """Returns µs of the dispatch that sums a token's experts, if it has more than one."""
    target = product.ukernel.target
    return (grouped.reduction_us(target, blocks.slots, sizes.tokens, sizes.model_dim),) if sizes.top_k > 1 else ()
