"""Decodes the reachable part of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mxcomp.sim.code_object import Kernel, Module
from mxcomp.sim.decode import LONGEST, decode
from mxcomp.sim.errors import CodeObjectError, UnsupportedInstruction
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics import unsupported

_ENDS = ("s_endpgm", "s_setpc_b64", "s_branch")
_INDIRECT = ("s_setpc_b64", "s_swappc_b64")


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel ready to run.

    Attributes:
        instructions: All reachable instructions by virtual address, in order. A kernel with indirect jumps is taken to
            reach every function of its module.
    """

    kernel: Kernel
    instructions: Mapping[int, Instruction]

    def listing(self) -> str:
        """Returns the disassembly; addresses are relative to the kernel's entry."""
        entry = self.kernel.descriptor.entry
        return "\n".join(f"{address - entry:6x}  {i}" for address, i in self.instructions.items())


@lru_cache(maxsize=64)
def program_of(kernel: Kernel) -> Program:
    """Decodes a kernel. Raises UnsupportedInstruction naming everything reachable that is not implemented."""
    instructions = reachable(kernel.module, kernel.entries)
    entry = kernel.descriptor.entry
    missing = sorted(
        f"{i.mnemonic} at +{address - entry:#x} ({reason})"
        for address, i in instructions.items()
        if (reason := unsupported(i)) is not None
    )
    if missing:
        raise UnsupportedInstruction(f"kernel {kernel.name}: not implemented: " + ", ".join(missing[:40]))
    return Program(kernel, instructions)


def reachable(module: Module, entries: tuple[int, ...]) -> dict[int, Instruction]:
    """Returns the instructions reachable from the entries, by address. Branch targets are taken from the encoding."""
    found: dict[int, Instruction] = {}
    pending = list(entries)
    while pending:
        address = pending.pop()
        while address not in found:
            instruction = found[address] = decode_at(module, address)
            if instruction.mnemonic in _INDIRECT:
                pending += [start for start in module.functions.values() if start not in found]
            if instruction.target is not None:
                pending.append(instruction.target)
            if instruction.mnemonic in _ENDS:
                break
            address = instruction.end
    return dict(sorted(found.items()))


def decode_at(module: Module, address: int) -> Instruction:
    start = address - module.text_address
    if not 0 <= start < len(module.text) or start % 4:
        raise CodeObjectError(f"program counter {address:#x} outside of the code")
    return decode(module.text[start : start + LONGEST], address)
