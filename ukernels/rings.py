"""What LDS holds of units that the waves of a workgroup share: rings of steps, and K tiles of scales."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.layout import LHS, RHS
from mxcomp.target import GFX950
from mxcomp.ukernels.aliases import LANES, UNIT_PIECES
from mxcomp.ukernels.waves import HALF_STEPS, STEPS, Waves

LEAST_STAGES, _MOST_STAGES = 3, 8
"""Steps in a ring: what comes from HBM is then asked for early enough, whatever the tile."""

_HALF_SLOTS = 4
"""K tiles of half units whose scales LDS holds."""

COPIED_SCALES = 4
"""Scales that a lane copies to LDS at a time: a dword."""


@dataclass(frozen=True)
class Rings:
    """Those of a tile of so many units, of `steps` along K and of so many bytes a fragment of LHS and RHS in a lane."""

    units: tuple[int, int]
    steps: int
    fragment_bytes: tuple[int, int]
    waves: Waves

    @property
    def stages(self) -> int:
        """Steps in K."""
        return min(self._most_stages, self._room(self.scale_slots))

    @property
    def scale_slots(self) -> int:
        """K tiles whose scales LDS holds: two, or one where that gives a small ring another step.

        With more than four steps in flight scales of the next K tile would come too late for one. Half units have
        four: what is asked for in the last step of a tile is read in the last of the third behind it.
        """
        if self.steps == HALF_STEPS:
            return _HALF_SLOTS
        return 1 if self._room(2) < STEPS else 2

    @property
    def _most_stages(self) -> int:
        """As many as scales come in time for, where they are asked for in the second step of a half unit."""
        return _MOST_STAGES - (self.waves.meet if self.steps == HALF_STEPS else 0)

    def _room(self, scale_slots: int) -> int:
        """Steps for which LDS has room beside scales."""
        lhs, rhs = self.stage_bytes(LHS), self.stage_bytes(RHS)
        scales = sum(scale_slots * self.scale_bytes(side) for side in (LHS, RHS))
        return (GFX950.max_workgroup_memory_bytes // self.waves.beside - scales) // (lhs + rhs)

    def stage_bytes(self, side: int) -> int:
        """Of a step: units, and one more place for what waves without a share copy to."""
        return (self.units[side] + (not self.is_even(side))) * LANES * self.fragment_bytes[side]

    def scale_bytes(self, side: int) -> int:
        """Of the scales of a K tile, what waves without a share copy included."""
        return (self.scale_copies(side) + (not self.scales_are_even(side))) * LANES * COPIED_SCALES

    def is_even(self, side: int) -> bool:
        """Whether all waves copy as much of the elements of LHS or RHS."""
        pieces = self.units[side] * UNIT_PIECES[self.fragment_bytes[side]].count
        return pieces % self.waves.count == 0 and self.units[side] % self.waves.count == 0

    def scales_are_even(self, side: int) -> bool:
        """Whether all waves copy as much of their scales."""
        return self.scale_copies(side) % self.waves.count == 0

    @property
    def scale_span(self) -> int:
        """Units whose scales a wave copies at a time."""
        return max(1, COPIED_SCALES // self.steps)

    def scale_copies(self, side: int) -> int:
        """How often waves copy scales of LHS or RHS for a K tile."""
        return self.units[side] // self.scale_span
