"""Reads code objects, and writes them with their manifests; needs no simulator."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from elftools.elf.elffile import ELFFile


def metadata(code: bytes) -> list[dict[str, Any]]:
    """Metadata of the kernels of a code object (AMDGPU code object V5: MessagePack in a note)."""
    notes = ELFFile(io.BytesIO(code)).get_section_by_name(".note").iter_notes()
    return msgspec.msgpack.decode(next(notes)["n_descdata"])["amdhsa.kernels"]


class Variant(Protocol):
    """A kernel that can be compiled."""

    @property
    def name(self) -> str: ...
    def compile(self) -> tuple[bytes, dict[str, Any]]:
        """The code object and its entry in the manifest."""


def write(folder: Path, compiler: str, variants: Iterable[Variant]) -> None:
    """Compiles kernels into a folder, and writes its manifest with one line for each."""
    entries = []
    for variant in variants:
        code, entry = variant.compile()
        (folder / f"{variant.name}.hsaco").write_bytes(code)
        entries.append(entry)
    lines = ",\n    ".join(map(json.dumps, entries))
    text = f'{{\n  "compiler": {json.dumps(compiler)},\n  "kernels": [\n    {lines}\n  ]\n}}\n'
    (folder / "manifest.json").write_text(text)
