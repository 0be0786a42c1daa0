"""Scalar arguments: numbers of Python's and NumPy's, by every way to call a program; others are refused by name."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from spread import quick_if

import mxcomp
from mxcomp.compiler import Program
from mxcomp.errors import InputError
from mxcomp.run import scalars, signature

KINDS: dict[str, tuple[Any, Any]] = {
    "index": (np.int64, -3), "i1": (np.bool_, True), "i8": (np.int8, -100), "i16": (np.int16, -30000),
    "i32": (np.int32, -(2**31)), "i64": (np.int64, 2**31), "f16": (np.float16, 2.5),
    "bf16": (ml_dtypes.bfloat16, -3.25), "f32": (np.float32, 1e30), "f64": (np.float64, -0.1),
}  # fmt: skip
"""What NumPy calls each type, and a number of it."""
MADE = {"i1": "arith.uitofp", "f64": "arith.truncf", "f16": "arith.extf", "bf16": "arith.extf"}


@cache
def program(kind: str) -> Program:
    """Adds a scalar to four numbers."""
    made = f"%v = {MADE.get(kind, 'arith.sitofp')} %s : {kind} to f32"
    if kind == "index":
        made = "%w = arith.index_cast %s : index to i64\n  %v = arith.sitofp %w : i64 to f32"
    if kind == "f32":
        made = "%none = arith.constant -0.0 : f32\n  %v = arith.addf %s, %none : f32"
    return mxcomp.compile(f"""func.func @main(%x: tensor<4xf32>, %s: {kind}) -> tensor<4xf32> {{
  {made}
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {{indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> ()>, affine_map<(d) -> (d)>],
                        iterator_types = ["parallel"]}} ins(%x, %v : tensor<4xf32>, f32) outs(%e : tensor<4xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  }} -> tensor<4xf32>
  return %y : tensor<4xf32>
}}""")


X = np.zeros(4, np.float32)


@pytest.mark.parametrize("kind", quick_if(lambda kind: kind in ("index", "i1", "bf16", "f32"), KINDS))
def test_every_way(kind: str, tmp_path: Path) -> None:
    of_numpy, value = KINDS[kind]
    expected = np.full(4, np.float32(value))
    given = [value, of_numpy(value), np.array(value, of_numpy)]
    for each in given:
        np.testing.assert_array_equal(program(kind).run(X, each)[0], expected)
    with program(kind).session() as session:
        for each in given:
            np.testing.assert_array_equal(session.main(X, each)[0], expected)
        with pytest.raises(InputError, match=f"argument 1 is of type {'f32' if kind == 'f64' else kind}: expected a"):
            session.main(X, "three")
    program(kind).save(tmp_path / "scalar.vmfb")
    number = "1" if value is True else repr(value)
    flags = ["--input=4xf32=0", f"--input={number}", f"--expected_output=4xf32={expected[0]!s}"]
    assert called(tmp_path, *flags).returncode == 0


def called(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "mxcomp-run"), str(directory / "scalar.vmfb"), *flags]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_command_line(tmp_path: Path) -> None:
    """What iree-run-module would take some bits of is refused."""
    program("index").save(tmp_path / "scalar.vmfb")
    found = called(tmp_path, "--input=4xf32=0", "--input=2.5")
    assert found.returncode == 1
    assert found.stderr.endswith("argument 1 is of type index: expected an integer, got 2.5\n")


REFUSED = [
    ("index", 2.0, "expected an integer, got 2.0"), ("i1", 2, "2 is out of its range, 0 to 1"),
    ("i8", -129, "-129 is out of its range, -128 to 255"), ("ui8", -1, "-1 is out of its range, 0 to 255"),
    ("si16", 2**15, "32768 is out of its range, -32768 to 32767"), ("i32", 2**32, "out of its range"),
    ("i64", 2**64, "out of its range"), ("f16", 1e5, "100000.0 is out of its range"),
    ("bf16", True, "expected a float, got True"), ("f32", 1e39, "out of its range"), ("f32", 1j, "expected a number"),
    ("i32", "3", "expected a number, got '3'"), ("i32", np.zeros(1, np.int32), r"got an array of shape \(1,\)"),
    ("i32", None, "expected a number, got None"), ("f32", 10**400, "an integer of 1329 bits is out of its range"),
    ("f64", np.longdouble("1e400"), r"1e\+400 is out of its range"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "message"), REFUSED, ids=str)
def test_refused(kind: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"argument 4 is of type {kind}: .*{message}"):
        scalars.of(value, kind, 4)


@pytest.mark.parametrize("kind", ["f64", "f32", "bf16"])
def test_text(kind: str) -> None:
    """Infinite only if it says so: Python's parser gives infinity for what is too large."""
    assert scalars.parsed(" -inf", kind, 4) == {"bf16": str(0xFF80)}.get(kind, "-inf")
    with pytest.raises(InputError, match=f"argument 4 is of type {kind}: 1e400 is out of its range"):
        scalars.parsed("1e400", kind, 4)
    with pytest.raises(InputError, match=f"argument 4 is of type {kind}: expected a number, got 'one'"):
        scalars.parsed("one", kind, 4)


