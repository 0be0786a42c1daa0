"""Every snippet of the pages in `FILES` is run, in a folder that has the files it names.

What stands for something else in a snippet (…, a name in capitals) is replaced as its `Setup` says. A snippet without a
setup fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mxcomp
from mxcomp import formats

ROOT = Path(__file__).parent.parent
FILES = (
    "README.md", "docs/start.md", "docs/howto/compile.md", "docs/howto/run.md", "docs/howto/checkpoints.md",
)  # fmt: skip
FIRST = ROOT / "examples" / "first.mlir"
_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)

M, N, K = 64, 256, 512
INPUTS = {
    "a": np.full((M, K // 32, 32), 1, ml_dtypes.float8_e4m3fn),
    "b": np.full((N, K // 32, 32), 0.5, ml_dtypes.float8_e4m3fn),
    "a_scales": np.full((M, K // 32), 1, ml_dtypes.float8_e8m0fnu),
    "b_scales": np.full((N, K // 32), 2, ml_dtypes.float8_e8m0fnu),
}
SPLATS = (
    f"--input={M}x16x32xf8E4M3FN=1 --input={N}x16x32xf8E4M3FN=0.5 --input={M}x16xf8E8M0FNU=1 --input={N}x16xf8E8M0FNU=2"
)
SCALE = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @scale(ptr addrspace(1) %buffer) #0 !reqd_work_group_size !0 {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %group, 256
  %i = add i32 %first, %lane
  %place = getelementptr float, ptr addrspace(1) %buffer, i32 %i
  %x = load float, ptr addrspace(1) %place
  %y = fmul float %x, 2.0
  store float %y, ptr addrspace(1) %place
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
!0 = !{i32 256, i32 1, i32 1}
"""


@dataclass(frozen=True)
class Setup:
    """What a snippet needs: files, names of Python, and texts in place of others; `slow`: takes many seconds."""

    files: Callable[[Path], None] = lambda folder: None
    names: Callable[[], Mapping[str, Any]] = dict
    replace: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False


def example(folder: Path) -> None:
    (folder / "examples").mkdir()
    shutil.copy(FIRST, folder / "examples")


def arguments() -> dict[str, Any]:
    return dict(zip(("x", "w", "x_scales", "w_scales"), INPUTS.values(), strict=True))


def model(folder: Path) -> None:
    shutil.copy(FIRST, folder / "model.mlir")


def model_and_ukernels(folder: Path) -> None:
    model(folder)
    (folder / "my_ukernels").mkdir()
    table = [sys.executable, "-m", "mxcomp.tools.tune", "model.mlir", "-o", "tuned.csv"]
    subprocess.run(table, cwd=folder, check=True, capture_output=True)


def program(folder: Path) -> None:
    mxcomp.compile(FIRST).save(folder / "model.vmfb")
    kernels(folder)


def kernels(folder: Path) -> None:
    (folder / "scale.ll").write_text(SCALE)
    made = import_module("sim.kernels_from_ir").code_object(folder / "scale.ll")
    (folder / "kernels.hsaco").write_bytes(made)


def checkpoint(folder: Path) -> None:
    from safetensors.numpy import save_file

    shutil.copy(ROOT / "examples" / "03_checkpoint.mlir", folder / "model.mlir")
    codes, scales = formats.quantise(np.ones((512, 512), np.float32), formats.E2M1)
    weights = {"fc.weight": formats.pack_bits(codes, formats.E2M1), "fc.weight_scale": scales}
    save_file(weights | {"fc.bias": np.zeros(512, np.float32)}, folder / "model-1.safetensors")


def layer_names() -> dict[str, Any]:
    return {"codes": np.zeros((14336, 4096), np.uint8), "scales": np.full((14336, 128), 127, np.uint8)}


def torch_names() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {"model": torch.nn.Sequential(torch.nn.Linear(256, 128)), "x": torch.ones(32, 256)}


SETUPS: Mapping[str, Setup] = {
    "mxcomp-compile examples/first.mlir": Setup(example),
    "mxcomp-compile model.mlir -o model.vmfb --report=-": Setup(model_and_ukernels, slow=True),
    "mxcomp-compile model.mlir --emit-plugin": Setup(model, slow=True),
    "mxcomp-compile model.mlir -o model.vmfb --packed-parameters": Setup(
        checkpoint, replace={"--input=…": "--input=64x256xi8=34 --input=64x16xi8=127"}, slow=True
    ),
    "mxcomp-run model.vmfb --function=main": Setup(
        program, replace={"--input=@a.npy": SPLATS, "@y.npy": f"{M}x{N}xf32=512", "…": SPLATS}, slow=True
    ),
    "mxcomp-run model.vmfb --input=… --profile": Setup(
        program, replace={"--input=…": SPLATS, "NAME": "scale", " …": ""}, slow=True
    ),
    'import mxcomp\n\nprogram = mxcomp.compile("model.mlir", target': Setup(
        model, lambda: INPUTS | {"inputs": list(INPUTS.values())}
    ),
    'import mxcomp\n\nprogram = mxcomp.compile("examples/first.mlir")': Setup(example, arguments, slow=True),
    "import mxcomp\nimport mxcomp.ir as mx": Setup(names=layer_names, slow=True),
    "import mxcomp.torch": Setup(names=torch_names, slow=True),
    "import struct\n\nfrom mxcomp.sim import Device": Setup(kernels, lambda: {"array": np.ones(1024, np.float32)}),
    # docs/start.md
    "mxcomp-compile model.mlir -o model.vmfb --report=report.json": Setup(model),
    f"mxcomp-run model.vmfb --input={M}x16x32xf8E4M3FN=1": Setup(program),
    "import numpy as np\nimport ml_dtypes\nimport mxcomp": Setup(model),
}
"""By what a snippet begins with."""

PRINTED = ("┃", "M", "scaled matmuls for ")
"""What blocks of output begin with."""
ELSEWHERE = ("git clone", "pip install", "python examples/")
"""What snippets begin with that are not run here: installing is what comes before; examples are lit tests."""


def snippets() -> list[Any]:
    found = []
    for file in FILES:
        for block in _BLOCK.finditer((ROOT / file).read_text()):
            code, language = block["code"], block["language"]
            printed = not code.isascii() and code.startswith(PRINTED)
            if language not in ("", "python") or code.startswith(ELSEWHERE) or printed:
                continue
            setup = max((key for key in SETUPS if code.startswith(key)), key=len, default=None)
            slow = setup is not None and SETUPS[setup].slow
            marks = [pytest.mark.slow] if slow else []
            found.append(pytest.param(language, code, setup, id=f"{file}-{code.splitlines()[-1][:40]}", marks=marks))
    return found


@pytest.mark.parametrize(("language", "code", "setup"), snippets())
def test_snippet(language: str, code: str, setup: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert setup is not None, f"no setup for the snippet {code}"
    chosen = SETUPS[setup]
    monkeypatch.chdir(tmp_path)
    chosen.files(tmp_path)
    for old, new in chosen.replace.items():
        code = code.replace(old, new)
    if language == "python":
        exec(compile(code, "snippet", "exec"), dict(chosen.names()))
        return
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-euc", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setup_is_used() -> None:
    used = {each.values[2] for each in snippets()}
    assert used == set(SETUPS)


def test_the_first_model_is_the_example() -> None:
    for file in ("README.md", "docs/start.md"):
        (shown,) = (
            block["code"] for block in _BLOCK.finditer((ROOT / file).read_text()) if block["language"] == "mlir"
        )
        assert shown == FIRST.read_text()
