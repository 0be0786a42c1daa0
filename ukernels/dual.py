"""Ukernels for two matrices of one shape that activations are multiplied with: gate and up of an activation.

Gate and up of a gated MLP are such a pair. An instance is one of `quantising` with a second RHS and a second result:
both RHS are packed as for that one, so that it can take the place of two of them, and they its place. Operands are
words of activations, elements and scales of one RHS, and of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.ukernels import quantising, split_k
from mxcomp.ukernels.kernel import Kernel
from mxcomp.ukernels.waves import unit_layout

OPERANDS = "quantising_pair"
"""What the match rule calls operands of which the LHS are activations, and the RHS two."""


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile of each of both results, the types, and the bits of an activation."""

    @property
    def name(self) -> str:
        """For example mx_fused_quant16_dual_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512."""
        return self.single.name.replace(f"{self.bits}_", f"{self.bits}_dual_", 1)

    @property
    def single(self) -> quantising.Instance:
        """The one for one of both matrices."""
        return quantising.Instance(self.tile, self.elements, self.bits)

    @property
    def kernel(self) -> type[Kernel]:
        return QuantisingPair

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        x, *weights, acc = super().arguments()
        return x, *weights, *weights, acc, acc

    @property
    def operands(self) -> str:
        return OPERANDS


_SPILLING = ((32, 2),)
"""Bits of activations, and units along N, for which registers would be spilled."""


def _fits(single: quantising.Instance) -> bool:
    """Whether registers have room for twice the columns."""
    units = single.layout.units or (1, 1)
    if (single.bits, units[RHS]) in _SPILLING:
        return False
    wider = unit_layout(units[LHS], 2 * units[RHS])
    return split_k.Tile(wider, single.tile.benefit, waves=single.tile.waves).fits(single.elements)


INSTANCES = tuple(
    Instance(single.tile, single.elements, single.bits) for single in quantising.INSTANCES if _fits(single)
)
"""All of them."""


class QuantisingPair(quantising.Quantising):
    """Writes the kernel of an instance: activations are loaded and quantised once for both matrices.

    Results are two, of the same places, so that what makes one of them is fused behind.
    """

    results = 2
