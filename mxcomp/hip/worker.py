"""The process that simulates: serves one driver library until its socket closes.

Started as ``python -m mxcomp.hip.worker <host> <launcher>`` with the file descriptors that `protocol` names: the
process of the host program, and the process that it is not to outlive or 0.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path

from mxcomp.hip.devices import Devices, Refusal
from mxcomp.hip.protocol import DATA, MARKS, REPLY, REQUEST, SOCKET, ErrorCode, Operation
from mxcomp.sim.errors import CodeObjectError, SimulationError

_CODES = {Operation.LAUNCH: ErrorCode.LAUNCH_FAILURE, Operation.ALLOC: ErrorCode.OUT_OF_MEMORY}
"""What a request fails with, where the error does not say; IREE forgets the message of an UNKNOWN one."""

_LONGEST_MESSAGE = 4000
_LOOK_AFTER_MS = 300


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the host program's; this ends when that does
    connection = socket.socket(fileno=SOCKET)
    host, launcher = map(int, sys.argv[1:3] or (0, 0))
    threading.Thread(target=_end_with_host, args=(host, launcher), daemon=True).start()
    devices = Devices(DATA, MARKS)
    while True:
        operation, device, a, b, size = REQUEST.unpack(_receive(connection, REQUEST.size))
        payload = _receive(connection, size)
        connection.sendall(_answer(devices, Operation(operation), device, a, b, payload))


def _answer(devices: Devices, operation: Operation, device: int, a: int, b: int, payload: bytes) -> bytes:
    try:
        value, result = devices.handlers[operation](device, a, b, payload)
        return REPLY.pack(ErrorCode.SUCCESS, len(result), value) + result
    except Refusal as error:
        code, message = error.code, str(error)
    except CodeObjectError as error:
        code, message = ErrorCode.INVALID_IMAGE, str(error)
    except SimulationError as error:
        code, message = _CODES.get(operation, ErrorCode.INVALID_VALUE), str(error)
    except Exception as error:  # a bug here; the host program is to survive it
        traceback.print_exc()
        code, message = _CODES.get(operation, ErrorCode.INVALID_VALUE), f"{type(error).__name__}: {error}"
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


def _end_with_host(host: int, launcher: int) -> None:
    """Ends the process when the host program closes its end, even during a launch.

    A host program that was launched by mxcomp is ended as well when that process is gone: killed, it cannot do so.
    """
    poll = select.poll()
    poll.register(SOCKET, select.POLLRDHUP)
    while not poll.poll(_LOOK_AFTER_MS):
        if launcher and _parent(host) not in (launcher, None):
            if os.getppid() == host:
                os.kill(host, signal.SIGTERM)
            break
    os._exit(0)


def _parent(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


if __name__ == "__main__":
    main()
