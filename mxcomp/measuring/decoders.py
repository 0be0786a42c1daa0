"""Builds layers of transformers' decoders at real dimensions, without weights, for the call that generates one token.

They are built on the device meta, quantised there, and then get memory that nobody writes or reads. A layer's program
takes what the layer before it left, the position, and the layer's cache, which it returns with the new row in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

from mxcomp.errors import InputError, MxcompError
from mxcomp.selection.grouped import expected
from mxcomp.torch import replace_linears
from mxcomp.torch.experts import ScaledExperts

_SLIDING = ("sliding_attention", "chunked_attention")
_DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Piece:
    """A part of a decoder: its head, or one of several equal layers.

    Attributes:
        name: "dense, full attention", "experts, sliding attention", "head".
        count: How many of them a token goes through.
        module: On the CPU, its weights in memory that is not written.
        sizes: Of a token's activations, given and made.
        caches: [heads, slots, size] of keys and of values for each sequence; of the head none.
        top_k: Experts of a token.
    """

    name: str
    count: int
    module: torch.nn.Module
    sizes: tuple[int, int]
    caches: tuple[tuple[int, int, int], ...] = ()
    top_k: int = 0

    def arguments(self, batch: int, position: int) -> tuple[torch.Tensor, ...]:
        """Returns the arguments of a call for so many sequences: memory that is never written, except for the
        position, and the slot of its row, which is used cyclically. Nothing is computed, so the program cannot do it.
        """
        x = torch.empty(batch, 1, self.sizes[0], dtype=_DTYPE)
        if not self.caches:
            return (x,)
        at = position % self.caches[0][1]
        caches = (torch.empty(batch, *sizes, dtype=_DTYPE) for sizes in self.caches)
        return x, torch.tensor([position]), torch.tensor([at]), *caches

    @property
    def experts(self) -> ScaledExperts | None:
        """The mixture of experts, if there is one."""
        return next((each for each in self.module.modules() if isinstance(each, ScaledExperts)), None)

    @property
    def floats(self) -> frozenset[str]:
        """The names of linear layers without MX weights."""
        return frozenset(name for name, each in self.module.named_modules() if isinstance(each, torch.nn.Linear))

    def weight_bytes(self, batch: int) -> tuple[float, float]:
        """Returns the bytes of weights that are stored, and that are read for so many tokens: only chosen experts are
        read."""
        stored = float(sum(each.nbytes for each in self.module.state_dict().values()))
        if self.experts is None:
            return stored, stored
        count = len(self.experts.gate_up_proj_bias)
        active = expected(batch, count, self.top_k, 16).active
        return stored, stored - (1 - active / count) * sum(each.nbytes for each in self.experts.state_dict().values())

    @property
    def cache_bytes(self) -> tuple[int, int]:
        """The bytes of cache that are read and written for a sequence."""
        read = _DTYPE.itemsize * sum(heads * slots * size for heads, slots, size in self.caches)
        return read, _DTYPE.itemsize * sum(heads * size for heads, _, size in self.caches)

    @property
    def activation_bytes(self) -> tuple[int, int]:
        """Returns the bytes of activations that are read and written for a token."""
        given, made = self.sizes
        return _DTYPE.itemsize * given, _DTYPE.itemsize * made


class _Cache(torch.nn.Module):
    """A cache, [batch, heads, slots, size], that inserts a new row; a module, so that profiles name it."""

    def forward(self, old: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return old.index_copy(2, at, new)


class _Slots(CacheLayerMixin):
    """The keys and values of a layer; the new ones go into the slot `at`."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor, cache: torch.nn.Module) -> None:
        super().__init__()
        self.keys, self.values, self.at, self.cache, self.is_initialized = keys, values, at, cache, True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None: ...

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = self.cache(self.keys, keys, self.at), self.cache(self.values, values, self.at)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class _Kept(torch.nn.Module):
    """Replaces a cache and returns the keys and values of the token alone."""

    def forward(self, old: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return new


class _Layer(torch.nn.Module):
    """Returns a layer's output and its new cache."""

    def __init__(self, layer: torch.nn.Module, rotary: torch.nn.Module) -> None:
        super().__init__()
        self.layer, self.rotary, self.cache = layer, rotary, _Cache()

    def forward(
        self, x: torch.Tensor, position: torch.Tensor, at: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        slots = _Slots(keys, values, at, self.cache)
        seen = (torch.arange(keys.shape[2])[None] <= position[:, None])[None, None]
        mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x.dtype)
        return self.call(x, position, slots, mask), slots.keys, slots.values

    def call(
        self, x: torch.Tensor, position: torch.Tensor, slots: CacheLayerMixin, mask: torch.Tensor | None
    ) -> torch.Tensor:
        positions = position[None]
        found = self.layer(
            x, attention_mask=mask, position_ids=positions, past_key_values=Cache([slots]), use_cache=True,
            position_embeddings=self.rotary(x, positions),
        )  # fmt: skip
        return found[0] if isinstance(found, tuple) else found


class _Head(torch.nn.Module):
    """Computes logits from the last layer's output."""

    def __init__(self, norm: torch.nn.Module, product: torch.nn.Module) -> None:
        super().__init__()
        self.norm, self.product = norm, product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(self.norm(x))


def configuration(values: Mapping[str, Any], name: str) -> PreTrainedConfig:
    """Returns a config.json as transformers reads it. Raises InputError for one that is no decoder."""
    kind = values.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"{name}: no 'model_type': expected a configuration of a decoder of transformers")
    with explained(f"{name}: no configuration of transformers {kind!r}"):
        found = AutoConfig.for_model(**values)
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        if not isinstance(size := getattr(found, field, None), int) or size < 1:
            raise InputError(f"{name}: {field} is {size}: expected 1 or more")
        if field not in values:
            raise InputError(f"{name}: no '{field}'")
    return found


