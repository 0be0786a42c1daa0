"""Says what each tile of the ukernels is worth: how much slower a basket of problems is without it, modelled.

    python benchmarks/basket.py                    # each tile: slower by, in geometric mean and at worst
    python benchmarks/basket.py --fix FILE.csv     # writes each problem's shortest time, for the test to compare with

A tile that costs less than 0.2 % in geometric mean, and no problem more than 5 %, when it goes does not earn its place.
It also says how many ukernels there have to be at least: so many problems have none within 5 % in common.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

from iree.compiler import ir

from mxcomp import routing
from mxcomp.formats import ELEMENT_TYPES, element_format
from mxcomp.layout import LHS, RHS
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.matching.weight_only import fitting
from mxcomp.options import Options
from mxcomp.plans import requantised as in_tiles
from mxcomp.plans import row_operand
from mxcomp.plans.weight_only import in_tiles_us
from mxcomp.registry import Registry
from mxcomp.selection import layers, quantising, versions
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import RESULT, UNKNOWN
from mxcomp.support import files, workers
from mxcomp.ukernels import quantising as quantising_ukernels

DATA = Path(__file__).parent / "data"

ELEMENTS = tuple({element_format(kind).bits: kind for kind in reversed(ELEMENT_TYPES)}.values())[::-1]
"""One of each width: those of as many bits take the same time."""

ROWS = (1, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192)
WEIGHTS = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (57344, 8192), (8192, 28672), (5120, 2880), (2880, 4096),
    (7168, 2048), (2112, 7168), (24576, 1536), (1024, 1024),
)  # fmt: skip
"""N and K: of Llama 3 8B and 70B, GPT-OSS, DeepSeek V3, and a small one."""
EXPERTS = ((2880, 2880, 32, 4), (7168, 2048, 256, 8), (4096, 1536, 128, 8))
"""Model and hidden dimensions, experts, and how many a token has."""
TOKENS = (1, 8, 64, 512, 4096)
SEED = (10000, 16384, 16384)

_LONGER = 1.05
"""What a problem may take at most without a ukernel, in its shortest times."""
_FEW, _MANY = 128, 256
"""Rows up to which a matmul's ukernel may quantise, and from which on operands may be read as they are stored."""
Names: TypeAlias = frozenset[str]
Way: TypeAlias = tuple[float, Names]
"""Modelled µs, and the names of the ukernels that it takes."""


class Cell(NamedTuple):
    """A problem of the basket: what is done, by sizes and element types."""

    kind: str
    sizes: tuple[int | None, ...]
    types: tuple[str, ...]
    result_bytes: int

    @property
    def line(self) -> tuple[str, str, str, int]:
        sizes = "x".join("?" if size is None else str(size) for size in self.sizes)
        return self.kind, sizes, " ".join(self.types), self.result_bytes

    @property
    def problem(self) -> Problem:
        m, n, k = self.sizes
        return Problem(m, n, k, (*self.types, *SCALES_AND_RESULT))


@cache
def _registry() -> Registry:
    with ir.Context():
        return Registry(Options.make().target)


def cells() -> Iterator[Cell]:
    """The whole basket."""
    for pair, (n, k) in product(product(ELEMENTS, ELEMENTS), WEIGHTS):
        for m, size in product(ROWS, (2, 4)):
            yield Cell("plain", (m, n, k), pair, size)
        yield from (Cell("dynamic", (rows.max_m, n, k), pair, 2) for rows in versions.RANGES)
        few, many = [m for m in ROWS if m <= _FEW], [m for m in ROWS if m >= _MANY]
        yield from (Cell(kind, (m, n, k), pair, 2) for kind, m in product(("row-major A", "row-major B"), many))
        yield from (Cell(f"{kind} f{bits}", (m, n, k), pair, 2)
                    for kind, bits, m in product(("quantising", "dual"), (16, 32), few))  # fmt: skip
        yield from (Cell("requantised", (m, n, k), pair, 4) for m in many)
    for element, (n, k), m in product(ELEMENTS, WEIGHTS, ROWS):
        yield Cell("weight-only", (m, n, k), (element, element), 2)
    with (DATA / "mi355x_mxfp4_gemm.csv").open() as lines:
        published = {tuple(int(row[axis]) for axis in "mnk") for row in csv.DictReader(lines)}
    for sizes in (SEED, *sorted(published)):
        yield Cell("plain", sizes, (ELEMENTS[0], ELEMENTS[0]), 2)
    with (DATA / "mi355x_mx_moe.csv").open() as lines:
        found = {(tuple(int(row[name]) for name in ("tokens", "model_dim", "inter_dim", "experts", "top_k")),
                  (row["a_type"], row["w_type"])) for row in csv.DictReader(lines)}  # fmt: skip
    own = {((tokens, *sizes), pair) for tokens, sizes, pair in product(TOKENS, EXPERTS, product(ELEMENTS, ELEMENTS))}
    yield from (Cell("grouped", sizes, pair, 2) for sizes, pair in sorted(found | own))


