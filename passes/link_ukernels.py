"""mxcomp-link-ukernels: puts each ukernel into the executables that use it, and nowhere else.

Before (inner module of an executable, or any module):

    func.func @matmul() {
      … iree_codegen.inner_tiled … {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
    }

After:

    func.func @matmul() attributes {hal.executable.target = #hal.executable.target<…, {…,
        iree_codegen.ukernel_provider = #rocm.tensor_ukernel_provider}>} { … }
    util.func private @mx_…(…) { … }

The provider is what makes IREE look a ukernel up by name. Set here, on the functions that need it, it needs no global
flag, under which IREE's builtin ukernels would take over other matmuls of the module.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp import build
from mxcomp.errors import UkernelError
from mxcomp.options import Options
from mxcomp.ukernels import Registry, Ukernel, accepts

DESCRIPTOR = "iree_codegen.ukernel"
_PROVIDER = "iree_codegen.ukernel_provider = #rocm.tensor_ukernel_provider"


def run(module: ir.Operation, options: Options) -> None:
    """Links every ukernel named by a descriptor below `module`. Raises UkernelError."""
    users = [op for op in build.walk(module) if DESCRIPTOR in op.attributes]
    if not users:
        return
    with module.context, module.location:
        registry = Registry(options.target.arch, options.ukernel_dirs)
        linked: set[tuple[ir.Operation, str]] = set()
        for user in users:
            name = descriptor_name(user)
            ukernel = registry[name]
            table = _symbol_table(user)
            if (table, name) not in linked:
                linked.add((table, name))
                _insert(ukernel, table)
            check_operands(user, ukernel)
            _set_provider(user)


def descriptor_name(op: ir.Operation) -> str:
    """The ukernel named by an operation's descriptor."""
    text = str(op.attributes[DESCRIPTOR])
    return text.split('"')[1]


def _symbol_table(op: ir.Operation) -> ir.Operation:
    while op.name != "builtin.module":
        assert op.parent is not None
        op = op.parent
    return op


def _insert(ukernel: Ukernel, table: ir.Operation) -> None:
    body = build.module_block(table)
    for view in body.operations:
        if build.symbol_name(view.operation) == ukernel.name:
            where = view.operation.location
            raise UkernelError(f"cannot link @{ukernel.name} from {ukernel.path}: {where} has that name")
    ir.InsertionPoint.at_block_begin(body).insert(ukernel.function())


def check_operands(user: ir.Operation, ukernel: Ukernel) -> None:
    """Compares the operands of the operation that a ukernel replaces with its arguments. Raises UkernelError."""
    operands = list(user.operands)
    if len(operands) != len(ukernel.arguments):
        raise UkernelError(
            f"{user.location}: {user.name} has {len(operands)} operands, @{ukernel.name} in {ukernel.path} "
            f"takes {len(ukernel.arguments)}"
        )
    outer = 2 if ukernel.operands == "data_tiled" else 0
    for index, (operand, argument) in enumerate(zip(operands, ukernel.arguments, strict=True)):
        have = ir.RankedTensorType(operand.type)
        sizes = build.static_sizes(operand)
        shape = [None] * outer + sizes[outer:] if outer else [None] * len(sizes)
        if not accepts(argument, shape, str(have.element_type)):
            raise UkernelError(
                f"{user.location}: operand {index} of {user.name} is {have}, but @{ukernel.name} in {ukernel.path} "
                f"takes {argument}: correct the ukernel's types or its layout"
            )


def _set_provider(user: ir.Operation) -> None:
    """Gives the function around `user` an executable target with a ukernel provider; nothing outside executables."""
    function, variant = user, user
    while function is not None and function.name not in ("func.func", "util.func"):
        function = function.parent
    while variant is not None and variant.name != "hal.executable.variant":
        variant = variant.parent
    if variant is None or function is None or "hal.executable.target" in function.attributes:
        return
    function.attributes["hal.executable.target"] = target_with_provider(variant)


def target_with_provider(variant: ir.Operation) -> ir.Attribute:
    """The target of a `hal.executable.variant`, with a ukernel provider in its configuration."""
    text = str(variant.attributes["target"])
    config_end = text.rindex("}>")
    return ir.Attribute.parse(f"{text[:config_end]}, {_PROVIDER}{text[config_end:]}")
