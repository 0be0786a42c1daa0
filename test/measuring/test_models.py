"""Decoders by their configurations: their layers and floors, what is modelled of them, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxcomp.errors import InputError
from mxcomp.measuring import records
from mxcomp.profiling import DispatchProfile
from mxcomp.profiling.launches import Launch
from mxcomp.sim.timing.parameters import mi355x

pytest.importorskip("transformers", reason="needs transformers")

from mxcomp.measuring import decoders, models
from mxcomp.measuring.models import KINDS, TOKEN, Entry, Setting
from mxcomp.tools import bench

FP4 = ("f4E2M1FN", "f4E2M1FN")
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512,
    "max_position_embeddings": 4096,
}  # fmt: skip
GPT_OSS: dict[str, Any] = {
    **LLAMA, "model_type": "gpt_oss", "intermediate_size": 256, "num_hidden_layers": 4, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}  # fmt: skip


def pieces(config: dict[str, Any], context: int = 64) -> list[decoders.Piece]:
    made = decoders.configuration(config, "tiny")
    return list(decoders.pieces(made, context, "tiny", FP4))


@pytest.mark.parametrize(
    ("name", "layers", "gigabytes"),
    [
        ("llama3-8b", {"dense, full attention": 32}, 4.76),
        ("llama3-70b", {"dense, full attention": 80}, 38),
        ("llama3-405b", {"dense, full attention": 126}, 218),
        ("gpt-oss-20b", {"experts, sliding attention": 12, "experts, full attention": 12}, 12.6),
        ("gpt-oss-120b", {"experts, sliding attention": 18, "experts, full attention": 18}, 64),
        ("qwen3-30b-a3b", {"experts, full attention": 48}, 16.5),
        ("deepseek-v3", {"dense, full attention": 3, "experts, full attention": 58}, 357),
    ],
)
def test_published_configurations(name: str, layers: dict[str, int], gigabytes: float) -> None:
    """Their layers, and what they and the head store: parameters as published, at 4.25 bits or in bf16."""
    made = decoders.configuration(models.configuration(name), name)
    found = list(decoders.pieces(made, 1024, name, FP4))
    assert {each.name: each.count for each in found} == layers | {"head": 1}
    stored = sum(each.count * each.weight_bytes(1)[0] for each in found)
    assert stored / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_floor_of_a_layer() -> None:
    """A layer's bytes, counted by hand: matrices of MXFP4, norms and cache in bf16."""
    layer, head = pieces(LLAMA)
    matrices = 256 * (4 + 2 + 2 + 4) * 64 + 3 * 256 * 512
    assert layer.weight_bytes(1) == (matrices * 17 / 32 + 2 * 256 * 2,) * 2
    assert layer.cache_bytes == (2 * 2 * 64 * 64 * 2, 2 * 2 * 64 * 2)
    assert layer.activation_bytes == (512, 512)
    frequencies = layer.module.get_submodule("rotary").inv_freq.numpy()
    np.testing.assert_allclose(frequencies, 10000.0 ** (-np.arange(0, 64, 2) / 64), rtol=1e-6)
    assert head.weight_bytes(1)[0] == 2 * (256 * 512 + 256)
    assert (head.activation_bytes, head.cache_bytes) == ((512, 1024), (0, 0))


def test_experts_and_windows() -> None:
    """A window has as many slots, and tokens read what experts they choose; attention stays in floats as published."""
    sliding, full, _ = pieces(GPT_OSS)
    assert (sliding.caches, full.caches) == (((2, 32, 64),) * 2, ((2, 64, 64),) * 2)
    assert full.floats == {f"layer.self_attn.{each}_proj" for each in "qkvo"}
    stored, one = full.weight_bytes(1)
    expert = 3 * 256 * 256 * 17 / 32 + 3 * 256 * 2
    assert stored - one == 6 * expert
    assert one < full.weight_bytes(4)[1] < full.weight_bytes(1000)[1] == pytest.approx(stored)
    assert [each.shape for each in full.arguments(3, 63)[3:]] == [(3, 2, 64, 64)] * 2
    assert [each.arguments(3, 63)[2].item() for each in (sliding, full)] == [31, 63]


