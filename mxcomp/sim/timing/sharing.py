"""Finds which workgroups of a launch load the same data.

Loads are grouped into streams, one for each register with a base and each allocation that is read through it: usually
an operand. For workgroups other than the traced one only the first access to each stream is computed; two workgroups
whose streams begin at the same line are assumed to load the same lines of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.memory import Memory
from mxcomp.sim.timing.chip import Batch
from mxcomp.sim.timing.probes import LINE_BYTES
from mxcomp.sim.timing.trace import Recorder, Trace, TracedProgram

Stream = tuple[int, int]
"""The code of the register with the base, and the start of the allocation."""


def global_kind(i: Instruction) -> str:
    """Returns whether an instruction loads from or stores to global memory: "load", "store" or "". Atomics are
    stores."""
    if i.memory is None or i.memory.op.space not in ("buffer", "global", "flat"):
        return ""
    return "load" if i.memory.op.kind == "load" else "store"


class Survey:
    """The data that a workgroup loads: a number for each stream, equal for workgroups that load the same lines.

    Of several traces the first is that of what most workgroups do; the others have streams that it has not.
    """

    def __init__(self, dispatch: Dispatch, program: TracedProgram, traces: Sequence[Trace]) -> None:
        self.dispatch, self.program = dispatch, program
        found: dict[Stream, list[NDArray[np.int64]]] = {}
        self.look: dict[int, int] = {}
        """The number of accesses after which a stream is first met, for each wave that meets one."""
        for trace in traces:
            found = self._streams(trace, found) | found
        self.streams = list(found)
        self.bytes = np.array([LINE_BYTES * len(np.unique(np.concatenate(lines))) for lines in found.values()], float)

    def _streams(self, trace: Trace, known: Collection[Stream]) -> dict[Stream, list[NDArray[np.int64]]]:
        """Returns the lines that a workgroup loads of each stream, and sees to it that new ones are met."""
        found: dict[Stream, list[NDArray[np.int64]]] = {}
        for wave, (codes, accesses) in enumerate(zip(trace.codes, trace.accesses, strict=True)):
            steps = np.flatnonzero(accesses >= 0)
            for met, step in enumerate(steps.tolist()):
                access = accesses[step]
                touched = trace.lines[trace.first[access] : trace.first[access + 1]]
                instruction = trace.instructions[codes[step]]
                if not len(touched) or global_kind(instruction) != "load":
                    continue
                stream = _stream(instruction, int(touched[0]), self.dispatch.memory)
                if stream not in found and stream not in known:
                    self.look[wave] = max(self.look.get(wave, 0), met + 1)
                found.setdefault(stream, []).append(touched)
        return found

    def of(self, workgroup: Workgroup) -> NDArray[np.int64]:
        """Returns int64[streams]: the first line of each stream, −1 where the workgroup does not load from it."""
        recorder = Recorder(self.dispatch, workgroup, self.program)
        result = np.full(len(self.streams), -1, np.int64)
        for wave, accesses in self.look.items():
            start = len(recorder.touched)
            numbers = iter(recorder.follow(wave, accesses))
            codes, places = recorder.codes[wave], recorder.accesses[wave]
            for code, place in zip(codes, places, strict=True):
                if place < start:
                    continue
                touched = next(numbers).lines
                instruction = self.program.instructions[code]
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
"""The numbers of random workgroups that check that first lines are sums, and that a number may be split at a stride."""


class Sharing:
    """The data that workgroups of a grid share. Few workgroups are traced where a stream depends on one or two
    coordinates only, and where its first line is a sum of what each coordinate adds (tiles of a grouped matmul) or of
    what each digit of the workgroup's number adds (IREE's kernels linearise several coordinates)."""

    def __init__(self, survey: Survey, grid: Workgroup, xcds: int) -> None:
        self.survey, self.grid, self._xcds = survey, grid, xcds
        self.total = grid[0] * grid[1] * grid[2]
        self._grid_strides = 1, grid[0], grid[0] * grid[1]
        self._known: dict[int, NDArray[np.int64]] = {}
        self._axes = self._dependence()
        self._found = dict(self._known)
        """First lines of all workgroups so far, traced or computed as sums."""
        self._strides = None if self._axes is not None else self._summed()

    def batches(self, capacity: int) -> tuple[Batch, ...]:
        """Returns the first batch, those after it, and the last, which may be smaller."""
        whole, rest = divmod(self.total, capacity)
        starts = [(0, 1), (capacity * (whole // 2), whole - 1)] if whole else []
        found = [self._batch(range(start, start + capacity), count) for start, count in starts if count > 0]
        if rest:
            found.append(self._batch(range(self.total - rest, self.total), 1))
        return tuple(found)

    def unique_bytes(self) -> float:
        """Returns the bytes loaded by the whole grid, each line once."""
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
        """Returns int64[workgroups, streams]: equal for the same data."""
        if self._axes is not None:
            coordinates = np.array([coordinates_of(k, self.grid) for k in ids], np.int64).reshape(-1, 3)
            factors = np.zeros((3, len(self._axes)), np.int64)
            for stream, axes in enumerate(self._axes):
                for axis in axes:
                    factors[axis, stream] = self._grid_strides[axis]
            return coordinates @ factors
        found = (
            self._sums(ids, self._strides) if self._strides else np.array([self._first_lines(k) for k in ids], np.int64)
        )
        found = found.reshape(len(ids), len(self.survey.streams))
        self._found.update(zip(ids, found, strict=True))
        return found

    def _sums(self, ids: Sequence[int], strides: Sequence[int]) -> NDArray[np.int64]:
        """Returns first lines of workgroups as sums over digits; `strides` are the values of the digits.

        What one of these does not load, as it has nothing to do, nobody loads who has the same digit there.
        """
        left, first = np.array(ids, np.int64), self._first_lines(0)
        result, loads = np.tile(first, (len(ids), 1)), np.ones((len(ids), len(first)), np.bool_)
        for stride in reversed(strides):
            digits, left = np.divmod(left, stride)
            values, which = np.unique(digits, return_inverse=True)
            found = np.array([self._first_lines(digit * stride) for digit in values.tolist()])
            result += (found - first)[which]
            loads &= (found >= 0)[which]
        return np.where(loads, result, -1)

    def _summed(self) -> tuple[int, ...] | None:
        """Returns the digits whose parts add up to first lines: coordinates, or others; None where there are none."""
        checked = np.random.default_rng(0).integers(0, self.total, _CHECKED).tolist()

        def holds(strides: Sequence[int]) -> bool:
            return all((self._first_lines(k) == self._sums([k], strides)).all() for k in checked)

        if self.total <= _SMALL:
            return None
        if sum(size > 1 for size in self.grid) > 1 and holds(self._grid_strides):
            return self._grid_strides
        strides, splits, draw = [1], _splits(self.total), random.Random(0)
        for stride in splits:
            if stride % strides[-1] == 0:
                others = [split for split in splits if split > stride and split % stride]
                chosen = [other * draw.randrange(1, -(-self.total // other)) for other in others]
                tried = checked[:_TRIED] + draw.sample(chosen, min(len(chosen), _CHECKED))
                if all(self._splits_at(k, stride) for k in tried):
                    strides.append(stride)
        return tuple(strides) if holds(strides) else None

    def _splits_at(self, number: int, stride: int) -> bool:
        """Returns whether first lines are a sum over the digits before a position and those after it."""
        return bool((self._sums([number], (1, stride)) == self._first_lines(number)).all())

    def _first_lines(self, number: int) -> NDArray[np.int64]:
        if number not in self._known:
            self._known[number] = self.survey.of(coordinates_of(number, self.grid))
        return self._known[number]

    def _dependence(self) -> list[tuple[int, ...]] | None:
        """Returns the axes of the grid that each stream depends on, or None where samples show no such rule."""
        axes = [axis for axis in range(3) if self.grid[axis] > 1]
        if len(axes) < 2:
            return None
        samples = [sorted({0, 1, size // 2, size - 1} & set(range(size))) for size in self.grid]
        coordinates = [(x, y, z) for x, y, z in product(*samples)]
        asked = [self._first_lines(number_of(each, self.grid)) for each in coordinates]
        result = []
        for stream in range(len(self.survey.streams)):
            values = [int(row[stream]) for row in asked]
            rule = next((rule for rule in _subsets(axes) if _follows(coordinates, values, rule)), None)
            if rule is None:
                return None
            result.append(rule)
        return result


def number_of(workgroup: Workgroup, grid: Workgroup) -> int:
    """Returns the number of a workgroup in the order of dispatch."""
    x, y, z = workgroup
    return x + grid[0] * (y + grid[1] * z)


def coordinates_of(number: int, grid: Workgroup) -> Workgroup:
    """Returns the coordinates of a workgroup of a grid, by its number in the order of dispatch."""
    x, y, _ = grid
    return number % x, number // x % y, number // (x * y)


_SMALL = 64
"""The size of a grid whose workgroups are all traced: finding a rule would take about as long."""


def _splits(total: int) -> list[int]:
    """Returns where a number up to another one may be split: at its divisors, and at powers of two."""
    few = [k for k in range(2, math.isqrt(total) + 1) if total % k == 0]
    powers = [1 << k for k in range(1, total.bit_length())]
    return sorted({*few, *(total // k for k in few), *powers} - {total})


def _distinct(column: NDArray[np.int64]) -> int:
    return len(np.unique(column[column >= 0]))


def _subsets(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns all subsets, the smallest first."""
    chosen = [tuple(axis for k, axis in enumerate(axes) if bits >> k & 1) for bits in range(1 << len(axes))]
    return sorted(chosen, key=len)


def _follows(coordinates: Sequence[Workgroup], values: Sequence[int], axes: tuple[int, ...]) -> bool:
    """Returns whether values are equal exactly where the coordinates on these axes are."""
    by_coordinates: dict[tuple[int, ...], set[int]] = {}
    for each, value in zip(coordinates, values, strict=True):
        by_coordinates.setdefault(tuple(each[axis] for axis in axes), set()).add(value)
    firsts = [next(iter(found)) for found in by_coordinates.values() if len(found) == 1]
    return len(firsts) == len(by_coordinates) and len(set(firsts)) == len(firsts)
