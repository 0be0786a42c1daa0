"""MX weights that others made: checkpoints as published, small and synthetic, and models of torchao's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from parameters import safetensors

import mxcomp
import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.formats import dequantise, pack_bits, quantise, unpack_bits
from mxcomp.torch import ScaledExperts, ScaledLinear

K, N, EXPERTS = 64, 96, 3
RNG = np.random.default_rng(0)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(K)
        self.fc = torch.nn.Linear(K, N)


def meta(make: type[torch.nn.Module]) -> Any:
    with torch.device("meta"):
        return make()


def mx(element: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    codes, scales = quantise(RNG.standard_normal(shape, np.float32), element)
    return pack_bits(codes, element), scales


PLAIN: dict[str, Any] = {
    "norm.weight": ("BF16", np.full(K, 0x3F80, np.uint16)),
    "fc.bias": ("F32", np.arange(N, dtype=np.float32)),
}


@pytest.mark.parametrize(
    ("element", "weight", "dtype"),
    [
        ("E2M1", "fc.weight", "U8"),  # AMD Quark
        ("E2M1", "fc.weight_packed", "U8"),  # compressed-tensors: mxfp4-pack-quantized
        ("E2M3", "fc.weight_packed", "U8"),  # mxfp6-pack-quantized
        ("E4M3", "fc.weight", "F8_E4M3"),  # mxfp8-quantized
    ],
)
def test_linear(element: str, weight: str, dtype: str, tmp_path: Path) -> None:
    elements, scales = mx(element, N, K)
    file = safetensors(
        tmp_path / "model.safetensors", {**PLAIN, weight: (dtype, elements), "fc.weight_scale": ("U8", scales)}
    )
    net = mxcomp.torch.load(meta(Net), file.parent, input_format="E4M3")
    assert net.fc.formats == (element, "E4M3", "even")
    assert net.norm.weight.dtype == torch.bfloat16 and not any(t.is_meta for t in net.state_dict().values())
    np.testing.assert_array_equal(net.fc.elements.numpy(), elements)
    x = RNG.standard_normal((5, K), np.float32)
    rows = dequantise(*quantise(x, "E4M3"), "E4M3", dtype=np.float64)
    values = dequantise(unpack_bits(elements, element), scales, element, dtype=np.float64)
    np.testing.assert_allclose(net.fc(torch.from_numpy(x)).numpy(), rows @ values.T + np.arange(N), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.weight_scale": ("U8", np.zeros((N, 1), np.uint8))}, r"'fc' is \[96, 32\], the model's \[96, 64\]"),
        ({"fc.weight_scale": ("F32", np.zeros((N, 2), np.float32))}, "do not belong|type F32"),
        ({"fc.weight": ("U8", np.zeros((N, K), np.uint8))}, "which elements are its bytes"),
        ({"fc.weight": ("U8", np.zeros((N // 2, K // 2), np.uint8))}, "do not belong"),
        ({"fc.input_scale": ("F32", np.zeros(1, np.float32))}, "no place for 'fc.input_scale'"),
        ({"norm.weight": ("F32", np.zeros(K + 1, np.float32))}, r"'norm.weight' is \[65\], the model's \[64\]"),
        ({"norm.weight": ("F8_E4M3", np.zeros(K, np.uint8))}, "'norm.weight' has type F8_E4M3"),
        ({"norm.weight": None}, "no tensor 'norm.weight', which the model has"),
        ({"fc.bias": None}, "no tensor 'fc.bias'"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Nothing is loaded then."""
    elements, scales = mx("E2M1", N, K)
    tensors = {**PLAIN, "fc.weight": ("U8", elements), "fc.weight_scale": ("U8", scales), **change}
    file = safetensors(tmp_path / "w.safetensors", {key: value for key, value in tensors.items() if value is not None})
    net = Net()
    before = dict(net.named_parameters())
    with pytest.raises(InputError, match=message):
        mxcomp.torch.load(net, file)
    assert all(value is before[name] for name, value in net.named_parameters())