def test_as_the_vm_takes_them() -> None:
    """Integers without a sign as signed ones, 16-bit floats by their bits, NaN and infinities as they are."""
    taken = [
        scalars.of(2**32 - 1, "i32", 0), scalars.of(2**64 - 1, "i64", 0), scalars.of(255, "i8", 0),
        scalars.of(1.0, "bf16", 0), scalars.of(-2, "f16", 0), scalars.of(float("inf"), "f32", 0),
    ]  # fmt: skip
    assert taken == [-1, -1, 255, 0x3F80, 0xC000, float("inf")]
    assert np.isnan(scalars.of(np.float16("nan"), "f64", 0))


@pytest.mark.parametrize("sign", [1, -1])
def test_bf16_is_rounded_once(sign: int) -> None:
    """By way of an f32 a number just beside the middle of two bf16 would be taken for the middle."""
    cases = [
        (1 + 2**-8, 0x3F80), (1 + 2**-8 + 2**-40, 0x3F81), (1 + 3 * 2**-8, 0x3F82), (1 + 3 * 2**-8 - 2**-40, 0x3F81),
        (2**-133 * (1.5 + 2**-30), 2), (2**-133 * (2.5 - 2**-30), 2), (2**-134, 0), (2**-134 * (1 + 2**-30), 1),
    ]  # fmt: skip
    for number, bits in cases:
        assert scalars.of(sign * number, "bf16", 0) == bits | (0x8000 if sign < 0 else 0)


class Tensor:
    """What NumPy cannot take for an array, as a bf16 tensor of PyTorch's, or one that needs gradients."""

    dtype = "torch.bfloat16"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Got unsupported ScalarType BFloat16")


@pytest.mark.parametrize("value", [Tensor(), [[1], [2, 3]]], ids=["tensor", "ragged"])
def test_what_is_no_array(value: Any) -> None:
    message = "expected a NumPy array or a number, got (Tensor of torch.bfloat16: Got unsup|list: setting)"
    with pytest.raises(InputError, match=f"argument 1: {message}"):
        scalars.of(value, "f32", 1)
    with pytest.raises(InputError, match=f"argument 0: {message}"):
        program("f32").run(value, 1.0)


def test_signature() -> None:
    declared = "sync func @main(%input0: tensor<4x?xf32>, %input1: index, %input2: bf16) -> (%output0: tensor<f16>)"
    assert list(map(str, signature.arguments(declared))) == ["tensor<4x?xf32>", "index", "bf16"]
    assert list(map(str, signature.results(declared))) == ["tensor<f16>"]
    assert signature.arguments("") == []
