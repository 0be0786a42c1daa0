"""Programs that read packed parameters: what they read, what packs it, and that their numbers are right."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import CONSTANT_PARTS, PARTS
from iree.compiler import ir
from modules import BITS, Matmul, source
from parameters import KEYS, SCOPE, SMALL, built, gpt_oss, quark, safetensors, stored, tensors, with_parameters
from spread import quick_if

import mxcomp
from mxcomp.errors import InputError
from mxcomp.layout import RHS, RHS_SCALE, layout_from
from mxcomp.report import Report
from mxcomp.run.runtime import RunError
from mxcomp.tools import pack
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint
from mxcomp.weights.manifest import Manifest

FP8 = Matmul(40, 100, 544, constant_rhs=True, types=("f4E2M1FN", "f8E4M3FN"))
FP6 = Matmul(40, 100, 544, constant_rhs=True, types=("f8E5M2", "f6E3M2FN"))


def packed(matmul: Matmul, path: Path) -> Path:
    """The archive that mxcomp-pack's functions make for `built(matmul)`."""
    np.savez(path / "weights.npz", **tensors(matmul))
    found = checkpoint.pack(built(matmul).report.manifest, Checkpoint.read(path / "weights.npz"))
    checkpoint.save(path / "packed.irpa", found)
    return path / "packed.irpa"


@pytest.mark.parametrize("matmul", [SMALL, FP8, FP6], ids=str)
def test_packed_as_the_compiler_packs_constants(matmul: Matmul, tmp_path: Path) -> None:
    program = built(matmul)
    archive = Checkpoint.read(packed(matmul, tmp_path))
    constant = mxcomp.compile(source(matmul))
    assert len(archive) == 2
    for key, tensor in archive.items():
        assert ".packed.rhs" in key
        assert tensor.data.tobytes() in constant.vmfb
        assert tensor.data.tobytes() not in program.vmfb
        assert tensor.data.size > tensors(matmul)[key.split(".packed")[0]].size  # padded
    assert program.report.matmuls[0].dispatches == constant.report.matmuls[0].dispatches == CONSTANT_PARTS
    if matmul is not FP6:  # the same bytes, whose kernel takes the simulator long to compile
        (y,) = program.run(*matmul.inputs, parameters={SCOPE: tmp_path / "packed.irpa"})
        assert matmul.error(y) <= matmul.bound


def test_nothing_is_packed_at_run_or_load_time() -> None:
    def initializers(packed_parameters: bool) -> list[str]:
        text = mxcomp.compile(
            with_parameters(SMALL, keys=KEYS), compile_to="stream", packed_parameters=packed_parameters
        ).vmfb
        with ir.Context():
            module = ir.Module.parse(text)
            return [str(op) for op in module.body.operations if op.operation.name == "util.initializer"]

    assert any("dispatch" in text for text in initializers(False))
    loading = initializers(True)
    assert loading  # they load the parameters
    assert not any("dispatch" in text for text in loading)
    assert sorted(built(SMALL, packed=False).report.matmuls[0].dispatches) == sorted(PARTS)
    assert built(SMALL).report.matmuls[0].dispatches == CONSTANT_PARTS


def test_a_report_with_a_manifest_is_read_back(tmp_path: Path) -> None:
    """And the program with it."""
    program = built(SMALL)
    assert program.report.manifest is not None and program.report.manifest.parameters
    assert Report.from_json(program.report.to_json()) == program.report
    program.save(tmp_path / "model.vmfb")
    (tmp_path / "report.json").write_text(program.report.to_json())
    assert mxcomp.Program.load(tmp_path / "model.vmfb", report=tmp_path / "report.json") == program
    entries = json.loads(program.report.to_json())
    del entries["manifest"]["parameters"][0]["key"]
    with pytest.raises(InputError, match="parameter 0 is damaged"):
        Report.from_json(json.dumps(entries))


def test_unpacked_parameters_run(tmp_path: Path) -> None:
    program = built(SMALL, packed=False)
    assert program.report.manifest is None
    checkpoint.save(tmp_path / "w.irpa", tensors(SMALL))
    (y,) = program.run(*SMALL.inputs, parameters={SCOPE: tmp_path / "w.irpa"})
    assert SMALL.error(y) <= SMALL.bound


