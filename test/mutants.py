"""Changes bytes of code objects, where it hurts, and of any other file that is read."""

from __future__ import annotations

import io
import re

import numpy as np
from elftools.elf.elffile import ELFFile

_EXTREME = (0, 1, 0x7F, 0x80, 0xFF)
_DESCRIBING = (".note", ".rodata", ".dynsym", ".symtab")

Ranges = list[tuple[int, int]]


def ranges(code: bytes) -> tuple[Ranges, ...]:
    """Positions in the file: code, everything, ELF headers, what describes kernels."""
    elf = ELFFile(io.BytesIO(code))
    header = elf.header
    tables = [
        (0, 64),
        (header["e_phoff"], header["e_phoff"] + 56 * header["e_phnum"]),
        (header["e_shoff"], header["e_shoff"] + 64 * header["e_shnum"]),
    ]
    sections = [(s.name, s["sh_offset"], s["sh_offset"] + s["sh_size"]) for s in elf.iter_sections()]
    text = [(start, end) for name, start, end in sections if name == ".text"]
    describing = [(start, end) for name, start, end in sections if name in _DESCRIBING and end > start]
    return text, [(0, len(code))], tables, describing


def mutated(code: bytes, seed: int) -> bytes:
    """One to six bytes changed, all in the same kind of place; seeds that follow each other go through these."""
    rng = np.random.default_rng(seed)
    places = ranges(code)[seed % 4]
    data = bytearray(code)
    for _ in range(1 + seed // 4 % 6):
        start, end = places[int(rng.integers(len(places)))]
        value = int(rng.integers(256)) if rng.integers(2) else _EXTREME[int(rng.integers(len(_EXTREME)))]
        data[int(rng.integers(start, end))] = value
    return bytes(data)


_NUMBERS = (b"-1", b"0", b"1e99", b"4294967296", b"9" * 30, b"null", b'"x"', b"[]", b"{}", b"true")
_NUMBER = re.compile(rb"-?\d+")


def damaged(data: bytes, seed: int) -> bytes:
    """Cut off, with a piece left out or twice, with other numbers in its text, or with one to six other bytes.

    Seeds that follow each other go through these. Headers and tables are at the ends of a file, so that half of the
    places are.
    """
    rng = np.random.default_rng(seed)

    def place() -> int:
        near = min(len(data), 512)
        at = int(rng.integers(near if rng.integers(2) else len(data)))
        return at if rng.integers(4) else len(data) - 1 - at

    match seed % 5:
        case 0:
            return data[: place()]
        case 1:
            start, end = sorted((place(), place()))
            return data[:start] + data[start:end] * (2 * int(rng.integers(2))) + data[end:]
        case 2 if found := list(_NUMBER.finditer(data)):
            number = found[int(rng.integers(len(found)))]
            return data[: number.start()] + _NUMBERS[int(rng.integers(len(_NUMBERS)))] + data[number.end() :]
    result = bytearray(data)
    for _ in range(1 + seed // 5 % 6):
        result[place()] = int(rng.integers(256)) if rng.integers(2) else _EXTREME[int(rng.integers(len(_EXTREME)))]
    return bytes(result)


def mutated_around(data: bytes, start: int, end: int, seed: int) -> bytes:
    """One to six bytes changed that do not lie between two positions."""
    rng = np.random.default_rng(seed)
    result = bytearray(data)
    for _ in range(1 + seed % 6):
        place = int(rng.integers(len(data) - (end - start)))
        result[place if place < start else place + end - start] = int(rng.integers(256))
    return bytes(result)


def elf_bytes(data: bytes) -> int:
    """Bytes of the ELF file that something starts with."""
    header = ELFFile(io.BytesIO(data)).header
    return int(header["e_shoff"] + header["e_shentsize"] * header["e_shnum"])
