"""Decoding agrees with LLVM's disassembler, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mxcomp.sim.code_object import load
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.program import program_of, reachable

HERE = Path(__file__).parent
OBJDUMP = shutil.which("llvm-objdump-22")
FILES = sorted(HERE.rglob("*.hsaco"))

_LINE = re.compile(r"^\t(?P<text>.*?)\s*// (?P<address>[0-9A-F]{12}): (?P<words>[0-9A-F ]+)")
_REGISTER = re.compile(r"\b([sva])(?:(\d+)\b|\[(\d+):(\d+)\])")
_SPELLING = {"v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write"}


def disassemble(path: Path) -> dict[int, tuple[str, str, int]]:
    """LLVM's listing: address → mnemonic, operands, bytes."""
    command = [str(OBJDUMP), "-d", "--mcpu=gfx950", str(path)]
    result = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if match := _LINE.match(line):
            mnemonic, _, operands = match["text"].partition(" ")
            result[int(match["address"], 16)] = (mnemonic, operands, 4 * len(match["words"].split()))
    return result


def registers(text: str) -> set[str]:
    """Single registers named in an operand list."""
    names = set()
    for kind, single, first, last in _REGISTER.findall(text):
        names |= {f"{kind}{n}" for n in (range(int(first), int(last) + 1) if last else [int(single)])}
    return names


def ours(i: Instruction) -> set[str]:
    return set().union(*(registers(str(operand).strip("-|")) for operand in (*i.dst, *i.src)))


@pytest.mark.skipif(OBJDUMP is None, reason="needs llvm-objdump-22")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_against_llvm(path: Path) -> None:
    listing = disassemble(path)
    for kernel in load(path.read_bytes()).kernels.values():
        for address, i in reachable(kernel.module, kernel.entries).items():
            mnemonic, operands, size = listing[address]
            for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
                mnemonic = mnemonic.removesuffix(suffix)
            assert (i.mnemonic, i.size) == (_SPELLING.get(mnemonic, mnemonic), size)
            if i.dst or i.src:
                assert ours(i) == registers(operands), f"{address:#x}: {mnemonic} {operands}: {i}"


def test_scale_prefix_is_not_guessed() -> None:
    """A matrix instruction without scales after another 8-byte instruction is not taken for a scaled one."""
    from mxcomp.sim.decode import decode

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
