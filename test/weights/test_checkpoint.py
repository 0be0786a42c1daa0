"""Reading checkpoints: every kind of file, both ways to publish MXFP4 weights, and damaged files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from iree import runtime as rt
from modules import dequantise
from parameters import gpt_oss, quark, safetensors

from mxcomp import formats
from mxcomp.errors import InputError
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint, Tensor
from mxcomp.weights.manifest import TensorType

RNG = np.random.default_rng(0)
ELEMENTS = RNG.integers(0, 256, (3, 8, 64), np.uint8)
SCALES = RNG.integers(100, 150, (3, 8, 4)).astype(np.uint8)
EXPERTS = "model.layers.0.mlp.experts.down_proj"


def code_values(elements: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 [N, K] as transformers reads GPT-OSS: of each byte the low four bits first, then the high four."""
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    values = np.empty((len(elements), 2 * elements.shape[-1]))
    values[:, 0::2], values[:, 1::2] = table[elements & 15], table[elements >> 4]
    return np.ldexp(values, (scales.astype(int) - 127).repeat(32, axis=-1))


def test_quark(tmp_path: Path) -> None:
    file = Checkpoint.read(quark(tmp_path / "w.safetensors", fc=(ELEMENTS[0], SCALES[0])))
    assert set(file) == {"fc.weight", "fc.weight_scale"}
    weights = file.mx_weights("fc")
    np.testing.assert_array_equal(weights.elements, ELEMENTS[0])
    np.testing.assert_array_equal(weights.scales, SCALES[0])


def test_gpt_oss(tmp_path: Path) -> None:
    file = Checkpoint.read(gpt_oss(tmp_path / "w.safetensors", **{EXPERTS: (ELEMENTS, SCALES)}))
    assert file.mx_weights(EXPERTS).elements.shape == (3, 8, 64)
    for expert in range(3):
        weights = file.mx_weights(f"{EXPERTS}[{expert}]")
        codes = formats.unpack_bits(weights.elements, "f4E2M1FN")
        values = formats.dequantise(codes, weights.scales, "f4E2M1FN", dtype=np.float64)
        np.testing.assert_array_equal(values, code_values(ELEMENTS[expert], SCALES[expert]))
        np.testing.assert_array_equal(values, dequantise(ELEMENTS[expert], SCALES[expert]))
        for name, data in ((f"{EXPERTS}_blocks[{expert}]", ELEMENTS), (f"{EXPERTS}.weight_scale[{expert}]", SCALES)):
            np.testing.assert_array_equal(file.find(name).data.reshape(8, -1), data[expert])
    np.testing.assert_array_equal(file.find(f"{EXPERTS}_scales[1][7]").data, SCALES[1, 7])


@pytest.mark.parametrize("elements", ["F4", "F8_E4M3"])
def test_types_of_their_own(elements: str, tmp_path: Path) -> None:
    """Elements and scales that the file does not call bytes; F4 shapes count elements."""
    codes, width = (ELEMENTS[0], 2) if elements == "F4" else (ELEMENTS.reshape(-1, 128)[:8], 1)
    path = safetensors(
        tmp_path / "w.safetensors", {"a.weight": (elements, codes), "a.weight_scale": ("F8_E8M0", SCALES[0])}
    )
    if width == 2:
        path.write_bytes(path.read_bytes().replace(b'"shape": [8, 64]', b'"shape":[8, 128]'))
    file = Checkpoint.read(path)
    np.testing.assert_array_equal(file.mx_weights("a").elements, codes)
    assert [tensor.dtype for tensor in file.values()] == [elements, "F8_E8M0"]
    kind = {"F4": "f4E2M1FN", "F8_E4M3": "f8E4M3FN"}[elements]
    assert file["a.weight"].misfit(TensorType((8, 128), kind)) == ""
    assert file["a.weight"].misfit(TensorType(codes.shape, "i8")) == ""
    assert "expected F8_E5M2 or I8 or U8" in file["a.weight"].misfit(TensorType((8, 128), "f8E5M2"))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_npz(dtype: Any, tmp_path: Path) -> None:
    array = RNG.standard_normal((3, 4, 5)).astype(dtype)
    np.savez(
        tmp_path / "w.npz",
        whole=array,
        turned=array.T,
        big=array.astype(array.dtype.newbyteorder(">")),
        one=array[0, 0, 0],
    )
    file = Checkpoint.read(tmp_path / "w.npz")
    assert file["whole"].data.shape == (3, 4, 5 * array.itemsize)
    assert file["whole"].data.tobytes() == array.tobytes()
    if dtype is not ml_dtypes.bfloat16:  # which NumPy saves as bytes of no type
        assert file["big"].data.tobytes() == array.tobytes()
    assert file["turned"].data.tobytes() == array.T.tobytes()
    assert file["one"].data.tobytes() == array[0, 0, 0].tobytes()


