"""How much of the time MFMA pipes are busy with a short K, where bytes are free."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from builders import elementwise, module, scaled_matmul, stored
from iree.compiler import ir
from iree.compiler.dialects import arith

import mxcomp
from mxcomp.sim import Device
from mxcomp.sim.program import program_of
from mxcomp.sim.timing.examination import examine
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.sim.timing.workgroup import replayed

NAME = "mx_f4E2M1FN_f4E2M1FN_f32_m256_n128_k512_occupancy2"
FREE = 1e6
"""Bytes a cycle from memory."""


def text(m: int, n: int, k: int, element: str) -> ir.Module:
    def body(*operands: ir.Value) -> list[ir.Value]:
        lhs, lhs_scale, rhs, rhs_scale = operands
        result = scaled_matmul(stored(lhs, lhs_scale, "f4E2M1FN"), stored(rhs, rhs_scale, "f4E2M1FN"))
        if element == "bf16":
            result = elementwise(lambda x: arith.TruncFOp(ir.BF16Type.get(), x).result, result, [], element)
        return [result]

    return module(body, [((m, k // 2), "i8"), ((m, k // 32), "i8"), ((n, k // 2), "i8"), ((n, k // 32), "i8")])


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_two_workgroups_hide_what_is_not_the_loop(element: str) -> None:
    """With K = 1024 pipes are busy for 45 % of the time, for a third of it where a workgroup is alone."""
    program = mxcomp.compile(text(512, 256, 1024, element), ukernels=NAME)
    device = Device(memory_bytes=8 << 30, checks=())
    code = [b"\x7fELF" + rest for rest in program.vmfb.split(b"\x7fELF")[1:]]
    kernels = [kernel for image in code for kernel in device.load(image).kernels.values()]
    (kernel,) = (k for k in kernels if any("mfma" in i.mnemonic for i in program_of(k).instructions.values()))
    buffers = [device.memory.alloc(1 << 28, fill=False) for _ in range(kernel.descriptor.kernarg_bytes // 8)]
    work = examine(device, kernel, (1, 1, 1), b"".join(struct.pack("<Q", buffer.address) for buffer in buffers))
    p = mi355x()
    both, alone = (replayed(replace(work, resident=count), p.machine, p.warm_latency, FREE, False) for count in (2, 1))
    assert both.matrix == 2 * alone.matrix == 8 * 32 * 16 * 2  # steps, MFMA of a wave in each, cycles
    shares = [one.matrix / one.cycles for one in (both, alone)]
    assert shares[0] >= 0.45
    assert shares[1] < 0.35
