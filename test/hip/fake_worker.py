"""A worker that answers what a broken one could: python fake_worker.py <what>."""

from __future__ import annotations

import socket
import sys

from mxcomp.hip.protocol import ARGUMENT, FUNCTION, REPLY, REQUEST, SOCKET, Operation

PAYLOADS = {
    "fine": FUNCTION.pack(16, 0, 0, 8, 64, 2) + ARGUMENT.pack(0, 8) + ARGUMENT.pack(8, 8),
    "offset": FUNCTION.pack(16, 0, 0, 8, 64, 1) + ARGUMENT.pack(1 << 20, 8),
    "overflow": FUNCTION.pack(16, 0, 0, 8, 64, 1) + ARGUMENT.pack((1 << 32) - 8, 16),
    "size": FUNCTION.pack(16, 0, 0, 8, 64, 1) + ARGUMENT.pack(8, 9),
    "arguments": FUNCTION.pack(16, 0, 0, 8, 64, 257) + ARGUMENT.pack(0, 8) * 257,
    "kernarg": FUNCTION.pack(65537, 0, 0, 8, 64, 1) + ARGUMENT.pack(0, 8),
}
"""Of FUNCTION."""


def main(what: str) -> None:
    connection = socket.socket(fileno=SOCKET)
    while request := connection.recv(REQUEST.size, socket.MSG_WAITALL):
        operation, _, _, _, size = REQUEST.unpack(request)
        connection.recv(size, socket.MSG_WAITALL)
        if operation != Operation.FUNCTION:
            connection.sendall(REPLY.pack(0, 0, 1))
        elif what in PAYLOADS:
            connection.sendall(REPLY.pack(0, len(PAYLOADS[what]), 1) + PAYLOADS[what])
        else:  # it dies while it answers
            code = {"cut": 0, "cut-message": 500}[what]
            connection.sendall(REPLY.pack(code, 24, 1) + b"\x10")
            return


if __name__ == "__main__":
    main(sys.argv[1])
