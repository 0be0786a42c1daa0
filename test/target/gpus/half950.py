"""A GPU that there is not: half of gfx950's compute units, less LDS, and one matrix instruction less."""

from __future__ import annotations

from dataclasses import replace

from mxcomp.target import gfx950

TARGET = replace(
    gfx950.TARGET,
    name="half950",
    products=(),
    cus=128,
    xcds=4,
    lds_bytes=64 * 1024,
    matrix_instructions=tuple(each for each in gfx950.TARGET.matrix_instructions if not each.name.endswith("BF16")),
)