class Experts(torch.nn.Module):
    """Parameters as transformers' `GptOssExperts` has them, and what it computes."""

    alpha, limit = 1.702, 7.0

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.zeros(EXPERTS, K, 2 * N))
        self.gate_up_proj_bias = torch.nn.Parameter(torch.zeros(EXPERTS, 2 * N))
        self.down_proj = torch.nn.Parameter(torch.zeros(EXPERTS, N, K))
        self.down_proj_bias = torch.nn.Parameter(torch.zeros(EXPERTS, K))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        for token, (experts, shares) in enumerate(zip(chosen, weights, strict=True)):
            for expert, share in zip(experts, shares, strict=True):
                both = self.rounded(x[token]) @ self.gate_up_proj[expert] + self.gate_up_proj_bias[expert]
                gate, up = both[::2].clamp(max=self.limit), both[1::2].clamp(-self.limit, self.limit)
                inner = self.rounded((up + 1) * gate * torch.sigmoid(gate * self.alpha))
                result[token] += share * (inner @ self.down_proj[expert] + self.down_proj_bias[expert])
        return result

    @staticmethod
    def rounded(row: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(dequantise(*quantise(row.numpy()[None], "E4M3"), "E4M3")[0])


class Mixture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = Experts()


def gpt_oss(tmp_path: Path) -> tuple[Path, Mixture]:
    """A checkpoint with blocks of 16 bytes, and the model with the same weights as numbers."""
    tensors, reference = {}, Mixture()
    for name, n, k in (("gate_up_proj", 2 * N, K), ("down_proj", K, N)):
        elements, scales = mx("E2M1", EXPERTS, n, k)
        bias = RNG.standard_normal((EXPERTS, n), np.float32)
        tensors[f"experts.{name}_blocks"] = "U8", elements.reshape(EXPERTS, n, k // 32, 16)
        tensors[f"experts.{name}_scales"] = "U8", scales
        tensors[f"experts.{name}_bias"] = "F32", bias
        values = dequantise(unpack_bits(elements, "E2M1"), scales, "E2M1").transpose(0, 2, 1)
        setattr(reference.experts, name, torch.nn.Parameter(torch.from_numpy(values.copy())))
        setattr(reference.experts, f"{name}_bias", torch.nn.Parameter(torch.from_numpy(bias)))
    return safetensors(tmp_path / "model.safetensors", tensors), reference


ROUTED = (
    torch.linspace(-1, 1, 4 * K).reshape(4, K),
    torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1]]),
    torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75], [1.0, 0.0]]),
)


def test_experts(tmp_path: Path) -> None:
    file, reference = gpt_oss(tmp_path)
    net = mxcomp.torch.load(meta(Mixture), file, input_format="E4M3")
    assert isinstance(net.experts, ScaledExperts)
    with torch.no_grad():
        np.testing.assert_allclose(net.experts(*ROUTED), reference.experts(*ROUTED), atol=1e-4)


def test_experts_compiled(tmp_path: Path) -> None:
    """Two matmuls grouped by expert, of weights that are read packed; right on the simulated GPU."""
    file, reference = gpt_oss(tmp_path)
    net = mxcomp.torch.load(meta(Mixture), file, input_format="E4M3").experts
    program = mxcomp.torch.compile(net, ROUTED, parameters=tmp_path / "model")
    gate_up, down = program.report.matmuls
    assert [gate_up.reason, down.reason] == [None, None]
    assert not any("pack_rhs" in part for part in (*gate_up.dispatches, *down.dispatches))
    files = {"model": tmp_path / "model.irpa"}
    (found,) = program.run(*(value.numpy() for value in ROUTED), parameters=files)
    with torch.no_grad():
        np.testing.assert_allclose(found, reference.experts(*ROUTED), atol=1e-4)


