"""Scalar instructions, program control and modes."""

from __future__ import annotations

from collections.abc import Callable

from mxcomp.sim.checks.waits import waitcnt_fields
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import EXEC, M0, VCC, Instruction, Operand
from mxcomp.sim.numpy.operands import ScalarRead, scalar_read
from mxcomp.sim.numpy.wave import BARRIER, END, MASK32, MASK64, Step, Wave
from mxcomp.sim.semantics import SCALAR, salu

_Write = Callable[[Wave, int], None]


def scalar_step(i: Instruction) -> Step:
    """Returns the step of one row of the scalar table."""
    op = SCALAR[i.mnemonic]
    letters = op.src + (op.dst[0] if op.old else "")
    reads = [scalar_read(operand, letter) for operand, letter in zip(i.src, letters, strict=True)]
    function = op.function
    if "c" not in op.dst and "E" not in op.dst:
        write = _writer(i.dst[0], op.dst[0])
        mask = MASK64 if op.dst[0] == "U" else MASK32
        sets_scc = op.dst.endswith("!")

        def single(w: Wave) -> None:
            value = function(*[read(w) for read in reads]) & mask
            write(w, value)
            if sets_scc:
                w.scc = int(value != 0)

        return single
    writes = [_writer(operand, letter) for operand, letter in zip(i.dst, op.dst, strict=True)]
    masks = [MASK64 if letter in "UE" else MASK32 for letter in op.dst]

    def several(w: Wave) -> None:
        results = function(*[read(w) for read in reads])
        for write, mask, value in zip(writes, masks, results if len(writes) > 1 else (results,), strict=True):
            write(w, int(value) & mask)

    return several


def _writer(operand: Operand, letter: str) -> _Write:
    code = operand.code
    if letter in "c!":
        return lambda w, value: setattr(w, "scc", value)
    if letter in "UE":
        return lambda w, value: w.set64(code, value)
    return lambda w, value: w.set32(code, value)


def branch_step(i: Instruction) -> Step:
    tested, wanted = salu.BRANCHES[i.mnemonic]
    target = i.target
    if tested == "always":
        return lambda w: target
    if tested == "scc":
        return lambda w: target if bool(w.scc) == wanted else None
    code = VCC if tested == "vcc" else EXEC
    return lambda w: target if bool(w.s[code] | w.s[code + 1]) == wanted else None


def _trap(i: Instruction) -> Step:
    def trap(w: Wave) -> None:
        raise SimulationError(f"s_trap {i.flag('simm16')} executed")

    return trap


def _wait(i: Instruction) -> Step:
    vector, lgkm = waitcnt_fields(i.flag("simm16"))
    return lambda w: w.outstanding.wait(w, vector, lgkm)


def _skips(i: Instruction) -> Step:
    value, bit = (scalar_read(operand, "u") for operand in i.src)
    return lambda w: setattr(w, "skips", bool(value(w) >> (bit(w) & 31) & 1))


def _clock(i: Instruction) -> Step:
    code = i.flag("sdata")

    def clock(w: Wave) -> None:
        w.group.clock += 100
        w.set64(code, w.group.clock)

    return clock


def _program_counter(i: Instruction) -> Step:
    """Returns the step of s_getpc and the like: kernels see device addresses, virtual address + load bias."""
    after = i.offset + 4
    if i.mnemonic == "s_getpc_b64":
        result = i.dst[0].code
        return lambda w: w.set64(result, after + w.group.dispatch.load_bias)
    if i.mnemonic == "s_setpc_b64":
        jump = scalar_read(i.src[0], "U")
        return lambda w: jump(w) - w.group.dispatch.load_bias
    link = i.dst[0].code
    called: ScalarRead | None = scalar_read(i.src[0], "U") if i.mnemonic == "s_swappc_b64" else None

    def call(w: Wave) -> int | None:
        bias = w.group.dispatch.load_bias
        target = i.target if called is None else called(w) - bias
        w.set64(link, after + bias)
        return target

    return call


_MODE_REGISTER = 1


def _hardware_register(i: Instruction) -> Step:
    """Returns the step of s_getreg and s_setreg: only MODE (1) is kept, others read as 0. simm16: id, offset << 6, size
    − 1 << 11."""
    simm16 = i.flag("simm16")
    register, offset, size = simm16 & 63, simm16 >> 6 & 31, (simm16 >> 11 & 31) + 1
    mask = (1 << size) - 1
    if i.mnemonic == "s_getreg_b32":
        code = i.dst[0].code
        return lambda w: w.set32(code, w.mode >> offset & mask if register == _MODE_REGISTER else 0)
    literal = i.flag("literal")
    read: ScalarRead = (lambda w: literal) if i.mnemonic == "s_setreg_imm32_b32" else scalar_read(i.src[0], "u")

    def set_register(w: Wave) -> None:
        if register == _MODE_REGISTER:
            w.mode = w.mode & ~(mask << offset) | (read(w) & mask) << offset

    return set_register


def _index_mode(i: Instruction) -> Step:
    """Returns the step that sets GPR-index mode: M0 has the index in bits 0–7 and the mode in bits 12–15."""
    name, mode = i.mnemonic, i.flag("ssrc1") & 15 if "ssrc1" in i.fields else i.flag("simm16") & 15
    if name == "s_set_gpr_idx_off":
        return lambda w: setattr(w, "index_mode", None)
    index = scalar_read(i.src[0], "u") if i.src else None

    def change(w: Wave) -> None:
        value = w.s[M0] & 0xFF if index is None else index(w) & 0xFF
        new_mode = w.s[M0] >> 12 & 15 if name == "s_set_gpr_idx_idx" else mode
        w.s[M0] = w.s[M0] & ~0xF0FF | value | new_mode << 12
        if name == "s_set_gpr_idx_on" or w.index_mode is not None:
            w.index_mode = (new_mode, value)

    return change


CONTROL: dict[str, Callable[[Instruction], Step]] = {
    "s_endpgm": lambda i: lambda w: END,
    "s_barrier": lambda i: lambda w: BARRIER,
    "s_waitcnt": _wait,
    "s_trap": _trap,
    "s_setvskip": _skips,
    **dict.fromkeys(("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64"), _program_counter),
    **dict.fromkeys(("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32"), _hardware_register),
    **dict.fromkeys((f"s_set_gpr_idx_{what}" for what in ("on", "off", "mode", "idx")), _index_mode),
    **dict.fromkeys(("s_memtime", "s_memrealtime"), _clock),
}
"""The steps of instructions that are neither arithmetic nor memory."""
