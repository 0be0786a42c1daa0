"""mxcomp-link-ukernels: puts each ukernel into the executables that use it, and nowhere else.

Before (inner module of an executable, or any module):

    func.func @matmul() {
      … iree_codegen.inner_tiled … {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
    }

After:

    func.func @matmul() attributes {hal.executable.target = #hal.executable.target<…, {…,
        iree_codegen.ukernel_provider = #rocm.tensor_ukernel_provider}>} { … }
    util.func private @mx_…(…) { … }

`mx_…_batched` is the ukernel with one more dimension, of size 1, in front of its operands and its result, `mx_…_tiled`
with one in front of those of rows: of LHS and result. They are made of the ukernel here.

The provider is what makes IREE look a ukernel up by name. Set here, on the functions that need it, it needs no global
flag, under which IREE's builtin ukernels would take over other matmuls of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.errors import InternalError, UkernelError
from mxcomp.layout import ACC, LHS
from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import KERNEL, PLACEHOLDER, UKERNEL
from mxcomp.mlir.linalg_ops import reassociation
from mxcomp.options import Options
from mxcomp.packing import block_quantiser
from mxcomp.packing.result_tiles import BATCHED, SHARED, TILED
from mxcomp.registry import Registry, Ukernel, accepts
from mxcomp.registry.reading import lds_bytes
from mxcomp.target import Target
from mxcomp.ukernels import dual_packed, family, quantising, swiglu

_BITCAST, _STORE = "iree_tensor_ext.bitcast", "iree_tensor_ext.dispatch.tensor.store"
Arguments: TypeAlias = tuple[ir.RankedTensorType, ...]
_PROVIDER = "iree_codegen.ukernel_provider = #rocm.tensor_ukernel_provider"


OPTIONS = ("ukernel-dir",)


def run(module: ir.Operation, options: Options) -> None:
    """Links every ukernel named by a descriptor below `module`. Raises UkernelError."""
    users = [op for op in graph.walk(module) if _has_kernel(op)]
    if not users:
        return
    with module.location:
        registry = Registry(options.target, options.ukernel_dirs, stock=not options.reads_in_place)
        linked: set[tuple[ir.Operation, str]] = set()
        arguments: dict[str, Arguments] = {}
        for user in users:
            name, table = descriptor_name(user), _around(user, "builtin.module")
            assert table is not None
            if KERNEL in user.attributes:
                _insert_own(user, name, table, options.target)
                _set_provider(user)
                continue
            ukernel, suffix = find(registry, name)
            if (table, name) not in linked:
                linked.add((table, name))
                written = function(registry, name, _stores(user))
                _insert(ukernel, block_quantiser.completed(written, user), table)
            if name not in arguments:
                arguments[name] = ukernel.arguments()
            check_operands(user, ukernel, arguments[name], suffix)
            _set_provider(user)


def _has_kernel(op: ir.Operation) -> bool:
    """Returns whether an operation names a ukernel. Raises InternalError if what it is in did, but the name is lost."""
    if PLACEHOLDER in op.attributes and UKERNEL not in op.parent.attributes:
        raise InternalError(f"IREE dropped the kernel of {graph.placed('a dispatch', op.parent.location)}")
    return UKERNEL in op.attributes


def descriptor_name(op: ir.Operation) -> str:
    """Returns the ukernel named by an operation's descriptor."""
    text = str(op.attributes[UKERNEL])
    return text.split('"')[1]


def _around(op: ir.Operation, *names: str) -> ir.Operation | None:
    """Returns the innermost operation of one of these names around another one."""
    return next((each for each in graph.around(op) if each.name in names), None)


def find(registry: Registry, name: str) -> tuple[Ukernel, str]:
    """Returns the ukernel that a descriptor names, and the suffix that names its extensions. Raises UkernelError."""
    for suffix in _EXTENDED:
        if name not in registry.ukernels and name.endswith(suffix):
            return registry[name.removesuffix(suffix)], suffix
    return registry[name], ""


