"""The driver library itself: symbols, memory, modules, launches, graphs, events, contexts."""

from __future__ import annotations

import ctypes
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import iree._runtime_libs
import numpy as np
import pytest
from hip_api import DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, Hip, HipError
from host_programs import process

from mxcomp.hip import build, protocol
from mxcomp.sim import memory

NUMBERS = np.arange(1000, 1128, dtype=np.uint32)


@cache
def hip() -> Hip:
    return Hip()


def test_every_symbol_that_iree_names() -> None:
    runtime = Path(iree._runtime_libs.__path__[0], "iree-run-module").read_bytes()
    names = {name.decode() for name in re.findall(rb"\0(hip[A-Z]\w+)(?=\0)", runtime)}
    names = {name for name in names if not name.startswith("hipError") and name != "hipSuccess"}
    assert len(names) > 70
    assert [name for name in sorted(names) if not hasattr(hip().functions, name)] == []


def test_both_sides_state_the_same_numbers() -> None:
    header = (build.SOURCES / "driver.h").read_text()
    operations = {name: int(value) for name, value in re.findall(r"MX_(\w+) = (\d+), *//", header)}
    assert operations == {name: member.value for name, member in protocol.Operation.__members__.items()}
    assert f"MX_MOST_ARGUMENTS = {protocol.MOST_ARGUMENTS} " in header
    assert f"MX_MOST_KERNARG_BYTES = {protocol.MOST_KERNARG_BYTES} " in header
    codes = {int(number): name for name, number in re.findall(r"X\(hip(?:Error)?(\w+), (\d+),", header)}
    for member in protocol.ErrorCode:
        assert codes[member].lower() == member.name.replace("_", "").lower()
    assert f"MX_BASE {memory.BASE:#x}ull" in header


# Memory.


def test_copies_and_fills() -> None:
    first = hip().upload(NUMBERS)
    second = hip().new("hipMalloc", NUMBERS.nbytes)
    hip().hipMemcpyAsync(second, first, NUMBERS.nbytes, DEVICE_TO_DEVICE, None)
    np.testing.assert_array_equal(hip().download(second, NUMBERS), NUMBERS)
    hip().hipMemsetD32Async(second, 0x01020304, 3, None)
    hip().hipMemsetD16Async(second + 12, 0x0506, 2, None)
    hip().hipMemsetD8Async(second + 16, 7, 4, None)
    expected = NUMBERS.copy()
    expected[:5] = [0x01020304] * 3 + [0x05060506, 0x07070707]
    np.testing.assert_array_equal(hip().download(second, NUMBERS), expected)
    hip().hipMemset(second, 0x11, NUMBERS.nbytes)
    np.testing.assert_array_equal(hip().download(second, NUMBERS), 0x11111111)


@pytest.mark.parametrize(("begin", "size"), [(0, 1 << 20), (1000, 500_000), (4096, 4096), (5000, 3000), (4095, 4098)])
def test_zeros_take_no_memory(begin: int, size: int) -> None:
    """Whole pages of zeros are given back, and what is beside them stays."""
    numbers = np.random.default_rng(0).integers(1, 256, 1 << 20, np.uint8)
    pointer = hip().upload(numbers)
    hip().hipMemset(pointer + begin, 0, size)
    numbers[begin : begin + size] = 0
    np.testing.assert_array_equal(hip().download(pointer, numbers), numbers)


def test_fresh_memory_is_not_zero() -> None:
    pointer = hip().new("hipMalloc", 4096)
    assert (hip().download(pointer, np.empty(4096, np.uint8)) == 0xFF).all()


def test_bounds_of_copies() -> None:
    pointer = hip().upload(NUMBERS)
    for offset, size in ((4, NUMBERS.nbytes), (-4, 8), (0, 1 << 40)):
        with pytest.raises(HipError, match="outside of every allocation"):
            hip().hipMemcpy(pointer + offset, NUMBERS.ctypes.data, size, HOST_TO_DEVICE)
    with pytest.raises(HipError, match=r"hipErrorInvalidDevicePointer.*is not device memory"):
        hip().hipMemcpy(NUMBERS.ctypes.data, pointer, 4, DEVICE_TO_DEVICE)
    hip().hipFree(pointer)
    with pytest.raises(HipError, match="outside of every allocation"):
        hip().hipMemcpy(pointer, NUMBERS.ctypes.data, 4, HOST_TO_DEVICE)
    with pytest.raises(HipError, match="not the start of an allocation"):
        hip().hipFree(pointer)
    hip().hipFree(None)


def test_too_much_memory() -> None:
    for size in (1 << 36, 1 << 50):
        with pytest.raises(HipError, match=r"hipErrorOutOfMemory.*bytes"):
            hip().new("hipMalloc", size)


