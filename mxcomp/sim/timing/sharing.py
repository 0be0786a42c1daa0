"""Which workgroups of a launch load the same data.

Loads are grouped into streams, one for each register that holds a base and each allocation that is read through it: an
operand, most often. Of workgroups other than the one that was traced only the first access to each stream is looked
for; two that begin a stream at the same line are taken to load the same lines of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.memory import Memory
from mxcomp.sim.semantics import memory as m
from mxcomp.sim.timing.chip import Batch
from mxcomp.sim.timing.probes import LINE_BYTES
from mxcomp.sim.timing.trace import Lines, Recorder, Trace

Stream = tuple[int, int]
"""Code of the register with the base, start of the allocation."""


def global_kind(i: Instruction) -> str:
    """Whether an instruction loads from or stores to global memory: "load", "store" or "". Atomics are stores."""
    op = m.parse(i.mnemonic)
    if op is None or op.space not in ("buffer", "global", "flat"):
        return ""
    return "load" if op.kind == "load" else "store"


class Survey:
    """Which data a workgroup loads: a number for each stream, the same for workgroups that load the same lines."""

    def __init__(self, dispatch: Dispatch, lines: Lines, trace: Trace) -> None:
        self.dispatch, self.lines = dispatch, lines
        memory = dispatch.memory
        found: dict[Stream, list[NDArray[np.int64]]] = {}
        self.look: dict[int, int] = {}
        """For each wave in which a stream is first met: after how many of its accesses."""
        for wave, (codes, accesses) in enumerate(zip(trace.codes, trace.accesses, strict=True)):
            steps = np.flatnonzero(accesses >= 0)
            for met, step in enumerate(steps.tolist()):
                access = accesses[step]
                touched = trace.lines[trace.first[access] : trace.first[access + 1]]
                instruction = trace.instructions[codes[step]]
                if not len(touched) or global_kind(instruction) != "load":
                    continue
                stream = _stream(instruction, int(touched[0]), memory)
                if stream not in found:
                    self.look[wave] = met + 1
                found.setdefault(stream, []).append(touched)
        self.streams = list(found)
        self.bytes = np.array([LINE_BYTES * len(np.unique(np.concatenate(lines))) for lines in found.values()], float)

    def of(self, workgroup: Workgroup) -> NDArray[np.int64]:
        """int64[streams]: the first line of each stream, −1 where the workgroup does not load from it."""
        recorder = Recorder(self.dispatch, workgroup, self.lines)
        result = np.full(len(self.streams), -1, np.int64)
        for wave, accesses in self.look.items():
            start = len(recorder.touched)
            numbers = iter(recorder.follow(wave, accesses))
            codes, places = recorder.codes[wave], recorder.accesses[wave]
            for code, place in zip(codes, places, strict=True):
                if place < start:
                    continue
                touched = next(numbers).lines
                instruction = self.lines.instructions[code]
                if len(touched) and global_kind(instruction) == "load":
                    stream = _stream(instruction, int(touched[0]), self.dispatch.memory)
                    if stream in self.streams and result[k := self.streams.index(stream)] < 0:
                        result[k] = touched[0]
        return result


def _stream(i: Instruction, line: int, memory: Memory) -> Stream:
    assert i.memory is not None
    base: Operand | None = i.memory.base or i.memory.address
    address = line * LINE_BYTES
    start, _ = memory.allocation(address)
    return (-1 if base is None else base.code), start


_CHECKED, _TRIED = 24, 6
"""Workgroups, drawn at random, by which it is checked that first lines are sums; and that a number may be split at a
place. Others are where that would be wrong if the number had to be split elsewhere."""


class Sharing:
    """Of a grid. Few workgroups are asked where a stream depends on one or two coordinates of a workgroup only, and
    where its first line is a sum: of what each coordinate adds, as it is for tiles of a grouped matmul, or of what each
    digit of the workgroup's number does, as where IREE's kernels make several coordinates of one."""

    def __init__(self, survey: Survey, grid: Workgroup, xcds: int) -> None:
        self.survey, self.grid, self._xcds = survey, grid, xcds
        self.total = grid[0] * grid[1] * grid[2]
        self._steps = 1, grid[0], grid[0] * grid[1]
        self._known: dict[int, NDArray[np.int64]] = {}
        self._axes = self._dependence()
        self._found = dict(self._known)
        """Those of batches as well, asked or summed."""
        self._places = None if self._axes is not None else self._summed()

    def batches(self, capacity: int) -> tuple[Batch, ...]:
        """The first, those after it, and the last, which may be smaller."""
        whole, rest = divmod(self.total, capacity)
        starts = [(0, 1), (capacity * (whole // 2), whole - 1)] if whole else []
        found = [self._batch(range(start, start + capacity), count) for start, count in starts if count > 0]
        if rest:
            found.append(self._batch(range(self.total - rest, self.total), 1))
        return tuple(found)

    def unique_bytes(self) -> float:
        """Loaded by the whole grid, each line once."""
        if self._axes is not None:
            sizes = [np.prod([self.grid[axis] for axis in axes], dtype=float) for axes in self._axes]
            return float(np.dot(sizes, self.survey.bytes))
        known = np.array(list(self._found.values()))
        distinct = np.array([len(np.unique(column[column >= 0])) for column in known.T])
        return float(np.dot(distinct, self.survey.bytes)) * self.total / max(1, len(known))

    def _batch(self, ids: range, count: int) -> Batch:
        numbers = self._numbers(ids)
        chip = sum(size * _distinct(column) for size, column in zip(self.survey.bytes, numbers.T, strict=True))
        xcd = np.arange(ids.start, ids.stop) % self._xcds
        fabric = sum(
            size * _distinct(column[xcd == k])
            for size, column in zip(self.survey.bytes, numbers.T, strict=True)
            for k in range(self._xcds)
        )
        return Batch(len(ids), count, float(fabric), float(chip))

    def _numbers(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """int64[workgroups, streams]: equal for the same data."""
        if self._axes is not None:
            places = np.array([self._place(k) for k in ids], np.int64).reshape(-1, 3)
            factors = np.zeros((3, len(self._axes)), np.int64)
            for stream, axes in enumerate(self._axes):
                for axis in axes:
                    factors[axis, stream] = self._steps[axis]
            return places @ factors
        found = self._sums(ids, self._places) if self._places else np.array([self._ask(k) for k in ids], np.int64)
        found = found.reshape(len(ids), len(self.survey.streams))
        self._found.update(zip(ids, found, strict=True))
        return found

    def _sums(self, ids: Sequence[int], places: Sequence[int]) -> NDArray[np.int64]:
        """First lines of workgroups, by those that have one digit that is not 0; `places`: what digits count.

        What one of these does not load, as it has nothing to do, nobody loads who has the same digit there.
        """
        left, first = np.array(ids, np.int64), self._ask(0)
        result, loads = np.tile(first, (len(ids), 1)), np.ones((len(ids), len(first)), np.bool_)
        for place in reversed(places):
            digits, left = np.divmod(left, place)
            values, which = np.unique(digits, return_inverse=True)
            found = np.array([self._ask(digit * place) for digit in values.tolist()])
            result += (found - first)[which]
            loads &= (found >= 0)[which]
        return np.where(loads, result, -1)

    def _summed(self) -> tuple[int, ...] | None:
        """What digits count of whose parts first lines are sums: coordinates, or others; None where there are none."""
        checked = np.random.default_rng(0).integers(0, self.total, _CHECKED).tolist()

        def holds(places: Sequence[int]) -> bool:
            return all((self._ask(k) == self._sums([k], places)).all() for k in checked)

        if self.total <= _SMALL:
            return None
        if sum(size > 1 for size in self.grid) > 1 and holds(self._steps):
            return self._steps
        places, splits, draw = [1], _splits(self.total), random.Random(0)
        for place in splits:
            if place % places[-1] == 0:
                others = [split for split in splits if split > place and split % place]
                chosen = [other * draw.randrange(1, -(-self.total // other)) for other in others]
                tried = checked[:_TRIED] + draw.sample(chosen, min(len(chosen), _CHECKED))
                if all(self._splits_at(k, place) for k in tried):
                    places.append(place)
        return tuple(places) if holds(places) else None

    def _splits_at(self, number: int, place: int) -> bool:
        """Whether a workgroup's first lines are a sum of what its digits from a place on, and those before it, add."""
        return bool((self._sums([number], (1, place)) == self._ask(number)).all())

    def _ask(self, number: int) -> NDArray[np.int64]:
        if number not in self._known:
            self._known[number] = self.survey.of(self._place(number))
        return self._known[number]

    def _place(self, number: int) -> Workgroup:
        x, y, _ = self.grid
        return number % x, number // x % y, number // (x * y)

    def _dependence(self) -> list[tuple[int, ...]] | None:
        """The axes of the grid that each stream depends on; None where samples do not show such a rule."""
        axes = [axis for axis in range(3) if self.grid[axis] > 1]
        if len(axes) < 2:
            return None
        samples = [sorted({0, 1, size // 2, size - 1} & set(range(size))) for size in self.grid]
        places = [(x, y, z) for x, y, z in product(*samples)]
        asked = [self._ask(x + self.grid[0] * (y + self.grid[1] * z)) for x, y, z in places]
        result = []
        for stream in range(len(self.survey.streams)):
            values = [int(row[stream]) for row in asked]
            rule = next((rule for rule in _subsets(axes) if _follows(places, values, rule)), None)
            if rule is None:
                return None
            result.append(rule)
        return result


_SMALL = 64
"""Workgroups that are all asked: they are hardly more than finding a rule takes."""


def _splits(total: int) -> list[int]:
    """Where a number up to another one may be split: at what divides that, and at powers of two."""
    few = [k for k in range(2, math.isqrt(total) + 1) if total % k == 0]
    powers = [1 << k for k in range(1, total.bit_length())]
    return sorted({*few, *(total // k for k in few), *powers} - {total})


def _distinct(column: NDArray[np.int64]) -> int:
    return len(np.unique(column[column >= 0]))


def _subsets(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """All, the smallest first."""
    chosen = [tuple(axis for k, axis in enumerate(axes) if bits >> k & 1) for bits in range(1 << len(axes))]
    return sorted(chosen, key=len)


def _follows(places: Sequence[Workgroup], values: Sequence[int], axes: tuple[int, ...]) -> bool:
    """Whether values are equal exactly where the coordinates on these axes are."""
    by_place: dict[tuple[int, ...], set[int]] = {}
    for place, value in zip(places, values, strict=True):
        by_place.setdefault(tuple(place[axis] for axis in axes), set()).add(value)
    firsts = [next(iter(found)) for found in by_place.values() if len(found) == 1]
    return len(firsts) == len(by_place) and len(set(firsts)) == len(firsts)