def _stores(user: ir.Operation) -> family.Stores | None:
    """Returns what the function around a ukernel's operation stores, if that is known."""
    function = _around(user, "func.func", "util.func")
    stored = [op.operands[0] for op in graph.walk(function) if op.name == _STORE] if function is not None else []
    if not stored:
        return None
    padded = any(graph.producer(value, "tensor.extract_slice") is not None for value in stored)
    return family.Stores(max(build.element(value).width for value in stored) // 8, padded)


def function(registry: Registry, name: str, stores: family.Stores | None = None) -> ir.Operation:
    """Returns the function that a descriptor names, in no module. Raises UkernelError."""
    ukernel, suffix = find(registry, name)
    result = ukernel.function(stores)
    if suffix:
        _add_dimension(result, name, suffix)
    return result


_EXTENDED: Mapping[str, Callable[[int], bool]] = {
    BATCHED: lambda operand: True,
    SHARED: lambda operand: operand != LHS,
    TILED: lambda operand: operand in (LHS, -1),
}
"""Whether an operand has an additional dimension, by suffix; -1 is the result."""


def _extended(suffix: str, count: int) -> list[bool]:
    """Returns which of so many operands have an additional dimension."""
    return [suffix in _EXTENDED and _EXTENDED[suffix](i if i < count - 1 else -1) for i in range(count)]


def _insert_own(user: ir.Operation, name: str, table: ir.Operation, target: Target) -> None:
    """Links the kernel that an operation brings, once. Raises InternalError if the GPU has not that much LDS."""
    body = graph.module_block(table)
    if name not in [graph.symbol_name(view.operation) for view in body.operations]:
        module = ir.Module.parse(ir.StringAttr(user.attributes[KERNEL]).value)
        (function,) = module.body.operations
        if lacking := target.lacks_lds(lds_bytes(function.operation)):
            raise InternalError(f"{name}: {lacking}")
        ir.InsertionPoint.at_block_begin(body).insert(function.detach_from_parent().operation)
    del user.attributes[KERNEL]


def _insert(ukernel: Ukernel, linked: ir.Operation, table: ir.Operation) -> None:
    body, name = graph.module_block(table), graph.symbol_name(linked)
    for view in body.operations:
        if graph.symbol_name(view.operation) == name:
            where = view.operation.location
            raise UkernelError(f"cannot link @{name} from {ukernel.path}: {where} has that name")
    ir.InsertionPoint.at_block_begin(body).insert(linked)


def _add_dimension(function: ir.Operation, name: str, suffix: str) -> None:
    """Gives some operands of a ukernel, and its result, an additional dimension of size 1."""
    block = function.regions[0].blocks[0]
    plain = list(block.arguments)
    extended = _extended(suffix, len(plain))
    kinds = [_batched_type(each.type) if more else each.type for each, more in zip(plain, extended, strict=True)]
    for argument, kind in zip(plain, kinds, strict=True):
        given = value = block.add_argument(kind, argument.location)
        if kind != argument.type:
            for user in [use.owner.operation for use in argument.uses]:
                if user.name == _BITCAST:
                    _drop_after(user, given)
            with function.location, ir.InsertionPoint.at_block_begin(block):
                value = _dropped(given)
        argument.replace_all_uses_with(value)
    for _ in plain:
        block.erase_argument(0)
    returned = list(block.operations)[-1].operation
    with function.location, ir.InsertionPoint(returned):
        returned.operands[0] = _batched_result(returned.operands[0])
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, kinds[-1:]))
    ir.SymbolTable.set_symbol_name(function, name)


def _batched_result(value: ir.Value) -> ir.Value:
    """Returns the result with an additional dimension, inserted where lanes write it, as consumers then still fuse."""
    loop = graph.producer(value)
    if loop is not None and _is_collapsed_loop(loop):  # of inner tiles that are two dimensions where lanes write
        groups = [[0], *([i + 1 for i in group] for group in reassociation(loop))]
        collapsed = build.collapse(_batched_result(loop.operands[0]), groups)
        value.replace_all_uses_with(collapsed)
        loop.erase()
        return collapsed
    inserts = [op for op in graph.walk(loop) if op.name == "tensor.parallel_insert_slice"] if loop else []
    if loop is None or loop.name != "scf.forall" or len(loop.results) != 1 or len(inserts) != 1:
        return _batched(value)
    kind, (insert,) = _batched_type(value.type), inserts
    with ir.InsertionPoint(loop):
        loop.operands[len(loop.operands) - 1] = build.empty(kind)
    with ir.InsertionPoint(insert.parent):
        insert.operands[0] = _batched(insert.operands[0])
    arguments = loop.regions[0].blocks[0].arguments
    arguments[len(arguments) - 1].set_type(kind)
    for name, first in (("offsets", 0), ("sizes", 1), ("strides", 1)):
        numbers = ir.DenseI64ArrayAttr(insert.attributes[f"static_{name}"])
        insert.attributes[f"static_{name}"] = ir.DenseI64ArrayAttr.get([first, *numbers])
    loop.results[0].set_type(kind)
    return loop.results[0]


