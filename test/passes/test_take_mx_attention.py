"""What mxcomp-take-mx-attention takes, and that nothing is taken that is spelled otherwise in any one place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import pytest
from iree.compiler import ir

import mxcomp.ir as mx
from mxcomp import pipeline
from mxcomp.ir.attention import LINEAR, Form, attention, quantised_attention
from mxcomp.mlir import notes
from mxcomp.options import Options
from mxcomp.target import get_target

TYPES = (
    "2x128x2x32xf4E2M1FN", "2x128x2xf8E8M0FNU", "2x64x2x32xf4E2M1FN", "2x64x2xf8E8M0FNU", "2x64x2x32xf8E4M3FN",
    "2x64x2xf8E8M0FNU",
)  # fmt: skip


FORM = Form(0.25, 40, 64, "E4M3")


def spelled(form: Form = FORM, types: Sequence[str] = TYPES) -> str:
    def main(q: ir.Value, qs: ir.Value, k: ir.Value, ks: ir.Value, v: ir.Value, vs: ir.Value) -> ir.Value:
        return attention((q, qs), (k, ks), (v, vs), form)

    return str(mx.module(main, *types))


def taken(text: str, **options: object) -> tuple[str, list[dict[str, object]]]:
    with ir.Context():
        module = ir.Module.parse(text).operation
        pipeline.run(module, ("mxcomp-take-mx-attention",), Options.make(**options))
        return str(module), notes.take_attentions(module)


def test_operands_are_read_as_they_are_stored() -> None:
    """One dispatch; of scales of keys and values the order changes, and nothing of the spelling is left."""
    text, (entry,) = taken(spelled())
    assert text.count("flow.dispatch.region") == 1 and text.count("linalg.transpose") == 2
    assert re.search(r"iree_tensor_ext.bitcast %arg0 : tensor<2x128x2x32xf4E2M1FN> -> tensor<8192xi8>", text)
    assert "math.exp2" not in text.split("mxcomp.kernel")[0] and "arith.divf" not in text.split("mxcomp.kernel")[0]
    sizes = {"heads": 2, "queries": 128, "keys": 40, "size": 64, "value_size": 64}
    assert sizes.items() <= entry.items() and str(entry["ukernel"]).startswith("mx_attention_f4_f8_f8_m64_d64_causal_")


@pytest.mark.parametrize(
    "form",
    [
        Form(0.25, 64, None, "E4M3"),
        Form(0.25, 40, None, "E2M1"),
        Form(0.1, 33, 32, "E5M2"),
        Form(1.0, 64, None, "E4M3"),
        Form(1.0, 33, 64, "E2M1"),
        Form(1.0, 40, 64, "E4M3", LINEAR),
        Form(1.0, 1, None, "E4M3"),
    ],
)
def test_forms(form: Form) -> None:
    """Operands are whole, also if fewer keys are seen: of one query in front of all keys it is the first."""
    text, (entry,) = taken(spelled(form))
    assert entry.get("ukernel")
    bitcasts = re.findall(r"bitcast %arg\d+ : tensor<([0-9x]+)xf(\d+)\w+> -> tensor<([0-9x]+)xi8>", text)
    assert len(bitcasts) == len(TYPES)
    for sizes, bits, nbytes in bitcasts:
        assert prod(map(int, sizes.split("x"))) * int(bits) == 8 * prod(map(int, nbytes.split("x")))


def test_few_queries() -> None:
    """Keys are shared out among workgroups, whose parts another dispatch combines."""
    rows = "2x4x2", "2x320x2", "2x64x10"
    types = [f"{row}{kind}" for row in rows for kind in ("x32xf4E2M1FN", "xf8E8M0FNU")]
    text, (entry,) = taken(spelled(Form(1.0, 320, None, "E4M3"), types))
    assert str(entry["ukernel"]).startswith("mx_attention_f4_f4_f8_m16_d64_s3_")
    assert re.findall(r'ukernel_descriptor<"mx_attention_([a-z]+)', text) == ["f", "combine"]


OTHERWISE = {
    "the integer": ("math.ceil", "math.floor"),
    "the power": ("math.exp2", "math.exp"),
    "the largest": ("arith.maximumf %in, %out", "arith.minimumf %in, %out"),
    "the scale mode": (r"arith.constant 2097151 : i32", "arith.constant 524288 : i32"),
    "the mask": (r"arith.cmpi ult, (%\d+, %\d+ : index)", r"arith.cmpi ule, \1"),
    "the bound": ("arith.minui (%\\d+, %c40)", r"arith.maxui \1"),
    "the sum": (
        r"arith.addf (%out, %25) : f32\n      linalg.yield %26",
        r"arith.subf \1 : f32\n      linalg.yield %26",
    ),
    "the product": (r"arith.addf %out, %27", "arith.subf %out, %27"),
}


@pytest.mark.parametrize("pattern, other", OTHERWISE.values(), ids=OTHERWISE)
def test_spelled_otherwise(pattern: str, other: str) -> None:
    text, count = re.subn(pattern, other, spelled())
    assert count
    with ir.Context():
        unchanged = str(ir.Module.parse(text))
    assert taken(text) == (unchanged, [])


def test_other_codes() -> None:
    text, count = re.subn("math.roundeven", "math.floor", spelled(Form(1.0, 40, 64, "E4M3", LINEAR)))
    assert count == 1 and taken(text)[1] == []


@pytest.mark.parametrize(
    "form, options, reason",
    [
        (Form(0.25, 40, 64, "E4M3"), {"ukernels": "none"}, "without ukernels"),
        (Form(-0.25, 40, 64, "E4M3"), {}, "a number that is not positive"),
        (Form(0.25, 40, 64, "E2M3"), {}, "weights of E2M3"),
    ],
)
def test_reasons(form: Form, options: dict[str, object], reason: str) -> None:
    text, (entry,) = taken(spelled(form), **options)
    assert reason in str(entry["reason"]) and "flow.dispatch" not in text


def test_a_gpu_without_the_instruction() -> None:
    target = get_target("gfx950")
    others = tuple(each for each in target.matrix_instructions if each.name != "MFMA_SCALE_F32_16x16x128_B32")
    options = replace(Options.make(), target=replace(target, matrix_instructions=others))
    with ir.Context():
        module = ir.Module.parse(spelled()).operation
        pipeline.run(module, ("mxcomp-take-mx-attention",), options)
        (entry,) = notes.take_attentions(module)
    assert "MFMA_SCALE_F32_16x16x128_B32" in str(entry["reason"]) and "flow.dispatch" not in str(module)


def in_front(
    types: Sequence[str], formats: tuple[str, str, str] = ("E2M1", "E4M3", "E4M3"), causal: bool = True
) -> str:
    def main(q: ir.Value, k: ir.Value, v: ir.Value) -> ir.Value:
        return quantised_attention(q, k, v, formats, "even", 0.125, is_causal=True)

    return str(mx.module(main, *types))


def quantised_by(text: str, **options: object) -> tuple[str, int]:
    """Returns the elements that a kernel makes of operands, in its name, and how many operands are moved."""
    made, (entry,) = taken(text, **options)
    assert entry.get("ukernel")
    found = re.search(r'ukernel_descriptor<"mx_attention_quantise_((?:f\d_?)+)', made)
    return found[1].rstrip("_") if found else "", made.count("linalg.transpose")


QUANTISED = ("1x4x70x64xbf16", "1x2x150x64xbf16", "1x2x150x64xbf16")


def test_operands_that_are_quantised_in_front() -> None:
    """One dispatch quantises all three, from where they are stored, and nothing is moved."""
    text = in_front(QUANTISED)
    assert quantised_by(text) == ("f8_f4_f4", 0)
    made, _ = taken(text)
    assert re.findall(r"tensor.collapse_shape %arg(\d)", made) == ["2", "1", "0"] and "tensor.pad" not in made


@pytest.mark.parametrize(
    "types, formats, found",
    [
        (QUANTISED, ("E2M3", "E4M3", "E4M3"), ("f8_f6_f6", 0)),
        (QUANTISED, ("E4M3", "E2M3", "E4M3"), ("f6_f8_f8", 0)),
        (("1x2x70x96xf32", "1x2x32x96xf32", "1x2x32x128xf32"), ("E5M2", "E2M1", "E2M1"), ("f4_f8_f8", 0)),
    ],
)
def test_formats_that_are_quantised_in_front(
    types: Sequence[str], formats: tuple[str, str, str], found: tuple[str, int]
) -> None:
    assert quantised_by(in_front(types, formats)) == found


PADDED = {
    "with ones": (r"(tensor.pad [^{]*\{\n.*\n.*) 0.0", r"\1 1.0"),
    "in front": (r"low\[0, 0, 0, 0\] high\[0, 0, 10, 0\]", "low[0, 0, 10, 0] high[0, 0, 0, 0]"),
}


@pytest.mark.parametrize("pattern, other", PADDED.values(), ids=PADDED)
def test_padding_that_is_not_zeros_behind(pattern: str, other: str) -> None:
    """The kernel reads what is padded in memory."""
    text, count = re.subn(pattern, other, in_front(QUANTISED))
    made, _ = taken(text)
    assert count == 2 and re.findall(r"collapse_shape %(padded|arg)", made)[-3:] == ["padded", "padded", "arg"]


OTHER = """
  util.func public @other(%q: tensor<2x1x64xbf16>, %k: tensor<2x64x64xbf16>, %scale: f32) -> tensor<2x1x64xbf16> {
    %empty = tensor.empty() : tensor<2x1x64xbf16>
    %r = iree_linalg_ext.attention <indexing_maps = [
        affine_map<(n, t, v, d, l) -> (n, t, d)>, affine_map<(n, t, v, d, l) -> (n, l, d)>,
        affine_map<(n, t, v, d, l) -> (n, l, v)>, affine_map<(n, t, v, d, l) -> ()>,
        affine_map<(n, t, v, d, l) -> (n, t, v)>]>
        ins(%q, %k, %k, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
        outs(%empty : tensor<2x1x64xbf16>) {
    ^bb0(%score: f32):
      iree_linalg_ext.yield %score : f32
    } -> tensor<2x1x64xbf16>
    util.return %r : tensor<2x1x64xbf16>
  }
"""


def test_attention_of_both_kinds_is_reported() -> None:
    text = spelled().rstrip().removesuffix("}") + OTHER + "}"
    with ir.Context():
        module = ir.Module.parse(text).operation
        pipeline.run(module, ("mxcomp-take-mx-attention", "mxcomp-take-attention"), Options.make())
        mx_entry, other = notes.take_attentions(module)
    assert str(mx_entry["ukernel"]).startswith("mx_attention_f4_")
    assert other["reason"] == "a scale that is computed: expected a constant"
