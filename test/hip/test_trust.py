"""What code objects, headers, sizes and workers say is not believed: it would touch memory of the caller."""

from __future__ import annotations

import ctypes
import io
import platform
import re
import struct
import sys
from functools import cache
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hip_api import FAULTS, Hip, HipError
from host_programs import run
from load_mutants import CODES

from mxcomp.hip import loading
from mxcomp.sim import CodeObjectError
from mxcomp.sim.code_object import load

HERE = Path(__file__).parent
MATMUL = CODES[1]
KERNEL = next(iter(load(MATMUL).kernels))
DESCRIPTOR = MATMUL.index(struct.pack("<IIII", 0, 0, 16, 0))


@cache
def hip() -> Hip:
    return Hip()


def patched(position: int, data: bytes) -> bytes:
    return MATMUL[:position] + data + MATMUL[position + len(data) :]


def after(text: bytes, occurrence: int = 0) -> int:
    """The position behind a text."""
    position = -1
    for _ in range(occurrence + 1):
        position = MATMUL.index(text, position + 1)
    return position + len(text)


BROKEN = {
    "offset": (patched(after(b".offset", 1), b"\x7f"), "8 bytes at 127, lies outside of 16 bytes"),
    "negative": (patched(after(b".offset", 1), b"\xff"), "8 bytes at -1, lies outside of 16 bytes"),
    "overlap": (patched(after(b".offset", 1), b"\x04"), "8 bytes at 4, overlaps another one"),
    "size": (patched(after(b".size", 1), b"\x09"), "9 bytes at 8, lies outside of 16 bytes"),
    "small": (patched(after(b".size", 1), b"\x07"), "7 bytes at 8: expected 8 bytes"),
    "text": (patched(after(b".offset", 1), b"\xa0"), "malformed metadata"),
    "missing": (patched(after(b".offset") - 1, b"x"), "malformed metadata"),
    "segment": (patched(DESCRIPTOR + 8, struct.pack("<I", 1 << 20)), "at most 65536"),
    "threads": (patched(after(b".max_flat_workgroup_size"), b"\x00"), "workgroups of 0, expected 1 to 1024"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_arguments_outside_of_their_segment(what: str) -> None:
    code, message = BROKEN[what]
    with pytest.raises(CodeObjectError, match=message):
        loading.read(code)
    with pytest.raises(HipError, match=f"hipErrorInvalidImage.*{message}"):
        hip().load(code)


def test_segments_far_apart() -> None:
    """They would take memory from their start on."""
    header = struct.unpack_from("<Q", MATMUL, 32)[0]
    types = [struct.unpack_from("<I", MATMUL, header + 56 * k)[0] for k in range(8)]
    last = header + 56 * max(k for k, kind in enumerate(types) if kind == 1)
    code = patched(last + 16, struct.pack("<Q", 1 << 35))
    with pytest.raises(CodeObjectError, match="segments up to byte 0x8"):
        loading.read(code)


def test_variables_outside_of_their_module() -> None:
    """A kernel's descriptor is one; size and address of a symbol are the last 16 of its 24 bytes."""
    table = ELFFile(io.BytesIO(MATMUL)).get_section_by_name(".dynsym")
    names = [symbol.name for symbol in table.iter_symbols()]
    at = table["sh_offset"] + 24 * names.index(f"{KERNEL}.kd")
    size = ctypes.c_size_t()
    assert hip().new("hipModuleGetGlobal", ctypes.byref(size), hip().load(MATMUL), f"{KERNEL}.kd".encode())
    assert size.value == 64
    for code in (patched(at + 16, struct.pack("<Q", 1 << 20)), patched(at + 8, struct.pack("<Q", 1 << 63))):
        with pytest.raises(HipError, match=r"hipErrorInvalidImage.*lies outside of the segments"):
            hip().new("hipModuleGetGlobal", None, hip().load(code), f"{KERNEL}.kd".encode())


FROM_A_WORKER = """
import os
from hip_api import FAULTS, HipError, LibraryFunctions
hip = LibraryFunctions(os.environ["LIBRARY"])
hip.number("hipGetDeviceCount")
try:
    print("accepted", hip.new("hipModuleGetFunction", hip.load(FAULTS), b"kernel") != 0)
except HipError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("fine", "accepted True"),
        ("offset", "hipErrorInvalidImage.*argument 0, 8 bytes at 1048576, lies outside of 16 bytes"),
        ("overflow", "hipErrorInvalidImage.*argument 0, 16 bytes at 4294967288, lies outside of 16 bytes"),
        ("size", "hipErrorInvalidImage.*argument 0, 9 bytes at 8, lies outside of 16 bytes"),
        ("arguments", "hipErrorInvalidImage.*257 arguments in 16 bytes"),
        ("kernarg", "hipErrorInvalidImage.*1 arguments in 65537 bytes"),
        ("cut", "hipErrorDeinitialized.*died"),
        ("cut-message", "hipErrorDeinitialized.*died"),
    ],
)
def test_answers_of_a_worker(what: str, message: str, tmp_path: Path) -> None:
    worker = tmp_path / "worker.sh"
    worker.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "fake_worker.py"}" {what}\n')
    worker.chmod(0o755)
    out = run(FROM_A_WORKER, MXCOMP_PYTHON=str(worker))
    assert re.search(message, out), out


AT_END_OF_MEMORY = """
import os, struct
from hip_api import FAULTS, HipError, LibraryFunctions
from load_mutants import EndOfMemory
hip = LibraryFunctions(os.environ["LIBRARY"])
hip.number("hipGetDeviceCount")
sections = struct.unpack_from("<Q", FAULTS, 40)[0]
def patched(position, data):
    return FAULTS[:position] + data + FAULTS[position + len(data):]
codes = [FAULTS[:size] for size in (0, 1, 5, 16, 63, 64, 100, 5000, len(FAULTS) - 1)]
codes += [patched(at, struct.pack("<Q", value)) for at in (32, 40) for value in (1 << 16, 1 << 40, 1 << 63, 2**64 - 64)]
codes += [patched(sections + 64 + at, struct.pack("<Q", v)) for at in (24, 32) for v in (1 << 29, 1 << 40, 2**64 - 1)]
codes += [patched(at, struct.pack("<H", value)) for at in (54, 58) for value in (0, 1, 65535)]
codes += [patched(at, struct.pack("<H", 65535)) for at in (56, 60)]
for code in codes:
    image = EndOfMemory(code)
    try:
        hip.new("hipModuleLoadData", image.address)
        print("loaded")
    except HipError as error:
        print(error)
image = EndOfMemory(FAULTS)
assert hip.new("hipModuleLoadData", image.address)
"""
WITHOUT_READV = """
import ctypes, struct
filters = b"".join(struct.pack("<HBBI", *each) for each in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 310), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)))
kept = ctypes.create_string_buffer(filters, len(filters))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(kept)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
"""
"""seccomp: process_vm_readv of x86-64 fails with EPERM, as in some containers."""


@pytest.mark.parametrize("before", ["", WITHOUT_READV], ids=["", "without process_vm_readv"])
def test_headers_that_speak_of_more_than_there_is(before: str) -> None:
    """Each code object ends where memory ends."""
    if before and platform.machine() != "x86_64":
        pytest.skip("the number of the system call is that of x86-64")
    lines = run(before + AT_END_OF_MEMORY).splitlines()
    assert len(lines) == 31
    for line in lines:
        assert "hipErrorInvalidImage" in line


# Sizes that programs give.


def test_fills_of_more_bytes_than_can_be_counted() -> None:
    target = hip().new("hipMalloc", 64)
    with pytest.raises(HipError, match=r"hipErrorInvalidValue.*4611686018427387904 elements of 4 bytes"):
        hip().hipMemsetD32Async(target, 0, 1 << 62, None)
    with pytest.raises(HipError, match=r"hipErrorInvalidValue.*9223372036854775808 elements of 2 bytes"):
        hip().hipMemsetD16Async(target, 0, 1 << 63, None)


@pytest.mark.parametrize(
    ("element", "height", "pitch", "message"),
    [
        (8, 1, 64, "elements of 8 bytes"),
        (0, 1, 64, "elements of 0 bytes"),
        (4, 2, (1 << 64) - 64, "row 1 of a pitch"),
    ],
)
def test_fills_in_graphs(element: int, height: int, pitch: int, message: str) -> None:
    """hipMemsetParams: target, bytes of an element, rows, bytes between them, value, elements of a row."""
    target, graph = hip().new("hipMalloc", 1 << 12), hip().new("hipGraphCreate", 0)
    parameters = ctypes.create_string_buffer(struct.pack("<QI4xQQI4xQ", target, element, height, pitch, 0, 1))
    hip().new("hipGraphAddMemsetNode", graph, None, 0, parameters)
    with pytest.raises(HipError, match=f"hipErrorInvalidValue.*{message}"):
        hip().hipGraphLaunch(hip().new("hipGraphInstantiate", graph, None, None, 0), None)


def test_grids_of_more_work_items_than_can_be_counted() -> None:
    kernel = hip().new("hipModuleGetFunction", hip().load(FAULTS), b"fine_copy")
    for block in ((64, 1, 1), (1 << 31, 1 << 31, 4)):
        with pytest.raises(HipError, match="hipErrorInvalidConfiguration"):
            hip().hipModuleLaunchKernel(kernel, 1 << 27, 1, 1, *block, 0, None, None, None)
