"""Small kernels in assembly whose cycles were measured on gfx950, and what a replay of them gives."""

from __future__ import annotations

import struct
from functools import cache

import assembler
import numpy as np
from numpy.typing import NDArray

from mxcomp.sim import Device
from mxcomp.sim.timing.examination import Examiner
from mxcomp.sim.timing.parameters import Machine, mi355x
from mxcomp.sim.timing.trace import Trace
from mxcomp.sim.timing.workgroup import run

TRACED = mi355x().machine._replace(fetch_latency=0.0)
"""Whose code is there."""

_SOURCE = """
.text
.globl rule
.p2align 8
.type rule,@function
rule:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 4, v0
  v_and_b32_e32 v0, 63, v0
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s4, s2
  s_mov_b32 s5, s3
  s_mov_b32 s6, 0x1000000
  s_mov_b32 s7, 0x20000
  s_mov_b32 m0, 0
{prologue}
  s_nop 15
  s_barrier
.rept {times}
{body}
.endr
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel rule
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 8
  .amdhsa_group_segment_fixed_size 65536
  .amdhsa_next_free_vgpr 512
  .amdhsa_next_free_sgpr 32
  .amdhsa_accum_offset 256
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: rule
    .symbol: rule.kd
    .args: [{{ .address_space: global, .offset: 0, .size: 8, .value_kind: global_buffer }}]
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 65536
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 512
    .max_flat_workgroup_size: 512
...
.end_amdgpu_metadata
"""
"""v0: the lane, v1: 16 · the thread, s[2:3]: 16 MB of memory, s[4:7]: a buffer of it."""


@cache
def trace_of(body: str, waves: int, times: int, prologue: str) -> Trace:
    """A workgroup that executes `body` so many times."""
    text = _SOURCE.format(body=body, times=times, prologue=prologue)
    device = Device("gfx950", memory_bytes=1 << 25)
    kernel = device.load(assembler.code_object(text)).kernels["rule"]
    buffer, examiner = device.alloc(1 << 24), Examiner()
    device.launch(kernel, (1, 1, 1), (64 * waves, 1, 1), struct.pack("<Q", buffer.address), engine=examiner)
    ((trace, _),) = examiner.examination.parts
    return trace


def interval(
    body: str, waves: int = 1, prologue: str = "", machine: Machine = TRACED, latency: float = 1000.0, times: int = 96
) -> float:
    """Cycles from one execution of `body` to the next, for each wave, once the first third is behind."""
    trace = trace_of(body, waves, times, prologue)
    issued = np.zeros(sum(map(len, trace.codes)))
    run(trace, 1, machine, latency, issued=issued)
    starts = _starts(trace, issued, times)
    return float(np.mean((starts[:, -2] - starts[:, times // 3]) / (times - 2 - times // 3)))


def _starts(trace: Trace, issued: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """float64[waves, times]: when each execution begins; all lie behind the barrier and before the end."""
    ends = np.cumsum([len(codes) for codes in trace.codes])
    found = []
    for wave in np.split(issued, ends[:-1]):
        barrier = next(k for k, code in enumerate(trace.codes[0]) if trace.instructions[code].mnemonic == "s_barrier")
        steps = wave[barrier + 1 : -1]
        found.append(steps.reshape(times, -1)[:, 0])
    return np.array(found)
