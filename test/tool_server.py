"""A process that has imported the commands of lit tests, which is most of their time, and copies itself for each.

A copy is taken before any command has run, and so knows of none but its own.
"""

from __future__ import annotations

import atexit
import gc
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

TOOLS = {
    "mxcomp-bench": "mxcomp.tools.bench",
    "mxcomp-compile": "mxcomp.tools.compile",
    "mxcomp-kernel": "mxcomp.tools.kernel",
    "mxcomp-opt": "mxcomp.tools.opt",
    "mxcomp-pack": "mxcomp.tools.pack",
    "mxcomp-run": "mxcomp.tools.run",
    "mxcomp-tune": "mxcomp.tools.tune",
}
"""Commands of ours, and the module whose `main` each is."""
CHECKER = {"filecheck": "filecheck.main"}
"""The command that reads what ours write, which has a server of its own: a small process is copied in 2 ms, not 25."""
NUMBER = 4
"""Bytes of a number in a message."""


def client(place: Path) -> Path:
    """Builds what stands for each command."""
    from mxcomp.hip import build

    subprocess.run([*build.compiler(), "-O1", "-o", place, Path(__file__).with_name("tool_client.c")], check=True)
    return place


def start(place: Path, tools: Iterable[str]) -> subprocess.Popen[bytes]:
    """Starts a server of commands at the socket `place`, which ends with this process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        command = [sys.executable, __file__, str(listener.fileno()), str(os.getpid()), *tools]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()], env=environment)


def main(listener: str, parent: str, *tools: str) -> str | int | None:
    """Serves until `parent` is gone. Returns in copies: what the `main` of a command returned."""
    from mxcomp.support import workers

    workers.end_with(int(parent))
    mains = {tool: import_module((TOOLS | CHECKER)[tool]).main for tool in tools}
    if set(mains) & set(TOOLS):
        _prepare()
    gc.freeze()  # what copies share they do not write to
    with socket.socket(fileno=int(listener)) as clients, selectors.DefaultSelector() as events:
        events.register(clients, selectors.EVENT_READ)
        while True:
            for event, _ in events.select():
                if event.fileobj is not clients:
                    _answer(*event.data)
                    events.unregister(event.fd)
                    os.close(event.fd)
                    continue
                client, _ = clients.accept()
                if (copy := os.fork()) == 0:
                    sys.argv = _become(client)
                    return mains[sys.argv[0]]()
                events.register(os.pidfd_open(copy), selectors.EVENT_READ, (copy, client))


def _prepare() -> None:
    """Imports and reads what each command of ours would."""
    # Of the tree that PYTHONPATH says, while lit may find another.
    from iree.compiler import ir

    from mxcomp import passes
    from mxcomp.registry import Registry
    from mxcomp.selection import times
    from mxcomp.target import DEFAULT, get_target

    import_module("mxcomp.sim.timing.replay")  # and Numba, which benchmarks begin with
    for name in passes.PASSES:
        passes.get_pass(name)
    with ir.Context(), ir.Location.unknown():
        Registry(get_target(DEFAULT))  # which keeps what it has read
    times.table(get_target(DEFAULT))


def _answer(copy: int, client: socket.socket) -> None:
    """Tells a client how its copy has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    with client:
        client.sendall(code.to_bytes(NUMBER, sys.byteorder, signed=True))


def _become(client: socket.socket) -> list[str]:
    """Takes over the files, directory and environment of a client; its command."""
    with client, client.makefile("rb") as file:
        size, files, _, _ = socket.recv_fds(client, NUMBER, 3)
        fields = [os.fsdecode(each) for each in file.read(int.from_bytes(size, sys.byteorder)).split(b"\0")]
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 (to the end)
    count = 1 + int(fields[0])
    os.chdir(fields[count])
    os.environ.clear()
    os.environ.update(each.split("=", 1) for each in fields[count + 1 : -1])
    return fields[1:count]


def _end(code: str | int | None) -> NoReturn:
    """Ends a copy without taking apart all that it shares, which would write to each page of it, and so copy it."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    try:
        result: str | int | None = main(*sys.argv[1:])
    except SystemExit as error:
        result = error.code
    _end(result)
