"""Defines microscaling formats in NumPy; all other code takes their meaning from here.

>>> import numpy as np
>>> from mxcomp.formats import E2M1, dequantise, pack_bits, quantise
>>> x = np.linspace(-6, 6, 64, dtype=np.float32).reshape(1, 64)
>>> codes, scales = quantise(x, E2M1, "even")
>>> scales
array([[127, 127]], dtype=uint8)
>>> pack_bits(codes, E2M1).shape
(1, 32)
>>> dequantise(codes, scales, E2M1)[0, :4]
array([-6., -6., -6., -6.], dtype=float32)

Element codes are uint8, one per byte, until packed; scales are uint8 E8M0 codes, one per 32 elements along K.
"""

from mxcomp.formats.blocks import (
    BLOCK_FORMATS,
    E8M0,
    MX_BLOCK,
    BlockFormat,
    ScaleFormat,
    block_format,
    mx_format,
)
from mxcomp.formats.elements import (
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    ELEMENT_TYPES,
    FORMATS,
    UNLOADABLE,
    ElementFormat,
    decode,
    element_format,
    encode,
)
from mxcomp.formats.packing import pack_bits, unpack_bits
from mxcomp.formats.profiles import PROFILES
from mxcomp.formats.quantise import dequantise, matmul, quantise
from mxcomp.formats.scales import E8M0_BIAS, E8M0_NAN, SCALE_MODES, decode_e8m0, encode_e8m0
from mxcomp.formats.shuffle import shuffle_scale, shuffle_weight, unshuffle_scale, unshuffle_weight

__all__ = [
    "BLOCK_FORMATS",
    "E2M1",
    "E2M3",
    "E3M2",
    "E4M3",
    "E5M2",
    "E8M0",
    "E8M0_BIAS",
    "E8M0_NAN",
    "ELEMENT_TYPES",
    "FORMATS",
    "MX_BLOCK",
    "PROFILES",
    "SCALE_MODES",
    "UNLOADABLE",
    "BlockFormat",
    "ElementFormat",
    "ScaleFormat",
    "block_format",
    "decode",
    "decode_e8m0",
    "dequantise",
    "element_format",
    "encode",
    "encode_e8m0",
    "matmul",
    "mx_format",
    "pack_bits",
    "quantise",
    "shuffle_scale",
    "shuffle_weight",
    "unpack_bits",
    "unshuffle_scale",
    "unshuffle_weight",
]
