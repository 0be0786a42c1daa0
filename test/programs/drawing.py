"""A function that is drawn: dice, arguments as they turn out to be needed, and what has been made so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
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
INTEGERS = {"i8": np.uint8, "i32": np.int32}
NUMPY = FLOATS | INTEGERS


OPEN = {1: 1, 2: 1, 7: 1, 16: 1, 33: 1, 64: 1, 100: 0.5, 257: 0.5, 1000: 0.15, 1499: 0.15, 1500: 0.15}
"""Sizes that calls after the first have where a program leaves them open."""


class Dice:
    """One source of randomness for everything, by tables of weights; `features` are what came up.

    Those of another `call` of the same seed choose alike: they differ in sizes that are open, in `again`, and, where
    they are not `same`, in numbers.
    """

    def __init__(self, seed: int, call: int = 0, same: bool = True) -> None:
        self._random, self._seed, self.call = random.Random(seed), seed, call
        self._again = random.Random(f"{seed} {call}")
        self._tensors, self._numbers_of = 0, 0 if same else call
        self._first: dict[int, int] = {}
        self.features: set[str] = set()

    @property
    def numbers(self) -> np.random.Generator:
        """What the next tensor is filled with, however large those before are."""
        self._tensors += 1
        return np.random.default_rng([self._seed, self._numbers_of, self._tensors])

    def open(self, size: int, most: int) -> int:
        """A size that the program leaves open: as it was drawn, or, in calls after the first, another up to `most`."""
        if not self.call:
            return size
        table = {other: weight for other, weight in OPEN.items() if other <= most} or {1: 1.0}
        found = self._again.choices(list(table), list(table.values()))[0]
        self._first[found] = size
        return found

    def first(self, size: int) -> int:
        """What a size of this call is in the first one."""
        return self._first.get(size, size)

    def again(self, low: int, high: int) -> int:
        """A whole number up to `high` that is another in each call."""
        return self._again.randint(low, high)

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

    def numbers_from(self, tensors: int) -> int:
        """Goes back to the numbers of a tensor; returns which was to be the next."""
        before, self._tensors = self._tensors, tensors
        return before

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
    initialised: int = 0
    state: dict[str, np.ndarray] = field(default_factory=dict)
    """What its variables hold, by name: before a call, and after all is drawn, behind it."""


class Drawing:
    """One function under construction, its dice, and values to build on."""

    def __init__(self, module: Module, name: str, places: Mapping[str, float], private: bool = False) -> None:
        self.module, self.dice, self.name, self._places = module, module.dice, name, places
        with ir.InsertionPoint(module.ir.body):
            self.function = func.FuncOp(name, ir.FunctionType.get([], []), visibility="private" if private else None)
        self.block = self.function.add_entry_block()
        self.inputs: list[np.ndarray] = []
        self.storages: list[Storage] = []
        self.pool: list[Node] = []
        self._variables = 0

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
        """An argument, a constant, a parameter, or what an initializer computes: dynamic sizes has only an argument."""
        array = np.asarray(array, NUMPY[kind], order="C")
        place = "argument" if dynamic else place or self.dice.pick(self._places)
        if place == "parameter" and not self.module.has_parameters:
            place = "constant"
        if place == "argument":
            return self.argument(array, kind, dynamic)
        self.dice.features.add(f"{place} operand")
        make = {"constant": constant, "parameter": self._parameter, "initializer": self._initialised}[place]
        return make(array, kind)

    def _parameter(self, array: np.ndarray, kind: str) -> ir.Value:
        key = f"w{len(self.module.parameters)}"
        self.module.parameters[key] = array
        result = build.tensor_type(array.shape, kind)
        initial = ir.Attribute.parse(f'#flow.parameter.named<"{SCOPE}"::"{key}"> : {result}')
        with ir.InsertionPoint.at_block_begin(self.module.ir.body):
            util.GlobalOp(key, result, sym_visibility="private", initial_value=initial)
        return util.GlobalLoadOp(result, key, is_immutable=False).result

    def _initialised(self, array: np.ndarray, kind: str) -> ir.Value:
        """What is computed when the program is loaded, and kept in a variable."""
        opposite = lambda: constant(~array if kind in INTEGERS else -array, kind)  # noqa: E731
        kept = build.tensor_type(array.shape, kind)
        return self.initialised(lambda: build.elementwise(kept, [opposite()], _opposite))

    def initialised(self, make: Callable[[], ir.Value]) -> ir.Value:
        """A variable that an initializer gives what `make` builds there."""
        name = f"made{self.module.initialised}"
        self.module.initialised += 1
        with ir.InsertionPoint.at_block_begin(self.module.ir.body):
            initializer = util.InitializerOp(ir.TypeAttr.get(ir.FunctionType.get([], [])))
        with ir.InsertionPoint(initializer.regions[0].blocks.append()):
            value = make()
            util.GlobalStoreOp(value, name)
            util.ReturnOp([])
        with ir.InsertionPoint(initializer):
            util.GlobalOp(name, value.type, sym_visibility="private")
        return util.GlobalLoadOp(value.type, name, is_immutable=False).result

    def state_name(self) -> str:
        """A name for one more variable of this function."""
        self.dice.features.add("state")
        self._variables += 1
        return f"{self.name}_state{self._variables}"

    def take_over(self, values: Sequence[Node]) -> list[Node]:
        """Arguments that stand for values of another function."""
        return [node.at(self.block.add_argument(node.ir.type, ir.Location.unknown())) for node in values]

    def finish(self, results: Sequence[ir.Value]) -> None:
        """Returns these values."""
        with ir.InsertionPoint(self.block):
            func.ReturnOp(list(results))
        kind = ir.FunctionType.get([a.type for a in self.block.arguments], [value.type for value in results])
        self.function.attributes["function_type"] = ir.TypeAttr.get(kind)


def constant(array: np.ndarray, kind: str) -> ir.Value:
    """An array as a constant."""
    result = build.tensor_type(array.shape, kind)
    if kind == "bf16":
        data = ir.DenseElementsAttr.get(array.view(np.uint16), type=result.element_type, shape=list(array.shape))
    else:
        data = ir.DenseElementsAttr.get(array.view(np.int8) if kind == "i8" else array)
    return arith.ConstantOp(result, data).result


def _opposite(value: ir.Value) -> ir.Value:
    """The same with other signs, or, of integers, other bits."""
    if not isinstance(value.type, ir.IntegerType):
        return arith.NegFOp(value).result
    return arith.XOrIOp(value, arith.ConstantOp(value.type, -1).result).result