def test_irpa(tmp_path: Path) -> None:
    entries = {"a": ELEMENTS, "splat": rt.SplatValue(np.float32(1.5), [3, 5])}
    rt.save_archive_file(entries, tmp_path / "w.irpa")
    file = Checkpoint.read(tmp_path / "w.irpa")
    assert file["a"].data.tobytes() == ELEMENTS.tobytes()
    assert file["splat"].data.tobytes() == np.full((3, 5), 1.5, np.float32).tobytes()
    with pytest.raises(InputError, match=r"no 'a\[1\]': 'a' has \[1536\] bytes"):
        file.find("a[1]")


def test_save(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "w.irpa", {"a": ELEMENTS, "b": SCALES.T})
    file = Checkpoint.read(tmp_path / "w.irpa")
    assert file["a"].data.tobytes() == ELEMENTS.tobytes()
    assert file["b"].data.tobytes() == SCALES.T.tobytes()
    assert list(tmp_path.iterdir()) == [tmp_path / "w.irpa"]


def test_several_files(tmp_path: Path) -> None:
    first = quark(tmp_path / "1.safetensors", a=(ELEMENTS[0], SCALES[0]))
    np.savez(tmp_path / "2.npz", **{"b.weight": ELEMENTS[1]})
    assert set(Checkpoint.read(first, tmp_path / "2.npz")) == {"a.weight", "a.weight_scale", "b.weight"}
    with pytest.raises(InputError, match=r"1\.safetensors and a file before it have a tensor 'a\.weight' both"):
        Checkpoint.read(first, first)


@pytest.mark.parametrize(
    ("shape", "kind", "expected", "element", "problem"),
    [
        ((8, 64), "U8", (8, 64), "i8", ""),
        ((8, 4, 16), "U8", (8, 64), "i8", ""),
        ((8, 64), "U8", (8, 4, 32), "f4E2M1FN", ""),
        ((512,), None, (8, 64), "i8", ""),
        ((8, 1, 64), "I8", (8, 64), "ui8", ""),
        ((8, 64), "F32", (8, 16), "f32", ""),
        ((8, 64), "U64", (8, 8), "i64", ""),
        ((64, 8), "U8", (8, 64), "i8", "it has [64, 8] bytes, expected [8, 64]: is it transposed?"),
        ((16, 32), "U8", (8, 64), "i8", "it has [16, 32] bytes, expected [8, 64]"),
        ((8, 64), "F16", (8, 16), "f32", "it has type F16, expected F32"),
        ((8, 64), "BOOL", (8, 64), "i8", "it has type BOOL"),
        ((8, 64), "U8", (8, 32), "i8", "it has 512 bytes, expected 256"),
    ],
)
def test_misfits(
    shape: tuple[int, ...], kind: str | None, expected: tuple[int, ...], element: str, problem: str
) -> None:
    found = Tensor(np.zeros(shape, np.uint8), kind).misfit(TensorType(expected, element))
    assert (problem in found) if problem else not found


@pytest.mark.parametrize(
    ("tensors", "name", "message"),
    [
        ({}, "fc", "no MX weights 'fc': expected 'fc.weight' and 'fc.weight_scale', 'fc_blocks' and 'fc_scales', "),
        ({"fc.weight": ("U8", ELEMENTS[0])}, "fc", "no MX weights 'fc'"),
        ({"fc.weight": ("U8", ELEMENTS[0]), "fc.weight_scale": ("U8", SCALES[0, :, :3])}, "fc", "do not belong to"),
        ({"fc.weight": ("U8", ELEMENTS[0].T), "fc.weight_scale": ("U8", SCALES[0])}, "fc", "do not belong to"),
        (
            {"fc.weight": ("U8", ELEMENTS[0]), "fc.weight_scale": ("F8_E5M2", SCALES[0])},
            "fc",
            "type F8_E5M2, expected ",
        ),
        (
            {"fc_blocks": ("U8", ELEMENTS), "fc_scales": ("U8", SCALES)},
            "fc[3]",
            "no 'fc_blocks[3]': 'fc_blocks' has [3",
        ),
    ],
)
def test_no_mx_weights(tensors: dict[str, Any], name: str, message: str, tmp_path: Path) -> None:
    file = Checkpoint.read(safetensors(tmp_path / "w.safetensors", tensors))
    with pytest.raises(InputError) as caught:
        file.mx_weights(name)
    assert message in str(caught.value)


