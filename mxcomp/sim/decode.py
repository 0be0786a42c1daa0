"""Decodes bytes to `Instruction`.

Of `encodings` only the bit fields are used: operands, their widths and implicit ones come from `mxcomp.sim.semantics`,
so that decoding and execution cannot disagree. M0 has code 124 on CDNA.
"""

from __future__ import annotations

from functools import lru_cache

from mxcomp.sim import encodings
from mxcomp.sim.encodings import Encoding
from mxcomp.sim.errors import CodeObjectError
from mxcomp.sim.instruction import (
    AGPR0,
    EXEC,
    LITERAL,
    M0,
    SCC,
    VCC,
    VGPR0,
    Dpp,
    Instruction,
    Operand,
    registers,
    shared,
)
from mxcomp.sim.memory_operands import memory_instruction
from mxcomp.sim.semantics import SCALAR, VECTOR, mfma, salu
from mxcomp.sim.semantics.memory import parse
from mxcomp.sim.semantics.packed import PAIRS
from mxcomp.sim.semantics.table import ScalarOp, VectorOp, width

LONGEST = 16
"""The length of the longest instruction in bytes."""


def decode(code: bytes, offset: int) -> Instruction:
    """Decodes the instruction at the start of `code`, whose virtual address is `offset`.

    Raises CodeObjectError when the bytes are none.
    """
    word = int.from_bytes(code[:LONGEST], "little")
    found = encodings.find(word)
    if found is None:
        raise CodeObjectError(f"no instruction at {offset:#x}: {code[:LONGEST].hex()}")
    encoding, mnemonic = found
    if encoding.size > len(code):
        raise CodeObjectError(f"truncated instruction at {offset:#x}")
    return _decoded(encoding, mnemonic, word & (1 << 8 * encoding.size) - 1).at(offset)


@lru_cache(maxsize=1 << 15)
def _decoded(encoding: Encoding, mnemonic: str, word: int) -> Instruction:
    """Returns the instruction at address 0. It is cached, as unrolled loops repeat the same words."""
    fields = {field: word >> low & mask for field, low, mask in encoding.fields}
    name, _, variant = encoding.name.partition("_")
    if mnemonic.startswith(("v_mfma", "v_smfmac")):
        name = "MFMA"
    instruction = Instruction(0, encoding.size, mnemonic, name, fields=fields, sdwa="SDWA" in variant)
    return _with_sets(_with_operands(instruction, variant))


def _with_operands(instruction: Instruction, variant: str) -> Instruction:
    name = instruction.mnemonic
    if name in VECTOR:
        return _vector(instruction, VECTOR[name], variant)
    if instruction.encoding == "MFMA":
        return _matrix(instruction)
    if name in SCALAR:
        return _scalar(instruction, SCALAR[name])
    if instruction.encoding in ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"):
        return _control(instruction)
    op = parse(name)
    return instruction if op is None else memory_instruction(instruction, op)


# -- vector


_OPERAND_FIELDS = frozenset(("src0", "src1", "src2", "vsrc0", "vsrc1", "vdst", "sdst", "sd", "s0", "s1"))


_ACCUMULATION = {
    "v_accvgpr_read": (False, True),
    "v_accvgpr_write": (True, False),
    "v_accvgpr_mov_b32": (True, True),
}
"""Whether the result, and the source, of moves are accumulation registers."""


def _sized(operand: Operand, dwords: int) -> Operand:
    return operand if operand.dwords == dwords else shared(operand.code, dwords, *operand[2:])


def _vector(instruction: Instruction, op: VectorOp, variant: str) -> Instruction:
    fields = {name: value for name, value in instruction.fields.items() if name not in _OPERAND_FIELDS}
    literal = fields.pop("literal", 0)
    explicit, dpp = _explicit_sources(instruction, fields, variant)
    if "bitop3" in instruction.mnemonic:  # its truth table lies in the modifier fields
        fields.update({name: instruction.flag(name) for name in ("omod", "abs", "neg")})
        explicit = [operand._replace(negate=False, absolute=False) for operand in explicit]
    to_accumulators, from_accumulators = _ACCUMULATION.get(instruction.mnemonic, (False, False))
    first = 0 if op.dst.startswith("s") else AGPR0 if to_accumulators else VGPR0
    destination = shared(instruction.flag("vdst") + first)
    if from_accumulators:
        shift = AGPR0 - VGPR0
        explicit = [x._replace(code=x.code + shift) if VGPR0 <= x.code < AGPR0 else x for x in explicit]
    sources: list[Operand] = []
    if instruction.mnemonic in ("v_fmamk_f32", "v_fmaak_f32"):
        constant = shared(LITERAL, literal=literal)
        explicit.insert(1 if instruction.mnemonic == "v_fmamk_f32" else 2, constant)
    for letter in op.src:
        dwords = width(letter)
        if dwords == 0:
            continue
        operand = explicit.pop(0) if explicit else shared(VCC)
        if operand.code == LITERAL:
            operand = operand._replace(dwords=dwords, literal=literal)
        sources.append(_sized(operand, dwords))
    results = _vector_results(instruction, op, destination, sources)
    if op.old:
        sources.append(_sized(results[0], 1 if op.dst[0] not in "Ud" else 2))
    return instruction._replace(dst=tuple(results), src=tuple(sources), fields=fields, dpp=dpp)


