"""A function that is drawn: dice, arguments as they turn out to be needed, and what has been made so far."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, func, util
from nodes import FLOATS, Node

from mxcomp.mlir import build

T = TypeVar("T")
SCOPE = "model"
NUMPY = FLOATS | {"i8": np.uint8, "i32": np.int32}


class Dice:
    """One source of randomness for everything, by tables of weights; `features` are what came up."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.features: set[str] = set()

    def pick(self, table: Mapping[T, float] | Sequence[T]) -> T:
        """A key of a table of weights, or one of a sequence."""
        if not isinstance(table, Mapping):
            return self._random.choice(list(table))
        return self._random.choices(list(table), list(table.values()))[0]

    def noted(self, what: str, table: Mapping[str, float]) -> str:
        """`pick`, and a feature of the program; "" is none."""
        found = self.pick(table)
        if found:
            self.features.add(f"{what}:{found}")
        return found

    def chance(self, probability: float, feature: str = "") -> bool:
        found = self._random.random() < probability
        if found and feature:
            self.features.add(feature)
        return found

    def below(self, end: int) -> int:
        return self._random.randrange(end)

    def state(self) -> tuple[Any, ...]:
        """Where picks stand; `restore` makes those that follow the same once more. `numbers` go on."""
        return self._random.getstate()

    def restore(self, state: tuple[Any, ...]) -> None:
        self._random.setstate(state)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        return self._random.sample(list(items), len(items))


@dataclass(frozen=True, eq=False)
class Storage:
    """Bytes that more than one operand may look at."""

    ir: ir.Value
    data: np.ndarray


@dataclass
class Module:
    """A module with what its functions share: parameters by key, and how many products their matmuls have."""

    ir: ir.Module
    dice: Dice
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    has_parameters: bool = False
    products: int = 0


class Drawing:
    """One function under construction, its dice, and values to build on."""

    def __init__(self, module: Module, name: str, places: Mapping[str, float], private: bool = False) -> None:
        self.module, self.dice, self.name, self._places = module, module.dice, name, places
        with ir.InsertionPoint(module.ir.body):
            self._function = func.FuncOp(name, ir.FunctionType.get([], []), visibility="private" if private else None)
        self.block = self._function.add_entry_block()
        self.inputs: list[np.ndarray] = []
        self.storages: list[Storage] = []
        self.pool: list[Node] = []

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A region: what is made in it cannot be used outside."""
        storages, pool = list(self.storages), list(self.pool)
        yield
        self.storages, self.pool = storages, pool

    def argument(self, array: np.ndarray, kind: str, dynamic: Sequence[int] = ()) -> ir.Value:
        """One more argument; `dynamic` are dimensions whose sizes are left open."""
        shape = [None if i in dynamic else size for i, size in enumerate(array.shape)]
        self.inputs.append(array.view(np.int8) if kind == "i8" else array)
        return self.block.add_argument(build.tensor_type(shape, kind), ir.Location.unknown())

    def value(self, array: np.ndarray, kind: str, dynamic: Sequence[int] = (), place: str = "") -> ir.Value:
        """An argument, a constant or a parameter, of which none has dynamic sizes but an argument."""
        array = np.asarray(array, NUMPY[kind], order="C")
        place = "argument" if dynamic else place or self.dice.pick(self._places)
        if place == "parameter" and not self.module.has_parameters:
            place = "constant"
        if place == "argument":
            return self.argument(array, kind, dynamic)
        self.dice.features.add(f"{place} operand")
        return constant(array, kind) if place == "constant" else self._parameter(array, kind)

    def _parameter(self, array: np.ndarray, kind: str) -> ir.Value:
        key = f"w{len(self.module.parameters)}"
        self.module.parameters[key] = array
        result = build.tensor_type(array.shape, kind)
        initial = ir.Attribute.parse(f'#flow.parameter.named<"{SCOPE}"::"{key}"> : {result}')
        with ir.InsertionPoint.at_block_begin(self.module.ir.body):
            util.GlobalOp(key, result, sym_visibility="private", initial_value=initial)
        return util.GlobalLoadOp(result, key, is_immutable=False).result

    def take_over(self, values: Sequence[Node]) -> list[Node]:
        """Arguments that stand for values of another function."""
        return [node.at(self.block.add_argument(node.ir.type, ir.Location.unknown())) for node in values]

    def finish(self, results: Sequence[ir.Value]) -> None:
        """Returns these values."""
        with ir.InsertionPoint(self.block):
            func.ReturnOp(list(results))
        kind = ir.FunctionType.get([a.type for a in self.block.arguments], [value.type for value in results])
        self._function.attributes["function_type"] = ir.TypeAttr.get(kind)


def constant(array: np.ndarray, kind: str) -> ir.Value:
    """An array as a constant."""
    result = build.tensor_type(array.shape, kind)
    if kind == "bf16":
        data = ir.DenseElementsAttr.get(array.view(np.uint16), type=result.element_type, shape=list(array.shape))
    else:
        data = ir.DenseElementsAttr.get(array.view(np.int8) if kind == "i8" else array)
    return arith.ConstantOp(result, data).result