BIAS = 'util.global private @bias = #flow.parameter.named<"model"::"bias"> : tensor<1x100xf32>'
OTHERS = """
func.func @others(%a: tensor<40x100xf32>) -> (tensor<40x100xf32>, tensor<100x17xi8>) {
  %bias = util.global.load @bias : tensor<1x100xf32>
  %scales = util.global.load @p1 : tensor<100x17xi8>
  %empty = tensor.empty() : tensor<40x100xf32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (0, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%a, %bias : tensor<40x100xf32>, tensor<1x100xf32>) outs(%empty : tensor<40x100xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<40x100xf32>
  return %r, %scales : tensor<40x100xf32>, tensor<100x17xi8>
}
"""


def test_other_parameters_are_copied(tmp_path: Path) -> None:
    """One archive is enough, with what is read as it is, be it also read packed."""
    bias = np.linspace(-3, 3, 100, dtype=np.float32)
    text = BIAS + "\n" + with_parameters(SMALL, keys=KEYS, extra=OTHERS)
    program = mxcomp.compile(text, packed_parameters=True)
    typed = {key: ("U8", array) for key, array in tensors(SMALL).items()}
    path = safetensors(tmp_path / "w.safetensors", typed | {"bias": ("F32", bias), "unused": ("F32", bias)})
    found = checkpoint.pack(program.report.manifest, Checkpoint.read(path))
    assert sorted(key.split(".packed")[0] for key in found) == ["bias", *KEYS, KEYS[1]]
    checkpoint.save(tmp_path / "p.irpa", found)
    parameters = {SCOPE: tmp_path / "p.irpa"}
    (y,) = program.run(*SMALL.inputs, function="main", parameters=parameters)
    assert SMALL.error(y) <= SMALL.bound
    a = np.random.default_rng(0).standard_normal((40, 100), np.float32)
    sums, scales = program.run(a, function="others", parameters=parameters)
    np.testing.assert_array_equal(sums, a + bias)
    np.testing.assert_array_equal(scales.view(np.uint8), SMALL.operands[3])


def test_one_weight_in_two_layouts() -> None:
    large = Matmul(10000, SMALL.n, SMALL.k, constant_rhs=True)
    text = with_parameters(SMALL, large, keys=[*KEYS, *KEYS])
    program = mxcomp.compile(text, packed_parameters=True, compile_to="flow")
    assert len({matmul.ukernel for matmul in program.report.matmuls}) == 2
    keys = [parameter.key for parameter in program.report.manifest.parameters]
    assert len(keys) == len(set(keys)) == 4
    weights = stored(tensors(SMALL))
    found = {data.tobytes() for data in checkpoint.pack(program.report.manifest, weights).values()}
    _, rhs, _, scales = SMALL.operands
    for matmul in program.report.matmuls:
        layout = layout_from(matmul.layout)
        assert layout.packing(RHS, SMALL.types[1]).pack(rhs.reshape(SMALL.n, -1, 16)).tobytes() in found
        assert layout.packing(RHS_SCALE).pack(scales).tobytes() in found


def test_layouts_that_differ_elsewhere_share() -> None:
    """What M is cut into does not change the packed RHS."""
    manifest = built(SMALL).report.manifest
    for parameter in manifest.parameters:
        layout = parameter.packing.layout
        other = replace(parameter.packing, layout=layout | {"inner_tiles": [8, layout["inner_tiles"][1]]})
        assert other.key == parameter.key
        source_bytes = tensors(SMALL)[other.source]
        assert other.pack(source_bytes).tobytes() == parameter.packing.pack(source_bytes).tobytes()
        assert replace(other, layout=layout | {"inner_tiles": [1, 8]}).key != parameter.key


