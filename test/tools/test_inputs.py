"""What mxcomp-run gives iree-run-module of .npy files that hold codes: bytes of the argument's type, or an error."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mxcomp.errors import InputError
from mxcomp.run.signature import TensorType
from mxcomp.tools import inputs, signature

X = np.array([[1.5, -2.0, 0.25], [3.0, 448.0, -0.5]], np.float32)


@pytest.fixture(params=["f8E4M3FN", "bf16"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signature, "arguments", lambda _: [TensorType((2, None), request.param)])
    return str(request.param)


@pytest.mark.parametrize("order", ["<", ">", "F", "of ml_dtypes"])
def test_codes(kind: str, order: str) -> None:
    values = X.astype(ml_dtypes.bfloat16 if kind == "bf16" else ml_dtypes.float8_e4m3fn)
    codes = values.view(np.uint16 if kind == "bf16" else np.uint8)
    stored = {"F": np.asfortranarray(codes), "of ml_dtypes": values}
    np.save("x.npy", stored[order] if order in stored else codes.astype(codes.dtype.newbyteorder(order)))
    with inputs.taken(["--input=@x.npy"]) as (flag,):
        sizes, file = flag.removeprefix("--input=").split("=@")
        assert (sizes, Path(file).read_bytes()) == (f"2x3x{kind}", values.tobytes())


@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_codes_of_another_width(kind: str, dtype: type[np.integer]) -> None:
    np.save("x.npy", np.ones((2, 3), dtype))
    expected = f"argument 0 is tensor<2x[?]x{kind}>, the file holds .*: expected its codes as uint(8|16)"
    with pytest.raises(InputError, match=expected), inputs.taken(["--input=@x.npy"]):
        pass
