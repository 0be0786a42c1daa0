"""Functions that a dispatch brings with a kernel, the model's arithmetic and numbers, called by these names.

`mxcomp.packing.block_quantiser` writes them. Sums and quantisers of several operands have numbers behind their names.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Values
from mxcomp.ukernels.waves import BLOCK, MFMA

QUANTISE, ACTIVATE, SUM, NORMALISE = "quantise", "activate", "sum", "normalise"
"""The names of functions that quantise a block, make hidden activations, add up a part of a row, and normalise it."""
BLOCKS_IN_ROW, MULTIPLE = "blocks", "multiple"
"""The names of functions that return the blocks of a row, and of what so many rows are padded to a multiple."""

QUANTISE_ROW = f"{QUANTISE}0"
"""The name of the function that quantises a block of a row which is written to a cache."""

CODE_BYTES, _WORD_BITS = 16, 32
"""The bytes of a block's elements of 4 bits; and the bits of a word."""


def quantise_type() -> ir.FunctionType:
    """Returns the type of the function that quantises to 4 bits: words of a block, to codes and a scale."""
    words = ir.VectorType.get([BLOCK * 16 // _WORD_BITS], builder.i32_type())
    return ir.FunctionType.get([words], [builder.byte_vector(CODE_BYTES), ir.IntegerType.get_signless(8)])


def quantised(element: str, words: ir.Value, name: str = QUANTISE) -> Values:
    """Returns what the function that quantises makes of a block's words: elements of this type, and a scale."""
    kinds = builder.byte_vector(MFMA.lane_bytes(element)), ir.IntegerType.get_signless(8)
    return builder.call(name, [words], *kinds)


def packed_functions() -> dict[str, ir.FunctionType]:
    """Returns the types of what a kernel calls that packs what it quantises to 4 bits."""
    index = ir.IndexType.get()
    multiple, blocks = ir.FunctionType.get([index], [index]), ir.FunctionType.get([], [index])
    return {QUANTISE: quantise_type(), BLOCKS_IN_ROW: blocks, MULTIPLE: multiple}
