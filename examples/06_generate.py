# REQUIRES: torch, transformers
# slow: with pytest -m slow only
# RUN: %python %s
"""A decoder of transformers, Llama or GPT-OSS, from its first token to its last on the simulated gfx950.

python examples/06_generate.py                           # Llama, tiny, random weights
python examples/06_generate.py --model=gpt-oss --tokens=4
python examples/06_generate.py --dtype=bfloat16 --cache=MXFP4        # or E4M3, MXFP8, pages
python examples/06_generate.py --checkpoint=DIR --prompt="Hello" # as published: config.json, .safetensors

One program has two functions, which share their weights: `prefill` takes the prompt, `decode` one token. They share the
cache of keys and values too, of a fixed length: buffers of the model, which stay in a session between its calls, and in
which a token writes its own rows alone, as they are, in a narrow format, or in pages. Linear layers and experts run
through our ukernels. The tokens are compared with those of the same quantised model in PyTorch on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
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


class Rows(torch.nn.Module):
    """Keys or values of a layer as a cache has them, [1, heads, length, size]."""

    def __init__(self, heads: int, length: int, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.shape, self.dtype = (1, heads, length, size), dtype
        self.add("rows", self.shape, dtype)

    def add(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.register_buffer(name, torch.zeros(shape, dtype=dtype), persistent=False)

    def put(self, at: torch.Tensor, new: torch.Tensor) -> None:
        self.rows.index_copy_(2, at, new)

    def read(self) -> torch.Tensor:
        return self.rows


class Fp8Rows(Rows):
    """Each number is E4M3, without a scale."""

    def __init__(self, heads: int, length: int, size: int, dtype: torch.dtype) -> None:
        super().__init__(heads, length, size, dtype)
        self.add("rows", self.shape, torch.float8_e4m3fn)

    def put(self, at: torch.Tensor, new: torch.Tensor) -> None:
        self.rows[:, :, at] = new.to(torch.float8_e4m3fn)

    def read(self) -> torch.Tensor:
        return self.rows.to(self.dtype)


class MxRows(Rows):
    """Blocks of 32 along a row have a scale."""

    def __init__(self, format: str, heads: int, length: int, size: int, dtype: torch.dtype) -> None:
        super().__init__(heads, length, size, dtype)
        self.format = format
        for name, each in zip(("rows", "scales"), mxcomp.torch.quantise(self.rows, format), strict=True):
            self.add(name, tuple(each.shape), torch.uint8)

    def put(self, at: torch.Tensor, new: torch.Tensor) -> None:
        rows, scales = mxcomp.torch.quantise(new, self.format)
        self.rows.index_copy_(2, at, rows)
        self.scales.index_copy_(2, at, scales)

    def read(self) -> torch.Tensor:
        return mxcomp.torch.dequantise(self.rows, self.scales, self.format, self.dtype)


class PagedRows(Rows):
    """Rows of all heads are in pages, in an order that a table has: here backwards."""

    page = 16

    def __init__(self, heads: int, length: int, size: int, dtype: torch.dtype) -> None:
        super().__init__(heads, length, size, dtype)
        pages = -(-length // self.page)
        self.add("rows", (pages, self.page, heads, size), dtype)
        self.register_buffer("table", torch.arange(pages).flip(0)[None], persistent=False)

    def put(self, at: torch.Tensor, new: torch.Tensor) -> None:
        slots = self.table[0, at // self.page] * self.page + at % self.page
        self.rows.view(-1, *self.rows.shape[2:]).index_copy_(0, slots, new[0].transpose(0, 1))

    def read(self) -> torch.Tensor:
        return self.rows[self.table].flatten(1, 2).transpose(1, 2)


CACHES: dict[str, Callable[..., Rows]] = {
    "plain": Rows, "pages": PagedRows, "E4M3": Fp8Rows,
    "MXFP8": partial(MxRows, "E4M3"), "MXFP4": partial(MxRows, "E2M1"),
}  # fmt: skip
DISTANCE = {"float32": 1e-3, "bfloat16": 0.3}
"""How far from PyTorch's largest logit the logit of another token may be, as a part of their spread: what is quantised
magnifies the last bits."""


class Slots(CacheLayerMixin):
    """The caches of a layer, which new rows are written into, at `at`."""

    def __init__(self, keys: Rows, values: Rows, at: torch.Tensor) -> None:
        super().__init__()
        self.of_keys, self.of_values, self.at, self.is_initialized = keys, values, at, True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.of_keys.put(self.at, keys)
        self.of_values.put(self.at, values)
        return self.of_keys.read(), self.of_values.read()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.of_keys.shape[2]


class Decoder(torch.nn.Module):
    """Logits of the token behind the last, from tokens and where they begin. It keeps what came before."""

    def __init__(self, model: Any, length: int, cache: str) -> None:
        super().__init__()
        self.model, self.length = model, length
        config = model.config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        sizes = config.num_key_value_heads, length, size, model.dtype
        self.keys, self.values = (
            torch.nn.ModuleList(CACHES[cache](*sizes) for _ in range(config.num_hidden_layers)) for _ in range(2)
        )

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """tokens int64 [1, count], position int64 [1]."""
        at = position + torch.arange(tokens.shape[1])
        slots = [Slots(keys, values, at) for keys, values in zip(self.keys, self.values, strict=True)]
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


def tiny(name: str, dtype: str = "float32") -> Any:
    """A model with random weights, quantised here."""
    make, config = MODELS[name]
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = make(config).eval().to(getattr(torch, dtype))
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


def generate(step: Callable[..., Any], prompt: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
    """Tokens with the highest logits, one after the other, and these logits."""
    found, logits = list[int](), list[np.ndarray]()
    for _ in track(range(count), f"{count} tokens", console=Console(stderr=True), transient=True):
        tokens, position = (prompt, 0) if not found else (found[-1:], len(prompt) + len(found) - 1)
        logits.append(step(np.array([tokens]), np.array([position])))
        found.append(int(np.argmax(logits[-1])))
    return found, logits


def distance(found: list[int], expected: list[int], logits: list[np.ndarray]) -> float:
    """How far below the largest logit that of the first other token is, as a part of their spread; 0: there is none."""
    others = (i for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)) if ours != theirs)
    return next((float(np.ptp([*logits[i][[found[i], expected[i]]]]) / np.std(logits[i])) for i in others), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama", help="which tiny model, without --checkpoint")
    parser.add_argument("--checkpoint", type=Path, help="a folder with config.json and .safetensors")
    parser.add_argument("--prompt", default="5,17,300,42,7,101", help="numbers of tokens, or text with --checkpoint")
    parser.add_argument("--tokens", type=int, default=4, help="how many to generate (default: 4)")
    parser.add_argument("--length", type=int, default=32, help="of the cache (default: 32)")
    parser.add_argument(
        "--cache", choices=CACHES, default="plain", help="how keys and values are kept (default: plain)"
    )
    parser.add_argument("--dtype", choices=DISTANCE, default="float32", help="of the tiny model (default: float32)")
    args = parser.parse_args()

    model = tiny(args.model, args.dtype) if args.checkpoint is None else published(args.checkpoint)
    is_text = not args.prompt.replace(",", "").isdigit()
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint) if is_text else None
    prompt = [int(token) for token in (tokenizer(args.prompt).input_ids if is_text else args.prompt.split(","))]
    if len(prompt) + args.tokens > args.length:
        parser.error(f"--length={args.length}: expected {len(prompt) + args.tokens} or more")
    decoder = Decoder(model, args.length, args.cache)

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

            found, _ = generate(on_gpu, prompt, args.tokens)
        print(f"{args.tokens} tokens on the simulated gfx950 in {time.perf_counter() - start:.1f} s: {found}")
        expected, logits = generate(on_cpu, prompt, args.tokens)
        apart = distance(found, expected, logits)
        print(f"PyTorch on the CPU, the same quantised model: {expected}; {apart:.3g} apart")
        if tokenizer is not None:
            print(tokenizer.decode(found))

        inputs = np.array([found[-1:]]), np.array([len(prompt) + args.tokens - 1])
        profile = program.profile(*inputs, function="decode", parameters=files)
        print_times(program.report, profile)
    return 0 if apart <= DISTANCE[args.dtype] else 1


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