def test_experts_of_any_number_of_tokens(tmp_path: Path) -> None:
    """Each expert is computed for every token then."""
    net = mxcomp.torch.load(meta(Mixture), gpt_oss(tmp_path)[0]).experts
    tokens = torch.export.Dim("tokens", min=1, max=64)
    module = mxcomp.torch.export(net, ROUTED, dynamic_shapes=({0: tokens},) * 3)
    assert len(mxcomp.compile(module, compile_to="input").report.matmuls) == 2 * EXPERTS


class Fused(torch.nn.Module):
    """A dense MLP whose layers are called as tensors of experts are."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = torch.nn.Linear(K, 2 * N, bias=False), torch.nn.Linear(N, K, bias=False)


@pytest.mark.parametrize("end", [".weight", ".weight_packed"])
def test_fused_mlp(end: str, tmp_path: Path) -> None:
    tensors: dict[str, Any] = {}
    for name, shape in (("gate_up_proj", (2 * N, K)), ("down_proj", (K, N))):
        elements, scales = mx("E2M1", *shape)
        tensors |= {f"{name}{end}": ("U8", elements), f"{name}.weight_scale": ("U8", scales)}
    net = mxcomp.torch.load(meta(Fused), safetensors(tmp_path / "model.safetensors", tensors))
    assert isinstance(net.gate_up_proj, ScaledLinear) and isinstance(net.down_proj, ScaledLinear)
    np.testing.assert_array_equal(net.down_proj.elements, tensors[f"down_proj{end}"][1])


@pytest.mark.parametrize(("kind", "dtype"), [("BF16", torch.bfloat16), ("F32", torch.float32)])
def test_layers_have_the_type_of_the_floats_around_them(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Whatever the model was made with: activations are cast to it."""
    elements, scales = mx("E2M1", N, K)
    width = {"BF16": np.uint16, "F32": np.float32}[kind]
    plain = {"norm.weight": (kind, np.ones(K, width)), "fc.bias": (kind, np.ones(N, width))}
    tensors = {**plain, "fc.weight": ("U8", elements), "fc.weight_scale": ("U8", scales)}
    net = mxcomp.torch.load(meta(Net), safetensors(tmp_path / "model.safetensors", tensors))
    assert net.fc.weight.dtype == dtype


class MXTensor(torch.Tensor):
    """Has the fields of torchao's class of this name, which is not needed to know it."""


MXTensor.__module__ = "torchao.prototype.mx_formats.mx_tensor"


def blocked(scales: np.ndarray) -> np.ndarray:
    """Scales [rows, columns] as torchao's `to_blocked` lays them out, by its loops."""
    rows, columns = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = np.zeros((rows, columns), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    result = np.empty(rows * columns, np.uint8)
    for row, column in np.ndindex(rows, columns):
        tile = row // 128 * (columns // 4) + column // 4
        result[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4] = padded[row, column]
    return result


def by_torchao(n: int, k: int, swizzled: bool, **fields: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """A linear layer with a weight as torchao makes it, and its elements and scales."""
    elements, scales = mx("E2M1", n, k)
    weight = torch.zeros(n, k, dtype=torch.bfloat16).as_subclass(MXTensor)
    activations = SimpleNamespace(
        elem_dtype="torch.float4_e2m1fn_x2", block_size=32, scaling_mode=SimpleNamespace(value="rceil")
    )
    stored = {
        "qdata": torch.from_numpy(elements),
        "scale": torch.from_numpy(blocked(scales) if swizzled else scales),
        "elem_dtype": "torch.float4_e2m1fn_x2",
        "block_size": 32,
        "act_quant_kwargs": activations,
        "is_swizzled_scales": swizzled,
    }
    for name, value in (stored | fields).items():
        setattr(weight, name, value)
    linear = torch.nn.Linear(k, n, bias=False, device="meta")
    del linear.weight
    linear.weight = weight
    return linear, elements, scales


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize("n", [96, 200])
def test_torchao_layout(n: int, swizzled: bool) -> None:
    linear, elements, scales = by_torchao(n, 160, swizzled)
    layer = mxcomp.torch.replace_linears(linear)
    assert layer.formats == ("E2M1", "E2M1", "rceil")
    np.testing.assert_array_equal(layer.elements, elements)
    np.testing.assert_array_equal(layer.weight_scale, scales)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"act_quant_kwargs": None}, "only the weights"),
        ({"block_size": 16}, "blocks of 16: expected 32"),
        ({"elem_dtype": "torch.int4"}, "elements of torch.int4"),
    ],
)
def test_torchao_otherwise(fields: dict[str, Any], message: str) -> None:
    net = torch.nn.Sequential(by_torchao(N, K, True, **fields)[0])
    with pytest.raises(InputError, match=rf"layer '0' \(64 → 96\).*{message}"):
        mxcomp.torch.export(net, (torch.zeros(2, K, dtype=torch.bfloat16),))


