"""Experts whose weights have more bytes than a buffer: a kernel reads those of an expert by an address of 64 bits."""

from __future__ import annotations

import re
import struct
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from moe_parts import Array
from test_gated_experts import TOKEN, Case

import mxcomp
from mxcomp.sim.device import Device
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint, Tensor

WEIGHTS = range(5, 9)
"""The arguments that are elements and scales of gate and up, and of down."""
NEAR = replace(TOKEN, experts=3, has_bias=False)


class Far(Case):
    """Weights of many experts, which nobody makes."""

    @property
    def arguments(self) -> list[Array]:
        few = replace(NEAR, seed=self.seed).arguments
        sizes = {i: (self.experts, *few[i].shape[1:]) for i in WEIGHTS}
        return [np.broadcast_to(np.int8(0), sizes[i]) if i in sizes else each for i, each in enumerate(few)]


def with_parameters(case: Case) -> str:
    """Returns the program of a case whose weights are parameters w5 to w8."""
    text = str(case.module())
    for i in WEIGHTS:
        argument = re.search(rf", %arg{i}: (tensor<\S+>)", text)
        assert argument is not None
        kind = argument[1]
        text = text.replace(argument[0], "", 1)
        text = re.sub(
            r"(func\.func .*\{\n)", rf"\1    %arg{i} = util.global.load immutable @w{i} : {kind}\n", text, count=1
        )
        text = text.replace(
            "module {\n", f'module {{\nutil.global private @w{i} = #flow.parameter.named<"w"::"w{i}"> : {kind}\n', 1
        )
    return text


def hidden(case: Case, ids: list[int], tmp_path: Path) -> Array:
    """Returns hidden activations that the first dispatch makes by chosen experts, whose weights are those of `NEAR`."""
    text, folder, few = with_parameters(case), tmp_path / str(case.experts), NEAR.arguments
    program = mxcomp.compile(
        text, packed_parameters=True, strict=True, iree_flags=(f"--iree-hal-dump-executable-binaries-to={folder}",)
    )
    assert str(program.report.matmuls[0].note).startswith("a token's experts are two dispatches")
    near = mxcomp.compile(with_parameters(NEAR), packed_parameters=True).report.manifest
    assert near is not None
    stored = {f"w{i}": Tensor(few[i].view(np.uint8)) for i in WEIGHTS}
    packed = [each.reshape(NEAR.experts, -1) for each in checkpoint.pack(near, Checkpoint(stored)).values()]
    elements, scales, *_ = packed
    device = Device(memory_bytes=6 << 30)
    kernels = device.load(next(folder.glob("*.hsaco")).read_bytes()).kernels
    kernel = next(each for name, each in kernels.items() if "_dispatch_0_" in name)
    blocks = len(ids) * NEAR.inner // 32
    sizes = (
        few[0].nbytes,
        case.experts * elements[0].nbytes,
        case.experts * scales[0].nbytes,
        4 * len(ids),
        128 * blocks,
    )
    x, *weights, of_ids, made = (device.memory.alloc(size, fill=False).address for size in sizes)
    device.write(x, few[0])
    device.write(of_ids, np.array(ids, np.int32))
    for address, of_experts in zip(weights, (elements, scales), strict=True):
        for id_, values in zip(ids, of_experts, strict=False):
            device.write(address + id_ * values.nbytes, values)
    device.launch(kernel, (2 * blocks, 1, 1), kernarg=struct.pack("<5Q", x, *weights, of_ids, made))
    return device.read(made, np.float32, (blocks, 32))


@pytest.mark.slow
def test_right(tmp_path: Path) -> None:
    few = hidden(NEAR, [2, 0], tmp_path)
    many = hidden(
        Far(**{each.name: getattr(NEAR, each.name) for each in fields(NEAR)} | {"experts": 2700}), [2699, 17], tmp_path
    )
    assert np.abs(few).max() > 0
    assert np.array_equal(few.view(np.uint32), many.view(np.uint32))
