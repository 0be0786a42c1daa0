"""Models the time of a problem with a ukernel, from a table of replays, without compiling anything.

`kernel_times.csv` has cycles of workgroups for ukernels of the family, at a few K, latencies and rates of memory
(`benchmarks/kernel_times.py` writes it). Cycles are interpolated linearly in K, in latency, and in the inverse of the
rate. The grid and the order determine the data that workgroups share (`sharing`); the chip's formulas are those of
`mxcomp.sim.timing.chip`.
"""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mxcomp.formats import E8M0, ELEMENT_TYPES, MX_BLOCK, element_format
from mxcomp.layout import LHS
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.registry import Ukernel
from mxcomp.selection.sharing import Shared, batches, orders
from mxcomp.sim.timing.chip import Batch, Floats, Launch, Launches, Rates, modelled_us
from mxcomp.sim.timing.parameters import Parameters, parameters_of
from mxcomp.support.lazy import Lazy
from mxcomp.target import Target
from mxcomp.ukernels.family import Instance

FILE = "kernel_times.csv"
RATES = (2.0, 6.0, 12.0, 18.0, 24.0, 28.0, 31.0, 34.0, 64.0)
"""The bytes per cycle that a CU gets in the replays."""
LATENCIES = (400.0, 1054.24)
"""The cycles of latency in the replays; others are on the line through them."""
CYCLES = tuple(f"cycles_at_{rate:g}" for rate in RATES)
COLUMNS = (
    "kernel",
    "result_bytes",
    "resident",
    "k_tiles",
    "is_first",
    "latency",
    *CYCLES,
    "matrix_cycles",
    "wide",
    "load_bytes",
    "store_bytes",
)
"""The columns of the table: a workgroup with `k_tiles` K tiles, in the first batch of a launch or after it.

`result_bytes` is `WIDE` or, with one number of K tiles, `NARROW`: only storing differs.
"""
WIDE, NARROW = 4, 2
"""The bytes of a stored element of the result: f32, or 16 bits."""

RESULT, TRANSPOSED = IN_TILES = "_requantised", "_transposed"
"""The suffixes in the table of instances that quantise their result in its tile, and of the next product, stored as it
is.
"""
EXPERTS = "_experts"
"""The suffix in the table of an instance as a part of a layer, with SwiGLU where it has gate and up."""


def with_rows(rows: int) -> str:
    """Returns the suffix in the table for a number of rows of activations."""
    return f"_rows{rows}"


UNKNOWN = math.inf
"""The µs of what has no replays: never the least, and not to be compared."""


class Replay(NamedTuple):
    """One row of the table: cycles at each of `RATES`."""

    resident: int
    k_tiles: int
    is_first: bool
    latency: float
    cycles: tuple[float, ...]
    matrix_cycles: float