def test_host_memory() -> None:
    pointer = hip().new("hipHostMalloc", NUMBERS.nbytes, 0)
    assert hip().new("hipHostGetDevicePointer", pointer, 0) == pointer
    ctypes.memmove(pointer, NUMBERS.ctypes.data, NUMBERS.nbytes)
    device = hip().new("hipMalloc", NUMBERS.nbytes)
    hip().hipMemcpy(device, pointer, NUMBERS.nbytes, DEFAULT)
    np.testing.assert_array_equal(hip().download(device, NUMBERS), NUMBERS)
    hip().hipHostFree(pointer)
    with pytest.raises(HipError, match="hipErrorInvalidValue"):
        hip().new("hipHostGetDevicePointer", pointer, 0)


def test_registered_memory() -> None:
    own = NUMBERS.copy()
    hip().hipHostRegister(own.ctypes.data, own.nbytes, 0)
    with pytest.raises(HipError, match="hipErrorHostMemoryAlreadyRegistered"):
        hip().hipHostRegister(own.ctypes.data, own.nbytes, 0)
    pointer = hip().new("hipHostGetDevicePointer", own.ctypes.data, 0)
    device = hip().new("hipMalloc", own.nbytes)
    hip().hipMemcpy(device, pointer, own.nbytes, DEVICE_TO_DEVICE)
    np.testing.assert_array_equal(hip().download(device, own), own)
    hip().hipMemset(device, 0, own.nbytes)
    hip().launch(function("fine_copy"), pointer, device)
    np.testing.assert_array_equal(hip().download(device, own), own)
    hip().launch(function("fine_lds"), pointer, pointer)
    np.testing.assert_array_equal(own, np.arange(128) ^ 64)
    hip().hipHostUnregister(own.ctypes.data)
    with pytest.raises(HipError, match="hipErrorHostMemoryNotRegistered"):
        hip().hipHostUnregister(own.ctypes.data)


# Modules and launches.


def function(name: str) -> int:
    return hip().new("hipModuleGetFunction", hip().load(), name.encode())


def test_launch_on_what_was_copied() -> None:
    source, target = hip().upload(NUMBERS), hip().new("hipMalloc", NUMBERS.nbytes)
    hip().launch(function("fine_copy"), source, target)
    np.testing.assert_array_equal(hip().download(target, NUMBERS), NUMBERS)


def test_launch_on_host_memory() -> None:
    source, target = (hip().new("hipHostMalloc", NUMBERS.nbytes, 0) for _ in range(2))
    ctypes.memmove(source, NUMBERS.ctypes.data, NUMBERS.nbytes)
    hip().launch(function("fine_copy"), source, target)
    result = np.empty_like(NUMBERS)
    ctypes.memmove(result.ctypes.data, target, NUMBERS.nbytes)
    np.testing.assert_array_equal(result, NUMBERS)


@pytest.mark.parametrize("name", ["global_load_beyond", "lds_race", "lds_beyond"])
def test_findings_fail_the_launch(name: str) -> None:
    source, target = hip().upload(NUMBERS), hip().upload(NUMBERS)
    kernel = function(name)
    check = "race" if name == "lds_race" else "bounds"
    for _ in range(2):
        with pytest.raises(
            HipError, match=rf"(?s)hipErrorLaunchFailure.*kernel {name}.*error\[{check}\].*: \w+_"
        ) as error:
            hip().launch(kernel, source, target)
        assert error.value.code == 719
    test_launch_on_what_was_copied()


def test_use_after_free() -> None:
    source, target = hip().upload(NUMBERS), hip().new("hipMalloc", NUMBERS.nbytes)
    kernel = function("fine_copy")
    hip().hipFree(source)
    hip().hipFree(hip().upload(NUMBERS))
    with pytest.raises(HipError, match="reads 4 bytes outside of every allocation"):
        hip().launch(kernel, source, target)


def test_modules() -> None:
    module = hip().load()
    with pytest.raises(HipError, match=r"no kernel 'nothing'.*fine_copy"):
        hip().new("hipModuleGetFunction", module, b"nothing")
    with pytest.raises(HipError, match="no global 'nothing'"):
        hip().new("hipModuleGetGlobal", None, module, b"nothing")
    kernel = hip().new("hipModuleGetFunction", module, b"fine_lds")
    assert hip().number("hipFuncGetAttribute", 1, kernel) == 512
    other = hip().load()
    hip().hipModuleUnload(module)
    hip().hipModuleUnload(other)
    for data in (b"\x7fELF\2\1" + bytes(100), b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100)):
        with pytest.raises(HipError, match="hipErrorInvalidImage"):
            hip().load(data)


def test_launch_configurations() -> None:
    kernel = function("fine_copy")
    for block in (0, 1025):
        with pytest.raises(HipError, match=r"hipErrorInvalidConfiguration.*fine_copy"):
            hip().hipModuleLaunchKernel(kernel, 1, 1, 1, block, 1, 1, 0, None, None, None)


# Streams, events, graphs, contexts.