def _plain(cell: Cell) -> list[Way]:
    ranked = fastest(cell.problem, _registry(), cell.result_bytes)
    return [(each.us, frozenset({each.ukernel.name})) for each in ranked]


def _dynamic(cell: Cell) -> Iterable[Way]:
    """One kernel computes a range of rows: any that takes what is packed for the best of all."""
    problem = replace(cell.problem, m=None)
    ranked = versions.Ranked(problem, fastest(problem, _registry(), cell.result_bytes), cell.result_bytes)
    rows = next(each for each in versions.RANGES if each.max_m == cell.sizes[0])
    return ((each.mean, frozenset({each.candidate.ukernel.name})) for each in versions.timed(ranked, rows))


def _row_major(cell: Cell, side: int) -> Iterator[Way]:
    """One of the operands read as it is stored, or packed in front."""
    problem = cell.problem
    packing_us = row_operand.packing_us(_registry().target, problem, side)
    yield from ((us + packing_us, names) for us, names in _plain(cell))
    for each in row_operand.candidates(problem, side, _registry(), Options.make(), cell.result_bytes):
        yield each.us, frozenset({each.ukernel.name})


def _quantising(cell: Cell) -> Iterator[Way]:
    """Activations quantised in the matmul's kernel, or in a dispatch in front."""
    bits = int(cell.kind.split(" f")[1])
    yield from (
        (us + quantising.separate_us(_registry().target, cell.problem, bits), names) for us, names in _plain(cell)
    )
    yield from _itself(cell, bits, quantising_ukernels.SINGLES, cell.result_bytes)


def _dual(cell: Cell) -> Iterator[Way]:
    """Two matmuls of the same activations, in one kernel or each in its own."""
    bits = int(cell.kind.split(" f")[1])
    separate_us = quantising.separate_us(_registry().target, cell.problem, bits)
    yield from ((2 * us + separate_us, names) for us, names in _plain(cell))
    yield from ((2 * us, names) for us, names in _itself(cell, bits, quantising_ukernels.SINGLES, cell.result_bytes))
    yield from _itself(cell, bits, quantising_ukernels.PAIRS, cell.result_bytes)


def _itself(cell: Cell, bits: int, instances: Iterable[quantising_ukernels.Instance], size: int) -> Iterator[Way]:
    for each in instances:
        if quantising.takes(each, cell.problem, bits):
            us = quantising.modelled_us(_registry()[each.name], cell.problem, size)
            if us != UNKNOWN:
                yield us, frozenset({each.name})


def _requantised(cell: Cell) -> Iterator[Way]:
    us = in_tiles.in_tile_us(_registry(), cell.problem, cell.result_bytes, RESULT)
    if us != UNKNOWN:
        yield us, frozenset({in_tiles.instance_of(cell.problem.flipped.types).name})


def _weight_only(cell: Cell) -> Iterator[Way]:
    problem = cell.problem
    for each in fitting(cell.types[1], problem.m or 0, problem.n or 0, problem.k or 0):
        if (us := in_tiles_us(each, problem, _registry(), cell.result_bytes)) != UNKNOWN:
            yield us, frozenset({each.name})


_KINDS: Mapping[str, Callable[[Cell], Iterable[Way]]] = {
    "plain": _plain,
    "dynamic": _dynamic,
    "row-major A": lambda cell: _row_major(cell, LHS),
    "row-major B": lambda cell: _row_major(cell, RHS),
    "quantising": _quantising,
    "dual": _dual,
    "requantised": _requantised,
    "weight-only": _weight_only,
}


@lru_cache(maxsize=1)
def _ways(cell: Cell) -> list[Way]:
    """All ways to compute a problem, the fastest first."""
    return sorted(_KINDS[cell.kind.partition(" f")[0]](cell), key=lambda way: way[0])


