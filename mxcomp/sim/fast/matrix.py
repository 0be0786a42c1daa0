"""Matrix instructions: one function per shape, formats and kind of scale, by the definition in `semantics.mfma`.

A and B are decoded to matrices [K][row] in float32 where sums over a block are exact there, else in float64. Each
row of the result is a vector over columns: products are added in order of K, with fused multiply-adds, which round
like a multiplication and an addition because products of elements are exact.

The functions are the longest there are, and the same in all kernels: each is a module of its own, compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from llvmlite import ir as llvm

from mxcomp.formats import ElementFormat
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics import mfma
from mxcomp.sim.semantics.small_floats import FORMATS, scale_table

_ROWS = 8
"""The number of rows of the result that are accumulated in registers at once."""

_NARROW_BITS = 6
"""The width up to which, in both formats, the sum over a block of 32 is exact in float32 (at most 23 bits)."""


@dataclass(frozen=True)
class Form:
    """The properties that the code of a matrix function depends on."""

    shape: mfma.Mfma

    @property
    def name(self) -> str:
        """The function's name."""
        return f"matrix.{self.shape}"

    @property
    def type(self) -> llvm.Type:
        """The function's type: rows of the result, A, B and C; rows of both scales, and their bit positions."""
        return llvm.FunctionType(ir.void, [*[ir.pointer] * 4, *[ir.pointer, ir.i32] * (2 if self.shape.scaled else 0)])

    @property
    def sums(self) -> llvm.Type:
        """The type of elements, products and sums."""
        shape = self.shape
        if shape.is_integer:
            return ir.i32
        narrow = shape.blocks and all(FORMATS[kind].bits <= _NARROW_BITS for kind in (shape.a, shape.b))
        return ir.single if narrow else ir.double

    @property
    def columns(self) -> int:
        """Columns of a vector, 64 bytes."""
        return 8 if self.sums == ir.double else 16


def is_compiled(i: Instruction) -> bool:
    """Returns whether the instruction is compiled; sparse ones are left to the NumPy engine."""
    shape = mfma.of(i)
    return shape is not None and not shape.sparse


def forms(instructions: Iterable[Instruction]) -> list[Form]:
    """Returns the forms whose functions the instructions call."""
    shapes = (mfma.of(i) for i in instructions if i.encoding == "MFMA" and is_compiled(i))
    return list(dict.fromkeys(Form(shape) for shape in shapes if shape is not None))


def emit_matrix(frame: Frame, i: Instruction) -> None:
    """Emits D = A × B + C."""
    shape = mfma.of(i)
    assert shape is not None
    form = Form(shape)
    values: list[Any] = [frame.rows(operand) for operand in (i.dst[0], *i.src[:2])]
    values.append(_rows(frame, i.src[2], "u" if shape.is_integer else "f", shape.result_registers))
    if shape.scaled:
        for operand, shift in zip(i.src[3:5], mfma.scale_shifts(i), strict=True):
            values += _rows(frame, operand, "u", 1), ir.constant(ir.i32, shift)
    function = ir.once(frame.module, form.name, lambda: llvm.Function(frame.module, form.type, form.name))
    frame.call(function, *values)


def _rows(frame: Frame, operand: Operand, letter: str, count: int) -> ir.Value:
    """Returns the operand's registers; for a scalar, registers filled with it."""
    if operand.is_vgpr:
        return frame.rows(operand)
    module, name = frame.module, f"filled.{count}"
    function = ir.once(module, name, lambda: _define_filled(module, name, count))
    rows = ir.entry_alloca(frame.builder, llvm.ArrayType(ir.i32, ir.WAVE * count))
    frame.call(function, rows, frame.scalar(operand, letter))
    return rows


def _define_filled(module: llvm.Module, name: str, count: int) -> llvm.Function:
    builder, (rows, value) = ir.define(module, name, ir.void, [ir.pointer, ir.i32])
    with ir.loop(builder, ir.WAVE * count, ir.LANES) as k:
        rows.put(k, ir.splat(builder, value))
    builder.ret_void()
    return builder.function


