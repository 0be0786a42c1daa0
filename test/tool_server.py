"""A process that has imported the commands of lit tests, which is most of their time, and copies itself for each.

A copy is taken before any command has run, and so knows of none but its own.
"""

from __future__ import annotations

import atexit
import gc
import marshal
import os
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import tool_client
from tool_client import NUMBER

TOOLS = {
    "mxcomp-bench": "mxcomp.tools.bench",
    "mxcomp-compile": "mxcomp.tools.compile",
    "mxcomp-kernel": "mxcomp.tools.kernel",
    "mxcomp-opt": "mxcomp.tools.opt",
    "mxcomp-pack": "mxcomp.tools.pack",
    "mxcomp-run": "mxcomp.tools.run",
    "mxcomp-tune": "mxcomp.tools.tune",
    "filecheck": "filecheck.main",
}
"""The commands, and the module whose `main` each is."""


def start(place: str) -> tuple[subprocess.Popen[bytes], list[str]]:
    """Starts a server at the socket `place`, which ends with this process; and what a command is to be put behind."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        command = [sys.executable, __file__, str(listener.fileno()), str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=environment)
    return server, [sys.executable, "-I", "-S", tool_client.__file__, place]


def main(listener: int, parent: int) -> int | None:
    """Serves until `parent` is gone. Returns in copies: what the `main` of a command returned."""
    # Of the tree that PYTHONPATH says, while lit may find another.
    from iree.compiler import ir

    from mxcomp import passes
    from mxcomp.registry import Registry
    from mxcomp.selection import times
    from mxcomp.support import workers
    from mxcomp.target import DEFAULT, get_target

    workers.end_with(parent)
    mains = {tool: import_module(module).main for tool, module in TOOLS.items()}
    for name in passes.PASSES:
        passes.get_pass(name)
    with ir.Context(), ir.Location.unknown():
        Registry(get_target(DEFAULT))  # which keeps what it has read
    times.table(get_target(DEFAULT))
    gc.freeze()  # what copies share they do not write to
    with socket.socket(fileno=listener) as clients:
        while True:
            client, _ = clients.accept()
            if os.fork() == 0:
                break
            client.close()
            _forget_copies()
    with client:
        if copy := os.fork():
            code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
            client.sendall(code.to_bytes(NUMBER, signed=True))
            os._exit(0)
        sys.argv = _become(client)
    return mains[sys.argv[0]]()


def _forget_copies() -> None:
    """Lets those go that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(client: socket.socket) -> list[str]:
    """Takes over the files, directory and environment of a client; its command."""
    size, files, _, _ = socket.recv_fds(client, NUMBER, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 (to the end)
    command, directory, environment = marshal.loads(_read(client, int.from_bytes(size)))
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    return list(command)


def _read(client: socket.socket, size: int) -> bytes:
    with client.makefile("rb") as file:
        return file.read(size)


def _end(code: str | int | None) -> NoReturn:
    """Ends a copy without taking apart all that it shares, which would write to each page of it, and so copy it."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    try:
        result: str | int | None = main(*map(int, sys.argv[1:]))
    except SystemExit as error:
        result = error.code
    _end(result)
