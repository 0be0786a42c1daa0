"""Takes waits and barriers out of kernels."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from tinygrad.renderer.amd import decode_inst

S_NOP, S_BARRIER, S_WAITCNT = 0xBF800000, 0xBF8A0000, 0xBF8C0000
_SCALED_MFMA = 0xD3AC


@dataclass(frozen=True)
class Site:
    """A wait or barrier: offset from the kernel's entry, position in the file, and what it is."""

    offset: int
    position: int
    text: str

    def removed(self, code: bytes) -> bytes:
        """The code object with `s_nop 0` in its place."""
        return code[: self.position] + struct.pack("<I", S_NOP) + code[self.position + 4 :]


def sites(code: bytes, kernel: str) -> list[Site]:
    """All waits and barriers of a kernel, in the order of the code."""
    found = []
    for offset, position in _instructions(code, kernel):
        (word,) = struct.unpack_from("<I", code, position)
        if word & 0xFFFF0000 in (S_BARRIER, S_WAITCNT):
            found.append(Site(offset, position, _text(word)))
    return found


def _text(word: int) -> str:
    """`s_waitcnt` has vmcnt in bits 15:14 and 3:0, expcnt in 6:4 and lgkmcnt in 11:8; all ones mean no wait."""
    if word == S_BARRIER:
        return "s_barrier"
    vm, lgkm = word & 15 | word >> 10 & 48, word >> 8 & 15
    return " ".join(["s_waitcnt", *[f"vmcnt({vm})"] * (vm < 63), *[f"lgkmcnt({lgkm})"] * (lgkm < 15)])


def _instructions(code: bytes, kernel: str) -> Iterator[tuple[int, int]]:
    """Offsets from a kernel's entry and positions in the file of its instructions, by sizes from tinygrad's tables."""
    elf = ELFFile(io.BytesIO(code))
    (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name(kernel)
    section = elf.get_section(symbol["st_shndx"])
    start = symbol["st_value"] - section["sh_addr"] + section["sh_offset"]
    position = start
    while position < start + symbol["st_size"]:
        yield position - start, position
        (word,) = struct.unpack_from("<I", code, position)
        # The table of 16-byte instructions matches their second half only, so it is offered what can be one.
        length = 16 if word >> 16 == _SCALED_MFMA else 8
        position += decode_inst(code[position : position + length].ljust(16, b"\0"), "cdna").size()
