"""mxcomp-sim: lists the kernels of a CDNA4 code object, and runs one on the simulator.

mxcomp-sim kernels.hsaco                                        # metadata and disassembly
mxcomp-sim kernels.hsaco --run=softmax --grid=8 --block=256 --arg=@in.npy --arg=zeros:4096 --arg=i32:128 --output=y.npy
mxcomp-sim kernels.hsaco --timing --grid=4096 --arg=empty:67108864 --arg=empty:4096 --timeline=trace.json

--timing follows one workgroup and asks others what they load, executes nothing else, and prints the modelled time on an
MI355X (docs/timing.md). Buffers need no contents where no branch depends on them.
"""

from __future__ import annotations

import argparse
import re
import struct
import sys
from pathlib import Path

import numpy as np

from mxcomp.errors import InputError
from mxcomp.run.arrays import npy_bytes, read_npy
from mxcomp.sim import CHECKS, Device, Kernel, LaunchStats, Module
from mxcomp.sim.code_object import load
from mxcomp.sim.device import ENGINES, TIMING
from mxcomp.sim.errors import UnsupportedInstruction
from mxcomp.sim.memory import Buffer
from mxcomp.sim.program import Program, program_of, reachable
from mxcomp.sim.schedule import ORDERS
from mxcomp.sim.timing import loops, pictures
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import examine
from mxcomp.sim.timing.timeline import Timeline
from mxcomp.support import files
from mxcomp.target import DEFAULT
from mxcomp.tools import common