def test_window_of_all_layers() -> None:
    layer, _ = pieces({**LLAMA, "model_type": "mistral", "sliding_window": 32})
    assert (layer.name, layer.count, layer.caches) == ("dense, sliding attention", 3, ((2, 32, 64),) * 2)


def test_head_is_modelled(tmp_path: Path) -> None:
    """Compiled and profiled: no longer than its floor says it must be, and all of it counted."""
    *_, head = pieces(LLAMA)
    setting = Setting(2, 64, FP4)
    found = models._entry("tiny", setting, head, models._profile(head, setting))
    assert found.us == pytest.approx(sum(getattr(found, kind) for kind in KINDS))
    assert found.low < found.us < found.high and found.floor_us < found.us
    assert 0 < found.other < found.us and 0 < found.elementwise < found.us
    assert (found.unmodelled, found.guessed) == (0, 0)
    moved = 2 * (256 * 512 + 256) + 2 * 512
    p = mi355x()
    floor = moved / (p.hbm_terabytes * 1e6) + 2 * 1024 / (p.hbm_write_terabytes * 1e6) + 2 * p.launch_us
    assert found.floor_us == pytest.approx(floor)


def test_experts_are_those_that_even_routing_gives() -> None:
    """Products of experts do not depend on data that nobody computed; what is before them stays."""

    def dispatch(module: str, part: str = "") -> DispatchProfile:
        places = (Launch("k", part, modules=(module,)),)
        return DispatchProfile("k", (1, 1, 1), {}, 0.0, None, places=places)

    kept = [dispatch("layer.mlp.router"), dispatch("layer.mlp.experts"), dispatch("layer.mlp.experts", "quantise_lhs")]
    gone = [dispatch("layer.mlp.experts", part) for part in ("matmul", "quantise_lhs", "matmul", "")]
    after = [dispatch("layer.mlp.shared_experts.up_proj", "matmul"), dispatch("layer")]
    assert models._before_experts([*kept, *gone, *after]) == [*kept, *after]
    _, full, head = pieces(GPT_OSS)
    one, many = (models._experts(full, Setting(batch, 64, FP4), kept) for batch in (1, 256))
    assert one is not None and many is not None and models._experts(head, Setting(1, 64, FP4), kept) is None
    assert (one.active_experts, many.active_experts) == (2, 8) and one.ours_us < many.ours_us
    itself = models._experts(full, Setting(1, 64, FP4), kept[:2])
    assert itself is not None and itself.kernel_gemm1.startswith("mx_fused_quant16_once_")


@pytest.mark.parametrize(
    ("kernel", "module", "part", "kind"),
    [
        ("main_dispatch_4_gather", "layer.mlp.up_proj", "matmul", "matmuls"),
        ("main_dispatch_4_reduction", "layer.mlp.up_proj", "quantise_lhs", "matmuls"),
        ("main_dispatch_7_elementwise", "cache", "", "cache"),
        ("main_dispatch_12_attention_8x4", "layer.self_attn", "", "attention"),
        ("main_dispatch_0_elementwise", "rotary", "", "attention"),
        ("main_dispatch_2_matmul_like", "layer.self_attn.q_proj", "", "other"),
        ("main_dispatch_4_reduction", "layer.input_layernorm", "", "elementwise"),
        ("main_dispatch_5_elementwise", "layer.mlp.act_fn", "", "elementwise"),
        ("main_dispatch_5_sort", "layer.mlp.router", "", "other"),
        ("main_dispatch_9_slow_memcpy", "", "", "other"),
    ],
)
def test_kinds_of_work(kernel: str, module: str, part: str, kind: str) -> None:
    places = (Launch(kernel, part, modules=(module,) if module else ()),)
    dispatch = DispatchProfile(kernel, (1, 1, 1), {}, 0.0, None, places=places)
    assert models.work_of(dispatch, {"layer.self_attn.q_proj"}) == kind