@pytest.mark.slow  # where torchao is installed
def test_torchao() -> None:
    """A model that torchao quantised is exported as it is, and computes what its emulation does."""
    torchao = pytest.importorskip("torchao.prototype.mx_formats.inference_workflow", reason="torchao is not installed")
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    torch.manual_seed(0)
    for dtype, element in ((torch.float8_e4m3fn, "f8E4M3FN"), (torch.float4_e2m1fn_x2, "f4E2M1FN")):
        net = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=False)).bfloat16()
        config = torchao.MXDynamicActivationMXWeightConfig(
            activation_dtype=dtype, weight_dtype=dtype, kernel_preference=KernelPreference.EMULATED
        )
        quantize_(net, config)
        x = torch.randn(32, 256, dtype=torch.bfloat16)
        (layer,) = net
        program = mxcomp.compile(mxcomp.torch.export(net, (x,)))
        assert net[0] is layer and not isinstance(layer, ScaledLinear)
        assert [matmul.types[:2] for matmul in program.report.matmuls] == [[element] * 2]
        (y,) = program.run(x.view(torch.int16).numpy().view("bfloat16"))
        with torch.no_grad():
            expected = net(x).float().numpy()
        np.testing.assert_allclose(y.astype(np.float32), expected, rtol=2**-7, atol=2**-12)


@pytest.mark.slow  # where torchao is installed
def test_torchao_exported_before() -> None:
    """It is said that nothing of it gets a ukernel; torch itself cannot decompose fp4."""
    torchao = pytest.importorskip("torchao.prototype.mx_formats.inference_workflow", reason="torchao is not installed")
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    x, reason = torch.randn(32, 256, dtype=torch.bfloat16), "torchao quantised it, and the program was exported before"
    for dtype in (torch.float8_e4m3fn, torch.float4_e2m1fn_x2):
        net = torch.nn.Sequential(torch.nn.Linear(256, 128, bias=False)).bfloat16()
        config = torchao.MXDynamicActivationMXWeightConfig(
            activation_dtype=dtype, weight_dtype=dtype, kernel_preference=KernelPreference.EMULATED
        )
        quantize_(net, config)
        exported = torch.export.export(net, (x,), strict=False)
        with pytest.warns(UserWarning, match=rf"\*: {reason}"):
            if dtype == torch.float4_e2m1fn_x2:
                with pytest.raises(InputError, match=rf"\*: {reason}"):
                    mxcomp.torch.compile(exported)
                continue
            program = mxcomp.torch.compile({"layer": exported})
        assert program.report.floats["0"].startswith(reason) and not program.report.matmuls
        (y,) = program.run(x.view(torch.int16).numpy().view("bfloat16"))
        with torch.no_grad():
            expected = net(x).float().numpy()
        np.testing.assert_allclose(y.astype(np.float32), expected, rtol=2**-7, atol=2**-6)


def test_what_torchao_quantised_of_exported_programs() -> None:
    """Programs without any are not spoken of."""
    weight, floats = by_torchao(N, K, True)[0].weight, torch.zeros(3, 4)
    programs = [SimpleNamespace(state_dict={"a.0.weight": weight, "b.weight": floats}), SimpleNamespace(state_dict={})]
    assert list(mxcomp.torch.torchao.exported(programs)) == ["a.0"]
