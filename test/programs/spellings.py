"""Quantisers as exporters, torchao, Quark, AITER and people write them: one is drawn part by part, from tables.

Each part says what it computes in IR of scalars; all of them mean what `reference` computes from the specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import reference
from drawing import Drawing
from elementwise import loops_of, transposed
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, math, tensor
from mx_operands import Operand
from nodes import BLOCK, EMAX, FLOATS, LARGEST, SCALE, Floats, Node

from mxcomp.mlir import build

MODES = {"even": 4, "floor": 2, "ceil": 1.5, "rceil": 1.5}
MANTISSA, DIGITS = 23, (1 << 23) - 1
"""Of an f32: bits of it, all of them."""
EXPONENT, MAGNITUDE = 0x7F800000, 0x7FFFFFFF
Scalar = Callable[[ir.Value], ir.Value]


def i32() -> ir.Type:
    return ir.IntegerType.get_signless(32)


def number(value: int) -> ir.Value:
    return arith.ConstantOp(i32(), value).result


def real(value: float) -> ir.Value:
    return arith.ConstantOp(ir.F32Type.get(), value).result


def f32(value: ir.Value) -> ir.Value:
    kind = ir.F32Type.get()
    return value if value.type == kind else arith.ExtFOp(kind, value).result


def bits_of(value: ir.Value) -> ir.Value:
    """Of a magnitude, as an f32's; of bits, themselves."""
    return value if value.type == i32() else arith.BitcastOp(i32(), f32(value)).result


def as_f32(bits: ir.Value) -> ir.Value:
    return arith.BitcastOp(ir.F32Type.get(), bits).result


# Largest magnitudes


@dataclass(frozen=True)
class Amax:
    """Steps of a reduction of |x| in a type ("": that of x; bits: of an f32 as an integer), and what it starts from."""

    step: Callable[[ir.Value, ir.Value], ir.Value]
    start: float
    kind: str = ""
    reads: Scalar = lambda x: math.AbsFOp(x).result


def _magnitude_bits(x: ir.Value) -> ir.Value:
    return arith.AndIOp(arith.BitcastOp(i32(), f32(x)).result, number(MAGNITUDE)).result


def _greater(x: ir.Value, largest: ir.Value) -> ir.Value:
    return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.OGT, x, largest).result, x, largest).result


def _narrow(x: ir.Value) -> ir.Value:
    bf16 = ir.BF16Type.get()
    return x if x.type == bf16 else arith.TruncFOp(bf16, math.AbsFOp(f32(x)).result).result


INFINITY = float("inf")
AMAX = {
    "maximumf": Amax(lambda x, y: arith.MaximumFOp(x, y).result, 0.0),
    "of f32": Amax(lambda x, y: arith.MaximumFOp(y, x).result, 0.0, "f32", lambda x: math.AbsFOp(f32(x)).result),
    "of bf16": Amax(lambda x, y: arith.MaximumFOp(x, y).result, 0.0, "bf16", lambda x: math.AbsFOp(_narrow(x)).result),
    "maxnumf": Amax(lambda x, y: arith.MaxNumFOp(x, y).result, -INFINITY),
    "select": Amax(_greater, 0.0),
    "maxui": Amax(lambda x, y: arith.MaxUIOp(x, y).result, 0, "i32", _magnitude_bits),
    "maxsi": Amax(lambda x, y: arith.MaxSIOp(y, x).result, 0, "i32", _magnitude_bits),
    "two steps": Amax(lambda x, y: arith.MaximumFOp(x, y).result, 0.0),
    "ends": Amax(lambda x, y: arith.MaximumFOp(x, y).result, -INFINITY, reads=lambda x: x),
    "with index": Amax(lambda x, y: arith.MaximumFOp(x, y).result, -INFINITY),
}
AMAX_WEIGHTS = dict.fromkeys(AMAX, 1.0)

# Codes of scales