NAME = "mxcomp-sim"
_TIMING_MEMORY = 16 << 30
_FILLED = 1 << 28
"""The size from which on an empty buffer is not filled with 0xFF, as that takes a while."""
_NUMBERS = {"i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q", "f32": "<f", "f64": "<d"}
_BYTES = re.compile(r"(zeros|empty):(\d+)$")


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("input", help="code object (.hsaco)")
    parser.add_argument("--kernel", metavar="NAME", help="list only this kernel")
    parser.add_argument("--no-disassembly", action="store_true", help="list metadata only")
    parser.add_argument("--run", metavar="NAME", help="run this kernel")
    parser.add_argument("--grid", default="1", metavar="X[,Y[,Z]]", help="workgroups (default: 1)")
    parser.add_argument("--block", metavar="X[,Y[,Z]]", help="work-items per workgroup (default: as compiled)")
    arg = "argument, in order: @FILE.npy, zeros:BYTES or empty:BYTES is a buffer; i32:N, f32:N … a number"
    parser.add_argument("--arg", action="append", default=[], help=arg)
    parser.add_argument(
        "--output", action="append", default=[], metavar="FILE.npy", help="where buffers go, last first"
    )
    parser.add_argument("--dynamic-lds", type=int, default=0, metavar="BYTES")
    parser.add_argument("--timing", action="store_true", help="modelled time of the launch instead of running it")
    parser.add_argument("--timeline", metavar="FILE.json", help="with --timing: what a CU does, for ui.perfetto.dev")
    parser.add_argument("--picture", metavar="FILE.png", help="with --timing: some cycles of it (needs matplotlib)")
    parser.add_argument("--engine", default="fast", choices=[name for name in ENGINES if name != TIMING])
    parser.add_argument("--checks", default=None, metavar="LIST", help=f"of {','.join(CHECKS)} (default: all)")
    parser.add_argument("--schedule", default="forward", choices=ORDERS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    def run() -> None:
        for path in (*args.output, args.timeline, args.picture):
            files.check_writable(path)
        if (args.timeline or args.picture) and not args.timing:
            raise InputError("--timeline and --picture show what --timing models: give --timing")
        if args.picture:
            pictures.check()
        data = _read(args.input)
        if args.timing:
            _time(data, args)
        elif args.run is None:
            _list(load(data), args.kernel, not args.no_disassembly)
        else:
            _run(data, args)

    return common.exit_code(NAME, run)


def _read(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == "-" else files.read(path)


def _kernel(module: Module, name: str) -> Kernel:
    if name not in module.kernels:
        raise InputError(f"no kernel '{name}': expected one of {', '.join(module.kernels)}")
    return module.kernels[name]


def _list(module: Module, only: str | None, disassemble: bool) -> None:
    kernels = module.kernels.values() if only is None else [_kernel(module, only)]
    print("\n\n".join(describe(kernel, disassemble) for kernel in kernels))


def describe(kernel: Kernel, disassemble: bool) -> str:
    """Returns a kernel's metadata and listing."""
    d = kernel.descriptor
    lines = [
        f"kernel {kernel.name}",
        f"  workgroup {kernel.workgroup_size or 'any size'}, {d.vgprs} VGPRs, {d.lds_bytes} bytes of LDS, "
        f"{d.scratch_bytes} of scratch, {d.user_sgprs} user SGPRs, {d.preload_count} dwords of arguments preloaded",
    ]
    lines += [f"  argument {a.offset:4} {a.size:3} bytes  {a.kind}  {a.name}".rstrip() for a in kernel.arguments]
    try:
        program = program_of(kernel)
    except UnsupportedInstruction as error:
        lines.append(f"  cannot run: {error}")
        program = Program(kernel, reachable(kernel.module, kernel.entries))
    return "\n".join([*lines, program.listing()] if disassemble else lines)


def _run(data: bytes, args: argparse.Namespace) -> None:
    checks = None if args.checks is None else [check for check in args.checks.split(",") if check]
    device = Device(DEFAULT, args.engine, checks, args.schedule, args.seed)
    kernel = _kernel(device.load(data), args.run)
    kernarg, buffers = _arguments(device, kernel, args.arg)
    block = None if args.block is None else _sizes(args.block)
    stats = device.launch(kernel, _sizes(args.grid), block, kernarg, args.dynamic_lds, raise_on_error=False)
    print(report(stats))
    results: dict[str | Path, bytes] = {}
    for path, (buffer, like) in zip(args.output, reversed(buffers), strict=False):
        results[path] = npy_bytes(device.read(buffer, like.dtype, like.shape))
    files.write(results)
    if any(finding.severity.value == "error" for finding in stats.findings):
        raise InputError(f"kernel {kernel.name}: the checks report errors")


def _time(data: bytes, args: argparse.Namespace) -> None:
    """Prints a launch's modelled time."""
    device = Device(memory_bytes=_TIMING_MEMORY, checks=())
    module = device.load(data)
    if args.run is None and len(module.kernels) != 1:
        raise InputError(f"--timing of which kernel? give --run= one of {', '.join(module.kernels)}")
    kernel = _kernel(module, args.run if args.run is not None else next(iter(module.kernels)))
    kernarg, _ = _arguments(device, kernel, args.arg)
    block = None if args.block is None else _sizes(args.block)
    work = examine(device, kernel, _sizes(args.grid), kernarg, block, args.dynamic_lds)
    found = estimate(work)
    print(f"kernel {kernel.name}: {found}")
    print(f"{'MFMA pipes busy':24} {found.matrix_share:.1%} of the chip's")
    print(f"{'clock':24} {found.ghz:.2f} GHz")
    if loop := loops.of_launch(work):
        print(f"{'loop':24} {loop.cycles:.0f} cycles an iteration, {loop.share:.0%} of them MFMA")
    for level, nbytes in found.moved.items():
        print(f"{f'bytes, {level}':24} {nbytes / 1e6:.2f} MB")
    for name, us in sorted(found.saved.items(), key=lambda pair: -pair[1]):
        print(f"without {name:17} {us:.2f} µs less")
    timeline = Timeline.of(work)
    results: dict[str | Path, bytes] = {}
    if args.timeline:
        results[args.timeline] = timeline.json().encode()
    if args.picture:
        results[args.picture] = pictures.timeline(timeline)
    files.write(results)


def _arguments(device: Device, kernel: Kernel, texts: list[str]) -> tuple[bytes, list[tuple[Buffer, np.ndarray]]]:
    """Returns the argument block, and the buffers allocated for it."""
    kernel.check_arguments()
    buffers: list[tuple[Buffer, np.ndarray]] = []
    kernarg = b""
    explicit = [argument for argument in kernel.arguments if not argument.is_hidden]
    if kernel.metadata.symbol and len(texts) > len(explicit):
        raise InputError(f"kernel {kernel.name}: {len(texts)} times --arg, expected at most {len(explicit)}")
    for k, text in enumerate(texts):
        value = _argument(device, text, buffers)
        offset = explicit[k].offset if k < len(explicit) else -(-len(kernarg) // len(value)) * len(value)
        kernarg = kernarg.ljust(offset, b"\0") + value
    return kernarg, buffers


def _argument(device: Device, text: str, buffers: list[tuple[Buffer, np.ndarray]]) -> bytes:
    """Returns the bytes of an argument; buffers are allocated and remembered."""
    if text.startswith("@"):
        array = np.asarray(read_npy(text[1:]))
    elif match := _BYTES.match(text):
        array = np.broadcast_to(np.uint8(0), int(match[2]))  # of one byte, however long
    else:
        return _number(text)
    buffer = device.memory.alloc(array.nbytes, fill=not text.startswith("empty") or array.nbytes < _FILLED)
    if not text.startswith("empty"):
        device.write(buffer, array)
    buffers.append((buffer, array))
    return struct.pack("<Q", buffer.address)


def _number(text: str) -> bytes:
    kind, _, value = text.partition(":")
    try:
        return struct.pack(_NUMBERS[kind], float(value) if kind[0] == "f" else int(value, 0))
    except (KeyError, ValueError, IndexError, OverflowError, struct.error):
        kinds = ", ".join(_NUMBERS)
        raise InputError(
            f"--arg={text}: expected @FILE.npy, zeros:BYTES, empty:BYTES or one of {kinds} and :N"
        ) from None


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not 1 <= len(sizes) <= 3 or not all(0 < size < 1 << 32 for size in sizes):
        raise InputError(f"'{text}': expected X, X,Y or X,Y,Z, numbers from 1 on in 32 bits")
    return sizes


def report(stats: LaunchStats) -> str:
    """Returns a summary of a launch for people."""
    lines = [f"{name:24} {value}" for name, value in sorted(stats.counters.items())]
    o = stats.occupancy
    lines.append(f"{'occupancy':24} {o.waves_per_simd} waves per SIMD, limited by {o.limited_by}")
    lines.append(f"{'seconds':24} {stats.seconds:.3f}")
    return "\n".join([*lines, *map(str, stats.findings)])


if __name__ == "__main__":
    sys.exit(main())
