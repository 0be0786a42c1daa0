"""Writes operands of scaled matmuls as numbers when their kernels are launched.

A report of mxcomp-compile says which kernels these are, and where they find their operands.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mxcomp.errors import InputError
from mxcomp.layout.logical import operand, stored_bytes
from mxcomp.profiling import reports
from mxcomp.profiling.reports import KernelVersion, Number, ScaledMatmul
from mxcomp.sim import Device, Kernel
from mxcomp.sim.errors import SimulationError

INDEX = "operands.jsonl"
"""The file that describes each file of the directory, one JSON object a line."""

_POINTER_BYTES = 8


class OperandDump:
    """Writes `<launch>.<operand>.npy` files and an index of them into a directory.

    Elements are float32 [rows, K], scales float32 [rows, K/32], without padding. Where M is dynamic and not known
    when the kernel is launched, rows are those of whole tiles; where matmuls that differ in size share a kernel, sizes
    are those of the largest. What is not in a matmul is 0 then. Matmuls with a batch, a dynamic N or K are left out.
    """

    def __init__(self, report: str, directory: str) -> None:
        try:
            matmuls = reports.read(report).matmuls
            Path(directory).mkdir(parents=True, exist_ok=True)
            (Path(directory) / INDEX).unlink(missing_ok=True)
        except (InputError, OSError) as error:
            raise SimulationError(f"operands cannot be dumped: {error}") from None
        self._directory = Path(directory)
        self._launches = 0
        self._matmuls: defaultdict[str, list[ScaledMatmul]] = defaultdict(list)
        for matmul in matmuls:
            parts: Sequence[ScaledMatmul | KernelVersion] = matmul.versions or [matmul]
            for each in parts:
                if each.stored and each.kernel:
                    self._matmuls[each.kernel].append(replace(matmul, stored=each.stored, layout=each.layout))

    def write(self, device: Device, kernel: Kernel, kernarg: bytes) -> None:
        """Writes the operands that a launch of `kernel` with these arguments is going to read, if it is a matmul."""
        matmuls = self._matmuls.get(kernel.name)
        if not matmuls:
            return
        try:
            self._write(device, kernel, kernarg, matmuls)
        except OSError as error:
            raise SimulationError(f"operands cannot be dumped: {error}") from None
        except (SimulationError, LookupError, TypeError, ValueError) as error:
            raise SimulationError(
                f"operands of {kernel.name} cannot be dumped, is the report of another module? {error}"
            ) from None
        self._launches += 1

    def _write(self, device: Device, kernel: Kernel, kernarg: bytes, matmuls: list[ScaledMatmul]) -> None:
        first, stored = matmuls[0], matmuls[0].stored
        if stored is None or any(each.n is None or each.k is None for each in matmuls):
            return
        names = _TRANSPOSED if first.transposed else {}
        pointers, constants = _arguments(kernel, kernarg)
        rows = stored.rows if stored.rows is None else _number(stored.rows, constants)
        m, n, k = (max(getattr(each, axis) or 0 for each in matmuls) for axis in "mnk")
        sizes = {"lhs": rows if any(each.m is None for each in matmuls) else m, "rhs": n}
        for each in stored.operands:
            name, shape = names.get(each.operand, each.operand), [_number(size, constants) for size in each.shape]
            address = pointers[each.binding] + _number(each.offset, constants)
            data = device.read(address, np.uint8, (stored_bytes(shape, each.type),))
            rows_of = sizes[name.removesuffix("_scale")]
            values = operand(data, each.operand, each.type, shape, first.layout, rows_of, k)
            file = f"{self._launches:03}.{name}.npy"
            np.save(self._directory / file, values)
            self._note(file, kernel, matmuls, name, each.type, values)

    def _note(
        self, file: str, kernel: Kernel, matmuls: list[ScaledMatmul], name: str, kind: str, values: np.ndarray
    ) -> None:
        line = {
            "file": file,
            "launch": self._launches,
            "operand": name,
            "type": kind,
            "shape": values.shape,
            "kernel": kernel.name,
            "locations": list(dict.fromkeys(matmul.location for matmul in matmuls)),
        }
        with open(self._directory / INDEX, "a") as index:
            index.write(json.dumps(line) + "\n")


_TRANSPOSED = {"lhs": "rhs", "rhs": "lhs", "lhs_scale": "rhs_scale", "rhs_scale": "lhs_scale"}
"""Maps operands of a matmul that is computed transposed to the operands that they are in the source."""


def _arguments(kernel: Kernel, kernarg: bytes) -> tuple[list[int], list[int]]:
    """Returns pointers to bindings and push constants, in the order in which IREE's kernels take them."""
    arguments = [argument for argument in kernel.arguments if not argument.is_hidden]
    words = [int.from_bytes(kernarg[a.offset : a.offset + a.size], "little") for a in arguments]
    count = sum(argument.size == _POINTER_BYTES for argument in arguments)
    return words[:count], words[count:]


def _number(value: Number, constants: list[int]) -> int:
    """Returns the value of a number of a report; see `mxcomp.profiling.reports`."""
    if isinstance(value, int):
        return value
    return sum(constants[ordinal] << 32 * place for place, ordinal in enumerate(value))
