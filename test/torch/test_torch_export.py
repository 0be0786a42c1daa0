"""What `mxcomp.torch.export` and `compile` take and make: parameters, functions, names; no transformers needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mxcomp
import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.run.runtime import RunError
from mxcomp.weights.checkpoint import Checkpoint

K, N, ROWS = 64, 96, 5


class Layer(torch.nn.Module):
    """What decoders are made of that exporters find hard: a region without gradients, a buffer that is not stored."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(K, N)
        self.down = torch.nn.Linear(N, K, bias=False)
        self.register_buffer("frequency", torch.linspace(0, 1, K), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            waves = torch.cos(x.detach() * self.frequency)
        return x + self.down(torch.nn.functional.silu(self.up(x + waves)))


class Model(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
        self.head = torch.nn.Linear(K, K)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def model(layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    return mxcomp.torch.replace_linears(Model(layers), filter=lambda name, _: name != "head")


X = torch.linspace(-2, 2, ROWS * K).reshape(ROWS, K)


def expected(net: torch.nn.Module, x: torch.Tensor = X) -> np.ndarray:
    with torch.no_grad():
        return net(x).numpy()


def test_parameters(tmp_path: Path) -> None:
    """As they are, by the names of the model, with no weights in the module; and packed."""
    net = model(layers=1)
    module = mxcomp.torch.export(net, (X,), parameters=tmp_path / "plain")
    stored = Checkpoint.read(tmp_path / "plain.irpa")
    state = net.state_dict()
    assert set(stored) == set(state)
    assert all(stored[key].data.tobytes() == state[key].numpy().tobytes() for key in state)
    text = str(module)
    assert '#flow.parameter.named<"plain"::"layers.0.down.weight"> : tensor<64x48xi8>' in text
    assert "dense_resource<torch_tensor_96" not in text
    assert "dense_resource<torch_tensor_64_torch.float32" in text  # the frequencies, which no checkpoint has
    assert len(module.operation.get_asm(large_elements_limit=1)) < 40_000

    packed = mxcomp.torch.compile(net, (X,), parameters=tmp_path / "packed.irpa")
    assert any(".packed.rhs." in key for key in Checkpoint.read(tmp_path / "packed.irpa"))
    assert not any("pack_rhs" in part for matmul in packed.report.matmuls for part in matmul.dispatches)
    (y,) = packed.run(X.numpy(), parameters={"packed": tmp_path / "packed.irpa"})
    np.testing.assert_allclose(y, expected(net), atol=0.02)


def test_report_names_modules() -> None:
    program = mxcomp.compile(mxcomp.torch.export(model(), (X,)), compile_to="input")
    names = [f"layers.{layer}.{linear}" for layer in range(2) for linear in ("up", "down")]
    assert [matmul.name for matmul in program.report.matmuls] == names
    assert all("test_torch_export.py" in matmul.location and matmul.dispatches for matmul in program.report.matmuls)


def test_functions_of_one_model(tmp_path: Path) -> None:
    """They share parameters, which are read as they are, and one of them has a dynamic size."""
    net = model(layers=1)
    rows = torch.export.Dim("rows", min=2, max=64)
    programs = {
        "one": torch.export.export(net, (X[:1],)),
        "many": torch.export.export(net, (X,), dynamic_shapes=({0: rows},)),
    }
    module = mxcomp.torch.export(programs, parameters=tmp_path / "model")
    assert set(Checkpoint.read(tmp_path / "model.irpa")) == set(net.state_dict())
    program = mxcomp.compile(module)
    assert {matmul.m for matmul in program.report.matmuls} == {1, None}
    for function, x in (("one", X[2:3]), ("many", X[:3])):
        (y,) = program.run(x.numpy(), function=function, parameters={"model": tmp_path / "model.irpa"})
        np.testing.assert_allclose(y, expected(net, x), atol=0.02)


def test_exported_program() -> None:
    net = model()
    text = str(mxcomp.torch.export(torch.export.export(net, (X,)), function="f"))
    assert text == str(mxcomp.torch.export(net, (X,), function="f"))
    with pytest.raises(InputError, match="an exported program has its arguments"):
        mxcomp.torch.export(torch.export.export(net, (X,)), (X,))


class Shifted(torch.nn.Module):
    """Adds the position, which is a tensor without dimensions at last, to what a layer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(K, N)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        at = position + torch.arange(1)
        return self.fc(x + torch.where(torch.arange(K) >= at[0], 1.0, 0.0))


def test_sizes_that_two_arguments_share() -> None:
    """PyTorch gives them one name, and IREE takes them for the same: they are compared when the program is called."""

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(K, N)

        def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(self.up(x)) + residual

    model = Joined().eval()
    mxcomp.torch.replace_linears(model)
    batch, length = (torch.export.Dim(name, min=2, max=64) for name in ("batch", "length"))
    x, residual = torch.randn(2, 3, K), torch.randn(2, 3, N)
    program = mxcomp.torch.compile(model, (x, residual), dynamic_shapes=({0: batch, 1: length},) * 2)
    (y,) = program.run(x.numpy(), residual.numpy())
    np.testing.assert_allclose(y, model(x, residual).detach().numpy(), rtol=1e-4, atol=1e-4)
    for wrong in (torch.randn(2, 4, N), torch.randn(3, 3, N), torch.randn(3, 2, N)):
        with pytest.raises(RunError, match=r"of argument 0 and .* of argument 1 must be equal, for"):
            program.run(x.numpy(), wrong.numpy())


@pytest.mark.parametrize("name", [None, "model"])
def test_buffers_of_other_floats(name: str | None, tmp_path: Path) -> None:
    """Of 8 bits, with more bytes than constants are written with element by element; of 64, which IREE takes for 32."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, kind in enumerate((torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, torch.float64)):
                values = torch.randn(ROWS, N) if i < 2 else torch.exp2(torch.randint(-3, 4, (ROWS, N)))
                self.register_buffer(f"b{i}", values.to(kind))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.b0.float() + self.b1.float() * self.b2.float() - self.b3.float()

    model, x = Scaled(), torch.randn(ROWS, N)
    path = None if name is None else tmp_path / name
    program = mxcomp.torch.compile(model, (x,), parameters=path)
    parameters = {} if path is None else {name: f"{path}.irpa"}
    (y,) = program.run(x.numpy(), parameters=parameters)
    np.testing.assert_allclose(y, model(x).numpy(), rtol=1e-6, atol=1e-6)


def test_a_position_without_dimensions() -> None:
    net = mxcomp.torch.replace_linears(Shifted())
    module = mxcomp.torch.export(net, (X, torch.tensor([3])))
    assert [matmul.reason for matmul in mxcomp.compile(module, compile_to="flow").report.matmuls] == [None]


def test_tied_weights_are_one_parameter(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Embedding(40, K), torch.nn.Linear(K, 40, bias=False))
    net[1].weight = net[0].weight
    mxcomp.torch.export(net, (torch.arange(3),), parameters=tmp_path / "model")
    assert [tensor.data.nbytes for tensor in Checkpoint.read(tmp_path / "model.irpa").values()] == [40 * K * 4]


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with torch.device("meta"):
        empty = torch.nn.Linear(K, N)
    with pytest.raises(InputError, match="'weight' has no data"):
        mxcomp.torch.export(empty, (X.to("meta"),), parameters=tmp_path / "model")
    with pytest.raises(InputError, match="expected a name such as 'model'"):
        mxcomp.torch.export(model(), (X,), parameters="")
    assert not list(tmp_path.iterdir())


def test_all_or_nothing() -> None:
    """The layer that cannot be quantised is named, and no layer before it has changed."""
    net = torch.nn.Sequential(torch.nn.Linear(K, 40), torch.nn.ReLU(), torch.nn.Linear(40, K))
    before = list(net)
    with pytest.raises(InputError, match=r"layer '2' \(40 → 64\) cannot have MX weights: .*multiple of the block size"):
        mxcomp.torch.replace_linears(net)
    assert list(net) == before
    mxcomp.torch.replace_linears(net, filter=lambda name, linear: linear.in_features % 32 == 0)
    assert isinstance(net[0], mxcomp.torch.ScaledLinear) and net[2] is before[2]
    with torch.device("meta"):
        empty = torch.nn.Sequential(torch.nn.Linear(K, N))
    with pytest.raises(InputError, match=r"layer '0' \(64 → 96\)"):
        mxcomp.torch.replace_linears(empty)


@pytest.mark.parametrize("weight_format", ["E2M1", "E3M2", "E4M3"])
def test_layers_on_meta_get_shapes(weight_format: str) -> None:
    """If that is asked for: of the types and shapes that layers with numbers get."""
    numbers = mxcomp.torch.replace_linears(torch.nn.Sequential(torch.nn.Linear(K, N)), weight_format)
    with torch.device("meta"):
        empty = torch.nn.Sequential(torch.nn.Linear(K, N))
    mxcomp.torch.replace_linears(empty, weight_format, on_meta=True)
    found, expected = empty.state_dict(), numbers.state_dict()
    assert {key: (each.shape, each.dtype) for key, each in found.items()} == {
        key: (each.shape, each.dtype) for key, each in expected.items()
    }
    assert all(each.is_meta for each in found.values())
    with pytest.raises(InputError, match="not a multiple of block size 32"):
        mxcomp.torch.replace_linears(torch.nn.Sequential(torch.nn.Linear(40, N, device="meta")), on_meta=True)


def test_replacing_shared_and_special_layers() -> None:
    shared = torch.nn.Linear(K, K)
    net = mxcomp.torch.replace_linears(torch.nn.ModuleDict({"a": shared, "b": shared}))
    assert net["a"] is net["b"] and isinstance(net["a"], mxcomp.torch.ScaledLinear)
    assert isinstance(mxcomp.torch.replace_linears(shared), mxcomp.torch.ScaledLinear)
    attention = mxcomp.torch.replace_linears(torch.nn.MultiheadAttention(K, 2, batch_first=True))
    assert expected(lambda x: attention(x[None], x[None], x[None])[0]).shape == (
        1,
        ROWS,
        K,
    )  # as torch reads its weights
