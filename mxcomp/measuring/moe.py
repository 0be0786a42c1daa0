"""Layers of mixtures of experts as tables list them, and the two grouped matmuls of each, modelled."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp import routing
from mxcomp.errors import InputError
from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES, element_format
from mxcomp.matching.decision import DATA_TILED
from mxcomp.order import Order
from mxcomp.selection import grouped, times
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.ukernels import Registry, Ukernel
from mxcomp.ukernels.waves import UNIT_ROWS

SIZES = ("tokens", "model_dim", "inter_dim", "experts", "top_k")
TYPES = ("a_type", "w_type")
NAMES = ("model", "activation")
PUBLISHED = ("us_gemm1", "us_gemm2")
PEERS = ("peer_us_gemm1", "peer_us_gemm2")
BLOCK_M = tuple(routing.MEANS)
"""Rows of a block: the M of a ukernel's tile, or few of its rows."""
_RESULT_BYTES = 2
"""Of bf16."""


@dataclass(frozen=True)
class Layer:
    """What a line of a table asks for: sizes of the layer, and types of activations and weights."""

    model: str
    activation: str
    tokens: int
    model_dim: int
    inter_dim: int
    experts: int
    top_k: int
    a_type: str
    w_type: str


@dataclass(frozen=True)
class Row:
    """A line: its number, from 1, and what it has of published times and of a peer's in the same model, else None."""

    line: int
    layer: Layer
    published: tuple[float | None, float | None] = (None, None)
    peer: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a line."""

    line: int
    message: str


@dataclass(frozen=True)
class Entry(Layer):
    """A layer and its modelled times.

    Attributes:
        block_m, blocks, active_experts: Rows of a block, blocks with a token, and experts with one, as expected.
        ours_us_gemm1: Modelled µs of gate and up.
        ours_us_gemm2: Of down, and of the sum over a token's experts.
        low, high: µs of both, between which 80 % of measurements of such estimates lay.
        bound: What binds the longer of the two.
        published_us: The table's µs of both.
        peer_us: µs of a peer's kernels for both, in the same model, where the table has them.
    """

    block_m: int
    blocks: int
    active_experts: int
    kernel_gemm1: str
    kernel_gemm2: str
    ours_us_gemm1: float
    ours_us_gemm2: float
    low: float
    high: float
    bound: str
    bound_gemm1: str
    bound_gemm2: str
    published_us_gemm1: float | None = None
    published_us_gemm2: float | None = None
    published_us: float | None = None
    peer_us: float | None = None

    @property
    def layer(self) -> Layer:
        return Layer(**{each.name: getattr(self, each.name) for each in fields(Layer)})

    @property
    def ours_us(self) -> float:
        return self.ours_us_gemm1 + self.ours_us_gemm2


def read(path: Path) -> tuple[list[Row], list[Fault]]:
    """Rows and faulty lines. Raises InputError for a file that is no such table."""
    needed = (*SIZES, *TYPES)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file)
            names = [name.strip() for name in lines.fieldnames or ()]
            lines.fieldnames = names
            if missing := [name for name in needed if name not in names]:
                raise InputError(
                    f"{path}:1: no column {', '.join(missing)}: expected {','.join(needed)} and perhaps "
                    f"{','.join((*NAMES, *PUBLISHED, *PEERS))}"
                )
            found = [_row(lines.line_num, each) for each in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return [row for row in found if isinstance(row, Row)], [row for row in found if isinstance(row, Fault)]


def _row(line: int, given: Mapping[str, str | None]) -> Row | Fault:
    values = {name: (given.get(name) or "").strip() for name in (*SIZES, *TYPES, *NAMES, *PUBLISHED, *PEERS)}
    try:
        sizes: dict[str, Any] = {name: int(values[name]) for name in SIZES}
    except ValueError:
        found = ",".join(values[name] for name in SIZES)
        return Fault(line, f"{found}: expected whole numbers {','.join(SIZES)}")
    layer = Layer(**sizes | {name: values[name] for name in (*TYPES, *NAMES)})
    if message := _unfit(layer):
        return Fault(line, message)
    try:
        us = [float(values[name]) if values[name] else None for name in (*PUBLISHED, *PEERS)]
    except ValueError:
        found = ",".join(values[name] for name in (*PUBLISHED, *PEERS))
        return Fault(line, f"{found}: expected numbers or nothing for {','.join((*PUBLISHED, *PEERS))}")
    return Row(line, layer, (us[0], us[1]), (us[2], us[3]))


def _unfit(layer: Layer) -> str:
    """What is wrong with a layer, or ""."""
    if min(getattr(layer, name) for name in SIZES) < 1:
        found = ",".join(f"{name}={getattr(layer, name)}" for name in SIZES)
        return f"sizes of {found}: expected 1 and more"
    if layer.top_k > layer.experts:
        return f"top_k of {layer.top_k} with {layer.experts} experts: expected {layer.experts} at most"
    for name in TYPES:
        if (kind := getattr(layer, name)) not in ELEMENT_TYPES:
            return f"{name} is {kind}: expected {', '.join(ELEMENT_TYPES)}"
    for name in ("model_dim", "inter_dim"):
        if getattr(layer, name) % BLOCK_SIZE:
            return f"{name} is {getattr(layer, name)}: expected a multiple of {BLOCK_SIZE}"
    return ""


@dataclass(frozen=True)
class _Choice:
    """A ukernel for one of the matmuls, with its best order of workgroups and the µs of what it does."""

    ukernel: Ukernel
    known: times.KernelTimes
    work: grouped.Work
    order: Order
    us: float
    reduction_us: float = 0.0

    @property
    def whole_us(self) -> float:
        return self.us + self.reduction_us

    @property
    def interval(self) -> tuple[float, float]:
        pairs = [mi355x().interval(us) for us in (self.us, self.reduction_us) if us]
        low, high = (sum(values) for values in zip(*pairs, strict=True))
        return low, high

    @property
    def bound(self) -> str:
        if self.reduction_us > self.us:
            return "reduction"
        return grouped.bound(self.known, self.ukernel.tile, self.work, self.order)


def modelled(rows: Sequence[Row]) -> list[tuple[Row, Entry | Fault]]:
    """The fastest ukernels and rows of a block for each layer, by modelled time: a task."""
    return list(_modelled(rows))


def _modelled(rows: Iterable[Row]) -> Iterator[tuple[Row, Entry | Fault]]:
    with ir.Context(), ir.Location.unknown():
        ukernels = list(Registry("gfx950").ukernels.values())
    for row in rows:
        pairs = {block_m: pair for block_m in BLOCK_M if (pair := _pair(row.layer, block_m, ukernels))}
        if pairs:
            best = min(pairs, key=lambda block_m: sum(each.whole_us for each in pairs[block_m]))
            yield row, _entry(row, best, *pairs[best])
        else:
            types = " × ".join(getattr(row.layer, name) for name in TYPES)
            yield row, Fault(row.line, f"no ukernel with known times for {types}")


def _pair(layer: Layer, block_m: int, ukernels: Iterable[Ukernel]) -> tuple[_Choice, _Choice] | None:
    """The fastest for gate and up, and for down; None where there is none with this M."""
    blocks = grouped.expected(layer.tokens, layer.experts, layer.top_k, block_m)
    types = (layer.a_type, layer.w_type)
    quantised = (element_format(layer.a_type).bits + 8 / BLOCK_SIZE) / 8
    up = grouped.Work(blocks, 2 * layer.inter_dim, layer.model_dim, types, layer.tokens, quantised / 2)
    down = grouped.Work(blocks, layer.model_dim, layer.inter_dim, types, blocks.slots, _RESULT_BYTES)
    summed = grouped.reduction_us(blocks.slots, layer.tokens, layer.model_dim) if layer.top_k > 1 else 0.0
    fitting = [
        ukernel
        for ukernel in ukernels
        if ukernel.operands == DATA_TILED and ukernel.types[:2] == types and _takes(ukernel, block_m)
    ]
    first, second = _fastest(fitting, up), _fastest(fitting, down)
    return None if first is None or second is None else (first, replace(second, reduction_us=summed))


def _takes(ukernel: Ukernel, block_m: int) -> bool:
    """Whether a ukernel is for blocks of so many rows, and has no tile for twice as many."""
    bounds = ukernel.constraints.get("m")
    fits = bounds is None or not bounds.violation("M", block_m)
    return fits and ukernel.tile[0] == max(block_m, UNIT_ROWS)


def _fastest(ukernels: Iterable[Ukernel], work: grouped.Work) -> _Choice | None:
    """Of the ukernels that take K of a matmul, and whose times are known."""
    choices = [
        _Choice(ukernel, known, work, *grouped.ordered(known, ukernel.tile, work))
        for ukernel in ukernels
        if (known := times.of(ukernel)) is not None and not ukernel.constraints["k"].violation("K", work.k)
    ]
    return min(choices, key=lambda each: each.us, default=None)


def _entry(row: Row, block_m: int, first: _Choice, second: _Choice) -> Entry:
    low, high = (a + b for a, b in zip(first.interval, second.interval, strict=True))
    bounds = first.bound, second.bound
    made = Entry(
        **asdict(row.layer),
        block_m=block_m, blocks=first.work.blocks.valid, active_experts=first.work.blocks.active,
        kernel_gemm1=first.ukernel.name, kernel_gemm2=second.ukernel.name,
        ours_us_gemm1=round(first.whole_us, 3), ours_us_gemm2=round(second.whole_us, 3),
        low=round(low, 3), high=round(high, 3), bound=bounds[second.whole_us > first.whole_us],
        bound_gemm1=bounds[0], bound_gemm2=bounds[1],
    )  # fmt: skip
    return beside(made, row)


def beside(entry: Entry, row: Row) -> Entry:
    """An entry with what a line says of others."""
    first, second = row.published
    both, peer = _sum(row.published), _sum(row.peer)
    return replace(entry, published_us_gemm1=first, published_us_gemm2=second, published_us=both, peer_us=peer)


def _sum(us: tuple[float | None, float | None]) -> float | None:
    """Of both, where both are there and not nothing: a table has 0 for a second matmul that is part of the first."""
    first, second = us
    return None if first is None or second is None or first + second <= 0 else round(first + second, 3)
