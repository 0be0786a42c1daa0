"""The process that simulates: serves one driver library until its socket closes.

Started as ``python -m mxcomp.hip.worker`` with the file descriptors that `protocol` names.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import traceback

from mxcomp.hip.devices import Devices
from mxcomp.hip.protocol import DATA, MARKS, REPLY, REQUEST, SOCKET, ErrorCode, Operation, Refusal
from mxcomp.sim.errors import CodeObjectError, SimulationError

_CODES = {Operation.LAUNCH: ErrorCode.LAUNCH_FAILURE, Operation.ALLOC: ErrorCode.OUT_OF_MEMORY}
"""The error codes of exceptions that have none of their own; IREE drops the message of an UNKNOWN error."""

_LONGEST_MESSAGE = 4000


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the host program's; this ends when that does
    connection = socket.socket(fileno=SOCKET)
    threading.Thread(target=_end_with_host, daemon=True).start()
    devices = Devices(DATA, MARKS)
    while True:
        operation, device, a, b, size = REQUEST.unpack(_receive(connection, REQUEST.size))
        payload = _receive(connection, size)
        connection.sendall(_answer(devices, Operation(operation), device, a, b, payload))


def _answer(devices: Devices, operation: Operation, device: int, a: int, b: int, payload: bytes) -> bytes:
    code = _CODES.get(operation, ErrorCode.INVALID_VALUE)
    try:
        value, result = devices.handlers[operation](device, a, b, payload)
        return REPLY.pack(ErrorCode.SUCCESS, len(result), value) + result
    except Refusal as error:
        code, message = error.code, str(error)
    except CodeObjectError as error:
        code, message = ErrorCode.INVALID_IMAGE, str(error)
    except SimulationError as error:
        message = str(error)
    except MemoryError:
        code, message = ErrorCode.OUT_OF_MEMORY, "not enough memory for the simulation"
    except OSError as error:  # a profile or a timeline that cannot be written
        message = f"{error.filename or 'system'}: {error.strerror}"
    except Exception as error:  # a bug here; the host program is to survive it
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
    text = message.encode(errors="replace")[:_LONGEST_MESSAGE]
    return REPLY.pack(code, len(text), 0) + text


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except ConnectionResetError:
            count = 0
        if not count:
            os._exit(0)
        view = view[count:]
    return bytes(data)


def _end_with_host() -> None:
    """Ends the process when the host program closes its end, even during a launch."""
    poll = select.poll()
    poll.register(SOCKET, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
