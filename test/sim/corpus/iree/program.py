"""What the host side of an IREE program does: which kernels it launches, in which order, on which buffers."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corpus.code_objects import metadata
from corpus.device import Grid, Launch, Machine


@dataclass(frozen=True)
class Span:
    """A part of a buffer: its index in the program, offset and length in bytes."""

    buffer: int
    offset: int
    length: int


@dataclass(frozen=True)
class Dispatch:
    """A kernel's arguments are a pointer for every binding, then its constants, 4 bytes each."""

    kernel: str
    grid: Grid
    constants: tuple[int, ...]
    bindings: tuple[Span, ...]


@dataclass(frozen=True)
class Program:
    """Dispatches in order, their code objects, and the sizes of all buffers: the function's `arguments` come first."""

    code: tuple[bytes, ...]
    buffers: tuple[int, ...]
    arguments: int
    dispatches: tuple[Dispatch, ...]
    results: tuple[Span, ...]

    def save(self, manifest: Path) -> None:
        """Writes the manifest, and the code object beside it."""
        (code,) = self.code
        manifest.with_suffix(".hsaco").write_bytes(code)
        fields = {name: value for name, value in asdict(self).items() if name != "code"}
        lines = [f"  {json.dumps(name)}: {_lines(value)}" for name, value in fields.items()]
        manifest.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    @staticmethod
    def load(manifest: Path) -> Program:
        """What `save` wrote."""
        fields = json.loads(manifest.read_text())
        dispatches = [
            Dispatch(d["kernel"], tuple(d["grid"]), tuple(d["constants"]), tuple(Span(**b) for b in d["bindings"]))
            for d in fields["dispatches"]
        ]
        results = tuple(Span(**span) for span in fields["results"])
        code = manifest.with_suffix(".hsaco").read_bytes()
        return Program((code,), tuple(fields["buffers"]), fields["arguments"], tuple(dispatches), results)

    def run(self, machine: Machine, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs all dispatches. `outputs` gives shapes and types."""
        buffers = self.upload(machine, inputs)
        machine.launch(self.code, self.launches([buffer.address for buffer in buffers]))
        return [machine.read(buffers[span.buffer], out) for span, out in zip(self.results, outputs, strict=True)]

    def upload(self, machine: Machine, inputs: Sequence[np.ndarray]) -> list[Any]:
        """All buffers, the arguments filled."""
        buffers = [machine.upload(array) for array in inputs]
        return buffers + [machine.allocate(size) for size in self.buffers[self.arguments :]]

    def launches(self, addresses: Sequence[int]) -> list[Launch]:
        """All launches, for buffers at these addresses."""
        blocks = {kernel[".name"]: kernel[".reqd_workgroup_size"] for code in self.code for kernel in metadata(code)}
        return [
            Launch(
                dispatch.kernel,
                dispatch.grid,
                tuple(blocks[dispatch.kernel]),
                struct.pack(
                    f"<{len(dispatch.bindings)}Q{len(dispatch.constants)}I",
                    *(addresses[span.buffer] + span.offset for span in dispatch.bindings),
                    *(constant & 0xFFFFFFFF for constant in dispatch.constants),
                ),
            )
            for dispatch in self.dispatches
        ]


def _lines(value: object) -> str:
    """JSON with one dispatch or result per line."""
    if not isinstance(value, tuple) or not value or not isinstance(value[0], dict):
        return json.dumps(value)
    return "[\n    " + ",\n    ".join(map(json.dumps, value)) + "\n  ]"
