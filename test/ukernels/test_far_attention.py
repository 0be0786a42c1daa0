"""Attention whose queries and results exceed what a buffer holds: what has a kernel, and its last tiles."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir
from test_attention import CAUSAL, TOLERANCE, TYPES, Attention

import mxcomp
from mxcomp import pipeline
from mxcomp.mlir import notes
from mxcomp.options import Options
from mxcomp.sim.device import Device

LONG = Attention(8, 8, 8192, 8192, 128, batch=16, mask=CAUSAL)
"""The sizes of a case whose queries and results have 2 GiB each, and whose keys an eighth of that."""
BYTES, ELEMENTS = f"an operand of more than {2**31 - 1} bytes", 2**31


@pytest.mark.parametrize(
    "case, reason",
    [
        (LONG, None),
        (replace(LONG, batch=32), None),
        (replace(LONG, batch=33), f"an operand of more than {2 * ELEMENTS} bytes"),
        (replace(LONG, batch=32, value_size=144), f"a result of more than {ELEMENTS} elements"),
        (replace(LONG, key_heads=64, group=1), BYTES),
        (replace(LONG, mask="bf16"), BYTES),
        (replace(LONG, batch=None, queries=2**17), BYTES),
        (replace(LONG, queries=32, batch=2**12, keys=64, mask=""), BYTES),
    ],
    ids=["long", "longest", "too long", "results", "keys", "masks", "dynamic batch", "few queries"],
)
def test_what_is_taken(case: Attention, reason: str | None) -> None:
    with ir.Context():
        module = ir.Module.parse(case.text()).operation
        pipeline.run(module, ("mxcomp-take-attention",), Options.make())
        (entry,) = notes.take_attentions(module)
    assert entry.get("reason") == reason and ("ukernel" in entry) == (reason is None)


@pytest.mark.parametrize("result", ["bf16", pytest.param("f32", marks=pytest.mark.slow)])
def test_last_tiles(tmp_path: Path, result: str) -> None:
    """Checks the last tiles of the first head and of the last one, which are not full, in memory that has only them."""
    case, tile = Attention(2, 128, 2**17 - 100, 70, 64, result=result), 256
    program = mxcomp.compile(
        case.text(), strict=True, iree_flags=(f"--iree-hal-dump-executable-binaries-to={tmp_path}",)
    )
    assert f"_m{tile}_" in str(program.report.attentions[0].ukernel)
    device, rows, heads = Device(memory_bytes=24 << 30), case.queries % tile, (0, case.heads - 1)
    (kernel,) = device.load(next(tmp_path.glob("*.hsaco")).read_bytes()).kernels.values()
    operands = replace(case, group=1, queries=rows).operands(np.random.default_rng(0))
    results, width = case.heads * case.queries * case.size, np.dtype(TYPES[result]).itemsize
    assert ELEMENTS - 2**25 < results <= ELEMENTS
    sizes = 2 * results, operands[1].nbytes, operands[2].nbytes, width * results
    queries, *others, found = (device.memory.alloc(size, fill=False) for size in sizes)
    places = [((head + 1) * case.queries - rows) * case.size for head in heads]
    for place, values in zip(places, operands[0][0], strict=True):
        device.write(queries.address + 2 * place, values)
    for buffer, values in zip(others, operands[1:], strict=True):
        device.write(buffer, values)
    kernarg = struct.pack("<4Q", *(each.address for each in (queries, *others, found)))
    grid, last = case.heads * -(-case.queries // tile), case.heads - 1  # of all heads the last tiles are first
    device.launch(kernel, (grid, 1, 1), kernarg=kernarg, workgroups=[(0, 0, 0), (last, 0, 0)])
    expected = replace(case, group=1, queries=rows).expected(*operands)
    for place, values in zip(places, expected, strict=True):
        read = device.read(found.address + width * place, TYPES[result], values.shape).astype(np.float64)
        error = np.abs(read - values).max()
        assert error <= TOLERANCE["bf16"] * np.abs(operands[2].astype(np.float64)).max()
