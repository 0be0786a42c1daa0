"""Functions that a dispatch brings with a kernel, the model's arithmetic and numbers, called by these names.

`mxcomp.packing.block_quantiser` writes them. Sums and quantisers of several operands have numbers behind their names.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Values
from mxcomp.ukernels.waves import MFMA

QUANTISE, ACTIVATE, SUM, NORMALISE = "quantise", "activate", "sum", "normalise"
"""The names of functions that quantise a block, make hidden activations, add up a part of a row, and normalise it."""
BLOCKS_IN_ROW, MULTIPLE = "blocks", "multiple"
"""The names of functions that return the blocks of a row, and of what so many rows are padded to a multiple."""

QUANTISE_ROW = f"{QUANTISE}0"
"""The name of the function that quantises a block of a row which is written to a cache."""

CODE_BYTES = 16
"""The bytes of a block's elements of 4 bits."""


def quantised(element: str, words: ir.Value, name: str = QUANTISE) -> Values:
    """Returns what the function that quantises makes of a block's words: elements of this type, and a scale."""
    kinds = builder.byte_vector(MFMA.lane_bytes(element)), ir.IntegerType.get_signless(8)
    return builder.call(name, [words], *kinds)
