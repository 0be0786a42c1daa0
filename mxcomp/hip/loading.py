"""Reads code objects of programs, and checks what devices and the driver library rely on.

`mxcomp.sim` reads a code object; what its metadata says of arguments it takes as it is, since there the caller lays
out the arguments. Here the driver library does, in the memory of a program that trusts it.
"""

from __future__ import annotations

from mxcomp.hip.protocol import MOST_ARGUMENTS
from mxcomp.sim import Kernel, Module, code_object
from mxcomp.sim.errors import CodeObjectError

_MOST_THREADS = 1024

_BYTES_OF_KIND = {
    "global_buffer": 8,
    "hidden_block_count_x": 4,
    "hidden_block_count_y": 4,
    "hidden_block_count_z": 4,
    "hidden_dynamic_lds_size": 4,
    "hidden_grid_dims": 2,
    "hidden_group_size_x": 2,
    "hidden_group_size_y": 2,
    "hidden_group_size_z": 2,
    "hidden_private_base": 4,
    "hidden_shared_base": 4,
}
"""The sizes of arguments that their kind determines; others are by value, or hidden and 0."""


def read(data: bytes) -> Module:
    """Reads a code object, and checks that the arguments of its kernels do not overlap. Raises CodeObjectError."""
    module = code_object.load(data)
    for kernel in module.kernels.values():
        _check_arguments(kernel)
        most_threads(kernel)
    return module


def most_threads(kernel: Kernel) -> int:
    """Returns the largest number of work-items of a workgroup. Raises CodeObjectError."""
    value = kernel.metadata.most_threads
    if not 1 <= value <= _MOST_THREADS:
        raise CodeObjectError(f"kernel {kernel.name}: workgroups of {value}, expected 1 to {_MOST_THREADS}")
    return value


def _check_arguments(kernel: Kernel) -> None:
    kernel.check_arguments()
    what, arguments, end = f"kernel {kernel.name}", kernel.arguments, 0
    if (explicit := sum(not argument.is_hidden for argument in arguments)) > MOST_ARGUMENTS:
        raise CodeObjectError(f"{what}: {explicit} arguments, at most {MOST_ARGUMENTS}")
    for argument in sorted(arguments, key=lambda argument: argument.offset):
        place = f"{what}: argument {argument.name or argument.kind}, {argument.size} bytes at {argument.offset}"
        if argument.offset < end:
            raise CodeObjectError(f"{place}, overlaps another one")
        end = argument.offset + argument.size
        if (expected := _BYTES_OF_KIND.get(argument.kind, argument.size)) != argument.size:
            raise CodeObjectError(f"{place}: expected {expected} bytes")