def test_a_left_operand(tmp_path: Path) -> None:
    matmul = Matmul(60, 40, 544)
    text = source(matmul)
    for operand, columns in (("a", 272), ("as", 17)):
        kind = f"tensor<60x{columns}xi8>"
        text = text.replace(f"%{operand}_bytes0: {kind}, ", "")
        text = text.replace("index\n", f"index\n  %{operand}_bytes0 = util.global.load @{operand} : {kind}\n", 1)
        text = f'util.global private @{operand} = #flow.parameter.named<"{operand}"> : {kind}\n{text}'
    program = mxcomp.compile(text, packed_parameters=True)
    assert program.report.matmuls[0].dispatches == ["pack_rhs", "pack_rhs_scale", "matmul"]
    lhs, _, lhs_scale, _ = matmul.operands
    weights = stored({"a": lhs, "as": lhs_scale})
    checkpoint.save(tmp_path / "p.irpa", checkpoint.pack(program.report.manifest, weights))
    (y,) = program.run(matmul.inputs[1], matmul.inputs[3], parameters={"": tmp_path / "p.irpa"})
    assert matmul.error(y) <= matmul.bound


def test_names_with_special_characters(tmp_path: Path) -> None:
    """IREE prints them as they are; MLIR writes them escaped."""
    keys = ['a "b" é', "c\\ d"]
    text = with_parameters(SMALL, keys=[r"a \22b\22 é", r"c\5C d"])
    program = mxcomp.compile(text, packed_parameters=True)
    manifest = Manifest.from_json(program.report.manifest.to_json())
    assert [parameter.packing.source for parameter in manifest.parameters] == keys
    weights = stored(dict(zip(keys, tensors(SMALL).values(), strict=True)))
    checkpoint.save(tmp_path / "p.irpa", checkpoint.pack(manifest, weights))
    (y,) = program.run(*SMALL.inputs, parameters={SCOPE: tmp_path / "p.irpa"})
    assert SMALL.error(y) <= SMALL.bound


PROBLEMS = [
    replace(SMALL, n=1),
    replace(SMALL, k=32),
    replace(SMALL, m=1),
    replace(SMALL, m=70, dynamic_m=True),
    replace(SMALL, form="unfused"),
    *(replace(SMALL, types=("f4E2M1FN", kind)) for kind in BITS),
]


@pytest.mark.slow
@pytest.mark.parametrize("ukernels", ["fastest", "none"])
@pytest.mark.parametrize("matmul", PROBLEMS, ids=str)
def test_problems(matmul: Matmul, ukernels: str, tmp_path: Path) -> None:
    ukernels = "fastest" if BITS[matmul.types[1]] == 6 else ukernels  # there is no other way to multiply 6 bits
    program = mxcomp.compile(with_parameters(matmul, keys=KEYS), packed_parameters=True, ukernels=ukernels)
    weights = stored(tensors(matmul))
    checkpoint.save(tmp_path / "p.irpa", checkpoint.pack(program.report.manifest, weights))
    (y,) = program.run(*matmul.inputs, parameters={SCOPE: tmp_path / "p.irpa"})
    assert matmul.error(y) <= matmul.bound
    assert program.report.matmuls[0].dispatches == CONSTANT_PARTS


NAMINGS = list(itertools.product([KEYS, ["fc_blocks", "fc_scales"]], [quark, gpt_oss]))


@pytest.mark.parametrize("naming", quick_if(NAMINGS[1:3].__contains__, NAMINGS), ids=lambda naming: naming[1].__name__)
def test_published_checkpoints(naming: tuple[list[str], Callable[..., Path]], tmp_path: Path) -> None:
    """Either naming in the program and in the file; by default not the same one."""
    keys, write = naming
    _, elements, _, scales = SMALL.operands
    path = write(tmp_path / "model.safetensors", fc=(elements, scales))
    program = mxcomp.compile(with_parameters(SMALL, keys=keys), packed_parameters=True, compile_to="flow")
    found = checkpoint.pack(program.report.manifest, Checkpoint.read(path))
    expected = checkpoint.pack(built(SMALL).report.manifest, stored(tensors(SMALL)))
    assert [data.tobytes() for data in found.values()] == [data.tobytes() for data in expected.values()]
    assert [key.split(".packed")[0] for key in found] == keys


