"""Scaled matmuls of any shape: batches, dynamic sizes, operands in any order in memory, slices; inputs and results.

Written apart from mxcomp, as `modules` is, whose numbers it uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

import numpy as np
from modules import BITS, FP4, VALUES, Bytes
from numpy.typing import NDArray

HERE = Path(__file__).parent
LHS, RHS = 0, 1


@dataclass(frozen=True)
class Shaped:
    """[batch, m, k] × [batch, n, k]ᵀ, its elements finite and not zero, no two scales alike in a row.

    `orders` say how operands lie in memory: r are rows, k blocks, i the 32 elements of a block, b the batch, outermost
    first; LHS, RHS, LHS scales, RHS scales. An operand without b is the same for the whole batch. `dynamic` names sizes
    that the module leaves open, of m, n, k and b.

    `sliced` names operands, by index, that are every second of all but the 32 elements of a larger tensor;
    `byte_sliced` those of which this is so in bytes, before they are given their type; `cast` those that lose their
    static sizes and get them again.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    orders: tuple[str, str, str, str] = ("rki", "rki", "rk", "rk")
    types: tuple[str, str] = (FP4, FP4)
    dynamic: str = ""
    constant_rhs: bool = False
    sliced: str = ""
    byte_sliced: str = ""
    cast: str = ""
    seed: int = 0

    @property
    def bound(self) -> float:
        """Error of K f32 additions and of rounding each product (Higham, Accuracy and Stability, §3.1)."""
        return self.k * 2.0**-24

    @cached_property
    def codes(self) -> tuple[Bytes, Bytes, Bytes, Bytes]:
        """[batch, rows, blocks, 32] element codes and [batch, rows, blocks] scales; batch 1 where it has none."""
        rng = np.random.default_rng((self.seed, self.batch, self.m, self.n, self.k))
        found = []
        for i, order in enumerate(self.orders):
            shape = (self.batch if "b" in order else 1, (self.m, self.n)[i % 2], self.k // 32)
            if i < 2:
                values = VALUES[self.types[i]]
                finite = np.flatnonzero(np.isfinite(values) & (values != 0)).astype(np.uint8)
                found.append(rng.choice(finite, (*shape, 32)))
            else:
                steps = rng.integers(1, 24, shape).cumsum(axis=-1) + rng.integers(0, 24, (*shape[:2], 1))
                found.append((115 + steps % 24).astype(np.uint8))
        return found[0], found[1], found[2], found[3]

    def values(self, side: int) -> NDArray[np.float64]:
        """[batch, rows, k] dequantised values of an operand."""
        elements, scales = self.codes[side], self.codes[2 + side]
        factors = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127))
        values = VALUES[self.types[side]][elements] * factors[..., None]
        return np.broadcast_to(values.reshape(len(values), -1, self.k), (self.batch, values.shape[1], self.k))

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        return self._shaped(self.values(LHS) @ self.values(RHS).transpose(0, 2, 1))

    @cached_property
    def magnitude(self) -> NDArray[np.float64]:
        """Σ|a·b|, what rounding errors of a sum are measured by."""
        return self._shaped(np.abs(self.values(LHS)) @ np.abs(self.values(RHS)).transpose(0, 2, 1))

    def _shaped(self, result: np.ndarray) -> np.ndarray:
        return result if self.has_batch else result[0]

    @property
    def has_batch(self) -> bool:
        return any("b" in order for order in self.orders)

    @property
    def inputs(self) -> list[Bytes]:
        """Arguments: the operands' bytes in memory."""
        return [self.bytes(i).view(np.int8) for i in range(4) if not (self.constant_rhs and i % 2)]

    def bytes(self, operand: int) -> Bytes:
        """An operand's bytes in memory, elements without gaps, the first in the lowest bits."""
        order, codes = self.orders[operand], self.codes[operand]
        axes = ["brki".index(axis) for axis in order]
        codes = (codes if "b" in order else codes[0]).transpose([axis - ("b" not in order) for axis in axes])
        if str(operand) in self.sliced:
            codes = self._surrounded(operand, codes, order)
        if operand >= 2:
            found = np.ascontiguousarray(codes)
            return self._surrounded(operand, found, order) if str(operand) in self.byte_sliced else found
        bits = np.unpackbits(codes[..., None], axis=-1, count=BITS[self.types[operand]], bitorder="little")
        found = np.packbits(bits.reshape(-1), bitorder="little").reshape(
            self._byte_shape(operand, str(operand) in self.sliced)
        )
        return self._surrounded(operand, found, order[:-1] + "i") if str(operand) in self.byte_sliced else found

    def _surrounded(self, operand: int, inner: np.ndarray, order: str) -> np.ndarray:
        """A larger random array that has `inner` at 1, 3, 5 … of all dimensions but i."""
        is_code = operand < 2 and str(operand) in self.sliced
        codes = 1 << BITS[self.types[operand]] if is_code else 255
        larger = np.random.default_rng(7).integers(0, codes, _larger(list(inner.shape), order)).astype(np.uint8)
        larger[tuple(slice(None) if axis == "i" else slice(1, -1, 2) for axis in order)] = inner
        return larger

    def _sizes(self, operand: int) -> list[int]:
        sizes = {"b": self.batch, "r": (self.m, self.n)[operand % 2], "k": self.k // 32, "i": 32}
        return [sizes[axis] for axis in self.orders[operand]]

    def _byte_shape(self, operand: int, larger: bool = False) -> list[int]:
        sizes = self._sizes(operand)
        *outer, inner = _larger(sizes, self.orders[operand]) if larger else sizes
        bits = BITS[self.types[operand]] if operand < 2 else 8
        return [*outer, inner * bits // 8] if inner * bits % 8 == 0 else [int(np.prod(outer)) * inner * bits // 8]

    def error(self, result: np.ndarray) -> float:
        """The largest error in units of Σ|a·b|."""
        assert result.shape == self.expected.shape
        return float(np.max(np.abs(result.astype(np.float64) - self.expected) / self.magnitude))

    # The module.

    def text(self) -> str:
        """A module with the matmul as one linalg.generic."""
        lines: list[str] = []
        arguments: list[str] = []
        types = self._tensor_types()
        for i, name in enumerate(("a", "b", "as", "bs")):
            shape, order = self._byte_shape(i, str(i) in self.sliced), self.orders[i]
            byte_order = order if i > 1 else order[:-1] + "i"
            marks = self._marks(i) if len(shape) == len(self.orders[i]) else []
            plain_type = bytes_type = _tensor([None if j in marks else size for j, size in enumerate(shape)], "i8")
            if str(i) in self.byte_sliced:
                bytes_type = _tensor(_larger(shape, byte_order), "i8")
            if self.constant_rhs and i % 2:
                data = self.bytes(i).tobytes().hex().upper()
                lines.append(f'%{name}_bytes = arith.constant dense<"0x{data}"> : {bytes_type}')
            else:
                arguments.append(f"%{name}_bytes: {bytes_type}")
            for j in marks:
                lines.append(f"%{name}_c{j} = arith.constant {j} : index")
                lines.append(f"%{name}_d{j} = tensor.dim %{name}_bytes, %{name}_c{j} : {bytes_type}")
            lines += self._full_sizes(i, name, marks)
            source, own_type = f"%{name}_bytes", types[i]
            if str(i) in self.byte_sliced:
                part = _slice(source, bytes_type, plain_type, shape, byte_order)
                lines.append(f"%{name}_part = {part}")
                source = f"%{name}_part"
            if str(i) in self.sliced:
                own_type = _tensor(_larger(self._sizes(i), order), [*self.types, "f8E8M0FNU", "f8E8M0FNU"][i])
            own = ", ".join(f"%{name}_d{j}" for j in marks)
            full = ", ".join(f"%{name}_f{j}" for j in self._marks(i))
            whole = f"%{name}_whole" if str(i) in self.sliced + self.cast else f"%{name}"
            sizes = f"{{{own}}}" if own else ""
            full_sizes = f"{{{full}}}" if full else ""
            lines.append(f"{whole} = iree_tensor_ext.bitcast {source} : {plain_type}{sizes} -> {own_type}{full_sizes}")
            if str(i) in self.sliced:
                lines.append(f"%{name} = {_slice(whole, own_type, types[i], self._sizes(i), order)}")
            if str(i) in self.cast:
                open_type = _tensor([None] * len(order), [*self.types, "f8E8M0FNU", "f8E8M0FNU"][i])
                lines.append(f"%{name}_open = tensor.cast {whole} : {types[i]} to {open_type}")
                lines.append(f"%{name} = tensor.cast %{name}_open : {open_type} to {types[i]}")
        return Template((HERE / "shaped.mlir.in").read_text()).substitute(
            arguments=", ".join(arguments),
            lines="\n  ".join(lines),
            maps=", ".join(self._maps()),
            iterators=", ".join(['"parallel"'] * (2 + self.has_batch) + ['"reduction"'] * 2),
            types=", ".join(types),
            a=self.types[LHS],
            b=self.types[RHS],
            sizes=self._result_sizes(),
            result=_tensor(self._result_shape(), "f32"),
        )

    def _marks(self, operand: int) -> list[int]:
        """Dynamic dimensions of an operand."""
        axes = {"b": "b", "r": "mn"[operand % 2], "k": "k", "i": ""}
        return [j for j, axis in enumerate(self.orders[operand]) if axes[axis] and axes[axis] in self.dynamic]

    def _full_sizes(self, operand: int, name: str, marks: list[int]) -> list[str]:
        """Dynamic sizes in elements: of the last dimension, they are more than its bytes."""
        bits = BITS[self.types[operand]] if operand < 2 else 8
        lines = []
        for j in marks:
            if j == len(self.orders[operand]) - 1 and bits != 8:
                lines += [
                    f"%{name}_bits = affine.apply affine_map<(d) -> ((d * 8) floordiv {bits})>(%{name}_d{j})",
                    f"%{name}_f{j} = arith.addi %{name}_bits, %c0 : index",
                ]
            else:
                lines.append(f"%{name}_f{j} = arith.addi %{name}_d{j}, %c0 : index")
        return lines

    def _tensor_types(self) -> list[str]:
        kinds = (*self.types, "f8E8M0FNU", "f8E8M0FNU")
        return [
            _tensor([None if j in self._marks(i) else size for j, size in enumerate(self._sizes(i))], kinds[i])
            for i in range(4)
        ]

    def _maps(self) -> list[str]:
        loops = ["z"] * self.has_batch + ["m", "n", "ko", "kb"]
        maps = []
        for i, order in enumerate(self.orders):
            names = {"b": "z", "r": "mn"[i % 2], "k": "ko", "i": "kb"}
            maps.append(f"affine_map<({', '.join(loops)}) -> ({', '.join(names[axis] for axis in order)})>")
        result = [*["z"] * self.has_batch, "m", "n"]
        return [*maps, f"affine_map<({', '.join(loops)}) -> ({', '.join(result)})>"]

    def _result_shape(self) -> list[int | None]:
        sizes = {"b": self.batch, "m": self.m, "n": self.n}
        return [None if axis in self.dynamic else sizes[axis] for axis in "b" * self.has_batch + "mn"]

    def _result_sizes(self) -> str:
        names = []
        for axis in "b" * self.has_batch + "mn":
            if axis in self.dynamic:
                operand, mark = {"b": (LHS, "b"), "m": (LHS, "r"), "n": (RHS, "r")}[axis]
                names.append(f"%{'ab'[operand]}_f{self.orders[operand].index(mark)}")
        return ", ".join(names)

    def __str__(self) -> str:
        marks = [f"{self.batch}x"] * self.has_batch + [f"{self.m}x{self.n}x{self.k}"]
        marks += [*self.orders] if self.orders != ("rki", "rki", "rk", "rk") else []
        marks += [*self.types] if self.types != (FP4, FP4) else []
        marks += [f"dynamic_{self.dynamic}"] * bool(self.dynamic) + ["constant"] * self.constant_rhs
        marks += [f"{name}_{value}" for name in ("sliced", "byte_sliced", "cast") if (value := getattr(self, name))]
        return "-".join(marks)


def _tensor(shape: list[int] | list[int | None], element: str) -> str:
    return f"tensor<{'x'.join('?' if size is None else str(size) for size in shape)}x{element}>"


def _larger(sizes: list[int], order: str) -> list[int]:
    return [size if axis == "i" else 2 * size + 2 for size, axis in zip(sizes, order, strict=True)]


def _slice(source: str, kind: str, result: str, sizes: list[int], order: str) -> str:
    offsets = ", ".join("0" if axis == "i" else "1" for axis in order)
    strides = ", ".join("1" if axis == "i" else "2" for axis in order)
    return f"tensor.extract_slice {source}[{offsets}] [{', '.join(map(str, sizes))}] [{strides}] : {kind} to {result}"
