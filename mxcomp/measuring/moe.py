"""Models layers of mixtures of experts as tables list them, by the two grouped matmuls of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp import routing
from mxcomp.formats import ELEMENT_TYPES, MX_BLOCK
from mxcomp.registry import Registry
from mxcomp.selection import layers
from mxcomp.selection.layers import Product, Sizes, fastest, us_of
from mxcomp.support import lines
from mxcomp.support.lines import Fault
from mxcomp.target import DEFAULT, get_target
from mxcomp.ukernels.weight_only import ACTIVATIONS

SIZES = ("tokens", "model_dim", "inter_dim", "experts", "top_k")
TYPES = ("a_type", "w_type")
NAMES = ("model", "activation")
PUBLISHED = ("us_gemm1", "us_gemm2")
PEERS = ("peer_us_gemm1", "peer_us_gemm2")
BLOCK_M = tuple(routing.MEANS)
"""The numbers of rows of a block: the M of a ukernel's tile, or fewer rows of it."""


@dataclass(frozen=True)
class _Names:
    model: str
    activation: str


@dataclass(frozen=True)
class Layer(Sizes, _Names):
    """A layer that a line of a table describes: names, then sizes of the layer and types of activations and weights."""


@dataclass(frozen=True)
class Row:
    """A line: its number, from 1, and published times and times of a peer in the same model, or None.

    `quantises`: its only token is quantised by the product of gate and up, a dispatch less than where it is before.
    """

    line: int
    layer: Layer
    published: tuple[float | None, float | None] = (None, None)
    peer: tuple[float | None, float | None] = (None, None)
    quantises: bool = False


@dataclass(frozen=True)
class Entry(Layer):
    """A layer and its modelled times.

    Attributes:
        block_m, blocks, active_experts: Rows of a block, blocks with a token, and experts with one, as expected.
        ours_us_gemm1: Modelled µs of gate and up, and of all that makes operands of down of them.
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
    """Returns rows and faulty lines. Raises InputError for a file that is no such table."""
    rows, faults, _ = lines.read(path, (*SIZES, *TYPES), (*NAMES, *PUBLISHED, *PEERS), _row)
    return rows, faults


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
    return Row(line, layer, (us[0], us[1]), (us[2], us[3]), quantises=layer.tokens == 1)


def _unfit(layer: Layer) -> str:
    """Returns why a layer is not supported, or ""."""
    if min(getattr(layer, name) for name in SIZES) < 1:
        found = ",".join(f"{name}={getattr(layer, name)}" for name in SIZES)
        return f"sizes of {found}: expected 1 and more"
    if layer.top_k > layer.experts:
        return f"top_k of {layer.top_k} with {layer.experts} experts: expected {layer.experts} at most"
    for name in TYPES:
        known = (*ELEMENT_TYPES, *([ACTIVATIONS] if name == "a_type" else []))
        if (kind := getattr(layer, name)) not in known:
            return f"{name} is {kind}: expected {', '.join(known)}"
    for name in ("model_dim", "inter_dim"):
        if getattr(layer, name) % MX_BLOCK:
            return f"{name} is {getattr(layer, name)}: expected a multiple of {MX_BLOCK}"
    return ""


def modelled(rows: Sequence[Row]) -> list[tuple[Row, Entry | Fault]]:
    """Returns the fastest ukernels and rows of a block for each layer, by modelled time; a task for workers."""
    return list(_modelled(rows))


def _modelled(rows: Iterable[Row]) -> Iterator[tuple[Row, Entry | Fault]]:
    with ir.Context(), ir.Location.unknown():
        ukernels = Registry(get_target(DEFAULT)).ukernels
    for row in rows:
        pairs = {block_m: pair for block_m in BLOCK_M if (pair := fastest(row.layer, block_m, ukernels))}
        if pairs:
            best = min(pairs, key=lambda block_m: us_of(pairs[block_m]))
            up, down = pairs[best]
            if row.quantises:
                layer = layers.Layer(row.layer, up.work.blocks, 1, ukernels)
                found = layers.better((layer.quantising_up() or up, down), layer.of_token())
                up, down = found or (up, down)
            yield row, _entry(row, best, up, down)
        else:
            types = " × ".join(getattr(row.layer, name) for name in TYPES)
            yield row, Fault(row.line, f"no ukernel with known times for {types}")


def _entry(row: Row, block_m: int, first: Product, second: Product) -> Entry:
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
    return with_published(made, row)


def with_published(entry: Entry, row: Row) -> Entry:
    """Returns an entry with the published times of a line."""
    first, second = row.published
    both, peer = _sum(row.published), _sum(row.peer)
    return replace(entry, published_us_gemm1=first, published_us_gemm2=second, published_us=both, peer_us=peer)


def _sum(us: tuple[float | None, float | None]) -> float | None:
    """Returns the sum of both times, if both are given and not 0: a table has 0 for a second matmul that is part of the
    first."""
    first, second = us
    return None if first is None or second is None or first + second <= 0 else round(first + second, 3)
