# REQUIRES: torch, transformers
# slow: with pytest -m slow only
# RUN: %python %s
"""A decoder of transformers, Llama or GPT-OSS, from its first token to its last on the simulated gfx950.

python examples/06_generate.py                           # Llama, tiny, random weights
python examples/06_generate.py --model=gpt-oss --tokens=4
python examples/06_generate.py --checkpoint=DIR --prompt="Hello" # as published: config.json, .safetensors

One program has two functions, which share their weights: `prefill` takes the prompt, `decode` one token. They share the
cache of keys and values too, of a fixed length: buffers of the model, which stay in a session between its calls, and in
which a token writes its own rows alone. Linear layers and experts run through our ukernels. The tokens are compared
with those of the same quantised model in PyTorch on the CPU.
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
    """Keys and values of a layer, [batch, heads, length, head size], which new ones are written into, at `at`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.at, self.is_initialized = keys, values, at, True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(2, self.at, keys)
        self.values.index_copy_(2, self.at, values)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class Decoder(torch.nn.Module):
    """Logits of the token behind the last, from tokens and where they begin. It keeps what came before."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        self.model, self.length = model, length
        config = model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            for name in ("keys", "values"):
                cache = torch.zeros(1, config.num_key_value_heads, length, size, dtype=model.dtype)
                self.register_buffer(f"{name}_{layer}", cache, persistent=False)

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """tokens int64 [1, count], position int64 [1]."""
        at = position + torch.arange(tokens.shape[1])
        layers = range(self.model.config.num_hidden_layers)
        slots = [Slots(getattr(self, f"keys_{layer}"), getattr(self, f"values_{layer}"), at) for layer in layers]
        found = self.model(
            tokens, attention_mask=self.masks(at), position_ids=at[None], past_key_values=Cache(slots),
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        return found.logits[0, -1].float()

    def masks(self, at: torch.Tensor) -> Any:
        """What is added to scores [1, 1, count, length]: tokens see those up to themselves, or a window of those."""
        key, query = torch.arange(self.length)[None], at[:, None]
        seen = key <= query
        if not hasattr(self.model.config, "layer_types") or self.model.config.model_type == "llama":
            return _added(seen, self.model.dtype)
        near = seen & (key > query - self.model.config.sliding_window)
        return {"full_attention": _added(seen, self.model.dtype), "sliding_attention": _added(near, self.model.dtype)}


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


def generate(step: Callable[..., Any], prompt: list[int], count: int) -> list[int]:
    """Tokens with the highest logits, one after the other."""
    found: list[int] = []
    for _ in track(range(count), f"{count} tokens", console=Console(stderr=True), transient=True):
        tokens, position = (prompt, 0) if not found else (found[-1:], len(prompt) + len(found) - 1)
        found.append(int(np.argmax(step(np.array([tokens]), np.array([position])))))
    return found


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
    decoder = Decoder(model, args.length)

    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        with torch.no_grad():
            programs = {
                function: torch.export.export(decoder, (torch.tensor([tokens]), torch.tensor([0])), strict=False)
                for function, tokens in (("prefill", prompt), ("decode", prompt[:1]))
            }
        program = mxcomp.torch.compile(programs, parameters=Path(name) / "model")
        files = {"model": Path(name) / "model.irpa"}
        program.report.print(sys.stdout)
        print(f"compiled in {time.perf_counter() - start:.1f} s, {files['model'].stat().st_size:,} bytes of parameters")

        @torch.no_grad()
        def on_cpu(tokens: np.ndarray, position: np.ndarray) -> np.ndarray:
            return decoder(torch.from_numpy(tokens), torch.from_numpy(position)).numpy()

        start = time.perf_counter()
        with program.session(parameters=files) as session:

            def on_gpu(tokens: np.ndarray, position: np.ndarray) -> np.ndarray:
                (logits,) = session.run(tokens, position, function="prefill" if tokens.shape[1] > 1 else "decode")
                return logits

            found = generate(on_gpu, prompt, args.tokens)
        print(f"{args.tokens} tokens on the simulated gfx950 in {time.perf_counter() - start:.1f} s: {found}")
        expected = generate(on_cpu, prompt, args.tokens)
        print(f"PyTorch on the CPU, the same quantised model: {expected}")
        if tokenizer is not None:
            print(tokenizer.decode(found))

        inputs = np.array([found[-1:]]), np.array([len(prompt) + args.tokens - 1])
        profile = program.profile(*inputs, function="decode", parameters=files)
        print_times(program.report, profile)
    return 0 if found == expected else 1


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
