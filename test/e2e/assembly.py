"""Reads the AMDGPU assembly that IREE dumps: the instructions of a kernel, and its registers and LDS."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FLAG = "--iree-hal-dump-executable-intermediates-to"
"""The iree-compile flag that dumps `.rocmasm` files."""

_FUNCTION = re.compile(r"^\s*\.type\s+(?P<name>[^,]+),@function$")
_END = re.compile(r"^\.Lfunc_end\d+:")
_INSTRUCTION = re.compile(r"^\s+(?P<mnemonic>(?:v|s|ds|buffer|global|flat|scratch|tbuffer)_[a-z0-9_]+)")
# Encodings and operand sizes are noise in a mnemonic, except where the name ends in a type.
_ENCODING = re.compile(r"_(e32|e64|dpp|sdwa|e64_dpp)$")


@dataclass(frozen=True)
class KernelAssembly:
    """One kernel: static instruction counts by mnemonic, and its metadata (registers, bytes of LDS and scratch)."""

    name: str
    instructions: Counter[str]
    metadata: dict[str, int]

    def count(self, prefix: str) -> int:
        """Returns the number of instructions whose mnemonic starts with `prefix`."""
        return sum(count for mnemonic, count in self.instructions.items() if mnemonic.startswith(prefix))

    @property
    def vgprs(self) -> int:
        """The number of vector registers per lane, accumulator registers included."""
        return self.metadata["vgpr_count"]

    @property
    def lds_bytes(self) -> int:
        return self.metadata["group_segment_fixed_size"]

    @property
    def scratch_bytes(self) -> int:
        return self.metadata["private_segment_fixed_size"]

    @property
    def spills(self) -> int:
        return self.metadata["vgpr_spill_count"] + self.metadata["sgpr_spill_count"]


def read_dump(directory: str | Path) -> list[KernelAssembly]:
    """Returns the kernels of all `.rocmasm` files in a directory, by file and position."""
    return [kernel for path in sorted(Path(directory).glob("*.rocmasm")) for kernel in parse(path.read_text())]


def parse(text: str) -> list[KernelAssembly]:
    """Returns the kernels of one assembly file."""
    metadata = {str(entry["name"]): entry for entry in _metadata(text)}
    kernels = []
    for name, instructions in _functions(text):
        if name in metadata:
            numbers = {key: value for key, value in metadata[name].items() if isinstance(value, int)}
            kernels.append(KernelAssembly(name, instructions, numbers))
    return kernels


def _functions(text: str) -> Iterator[tuple[str, Counter[str]]]:
    name, counts = "", Counter[str]()
    for line in text.splitlines():
        if found := _FUNCTION.match(line):
            name, counts = found["name"], Counter()
        elif _END.match(line):
            yield name, counts
        elif found := _INSTRUCTION.match(line):
            counts[_ENCODING.sub("", found["mnemonic"])] += 1


def _metadata(text: str) -> Iterator[dict[str, int | str]]:
    """Yields the kernel entries of the `.amdgpu_metadata` block (YAML, but regular: one key a line)."""
    block = text.partition(".amdgpu_metadata")[2].partition(".end_amdgpu_metadata")[0]
    for part in re.split(r"^  - (?=\.a)", block, flags=re.M)[1:]:
        entry: dict[str, int | str] = {}
        for line in ("    " + part).splitlines():
            found = re.match(r"^    \.(\w+):\s+(\S+)", line)
            if found:
                entry[found[1]] = int(found[2]) if found[2].isdigit() else found[2]
        if "name" in entry:
            yield entry
