"""Decoder layers in PyTorch drawn at random: norms, rotary embeddings, attention, caches; and their meaning.

A layer is called several times: a prompt and tokens behind it, where it has a cache. What is right is the same layer in
float64; results may be off by a few times what PyTorch's own in the layer's type are, or, where numbers are quantised
and may so fall on the other side of a rounding, by what a few of them make.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from drawing import Dice
from nodes import BLOCK, ELEMENTS, FLOATS, Node
from themes import Function
from torch import Tensor, nn
from torch.nn import functional

import mxcomp.torch
from mxcomp.formats import element_format
from mxcomp.ir.quantisation import UNQUANTISED
from mxcomp.torch import ScaledLinear

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
LOOSE = {"bf16": 2.0**-7, "f16": 2.0**-9, "f32": 2.0**-17}
LOOSE |= {"E4M3": 2.0**-5, "E5M2": 2.0**-4, "E2M3": 2.0**-4, "E2M1": 2.0**-3}
"""How far off results may be at least, by the largest of them."""
QUANTISED, TIMES = 2.0**-3, 4
KIND = {"bf16": 4, "f16": 1, "f32": 0.4}
SIZES = {64: 4, 80: 1, 96: 1, 128: 2, 32: 0.4}
HEADS = {(2, 1): 2, (4, 2): 2, (4, 1): 1, (2, 2): 1, (3, 3): 0.5, (6, 2): 0.5}
"""Heads of queries and of keys."""
HIDDEN = {64: 3, 128: 3, 256: 1}
BATCH = {1: 3, 2: 2, 3: 0.5}
PROMPT = {1: 3, 2: 1, 3: 1, 5: 1, 16: 0.7, 33: 0.7, 40: 0.3}
LENGTH = {16: 1, 40: 1, 64: 2, 72: 0.5, 96: 1, 130: 0.3}
"""Rows of a cache, or, without, tokens."""
CALLS = {1: 1, 2: 2, 3: 1}
NORMS = {"rms": 4, "plain rms": 1, "spelled rms": 3, "layer": 1.5, "plain layer": 0.7, "": 0.7}
ROTATIONS = {"half": 4, "interleaved": 2, "": 1}
FORMS = {"sdpa": 3, "sdpa of all heads": 1, "spelled": 3}
MASKS = {"truth": 3, "numbers": 2}
CACHES = {"index_copy": 3, "index_put": 2, "where": 2, "pages": 2, "rolled": 0.7, "": 2}
FORMATS = {"": 3, "E4M3": 1.5, "E5M2": 0.7, "MX E4M3": 1, "MX E5M2": 0.5, "MX E2M1": 1.5, "MX E2M3": 0.2}
"""The formats of caches: as rows are computed, or narrow, with a scale for each block in MX formats."""
FLOAT8 = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}
KINDS = {dtype: element_format(name).mlir_type for name, dtype in FLOAT8.items()}
PAGES = {8: 0.5, 16: 2, 32: 1}
LINEARS = {"plain": 5, "weight": 2, "mx": 2}
JOINED = {"apart": 3, "joined": 1}
TOKENS = {2: 1, 5: 1, 33: 1}
OTHER_BATCH = {1: 1, 2: 1, 4: 1}
DYNAMIC: dict[str, float] = {"": 1, "tokens": 2, "batch": 0.5, "batch and tokens": 0.7}
"""Sizes that the program knows, where attention and products have kernels of ours: IREE's of dynamic sizes take minutes
to simulate."""
WRITTEN: dict[str, float] = {"": 3, "tokens": 1}
"""The same where rows are written to a cache of the model, no more in later calls than in the first."""
LEFT_TO_IREE = {"data tiling:off", "ukernels:none"}
LAST = {"": 2, "gated": 3, "gelu": 1, "top-k": 1.5}


@dataclass(frozen=True)
class Choice:
    """What a layer is made of."""

    kind: str
    hidden: int
    heads: int
    key_heads: int
    size: int
    batch: int
    prompt: int
    length: int
    norm: str
    epsilon: float
    head_norm: bool
    rotation: str
    rotated: int
    form: str
    mask: str
    window: int | None
    cap: float | None
    has_sinks: bool
    cache: str
    format: str
    page: int
    dynamic: str
    packed: bool
    is_state: bool
    by_sequence: bool
    padded: bool
    joined: str
    has_bias: bool
    residual: bool
    last: str

    @property
    def scale(self) -> float:
        return self.size**-0.5

    @property
    def caches(self) -> list[str]:
        """Names of the caches: with scales of blocks those of elements and of scales."""
        parts = ("", "_scales") if self.format.startswith("MX") else ("",)
        return [name + part for name in ("keys", "values") for part in parts]


def chosen(dice: Dice) -> Choice:
    heads, key_heads = dice.pick(HEADS)
    size, cache, form = dice.pick(SIZES), dice.noted("kept rows", CACHES), dice.noted("attention", FORMS)
    length = dice.pick(LENGTH)
    spelled = form == "spelled"
    batch = dice.pick(BATCH)
    kind = dice.noted("torch", KIND)
    by_iree = kind == "f32" or not dice.features.isdisjoint(LEFT_TO_IREE)
    dynamic = "" if by_iree or cache == "rolled" else dice.noted("dynamic tokens", WRITTEN if cache else DYNAMIC)
    batch = max(batch, 2) if "batch" in dynamic else batch
    length = min(length, 40) if dynamic else length
    prompt = max(min(dice.pick(PROMPT), length // 3), 2 if dynamic else 1) if cache else length
    format_ = dice.noted("cache format", FORMATS) if cache and size % BLOCK == 0 else ""
    page = dice.pick(PAGES) if cache == "pages" else 0
    length = -(-length // page) * page if page else length
    window = dice.pick([3, 8, 20]) if dice.chance(0.3, "window") else None
    return Choice(
        kind=kind, hidden=dice.pick(HIDDEN), heads=heads, key_heads=key_heads, size=size,
        batch=batch, prompt=prompt, length=length, norm=dice.noted("norm", NORMS), epsilon=dice.pick([1e-5, 1e-6, 0.1]),
        head_norm=dice.chance(0.2, "norm of heads"), rotation=dice.noted("rotary", ROTATIONS),
        rotated=size // 2 if dice.chance(0.25, "rotary:partial") else size, form=form, mask=dice.noted("mask", MASKS),
        window=window, cap=dice.pick([5.0, 30.0]) if spelled and dice.chance(0.3, "cap") else None,
        has_sinks=spelled and dice.chance(0.4, "sinks"), cache=cache, format=format_, page=page,
        dynamic=dynamic, packed=bool(dynamic) and not cache and dice.chance(0.5, "mask:packed"),
        is_state=cache not in ("", "rolled") and (bool(dynamic) or dice.chance(0.5, "state")),
        by_sequence=cache in ("index_put", "where", "pages") and batch > 1 and dice.chance(0.5, "position:by sequence"),
        padded=not window and dice.chance(0.25, "padded"), joined=dice.noted("qkv", JOINED),
        has_bias=dice.chance(0.3, "bias"), residual=dice.chance(0.4, "residual"), last=dice.noted("behind", LAST),
    )  # fmt: skip


class Scaled(nn.Module):
    """A linear layer of MX, which computes from f32 where all is in float64."""

    def __init__(self, inner: ScaledLinear) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.float()).double() if x.dtype == torch.float64 else self.inner(x)


class Norm(nn.Module):
    """A norm of the last dimension."""

    def __init__(self, name: str, size: int, epsilon: float, numbers: Callable[..., Tensor]) -> None:
        super().__init__()
        self.name, self.epsilon = name, epsilon
        self.weight = None if "plain" in name or not name else nn.Parameter(1 + numbers(size) / 4)
        self.bias = nn.Parameter(numbers(size) / 4) if name == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.name == "spelled rms":
            wide = x.double() if x.dtype == torch.float64 else x.float()
            return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)
        if self.name.endswith("rms"):
            return functional.rms_norm(x, x.shape[-1:], self.weight, self.epsilon)
        return functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon) if self.name else x


class Layer(nn.Module):
    """Gets tokens [batch, tokens, hidden], one position or one for each sequence, perhaps lengths and caches."""

    def __init__(self, choice: Choice, dice: Dice) -> None:
        super().__init__()
        self.choice = it = choice
        generator = torch.Generator().manual_seed(int(dice.numbers.integers(2**31)))

        def numbers(*sizes: int) -> Tensor:
            return torch.randn(sizes, generator=generator)

        def linear(inputs: int, outputs: int, bias: bool = False) -> nn.Module:
            made = nn.Linear(inputs, outputs, bias)
            made.weight.data = numbers(outputs, inputs) * numbers(outputs, 1) * inputs**-0.5
            if bias:
                made.bias.data = numbers(outputs)
            kind = "mx" if it.dynamic else dice.noted("linear", LINEARS)
            if kind == "plain":
                return made
            formats = dice.pick(["E2M1", "E4M3"]), UNQUANTISED if kind == "weight" else dice.pick(["E2M1", "E4M3"])
            return Scaled(ScaledLinear.from_linear(made, *formats))

        widths = [it.heads * it.size, it.key_heads * it.size, it.key_heads * it.size]
        self.widths = widths
        self.norm, self.norm2 = (Norm(it.norm, it.hidden, it.epsilon, numbers) for _ in range(2))
        self.head_norms = nn.ModuleList(
            Norm("spelled rms", it.size, it.epsilon, numbers) for _ in range(2 * it.head_norm)
        )
        joined = [sum(widths)] if it.joined == "joined" else widths
        self.qkv = nn.ModuleList(linear(it.hidden, width, it.has_bias) for width in joined)
        self.out = linear(widths[0], it.hidden, it.has_bias)
        self.sinks = nn.Parameter(3 * numbers(it.heads)) if it.has_sinks else None
        inner = 2 * it.hidden
        shapes = {"gated": [(0, 1), (0, 1), (1, 0)], "gelu": [(0, 1), (1, 0)]}.get(it.last, [])
        self.mlp = nn.ModuleList(linear((it.hidden, inner)[a], (it.hidden, inner)[b]) for a, b in shapes)
        if it.last == "top-k":
            self.router = nn.Parameter(torch.randint(-3, 4, (16, it.hidden), generator=generator).float())
            self.experts = nn.Parameter(numbers(16, it.hidden))
        frequencies = 10000.0 ** (-torch.arange(0, it.rotated, 2) / it.rotated)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def keep(self, dtype: torch.dtype) -> None:
        """Registers caches of zeros, of this type where they are not narrow."""
        for name, cache in zip(self.choice.caches, self.empty(dtype), strict=True):
            self.register_buffer(name, cache)

    def empty(self, dtype: torch.dtype) -> list[Tensor]:
        return self.caches(lambda *sizes: torch.zeros(sizes, dtype=dtype))

    def caches(self, numbers: Callable[..., Tensor]) -> list[Tensor]:
        """Caches of numbers: [batch, heads, length, size], or pages, of which there is one more than are in use."""
        it = self.choice
        pages = it.batch * it.length // it.page + 1 if it.page else 0
        sizes = (pages, it.page, it.key_heads) if it.page else (it.batch, it.key_heads, it.length)
        return [part for _ in "kv" for part in self.stored(numbers(*sizes, it.size))]

    def stored(self, rows: Tensor) -> list[Tensor]:
        """Rows as caches have them: elements, and perhaps scales."""
        *mx, format_ = self.choice.format.split(" ")
        if not format_:
            return [rows]
        if mx:
            return [*mxcomp.torch.quantise(rows.float() if rows.dtype == torch.float64 else rows, format_)]
        return [rows.to(FLOAT8[format_])]

    def read(self, parts: list[Tensor], table: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Keys or values [batch, heads, length, size]."""
        it = self.choice
        if table is not None:
            parts = [x[table].reshape(it.batch, -1, *x.shape[2:]).transpose(1, 2) for x in parts]
        if len(parts) == 1:
            return parts[0].to(dtype) if it.format else parts[0]
        (elements, scales), wide = parts, torch.float32 if dtype == torch.float64 else dtype
        return mxcomp.torch.dequantise(elements, scales, it.format.removeprefix("MX "), wide).to(dtype)

    def rotation(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [batch or 1, 1, tokens, rotated / 2]."""
        angles = at[:, None, :, None].float() * self.frequencies.float()
        return angles.cos(), angles.sin()

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        it, kind = self.choice, x.dtype
        x, rest = x[..., : it.rotated], x[..., it.rotated :]
        if it.rotation == "half":
            cos, sin = (torch.cat([table, table], -1).to(kind) for table in (cos, sin))
            first, second = x.chunk(2, -1)
            x = x * cos + torch.cat([-second, first], -1) * sin
        else:
            a, b = x[..., ::2], x[..., 1::2]
            cos, sin = cos.to(kind), sin.to(kind)
            x = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        return torch.cat([x, rest], -1) if rest.shape[-1] else x

    def written(self, old: Tensor, new: Tensor, at: Tensor, table: Tensor | None) -> Tensor:
        """A cache [batch, heads, length, size] with rows at places [batch or 1, tokens]."""
        it, tokens = self.choice, new.shape[2]
        if old.dtype in FLOAT8.values():
            whole = self.written(old.view(torch.uint8), new.view(torch.uint8), at, table)
            return whole.view(old.dtype)
        if table is not None:
            slots = table.gather(1, (at // it.page).expand(it.batch, -1)) * it.page + at % it.page
            rows = new.transpose(1, 2).reshape(-1, it.key_heads, new.shape[3])
            return old.view(-1, *old.shape[2:]).index_copy(0, slots.reshape(-1), rows).view_as(old)
        if it.cache == "rolled":
            return torch.cat([old[:, :, tokens:], new], 2)
        if it.cache == "index_copy":
            return old.index_copy(2, at[0], new)
        if it.cache == "where":
            place = torch.arange(it.length)[None] - at[:, :1]
            meant = (place >= 0) & (place < tokens)
            if tokens > 1:
                rows = place.clamp(0, tokens - 1)[:, None, :, None].expand(it.batch, it.key_heads, -1, new.shape[3])
                new = new.gather(2, rows)
            return torch.where(meant[:, None, :, None], new, old)
        old = old.clone()
        if it.by_sequence:
            old[torch.arange(it.batch)[:, None], :, at] = new.transpose(1, 2)
        else:
            old[:, :, at[0]] = new
        return old

    def seen(self, at: Tensor, keys: int, lengths: Tensor | None) -> Tensor:
        """Which keys queries see, [batch or 1, 1, tokens, keys]."""
        it, key = self.choice, torch.arange(keys)
        if it.cache == "rolled":  # whose last row is that of the last token
            key = key - keys + 1 + at[:, -1:, None]
        query = at[:, :, None]
        found = (key <= query) & (key >= 0)
        if it.window is not None:
            found = found & (key > query - it.window)
        if it.packed:  # where positions do not go up by 1 another sequence begins
            sequence = (torch.diff(at, prepend=at[:, :1] - 1) != 1).cumsum(-1)
            found = found & (sequence[:, :, None] == sequence[:, None])
        if lengths is not None:
            found = found & (key < lengths[:, None, None])
        return found[:, None]

    def attention(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        it = self.choice
        lowest = torch.finfo(torch.bfloat16).min if q.dtype != torch.float16 else torch.finfo(torch.float16).min
        mask = seen if it.mask == "truth" else torch.where(seen, 0.0, lowest).to(q.dtype)
        group = it.heads // it.key_heads
        if it.form == "sdpa":
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=group > 1)
        k, v = (x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v))
        if it.form == "sdpa of all heads":
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=it.scale)
        scores = q @ k.transpose(2, 3) * it.scale
        if it.cap is not None:
            scores = torch.tanh(scores / it.cap) * it.cap
        scores = scores.masked_fill(~seen, lowest) if it.mask == "truth" else scores + mask
        if self.sinks is not None:
            sinks = self.sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], 1)
            scores = torch.cat([scores, sinks], -1)
            scores = scores - scores.max(-1, keepdim=True).values
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        return scores.softmax(-1, dtype=wide).to(q.dtype)[..., : v.shape[2]] @ v

    def behind(self, x: Tensor, given: Tensor) -> Tensor:
        """What follows attention; experts are chosen by the layer's argument, of whole numbers: so their order is
        exact."""
        if self.choice.last == "top-k":
            scores = given.float() @ self.router.float().T + torch.arange(16) / 16
            weights, places = scores.topk(3)
            return x + ((weights / 8).softmax(-1).to(x.dtype)[..., None] * self.experts[places]).sum(-2)
        y = self.norm2(x)
        if self.choice.last == "gated":
            gate, up, down = self.mlp
            return x + down(functional.silu(gate(y)) * up(y))
        if self.choice.last == "gelu":
            return x + self.mlp[1](functional.gelu(self.mlp[0](y)))
        return x

    def forward(
        self, x: Tensor, position: Tensor, lengths: Tensor | None = None, before: Tensor | None = None,
        table: Tensor | None = None, **caches: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        it, (batch, tokens, _) = self.choice, x.shape
        given = x
        x = x if before is None else x + before
        normed = self.norm(x)
        parts = [layer(normed) for layer in self.qkv]
        if len(parts) == 1:
            parts = list(parts[0].split(self.widths, -1))
        q, k, v = (part.view(batch, tokens, -1, it.size).transpose(1, 2) for part in parts)
        if it.head_norm:
            q, k = (norm(part) for norm, part in zip(self.head_norms, (q, k), strict=True))
        at = torch.arange(tokens)[None] + (0 if it.packed else position[:, None])
        if it.rotation:
            tables = self.rotation(at)
            q, k = (self.rotated(part, *tables) for part in (q, k))
        kept: list[Tensor] = []
        if it.cache:
            old = [self.get_buffer(name) if it.is_state else caches[name] for name in it.caches]
            rows = [part for x in (k, v) for part in self.stored(x)]
            kept = [self.written(*pair, at, table) for pair in zip(old, rows, strict=True)]
            half = len(kept) // 2
            k, v = (self.read(parts, table, q.dtype) for parts in (kept[:half], kept[half:]))
            for cache, new in zip(old if it.is_state else (), kept, strict=False):
                cache.view(new.dtype).copy_(new)
        found = self.attention(q, k, v, self.seen(at, k.shape[2], lengths))
        x = x + self.out(found.transpose(1, 2).reshape(batch, tokens, -1))
        x = self.behind(x, given)
        return (x, *kept) if not it.is_state else (x,)


def draw(dice: Dice) -> tuple[str, list[list[Function]]]:
    """The text of a module of one layer, and the functions that are called, one behind the other."""
    choice = chosen(dice)
    dtype = DTYPES[choice.kind]
    layer = Layer(choice, dice).eval().requires_grad_(False).to(dtype)
    exact = copy.deepcopy(layer).double()
    exact.frequencies = layer.frequencies = layer.frequencies.float()
    if choice.is_state:
        layer.keep(dtype)
        exact.keep(torch.float64)
    model = copy.deepcopy(layer)  # whose state stays as it is at first
    count, may_part = dice.pick(CALLS) if choice.cache else 1, choice.prompt > 1 and not choice.dynamic
    later = [("token", 1) if may_part and dice.chance(0.15, "two functions") else ("main", choice.prompt)] * (count - 1)
    if choice.dynamic:
        later = [("main", int(dice.numbers.integers(1, choice.prompt + 1))) for _ in later]
    calls, batches = [("main", choice.prompt), *later], [choice.batch] * count
    if "tokens" in choice.dynamic and not choice.cache:
        calls.append(("main", dice.pick(TOKENS)))
        batches.append(dice.pick(OTHER_BATCH) if "batch" in choice.dynamic else choice.batch)
    functions: dict[str, Any] = {}
    rounds: list[list[Function]] = []
    caches: tuple[Tensor, ...] = ()
    if choice.cache and not choice.is_state:
        caches = tuple(layer.caches(lambda *sizes: torch.from_numpy(dice.numbers.normal(size=sizes)).to(dtype)))
    table = torch.from_numpy(dice.numbers.permutation(choice.batch * choice.length // (choice.page or 1)))
    table = table.reshape(choice.batch, -1) + 1
    first = int(dice.numbers.integers(0, max(1, choice.length - 3 * choice.prompt))) if choice.by_sequence else 0
    position = torch.tensor([first, *([0] * (choice.batch - 1))] if choice.by_sequence else [0])
    if choice.by_sequence and choice.batch > 1:
        position = position.roll(1)
    for (name, tokens), batch in zip(calls, batches, strict=True):
        given = _arguments(replace(choice, batch=batch), dice, tokens, position, dtype)
        if choice.page:
            given["table"] = table
        if caches:
            given |= dict(zip(choice.caches, caches, strict=True))
        if name not in functions:
            dims = {axis: torch.export.Dim(each, max=512) for axis, each in enumerate(("batch", "tokens"))}
            sizes = {axis: dim for axis, dim in dims.items() if dim.__name__ in choice.dynamic}
            shapes = {key: sizes if key in ("x", "before") else {} for key in given} if sizes else None
            if shapes and "lengths" in given:
                shapes["lengths"] = {axis: dim for axis, dim in sizes.items() if axis == 0}
            functions[name] = torch.export.export(model, (), given, dynamic_shapes=shapes, strict=False)
        with torch.no_grad():
            right = exact(**{key: each.double() if each.dtype == dtype else each for key, each in given.items()})
            found = layer(**given)
        results = [_node(choice, layer, *pair) for pair in zip(right, found, strict=True) if pair[1].dtype == dtype]
        if choice.format:
            at = position[:, None] + torch.arange(tokens)
            results += [_bytes(layer, each, at, given.get("table")) for each in found[1:]]
        caches = found[1:]
        rounds.append([Function(name, [_array(each) for each in given.values()], results)])
        position = position + tokens * bool(choice.cache)
    return str(mxcomp.torch.export(functions)), rounds


def _arguments(choice: Choice, dice: Dice, tokens: int, position: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    def whole() -> Tensor:
        data = dice.numbers.integers(-8, 9, (choice.batch, tokens, choice.hidden))
        return torch.from_numpy(data.astype(np.float32)).to(dtype) / 4

    given = {"x": whole(), "position": position}
    if choice.padded:
        most = int(position.max()) + tokens
        given["lengths"] = torch.from_numpy(dice.numbers.integers(1, most + 1, choice.batch))
    if choice.residual:
        given["before"] = whole()
    return given


def _node(choice: Choice, layer: Layer, exact: Tensor, found: Tensor) -> Node:
    data, off = exact.numpy(), (found.double() - exact).abs().max().item()
    inputs = {each.formats[1] for each in layer.modules() if isinstance(each, ScaledLinear)}
    kinds = {choice.kind, *choice.format.split(" ")[-1:]} - {""} | inputs & {UNQUANTISED}
    loose = QUANTISED if inputs - {UNQUANTISED} else max(LOOSE[kind] for kind in kinds)
    return Node(None, data, choice.kind, np.full(data.shape, max(TIMES * off, loose * exact.abs().max().item())))


def _bytes(layer: Layer, cache: Tensor, at: Tensor, table: Tensor | None) -> Node:
    """A narrow cache, of whose new rows nothing is known: they may be on the other side of a rounding."""
    new = torch.ones(layer.choice.batch, layer.choice.key_heads, at.shape[1], cache.shape[-1], dtype=torch.uint8)
    is_new = layer.written(torch.zeros_like(cache, dtype=torch.uint8), new, at, table).bool()
    kind = KINDS.get(cache.dtype, "i8")
    return Node(None, cache.view(torch.uint8).numpy(), kind, np.where(is_new.numpy(), np.nan, 0.0))


def _array(tensor: Tensor) -> np.ndarray:
    kind = next((name for name, dtype in DTYPES.items() if dtype == tensor.dtype), None)
    if tensor.dtype in FLOAT8.values():
        return tensor.view(torch.uint8).numpy().view(ELEMENTS[KINDS[tensor.dtype]])
    return tensor.numpy() if kind is None else tensor.float().numpy().astype(FLOATS[kind])
