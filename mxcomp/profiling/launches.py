"""Finds the launch sites of a program, and the one that each launch of a call comes from.

Layers of a model share kernels, so that a kernel's name does not say whose it is; the order of launches mostly does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """A launch site: an operation of a program that launches a kernel.

    Attributes:
        part: What it does of a scaled matmul, such as "pack_rhs"; "" for what IREE made of other operations.
        modules: What the source calls it: names of PyTorch's modules, several where several became one dispatch.
        matmul: The number of that matmul, `index` in a report; None for what is of none.
        location: Where the operations are, file:line:column; "" where the source has no places.
        function: That it is in; "" for what is done when the program is loaded.
    """

    kernel: str
    part: str = ""
    matmul: int | None = None
    modules: tuple[str, ...] = ()
    location: str = ""
    function: str = ""

    @property
    def name(self) -> str:
        """Its name for people: PyTorch's modules, the source location, or the number of a matmul."""
        numbered = "" if self.matmul is None else f"matmul {self.matmul}"
        return " + ".join(self.modules) or self.location or numbered


def assigned(kernels: Sequence[str], places: Sequence[Launch], function: str | None = None) -> list[tuple[Launch, ...]]:
    """Returns the launch sites that each launch of a call can come from: mostly one, none for a kernel without a site.

    Launches come in the order of places, those of loading first. Where the program has branches, some places launch
    nothing, and where that leaves a choice, there are several; in loops all those of the kernel.

    Args:
        kernels: Names of what was launched, in order.
        function: The one that was called; None: not known.
    """
    known = {place.kernel for place in places}
    asked = [k for k, kernel in enumerate(kernels) if kernel in known]
    found: list[dict[Launch, None]] = [{} for _ in kernels]
    for chosen in _sequences(places, function):
        for k, choice in zip(asked, _in_order([kernels[k] for k in asked], chosen), strict=False):
            found[k].update(dict.fromkeys(choice))
    if asked and not found[asked[0]]:  # loops, or several calls
        for k in asked:
            found[k].update((place, None) for place in places if place.kernel == kernels[k])
    return [tuple(each) for each in found]


def _sequences(places: Sequence[Launch], function: str | None) -> Iterator[list[Launch]]:
    """Returns the sequences of launch sites: that of loading, and that of each function behind it."""
    loading = [place for place in places if not place.function]
    functions = list(dict.fromkeys(place.function for place in places if place.function))
    for name in [function] if function in functions else functions or [""]:
        yield [*loading, *(place for place in places if name and place.function == name)]


def _in_order(kernels: Sequence[str], places: Sequence[Launch]) -> list[list[Launch]]:
    """Returns the sites that each launch can have if all are in order; nothing if they cannot be."""
    first = _earliest(kernels, places)
    if not first:
        return []
    last = _earliest(kernels[::-1], places[::-1])[::-1]
    ranges = zip(kernels, first, last, strict=True)
    return [
        [place for place in places[begin : len(places) - from_end] if place.kernel == kernel]
        for kernel, begin, from_end in ranges
    ]


def _earliest(kernels: Sequence[str], places: Sequence[Launch]) -> list[int]:
    """Returns the first index that each launch can have; nothing if they are not in order."""
    indices, rest = [], enumerate(places)
    for kernel in kernels:
        index = next((k for k, place in rest if place.kernel == kernel), None)
        if index is None:
            return []
        indices.append(index)
    return indices