def _is_collapsed_loop(op: ir.Operation) -> bool:
    """Returns whether an operation collapses dimensions of what a loop over lanes writes."""
    source = graph.producer(op.operands[0]) if op.name == "tensor.collapse_shape" else None
    return source is not None and source.name == "scf.forall"


def _batched_type(kind: ir.RankedTensorType) -> ir.RankedTensorType:
    return ir.RankedTensorType.get([1, *kind.shape], kind.element_type)


def _batched(value: ir.Value) -> ir.Value:
    """Returns a tensor with one more dimension in front."""
    return build.split(value, 0, [1, build.static_sizes(value)[0]], build.dynamic_sizes(value))


def _dropped(value: ir.Value) -> ir.Value:
    """Returns a tensor without its first dimension."""
    return build.collapse(value, [[0, 1], *([i] for i in range(2, ir.RankedTensorType(value.type).rank))])


def _drop_after(bitcast: ir.Operation, given: ir.Value) -> None:
    """Bitcasts `given` first and then drops its first dimension: IREE folds a bitcast only of an unchanged load."""
    sizes = list(bitcast.operands)[1:]
    with bitcast.location, ir.InsertionPoint(bitcast):
        half = len(sizes) // 2
        value = _dropped(build.bitcast(given, _batched_type(bitcast.results[0].type), sizes[:half], sizes[half:]))
    graph.replace(bitcast, value)


def check_operands(user: ir.Operation, ukernel: Ukernel, arguments: Arguments, suffix: str = "") -> None:
    """Compares the operands of the operation that a ukernel replaces with its arguments. Raises UkernelError."""
    operands = list(user.operands)
    if len(operands) != len(arguments):
        raise UkernelError(
            f"{user.location}: {user.name} has {len(operands)} operands, @{ukernel.name} in {ukernel.path} "
            f"takes {len(arguments)}"
        )
    extended = _extended(suffix, len(operands))
    for index, (operand, argument) in enumerate(zip(operands, arguments, strict=True)):
        have = ir.RankedTensorType(operand.type)
        sizes = build.static_sizes(operand)[extended[index] :]
        shape = [None if i in _outer(ukernel, index) else size for i, size in enumerate(sizes)]
        if not accepts(argument, shape, str(have.element_type)):
            raise UkernelError(
                f"{user.location}: operand {index} of {user.name} is {have}, but @{ukernel.name} in {ukernel.path} "
                f"takes {argument}: correct the ukernel's types or its layout"
            )


_RHS = ((0, 1), (0, 1))
_OUTER_OF_FORM = {
    **dict.fromkeys((quantising.FlatStream.operands, swiglu.Hidden.operands), ((0,), *_RHS, (0,))),
    quantising.PAIRS[0].operands: ((0,), *_RHS, *_RHS, (0,), (0,)),
    dual_packed.DualPacked.operands: (*[(0, 2)] * 6, (0, 1), (0, 1)),
}


def _outer(ukernel: Ukernel, operand: int) -> Collection[int]:
    """Returns the dimensions of an operand whose sizes the ukernel does not determine."""
    if ukernel.operands in _OUTER_OF_FORM:
        return _OUTER_OF_FORM[ukernel.operands][operand]
    if ukernel.layout is None:
        return range(3)
    return (0, 2) if ukernel.has_inner_tiles and operand != ACC else (0, 1)


def _set_provider(user: ir.Operation) -> None:
    """Gives the function around `user` an executable target with a ukernel provider. Does nothing outside
    executables."""
    function, variant = _around(user, "func.func", "util.func"), _around(user, "hal.executable.variant")
    if variant is None or function is None or "hal.executable.target" in function.attributes:
        return
    function.attributes["hal.executable.target"] = target_with_provider(variant)


def target_with_provider(variant: ir.Operation) -> ir.Attribute:
    """Returns the target of a `hal.executable.variant`, with a ukernel provider in its configuration."""
    text = str(variant.attributes["target"])
    config_end = text.rindex("}>")
    return ir.Attribute.parse(f"{text[:config_end]}, {_PROVIDER}{text[config_end:]}")
