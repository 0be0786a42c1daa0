"""Whether results are quantised where they are computed, for the matmul behind: by modelled times of both ways.

In their tiles: all results of the chain are computed transposed by the one ukernel for that (`ukernels.requantised`),
and so is the matmul behind, if its operand is packed there. Apart: each by the fastest way of its own, with a dispatch
between that quantises and packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mxcomp.formats import element_format
from mxcomp.layout import LHS
from mxcomp.options import AUTO, FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection import passing, splitting, times
from mxcomp.selection.ranking import candidate, fastest
from mxcomp.target import Target
from mxcomp.ukernels import Registry, requantised


@dataclass(frozen=True)
class Product:
    """A problem, and bytes of its result's element: what ukernels are ranked by, and what is stored.

    `is_transposed`: it is computed so in any case, as the last of a chain before.
    """

    problem: Problem
    ranked_bytes: int
    stored_bytes: int
    is_transposed: bool = False


@dataclass(frozen=True)
class Chain:
    """Products of which the last one's result is quantised, perhaps with what is computed of all, for `consumer`.

    Attributes:
        packed: It is packed in the tile, else row by row.
        source_bytes: Of what a dispatch between would read for an element.
        slots: Issue slots of what is computed between products and quantiser, for an element.
    """

    products: tuple[Product, ...]
    consumer: Product
    packed: bool
    source_bytes: int
    slots: int


@dataclass(frozen=True)
class Times:
    """Modelled µs of all dispatches of a chain, but for those in front of its products."""

    inside: float
    apart: float

    def __str__(self) -> str:
        return f"modelled {self.inside:.1f} µs in the tile with what is behind, apart {self.apart:.1f}"


def objection(chain: Chain, registry: Registry, options: Options) -> tuple[str, str]:
    """Why results are not to be quantised in their tile, or "", and a note that says what decided."""
    if options.fuse_quantisers != AUTO or options.ukernels != FASTEST:
        return "", ""
    found = timed(chain, registry, options)
    if found is None:
        return "times of both ways are not known", ""
    return (str(found), "") if found.inside >= found.apart else ("", f"quantised in its tile: {found}")


def timed(chain: Chain, registry: Registry, options: Options) -> Times | None:
    """Both ways; None where times of a ukernel are not known."""
    *others, last = chain.products
    inside = [
        *(in_tile_us(registry, each.problem, each.stored_bytes, requantised.BESIDE) for each in others),
        in_tile_us(registry, last.problem, last.stored_bytes, requantised.JOINED if others else requantised.RESULT),
        *_behind(chain, registry, options),
    ]
    apart = [_alone(each, registry, options) for each in (*chain.products, chain.consumer)]
    in_all, apart_in_all = _sum(inside), _sum([*apart, _between(chain, registry.target)])
    return None if in_all is None or apart_in_all is None else Times(in_all, apart_in_all)


def _behind(chain: Chain, registry: Registry, options: Options) -> list[float | None]:
    """µs of what reads a result that is quantised in its tile."""
    problem = chain.consumer.problem
    if chain.packed:
        return [in_tile_us(registry, problem, chain.consumer.stored_bytes, requantised.BESIDE)]
    return [packing_us(registry.target, problem), _alone(chain.consumer, registry, options)]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def in_tile_us(registry: Registry, problem: Problem, size: int, suffix: str) -> float | None:
    """µs of a product computed transposed, with what a suffix stands for; an element of the result has `size` bytes."""
    problem = problem.flipped
    instance = requantised.instance_of(problem.types)
    known = times.replays(instance, registry.target, suffix)
    if known is None or instance.name not in registry.ukernels:
        return None
    sizes = {axis: problem.sizes[axis] or 0 for axis in "mnk"}
    stored = size if suffix == requantised.BESIDE else _REPLAYED_BYTES
    return times.ordered(known, instance.layout.workgroup_tile, problem, sizes, stored)[1]


_REPLAYED_BYTES = 4
"""Of a result's element, by which times of other sizes go."""


def packing_us(target: Target, problem: Problem) -> float:
    """µs of the two dispatches that pack an LHS and its scales that were quantised row by row."""
    elements = (problem.m or 0) * (problem.k or 0)
    parts = float(element_format(problem.types[LHS]).bits), times.SCALE_BITS
    return sum(passing.passing_us(target, 2 * elements * bits / 8) for bits in parts)


def joining_us(target: Target, problem: Problem, slots: int) -> float:
    """µs that a product takes longer where another one's result is read, and an element computed in so many slots."""
    elements = (problem.m or 0) * (problem.n or 0)
    return passing.latency_us(target) + passing.calculating_us(target, elements, slots)


def _alone(product: Product, registry: Registry, options: Options) -> float | None:
    """µs of a product with the ukernel that is taken for it alone."""
    if product.is_transposed:
        return in_tile_us(registry, product.problem, product.stored_bytes, requantised.BESIDE)
    ranked = fastest(product.problem, registry, options, product.ranked_bytes)
    if not ranked:
        return None
    stored = candidate(ranked[0].ukernel, product.problem, product.stored_bytes)
    split = splitting.faster(product.problem, ranked[0], registry, options, product.ranked_bytes)
    if split is not None and splitting.is_possible(options):
        return split.us
    return None if stored is None else stored.us


def _between(chain: Chain, target: Target) -> float:
    """µs of the dispatch that quantises, and of what is computed in front of it."""
    problem = chain.consumer.problem
    us = passing.quantising_us(target, problem.m or 0, problem.k or 0, problem.types[LHS], chain.source_bytes)
    return us + (joining_us(target, chain.products[-1].problem, chain.slots) if len(chain.products) > 1 else 0.0)