def _vector_results(
    instruction: Instruction, op: VectorOp, destination: Operand, sources: list[Operand]
) -> list[Operand]:
    results = []
    for k, letter in enumerate(op.dst):
        if letter == "M":
            results.append(shared(_mask_result(instruction), 2))
        elif k and op.swaps:
            results.append(sources[0])
        else:
            results.append(_sized(destination, width(letter)))
            if k + 1 < len(op.dst):
                destination = destination._replace(code=destination.code + width(letter))
    if instruction.mnemonic.startswith("v_cmpx"):
        results.append(shared(EXEC, 2))
    return results


def _mask_result(instruction: Instruction) -> int:
    """Returns the register that a compare or a carry is written to."""
    if instruction.encoding == "VOP3":
        return instruction.flag("vdst")
    if instruction.encoding == "VOP3SD" or instruction.flag("sd"):
        return instruction.flag("sdst")
    return VCC


def _explicit_sources(
    instruction: Instruction, fields: dict[str, int], variant: str
) -> tuple[list[Operand], Dpp | None]:
    """Returns the source operands the encoding names, in order, with their modifiers (which leave `fields`)."""

    def take(name: str) -> int:
        return fields.pop(name, 0)

    if instruction.encoding.startswith("VOP3"):
        codes = [instruction.flag(f"src{k}") for k in range(3)]
        if instruction.encoding == "VOP3P":  # modifiers act on halves
            return [shared(code) for code in codes], None
        negate, absolute, select = take("neg"), take("abs"), instruction.flag("opsel")
        if not (negate or absolute or select):
            return [shared(code) for code in codes], None
        flags = [(negate >> k & 1, absolute >> k & 1, select >> k & 1) for k in range(3)]
        return [shared(c, 1, 0, bool(n), bool(a), bool(s)) for c, (n, a, s) in zip(codes, flags, strict=True)], None
    first = shared(instruction.flag("src0"))
    second = shared(instruction.flag("vsrc1") + VGPR0)
    dpp = None
    if "SDWA" in variant or "DPP" in variant:
        modifiers = [(bool(take(f"src{k}_neg")), bool(take(f"src{k}_abs"))) for k in range(2)]
        code = instruction.flag("vsrc0") + (0 if instruction.flag("s0") else VGPR0)
        first = shared(code, 1, 0, *modifiers[0])
        second_code = second.code - VGPR0 if instruction.flag("s1") else second.code
        second = shared(second_code, 1, 0, *modifiers[1])
    if "SDWA" in variant:
        first = first._replace(sel=take("src0_sel"), signed=bool(take("src0_sext")))
        second = second._replace(sel=take("src1_sel"), signed=bool(take("src1_sext")))
    if "DPP" in variant:
        dpp = Dpp(take("dpp"), take("row_mask"), take("bank_mask"), bool(take("bc")))
    return [first] if instruction.encoding == "VOP1" else [first, second], dpp


def _matrix(instruction: Instruction) -> Instruction:
    """Adds the operands of D = A × B + C, and the two scales of scaled ones. The acc and acc_cd bits select
    accumulation registers."""
    shape = mfma.of(instruction)
    if shape is None:
        return instruction
    acc, accumulator = instruction.flag("acc"), instruction.flag("acc_cd")

    def operand(name: str, dwords: int, high: int) -> Operand:
        code = instruction.flag(name)
        return shared(code + (AGPR0 - VGPR0 if high and code >= VGPR0 else 0), dwords)

    count = shape.result_registers
    result = shared(instruction.flag("vdst") + (AGPR0 if accumulator else VGPR0), count)
    sources = [
        operand("src0", shape.a_registers, acc & 1),
        operand("src1", shape.operand_registers(shape.b), acc & 2),
        operand("src2", count, accumulator),
    ]
    if shape.sparse:  # the third operand is the index
        sources[2] = result
        sources.append(shared(instruction.flag("src2")))
    if shape.scaled:
        sources += [shared(instruction.flag("scale_src0")), shared(instruction.flag("scale_src1"))]
    kept = ("cbsz", "blgp", "abid", "neg", "neg_hi", "opsel", "opsel_hi")
    scaled_only = ("neg", "neg_hi", "opsel", "opsel_hi")  # without scales their bits belong to other fields
    fields = {n: instruction.flag(n) for n in kept if shape.scaled or n not in scaled_only}
    return instruction._replace(dst=(result,), src=tuple(sources), fields=fields)