def test_other_names_need_scales(tmp_path: Path) -> None:
    """A tensor that happens to end in `_blocks` is not what `x.weight` means."""
    file = Checkpoint.read(safetensors(tmp_path / "w.safetensors", {"x_blocks": ("U8", ELEMENTS)}))
    with pytest.raises(InputError, match=r"no tensor 'x\.weight', neither by this name nor by one that means the same"):
        file.find("x.weight")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".irpa", ".gguf"])
def test_damaged_files(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    match suffix:
        case ".npz":
            np.savez(path, a=ELEMENTS)
        case ".safetensors":
            safetensors(path, {"a": ("U8", ELEMENTS)})
        case ".irpa":
            checkpoint.save(path, {"a": ELEMENTS})
        case ".gguf":
            path.write_bytes(b"GGUF" + bytes(100))
    data = path.read_bytes()
    for size in (0, 1, 7, 20, len(data) // 4, len(data.rstrip(b"\0")) - 1):  # archives end in padding
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match=f"cannot read {path}: ."):
            Checkpoint.read(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.safetensors", "No such file"),
        ("directory.npz", "Is a directory"),
        ("w.bin", "expected a file ending in .safetensors, .irpa, .gguf, .npz"),
    ],
)
def test_unreadable_files(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "directory.npz").mkdir()
    with pytest.raises(InputError, match=f"cannot read .*{name}: {message}"):
        Checkpoint.read(tmp_path / name)


def test_without_the_package_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    path = safetensors(tmp_path / "w.safetensors", {"a": ("U8", ELEMENTS)})
    with pytest.raises(InputError, match=r"needs the package safetensors: pip install 'mxcomp\[checkpoint\]'"):
        Checkpoint.read(path)


def write_gguf(path: Path, **tensors: tuple[np.ndarray, str]) -> Path:
    """Bytes and their type in ggml; written by ggml's own package."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "test")
    for name, (data, kind) in tensors.items():
        raw = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, data if kind in ("F32", "F16") else gguf.quants.quantize(data, raw), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("lead", [(8,), (3, 8)])
def test_gguf(lead: tuple[int, ...], tmp_path: Path) -> None:
    """MXFP4 means what ggml's own package dequantises; other types keep their names, shapes and bytes."""
    gguf = pytest.importorskip("gguf")
    x = RNG.standard_normal((*lead, 128), np.float32) * np.exp2(RNG.integers(-140, 100, (*lead, 1))).astype(np.float32)
    kinds = {"fc.weight": "MXFP4", "b": "BF16", "f": "F32", "h": "F16", "q": "Q8_0"}
    half = {name: np.clip(x, -1, 1).astype(np.float16) if kind == "F16" else x for name, kind in kinds.items()}
    path = write_gguf(tmp_path / "w.gguf", **{name: (half[name], kind) for name, kind in kinds.items()})
    file = Checkpoint.read(path)
    assert set(file) == {*kinds, "fc.weight_scale"} and file.mx_names("fc") == ("fc.weight", "fc.weight_scale")
    found = file.mx_weights("fc")
    assert found.format == "E2M1" and found.elements.shape == (*lead, 64) and found.scales.shape == (*lead, 4)
    values = formats.dequantise(formats.unpack_bits(found.elements, "E2M1"), found.scales, "E2M1")
    mxfp4 = gguf.GGMLQuantizationType.MXFP4
    expected = gguf.quants.dequantize(gguf.quants.quantize(x, mxfp4), mxfp4)
    np.testing.assert_array_equal(values, expected)
    assert [file[name].dtype for name in "bfhq"] == ["BF16", "F32", "F16", "Q8_0"]
    np.testing.assert_array_equal(file["f"].data.view(np.float32), x)
    np.testing.assert_array_equal(file["b"].data.view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
    assert file["q"].misfit(TensorType((*lead, 128), "i8")).startswith("it has type Q8_0, expected ")


def test_a_scale_that_e8m0_has_not(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "w.gguf", w=(np.full((1, 32), 4, np.float32), "MXFP4"))
    data = bytearray(path.read_bytes())
    assert data.count(bytes((127, 0x66))) == 1  # 6 · 2^0, and its index from ggml's table
    data[data.index(bytes((127, 0x66)))] = 255
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"'w' has a scale of 2\^128"):
        Checkpoint.read(path).find("w_scale")


def test_without_the_package_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IREE reads what it knows, and the error for the rest says what to install."""
    x = RNG.standard_normal((4, 64), np.float32)
    plain, other = (write_gguf(tmp_path / f"{kind}.gguf", w=(x, kind)) for kind in ("F32", "BF16"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert Checkpoint.read(plain)["w"].data.tobytes() == x.tobytes()
    with pytest.raises(InputError, match=r"needs the package gguf: pip install 'mxcomp\[checkpoint\]' .*type 30"):
        Checkpoint.read(other)
