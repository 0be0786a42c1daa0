"""Manages code objects on the simulated devices, their kernels and variables."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from mxcomp.hip import loading
from mxcomp.hip.allocations import check_room
from mxcomp.hip.protocol import ARGUMENT, FUNCTION, Answer, ErrorCode, Refusal
from mxcomp.sim import CodeObjectError, Device, Kernel, Module


@dataclass
class Code:
    """A code object on a device, shared by all that load it.

    It stays when the last one unloads it, along with what has been compiled for it: programs are often loaded anew for
    every run.
    """

    module: Module
    users: int = 0


@dataclass
class LoadedModule:
    """One load of a code object, and the kernels that were looked up in it."""

    code: Code
    kernels: list[int] = field(default_factory=list)


class Programs:
    """Serves the requests of the protocol that concern code objects."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._modules: dict[int, LoadedModule] = {}
        self._codes: dict[tuple[int, bytes], Code] = {}
        self._kernels: dict[int, Kernel] = {}
        self._last_id = 0

    def kernel(self, identity: int) -> Kernel:
        """Returns a kernel by the number that `function` gave it."""
        return self._kernels[identity]

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def load(self, device: int, a: int, b: int, payload: bytes) -> Answer:
        number = self._new_id()
        key = device, hashlib.sha256(payload).digest()
        code = self._codes.get(key)
        if code is None or code.module.is_mutable:
            module = loading.read(payload)
            check_room(module.image_bytes)
            code = Code(module)
            self._codes.setdefault(key, code)
        if not code.users:
            self._devices[device].load_module(code.module)
        code.users += 1
        self._modules[number] = LoadedModule(code)
        return number, b""

    def unload(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        loaded = self._modules.pop(number)
        loaded.code.users -= 1
        if not loaded.code.users:
            self._devices[device].unload(loaded.code.module)
        for kernel in loaded.kernels:
            del self._kernels[kernel]
        return 0, b""

    def function(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        loaded, name = self._modules[number], payload.decode()
        kernels = loaded.code.module.kernels
        kernel = kernels.get(name)
        if kernel is None:
            raise Refusal(ErrorCode.NOT_FOUND, f"no kernel '{name}': the code object has {', '.join(kernels)}")
        arguments = [argument for argument in kernel.arguments if not argument.is_hidden]
        identity = self._new_id()
        self._kernels[identity] = kernel
        loaded.kernels.append(identity)
        d = kernel.descriptor
        threads = loading.most_threads(kernel)
        info = FUNCTION.pack(kernel.argument_bytes, d.lds_bytes, d.scratch_bytes, d.vgprs, threads, len(arguments))
        return identity, info + b"".join(ARGUMENT.pack(argument.offset, argument.size) for argument in arguments)

    def variable(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        module, name = self._modules[number].code.module, payload.decode()
        if name not in module.variables:
            raise Refusal(ErrorCode.NOT_FOUND, f"no global '{name}' in the code object")
        address, size = module.variables[name]
        if address + size > module.image_bytes:
            raise CodeObjectError(f"variable '{name}', {size} bytes at {address:#x}, lies outside of the segments")
        return self._devices[device].address_of(module, address), struct.pack("<Q", size)
