"""Where lanes find in packed operands what they copy to LDS, which has it as it is multiplied: affine maps.

    lhs_of_pair: lane -> which of two units             lhs_copy_from: lane -> byte in a step of a unit
    lhs_copied: piece, from -> byte                     tile_index, step_index, half_index: indices of a buffer

Units are copied as they are. Where two are multiplied together (`pairs` of `mxcomp.layout`), by MFMA of 32x32x64, a
step is half of a fragment of each: what 32 of its lanes have in one piece, or all of them of 8-bit elements in the
first of two. A fragment of such an MFMA has 32 rows of a block one behind the other, the first 16 of which are of the
first unit.

Buffers have the dimensions of what is multiplied, [units, K tiles, steps, blocks, bytes], in which a block has as
many bytes as half a fragment of one unit: so K tiles and steps are counted in blocks. A place in the second unit is a
byte behind the first, as far away as a unit has bytes in all K tiles, which is not known here.

Of scales a lane has four in a unit, of a block in all steps. In LDS it has eight for MFMA of 32x32x64: those of the
even steps, which are its block of the first two, and then those of the odd steps, which are its block of the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from mxcomp.ukernels.aliases import LANES, UNIT_PIECES
from mxcomp.ukernels.waves import STEPS, UNIT_ROWS

COPIED_SCALES = 4
"""Scales that a lane copies to LDS at a time: a dword."""


def maps(lane_bytes: tuple[int, int], pairs: bool) -> Iterator[tuple[str, str]]:
    """The maps by name; `lane_bytes` are those of a fragment of LHS, and of RHS, in a lane."""
    kept, counted = ("0", f"tile * {STEPS * 2} + step") if pairs else ("index", "0")
    yield from (("tile_index", f"(index) -> ({kept})"), ("step_index", f"(index) -> ({kept})"))
    yield from (
        ("half_index", f"(tile, step) -> ({counted})"),
        ("scale_index", f"(tile) -> ({'tile' if pairs else 0})"),
    )
    yield "scale_of_step", f"(step) -> ({f'step mod 2 * {STEPS} + step floordiv 2' if pairs else 'step'})"
    for name, size in zip(("lhs", "rhs"), lane_bytes, strict=True):
        pieces = UNIT_PIECES[size]
        of_pair, copy_from, step = _paired(size) if pairs else ("0", f"lane * {pieces.lane}", pieces.step)
        yield f"{name}_of_pair", f"(lane) -> ({of_pair})"
        yield f"{name}_copy_from", f"(lane) -> ({copy_from})"
        yield f"{name}_copied", f"(piece, from) -> (piece * {step} + from)"
    of_pair, copy_from, step = _paired_scales() if pairs else ("0", f"lane * {COPIED_SCALES}", LANES * COPIED_SCALES)
    yield "scale_of_pair", f"(lane) -> ({of_pair})"
    yield "scale_copy_from", f"(lane) -> ({copy_from})"
    yield "scale_copied", f"(piece, from) -> (piece * {step} + from)"


def _paired(size: int) -> tuple[str, str, int]:
    pieces = UNIT_PIECES[size]
    has = f"lane * {pieces.lane} floordiv {pieces.read}"  # whose bytes a lane copies: its own, or half of what one has
    place = f"{has} floordiv 32 * {UNIT_ROWS * pieces.read} + {has} mod {UNIT_ROWS} * {pieces.read}"
    return f"{has} mod 32 floordiv {UNIT_ROWS}", f"{place} + lane * {pieces.lane} mod {pieces.read}", pieces.step // 2


def _paired_scales() -> tuple[str, str, int]:
    """A lane copies those of a lane in one parity of steps; a piece are the lanes of one of two blocks."""
    block = UNIT_ROWS * COPIED_SCALES
    copy_from = f"lane mod 2 * {2 * block} + lane floordiv 2 mod {UNIT_ROWS} * {COPIED_SCALES}"
    return "lane floordiv 32", copy_from, block
