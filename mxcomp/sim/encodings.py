"""AMD's instruction encodings as tables: which encoding some bytes have, and where its bit fields lie.

The bit fields are tinygrad's, which are generated from AMD's machine-readable ISA. Its own decoder tries one encoding
after another, field by field; here each is one mask and one value, looked up by the upper bits of the first dword.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

_ORDER = (
    "VOP3PX2", "VOP3P_MFMA", "VOP3P", "VOP3SD", "VOP3_SDST", "VOP3", "DS", "GLOBAL", "SCRATCH", "FLAT", "MUBUF",
    "SMEM", "SOP1", "SOPC", "SOPP", "SOPK", "SOPK_LIT", "VOPC_SDWA_SDST", "VOPC", "VOP1_DPP16", "VOP1_SDWA", "VOP1",
    "VOP2_DPP16", "VOP2_SDWA", "SOP2", "VOP2", "VOP2_LIT",
)  # fmt: skip
"""The encodings in the order in which they are tried, the more specific ones first."""

_SCALED = "VOP3PX2"
"""The encoding of scaled matrix instructions, whose first half is a v_mfma_ld_scale_b32."""
_SCALE_PREFIX, _PREFIX_SHIFT = 0xD3AC, 16

_VARIANTS = {255: "_LIT", 249: "_SDWA", 250: "_DPP16"}
"""Suffixes of encodings by source codes which say that a dword follows: a literal, or modifiers of the first source."""

_KEY_SHIFT, _KEYS = 23, 1 << 9
"""Encodings are indexed by the upper nine bits of the first dword, which leaves few candidates."""

_KNOWN = ("encoding", "op", "seg", "x2encoding")
_SUFFIXES = ("_e32", "_e64", "_sdwa", "_dpp")


@dataclass(frozen=True, eq=False)
class Encoding:
    """One encoding.

    Attributes:
        name: AMD's name with the variant: ``VOP2_SDWA``.
        size: Bytes.
        mask, value: An instruction is in this encoding if its bits under `mask` are `value`, and its opcode is known.
        op_low, op_mask: Where the opcode lies.
        mnemonics: Of each opcode, without suffix.
        fields: (name, lowest bit, mask) of each of the rest.
        sources: Lowest bits and masks of source operands, whose codes may ask for a variant.
        variants: The variants by those codes.
    """

    name: str
    size: int
    mask: int
    value: int
    op_low: int
    op_mask: int
    mnemonics: dict[int, str]
    fields: tuple[tuple[str, int, int], ...]
    sources: tuple[tuple[int, int], ...]
    variants: dict[int, Encoding] = field(default_factory=dict)

    def mnemonic(self, word: int) -> str | None:
        """Returns the mnemonic, if the bits are an instruction in this encoding."""
        if word & self.mask != self.value:
            return None
        return self.mnemonics.get(word >> self.op_low & self.op_mask)


def find(word: int) -> tuple[Encoding, str] | None:
    """Returns the encoding and the mnemonic of the instruction in the lowest bits, or None."""
    for encoding in _by_key()[word >> _KEY_SHIFT & _KEYS - 1]:
        mnemonic = encoding.mnemonic(word)
        if mnemonic is None:
            continue
        for low, mask in encoding.sources if encoding.variants else ():
            variant = encoding.variants.get(word >> low & mask)
            if variant is not None:
                return variant, mnemonic
        return encoding, mnemonic
    return None


@cache
def _by_key() -> list[tuple[Encoding, ...]]:
    encodings = list(_encodings())
    low = (_KEYS - 1) << _KEY_SHIFT
    return [
        tuple(e for e in encodings if (key << _KEY_SHIFT ^ e.value) & e.mask & low == 0) for key in range(_KEYS)
    ]  # fmt: skip


def _encodings() -> Iterator[Encoding]:
    """Returns the encodings by name. tinygrad is imported only here, as that takes a third of a second."""
    from tinygrad.runtime.autogen.amd.cdna import ins

    for name in _ORDER:
        encoding = _encoding(getattr(ins, name))
        if not name.endswith(tuple(_VARIANTS.values())):
            for code, suffix in _VARIANTS.items():
                variant = getattr(ins, name + suffix, None)
                if variant is not None:
                    encoding.variants[code] = _encoding(variant)
        yield encoding


def _encoding(kind: Any) -> Encoding:
    """Returns one of tinygrad's encoding classes as a row."""
    from tinygrad.renderer.amd.dsl import EnumBitField, FixedBitField, SrcField

    name, mask, value = kind.__name__, 0, 0
    mnemonics: dict[int, str] = {}
    op_low = op_mask = 0
    for _, bits in kind._fields:
        if isinstance(bits, FixedBitField):
            mask |= bits.mask << bits.lo
            value |= bits.default << bits.lo
        elif isinstance(bits, EnumBitField):
            op_low, op_mask = bits.lo, bits.mask
            mnemonics = {op.value: _mnemonic(op) for op in (bits._enum if bits.allowed is None else bits.allowed)}
    if name == _SCALED:
        mask |= 0xFFFF << _PREFIX_SHIFT
        value |= _SCALE_PREFIX << _PREFIX_SHIFT
    for code, suffix in _VARIANTS.items():
        if suffix != "_LIT" and suffix in name:
            mask, value = mask | 0x1FF, value | code
    fields = tuple((n, bits.lo, bits.mask) for n, bits in kind._fields if n not in _KNOWN)
    sources = tuple((b.lo, b.mask) for _, b in kind._fields if isinstance(b, SrcField) and b._valid_range[0] == 0)
    return Encoding(name, kind._size(), mask, value, op_low, op_mask, mnemonics, fields, sources)


def _mnemonic(op: Any) -> str:
    name: str = op.name.lower()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name
