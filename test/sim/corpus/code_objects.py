"""Reads code objects and writes manifests; needs no simulator."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
from elftools.elf.elffile import ELFFile


def metadata(code: bytes) -> list[dict[str, Any]]:
    """Metadata of the kernels of a code object (AMDGPU code object V5: MessagePack in a note)."""
    notes = ELFFile(io.BytesIO(code)).get_section_by_name(".note").iter_notes()
    return msgspec.msgpack.decode(next(notes)["n_descdata"])["amdhsa.kernels"]


def write_manifest(folder: Path, compiler: str, entries: list[dict[str, Any]]) -> None:
    """One line for a kernel."""
    lines = ",\n    ".join(map(json.dumps, entries))
    text = f'{{\n  "compiler": {json.dumps(compiler)},\n  "kernels": [\n    {lines}\n  ]\n}}\n'
    (folder / "manifest.json").write_text(text)