@dataclass(frozen=True)
class KernelTimes:
    """The replays of a ukernel.

    Attributes:
        target: The GPU.
        resident: Workgroups that share a CU, if there are so many.
        wide: Part of the MFMA cycles that scaled 32×32×64 take.
        load_bytes: Of a workgroup, by K tiles.
        store_bytes: Of the result.
        result_bytes: Of an element of it.
        narrow: The same with results of `NARROW` bytes, where they are known.
        rows: Of LHS that are loaded of an inner tile, if not all.
        row_bits: Of an LHS element and its share of a scale; None: as the problem says. Of activations only rows that
            are there are loaded.
    """

    target: Target
    resident: int
    wide: float
    load_bytes: Mapping[int, float]
    store_bytes: float
    replays: tuple[Replay, ...]
    row_bits: float | None = None
    rows: int | None = None
    result_bytes: float = WIDE
    narrow: KernelTimes | None = None

    def storing(self, size: float) -> KernelTimes:
        """Returns the same times with `size` bytes stored per element of the result."""
        if size not in self._storing:
            of = self if self.narrow is None or size > NARROW else self.narrow
            self._storing[size] = replace(
                of, store_bytes=of.store_bytes * size / of.result_bytes, result_bytes=size, rows=self.rows,
                row_bits=self.row_bits, narrow=None,
            )  # fmt: skip
        return self._storing[size]

    @cached_property
    def _storing(self) -> dict[float, KernelTimes]:
        return {}

    def cycles(self, k_tiles: float, rates: Rates, is_first: bool, resident: int) -> tuple[Floats, Floats]:
        """Returns cycles of workgroups with so many K tiles, and those in which an MFMA pipe is busy; `resident`: up to
        all.

        Between one workgroup on a CU and all they are taken to be straight: replays are up to a fifth below where a
        launch begins, and none by more than a twentieth above.
        """
        most = max(row.resident for row in self.replays)  # fewer may fit on a CU of another GPU than were replayed
        if 1 < resident < most:
            part = (resident - 1) / (most - 1)
            ends = [self.cycles(k_tiles, rates, is_first, each) for each in (1, most)]
        else:
            short, long = self._around(k_tiles)
            part = (k_tiles - short) / (long - short)
            ends = [self._at(resident, k, rates, is_first) for k in (short, long)]
        (cycles, matrix), (more, more_matrix) = ends
        return cycles + part * (more - cycles), matrix + part * (more_matrix - matrix)

    def occupancy(self, workgroups: int) -> int:
        """Returns how many workgroups share a CU where most do, of so many."""
        return min(self.resident, -(-workgroups // self.target.cus))

    def loaded(self, k_tiles: float) -> float:
        """Returns the bytes that a workgroup loads."""
        short, long = self._around(k_tiles)
        least, most = self.load_bytes[short], self.load_bytes[long]
        return least + (most - least) * (k_tiles - short) / (long - short)

    def _around(self, k_tiles: float) -> tuple[int, int]:
        """Returns the two replayed numbers of K tiles between which, or after which, `k_tiles` is."""
        return next((pair for pair in self._spans if k_tiles <= pair[1]), self._spans[-1])

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        return list(pairwise(sorted(self.load_bytes)))

    def _at(self, resident: int, k_tiles: int, rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        (least, low), (most, high) = self._curves[resident, k_tiles, is_first]
        matrix = np.full(len(rates.bytes), least.matrix_cycles)
        asked = 1 / rates.bytes
        cycles = _cycles(low, asked)
        if least is most:
            return cycles, matrix
        share = np.clip((rates.latency - least.latency) / (most.latency - least.latency), 0.0, None)
        return cycles + share * (_cycles(high, asked) - cycles), matrix

    @cached_property
    def _curves(self) -> dict[tuple[int, int, bool], list[tuple[Replay, Floats]]]:
        """The replays of least and most latency, each with cycles from the highest rate to the lowest."""
        found: dict[tuple[int, int, bool], list[Replay]] = defaultdict(list)
        for row in sorted(self.replays):
            found[row[:3]].append(row)
        ends = {key: (rows[0], rows[-1]) for key, rows in found.items()}
        return {key: [(row, np.array(row.cycles[::-1])) for row in rows] for key, rows in ends.items()}


_INVERSE = 1 / np.array(RATES)[::-1]
"""Cycles for a byte at each of `RATES`, from the highest to the lowest."""


def _cycles(curve: Floats, asked: Floats) -> Floats:
    """Returns the cycles where a byte takes so many; below the lowest rate only bytes bind."""
    slope = (curve[-1] - curve[-2]) / (_INVERSE[-1] - _INVERSE[-2])
    result: Floats = np.interp(asked, _INVERSE, curve) + slope * np.maximum(0.0, asked - _INVERSE[-1])
    return result


def _kernel_times(header: str, lines: Sequence[str], target: Target) -> KernelTimes:
    rows = list(csv.DictReader([header, *lines]))
    wide, narrow = ([row for row in rows if row["result_bytes"] == str(size)] for size in (WIDE, NARROW))
    times = KernelTimes(
        target=target,
        resident=max(int(row["resident"]) for row in wide),
        wide=float(wide[-1]["wide"]),
        load_bytes={int(row["k_tiles"]): float(row["load_bytes"]) for row in wide},
        store_bytes=float(wide[0]["store_bytes"]),
        replays=tuple(map(_replay, wide)),
    )
    return _with_narrow(times, list(map(_replay, narrow)), float(narrow[0]["store_bytes"])) if narrow else times


def _replay(row: Mapping[str, str]) -> Replay:
    return Replay(
        int(row["resident"]), int(row["k_tiles"]), row["is_first"] == "1",
        float(row["latency"]), tuple(float(row[name]) for name in CYCLES), float(row["matrix_cycles"]),
    )  # fmt: skip


def _with_narrow(times: KernelTimes, found: Sequence[Replay], store_bytes: float) -> KernelTimes:
    """Returns times with narrow results: the saving at one number of K tiles is subtracted at all."""
    wide = {each[:4]: each.cycles for each in times.replays}
    saved = {(each.resident, each.is_first): np.subtract(wide[each[:4]], each.cycles) for each in found}
    replays = tuple(
        each._replace(cycles=tuple(each.cycles - saved[each.resident, each.is_first])) for each in times.replays
    )
    return replace(times, narrow=replace(times, replays=replays, store_bytes=store_bytes, result_bytes=NARROW))


@cache
def table(target: Target) -> Lazy[KernelTimes]:
    """Returns the table that comes with this package, by ukernel. Lines are parsed on demand: a problem needs few."""
    header, *lines = (resources.files("mxcomp.selection") / FILE).read_text().splitlines()
    of: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        of[line.partition(",")[0]].append(line)
    return Lazy({name: cache(partial(_kernel_times, header, each, target)) for name, each in of.items()})


def of(ukernel: Ukernel) -> KernelTimes | None:
    """Returns the times of a ukernel; instances take the same time for all elements of as many bits."""
    if ukernel.instance is None:
        return table(ukernel.target).get(ukernel.name)
    return replays(ukernel.instance, ukernel.target)


@cache
def replays(instance: Instance, target: Target, suffix: str = "") -> KernelTimes | None:
    """Returns the times of an instance of the family, under its name and a suffix."""
    kinds = tuple(_REPRESENTATIVE[element_format(kind).bits] for kind in instance.elements)
    lhs, rhs = kinds
    found = table(target).get(replace(instance, elements=(lhs, rhs)).name + suffix)
    rows = instance.tile.max_m
    return found if found is None or rows is None else replace(found, rows=rows)


_REPRESENTATIVE = {element_format(kind).bits: kind for kind in reversed(ELEMENT_TYPES)}
"""The element type that the table has for each width."""


SCALE_BITS = E8M0.bits / MX_BLOCK
"""The bits of a scale per element."""

_GREAT = 1e12
WITHOUT = {
    "CU bytes": {"cu_bytes": _GREAT, "cold_cu_bytes": _GREAT, "power_loads": 0.0},
    "L2 and fabric": {"fabric_bytes": _GREAT},
    "HBM": {"cold_bytes": _GREAT, "hbm_terabytes": _GREAT, "hbm_write_terabytes": _GREAT},
    "stores": {"drain_bytes": _GREAT},
    "latency": {"cold_latency": 0.0, "warm_latency": 0.0},
    "launch": {"launch_us": 0.0, "dispatch_us": 0.0},
}
"""The resources that can bind, as in `mxcomp.sim.timing.estimates`; "compute" is the rest."""


class Grid(NamedTuple):
    """The workgroups of a launch, and what they share.

    Attributes:
        known: The times of their ukernel, with results as they are stored.
        k_tiles: Of each.
        launch: All of them, without batches.
        shared: The rows and columns of tiles that batches share, in each of some orders.
        step_bytes: Of a row of tiles, and of a column.
        latencies: How many loads a workgroup waits for, one after the other, before it is as it was replayed.
    """

    known: KernelTimes
    k_tiles: int
    launch: Launch
    shared: Sequence[Shared]
    step_bytes: Floats
    latencies: int = 0


class Work(ABC):
    """The work that workgroups of a ukernel do together."""

    def orders(self, target: Target) -> tuple[Order, ...]:
        """Returns the possible orders of workgroups, the plain one first."""
        return orders(target)

    @abstractmethod
    def grid(self, known: KernelTimes, tile: Sequence[int], orders: tuple[Order, ...]) -> Grid:
        """Returns the workgroups, of which each has a tile (M, N, K)."""


@dataclass(frozen=True)
class Matmul(Work):
    """A problem, and the bytes of an element of its result as it is stored. Operands are cold."""

    problem: Problem
    result_bytes: float = WIDE

    def grid(self, known: KernelTimes, tile: Sequence[int], orders: tuple[Order, ...]) -> Grid:
        known, (m, n, k) = known.storing(self.result_bytes), (size or 0 for size in self.problem.sizes.values())
        rows, columns, k_tiles = (-(-size // step) for size, step in zip((m, n, k), tile, strict=True))
        row_bytes, column_bytes = (
            step * k_tiles * tile[2] * (element_format(kind).bits + SCALE_BITS) / 8
            for step, kind in zip(tile[:2], self.problem.types, strict=False)
        )
        if known.rows is not None:  # with the scales of all
            bits = element_format(self.problem.types[LHS]).bits
            row_bytes -= (tile[0] - known.rows) * k_tiles * tile[2] * bits / 8
        if known.row_bits is not None:
            row_bytes = min(tile[0], m) * k * known.row_bits / 8
        matrices = self.problem.matrices
        workgroups = matrices * rows * columns
        resident = known.occupancy(workgroups)
        shared = batches((matrices, rows, columns), resident, orders, known.target)
        unique = matrices * (rows * row_bytes + columns * column_bytes + rows * columns * known.store_bytes)
        launch = Launch((), resident, known.loaded(k_tiles), known.store_bytes, known.wide, workgroups, unique)
        return Grid(known, k_tiles, launch, shared, np.array([row_bytes, column_bytes]))


def modelled(known: KernelTimes, tile: Sequence[int], work: Work, order: Order = PLAIN_ORDER) -> float:
    """Returns µs of a ukernel's work."""
    return float(_in_orders(known, tile, work, (order,))[0])


def ordered(known: KernelTimes, tile: Sequence[int], work: Work) -> tuple[Order, float]:
    """Returns the fastest order of workgroups, and its µs; the plain one if others save next to nothing."""
    ways = work.orders(known.target)
    us = _in_orders(known, tile, work, ways)
    best = int(np.argmin(us))
    if us[best] > (1 - LEAST_GAIN) * us[0]:
        best = 0
    return ways[best], float(us[best])


def bound(known: KernelTimes, tile: Sequence[int], work: Work, order: Order = PLAIN_ORDER) -> str:
    """Returns the resource of `WITHOUT` whose absence would save most. It is "compute" if none saves a quarter of the
    time."""
    p, us = parameters_of(known.target), modelled(known, tile, work, order)
    changed = {name: p.replaced(**values) for name, values in WITHOUT.items()}
    saved = {name: us - float(_in_orders(known, tile, work, (order,), each)[0]) for name, each in changed.items()}
    most = max(saved, key=lambda name: saved[name])
    return most if saved[most] > us / 4 else "compute"


LEAST_GAIN = 0.005
"""The least gain by which another order wins. At other addresses LLVM schedules a loop differently: where MFMA binds,
kernels with the same sharing take from 2 % less to 2 % more, modelled."""

PERMUTING_US = 0.1
"""The most that workgroups were modelled to take to find their tile in an order that is not the plain one."""


def _in_orders(
    known: KernelTimes, tile: Sequence[int], work: Work, orders: tuple[Order, ...], p: Parameters | None = None
) -> Floats:
    """Returns µs as `modelled` does, for each of these orders."""
    known, k_tiles, launch, shared, step_bytes, latencies = work.grid(known, tile, orders)
    launches = [
        replace(launch, batches=[
            Batch(each.running, each.count, float(each.fabric[k] @ step_bytes), float(each.chip[k] @ step_bytes))
            for each in shared
        ])
        for k in range(len(orders))
    ]  # fmt: skip

    def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        cycles, matrix = known.cycles(k_tiles, rates, is_first, launch.resident)
        return cycles + latencies * rates.latency, matrix

    permuting = np.where([order == PLAIN_ORDER for order in orders], 0.0, PERMUTING_US)
    us: Floats = modelled_us(Launches.of(launches), p or parameters_of(known.target), ask) + permuting
    return us