def matrix_text(form: Form) -> str:
    """Returns the LLVM IR of a form's function."""
    module, shape = llvm.Module(name="matrix"), form.shape
    function = llvm.Function(module, form.type, form.name)
    function.attributes.add("nounwind")
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    result, a_row, b_row, c, *scales = (ir.Value(builder, argument) for argument in function.args)
    a, b = _decode(builder, form, shape.a, a_row), _decode(builder, form, shape.b, b_row)
    c = _copy(builder, c, shape.result_registers)
    factors = tuple(_scales(builder, *pair) for pair in zip(scales[::2], scales[1::2], strict=True)) or None
    with ir.loop(builder, shape.dim, form.columns) as column, ir.loop(builder, shape.dim, _ROWS) as row:
        totals = _product(builder, form, a, b, factors, row, column)
        for k, total in enumerate(totals):
            _finish(form, total, c, result, row + k, column)
    builder.ret_void()
    return str(module)


def _copy(builder: llvm.IRBuilder, rows: ir.Value, count: int) -> ir.Value:
    """Copies C, which the result may overwrite."""
    kept = ir.entry_alloca(builder, llvm.ArrayType(ir.i32, ir.WAVE * count))
    with ir.loop(builder, ir.WAVE * count, ir.LANES) as k:
        kept.put(k, rows.item(k, ir.i32, ir.LANES))
    return kept


def _decode(builder: llvm.IRBuilder, form: Form, kind: str, rows: ir.Value) -> ir.Value:
    """Decodes the operand to [K][row]. Lane dim·g + r has row r; its element e is K = start + step·g."""
    shape = form.shape
    matrix = ir.entry_alloca(builder, llvm.ArrayType(form.sums, shape.k * shape.dim))
    with ir.loop(builder, shape.dim, ir.LANES) as row, ir.loop(builder, shape.groups) as group:
        for start, step, values in _elements(form, kind, rows, group * shape.dim + row):
            matrix.put((group * step + start) * shape.dim + row, values)
    return matrix


def _scales(builder: llvm.IRBuilder, rows: ir.Value, shift: ir.Value) -> ir.Value:
    """Decodes E8M0 scales of 64 lanes to [group][row], as float64."""
    found = ir.entry_alloca(builder, llvm.ArrayType(ir.double, ir.WAVE))
    table = ir.table(builder, scale_table())
    with ir.loop(builder, ir.WAVE) as lane:
        code = rows.item(lane, ir.i32) >> shift & 255
        found.put(lane, table.item(code.to(ir.i64), ir.double))
    return found