# -- scalar


_IMPLICIT = {"c": shared(SCC), "!": shared(SCC), "E": shared(EXEC, 2)}


def _scalar(instruction: Instruction, op: ScalarOp) -> Instruction:
    literal = instruction.flag("literal")
    if instruction.encoding == "SOPK":
        explicit = _immediate_sources(instruction)
    else:
        explicit = [shared(instruction.flag(name)) for name in ("ssrc0", "ssrc1") if name in instruction.fields]
    sources = []
    for letter in op.src:
        if letter in _IMPLICIT:
            sources.append(_IMPLICIT[letter])
        else:
            operand = explicit.pop(0)
            if operand.code == LITERAL and not operand.literal:
                operand = shared(LITERAL, literal=literal)
            sources.append(_sized(operand, width(letter)))
    results = [_IMPLICIT.get(letter) or shared(instruction.flag("sdst"), width(letter)) for letter in op.dst]
    if op.old:
        sources.append(results[0])
    return instruction._replace(dst=tuple(results), src=tuple(sources), fields={})


def _immediate_sources(instruction: Instruction) -> list[Operand]:
    """Returns the sources of SOPK: the destination is a source of arithmetic and compares; the immediate is signed
    unless it compares u32."""
    value = instruction.flag("simm16")
    signed = not instruction.mnemonic.endswith("_u32")
    literal = value | 0xFFFF0000 if signed and value & 0x8000 else value
    # a literal of 0 must stay one: inline constant 0 instead
    constant = shared(LITERAL, literal=literal) if literal else shared(128)
    reads_destination = instruction.mnemonic.startswith(("s_cmpk", "s_addk", "s_mulk"))
    return [shared(instruction.flag("sdst")), constant] if reads_destination else [constant]


_PC_RESULTS = {"s_getpc_b64", "s_swappc_b64", "s_call_b64"}


def _control(instruction: Instruction) -> Instruction:
    """Adds the register operands of program control, and the branch target."""
    name, flag = instruction.mnemonic, instruction.flag
    target = None
    if name in salu.BRANCHES or name == "s_call_b64":
        words = (flag("simm16") ^ 0x8000) - 0x8000
        target = instruction.end + 4 * words
    source: list[Operand] = []
    result: list[Operand] = []
    if "ssrc0" in instruction.fields and name != "s_getpc_b64":
        wide = name in ("s_setpc_b64", "s_swappc_b64")
        source = [shared(flag("ssrc0"), 2 if wide else 1, flag("literal"))]
    if name == "s_setvskip":
        source.append(shared(flag("ssrc1"), 1, flag("literal")))
    if name in salu.BRANCHES:
        tested = {"scc": shared(SCC), "vcc": shared(VCC, 2), "exec": shared(EXEC, 2)}
        source = [tested[salu.BRANCHES[name][0]]] if name != "s_branch" else []
    if name in _PC_RESULTS:
        result = [shared(flag("sdst"), 2)]
    elif name == "s_getreg_b32":
        result = [shared(flag("sdst"))]
    elif name == "s_setreg_b32":
        source = [shared(flag("sdst"))]
    elif name.startswith("s_set_gpr_idx"):
        result = [shared(M0)]
    return instruction._replace(dst=tuple(result), src=tuple(source), target=target)


# -- register sets


def _selected(instruction: Instruction, k: int, pair: Operand) -> Operand:
    """Returns which registers of its pair source k of a packed 32-bit operation reads: op_sel may select one register
    for both results."""
    picked = PAIRS[instruction.mnemonic](instruction, k)
    return pair._replace(code=pair.code + min(picked), dwords=len(picked)) if pair.registers else pair


def _with_sets(instruction: Instruction) -> Instruction:
    op = VECTOR.get(instruction.mnemonic)
    sources = instruction.src
    if op is not None and op.old == "preserve":
        sources = sources[:-1]
    if instruction.mnemonic in PAIRS:
        sources = tuple(_selected(instruction, k, operand) for k, operand in enumerate(sources))
    reads = registers(sources) | instruction.reads
    writes = registers(instruction.dst) | instruction.writes
    vector_memory = instruction.encoding in ("MUBUF", "FLAT", "GLOBAL", "SCRATCH", "DS")
    if (op is not None or vector_memory) and not (op is not None and op.every_lane):
        reads |= 3 << EXEC
    return Instruction(*instruction[:-2], reads, writes)
