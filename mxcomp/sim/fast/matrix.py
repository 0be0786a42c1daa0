"""Matrix instructions: one function per shape, formats and kind of scale, by the definition in `semantics.mfma`.

A and B are decoded to matrices [K][row] in float32 where sums over a block are exact there, else in float64. Each
row of the result is a vector over columns: products are added in order of K, with fused multiply-adds, which round
like a multiplication and an addition because products of elements are exact.

The functions are the longest there are, and the same in all kernels: each is a module of its own, compiled once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.elements import Decoder, decoder_of
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
    form, builder = Form(shape), frame.builder
    values = [frame.rows(i.dst[0]), frame.rows(i.src[0]), frame.rows(i.src[1])]
    values.append(_rows(frame, i.src[2], "u" if shape.is_integer else "f", shape.result_registers))
    if shape.scaled:
        for operand, shift in zip(i.src[3:5], mfma.scale_shifts(i), strict=True):
            values += _rows(frame, operand, "u", 1), ir.constant(ir.i32, shift)
    function = ir.once(frame.module, form.name, lambda: llvm.Function(frame.module, form.type, form.name))
    builder.call(function, values)


def _rows(frame: Frame, operand: Operand, letter: str, count: int) -> ir.Value:
    """Returns the operand's registers; for a scalar, registers filled with it."""
    if operand.is_vgpr:
        return frame.rows(operand)
    module = frame.module
    kind, name = llvm.ArrayType(ir.i32, ir.WAVE * count), f"filled.{count}"
    function = ir.once(module, name, lambda: _define_filled(module, name, count))
    rows = ir.entry_alloca(frame.builder, kind)
    frame.builder.call(function, [rows, frame.scalar(operand, letter)])
    return rows


def _define_filled(module: llvm.Module, name: str, count: int) -> llvm.Function:
    function = ir.internal(module, name, ir.void, [ir.pointer, ir.i32])
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    rows, value = function.args
    with ir.loop(builder, ir.WAVE * count, ir.LANES) as k:
        ir.store(builder, ir.splat(builder, value), ir.offset(builder, rows, k, ir.i32))
    builder.ret_void()
    return function


def matrix_text(form: Form) -> str:
    """Returns the LLVM IR of a form's function."""
    module, shape = llvm.Module(name="matrix"), form.shape
    function = llvm.Function(module, form.type, form.name)
    function.attributes.add("nounwind")
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    result, a_row, b_row, c = function.args[:4]
    a = _decode(builder, form, decoder_of(shape, shape.a, form.sums), a_row)
    b = _decode(builder, form, decoder_of(shape, shape.b, form.sums), b_row)
    c = _copy(builder, c, shape.result_registers)
    scales = function.args[4:]
    factors = tuple(_scales(builder, form, *pair) for pair in zip(scales[::2], scales[1::2], strict=True)) or None
    with ir.loop(builder, shape.dim, form.columns) as column, ir.loop(builder, shape.dim, _ROWS) as row:
        totals = _product(builder, form, a, b, factors, row, column)
        for k, total in enumerate(totals):
            _finish(builder, form, total, c, result, (builder.add(row, ir.index(k)), column))
    builder.ret_void()
    return str(module)


def _copy(builder: llvm.IRBuilder, rows: ir.Value, count: int) -> ir.Value:
    """Copies C, which the result may overwrite."""
    kept = ir.entry_alloca(builder, llvm.ArrayType(ir.i32, ir.WAVE * count))
    with ir.loop(builder, ir.WAVE * count, ir.LANES) as k:
        value = ir.load(builder, ir.offset(builder, rows, k, ir.i32), ir.vector(ir.i32))
        ir.store(builder, value, ir.offset(builder, kept, k, ir.i32))
    return kept


def _decode(builder: llvm.IRBuilder, form: Form, decoder: Decoder, rows: ir.Value) -> ir.Value:
    """Decodes the operand to [K][row]. Lane dim·g + r has row r; its element e is K = start + step·g."""
    shape = form.shape
    matrix = ir.entry_alloca(builder, llvm.ArrayType(form.sums, shape.k * shape.dim))
    with ir.loop(builder, shape.dim, ir.LANES) as row, ir.loop(builder, shape.groups) as group:
        lane = builder.add(builder.mul(group, ir.index(shape.dim)), row)
        for (start, step), values in decoder.elements(builder, rows, lane):
            k = builder.add(builder.mul(group, ir.index(step)), ir.index(start))
            at = builder.add(builder.mul(k, ir.index(shape.dim)), row)
            ir.store(builder, values, ir.offset(builder, matrix, at, form.sums))
    return matrix


