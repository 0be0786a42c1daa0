# REQUIRES: torch, transformers
# slow: with pytest -m slow only
# RUN: %python %s
"""A decoder of transformers, Llama or GPT-OSS, from its first token to its last on the simulated gfx950.

python examples/06_generate.py                           # Llama, tiny, random weights
python examples/06_generate.py --model=gpt-oss --tokens=4
python examples/06_generate.py --checkpoint=DIR --prompt="Hello" # as published: config.json, .safetensors

One program has two functions, which share their weights: `prefill` takes the prompt, `decode` one token; each takes
the cache of keys and values, of a fixed length, and returns it. Linear layers and experts run through our ukernels, the
rest is IREE's. The tokens are compared with those of the same quantised model in PyTorch on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoConfig, AutoTokenizer, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import Cache, CacheLayerMixin

import mxcomp
import mxcomp.torch
from mxcomp.profiling import Profile
from mxcomp.report import Report
from mxcomp.weights.checkpoint import NAMINGS, Checkpoint

TINY = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 512,
    "max_position_embeddings": 64,
}
MODELS: dict[str, tuple[type[Any], Any]] = {
    "llama": (LlamaForCausalLM, LlamaConfig(**TINY)),
    "gpt-oss": (
        GptOssForCausalLM,
        GptOssConfig(
            **{**TINY, "intermediate_size": 256}, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
            layer_types=["sliding_attention", "full_attention"], pad_token_id=0, rope_parameters={
                "rope_type": "default", "rope_theta": 10000.0,
            },
        ),
    ),
}  # fmt: skip
"""Classes by `model_type` in a config.json ("gpt_oss" there), and tiny configurations."""


class Slots(CacheLayerMixin):
    """Keys and values of a layer, [batch, heads, length, head size], in which new ones go to `at` and on."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.at, self.is_initialized = keys, values, at, True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = self._with(self.keys, keys), self._with(self.values, values)
        return self.keys, self.values

    def _with(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Each slot takes what is meant for it, or stays: IREE cannot compile a scatter into a cache for this GPU."""
        place = torch.arange(old.shape[2]) - self.at[0]
        meant = (place >= 0) & (place < new.shape[2])
        return torch.where(meant[:, None], new.index_select(2, place.clamp(0, new.shape[2] - 1)), old)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class Decoder(torch.nn.Module):
    """Logits of the token behind the last, and the new cache, from tokens, where they begin, and the cache before."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: torch.Tensor, position: torch.Tensor, cache: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens int64 [1, count], position int64 [1], cache [layers, 2, 1, heads, length, head size]."""
        at = position + torch.arange(tokens.shape[1])
        layers = [Slots(keys, values, at) for keys, values in (pair.unbind() for pair in cache.unbind())]
        found = self.model(
            tokens, attention_mask=self.masks(at, cache), position_ids=at[None], past_key_values=Cache(layers),
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return found.logits[0, -1].float(), torch.stack([torch.stack((slots.keys, slots.values)) for slots in layers])

    def masks(self, at: torch.Tensor, cache: torch.Tensor) -> Any:
        """What is added to scores [1, 1, count, length]: tokens see those up to themselves, or a window of those."""
        key, query = torch.arange(cache.shape[-2])[None], at[:, None]
        seen = key <= query
        if not hasattr(self.model.config, "layer_types") or self.model.config.model_type == "llama":
            return _added(seen, cache.dtype)
        near = seen & (key > query - self.model.config.sliding_window)
        return {"full_attention": _added(seen, cache.dtype), "sliding_attention": _added(near, cache.dtype)}


def _added(seen: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[None, None]


def tiny(name: str) -> Any:
    """A model with random weights, quantised here."""
    make, config = MODELS[name]
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = make(config).eval()
    for parameter in (p for n, p in model.named_parameters() if n.endswith("sinks") or n.endswith("bias")):
        torch.nn.init.normal_(parameter, std=0.1)
    for layer in model.model.layers if name == "gpt-oss" else ():
        layer.mlp.experts = mxcomp.torch.ScaledExperts.from_experts(layer.mlp.experts)
    return mxcomp.torch.replace_linears(model)


def published(folder: Path) -> Any:
    """A checkpoint's model, its weights mapped from the files; quantised here where it is not in MX."""
    config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    make, _ = MODELS[config.model_type.replace("_", "-")]
    with torch.device("meta"):
        model = make(config).eval()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its frequencies are in no file
    files = Checkpoint.read(*sorted(folder.glob("*.safetensors")))
    model = mxcomp.torch.load(model, files)
    is_mx = any(name.endswith(scales) for name in files for _, scales in NAMINGS.values())
    return model if is_mx else mxcomp.torch.replace_linears(model, filter=lambda name, _: name != "lm_head")


def cache_of(config: Any, length: int, dtype: torch.dtype) -> torch.Tensor:
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return torch.zeros(config.num_hidden_layers, 2, 1, config.num_key_value_heads, length, size, dtype=dtype)


def generate(step: Callable[..., tuple[Any, Any]], prompt: list[int], count: int, cache: Any) -> tuple[list[int], Any]:
    """Tokens with the highest logits, one after the other, and the cache behind them."""
    found: list[int] = []
    for _ in track(range(count), f"{count} tokens", console=Console(stderr=True), transient=True):
        tokens, position = (prompt, 0) if not found else (found[-1:], len(prompt) + len(found) - 1)
        logits, cache = step(np.array([tokens]), np.array([position]), cache)
        found.append(int(np.argmax(logits)))
    return found, cache


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama", help="which tiny model, without --checkpoint")
    parser.add_argument("--checkpoint", type=Path, help="a folder with config.json and .safetensors")
    parser.add_argument("--prompt", default="5,17,300,42,7,101", help="numbers of tokens, or text with --checkpoint")
    parser.add_argument("--tokens", type=int, default=4, help="how many to generate (default: 4)")
    parser.add_argument("--length", type=int, default=32, help="of the cache (default: 32)")
    args = parser.parse_args()

    model = tiny(args.model) if args.checkpoint is None else published(args.checkpoint)
    is_text = not args.prompt.replace(",", "").isdigit()
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint) if is_text else None
    prompt = [int(token) for token in (tokenizer(args.prompt).input_ids if is_text else args.prompt.split(","))]
    if len(prompt) + args.tokens > args.length:
        parser.error(f"--length={args.length}: expected {len(prompt) + args.tokens} or more")
    decoder, cache = Decoder(model), cache_of(model.config, args.length, model.dtype)

    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        with torch.no_grad():
            programs = {
                function: torch.export.export(decoder, (torch.tensor([tokens]), torch.tensor([0]), cache), strict=False)
                for function, tokens in (("prefill", prompt), ("decode", prompt[:1]))
            }
        program = mxcomp.torch.compile(programs, parameters=Path(name) / "model")
        files = {"model": Path(name) / "model.irpa"}
        program.report.print(sys.stdout)
        print(f"compiled in {time.perf_counter() - start:.1f} s, {files['model'].stat().st_size:,} bytes of parameters")

        def on_gpu(tokens: np.ndarray, position: np.ndarray, cache: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            function = "prefill" if tokens.shape[1] > 1 else "decode"
            logits, cache = program.run(tokens, position, cache, function=function, parameters=files)
            return logits, cache

        @torch.no_grad()
        def on_cpu(tokens: np.ndarray, position: np.ndarray, cache: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
            logits, cache = decoder(torch.from_numpy(tokens), torch.from_numpy(position), cache)
            return logits.numpy(), cache

        start = time.perf_counter()
        numbers = _as_numpy(cache)
        found, last = generate(on_gpu, prompt, args.tokens, numbers)
        print(f"{args.tokens} tokens on the simulated gfx950 in {time.perf_counter() - start:.1f} s: {found}")
        expected, _ = generate(on_cpu, prompt, args.tokens, cache)
        print(f"PyTorch on the CPU, the same quantised model: {expected}")
        if tokenizer is not None:
            print(tokenizer.decode(found))

        inputs = np.array([found[-1:]]), np.array([len(prompt) + args.tokens - 1]), last
        profile = program.profile(*inputs, function="decode", parameters=files)
        print_times(program.report, profile)
    return 0 if found == expected else 1


def _as_numpy(tensor: torch.Tensor) -> np.ndarray:
    import ml_dtypes

    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def print_times(report: Report, profile: Profile) -> None:
    """Modelled µs of a token: of each linear layer's matmul, with its kernel, and of all dispatches, by kernel."""
    times: dict[str, list[float]] = {}
    for dispatch in profile.dispatches:
        if dispatch.modelled is not None:
            times.setdefault(dispatch.kernel, []).append(dispatch.modelled.us)
    layers = Table("linear layer", "N × K", "kernel", "modelled µs", "why not otherwise", title="one token")
    for matmul in report.matmuls[len(report.matmuls) // 2 :]:  # those of `decode`, which come behind those of `prefill`
        if matmul.kernel in times:
            us = sum(times[matmul.kernel]) / len(times[matmul.kernel])
            why = matmul.reason or matmul.note or "-"
            layers.add_row(matmul.name, f"{matmul.n} × {matmul.k}", matmul.ukernel or "IREE's", f"{us:.1f}", why)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(layers)
    dispatches = Table("kernel", "launches", "modelled µs")
    for kernel, each in sorted(times.items(), key=lambda entry: -sum(entry[1])):
        dispatches.add_row(kernel, str(len(each)), f"{sum(each):.1f}")
    dispatches.add_row("all", str(len(profile.dispatches)), f"{profile.modelled_us:.1f}")
    console.print(dispatches)


if __name__ == "__main__":
    sys.exit(main())