def _carry(kind: str, mode: str) -> int:
    """What is added to an f32's bits so that its exponent is that of the scale, plus EMAX."""
    digits = reference.digits(kind)
    largest = int(np.float32(LARGEST[kind]).view(np.int32)) & DIGITS
    return {"floor": 0, "even": 1 << MANTISSA - 1 - digits, "ceil": DIGITS, "rceil": DIGITS - largest}[mode]


def _clamped_code(code: ir.Value, least: int) -> ir.Value:
    return arith.MinSIOp(arith.MaxSIOp(code, number(least)).result, number(254)).result


def _by_carry(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    exponent = arith.ShRUIOp(arith.AddIOp(bits_of(amax), number(_carry(kind, mode))).result, number(MANTISSA)).result
    return _clamped_code(arith.SubIOp(exponent, number(EMAX[kind])).result, least)


def _power(amax: ir.Value, kind: str, mode: str) -> ir.Value:
    """The power of two that the carry leaves, as an f32."""
    carried = arith.AddIOp(bits_of(amax), number(_carry(kind, mode))).result
    return as_f32(arith.AndIOp(carried, number(EXPONENT)).result)


def _code_of_log2(exponent: ir.Value, kind: str, least: int) -> ir.Value:
    """Of a whole number in f32, or -∞."""
    own = arith.SubFOp(exponent, real(float(EMAX[kind]))).result
    bounded = arith.MaximumFOp(arith.MinimumFOp(own, real(127.0)).result, real(least - 127.0)).result
    return arith.AddIOp(arith.FPToSIOp(i32(), bounded).result, number(127)).result


def _by_masked_log2(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    return _code_of_log2(math.FloorOp(math.Log2Op(_power(amax, kind, mode)).result).result, kind, least)


def _by_log2(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    value = as_f32(bits_of(amax)) if amax.type == i32() else f32(amax)
    if mode == "rceil":  # of the largest element, whose exponent is taken off
        value = arith.DivFOp(value, real(LARGEST[kind] / 2.0 ** EMAX[kind])).result
    whole = math.FloorOp if mode == "floor" else math.CeilOp
    return _code_of_log2(whole(math.Log2Op(value).result).result, kind, least)


def _by_mantissa(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    bits = bits_of(amax)
    exponent = arith.AndIOp(arith.ShRUIOp(bits, number(MANTISSA)).result, number(0xFF)).result
    mantissa = arith.AndIOp(bits, number(DIGITS)).result
    above = arith.CmpIOp(arith.CmpIPredicate.ugt, mantissa, number(DIGITS - _carry(kind, mode))).result
    up = arith.AddIOp(exponent, number(1)).result
    exponent = exponent if mode == "floor" else arith.SelectOp(above, up, exponent).result
    return _clamped_code(arith.SubIOp(exponent, number(EMAX[kind])).result, least)


def _by_truncation(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    """The scale as an f32, truncated to E8M0."""
    scale = arith.MulFOp(_power(amax, kind, mode), real(2.0 ** -EMAX[kind])).result
    if least:
        scale = arith.MaximumFOp(scale, real(2.0 ** (least - 127))).result
    byte = arith.BitcastOp(ir.IntegerType.get_signless(8), arith.TruncFOp(ir.Type.parse(SCALE), scale).result).result
    return arith.ExtUIOp(i32(), byte).result


def _by_quotient(amax: ir.Value, kind: str, mode: str, least: int) -> ir.Value:
    """amax / the largest element, rounded up to a power of two."""
    value = as_f32(amax) if amax.type == i32() else f32(amax)
    quotient = arith.BitcastOp(i32(), arith.DivFOp(value, real(LARGEST[kind])).result).result
    carried = arith.AddIOp(quotient, number(DIGITS)).result
    return _clamped_code(arith.ShRUIOp(carried, number(MANTISSA)).result, least)


@dataclass(frozen=True)
class Code:
    """How a scale's code comes of a largest magnitude, and for which modes one can write it so."""

    code: Callable[[ir.Value, str, str, int], ir.Value]
    modes: tuple[str, ...] = tuple(MODES)


CODES = {
    "carry": Code(_by_carry),
    "masked log2": Code(_by_masked_log2),
    "log2": Code(_by_log2, ("floor", "ceil", "rceil")),
    "mantissa": Code(_by_mantissa),
    "truncated to E8M0": Code(_by_truncation),
    "quotient": Code(_by_quotient, ("rceil",)),
}

# Elements


@dataclass(frozen=True)
class Scaled:
    """x by a scale of that code, in f32; the least code that this can be written for."""

    body: Callable[[ir.Value, ir.Value], ir.Value]
    least: int = 0


def _inverse(code: ir.Value) -> ir.Value:
    return as_f32(arith.ShLIOp(arith.SubIOp(number(254), code).result, number(MANTISSA)).result)


def _exp2(code: ir.Value) -> ir.Value:
    return math.Exp2Op(arith.SIToFPOp(ir.F32Type.get(), arith.SubIOp(number(127), code).result).result).result


def _exponent_added(x: ir.Value, code: ir.Value) -> ir.Value:
    """As ldexp is written: in two steps, for exponents that no f32 has."""
    shift = arith.SubIOp(number(127), code).result
    half = arith.ShRSIOp(shift, number(1)).result
    for part in (half, arith.SubIOp(shift, half).result):
        x = arith.MulFOp(x, as_f32(arith.ShLIOp(arith.AddIOp(part, number(127)).result, number(23)).result)).result
    return x


def _e8m0(code: ir.Value) -> ir.Value:
    byte = arith.TruncIOp(ir.IntegerType.get_signless(8), code).result
    return arith.BitcastOp(ir.Type.parse(SCALE), byte).result


SCALING = "scaling_truncf"
SCALED = {
    SCALING: Scaled(lambda x, code: x),
    "extf": Scaled(lambda x, code: arith.DivFOp(x, f32(_e8m0(code))).result, least=1),
    "shift": Scaled(
        lambda x, code: arith.DivFOp(x, as_f32(arith.ShLIOp(code, number(MANTISSA)).result)).result, least=1
    ),
    "inverse": Scaled(lambda x, code: arith.MulFOp(x, _inverse(code)).result),
    "exp2": Scaled(lambda x, code: arith.MulFOp(_exp2(code), x).result),
    "ldexp": Scaled(_exponent_added),
}
SCALED_WEIGHTS = {SCALING: 4, "extf": 1.5, "shift": 1, "inverse": 1, "exp2": 1, "ldexp": 0.5}
CLAMPS: dict[str, Callable[[ir.Value, float], ir.Value]] = {
    "minimumf": lambda x, b: arith.MaximumFOp(arith.MinimumFOp(x, real(b)).result, real(-b)).result,
    "minnumf": lambda x, b: arith.MinNumFOp(arith.MaxNumFOp(x, real(-b)).result, real(b)).result,
    "select": lambda x, b: _greater(arith.NegFOp(_greater(arith.NegFOp(x).result, real(-b))).result, real(-b)),
}


def _f4_code(x: ir.Value) -> ir.Value:
    """The nibble of a number, by comparisons with what lies between two elements: ties go to even codes."""
    size = math.AbsFOp(x).result
    code = number(0)
    for i, bound in enumerate((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)):
        predicate = arith.CmpFPredicate.OGE if i % 2 else arith.CmpFPredicate.OGT
        code = arith.AddIOp(code, arith.ExtUIOp(i32(), arith.CmpFOp(predicate, size, real(bound)).result).result).result
    sign = arith.ShRUIOp(arith.BitcastOp(i32(), x).result, number(31)).result
    code = arith.OrIOp(code, arith.ShLIOp(sign, number(3)).result).result
    return arith.TruncIOp(ir.IntegerType.get_signless(8), code).result


LAYOUTS = {"": 6, "keepdims": 2, "flat": 2, "floordiv": 1, "gathered": 1, "columns": 1}
"""Of blocks in the elements' loops: [rows, K / 32, 32]; scales as [rows, K / 32, 1]; factors spread over [rows, K];
scales at k / 32; activations at 32 · block + i; or all of it transposed."""
STORED = {"E8M0": 3, "bytes": 1.5, "recomputed": 1}
"""Scales as tensors: of their type, of bytes that are viewed as that, or computed twice from the largest magnitudes."""


def draw(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    """An exact and finite tensor [rows…, K], whose rows have these letters, quantised along K."""
    dice = drawing.dice
    largest = dice.noted("amax", AMAX_WEIGHTS)
    by = dice.noted("scaled", SCALED_WEIGHTS)
    codes = dice.noted("code", dict.fromkeys(CODES, 1.0))
    amax = _largest(node, largest)
    modes = {mode: weight for mode, weight in MODES.items() if mode in CODES[codes].modes}
    if codes == "log2" and not _far_from_powers(amax):
        codes = "carry"
    clamp = dice.noted("clamp", {"": 1, **dict.fromkeys(CLAMPS, 1.0)}) if by != SCALING else ""
    mode = dice.noted("mode", modes)
    if kind.startswith("f8") and ((not clamp and mode in ("floor", "even")) or largest == "of bf16"):
        clamp, by = clamp or "minimumf", "inverse" if by == SCALING else by  # they do not saturate
    spelling = Spelling(node, axes, kind, largest, codes, mode, by, clamp, dice.noted("layout", _layouts(node)))
    packed = kind == "f4E2M1FN" and by != SCALING and dice.chance(0.3, "elements:by comparison")
    elements, scales = spelling.build(dice.noted("scales", STORED), packed)
    codes_of_scales = reference.scale_codes(amax, kind, mode, SCALED[by].least)
    data = reference.element_codes(reference.divided(reference.blocks_of(node.data), codes_of_scales), kind)
    return spelling.operand(elements, scales, data, codes_of_scales)


def _layouts(node: Node) -> Mapping[str, float]:
    if len(node.shape) != 2:
        return {"": 1, "keepdims": 1}
    return LAYOUTS if node.static else {name: often for name, often in LAYOUTS.items() if name != "columns"}


def _largest(node: Node, how: str) -> Floats:
    blocks = reference.blocks_of(node.data)
    if how == "of bf16":
        blocks = blocks.astype(FLOATS["bf16"]).astype(np.float64)
    return np.abs(blocks).max(axis=-1)


def _far_from_powers(amax: Floats) -> bool:
    """Whether logarithms, of quotients too, are not rounded to whole numbers that they are not."""
    mantissa = np.frexp(amax[amax > 0])[0] * 2
    limits = [1.0, 2.0, *(LARGEST[kind] / 2.0 ** EMAX[kind] for kind in LARGEST)]
    distance = np.abs(mantissa[:, None] - np.array(limits))
    return bool(((distance == 0) | (distance > 1e-3)).all())


@dataclass(frozen=True, eq=False)
class Spelling:
    """One quantiser, of parts drawn."""

    node: Node
    axes: str
    kind: str
    largest: str
    codes: str
    mode: str
    by: str
    clamp: str
    layout: str

    @property
    def letters(self) -> str:
        """Of loops over elements."""
        return f"ki{self.axes}" if self.layout == "columns" else f"{self.axes}ki"

    def operand(self, elements: ir.Value, scales: ir.Value, data: np.ndarray, codes: np.ndarray) -> Operand:
        order = [f"{self.axes}ki".index(letter) for letter in self.letters]
        kept = [f"{self.axes}k".index(letter) for letter in self.letters.replace("i", "")]
        return Operand(
            Node(elements, data.transpose(order), self.kind),
            Node(scales, codes.transpose(kept), SCALE),
            self.letters,
            self.letters.replace("i", ""),
        )

    def build(self, stored: str, by_comparison: bool) -> tuple[ir.Value, ir.Value]:
        """Elements [`letters`] and scales, without i."""
        blocks = self._blocks()
        amax = self._amax(blocks)
        scales = self._scales(amax, "i8" if stored == "bytes" else SCALE)
        given = amax if stored == "recomputed" else scales
        elements = self._elements(blocks, given, self.kind if not by_comparison else "i8")
        if by_comparison:
            elements = self._joined(elements)
        if self.layout == "keepdims":
            rank = ir.RankedTensorType(scales.type).rank
            scales = build.collapse(scales, [*([i] for i in range(rank - 2)), [rank - 2, rank - 1]])
        if stored == "bytes":
            result, sizes = build.tensor_type(build.static_sizes(scales), SCALE), build.dynamic_sizes(scales)
            scales = build.bitcast(scales, result, sizes, sizes)
        return elements, scales

    def _blocks(self) -> ir.Value:
        node = self.node
        if self.layout != "columns":
            return blocked(node)
        turned = transposed(node, [1, 0], named=True)
        shape = [node.shape[1] // BLOCK, BLOCK, node.shape[0]]
        result = build.tensor_type(shape, build.element(node.ir))
        return tensor.ExpandShapeOp(result, turned.ir, [[0, 1], [2]], [], shape).result

    def _maps(self) -> tuple[ir.AffineMap, ir.AffineMap]:
        """Of elements and of what there is one of in each block."""
        letters, kept = self.letters, self.letters.replace("i", "")
        per_block: list[int | None] = [letters.index(letter) for letter in kept]
        if self.layout == "keepdims":
            per_block.append(None)
        return ir.AffineMap.get_identity(len(letters)), loops_of(len(letters), per_block)

    def _amax(self, blocks: ir.Value) -> ir.Value:
        how = AMAX[self.largest]
        kind = how.kind or str(build.element(blocks))
        letters = self.letters
        if self.largest == "two steps" and letters.endswith("i"):
            blocks = expanded_last(blocks, [4, 8])
            blocks = self._reduced(blocks, f"{letters[:-1]}ji", how, kind, {"i"})
        if self.largest == "with index":
            return self._with_index(blocks, kind)
        found = self._reduced(blocks, letters, how, kind, {"i"}, keep=self.layout == "keepdims")
        if self.largest != "ends":
            return found
        low = Amax(lambda x, y: arith.MinimumFOp(x, y).result, INFINITY, reads=lambda x: x)
        least = self._reduced(blocks, letters, low, kind, {"i"}, keep=self.layout == "keepdims")
        body = lambda x, y: arith.MaximumFOp(x, arith.NegFOp(y).result).result  # noqa: E731
        return build.elementwise(ir.RankedTensorType(found.type), [found, least], body, build.dynamic_sizes(found))

    def _reduced(
        self, value: ir.Value, letters: str, how: Amax, kind: str, over: set[str], keep: bool = False
    ) -> ir.Value:
        """Over some letters, the last of which stays as a dimension of size 1 if it is kept."""
        result, maps, init = self._start(value, letters, kind, how.start, over, keep)

        def body(x: ir.Value, largest: ir.Value) -> ir.Value:
            return how.step(how.reads(x), largest)

        iterators = ["reduction" if letter in over else "parallel" for letter in letters]
        return build.generic(result, [value], init, maps, iterators, body).results[0]

    def _start(
        self, value: ir.Value, letters: str, kind: str, start: float, over: set[str], keep: bool
    ) -> tuple[ir.RankedTensorType, list[ir.AffineMap], ir.Value]:
        kept: list[int | None] = [i for i, letter in enumerate(letters) if letter not in over]
        sizes = [build.static_sizes(value)[i] for i in kept if i is not None]
        dims = [*kept, None] if keep else kept
        element = ir.Type.parse(kind)
        result = build.tensor_type([*sizes, 1] if keep else sizes, element)
        first = arith.ConstantOp(element, int(start) if kind.startswith("i") else start).result
        init = build.filled(first, result, build.dynamic_sizes(value))
        return result, [ir.AffineMap.get_identity(len(letters)), loops_of(len(letters), dims)], init

    def _with_index(self, blocks: ir.Value, kind: str) -> ir.Value:
        """As a maximum along a dimension is exported: with where it is, which nobody asks for."""
        letters, how, keep = self.letters, AMAX[self.largest], self.layout == "keepdims"
        result, maps, init = self._start(blocks, letters, kind, how.start, {"i"}, keep)
        _, _, places = self._start(blocks, letters, "i64", 0, {"i"}, keep)
        iterators = ["reduction" if letter == "i" else "parallel" for letter in letters]
        op = linalg.GenericOp(
            [result, places.type],
            [blocks],
            [init, places],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, maps[-1])]),
            ir.ArrayAttr.get([build.iterator_type(each) for each in iterators]),
        )
        i64 = ir.IntegerType.get_signless(64)
        source = build.element(blocks)
        block = op.regions[0].blocks.append(source, source, i64)
        with ir.InsertionPoint(block):
            x, largest, place = block.arguments
            size = math.AbsFOp(x).result
            at = arith.IndexCastOp(i64, linalg.IndexOp(letters.index("i")).result).result
            above = arith.CmpFOp(arith.CmpFPredicate.OGT, size, largest).result
            linalg.YieldOp([arith.MaximumFOp(size, largest).result, arith.SelectOp(above, at, place).result])
        return op.results[0]

    def _code(self, given: ir.Value) -> ir.Value:
        """A scale's code as i32, from what there is of it: the largest magnitude, the scale, its byte."""
        if str(given.type) == SCALE:
            given = arith.BitcastOp(ir.IntegerType.get_signless(8), given).result
        if str(given.type) == "i8":
            return arith.ExtUIOp(i32(), given).result
        return CODES[self.codes].code(given, self.kind, self.mode, SCALED[self.by].least)

    def _scales(self, amax: ir.Value, kind: str) -> ir.Value:
        result = build.tensor_type(build.static_sizes(amax), kind)

        def body(x: ir.Value) -> ir.Value:
            code = self._code(x)
            return arith.TruncIOp(result.element_type, code).result if kind == "i8" else _e8m0(code)

        return build.elementwise(result, [amax], body, build.dynamic_sizes(amax))

    def _elements(self, blocks: ir.Value, given: ir.Value, kind: str) -> ir.Value:
        whole, per_block = self._maps()
        if self.layout in ("flat", "floordiv"):
            return self._flat(given, kind)
        source, read = blocks, whole
        if self.layout == "gathered":
            m, k, i = (ir.AffineExpr.get_dim(d) for d in range(3))
            source, read = self.node.ir, ir.AffineMap.get(3, 0, [m, k * BLOCK + i])
        result = build.tensor_type(build.static_sizes(blocks), kind)
        init = build.empty(result, build.dynamic_sizes(blocks))
        body = lambda x, code, _: self._element(x, self._code(code), result.element_type)  # noqa: E731
        iterators = ["parallel"] * result.rank
        return build.generic(result, [source, given], init, [read, per_block, whole], iterators, body).results[0]

    def _flat(self, given: ir.Value, kind: str) -> ir.Value:
        """[rows, K] at once: codes are spread over [rows, K] before, or read at k / 32."""
        rows, columns = build.static_sizes(self.node.ir)
        assert columns is not None
        dynamic = build.dynamic_sizes(self.node.ir)
        m, k = (ir.AffineExpr.get_dim(d) for d in range(2))
        identity = ir.AffineMap.get_identity(2)
        read = ir.AffineMap.get(2, 0, [m, ir.AffineExpr.get_floor_div(k, BLOCK)])
        if self.layout == "flat":
            spread = build.tensor_type([rows, columns // BLOCK, BLOCK], i32())
            init = build.empty(spread, dynamic)
            maps = [loops_of(3, [0, 1]), ir.AffineMap.get_identity(3)]
            codes = build.generic(spread, [given], init, maps, ["parallel"] * 3, lambda x, _: self._code(x)).results[0]
            given, read = build.collapse(codes, [[0], [1, 2]]), identity
        result = build.tensor_type([rows, columns], kind)

        def body(x: ir.Value, code: ir.Value, _: ir.Value) -> ir.Value:
            code = code if self.layout == "flat" else self._code(code)
            return self._element(x, code, result.element_type)

        init = build.empty(result, dynamic)
        maps = [identity, read, identity]
        value = build.generic(result, [self.node.ir, given], init, maps, ["parallel"] * 2, body).results[0]
        return expanded_last(value, [columns // BLOCK, BLOCK])

    def _element(self, x: ir.Value, code: ir.Value, kind: ir.Type) -> ir.Value:
        if self.by == SCALING:
            return arith.ScalingTruncFOp(kind, f32(x), _e8m0(code)).result
        scaled = SCALED[self.by].body(f32(x), code)
        if self.clamp:
            scaled = CLAMPS[self.clamp](scaled, LARGEST[self.kind])
        return _f4_code(scaled) if str(kind) == "i8" else arith.TruncFOp(kind, scaled).result

    def _joined(self, codes: ir.Value) -> ir.Value:
        """Nibbles in bytes, two in one, viewed as elements."""
        if self.letters[-1] != "i":
            result = build.tensor_type(build.static_sizes(codes), self.kind)
            return build.elementwise(result, [codes], _nibble(result.element_type), build.dynamic_sizes(codes))
        *outer, last = build.static_sizes(codes)
        assert last is not None
        sizes, none = build.dynamic_sizes(codes), ir.ShapedType.get_dynamic_size()
        half = build.tensor_type([*outer, last // 2], "i8")
        known = [none if size is None else size for size in [*outer, last // 2]]
        low, high = (
            tensor.ExtractSliceOp(
                half, codes, [], sizes, [], [0] * len(outer) + [at], known, [1] * len(outer) + [2]
            ).result
            for at in (0, 1)
        )

        def body(x: ir.Value, y: ir.Value) -> ir.Value:
            four = arith.ConstantOp(y.type, 4).result
            return arith.OrIOp(x, arith.ShLIOp(y, four).result).result

        joined = build.elementwise(half, [low, high], body, sizes)
        return build.bitcast(joined, build.tensor_type([*outer, last], self.kind), sizes, sizes)


def _nibble(kind: ir.Type) -> Scalar:
    i4 = ir.IntegerType.get_signless(4)
    return lambda x: arith.BitcastOp(kind, arith.TruncIOp(i4, x).result).result


def sizes_of(value: ir.Value) -> list[int | ir.Value]:
    return [build.dim(value, i) if size is None else size for i, size in enumerate(build.static_sizes(value))]


def expanded(
    value: ir.Value, groups: list[list[int]], shape: list[int | None], sizes: list[int | ir.Value]
) -> ir.Value:
    result = build.tensor_type(shape, build.element(value))
    dynamic = [size for size in sizes if not isinstance(size, int)]
    static = [size if isinstance(size, int) else build.DYNAMIC for size in sizes]
    return tensor.ExpandShapeOp(result, value, groups, dynamic, static).result


def expanded_last(value: ir.Value, tail: list[int]) -> ir.Value:
    """The last dimension as several."""
    *rows, _ = build.static_sizes(value)
    groups = [*([i] for i in range(len(rows))), [len(rows) + i for i in range(len(tail))]]
    return expanded(value, groups, [*rows, *tail], [*sizes_of(value)[:-1], *tail])


def blocked(node: Node) -> ir.Value:
    """[…, K] as […, K / 32, 32]."""
    return expanded_last(node.ir, [node.shape[-1] // BLOCK, BLOCK])
