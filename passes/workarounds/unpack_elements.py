"""mxcomp-unpack-elements: uses a byte for each element of less than a byte where IREE cannot load or store them.

IREE stores elements of 2 and 4 bits from several lanes so that they overwrite each other, cannot load them from
rows that are no whole bytes, and can neither store nor load 6-bit ones. So tensors of them that linalg ops compute, and
stored ones that they cannot read otherwise, are codes in i8.

Before:

    %q = linalg.generic … ins(%x, %amax) { … arith.scaling_truncf … to f4E2M1FN } -> tensor<64x8x32xf4E2M1FN>
    %d = linalg.generic … ins(%q) { arith.extf … } -> tensor<64x8x32xf32>
    %b = iree_tensor_ext.bitcast %q : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x16xi8>

After; only what is not linalg reads codes without gaps:

    %c = linalg.generic … ins(%x, %amax) { … arith.bitcast … to i4   arith.extui … to i8 } -> tensor<64x8x32xi8>
    %d = linalg.generic … ins(%c) { arith.trunci … to i4   arith.bitcast … to f4E2M1FN   arith.extf … }
    %w = linalg.generic … ins(%c) { … arith.ori } -> tensor<64x8x2xi64>
    %q = iree_tensor_ext.bitcast %w : tensor<64x8x2xi64> -> tensor<64x8x32xf4E2M1FN>
    %b = iree_tensor_ext.bitcast %q : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x16xi8>

Slices of stored elements become slices of their bytes: IREE takes a slice of fewer dimensions for its source.

6-bit elements are read and written in integers (`mxcomp.codes.six_bit`); reductions read them as f32, decoded once.
Codes that are gathered from bytes are kept in memory: IREE makes the gather part of a reduction that reads them,
however far behind, and then some lanes get other bytes.
What is only encoded stays as it is: it becomes part of packing, or this pass finds it after materialisation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iree.compiler import ir

from mxcomp.codes import packed, six_bit
from mxcomp.codes.decode import stored_codes
from mxcomp.codes.six_bit import is_six_bit
from mxcomp.matching import gathers
from mxcomp.matching.decision import decision_of
from mxcomp.matching.storage import BITCASTS, GATHER, sliced_in_bytes
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, reads_init

_SLICE = "tensor.extract_slice"
INSERT = "tensor.insert_slice"
WRITES = (INSERT, "tensor.concat")
"""Operations that move elements into a part of their result: IREE cannot store parts of less than a byte."""
_MOVES = (*graph.VIEWS, _SLICE, *WRITES)
"""Operations that only move elements of any type."""

_OF_NAMED_OPS = {"permutation", "dimensions", "dilations", "strides", "cast", "linalg.memoized_indexing_maps"}
"""Attributes that named operations have and generic ones do not."""

_ENCODED = ("iree_encoding.set_encoding", "tensor.dim")


def run(module: ir.Operation) -> None:
    """Unpacks computations on elements of less than a byte below `module`. Raises InputError for unsupported ones."""
    widening = _Widening()
    for op in list(graph.walk(module, bodies=False, outside=True)):
        widening.visit(op)
    widening.finish()


def is_narrow_tensor(value: ir.Value) -> bool:
    """Returns whether it is a tensor of elements of less than a byte, booleans apart."""
    return isinstance(value.type, ir.RankedTensorType) and is_sub_byte(ir.RankedTensorType(value.type).element_type)


def _is_loadable(value: ir.Value) -> bool:
    """Returns whether IREE can load a narrow tensor: elements of 2 or 4 bits in rows of whole bytes."""
    *_, last = build.static_sizes(value) or [1]
    bits = ir.RankedTensorType(value.type).element_type.width
    return not is_six_bit(value.type) and last is not None and last * bits % 8 == 0


def is_calculation(op: ir.Operation) -> bool:
    """Returns whether it is a linalg op, but neither a gather, which is only read, nor an encoded matmul."""
    if indexing_maps(op) is None or len(op.results) != 1 or GATHER in op.attributes:
        return False
    decision = decision_of(op)
    return decision is None or not decision.is_ours


def _only_encoded(value: ir.Value) -> bool:
    """Returns whether all readers are encodings, through reshapes and slices, also of bytes.

    Materialisation handles these.
    """
    for user in (use.owner.operation for use in value.uses):
        reader = user.parent if user.name == "tensor.extract" and GATHER in user.parent.attributes else user
        moves = (reader != user or user.name in (*_MOVES, *BITCASTS)) and _only_encoded(reader.results[0])
        gathered = user.name in BITCASTS and not is_narrow_tensor(user.results[0]) and _only_gathered(user.results[0])
        if user.name not in _ENCODED and not gathered and not moves:
            return False
    return True


def _only_gathered(value: ir.Value) -> bool:
    """Returns whether all readers of bytes are gathers by ids, which are only encoded as elements."""
    for user in (use.owner.operation for use in value.uses):
        gather = user.parent
        if user.name != "tensor.extract" or gather is None or not gather.results:
            return False
        if gathers.find(gather.results[0]) is None:
            return False
        for behind in (use.owner.operation for use in gather.results[0].uses):
            if behind.name not in BITCASTS or not is_narrow_tensor(behind.results[0]):
                return False
            if not _only_encoded(behind.results[0]):
                return False
    return True


@dataclass
class _Widening:
    """The state of the pass: `codes` are tensors of i8 by the narrow tensors that they represent; `replaced` have them
    in their place."""

    codes: dict[ir.Value, ir.Value] = field(default_factory=dict)
    replaced: list[ir.Operation] = field(default_factory=list)

    def visit(self, op: ir.Operation) -> None:
        """Computes an operation on codes, if it involves narrow elements that IREE cannot handle."""
        if op.name in _MOVES:
            if is_narrow_tensor(op.results[0]) and self._concerns(op):
                self._replace(op, self._moved(op))
            elif op.name == _SLICE and is_narrow_tensor(op.results[0]) and not _only_encoded(op.results[0]):
                self._slice_bytes(op)
        elif op.name.startswith(("arith.", "math.")):
            if any(is_narrow_tensor(v) for v in (*op.operands, *op.results)) and op.name != "arith.constant":
                with op.location, ir.InsertionPoint(op):
                    generic = packed.as_generic(op)
                graph.replace(op, generic.results[0])
                self.visit(generic)
        elif is_calculation(op) and self._concerns(op):
            self._replace(op, self._calculated(op))

    def _slice_bytes(self, op: ir.Operation) -> None:
        """Slices bytes of stored elements; where these are no whole bytes, their codes."""
        with op.location, ir.InsertionPoint(op):
            value = sliced_in_bytes(op.results[0])
            if value == op.results[0]:
                self._replace(op, self._moved(op))
                return
        graph.replace(op, value)

    def _concerns(self, op: ir.Operation) -> bool:
        """Returns whether an operation reads what IREE cannot load, or codes, or stores narrow elements."""
        stores = is_narrow_tensor(op.results[0])
        if stores and _only_encoded(op.results[0]):
            return False
        loads = [value for value in op.operands if is_narrow_tensor(value)]
        computes = stores and (op.name not in _MOVES or op.name in WRITES)
        return computes or any(value in self.codes or not _is_loadable(value) for value in loads)

    def _replace(self, op: ir.Operation, value: ir.Value) -> None:
        self.replaced.append(op)
        if is_narrow_tensor(op.results[0]):
            self.codes[op.results[0]] = value
        else:
            op.results[0].replace_all_uses_with(value)

    def _moved(self, op: ir.Operation) -> ir.Value:
        with op.location, ir.InsertionPoint(op):
            copy = graph.copied(op, [self._code(v) if is_narrow_tensor(v) else v for v in op.operands])
            copy.results[0].set_type(packed.code_tensor(op.results[0].type))
            return copy.results[0]

    def _calculated(self, op: ir.Operation) -> ir.Value:
        *inputs, init = op.operands
        *_, output = indexing_maps(op) or []
        reduces = not output.is_permutation
        with op.location, ir.InsertionPoint(op):
            given = [self._input(value, reduces) for value in inputs]
            result = ir.RankedTensorType(op.results[0].type)
            if is_narrow_tensor(op.results[0]):
                result = packed.code_tensor(result)
                init = self._code(init) if reads_init(op) else build.empty(result, build.dynamic_sizes(init))

            def body(*arguments: ir.Value) -> ir.Value:
                block = op.regions[0].blocks[0]
                values = [packed.narrow(v, a.type) for v, a in zip(arguments, block.arguments, strict=True)]
                return packed.widen(inline(op, values, six_bit.rewrite))

            maps = indexing_maps(op) or []
            new = build.generic(result, given, init, maps, linalg_ops.iterators(op), body)
            for name in set(op.attributes) - set(new.attributes) - _OF_NAMED_OPS:
                new.attributes[name] = op.attributes[name]
            return new.results[0]

    def _input(self, value: ir.Value, reduces: bool) -> ir.Value:
        """Returns the replacement of an operand: codes, or f32 where it would decode them many times."""
        if not is_narrow_tensor(value) or (value not in self.codes and _is_loadable(value)):
            return value
        code = self._code(value)
        return packed.decoded(code, value.type) if reduces and is_six_bit(value.type) else code

    def _code(self, value: ir.Value) -> ir.Value:
        """Returns the codes of a narrow tensor. Made at the insertion point of the reader, if it is stored without
        gaps."""
        if value in self.codes:
            return self.codes[value]
        if graph.producer(value, "tensor.empty") is not None:
            return build.empty(packed.code_tensor(value.type), build.dynamic_sizes(value))
        if _is_loadable(value):
            return packed.loaded(value)
        # IREE reads other bytes for some lanes of a reduction that gathers.
        return build.barrier(stored_codes(value))

    def finish(self) -> None:
        """Gives the remaining readers of a replaced tensor its packed codes, and erases what nothing reads."""
        for op in self.replaced:
            value = op.results[0]
            others = [use.owner.operation for use in value.uses]
            if any(user not in self.replaced and user.name not in _ENCODED for user in others):
                self._pack(op, value)
        for op in reversed(self.replaced):
            graph.erase_dead(op)

    def _pack(self, op: ir.Operation, value: ir.Value) -> None:
        with op.location, ir.InsertionPoint.after(self.codes[value].owner):
            dense = packed.dense(self.codes[value], value.type, op.location)
        for use in list(value.uses):
            user = use.owner.operation
            if user not in self.replaced and user.name != "iree_encoding.set_encoding":
                user.operands[use.operand_number] = dense
