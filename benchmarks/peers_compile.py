"""Compiles FlyDSL's kernels for gfx950 without a GPU, in a Python with FlyDSL: its MLIR and IREE's clash.

python peers_compile.py --lld FILE REQUESTS.json

The file has a list of {"file": where the code object goes, "builder": one of `BUILDERS`, "root": folder with the
kernels' sources, "constants": {…}}. What cannot be compiled is reported on stdout, as JSON {"file": …, "error": …}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROCM = tempfile.TemporaryDirectory()
os.environ |= {"ARCH": "gfx950", "COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0", "ROCM_PATH": ROCM.name}

import flydsl.compiler as flyc  # noqa: E402
import flydsl.expr as fx  # noqa: E402
import torch  # noqa: E402
from flydsl._mlir import ir  # noqa: E402
from flydsl._mlir.dialects import gpu  # noqa: E402

AITER_PACKAGES = ("aiter", "aiter.ops", "aiter.ops.flydsl")
ROWS = 64
"""Stands for sizes that are known at run time."""


def fp4_gemm(m: int, n: int, k: int, old: bool) -> tuple[Any, list[Any]]:
    """FlyDSL's own MXFP4 GEMM (kernels/gemm/fp4_gemm_4wave.py): a launch and its arguments."""
    from kernels.gemm.fp4_gemm_4wave import compile_fp4_gemm_4w

    launch = compile_fp4_gemm_4w(K=k, mn_aligned=True) if old else compile_fp4_gemm_4w(K=k, MN=(m, n))
    sizes = (m * k // 2, n * k // 2, m * n, m * k // 32, n * k // 32)
    kinds = (torch.uint8, torch.uint8, torch.bfloat16, torch.uint8, torch.uint8)
    tensors = [torch.empty(size, dtype=kind) for size, kind in zip(sizes, kinds, strict=True)]
    return launch, [*tensors, m, n, fx.Stream(None)]


def _pointers(count: int) -> list[Any]:
    return [flyc.from_c_void_p(fx.Uint8, 0) for _ in range(count)]


def moe_stage1(gate_mode: str, **constants: Any) -> tuple[Any, list[Any]]:
    """The gate and up GEMM of AITER's FlyDSL kernels (kernels/mixed_moe_gemm_2stage.py)."""
    from aiter.ops.flydsl.kernels.mixed_moe_gemm_2stage import GateMode, compile_mixed_moe_gemm1

    launch = compile_mixed_moe_gemm1(gate_mode=GateMode(gate_mode), **constants)
    return launch, [*_pointers(11), ROWS, ROWS, ROWS, ROWS, *[1.0] * 5, fx.Stream(None)]


def moe_stage2(**constants: Any) -> tuple[Any, list[Any]]:
    """The down GEMM of the same file, which adds weighted rows to the result by atomics."""
    from aiter.ops.flydsl.kernels.mixed_moe_gemm_2stage import compile_mixed_moe_gemm2

    return compile_mixed_moe_gemm2(**constants), [*_pointers(10), ROWS, ROWS, ROWS, ROWS, fx.Stream(None)]


BUILDERS: dict[str, Callable[..., tuple[Any, list[Any]]]] = {
    "fp4_gemm": fp4_gemm, "moe_stage1": moe_stage1, "moe_stage2": moe_stage2
}  # fmt: skip


def code_object(launch: Any, arguments: list[Any]) -> bytes:
    """What a launch would load."""
    launch(*arguments)
    _, compiled = launch._last_compiled  # no public way to it without a GPU's runtime
    with ir.Context():
        (found,) = (op for op in ir.Module.parse(compiled.ir).body if op.operation.name == "gpu.binary")
        binary: bytes = gpu.ObjectAttr(ir.ArrayAttr(found.operation.attributes["objects"])[0]).object
        return binary


def use_sources(root: Path) -> None:
    """Finds kernels below a folder first. AITER's packages load its compiled extension when they are imported;
    stand-ins for them do not."""
    sys.path.insert(0, str(root))
    for name in AITER_PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package


def use_linker(lld: Path) -> None:
    """FlyDSL asks for ROCm's linker, for which another LLD stands in."""
    linker = Path(ROCM.name, "llvm", "bin", "ld.lld")
    linker.parent.mkdir(parents=True)
    linker.write_text(f'#!/bin/sh\nexec "{lld}" -flavor gnu "$@"\n')
    linker.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--lld", type=Path, required=True)
    args = parser.parse_args()
    use_linker(args.lld)
    requests = json.loads(args.requests.read_text())
    use_sources(Path(requests[0]["root"]))
    for request in requests:
        try:
            code = code_object(*BUILDERS[request["builder"]](**request["constants"]))
        except Exception as error:  # whatever the kernel's own checks or the compiler raise
            print(json.dumps({"file": request["file"], "error": f"{type(error).__name__}: {error}"}), flush=True)
            continue
        Path(request["file"]).write_bytes(code)


if __name__ == "__main__":
    main()