def _grouped(cell: Cell, without: Names) -> Way | None:
    """An experts' layer, with blocks of as many rows as are fastest."""
    sizes = layers.Sizes(*(size or 0 for size in cell.sizes), *cell.types)
    ukernels = {name: each for name, each in _registry().ukernels.items() if name not in without}
    pairs = filter(None, (layers.fastest(sizes, block_m, ukernels) for block_m in routing.MEANS))
    found = min(pairs, key=layers.us_of, default=None)
    return None if found is None else (layers.us_of(found), frozenset(each.ukernel.name for each in found))


def best(cell: Cell, without: Names = frozenset()) -> Way | None:
    """The fastest way to compute a problem, with none of the ukernels `without`; None where there is none."""
    if cell.kind == "grouped":
        return _grouped(cell, without)
    return next((way for way in _ways(cell) if not way[1] & without), None)


def tile_of(name: str) -> str:
    """What a ukernel's name says apart from element types."""
    return _ELEMENTS.sub("", name)


_ELEMENTS = re.compile("_(" + "|".join(ELEMENT_TYPES) + ")")


@dataclass(frozen=True)
class Found:
    """A problem's shortest time, the ukernels of it, those that are as fast (not of grouped ones), and, for each tile,
    how many times longer it takes without."""

    cell: Cell
    us: float
    ukernels: Names
    as_fast: Names
    slower: Mapping[str, float]


@cache
def _instances() -> Mapping[str, Names]:
    """Names of ukernels by their tile."""
    found = defaultdict(set)
    for name in _registry().ukernels:
        found[tile_of(name)].add(name)
    return {tile: frozenset(names) for tile, names in found.items()}


def examined(cell: Cell) -> Found | None:
    """A problem with what each tile is worth to it; None where no ukernel computes it."""
    way = best(cell)
    if way is None:
        return None
    us, names = way
    others = {tile: best(cell, _instances()[tile]) for tile in map(tile_of, names)}
    slower = {tile: math.inf if other is None else other[0] / us for tile, other in others.items()}
    return Found(cell, us, names, as_fast(cell), slower)


def as_fast(cell: Cell) -> Names:
    """Returns the ukernels of which a problem that is no grouped one needs one, or it takes more than 5 % longer."""
    ways = [] if cell.kind == "grouped" else _ways(cell)
    return frozenset[str]().union(*(names for us, names in ways if us <= _LONGER * ways[0][0]))


def least(problems: Iterable[tuple[Cell, Names]]) -> tuple[int, int]:
    """Returns how many ukernels there have to be, of elements of each width and of each type.

    Of problems that have none in common that are as fast, each needs another one. An MFMA names its formats, so another
    type is other code.
    """
    taken: set[str] = set()
    found = []
    for cell, names in sorted(problems, key=lambda each: len(each[1])):
        if names and taken.isdisjoint(names):
            taken |= names
            found.append(math.prod(map(_alike, cell.types[1:] if cell.kind == "weight-only" else cell.types)))
    return len(found), sum(found)


def _alike(element: str) -> int:
    """Returns how many element types have as many bits."""
    return sum(element_format(each).bits == element_format(element).bits for each in ELEMENT_TYPES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", type=Path, metavar="FILE", help="where each problem's shortest time is written to")
    args = parser.parse_args()
    with workers.pool() as executor:
        found = [each for each in executor.map(examined, dict.fromkeys(cells()), chunksize=64) if each is not None]
    if args.fix:
        rows = [dict(zip(COLUMNS, (*each.cell.line, f"{each.us:.2f}"), strict=True)) for each in found]
        files.write({args.fix: files.table(COLUMNS, rows).encode()})
    slower: dict[str, list[float]] = defaultdict(list)
    for each in found:
        for tile, times_longer in each.slower.items():
            slower[tile].append(times_longer)
    taken = frozenset[str]().union(*(each.ukernels for each in found))
    by_widths, by_types = least((each.cell, each.as_fast) for each in found)
    print(f"{len(found)} problems, {len(taken)} ukernels; at least {by_widths}, {by_types} with all types\n")
    print("| tile | fastest for | slower without | at worst |\n|---|---|---|---|")
    for tile in sorted(_instances(), key=lambda tile: sum(map(math.log, slower[tile]))):
        mean = math.exp(sum(map(math.log, slower[tile])) / len(found)) - 1
        print(f"| {tile} | {len(slower[tile])} | {mean:.3%} | {max(slower[tile], default=1.0) - 1:.1%} |")
    return 0


COLUMNS = ("kind", "sizes", "types", "result_bytes", "us")

if __name__ == "__main__":
    sys.exit(main())
