"""Reads keys and values as a cache has them: of 16 bits, or narrow and converted in registers, with scales of blocks.

Of a row of keys a lane loads pieces as long as a load can be, whichever elements of a row these are: queries are loaded
alike. Narrow elements are carried as words, and become those of queries just before they are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention import COLUMNS, Pieces, load_row
from mxcomp.ukernels.attention_memory import LANE, Operand
from mxcomp.ukernels.builder import Index, Values, element, select
from mxcomp.ukernels.conversions import exponent, extended
from mxcomp.ukernels.softmax import number


class Cache:
    """Keys or values of a head, which are multiplied as elements of a type."""

    def __init__(self, operands: Sequence[Operand], kind: str, head: Index, page: int) -> None:
        """Takes elements and perhaps scales; `page` is the number of keys in each page, if they are in pages."""
        self._operands, self._kind, self._page = operands, kind, page
        self.stored = operands[0].stored
        self.starts = [each.place(n=head).here for each in operands]

    def row(self, key: Index, is_there: ir.Value, pages: Values) -> list[Index]:
        """Returns where the row of a key begins, and its scales; nowhere if it is not there.

        Of a cache in pages the row is in the first of these.
        """
        rows = []
        within = key % self._page if self._page else key
        for each, first in zip(self._operands, self.starts, strict=True):
            start = first
            if self._page:
                start = start + builder.unsigned(pages[0]) * each.stored.step("p")
            rows.append((select(is_there, start, each.beyond) + within * each.step).here)
        return rows

    def load(self, row: Sequence[Index], at: Index, count: int) -> Values:
        """Loads so many elements of a row: words, and perhaps a scale."""
        elements, *scales = self._operands
        packed = 8 // self.stored.bits or 1
        loaded = elements.load(row[0] + at // packed, count // packed)
        if not self.stored.format:
            return [loaded]
        return [_words(loaded), *(_words(each.load(row[1] + at // BLOCK, 1)) for each in scales)]

    def converted(self, loaded: Values, count: int) -> ir.Value:
        """Returns what was loaded as elements of the type that is multiplied."""
        if not self.stored.format:
            return loaded[0]
        scale = exponent(element(loaded[1], 0)) if loaded[1:] else number(1.0)
        return builder.part(extended(loaded[0], scale, self.stored.format, self._kind), 0, count)

    def load_row(self, row: Sequence[Index], quarter: Index, size: int) -> list[Values]:
        """Loads a lane's pieces of a row of keys."""
        each = self.stored.piece(size)
        return list(load_row(quarter, size, each, lambda at: self.load(row, at, each)))

    def factors(self, loaded: list[Values], size: int) -> Values:
        """Returns factors of the first product from the pieces of a row."""
        each = self.stored.piece(size)
        return [builder.part(x, i, LANE) for x in self.values(loaded, each) for i in range(0, each, LANE)]

    def load_values(self, rows: Sequence[Sequence[Index]], column: Index, pieces: Pieces) -> list[Values]:
        """Loads a lane's part of the values of eight keys, piece by piece."""
        width = pieces.width
        starts = [column * width + number_ * width * COLUMNS for number_ in range(pieces.count)]
        return [self.load(row, start, width) for start in starts for row in rows]

    def values(self, loaded: list[Values], count: int) -> Values:
        """Returns what was loaded, so many elements at a time."""
        return [self.converted(each, count) for each in loaded]


def _words(loaded: ir.Value) -> ir.Value:
    """Returns bytes as a vector of i32: LLVM would carry single bytes."""
    count = ir.VectorType(loaded.type).shape[0]
    if count % 4 == 0:
        return builder.words(loaded)
    whole = element(builder.bitcast(loaded, f"i{8 * count}", 1), 0)
    return builder.from_elements([arith.ExtUIOp(builder.i32_type(), whole).result])
