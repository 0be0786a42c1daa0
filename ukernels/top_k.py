"""Chooses the first floats of rows of a sort, by a wave: round by round their maximum, which is then left out.

Counting for each element those before it takes as many comparisons as a row has elements, squared: of 128 experts
eight times as many as this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl

from mxcomp.layout.inner_tiles import LANES
from mxcomp.mlir import attributes, build, graph
from mxcomp.mlir import scalars as s
from mxcomp.mlir.index import Index, i32_type, to_i32
from mxcomp.ukernels.softmax import of_wave, tree

_BITS = 32
"""The most bits of a float."""
_OF_ROUND, _OF_KEY, _COUNTED, _LESS = 20, 5, 8, 2
"""The instructions of a round, and for each key of a lane; those that compare two elements where they are counted; and
how many times fewer there must be of the former, which fewer threads share."""
_NONE, _ALL, _NAN = 0, 0xFFFFFFFF, 0xFFFFFFFE
"""The key of what is left out, below those of all numbers; all bits; and the key of NaN, above all numbers."""


@dataclass(frozen=True)
class TopK:
    """A sort by `mxcomp-rank-sorts`.

    Attributes:
        ranking: The operation that would count those before each element.
        place: The one that finds the first ones by these counts.
    """

    ranking: ir.Operation
    place: ir.Operation

    @staticmethod
    def of(ranking: ir.Operation) -> TopK | None:
        """Returns the sort of an operation, if there is one whose first elements waves choose in less time."""
        place = graph.only_user(ranking) if attributes.RANKS in ranking.attributes else None
        found = None if place is None or attributes.PLACES not in place.attributes else TopK(ranking, place)
        return found if found is not None and found._is_less else None

    @property
    def source(self) -> ir.Value:
        return self.ranking.operands[0]

    @property
    def rows(self) -> list[int]:
        """The sizes of all dimensions but the last."""
        return [size or 0 for size in build.static_sizes(self.source)[:-1]]

    @property
    def size(self) -> int:
        return build.static_sizes(self.source)[-1] or 0

    @property
    def count(self) -> int:
        return build.static_sizes(self.place.results[0])[-1] or 0

    @property
    def slots(self) -> int:
        """About how many instructions choose those of all rows."""
        return math.prod(self.rows) * LANES * self.count * (_OF_ROUND + _OF_KEY * -(-self.size // LANES))

    @property
    def _is_less(self) -> bool:
        is_possible = self.count <= LANES and build.element(self.source).width <= _BITS
        return is_possible and _LESS * self.slots < _COUNTED * math.prod(self.rows) * self.size**2

    def places(self, element: Callable[[Index], ir.Value], lane: Index) -> ir.Value:
        """Returns in each of the first lanes, as i32, the place of the element of a row that comes so manieth."""
        own = to_i32(lane)
        at = [s.plus(own, first) for first in range(0, self.size, LANES)]
        keys = [self._key(element, lane + first) for first in range(0, self.size, LANES)]
        found = own
        for number in range(self.count):
            best = of_wave(tree(s.greatest, keys), s.greatest)
            place = _first([s.equal(each, best) for each in keys])
            keys = [s.select(s.equal(each, place), _NONE, old) for each, old in zip(at, keys, strict=True)]
            found = s.select(s.equal(own, number), place, found)
        return found

    def _key(self, element: Callable[[Index], ir.Value], place: Index) -> ir.Value:
        """Returns an i32 for an element that, unsigned, is the larger the earlier it is; equal ones are in order."""
        is_descending = ir.BoolAttr(self.place.attributes[attributes.PLACES]).value
        order = s.ordered(s.widened(element(Index.of(build.clamp(place.value, self.size)))), _NAN)
        return s.select(place < self.size, order if is_descending else s.flipped(order, _ALL), _NONE)


def _first(conditions: Sequence[ir.Value]) -> ir.Value:
    """Returns the first place, by lanes and then along a sequence, of one or more whose condition is true."""
    i64, found = ir.IntegerType.get_signless(64), None
    for number, condition in reversed(list(enumerate(conditions))):
        lanes = rocdl.ballot(i64, condition)
        lane = arith.TruncIOp(i32_type(), llvm.intr_cttz(lanes, True, results=[i64])).result
        here = s.plus(lane, number * LANES)
        found = here if found is None else s.select(s.equal(lanes, 0), found, here)
    assert found is not None
    return found
