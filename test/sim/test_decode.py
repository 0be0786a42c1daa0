"""Decoding agrees with LLVM's disassembler.

disassembly.json.gz keeps what llvm-objdump of LLVM 22 (Debian: llvm-22) says of each instruction in the code objects
here; pytest -n 0 --update-golden asks it again.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from mxcomp.sim import encodings
from mxcomp.sim.code_object import load
from mxcomp.sim.decode import decode
from mxcomp.sim.instruction import EXEC, VGPR0, Instruction
from mxcomp.sim.program import program_of, reachable

HERE = Path(__file__).parent
STORE = HERE / "disassembly.json.gz"
OBJDUMP = "llvm-objdump-22"
FILES = sorted(HERE.rglob("*.hsaco"))

_LINE = re.compile(r"^\t(?P<text>.*?)\s*// [0-9A-F]{12}: (?P<words>[0-9A-F ]+)")
_REGISTER = re.compile(r"\b([sva])(?:(\d+)\b|\[(\d+):(\d+)\])")
_SPELLING = {"v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write"}


@cache
def disassembly() -> dict[str, str]:
    """By an instruction's words, in hexadecimal digits as LLVM prints them: its text."""
    found: dict[str, str] = json.loads(gzip.decompress(STORE.read_bytes()))
    return found


def disassembled() -> dict[str, str]:
    """The same by LLVM."""
    command = [OBJDUMP, "-d", "--mcpu=gfx950", *map(str, FILES)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {match["words"].replace(" ", ""): match["text"] for line in lines if (match := _LINE.match(line))}


def registers(text: str) -> set[str]:
    """Single registers named in an operand list."""
    names = set()
    for kind, single, first, last in _REGISTER.findall(text):
        names |= {f"{kind}{n}" for n in (range(int(first), int(last) + 1) if last else [int(single)])}
    return names


def ours(i: Instruction) -> set[str]:
    return set().union(*(registers(str(operand).strip("-|")) for operand in (*i.dst, *i.src)))


def test_disassembly_is_kept(request: pytest.FixtureRequest) -> None:
    """Of all code objects; without the time of writing, so that the same makes the same file."""
    if request.config.getoption("--update-golden"):
        STORE.write_bytes(gzip.compress(json.dumps(disassembled(), indent=0, sort_keys=True).encode(), mtime=0))
        disassembly.cache_clear()
    assert len(disassembly()) > 10_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_against_llvm(path: Path) -> None:
    """An instruction of another size, or one that LLVM has not seen, is not found."""
    module = load(path.read_bytes())
    for kernel in module.kernels.values():
        for address, i in reachable(module, kernel.entries).items():
            words = memoryview(module.bytes_at(address, i.size)).cast("I")
            mnemonic, _, operands = disassembly()["".join(f"{word:08X}" for word in words)].partition(" ")
            for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
                mnemonic = mnemonic.removesuffix(suffix)
            assert i.mnemonic == _SPELLING.get(mnemonic, mnemonic)
            if i.dst or i.src:
                assert ours(i) == registers(operands), f"{address:#x}: {mnemonic} {operands}: {i}"


def test_encodings_are_those_of_tinygrads_decoder() -> None:
    """Encoding, opcode and every bit field, of random bytes and of what compilers wrote."""
    from tinygrad.renderer.amd import decode_inst

    codes = [random.Random(1).randbytes(16) for _ in range(1000)]
    for path in FILES[::4]:
        text = load(path.read_bytes()).text
        codes += [text[at : at + 16] for at in range(0, min(len(text), 2400) - 16, 4)]
    known = 0
    for code in codes:
        scaled = code[2:4] == bytes.fromhex("acd3")  # tinygrad looks for this in the second half only
        try:
            raw = decode_inst(code if scaled else code[:8], "cdna")
        except Exception:
            raw = None
        word = int.from_bytes(code, "little")
        found = encodings.find(word)
        assert (found is None) == (raw is None), code.hex()
        if found is None:
            continue
        known += 1
        encoding, mnemonic = found
        assert (encoding.name, encoding.size) == (type(raw).__name__, raw.size())
        assert raw.op.name.lower() in {mnemonic + suffix for suffix in ("", "_e32", "_e64", "_sdwa", "_dpp")}
        for field, low, mask in encoding.fields:
            bits = getattr(type(raw), field)
            assert word >> low & mask == raw._raw >> bits.lo & bits.mask
    assert known > 3000


def test_scale_prefix_is_not_guessed() -> None:
    """A matrix instruction without scales after another 8-byte instruction is not taken for a scaled one."""
    unscaled = bytes.fromhex("0000aed304056a04")  # any MFMA with the opcode of f8f6f4
    i = decode(bytes.fromhex("04c0fcd302020200") + unscaled, 0)
    assert i.size == 8


def test_preload_entries_are_both_decoded() -> None:
    for path in FILES:
        for kernel in load(path.read_bytes()).kernels.values():
            if kernel.descriptor.preload_count:
                instructions = program_of(kernel).instructions
                assert set(kernel.entries) <= set(instructions)
                return
    pytest.skip("no kernel with preloaded arguments")


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("0040b1d302090008", ["v2", "v3", "s4"]),  # v_pk_mul_f32 v[0:1], v[2:3], s[4:5] op_sel_hi:[1,0]
        ("0040b1d302090218", ["v2", "v3", "v4", "v5"]),  # v_pk_mul_f32 v[0:1], v[2:3], v[4:5]
        ("0048b3d302090218", ["v3", "v4"]),  # v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]
    ],
)
def test_pairs_are_read_as_far_as_op_sel_picks(code: str, read: list[str]) -> None:
    """What is not picked may never have been written."""
    instruction = decode(bytes.fromhex(code).ljust(16, b"\0"), 0)
    assert instruction.reads & ~(3 << EXEC) == sum(1 << (int(name[1:]) + VGPR0 * (name[0] == "v")) for name in read)


def test_the_same_words_elsewhere() -> None:
    """Only addresses differ: where an instruction is, and where a branch goes."""
    codes = "feff82bf", "02070468"  # s_branch −2, v_add_u32
    branch, plain = (bytes.fromhex(code).ljust(16, b"\0") for code in codes)
    here, there = decode(branch, 0x100), decode(branch, 0x2000)
    assert (here.target, there.target) == (0xFC, 0x1FFC)
    assert there == here._replace(offset=0x2000, target=0x1FFC)
    assert decode(plain, 8) == decode(plain, 64)._replace(offset=8)