def test_an_expert_of_gpt_oss(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    _, elements, _, scales = SMALL.operands
    blocks = rng.integers(0, 256, (3, *elements.shape), np.uint8)
    exponents = rng.integers(110, 140, (3, *scales.shape)).astype(np.uint8)
    blocks[2], exponents[2] = elements, scales
    path = gpt_oss(tmp_path / "model.safetensors", down_proj=(blocks, exponents))
    text = with_parameters(SMALL, keys=["down_proj_blocks[2]", "down_proj_scales[2]"], scope="")
    program = mxcomp.compile(text, packed_parameters=True)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(program.report.manifest.to_json())
    assert pack.main([str(path), f"--manifest={manifest}", "-o", str(tmp_path / "p.irpa")]) == 0
    (y,) = program.run(*SMALL.inputs, parameters={"": tmp_path / "p.irpa"})
    assert SMALL.error(y) <= SMALL.bound


def test_scopes(tmp_path: Path) -> None:
    other = replace(SMALL, seed=1)
    first, second = with_parameters(SMALL, keys=KEYS, scope="a"), with_parameters(other, keys=KEYS, scope="b")
    maps, _, body = second.replace("@main", "@other").replace("@p", "@q").partition("func.func")
    globals_ = "".join(line + "\n" for line in maps.splitlines() if line.startswith("util.global"))
    program = mxcomp.compile(f"{globals_}{first}\nfunc.func{body}", packed_parameters=True)
    manifest = program.report.manifest
    with pytest.raises(InputError, match=r"scopes a, b: choose one \(--scope\)"):
        checkpoint.pack(manifest, Checkpoint({}))
    with pytest.raises(InputError, match="no parameters in scope 'c', but in a, b"):
        checkpoint.pack(manifest, Checkpoint({}), "c")
    for scope, matmul in (("a", SMALL), ("b", other)):
        weights = stored(tensors(matmul))
        checkpoint.save(tmp_path / f"{scope}.irpa", checkpoint.pack(manifest, weights, scope))
    files = {scope: tmp_path / f"{scope}.irpa" for scope in "ab"}
    for function, matmul in (("main", SMALL), ("other", other)):
        (y,) = program.run(*matmul.inputs, function=function, parameters=files)
        assert matmul.error(y) <= matmul.bound


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, RunError, "it reads parameters, and none are given"),
        ({SCOPE: "u.irpa"}, RunError, r"a parameter is not in its file \(mxcomp-pack.*'fc.weight(_scale)?\.packed"),
        ({"other": "u.irpa"}, RunError, "no provider registered that handles scopes like 'model'"),
        ({SCOPE: "absent.irpa"}, InputError, r"cannot read the parameters of scope 'model' from .*absent\.irpa"),
        ({SCOPE: "broken.irpa"}, InputError, r"cannot read the parameters of scope 'model' from .*broken\.irpa"),
    ],
)
def test_parameters_that_do_not_fit(
    files: dict[str, str], error: type[Exception], message: str, tmp_path: Path
) -> None:
    checkpoint.save(tmp_path / "u.irpa", tensors(SMALL))
    (tmp_path / "broken.irpa").write_bytes((tmp_path / "u.irpa").read_bytes()[:100])
    with pytest.raises(error, match=message):
        built(SMALL).run(*SMALL.inputs, parameters={scope: tmp_path / file for scope, file in files.items()})


def test_mxcomp_run(tmp_path: Path) -> None:
    """Its --parameters is iree-run-module's."""
    (tmp_path / "m.vmfb").write_bytes(built(SMALL).vmfb)
    lhs, scales = SMALL.inputs
    np.save(tmp_path / "a.npy", lhs)
    np.save(tmp_path / "s.npy", scales)
    flags = [f"--parameters={SCOPE}={packed(SMALL, tmp_path)}", "--input=@a.npy", "--input=@s.npy", "--output=@y.npy"]
    command = [sys.executable, "-m", "mxcomp.tools.run", "m.vmfb", "--function=main", *flags]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert SMALL.error(np.load(tmp_path / "y.npy")) <= SMALL.bound


def test_a_parameter_that_is_too_short(tmp_path: Path) -> None:
    found = checkpoint.pack(built(SMALL).report.manifest, stored(tensors(SMALL)))
    checkpoint.save(tmp_path / "p.irpa", {key: data.reshape(-1)[:-64] for key, data in found.items()})
    with pytest.raises(RunError, match=r"cannot be loaded on device 'sim': .*OUT_OF_RANGE"):
        built(SMALL).run(*SMALL.inputs, parameters={SCOPE: tmp_path / "p.irpa"})
