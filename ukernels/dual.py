"""Dual GEMM ukernels: activations times two matrices of one shape, gate and up.

Gate and up of a gated MLP are such a pair. An instance is one of `quantising` with a second RHS and a second result.
Both RHS are packed as for that one, so that a dual kernel and two single ones are interchangeable. Operands are words
of activations, elements and scales of one RHS, and of the other.
"""

from __future__ import annotations

from dataclasses import replace

from mxcomp.layout import RHS
from mxcomp.ukernels import quantising
from mxcomp.ukernels.quantising import Instance
from mxcomp.ukernels.waves import unit_layout

_SPILLING = ((32, 2),)
"""The bits of activations, and units along N, with which registers would spill."""


def _fits(single: Instance) -> bool:
    """Returns whether registers have room for twice the columns."""
    units = single.tile.units[RHS]
    wider = replace(single.tile, layout=unit_layout(1, 2 * units))
    return (single.bits, units) not in _SPILLING and wider.fits(single.elements)


class QuantisingPair(quantising.Quantising):
    """Writes the kernel of an instance: activations are loaded and quantised once for both matrices.

    Results are two, of the same places, so that what makes one of them is fused behind.
    """

    operands, prefix, results = "quantising_pair", "mx_fused_quant{}_dual_", 2
    single = quantising.Quantising


INSTANCES = tuple(replace(single, kernel=QuantisingPair) for single in quantising.INSTANCES if _fits(single))


def single(pair: Instance) -> Instance:
    """Returns the instance for one of both matrices."""
    return replace(pair, kernel=pair.kernel.single)