def pieces(config: PreTrainedConfig, context: int, name: str, types: tuple[str, str]) -> Iterator[Piece]:
    """Returns one of each kind of layer of a decoder, and its head; `types`: of activations and of weights.

    Raises InputError where the model is not built as decoders of transformers mostly are.
    """
    with torch.device("meta"), explained(f"{name}: no decoder of transformers {config.model_type!r}"):
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, dtype=_DTYPE).eval()
        if model._supports_sdpa:
            model.set_attn_implementation("sdpa")
        base, head = model.base_model, model.get_output_embeddings()
        layers, norm = list(base.layers), base.norm
    hidden, kinds = config.hidden_size, dict[Any, list[int]]()
    for number, layer in enumerate(layers):
        shapes = tuple((key, value.shape) for key, value in layer.state_dict().items())
        kinds.setdefault((_attention(config, number), shapes), []).append(number)
    for (attention, _), numbers in kinds.items():
        layer = layers[numbers[0]]
        for each in layer.modules():
            if hasattr(each, "layer_idx"):
                each.layer_idx = 0
        prefix = next(key for key, each in model.named_modules() if each is layer)
        module = _Layer(layer, base.rotary_emb)
        with explained(f"{name}: layer {numbers[0]} cannot be called as decoders of transformers mostly are"):
            sizes = _kept(module, config)
            replace_linears(layer, types[1], types[0], filter=_quantised(config, prefix), on_meta=True)
        module.rotary = type(base.rotary_emb)(config)  # frequencies are computed, and in no checkpoint
        slots = min(context, _window(config) or context) if attention in _SLIDING else context
        what = "experts" if any(isinstance(each, ScaledExperts) for each in layer.modules()) else "dense"
        yield Piece(
            f"{what}, {attention.replace('_', ' ')}", len(numbers), _filled(module), (hidden, hidden),
            tuple((heads, slots, size) for heads, size in sizes), getattr(config, "num_experts_per_tok", 0),
        )  # fmt: skip
    yield Piece("head", 1, _filled(_Head(norm, head)), (hidden, config.vocab_size))


def _attention(config: PreTrainedConfig, number: int) -> str:
    """Returns the kind of a layer's attention: of configurations that name none, what transformers' caches go by."""
    if kinds := getattr(config, "layer_types", None):
        return str(kinds[number])
    named = zip(("sliding_window", "attention_chunk_size"), _SLIDING, strict=True)
    return next((kind for name, kind in named if getattr(config, name, None)), "full_attention")


def _window(config: PreTrainedConfig) -> int | None:
    """Returns the size of a layer's sliding window, if it has one."""
    return getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)


def _kept(module: _Layer, config: PreTrainedConfig) -> list[tuple[int, int]]:
    """Returns the heads and sizes of keys and values that a layer caches of a token."""
    with torch.device("meta"), torch.no_grad():
        none, position = torch.empty(0), torch.zeros(1, dtype=torch.int64)
        slots = _Slots(none, none, position, _Kept())
        module.call(torch.empty(1, 1, config.hidden_size, dtype=_DTYPE), position, slots, None)
    return [(each.shape[1], each.shape[3]) for each in (slots.keys, slots.values)]


def _quantised(config: PreTrainedConfig, prefix: str) -> Callable[[str, torch.nn.Linear], bool]:
    """Returns which linear layers get MX weights: all that a published checkpoint quantises."""
    told = getattr(config, "quantization_config", None) or {}
    kept = [each.replace(".*.", f".{prefix.rpartition('.')[2]}.") for each in told.get("modules_to_not_convert") or ()]
    return lambda name, _: not any(f"{prefix}.{name}.".startswith(f"{each}.") for each in kept)


def _filled(module: torch.nn.Module) -> torch.nn.Module:
    """Replaces tensors on the device meta by memory; pages that are never touched take none."""

    def memory(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="cpu") if tensor.is_meta else tensor

    return module._apply(memory)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns errors of transformers and of PyTorch about unsupported models into the user's errors."""
    try:
        yield
    except MxcompError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
