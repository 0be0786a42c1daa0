"""Messages between the driver library and the worker. `driver/driver.h` states the same numbers.

A request is a header and a payload; each is answered by a header and a payload before the next one is sent.
"""

from __future__ import annotations

import struct
from enum import IntEnum


class Operation(IntEnum):
    SETTINGS = 1
    ALLOC = 2
    FREE = 3
    LOAD = 4
    UNLOAD = 5
    FUNCTION = 6
    GLOBAL = 7
    LAUNCH = 8
    PEER = 9


class ErrorCode(IntEnum):
    """`hipError_t`."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_IMAGE = 200
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    PEER_ACCESS_ALREADY_ENABLED = 704
    LAUNCH_FAILURE = 719
    UNKNOWN = 999


class MemoryKind(IntEnum):
    """HOST memory is the host's to write at any time, so that nothing in it counts as unwritten."""

    DEVICE = 0
    HOST = 1


REQUEST = struct.Struct("<IIQQQ")
"""Operation, device, two numbers, bytes of payload."""

REPLY = struct.Struct("<iIQ")
"""Code, bytes of payload (unless the code is SUCCESS, a message), a number."""

FUNCTION = struct.Struct("<6I")
"""Bytes of arguments, of LDS and of scratch, registers, most threads, number of arguments."""

ARGUMENT = struct.Struct("<2I")
"""Offset and bytes; one for each explicit argument follows FUNCTION."""

MOST_ARGUMENTS = 256
MOST_KERNARG_BYTES = 65536

LAUNCH = struct.Struct("<8I")
"""Grid in workgroups, block in work-items, bytes of dynamic LDS, nothing; the argument segment follows."""

SOCKET, DATA, MARKS = 3, 4, 5
"""File descriptors of the worker."""

Answer = tuple[int, bytes]
"""What a request is answered with: a number and a payload."""


class Refusal(Exception):  # noqa: N818 (not always an error)
    """A request that fails with a code of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