def _scales(builder: llvm.IRBuilder, form: Form, rows: ir.Value, shift: ir.Value) -> ir.Value:
    """Decodes E8M0 scales of 64 lanes to [group][row], as float64."""
    found = ir.entry_alloca(builder, llvm.ArrayType(ir.double, ir.WAVE))
    table = ir.table(builder.module, scale_table())
    with ir.loop(builder, ir.WAVE) as lane:
        word = ir.load(builder, ir.offset(builder, rows, lane, ir.i32), ir.i32)
        code = builder.and_(builder.lshr(word, shift), ir.constant(ir.i32, 255))
        factor = ir.load(builder, ir.offset(builder, table, builder.zext(code, ir.i64), ir.double), ir.double, 8)
        ir.store(builder, factor, ir.offset(builder, found, lane, ir.double), 8)
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
    totals = [ir.entry_alloca(builder, wide) for _ in range(_ROWS)]
    for slot in totals:
        ir.store(builder, ir.constant(wide, [0.0] * form.columns), slot, 64)
    with ir.loop(builder, shape.k // 32) as block:
        sums = _sums(builder, form, a, b, row, column, builder.mul(block, ir.index(32)), 32, 0.0)
        base = builder.mul(block, ir.index(shape.dim))
        for k, (slot, part) in enumerate(zip(totals, sums, strict=True)):
            part = part if part.type == wide else builder.fpext(part, wide)
            if factors is not None:
                a_at = builder.add(builder.add(base, row), ir.index(k))
                a_scale = ir.load(builder, ir.offset(builder, factors[0], a_at, ir.double), ir.double, 8)
                b_at = ir.offset(builder, factors[1], builder.add(base, column), ir.double)
                b_scale = ir.load(builder, b_at, wide, 8)
                part = builder.fmul(part, builder.fmul(ir.splat(builder, a_scale, form.columns), b_scale))
            ir.store(builder, builder.fadd(ir.load(builder, slot, wide, 64), part), slot, 64)
    return [ir.load(builder, slot, wide, 64) for slot in totals]


def _sums(
    builder: llvm.IRBuilder, form: Form, a: ir.Value, b: ir.Value, row: ir.Value, column: ir.Value,
    first: ir.Value, count: int, initial: float,
) -> list[ir.Value]:  # fmt: skip
    """Returns the sums of products over `count` steps of K from `first` on."""
    kind, dim = ir.vector(form.sums, form.columns), form.shape.dim
    integer = form.shape.is_integer
    sums = [ir.entry_alloca(builder, kind) for _ in range(_ROWS)]
    zero = ir.constant(kind, None) if integer else ir.constant(kind, [initial] * form.columns)
    for slot in sums:
        ir.store(builder, zero, slot, 64)
    with ir.loop(builder, count) as step:
        base = builder.mul(builder.add(first, step), ir.index(dim))
        b_values = ir.load(builder, ir.offset(builder, b, builder.add(base, column), form.sums), kind)
        a_start = ir.offset(builder, a, builder.add(base, row), form.sums)
        for k, slot in enumerate(sums):
            element = ir.load(builder, ir.offset(builder, a_start, k, form.sums), form.sums)
            a_values, old = ir.splat(builder, element, form.columns), ir.load(builder, slot, kind, 64)
            if integer:
                new = builder.add(old, builder.mul(a_values, b_values))
            else:
                new = ir.intrinsic(builder, "fma", a_values, b_values, old)
            ir.store(builder, new, slot, 64)
    return [ir.load(builder, slot, kind, 64) for slot in sums]


def _finish(
    builder: llvm.IRBuilder, form: Form, total: ir.Value, c: ir.Value, result: ir.Value, at: tuple[ir.Value, ir.Value]
) -> None:
    """Adds C, rounds, and stores a row's columns. In 16×16, lane 16·(row / 4) + column has it in register row mod 4."""
    row, column = at
    words = ir.vector(ir.i32, form.columns)
    low = builder.and_(row, ir.index(3))
    if form.shape.dim == 16:
        register, group = low, builder.lshr(row, ir.index(2))
    else:
        register = builder.or_(low, builder.shl(builder.lshr(row, ir.index(3)), ir.index(2)))
        group = builder.and_(builder.lshr(row, ir.index(2)), ir.index(1))
    lane = builder.add(builder.mul(group, ir.index(form.shape.dim)), column)
    cell = builder.add(builder.mul(register, ir.index(ir.WAVE)), lane)
    old = ir.load(builder, ir.offset(builder, c, cell, ir.i32), words)
    if form.shape.is_integer:
        bits = builder.add(total, old)
    else:
        singles = ir.vector(ir.single, form.columns)
        addend = builder.fpext(builder.bitcast(old, singles), total.type)
        value = builder.fptrunc(builder.fadd(total, addend), singles)
        nan = ir.constant(words, [0x7FC00000] * form.columns)
        bits = builder.select(builder.fcmp_unordered("uno", value, value), nan, builder.bitcast(value, words))
    ir.store(builder, bits, ir.offset(builder, result, cell, ir.i32))
