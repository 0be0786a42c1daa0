"""What the summary says of modules that are left in floats: each with its reason, and nothing that is MX."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import mxcomp.torch
from mxcomp.report import report, table
from mxcomp.torch import left_in_floats

K, N = 64, 96


class Conv1D(torch.nn.Module):
    """As transformers has it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(K, N))


class Router(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, K))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(N, K), torch.nn.Linear(K, N, bias=False)
        self.head.weight = self.embed.weight
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"up": torch.nn.Linear(K, K), "odd": torch.nn.Linear(40, K), "router": Router()})
            for _ in range(2)
        )
        self.conv, self.first = torch.nn.Conv1d(K, K, 3), Conv1D()
        self.attention = torch.nn.MultiheadAttention(K, 2)
        self.norm = torch.nn.LayerNorm(K)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0]["up"](x)


EXPECTED = {
    "embed": "rows are looked up in it, and not multiplied; 'head', which it was tied with, has MX weights of its own",
    "layers.0.odd": "the filter left it",
    "layers.0.router": "a Router, which has weights itself, and no torch.nn.Linear",
    "layers.1.odd": "the filter left it",
    "layers.1.router": "a Router, which has weights itself, and no torch.nn.Linear",
    "conv": "a convolution",
    "first": "a Conv1D of transformers, [K, N], and no torch.nn.Linear",
    "attention": "a MultiheadAttention, which has weights itself, and no torch.nn.Linear",
    "attention.out_proj": "the module around it reads its weights itself",
}


def replaced() -> Any:
    return mxcomp.torch.replace_linears(Net(), filter=lambda name, _: "odd" not in name)


def test_reasons() -> None:
    net = replaced()
    assert left_in_floats(net) == EXPECTED
    text = str(left_in_floats(net)).splitlines()
    assert "layers.*.odd (2): the filter left it" in text and len(text) == len(EXPECTED) - 2
    mx = mxcomp.torch.replace_linears(torch.nn.Sequential(torch.nn.Linear(K, N)))
    assert str(left_in_floats(mx)) == "nothing is left in floats"
    assert left_in_floats(torch.nn.Linear(K, N)) == {"": "nothing has replaced it"}


def test_report() -> None:
    """They are in the report of a compilation, and survive its JSON."""
    program = mxcomp.torch.compile(replaced(), (torch.randn(4, K),), compile_to="input")
    assert program.report.floats == EXPECTED
    assert report.Report.from_json(program.report.to_json()).floats == EXPECTED
    stream = io.StringIO()
    program.report.print(stream, 300)
    assert "in floats: layers.*.odd (2): the filter left it" in stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("name", "line"), [("layers.10.a", "layers.*.a: b"), ("x2.fc1", "x2.fc1: b"), ("", "the model: b")]
)
def test_lines(name: str, line: str) -> None:
    assert table.floats_lines({name: "b"}) == [line]
