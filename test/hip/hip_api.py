"""The driver library by ctypes, as any HIP program would call it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mxcomp.hip import library

FAULTS = (Path(__file__).parent.parent / "sim" / "kernels" / "faults.hsaco").read_bytes()
"""Small kernels that take a source and a destination, for two waves."""

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4


class HipError(Exception):
    """`code` is the number; the message has the name and what hipGetErrorString says."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class LibraryFunctions:
    """Calls functions of a library by name; those that fail raise HipError."""

    def __init__(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)
        for name in ("hipGetErrorName", "hipGetErrorString"):
            getattr(self.functions, name).restype = ctypes.c_char_p

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            code = self.functions[name](*(ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments))
            if code:
                texts = (self.functions.hipGetErrorName(code), self.functions.hipGetErrorString(code))
                raise HipError(code, f"{name}: {b': '.join(texts).decode()}")

        return call

    def new(self, name: str, *arguments: Any) -> int:
        """What a function stores through its first argument, a pointer or an object."""
        result = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(result), *arguments)
        return result.value or 0

    def number(self, name: str, *arguments: Any) -> int:
        result = ctypes.c_int()
        getattr(self, name)(ctypes.byref(result), *arguments)
        return result.value

    @contextmanager
    def on_device(self, device: int) -> Iterator[None]:
        self.hipCtxPushCurrent(self.new("hipDevicePrimaryCtxRetain", device))
        try:
            yield
        finally:
            self.hipCtxPopCurrent(None)

    def upload(self, array: np.ndarray) -> int:
        pointer = self.new("hipMalloc", array.nbytes)
        self.hipMemcpy(pointer, array.ctypes.data, array.nbytes, HOST_TO_DEVICE)
        return pointer

    def download(self, pointer: int, like: np.ndarray) -> np.ndarray:
        result = np.empty_like(like)
        self.hipMemcpy(result.ctypes.data, pointer, result.nbytes, DEVICE_TO_HOST)
        return result

    def load(self, code: bytes = FAULTS) -> int:
        return self.new("hipModuleLoadData", ctypes.create_string_buffer(code, len(code)))

    def launch(self, function: int, *pointers: int, stream: int = 0) -> None:
        """One workgroup of two waves; arguments as one block of bytes."""
        data = (ctypes.c_uint64 * len(pointers))(*pointers)
        size = ctypes.c_size_t(ctypes.sizeof(data))
        parts = (1, ctypes.addressof(data), 2, ctypes.addressof(size), 3)
        extra = (ctypes.c_void_p * len(parts))(*parts)
        self.hipModuleLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, stream, None, extra)


class Hip(LibraryFunctions):
    """The library of this installation, with its worker running."""

    def __init__(self) -> None:
        os.environ.update(library.environment())
        super().__init__(str(library.hip_dylib()))
        self.hipGetDeviceCount(ctypes.byref(ctypes.c_int()))  # a worker that runs gets these settings
