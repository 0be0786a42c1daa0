"""Code objects kept in this repository, described by a `manifest.json` beside them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from corpus.device import Grid, Launch, Machine

_FORMATS = {"i32": "<i", "fp32": "<f"}  # all others are addresses


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel. Its grid has ⌈size / divisor⌉ workgroups along each axis, block and LDS are as launched."""

    file: Path
    name: str
    kernel: str
    block: Grid
    grid: list[tuple[str, int]]
    dynamic_lds: int
    kernarg_size: int
    arguments: list[dict[str, Any]]
    constants: dict[str, Any]
    options: dict[str, int]

    @cached_property
    def code(self) -> bytes:
        return self.file.read_bytes()

    def launch(self, addresses: Mapping[str, int], sizes: Mapping[str, float]) -> Launch:
        """The launch for arguments by name; those without a name are null pointers, hidden ones are left out."""
        kernarg = bytearray(self.kernarg_size)
        for argument in self.arguments:
            name, kind = argument["name"], argument["type"]
            value = addresses[name] if kind[0] == "*" else sizes[name]
            struct.pack_into(_FORMATS.get(kind, "<Q"), kernarg, argument["offset"], value)
        counts = [-(-int(sizes[name]) // divisor) for name, divisor in self.grid]
        x, y, z = (*counts, 1, 1)[:3]
        return Launch(self.kernel, (x, y, z), self.block, bytes(kernarg), self.dynamic_lds)

    def run(
        self,
        machine: Machine,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        sizes: Mapping[str, float],
        code: bytes | None = None,
    ) -> list[np.ndarray]:
        """Runs the whole grid. `outputs` gives shapes and types; `code` replaces the code object."""
        buffers = {name: machine.upload(array) for name, array in inputs.items()}
        buffers |= {name: machine.allocate(out.nbytes) for name, out in outputs.items() if name not in buffers}
        launch = self.launch({name: buffer.address for name, buffer in buffers.items()}, sizes)
        machine.launch([code or self.code], [launch])
        return [machine.read(buffers[name], out) for name, out in outputs.items()]


def read_manifest(folder: Path) -> dict[str, Kernel]:
    """Kernels by name."""
    entries = json.loads((folder / "manifest.json").read_text())["kernels"]
    return {
        entry["name"]: Kernel(folder / f"{entry['name']}.hsaco", **entry | {"block": tuple(entry["block"])})
        for entry in entries
    }