def _product(
    builder: llvm.IRBuilder, form: Form, a: ir.Value, b: ir.Value, factors: tuple[ir.Value, ...] | None,
    row: ir.Value, column: ir.Value,
) -> list[ir.Value]:  # fmt: skip
    """Returns some rows of the product as float64 (or integers)."""
    shape = form.shape
    if not shape.blocks:
        return _sums(builder, form, a, b, row, column, ir.index(0), shape.k, -0.0)
    wide = ir.vector(ir.double, form.columns)
    totals = [ir.Variable(builder, wide, 0.0) for _ in range(_ROWS)]
    with ir.loop(builder, shape.k // 32) as block:
        sums = _sums(builder, form, a, b, row, column, block * 32, 32, 0.0)
        base = block * shape.dim
        for k, (total, part) in enumerate(zip(totals, sums, strict=True)):
            part = part if part.type == wide else ir.Value(builder, builder.fpext(part, wide))
            if factors is not None:
                a_scale = factors[0].item(base + row + k, ir.double)
                b_scale = factors[1].item(base + column, ir.double, form.columns)
                part = builder.fmul(part, builder.fmul(ir.splat(builder, a_scale, form.columns), b_scale))
            total.set(builder.fadd(total.get(), part))
    return [total.get() for total in totals]


def _sums(
    builder: llvm.IRBuilder, form: Form, a: ir.Value, b: ir.Value, row: ir.Value, column: ir.Value,
    first: ir.Value, count: int, initial: float,
) -> list[ir.Value]:  # fmt: skip
    """Returns the sums of products over `count` steps of K from `first` on."""
    kind, integer = ir.vector(form.sums, form.columns), form.shape.is_integer
    sums = [ir.Variable(builder, kind, 0 if integer else initial) for _ in range(_ROWS)]
    with ir.loop(builder, count) as step:
        base = (first + step) * form.shape.dim
        b_values = b.item(base + column, form.sums, form.columns)
        a_start = a.at(base + row, form.sums)
        for k, total in enumerate(sums):
            a_values, old = ir.splat(builder, a_start.item(k, form.sums), form.columns), total.get()
            total.set(old + a_values * b_values if integer else ir.intrinsic(builder, "fma", a_values, b_values, old))
    return [total.get() for total in sums]


def _finish(form: Form, total: ir.Value, c: ir.Value, result: ir.Value, row: ir.Value, column: ir.Value) -> None:
    """Adds C, rounds, and stores a row's columns. In 16×16, lane 16·(row / 4) + column has it in register row mod 4."""
    builder, low = row.builder, row & 3
    if form.shape.dim == 16:
        register, group = low, row >> 2
    else:
        register, group = low | row >> 3 << 2, row >> 2 & 1
    cell = register * ir.WAVE + (group * form.shape.dim + column)
    old = c.item(cell, ir.i32, form.columns)
    if form.shape.is_integer:
        bits = total + old
    else:
        singles = ir.vector(ir.single, form.columns)
        addend = builder.fpext(old.bits(singles), total.type)
        value = ir.Value(builder, builder.fptrunc(builder.fadd(total, addend), singles))
        nan = ir.Value(builder, builder.fcmp_unordered("uno", value, value))
        bits = nan.select(ir.constant(old.type, 0x7FC00000), value.bits(old.type))
    result.put(cell, bits)


# -- elements of operands, from registers to float32 or float64, 16 lanes at a time


def _elements(form: Form, kind: str, rows: ir.Value, lane: ir.Value) -> Iterator[tuple[int, int, ir.Value]]:
    """Yields each element of the 16 lanes from `lane` on: K as start and step, start + step · group, and the values."""
    shape = form.shape
    bits, count = shape.bits(kind), shape.per_lane
    dwords = range(max(1, count * bits // 32))
    words = [rows.item(lane + ir.WAVE * k, ir.i32, ir.LANES) for k in dwords]
    step = count // 2 if shape.blocks and bits == 8 else count  # 8-bit operands of f8f6f4 are two halves, K/2 apart
    for e in range(count):
        values = _decoded(_field(words, e * bits, bits), kind, bits, ir.vector(form.sums))
        yield e // step * (shape.k // 2) + e % step, step, values


_SINGLES = ir.vector(ir.single)


def _decoded(code: ir.Value, kind: str, bits: int, target: llvm.Type) -> ir.Value:
    """Returns codes of an element type, by AMD's name, as values."""
    if kind == "i8":
        return code.to(ir.vector(ir.i8)).to(target, signed=True)
    if kind == "f16":
        value = code.to(ir.vector(ir.i16)).bits(ir.vector(ir.half))
    elif kind in ("f32", "bf16"):
        value = _moved(code, 32 - bits).bits(_SINGLES)
    else:
        value = _small_float(code, FORMATS[kind])
    return value if value.type == target else ir.Value(code.builder, code.builder.fpext(value, target))


def _moved(value: ir.Value, by: int) -> ir.Value:
    return value << by if by else value


def _field(words: list[ir.Value], first: int, count: int) -> ir.Value:
    """Returns a bit field that may extend into the next register."""
    word, shift = divmod(first, 32)
    value = words[word] >> shift if shift else words[word]
    if shift + count > 32:
        value = value | words[word + 1] << 32 - shift
    return value if count == 32 else value & (1 << count) - 1


def _small_float(code: ir.Value, fmt: ElementFormat) -> ir.Value:
    """Returns a code as float32: normal numbers by moving the fields, subnormal ones as integers; then NaN and
    infinity."""
    builder, mantissa, magnitude_mask = code.builder, fmt.mantissa_bits, (1 << (fmt.bits - 1)) - 1
    magnitude = code & magnitude_mask
    step = ir.constant(_SINGLES, 2.0 ** (1 - fmt.bias - mantissa))
    tiny = ir.Value(builder, builder.fmul(builder.uitofp(magnitude, _SINGLES), step)).bits(code.type)
    bits = (magnitude < 1 << mantissa).select(tiny, _moved(magnitude, 23 - mantissa) + (127 - fmt.bias << 23))
    if fmt.has_nan:
        bits = (magnitude == fmt.max_code + 1).select(0x7F800000, bits)
        first_nan = fmt.max_code + 1 if fmt.max_code + 1 == magnitude_mask else fmt.max_code + 2
        bits = (magnitude >= first_nan).select(0x7FC00000, bits)
    sign = _moved(code >> fmt.bits - 1, 31)
    return (bits | sign).bits(_SINGLES)
