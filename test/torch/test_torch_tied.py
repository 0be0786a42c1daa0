"""Checkpoints of models that share tensors between modules: what is tied, what is not, and what is said of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from parameters import safetensors

import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.formats import dequantise, pack_bits, quantise
from mxcomp.torch import ScaledLinear

K, N = 64, 96
RNG = np.random.default_rng(0)


class Tied(torch.nn.Module):
    """An embedding whose values the last layer has, and another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.other, self.head = torch.nn.Embedding(N, K), torch.nn.Linear(K, N), torch.nn.Linear(K, N)
        self.head.weight = self.embed.weight


class Twice(torch.nn.Module):
    """A layer in two places, and two layers with the same weights and biases of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c, self.d = (torch.nn.Linear(K, N) for _ in range(3))
        self.b, self.d.weight = self.a, self.c.weight


def floats(*shape: int) -> tuple[str, np.ndarray]:
    return "F32", RNG.standard_normal(shape, np.float32)


def mx(values: np.ndarray) -> tuple[tuple[str, np.ndarray], tuple[str, np.ndarray], np.ndarray]:
    codes, scales = quantise(values, "E2M1")
    return ("U8", pack_bits(codes, "E2M1")), ("U8", scales), dequantise(codes, scales, "E2M1")


def loaded(make: type[torch.nn.Module], tmp_path: Path, tensors: dict[str, Any]) -> Any:
    with torch.device("meta"):
        model = make()
    return mxcomp.torch.load(model, safetensors(tmp_path / "model.safetensors", tensors))


EMBED, HEAD = floats(N, K), floats(N, K)
REST = {"other.weight": floats(N, K), "other.bias": floats(N), "head.bias": floats(N)}


@pytest.mark.parametrize("stored", [["embed"], ["head"], ["embed", "head"]])
def test_one_value(stored: list[str], tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = loaded(Tied, tmp_path, REST | {f"{name}.weight": EMBED for name in stored})
    assert model.head.weight is model.embed.weight
    np.testing.assert_array_equal(model.embed.weight.detach(), EMBED[1])


@pytest.mark.parametrize("names", [(".weight", ".weight_scale"), (".weight_packed", ".weight_scale")])
@pytest.mark.parametrize("quantised", [False, True])
def test_two_values(quantised: bool, names: tuple[str, str], tmp_path: Path) -> None:
    """Each has its own, and a warning says so."""
    elements, scales, values = mx(HEAD[1])
    head = {f"head{names[0]}": elements, f"head{names[1]}": scales} if quantised else {"head.weight": HEAD}
    with pytest.warns(UserWarning, match=r"has 'embed.weight' and 'head.weight' with different values") as caught:
        model = loaded(Tied, tmp_path, REST | {"embed.weight": EMBED} | head)
    assert len(caught) == 1 and isinstance(model.head, ScaledLinear) == quantised
    np.testing.assert_array_equal(model.embed.weight.detach(), EMBED[1])
    np.testing.assert_array_equal(model.head.weight.detach().clone(), values if quantised else HEAD[1])
    assert not any(tensor.is_meta for tensor in model.state_dict().values())


def test_an_embedding_cannot_be_mx(tmp_path: Path) -> None:
    elements, scales, _ = mx(HEAD[1])
    with pytest.raises(InputError, match=r"no tensor 'embed\.weight', which the model has"):
        loaded(Tied, tmp_path, REST | {"head.weight": elements, "head.weight_scale": scales})


@pytest.mark.parametrize("stored", ["a", "b"])
def test_layers_that_are_one(stored: str, tmp_path: Path) -> None:
    """As with `replace_linears`: a layer in two places is one, tied ones share their bytes and keep their biases."""
    (one, one_scale, _), (two, two_scale, _) = mx(EMBED[1]), mx(HEAD[1])
    tensors = {f"{stored}.weight": one, f"{stored}.weight_scale": one_scale, f"{stored}.bias": floats(N)}
    tensors |= {"c.weight": two, "c.weight_scale": two_scale, "c.bias": floats(N), "d.bias": floats(N)}
    model = loaded(Twice, tmp_path, tensors)
    assert model.a is model.b and isinstance(model.a, ScaledLinear)
    np.testing.assert_array_equal(model.a.bias, tensors[f"{stored}.bias"][1])
    assert model.d.elements.data_ptr() == model.c.elements.data_ptr()
    np.testing.assert_array_equal(model.d.bias, tensors["d.bias"][1])


def test_one_layer_stored_as_two(tmp_path: Path) -> None:
    (one, one_scale, _), (two, two_scale, _), bias = mx(EMBED[1]), mx(HEAD[1]), floats(N)
    tensors = {"c.weight": floats(N, K), "c.bias": bias, "d.bias": bias, "a.bias": bias, "b.bias": bias}
    same = {"a.weight": one, "b.weight": one, "a.weight_scale": one_scale, "b.weight_scale": one_scale}
    assert loaded(Twice, tmp_path, tensors | same).a.elements.shape == (N, K // 2)
    with pytest.raises(InputError, match="'a' and 'b' differ, in the model they are one"):
        loaded(Twice, tmp_path, tensors | same | {"b.weight": two, "b.weight_scale": two_scale})


def transformers_models() -> dict[str, Any]:
    import transformers as hf

    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"num_key_value_heads": 2, "vocab_size": N, "max_position_embeddings": 64}
    seq = {"d_model": 64, "d_kv": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2, "vocab_size": N}
    vision = {**small, "image_size": 28, "patch_size": 14}
    return {
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**small, **more, tie_word_embeddings=True)),
        "t5": (hf.T5ForConditionalGeneration, hf.T5Config(**seq)),
        "bert": (hf.BertForMaskedLM, hf.BertConfig(**small, vocab_size=N)),
        "gemma3": (
            hf.Gemma3ForConditionalGeneration,
            hf.Gemma3Config(
                text_config={**small, **more, "head_dim": 32}, vision_config=vision, mm_tokens_per_image=4,
                image_token_index=3, boi_token_index=4, eoi_token_index=5,
            ),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["llama", "t5", "bert", "gemma3"])
def test_models_of_transformers(name: str, tmp_path: Path) -> None:
    """What transformers ties is tied: where one is stored, where all are; and is not where another value is stored."""
    pytest.importorskip("transformers")
    make, config = transformers_models()[name]
    torch.manual_seed(0)
    reference = make(config)
    ties = dict(reference.all_tied_weights_keys)
    assert ties
    for target, source in ties.items():
        assert reference.get_parameter(target) is reference.get_parameter(source)
    every = {key: ("F32", value.detach().numpy()) for key, value in reference.state_dict().items()
             if value.dtype == torch.float32}  # fmt: skip
    once = {key: value for key, value in every.items() if key not in ties}
    ints = {key: ("I64", value.numpy()) for key, value in reference.state_dict().items() if value.dtype == torch.int64}

    def load(tensors: dict[str, Any]) -> Any:
        model = make(config)
        return mxcomp.torch.load(model, safetensors(tmp_path / "model.safetensors", tensors | ints))

    for tensors in (once, every):
        model = load(tensors)
        assert all(model.get_parameter(a) is model.get_parameter(b) for a, b in ties.items())
        assert all(torch.equal(value, model.state_dict()[key]) for key, value in reference.state_dict().items())
    target, source = next((a, b) for a, b in ties.items() if a.endswith("weight"))
    other = ("F32", every[target][1] + 1)
    with pytest.warns(UserWarning, match=f"has '{source}' and '{target}' with different values"):
        model = load(every | {target: other})
    np.testing.assert_array_equal(model.get_parameter(target).detach(), other[1])
    np.testing.assert_array_equal(model.get_parameter(source).detach(), every[source][1])
    assert model.all_tied_weights_keys == {key: value for key, value in ties.items() if key != target}
