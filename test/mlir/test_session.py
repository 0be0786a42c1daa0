"""Sessions load the dialects that our passes build, and those of frontends for modules that have them only."""

from __future__ import annotations

import ast
import re
from contextlib import closing
from pathlib import Path

import pytest

from mxcomp.mlir import session
from mxcomp.mlir.session import Session

ROOT = Path(__file__).parents[2]
TORCH = "torch.operator"
FUNCTION = "func.func @f(%x: {0}) -> {0} {{\n {1}\n return %0 : {0}\n}}"
PLAIN = FUNCTION.format("tensor<4xf32>", "%0 = arith.negf %x : tensor<4xf32>")
OF_FRONTENDS = {
    "tosa": FUNCTION.format("tensor<4xf32>", "%0 = tosa.abs %x : (tensor<4xf32>) -> tensor<4xf32>"),
    "stablehlo": FUNCTION.format("tensor<4xf32>", "%0 = stablehlo.abs %x : tensor<4xf32>"),
    "chlo": FUNCTION.format("tensor<4xf32>", "%0 = chlo.tan %x : tensor<4xf32> -> tensor<4xf32>"),
    "torch": FUNCTION.format(
        "!torch.vtensor<[4],f32>", "%0 = torch.aten.abs %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>"
    ),
}


def imported(text: str, *flags: str) -> Session:
    with closing(Session(flags)) as made:
        made.load(text.encode(), "module")
        made.advance("input")
    return made


@pytest.mark.parametrize(("flags", "is_loaded"), [((), False), (("--iree-input-type=torch",), True)])
def test_frontends_of_a_module_without(flags: tuple[str, ...], is_loaded: bool) -> None:
    made = imported(PLAIN, *flags)
    assert made.context.is_registered_operation(TORCH) == is_loaded
    assert "arith.negf" in str(made.module)


@pytest.mark.parametrize("dialect", OF_FRONTENDS)
def test_frontends(dialect: str) -> None:
    text = str(imported(OF_FRONTENDS[dialect]).module)
    assert "linalg.generic" in text and f"= {dialect}." not in text


@pytest.mark.parametrize("dialect", OF_FRONTENDS)
def test_frontends_are_left_behind_the_import(dialect: str) -> None:
    with closing(Session()) as made:
        made.load(OF_FRONTENDS[dialect].encode(), "module")
        made.advance("input")
        before = made.module.get_asm(enable_debug_info=True)
        module = made.without_frontends()
        assert module.get_asm(enable_debug_info=True) == before and module.context is made.context
        left = any(made.context.is_registered_operation(each) for each in session._FRONTENDS)
        assert left == (dialect == "tosa")  # the module keeps an attribute of it
        assert made.advance("flow")


def test_dialects_that_are_built_are_loaded() -> None:
    found = set[str]()
    for path in (path for folder in ("mxcomp", "passes", "ukernels") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        found.update(re.findall(r'Operation\.create\(\s*f?"(\w+)\.', text))
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
        found.update(each.name for node in nodes if node.module == "iree.compiler.dialects" for each in node.names)
    assert found - {"torch_c"} <= set(session._BUILT)  # built of what torch has built
    assert "linalg" not in found  # `mxcomp.mlir.linalg` is imported in a fifth of the time of a tool's start
