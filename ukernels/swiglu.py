"""Ukernels for few rows that compute hidden activations from gate and up, and quantise them.

Operands are those of `quantising`: a block of 32 activations is 64 words of f32, alternately gate and up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from iree.compiler import ir

from mxcomp.layout import GATE_AND_UP
from mxcomp.ukernels import builder, once, quantising, split_k
from mxcomp.ukernels.brought import ACTIVATE
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.waves import BLOCK, HALF_STEPS, STEPS, Waves, inner_tiled_layout

BITS = 32 * len(GATE_AND_UP)
"""The bits of an activation: an f32 gate and an f32 up."""

MOST_BLOCKS = 256
"""The largest number of blocks of all rows for which LDS has room: two rows of 4096, or eight of 1024."""

_LOAD, _PIECES = 4, 4
"""The number of words that a lane loads at a time, and of such loads."""
_OF_LANE = BLOCK // once.PARTS
"""The number of activations that a lane computes."""


@dataclass(frozen=True)
class Instance(once.Instance):
    """A member: the tile and the types of an instance of `split_k.py`; `bits` are always `BITS`."""

    sources = tuple(quantising.SOURCE_BITS)

    @property
    def rule(self) -> dict[str, Any]:
        """Returns the rule. Half inner tiles are for even numbers of K tiles, too: smaller tiles wait less for data."""
        rule = super().rule
        k = {name: bound for name, bound in rule["constraints"]["k"].items() if name != "odd"}
        return rule | {"constraints": rule["constraints"] | {"k": k}}


_TILES = ((4, 8, STEPS), (4, 1, STEPS), (2, 4, HALF_STEPS), (4, 4, HALF_STEPS), (4, 1, HALF_STEPS), (8, 1, HALF_STEPS))
"""The inner tiles along N, waves along K, and steps of an inner tile, of tiles."""

TILES = [split_k.Tile(inner_tiled_layout(1, n, steps), -4, waves=Waves(k=k)) for n, k, steps in _TILES]

# The kernel


class Hidden(once.Once):
    """Writes the kernel of an instance: `once.Once` of gate and up, in turns. A lane computes a quarter of a block of
    hidden activations, by `@activate`, and hands it to the other lanes of the block."""

    operands, prefix = "hidden", "mx_fused_swiglu_"
    most, words, ahead = MOST_BLOCKS, BLOCK * len(GATE_AND_UP), 1
    timed_rows = (2, 8)
    """The rows of blocks of few tokens: see `mxcomp.routing.MEANS`."""

    def _compute(self, parts: once.Parts) -> None:
        """Computes all blocks; a lane's first part, which is loaded already, separately.

        Where those met LLVM would wait for RHS as well. Nothing is loaded behind the last: registers that something is
        on its way to cannot be used again.
        """
        super()._compute(parts)
        ((_, words),) = parts
        second, none = self.entry + self.step_of_entries, [builder.constant_zeros(each.type) for each in words]

        def loaded(entry: Index) -> Values:
            return builder.choose(entry < self.entries, lambda: self._load(entry), none)

        def turn(entry: Index, words: Values) -> list[Values]:
            self._quantise(entry, words)
            return [loaded(entry + self.step_of_entries)]

        builder.loop(self.entries, turn, loaded(second), start=second, step=self.step_of_entries)

    def _at(self, entry: Index) -> tuple[Index, Index]:
        return (entry // self.x_rows).here, entry % self.x_rows

    def _words_of_lane(self, words: int) -> list[Index]:
        """Returns where a lane's words begin: lanes load contiguous words at a time."""
        return [self.quarter * _LOAD + piece * (_LOAD * once.PARTS) for piece in range(_PIECES)]

    def _block(self, entry: Index, words: Values) -> Values:
        (part,) = builder.call(ACTIVATE, [builder.joined(words)], ir.VectorType.get([_OF_LANE], builder.i32_type()))
        own, pairs = [builder.element(part, number) for number in range(_OF_LANE)], _LOAD // len(GATE_AND_UP)
        each = product(range(_PIECES), range(once.PARTS), range(pairs))
        return [builder.of_quad(own[piece * pairs + i], lane) for piece, lane, i in each]


INSTANCES = tuple(
    Instance(tile, elements, Hidden, BITS)
    for tile, elements in product(TILES, product(once.ELEMENTS, once.ELEMENTS))
    if tile.fits(elements)
)