@pytest.mark.slow
@pytest.mark.parametrize("config", [LLAMA, GPT_OSS], ids=["llama", "gpt-oss"])
def test_models(config: dict[str, Any], tmp_path: Path, capfd: Any) -> None:
    """As table, list and picture; a second run models nothing."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = [
        f"--model={tmp_path}",
        "--batch=2",
        "--context=64",
        f"--json={tmp_path}/o.json",
        f"--picture={tmp_path}",
    ]
    assert bench.main(arguments) == 0
    table = capfd.readouterr().out
    assert "floor: bytes that must move" in table and "token" in table
    found = records.from_json(tmp_path / "o.json", Entry, "mxcomp-bench")
    *parts, token = found
    assert token.piece == TOKEN and token.us == pytest.approx(sum(each.count * each.us for each in parts))
    assert token.tokens_per_second == pytest.approx(2e6 / token.us)
    assert all(each.us > each.floor_us and each.matmuls > 0 for each in parts if each.piece != "head")
    assert all(each.attention > 0 for each in parts if each.piece != "head")
    assert list(tmp_path.glob("*.png"))
    assert bench.main(arguments) == 0
    assert capfd.readouterr().out == table


def entry(**values: Any) -> Entry:
    numbers = dict.fromkeys(Entry.__dataclass_fields__, 1.0)
    named = {"model": "llama3-8b", "batch": 4, "context": 128, "activations": FP4[0], "weights": FP4[1]}
    return Entry(**{**numbers, "piece": TOKEN, "count": 1, **named, **values})


def test_more_than_a_gpu_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """It is said, and the layer's time stands; dispatches without a time are named."""
    layer = entry(piece="dense, full attention", count=2, unmodelled=3, stored_bytes=200e9)
    monkeypatch.setattr(models, "modelled", lambda *_: iter([layer, models.whole([layer])]))
    assert bench.main(["--model=llama3-8b", "--batch=4", "--context=128", f"--json={tmp_path}/o.json"]) == 0
    output, error = capfd.readouterr()
    assert "2 × dense" in output and "token" in output
    assert "batch 4, context 128: 400 GB of weights and cache, more than the 288 GB of one GPU" in error
    assert "dense, full attention: 3 dispatches are not modelled, and missing" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=llama9"], r"--model=llama9: expected llama3-8b, .*deepseek-v3, a folder with config.json"),
        (["--model=no_such.json"], "no_such.json"),
        (["--model=."], "config.json"),
        (["--model=llama3-8b", "--batch=1,x"], "--batch=1,x: expected whole numbers with commas between"),
        (["--model=llama3-8b", "--batch=0"], "--batch: 0: expected 1 or more"),
        (["--model=llama3-8b", "--context=1"], "--context: 1: expected 2 or more"),
        (["--model=llama3-8b", "--device=hip"], "layers of models are modelled only"),
        (["--model=llama3-8b", "64x64x64"], "--model with subjects: expected --batch"),
    ],
)
def test_bad_arguments(
    arguments: Sequence[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench.main(list(arguments)) == 1
    assert re.search(f"mxcomp-bench: error: .*{message}", capfd.readouterr().err)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no 'model_type'"),
        ({**LLAMA, "model_type": "no_such"}, "no configuration of transformers 'no_such'"),
        ({key: value for key, value in LLAMA.items() if key != "hidden_size"}, "no 'hidden_size'"),
        ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers is 0: expected 1 or more"),
        ({**LLAMA, "hidden_size": 40, "num_attention_heads": 2}, r"layer .* cannot have MX weights"),
        ({**LLAMA, "model_type": "vit"}, "tiny: no"),
        ({**LLAMA, "model_type": "mamba"}, "tiny: no"),
    ],
)
def test_bad_configurations(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pieces(config)


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    for text, message in (("{", "is no JSON"), ("[]", "expected an object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=message):
            models.configuration(str(tmp_path))
