"""Ways to compute the experts of a layer, each with the ukernels that are modelled to be fastest in it.

- in tiles: hidden activations are quantised in tiles of the product that is gate and up (`mxcomp.ukernels.gating`);
- apart: of that product, in f32, with any ukernels, they are computed and quantised in a dispatch behind it; or, of few
  rows, by the ukernel for down (`mxcomp.ukernels.swiglu`);
- unquantised: rows of bf16 are gathered, gate and up are one product of f32, activations are computed behind it.

Each is followed by down, whose bf16 results are summed. Routing, and the quantisation of tokens, are not included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from mxcomp.selection.quantising import replays_of_rows
from mxcomp.selection.ranking import LAYERS
from mxcomp.selection.times import SCALE_BITS
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.target import Target
from mxcomp.ukernels import gating, once, quantising, swiglu, token_experts, weight_only
from mxcomp.ukernels.family import Tile

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


@dataclass(frozen=True)
class Layer:
    """A layer whose rows are in `blocks` of `block_m`, and the ukernels for it."""

    sizes: Sizes
    blocks: grouped.Blocks
    block_m: int
    ukernels: Mapping[str, Ukernel]

    @property
    def kinds(self) -> tuple[str, str]:
        """The elements of activations, and of weights."""
        return self.sizes.a_type, self.sizes.w_type

    @property
    def up(self) -> grouped.Work:
        """Gate and up stored as in the replay: in f32, or quantised in tiles."""
        sizes = self.sizes
        return grouped.Work(self.blocks, 2 * sizes.inter_dim, sizes.model_dim, self.kinds, sizes.tokens, _F32)

    @property
    def down(self) -> grouped.Work:
        """The product behind them."""
        sizes = self.sizes
        return grouped.Work(self.blocks, sizes.model_dim, sizes.inter_dim, self.kinds, self.blocks.slots, _BF16)

    def in_tiles(self) -> Pair | None:
        """Returns the pair with ukernels of `mxcomp.ukernels.gating`, of the fastest number of rows: one packs the
        other's LHS."""
        if not set(self.kinds) <= set(gating.ELEMENTS):
            return None
        pairs = []
        for up, down in zip(gating.GATED, gating.down(self.sizes.a_type), strict=True):
            first, second = self._transposed(up, self.up), self._transposed(down, self.down)
            if first is not None and second is not None:
                pairs.append((first, self._summed(second)))
        return min(pairs, key=us_of, default=None)

    def _transposed(self, of_tile: Tile, work: grouped.Work) -> Product | None:
        """Returns a product with weights as LHS; blocks of more rows than a tile are several tiles."""
        instance = gating.instance(of_tile, self.kinds[::-1])
        ukernel = self.ukernels.get(instance.name)
        known = None if ukernel is None else times.replays(instance, ukernel.target, times.EXPERTS)
        if ukernel is None or known is None:
            return None
        columns, rows, k = ukernel.tile
        valid = work.blocks.valid * -(-self.block_m // rows)
        return _product(ukernel, known, (rows, columns, k), replace(work, blocks=replace(work.blocks, valid=valid)))

    def apart(self) -> Pair | None:
        """Returns the pair with any ukernels, and either a dispatch between them or one that quantises itself."""
        fitting = [each for each in self._plain() if _takes(each, self.block_m)]
        first, second = _fastest(fitting, self.up), _fastest(fitting, self.down)
        if first is None or second is None:
            return None
        itself = self.quantising_down()
        with_dispatch = replace(first, others=self._between(first.ukernel.target)), self._summed(second)
        return better(with_dispatch, None if itself is None else (first, itself))

    def _plain(self) -> Iterator[Ukernel]:
        """Yields the ukernels for packed operands of these types."""
        for each in self.ukernels.values():
            if each.operands == DATA_TILED and each.types[:2] == self.kinds:
                yield each

    def _between(self, target: Target) -> tuple[float, ...]:
        """Returns µs of the dispatch between products, which computes hidden activations and quantises them."""
        elements = self.blocks.slots * self.sizes.inter_dim
        bits = element_format(self.sizes.a_type).bits
        is_together = bits < 8 or self.blocks.slots <= streaming.TOGETHER
        calculated = max(_HIDDEN_US, streaming.calculating_us(target, elements, _HIDDEN_SLOTS[bits, is_together]))
        size = elements * (2 * _F32 + (bits + SCALE_BITS) / 8)
        passing = streaming.streaming_us(target, size) + streaming.latency_us(target)
        return (passing + calculated,) if is_together else (passing + calculated, passing)

    def quantising_down(self) -> Product | None:
        """Returns down with the fastest ukernel that computes hidden activations itself, if there is one."""
        best = self._fastest_of_rows(swiglu.INSTANCES, self.down)
        return None if best is None else self._summed(best)

    def quantising_up(self) -> Product | None:
        """Returns gate and up of a single token with the fastest ukernel that quantises it, if there is one."""
        return self._fastest_of_rows([each for each in once.INSTANCES if each.matrices == 1], self.up)

    def of_token(self) -> Pair | None:
        """Returns two dispatches for a single token's experts (`mxcomp.ukernels.token_experts`); down's has the sum.

        They take as long as kernels with the same tiles, down as one product of all experts along K.
        """
        singles = [each for each in once.INSTANCES if each.matrices == 1]
        wide = [each for each in singles if each.tile.inner_tiles[RHS] == token_experts.UNITS]
        up, step = self._fastest_of_rows(wide, self.up), STEPS * BLOCKS * BLOCK
        depth = self.blocks.valid * -(-self.sizes.inter_dim // step) * step
        narrow = [each for each in self._plain() if each.tile == (INNER_ROWS, INNER_ROWS, step)]
        one = replace(self.down, blocks=grouped.Blocks(1, 1, 1), k=depth, rows=1)
        down = _fastest(narrow, one)
        return None if up is None or down is None else (up, down)

    def unquantised(self) -> Pair | None:
        """Returns the pair with ukernels that dequantise weights in registers, for activations of bf16."""
        instances, slots = weight_only.INSTANCES, self.blocks.slots
        first = self._fastest_of_rows(instances, replace(self.up, rows=slots))
        second = self._fastest_of_rows(instances, self.down)
        if first is None or second is None:
            return None
        moved = 2 * slots * self.sizes.model_dim * _BF16, slots * self.sizes.inter_dim * (2 * _F32 + _BF16)
        others = tuple(streaming.streaming_us(first.ukernel.target, each) for each in moved)  # gathered, activated
        return replace(first, others=others), self._summed(second)

    def _fastest_of_rows(self, instances: Iterable[quantising.Instance], work: grouped.Work) -> Product | None:
        """Returns the fastest of the ukernels that take a matmul's types, so many rows, and its K."""
        able = (each for each in instances if each.name in self.ukernels and each.types[:2] == work.types)
        fitting = (each for each in able if each.covers(self.block_m, work.n, work.k))
        found = (_with_rows(each, self.ukernels[each.name], work, self.block_m) for each in fitting)
        return min(filter(None, found), key=lambda each: each.us, default=None)

    def _summed(self, product: Product) -> Product:
        """Returns down with the dispatch that sums a token's experts, if it has more than one."""
        if self.sizes.top_k == 1:
            return product
        slots, tokens, n = self.blocks.slots, self.sizes.tokens, self.sizes.model_dim
        return replace(product, others=(grouped.reduction_us(product.ukernel.target, slots, tokens, n),))


_HIDDEN_US = 1.5
_HIDDEN_SLOTS = {(4, True): 52, (6, True): 52, (8, True): 295, (8, False): 147}
"""The issue slots of a hidden activation by its bits, and whether scales are stored with elements; and the µs that all
take at least. Of 8 bits cache lines bind, which are read for each half of a block. Fitted to replays."""


def fastest(sizes: Sizes, block_m: int, ukernels: Mapping[str, Ukernel]) -> Pair | None:
    """Returns the fastest way for blocks of so many rows, in the expected number; None where there is none."""
    layer = Layer(sizes, grouped.expected(sizes.tokens, sizes.experts, sizes.top_k, block_m), block_m, ukernels)
    if sizes.a_type == weight_only.ACTIVATIONS:
        return layer.unquantised()
    return better(layer.in_tiles(), layer.apart())


@lru_cache(maxsize=LAYERS)
def ways(consumer: Problem, registry: Registry, itself: bool = False) -> tuple[Pair | None, Pair | None]:
    """Returns gate and up and the product behind them, fused in tiles and separate: the rows of all blocks are those of
    tokens.

    `itself`: apart, the product behind them quantises if it can.
    """
    layer = _of_rows(consumer, registry)
    outside, down = layer.apart(), layer.quantising_down() if itself else None
    return layer.in_tiles(), outside if outside is None or down is None else (replace(outside[0], others=()), down)


@lru_cache(maxsize=LAYERS)
def token_ways(consumer: Problem, registry: Registry) -> tuple[Pair | None, Pair | None]:
    """Returns the ways of a single token's gate and up, which quantise it, and the product behind: with a sum over
    experts in that, and without."""
    layer = _of_rows(consumer, registry)
    layer = replace(layer, sizes=replace(layer.sizes, tokens=1, top_k=layer.blocks.slots), block_m=1)
    up, down = layer.quantising_up(), layer.quantising_down()
    return layer.of_token(), None if up is None or down is None else (up, down)


def _of_rows(consumer: Problem, registry: Registry) -> Layer:
    """Returns the layer of a product behind gate and up that has each row of blocks as a token."""
    (hidden, weights, *_), count, rows = consumer.types, consumer.matrices, consumer.m or 0
    blocks = grouped.Blocks(count, min(count, consumer.stored[RHS] or count), count * rows)
    sizes = Sizes(blocks.slots, consumer.n or 0, consumer.k or 0, blocks.active, 1, hidden, weights)
    return Layer(sizes, blocks, rows, registry.ukernels)


def better(one: Pair | None, other: Pair | None) -> Pair | None:
    """Returns the pair that takes less time."""
    return min(filter(None, (one, other)), key=us_of, default=None)


def us_of(pair: Pair) -> float:
    """Returns modelled µs of all dispatches of a pair."""
    return sum(each.whole_us for each in pair)


def _takes(ukernel: Ukernel, block_m: int) -> bool:
    """Returns whether a ukernel is for blocks of so many rows, and has no tile for twice as many."""
    bounds = ukernel.constraints.get("m")
    fits = bounds is None or not bounds.violation("M", block_m)
    return fits and ukernel.tile[0] == max(block_m, INNER_ROWS)


def _fastest(ukernels: Iterable[Ukernel], work: grouped.Work) -> Product | None:
    """Returns the fastest of the ukernels that support K of a matmul, and whose times are known."""
    fitting = ((each, times.of(each)) for each in ukernels if not each.constraints["k"].violation("K", work.k))
    products = (_product(each, known, each.tile, work) for each, known in fitting if known is not None)
    return min(products, key=lambda each: each.us, default=None)


def _product(ukernel: Ukernel, known: times.KernelTimes, tile: tuple[int, int, int], work: grouped.Work) -> Product:
    return Product(ukernel, known, tile, work, *times.ordered(known, tile, work))


def _with_rows(instance: quantising.Instance, ukernel: Ukernel, work: grouped.Work, block_m: int) -> Product | None:
    """Returns a product with a ukernel that supports K, if times are known for the fewest, and for all rows of it."""
    known = replays_of_rows(instance, ukernel.target)
    if not known or ukernel.constraints["k"].violation("K", work.k):
        return None
    us = [times.modelled(each, ukernel.tile, work) for each in known.values()]
    between = float(np.interp(block_m, list(known), us))
    return Product(ukernel, known[max(known)], ukernel.tile, work, PLAIN_ORDER, between)
