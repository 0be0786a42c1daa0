"""Stands for a command that a copy of the server of tool_server.py runs, and ends as that copy ends.

It gets the server's socket and then the command; its environment, directory, stdin, stdout and stderr go along.
"""

import _socket  # importing socket would take longer than all else here
import marshal
import os
import sys

NUMBER = 4
"""Bytes of a number in a message."""


def main(place: str, *command: str) -> None:
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(place)
    request = marshal.dumps((command, os.getcwd(), dict(os.environ)))
    files = b"".join(file.to_bytes(NUMBER, sys.byteorder) for file in range(3))
    server.sendmsg([len(request).to_bytes(NUMBER)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    server.sendall(request)
    answer = server.recv(NUMBER)
    if not answer:
        sys.exit(f"{command[0]}: the server of the tools is gone")
    code = int.from_bytes(answer, signed=True)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