def test_streams_and_events() -> None:
    stream = hip().new("hipStreamCreateWithFlags", 0)
    start, end = hip().new("hipEventCreate"), hip().new("hipEventCreateWithFlags", 0)
    elapsed = ctypes.c_float()
    with pytest.raises(HipError, match="not recorded"):
        hip().hipEventElapsedTime(ctypes.byref(elapsed), start, end)
    called: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(data))
    hip().hipEventRecord(start, stream)
    hip().hipStreamWaitEvent(stream, start, 0)
    hip().hipLaunchHostFunc(stream, callback, 5)
    hip().hipEventRecord(end, stream)
    hip().hipEventQuery(end)
    hip().hipEventElapsedTime(ctypes.byref(elapsed), start, end)
    assert called == [5]
    assert 0 < elapsed.value < 1000
    hip().hipStreamSynchronize(stream)
    hip().hipStreamDestroy(stream)


def test_work_on_streams_fails_later() -> None:
    first, second, third = (hip().new("hipStreamCreateWithFlags", 0) for _ in range(3))
    event = hip().new("hipEventCreateWithFlags", 0)
    source, target, other = hip().upload(NUMBERS), hip().upload(0 * NUMBERS), hip().upload(0 * NUMBERS)
    host, copy = np.zeros_like(NUMBERS), function("fine_copy")
    read = (host.ctypes.data, target, host.nbytes, DEVICE_TO_HOST)
    pattern = r"(?s)hipErrorLaunchFailure.*kernel lds_race.*error\[race\]"
    hip().launch(function("lds_race"), source, other, stream=first)
    hip().launch(copy, source, target, stream=first)  # left out, as is what follows
    hip().hipMemcpyAsync(target, source, NUMBERS.nbytes, DEVICE_TO_DEVICE, first)
    hip().hipMemsetAsync(target, 1, NUMBERS.nbytes, first)
    hip().hipEventRecord(event, first)
    hip().hipEventQuery(event)
    hip().hipEventSynchronize(event)
    with pytest.raises(HipError, match=pattern):
        hip().hipMemcpy(*read)
    np.testing.assert_array_equal(hip().download(target, NUMBERS), 0 * NUMBERS)
    hip().hipStreamWaitEvent(second, event, 0)
    for stream in (first, second):
        with pytest.raises(HipError, match=pattern):
            hip().hipStreamSynchronize(stream)
        with pytest.raises(HipError, match=pattern) as error:
            hip().hipMemcpyAsync(*read, stream)
        assert error.value.code == 719
    hip().launch(copy, source, target, stream=third)
    hip().hipMemcpyAsync(*read, third)
    np.testing.assert_array_equal(host, NUMBERS)
    hip().hipStreamSynchronize(third)


@pytest.mark.parametrize("told", [False, True])
def test_process_that_was_not_told_fails(told: bool) -> None:
    script = f"""
from hip_api import Hip, HipError
import numpy as np
hip, numbers = Hip(), np.arange(128, dtype=np.uint32)
stream = hip.new("hipStreamCreateWithFlags", 0)
kernel = hip.new("hipModuleGetFunction", hip.load(), b"lds_race")
hip.launch(kernel, hip.upload(numbers), hip.upload(numbers), stream=stream)
print("launched")
if {told}:
    try:
        hip.hipStreamSynchronize(stream)
    except HipError as error:
        assert error.code == 719
"""
    done = process(script)
    assert (done.returncode, done.stdout) == (0 if told else 1, "launched\n")
    assert "kernel lds_race" in done.stderr


def test_host_threads() -> None:
    """ctypes lets other threads run during a call."""
    kernel = function("fine_copy")

    def work(number: int) -> bool:
        own = NUMBERS * (number + 1)
        for _ in range(100):
            source, target = hip().upload(own), hip().new("hipMalloc", own.nbytes)
            hip().launch(kernel, source, target)
            if not np.array_equal(hip().download(target, own), own):
                return False
            hip().hipFree(source)
            hip().hipFree(target)
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_errors_are_each_thread_s_own() -> None:
    both = threading.Barrier(2)

    def fail(name: str) -> str:
        both.wait()
        with pytest.raises(HipError) as error:
            hip().new("hipModuleGetFunction", hip().load(), name.encode())
        both.wait()
        return hip().functions.hipGetErrorString(error.value.code).decode()

    with ThreadPoolExecutor(2) as pool:
        assert [name in text for name, text in zip("xy", pool.map(fail, ["x'", "y'"]), strict=True)] == [True, True]


def test_what_is_not_supported() -> None:
    with pytest.raises(HipError, match=r"hipErrorNotSupported.*hipLaunchKernel"):
        hip().hipLaunchKernel()
    assert hip().functions.hipGetLastError() == 801
    assert hip().functions.hipGetLastError() == 0


def test_contexts() -> None:
    assert hip().number("hipGetDeviceCount") == 1
    context = hip().new("hipDevicePrimaryCtxRetain", 0)
    for _ in range(100):  # IREE pushes more than it pops
        hip().hipCtxPushCurrent(context)
    assert hip().new("hipCtxGetCurrent") == context
    with pytest.raises(HipError, match="device 1 of 1"):
        hip().new("hipDevicePrimaryCtxRetain", 1)
