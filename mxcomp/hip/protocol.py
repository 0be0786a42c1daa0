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
    GUESS = 10


class ErrorCode(IntEnum):
    """Values of `hipError_t`."""

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
    """The kind of an allocation. The host may write HOST memory at any time, so nothing in it counts as unwritten."""

    DEVICE = 0
    HOST = 1


REQUEST = struct.Struct("<IIQQQ")
"""The layout of a request: operation, device, two numbers, bytes of payload."""

REPLY = struct.Struct("<iIQ")
"""The layout of a reply: code, bytes of payload (a message, unless the code is SUCCESS), a number."""

FUNCTION = struct.Struct("<6I")
"""The layout of a kernel's description: bytes of arguments, of LDS and of scratch, registers, most threads, number of
arguments."""

ARGUMENT = struct.Struct("<2I")
"""The layout of an argument: offset and bytes; one for each explicit argument follows FUNCTION."""

MOST_ARGUMENTS = 256
MOST_KERNARG_BYTES = 65536

LAUNCH = struct.Struct("<8I")
"""The layout of a launch: grid in workgroups, block in work-items, bytes of dynamic LDS, padding; the argument segment
follows."""

SOCKET, DATA, MARKS = 3, 4, 5
"""The file descriptors of the worker."""

Answer = tuple[int, bytes]
"""The answer to a request: a number and a payload."""


class Refusal(Exception):  # noqa: N818 (not always an error)
    """A request fails with an error code of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
