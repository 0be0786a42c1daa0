"""Decoders of transformers, exported as they are, and loaded."""

from __future__ import annotations

import json
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import mxcomp
import mxcomp.torch
from mxcomp.torch.values import as_array
from mxcomp.weights.checkpoint import Checkpoint

LINEARS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]
MLP = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
IDS = torch.tensor([[5, 17, 300, 42]])


@cache
def example() -> dict[str, Any]:
    """Where it is needed: importing transformers takes seconds, and each worker of pytest imports all tests."""
    return runpy.run_path(str(Path(__file__).parents[2] / "examples" / "06_generate.py"))


def test_llama_is_exported_as_it_is(tmp_path: Path) -> None:
    model = example()["tiny"]("llama")
    module = mxcomp.torch.export(model, (IDS,), {"use_cache": False}, parameters=tmp_path / "llama")
    assert set(Checkpoint.read(tmp_path / "llama.irpa")) == set(model.state_dict())
    matmuls = mxcomp.compile(module, compile_to="flow").report.matmuls
    layers = [f"model.layers.{layer}.{linear}" for layer in range(2) for linear in LINEARS + MLP]
    assert [matmul.name for matmul in matmuls] == [*layers, "lm_head"]
    assert all(matmul.ukernel and matmul.reason is None for matmul in matmuls)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


@pytest.mark.parametrize("name", ["llama", "gpt-oss"])
def test_checkpoint_of_a_model(name: str, tmp_path: Path) -> None:
    """Written as Quark writes linear layers, and as OpenAI writes experts."""
    model = example()["tiny"](name)
    tensors = {
        key: value.reshape(*value.shape[:-1], -1, 16) if key.endswith("_blocks") else value.clone()
        for key, value in model.state_dict().items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    loaded = example()["published"](tmp_path)
    assert not any(tensor.is_meta for tensor in (*loaded.parameters(), *loaded.buffers()))
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.slow
def test_dynamic_batch_and_sequence(tmp_path: Path) -> None:
    model = example()["tiny"]("llama")
    ids = torch.arange(32).reshape(2, 16)
    sizes = {0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("tokens", max=64)}
    program = mxcomp.torch.compile(Logits(model), (ids,), dynamic_shapes=(sizes,), parameters=tmp_path / "llama")
    (found,) = program.run((ids[:1, :5] * 7).numpy(), parameters={"llama": tmp_path / "llama.irpa"})
    with torch.no_grad():
        expected = model(ids[:1, :5] * 7, use_cache=False).logits
    assert torch.allclose(torch.from_numpy(found), expected, atol=0.02)


class Layer(torch.nn.Module):
    """A layer of Llama whose tokens see those before them."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

        config = example()["MODELS"]["llama"][1]
        config._attn_implementation = "sdpa"
        self.layer, self.rotary = LlamaDecoderLayer(config, 0), LlamaRotaryEmbedding(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        mask = torch.where(places[None] <= places[:, None], 0.0, torch.finfo(torch.bfloat16).min).to(x.dtype)
        return self.layer(x, attention_mask=mask[None, None], position_embeddings=self.rotary(x, places[None]))


@pytest.mark.slow
def test_layer_of_any_number_of_tokens() -> None:
    """Its attention has our kernel, and nothing is computed of the mask."""
    torch.manual_seed(0)
    layer, tokens = Layer().bfloat16().eval(), torch.export.Dim("tokens", max=512)
    xs = [torch.randn(1, count, 256).bfloat16() for count in (70, 2, 33, 130)]
    with torch.no_grad():
        program = mxcomp.torch.compile(layer, (xs[0],), dynamic_shapes=({1: tokens},), strict=True)
    assert [bool(each.ukernel) for each in program.report.attentions] == [True]
    layer = layer.double()
    for x in xs:
        (found,) = program.run(as_array(x))
        with torch.no_grad():
            exact = layer(x.double()).numpy()
        assert np.abs(found.astype(np.float64) - exact).max() <= 2e-2 * np.abs(exact).max()


class Logits(torch.nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits
