"""A program that loads and launches mutated code objects: python load_mutants.py <first seed> <end> <step>.

Prints a line for each: seed, how it ended. Each code object ends where memory ends.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

from hip_api import FAULTS, HipError, LibraryFunctions
from mutants import mutated

from mxcomp.sim.code_object import load

CORPUS = Path(__file__).parent.parent / "sim" / "corpus"
CODES = [
    FAULTS,
    (CORPUS / "iree" / "m64_n128_k512.hsaco").read_bytes(),
    (CORPUS / "flydsl" / "softmax.hsaco").read_bytes(),
]
KERNELS = [tuple(load(code).kernels) for code in CODES]

_PAGE = mmap.PAGESIZE
_BUFFER_BYTES = 1 << 20
_ARGUMENTS, _ARGUMENT_BYTES = 256, 1 << 16


class EndOfMemory:
    """Bytes with nothing to be read behind them, for as long as this exists."""

    def __init__(self, data: bytes) -> None:
        room = -(-len(data) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, room + _PAGE)
        self._map[room - len(data) : room] = data
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = start + room - len(data)


def main() -> None:
    hip = LibraryFunctions(os.environ["LIBRARY"])
    hip.number("hipGetDeviceCount")
    buffer = new_buffer(hip)
    for seed in range(*map(int, sys.argv[1:4])):
        print(seed, end=" ", flush=True)
        which = seed // 4 % len(CODES)
        outcomes = attempt(hip, mutated(CODES[which], seed), KERNELS[which], seed, buffer)
        print(*outcomes, flush=True)
        if "died" in outcomes:
            hip.number("hipGetDeviceCount")
            buffer = new_buffer(hip)


def new_buffer(hip: LibraryFunctions) -> int:
    buffer = hip.new("hipMalloc", _BUFFER_BYTES)
    hip.hipMemset(buffer, 0, _BUFFER_BYTES)
    return buffer


def attempt(hip: LibraryFunctions, code: bytes, kernels: tuple[str, ...], seed: int, buffer: int) -> list[str]:
    image = EndOfMemory(code)
    try:
        module = hip.new("hipModuleLoadData", image.address)
    except HipError as error:
        return [outcome(error)]
    outcomes = ["loaded"]
    with suppress(HipError):
        hip.new("hipModuleGetGlobal", None, module, f"{kernels[0]}.kd".encode())
    for name in (kernels[seed % len(kernels)], kernels[seed * 7 % len(kernels)]):
        try:
            launch(hip, hip.new("hipModuleGetFunction", module, name.encode()), seed, buffer)
        except HipError as error:
            outcomes.append(outcome(error))
        else:
            outcomes.append("ran")
    hip.hipModuleUnload(module)
    return outcomes


def launch(hip: LibraryFunctions, function: int, seed: int, buffer: int) -> None:
    """Every argument is a buffer, given one by one or, as to kernels without metadata, in one block of bytes."""
    if seed // 4 % len(CODES) == 0 or seed % 5 == 0:
        hip.launch(function, buffer, buffer + _BUFFER_BYTES // 2)
        return
    value = (ctypes.c_uint64 * (_ARGUMENT_BYTES // 8))(*[buffer] * (_ARGUMENT_BYTES // 8))
    parameters = (ctypes.c_void_p * _ARGUMENTS)(*[ctypes.addressof(value)] * _ARGUMENTS)
    hip.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, parameters, None)


def outcome(error: HipError) -> str:
    return "died" if "worker" in str(error) else str(error).split(": ")[1].removeprefix("hipError")


if __name__ == "__main__":
    main()
