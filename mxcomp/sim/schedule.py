"""The order in which the waves of a workgroup run between barriers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Order = Literal["forward", "reverse", "random"]

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")
_UNTIL_BARRIER = 1 << 62

Turns = Callable[[Sequence[int]], Iterator[tuple[int, int]]]
"""Yields one turn, (wave, instructions at most), for each wave that can run."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order in which waves take turns.

    random: turns of 1 to 64 instructions of waves picked at random; the same seed and workgroup give the same turns.
    """

    order: Order = "forward"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"schedule '{self.order}': expected one of {', '.join(ORDERS)}")

    def turns(self, workgroup: Sequence[int]) -> Turns:
        """Returns what gives out the turns of a round in a workgroup. Rounds go on until no wave can run."""
        source = random.Random(f"{self.seed} {tuple(workgroup)}")

        def turns(waves: Sequence[int]) -> Iterator[tuple[int, int]]:
            if self.order == "random":
                for wave in source.sample(list(waves), len(waves)):
                    yield wave, source.randint(1, 64)
            else:
                for wave in sorted(waves, reverse=self.order == "reverse"):
                    yield wave, _UNTIL_BARRIER

        return turns
