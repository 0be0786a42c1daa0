"""Runs a few instructions on one wave. encodings.json keeps their bytes; pytest -n 0 --update-golden adds new ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import assembler
import numpy as np

from mxcomp.sim.checks.lds import LdsShadow
from mxcomp.sim.decode import decode
from mxcomp.sim.engine import Dispatch, WaveStart
from mxcomp.sim.findings import Findings
from mxcomp.sim.instruction import EXEC, M0, VCC
from mxcomp.sim.memory import Memory
from mxcomp.sim.numpy.engine import Line, run_wave
from mxcomp.sim.numpy.wave import END, Group, Wave
from mxcomp.sim.schedule import Schedule
from mxcomp.sim.semantics import unsupported
from mxcomp.target import DEFAULT, get_target

STORE = Path(__file__).with_name("encodings.json")
_known: dict[str, str] = json.loads(STORE.read_text()) if STORE.exists() else {}

ALL = (1 << 64) - 1
LANES = np.arange(64, dtype=np.uint32)
CORNERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFE,
    0xFFFFFFFF,
)


def bits(seed: int) -> np.ndarray:
    """uint32[64]: corner patterns, rotated by the seed, then random ones."""
    random = np.random.default_rng(seed).integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    random[: len(CORNERS)] = np.roll(np.array(CORNERS, np.uint32), seed)
    return random


def floats(seed: int) -> np.ndarray:
    """float32[64] of moderate size, zeros, infinities, NaN and subnormals among them."""
    values = (np.random.default_rng(seed).standard_normal(64) * 8).astype(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3.4e38, 0.5, 1.5, -2.5]
    values[: len(special)] = np.roll(np.array(special, np.float32), seed)
    return values


def assemble(text: str) -> bytes:
    if text not in _known:
        if "--update-golden" not in sys.argv:
            raise KeyError(f"{text!r} is not in {STORE.name}: run pytest -n 0 --update-golden")
        _known[text] = assembler.instructions(text).hex()
        STORE.write_text(json.dumps(_known, indent=0, sort_keys=True) + "\n")
    return bytes.fromhex(_known[text])


def run(
    text: str,
    v: Mapping[int, np.ndarray] | None = None,
    s: Mapping[int, int] | None = None,
    active: int = ALL,
    vcc: int = 0,
    m0: int = 0,
    scc: int = 0,
    lds: np.ndarray | None = None,
    memory: Memory | None = None,
) -> Wave:
    """Executes `text` with the given registers (arrays of any 32-bit type); returns the wave."""
    code = assemble(text + "\ns_endpgm\n")
    lines: dict[int, Line] = {}
    offset = 0
    while offset < len(code):
        instruction = decode(code[offset : offset + 16], offset)
        assert unsupported(instruction) is None, f"{instruction}: {unsupported(instruction)}"
        lines[offset] = Line.of(instruction)
        offset = instruction.end
    program = SimpleNamespace(instructions={at: line.instruction for at, line in lines.items()})
    memory = memory or Memory(1 << 20)
    group_number = (0, 0, 0)
    dispatch = Dispatch(get_target(DEFAULT), cast(Any, program), memory, 0, 0, (1, 1, 1), (group_number,), 1,
                        cast(Any, None), 65536, 1024, frozenset(), Schedule(), Findings(), 10**6)  # fmt: skip
    sgprs = [0xBAD0BAD0] * 128
    for code_number, value in (s or {}).items():
        sgprs[code_number] = value & 0xFFFFFFFF
    for pair, value in ((VCC, vcc), (EXEC, active)):
        sgprs[pair], sgprs[pair + 1] = value & 0xFFFFFFFF, value >> 32
    sgprs[M0] = m0
    group = Group(dispatch, group_number)
    wave = Wave(group, 0, WaveStart(tuple(sgprs), LANES, 0, 0))
    group.shadow = LdsShadow(len(group.lds), group.report, [wave])
    if lds is not None:
        group.lds[: len(lds)] = lds
    for row, values in (v or {}).items():
        wave.v[row] = np.ascontiguousarray(values).view(np.uint32)
    wave.scc = scc
    with np.errstate(all="ignore"):
        while wave.state != END:
            wave.state = 0
            run_wave(wave, lines, 10**6)
    return wave
