"""Profiles the dispatches of a program on the simulated GPU: what each does, and its modelled time on an MI355X."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import msgspec

from mxcomp.errors import InputError
from mxcomp.profiling import launches
from mxcomp.profiling.launches import Launch
from mxcomp.support import files, tables
from mxcomp.support.tables import Column

if TYPE_CHECKING:
    from rich.table import Table

FITTED = "the model was fitted to GEMMs, and says less of other kernels"
"""The remark that is printed wherever modelled times of whole programs are."""

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "MFMA": ("mfma",),
    "bytes read": ("global.load.bytes", "scalar.load.bytes", "lds.direct.bytes"),
    "bytes written": ("global.store.bytes", "global.atomic.bytes"),
    "instructions": ("instructions",),
    "LDS bytes": ("lds.load.bytes", "lds.store.bytes"),
    "bank conflicts": ("lds.conflict.cycles",),
}
"""The columns of the table, with the counters (see `mxcomp.sim.counters`) that each adds up."""

_KINDS: Mapping[str, tuple[str, str, str]] = {
    "our matmuls": (r"matmul|sum", "", ""),
    "our packing": (r"pack_|quantise_|pad_", "", ""),
    "unquantised": (r"linear", "", ""),
    "attention": (r"attention|combine", r"attention", r"(?i)attn|attention"),
}
"""The kinds of dispatches, with prefixes of a matmul's part, or text in the name of a kernel or module, that identify
them."""
_OTHERS = "the rest, by IREE"

_LOADING = "_initializer"
"""The prefix of the names of kernels that IREE's initialisers launch."""
_GENERATED = re.compile(r"^(?:mxcomp_)?(?:_initializer_\d+|.+?)(?:\$async)?_dispatch_\d+_")
"""Matches the prefix that IREE puts in front of a description of a kernel."""

_NAME_COLUMNS, _NAMED = 34, 3
"""The least width of the column of dispatch names, if they are that long; and the number of modules that a name
lists."""


@dataclass(frozen=True)
class Estimate:
    """The time of a launch on an MI355X: modelled, never measured.

    Attributes:
        us: Microseconds.
        low, high: 80 % of measurements of kernels that the model had not seen lay between, relative to the estimate.
        fitted: Whether these were of the kind that the model was fitted to, as this one is, or of other families.
        bound: The resource that costs most: one of `mxcomp.sim.timing.RESOURCES`.
        saved: By resource: microseconds that the launch would take less if it cost nothing.
        matrix_share: Part of the time that MFMA pipes of the whole chip are busy, at the peak clock.
        ghz: The clock that power leaves in the first batch of workgroups.
        flops: Of matrix instructions.
        unique_bytes: Loaded and stored, each once.
        moved: Bytes by level: "CU" loads them, "L2 misses" come over the fabric, "HBM" is read once, "stores".
    """

    us: float
    low: float
    high: float
    fitted: bool
    bound: str
    saved: Mapping[str, float]
    matrix_share: float
    ghz: float
    flops: float
    unique_bytes: float
    moved: Mapping[str, float]

    def __str__(self) -> str:
        kind = "like" if self.fitted else "unlike"
        return (
            f"modelled {self.us:.1f} µs ({self.low:.1f} to {self.high:.1f}, of kernels {kind} those fitted), "
            f"bound by {self.bound}"
        )


@dataclass(frozen=True)
class DispatchProfile:
    """One launch of a kernel.

    Attributes:
        grid: Workgroups in x, y and z.
        counters: What it did, see `mxcomp.sim.counters`.
        seconds: The simulator's own time, which says nothing of a GPU's.
        modelled: None where the timing model cannot follow the kernel; `reason` says why.
        places: Where the program launches it, as a report says; several where that cannot be told apart.
        depends: On which of its data the modelled time depends that was not computed: it is that of some other data.
        executed: Its results were computed; else it was followed as far as its addresses and branches go.
    """

    kernel: str
    grid: tuple[int, ...]
    counters: Mapping[str, int]
    seconds: float
    modelled: Estimate | None
    reason: str = ""
    places: tuple[Launch, ...] = ()
    depends: str = ""
    executed: bool = True

    @property
    def us(self) -> float:
        """The modelled time; 0 if it is unknown."""
        return 0.0 if self.modelled is None else self.modelled.us

    @property
    def part(self) -> str:
        """The part of a scaled matmul that it computes: "matmul", "quantise_lhs"; "" for dispatches that IREE made of
        other operations."""
        return self.places[0].part if self.places else ""

    @property
    def module(self) -> str:
        """The PyTorch module that it belongs to: "layers.0.mlp.up_proj", "layers.*.mlp.up_proj"; "" if there is
        none."""
        found = dict.fromkeys(module for place in self.places for module in place.modules)
        return tables.starred(list(found)) if len(self.places) > 1 else " + ".join(found)

    @property
    def location(self) -> str:
        """The source location, file:line:column; "" if it is unknown."""
        return self.places[0].location if self.places else ""

    @property
    def owner(self) -> str:
        """The part and matmul that it computes, if a report is given: "pack_lhs of layers.0.mlp.up_proj"."""
        return f"{self.part} of {self.module or self.places[0].name}" if self.part else ""

    @property
    def name(self) -> str:
        """A description for people, with its module or source location: "matmul of layers.0.mlp.up_proj"."""
        return _name(self, "")

    @property
    def is_loading(self) -> bool:
        """Whether it runs once, when the program is loaded."""
        return not self.places[0].function if self.places else self.kernel.startswith(_LOADING)

    @property
    def kind(self) -> str:
        """The category it is summed up in: "our matmuls", "our packing", "attention" and others."""
        asked = (self.part, re.match), (self.kernel, re.search), (self.module, re.search)
        for kind, patterns in _KINDS.items():
            pairs = zip(patterns, asked, strict=True)
            if any(pattern and text and found(pattern, text) for pattern, (text, found) in pairs):
                return kind
        return _OTHERS

    def entries(self) -> dict[str, Any]:
        """Returns all fields, for JSON."""
        names = ("kind", "part", "module", "location", "owner", "is_loading")
        return {**{name: getattr(self, name) for name in names}, **asdict(self), "places": len(self.places)}


@dataclass(frozen=True)
class Kind:
    """The dispatches of a call of one kind: their number, modelled µs, and share of the call's time."""

    name: str
    dispatches: int
    us: float
    share: float


@dataclass(frozen=True)
class Wanted:
    """The rows that a table shows: the slowest dispatches, or all if None; in the order of launches, or by time."""

    top: int | None = None
    in_order: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Parses `top:N`, `in-order`, or both with a comma. Raises InputError."""
        found: dict[str, Any] = {}
        for word in filter(None, text.split(",")):
            name, _, number = word.partition(":")
            if name == "top" and number.isdecimal() and int(number):
                found["top"] = int(number)
            elif word == "in-order":
                found["in_order"] = True
            else:
                raise InputError(f"--profile={text}: expected top:N, in-order, or both with a comma between")
        return cls(**found)


@dataclass(frozen=True)
class Profile:
    """The dispatches of a call in order, those of loading the program first."""

    dispatches: tuple[DispatchProfile, ...]

    @property
    def called(self) -> tuple[DispatchProfile, ...]:
        """The dispatches of the call itself."""
        return tuple(d for d in self.dispatches if not d.is_loading)

    @property
    def loading(self) -> tuple[DispatchProfile, ...]:
        """The dispatches that run once, when the program is loaded."""
        return tuple(d for d in self.dispatches if d.is_loading)

    @property
    def modelled_us(self) -> float:
        """The modelled time of the call: the sum over dispatches that can be modelled, launches included, without
        gaps."""
        return sum(d.us for d in self.called)

    @property
    def loading_us(self) -> float:
        """The modelled time of loading."""
        return sum(d.us for d in self.loading)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The call summed up by kind of dispatch, the longest first."""
        found: dict[str, list[float]] = {}
        for d in self.called:
            found.setdefault(d.kind, []).append(d.us)
        rows = [Kind(name, len(us), sum(us), _share(sum(us), self.modelled_us)) for name, us in found.items()]
        return tuple(sorted(rows, key=lambda kind: -kind.us))

    @property
    def guessed(self) -> tuple[DispatchProfile, ...]:
        """The dispatches whose modelled times depend on data that was not computed."""
        return tuple(d for d in self.dispatches if d.depends)

    @property
    def asked(self) -> tuple[int, ...]:
        """The numbers of the launches whose times are to be modelled anew, with the data that they depend on."""
        return tuple(number for number, d in enumerate(self.dispatches) if d.depends)

    @property
    def instructions_before(self) -> int:
        """The number of instructions of all waves that compute that data, and all else in front of it."""
        return sum(d.counters.get("instructions", 0) for d in self.dispatches[: max(self.asked, default=0)])

    def with_data(self, others: Profile) -> Profile | None:
        """Replaces the `asked` launches by those that know their data. Returns None if the program launches others
        then, as it has read what it computed."""
        found = list(self.dispatches)
        for number, other in zip(self.asked, others.dispatches, strict=False):
            if (other.kernel, other.grid) != (found[number].kernel, found[number].grid):
                return None
            found[number] = replace(other, places=found[number].places)
        return Profile(tuple(found)) if len(others.dispatches) == len(self.asked) else None

    def to_json(self) -> str:
        """Returns the profile as JSON."""
        data = {
            "modelled_us": self.modelled_us, "loading_us": self.loading_us, "model": FITTED,
            "guessed": len(self.guessed), "kinds": [asdict(kind) for kind in self.kinds],
            "dispatches": [d.entries() for d in self.dispatches],
        }  # fmt: skip
        return json.dumps(data, indent=2) + "\n"

    def to_csv(self) -> str:
        """Returns a line for each dispatch, in order: its name, modelled times, and counters."""
        counters = sorted({name for d in self.dispatches for name in d.counters})
        rows = []
        for number, d in enumerate(self.dispatches):
            entries = d.entries()
            modelled, counted = entries.pop("modelled") or {}, entries.pop("counters")
            saved = {f"saved.{name}": us for name, us in modelled.pop("saved", {}).items()}
            grid = "x".join(map(str, entries.pop("grid")))
            row = {"number": number + 1, **entries, "grid": grid, **modelled, **saved, **counted}
            rows.append({name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()})
        columns = dict.fromkeys(name for row in rows for name in row if name not in counters)
        return files.table([*(columns or ["number"]), *counters], rows)

    def print(self, stream: TextIO, wanted: Wanted = Wanted(), width: int | None = None) -> None:
        """Prints a summary for people: the call by kinds, its dispatches, the slowest first, and the dispatches of
        loading.

        Times are modelled, and the simulator's own is not among them.
        """
        called = self.called
        tables.show(
            stream, _KIND_COLUMNS,
            [(k.name, str(k.dispatches), f"{k.us:.1f}", f"{k.share:.1%}") for k in self.kinds],
            "kinds of dispatches", self._caption(), width,
        )  # fmt: skip
        if called:
            chosen, title = _chosen(called, wanted)
            _print(stream, chosen, title, self.modelled_us, width)
        if self.loading:
            chosen, title = _chosen(self.loading, wanted)
            _print(stream, chosen, f"once, when the program is loaded: {title}", self.loading_us, width)

    def table(self) -> Table:
        """Returns all dispatches in order with all columns, as a table of rich's, however wide."""
        chosen, _ = _chosen(self.dispatches, Wanted(in_order=True))
        (table,) = tables.fitted(_COLUMNS, _rows(chosen, self.modelled_us, ""), sys.maxsize)
        table.caption = self._caption()
        return table

    def _caption(self) -> str:
        known = sum(d.modelled is not None for d in self.called)
        text = f"{known} of {len(self.called)} dispatches: {self.modelled_us:.1f} µs on an MI355X, modelled; {FITTED}"
        if not all(d.executed for d in self.dispatches):
            text += "\nresults were not computed"
        if self.guessed:
            text += f"\n? {len(self.guessed)} depend on data that was not computed: profile while computing results"
        return text


_KIND_COLUMNS = (
    Column("kind"),
    Column("dispatches", right=True),
    Column("modelled µs", right=True),
    Column("share", right=True),
)

_COLUMNS = (
    Column("dispatch", fold=_NAME_COLUMNS),
    Column("#", right=True),
    Column("modelled µs", right=True),
    Column("share", right=True),
    Column("bound by", fold=13),
    Column("80 % between", optional=True),
    Column("grid", optional=True),
    *(Column(name, right=True, optional=True) for name in _COUNTED),
)


def _chosen(dispatches: Sequence[DispatchProfile], wanted: Wanted) -> tuple[list[tuple[int, DispatchProfile]], str]:
    """Returns the dispatches to show, with their numbers in the order of launches; and a caption."""
    count = len(dispatches) if wanted.top is None else min(wanted.top, len(dispatches))
    chosen = sorted(enumerate(dispatches), key=lambda each: -each[1].us)[:count]
    which = "the slowest first" if count == len(dispatches) else f"the {count} slowest of {len(dispatches)}"
    if wanted.in_order:
        chosen.sort(key=lambda each: each[0])
        which = "in order" if count == len(dispatches) else f"{which}, in order"
    return chosen, f"dispatches, {which}"


def _print(
    stream: TextIO, chosen: Sequence[tuple[int, DispatchProfile]], title: str, total: float, width: int | None
) -> None:
    common = tables.prefix([module for _, d in chosen for place in d.places[:1] for module in place.modules])
    below = f"modules are those of {common[:-1]}" if common else ""
    tables.show(stream, _COLUMNS, _rows(chosen, total, common), title, below, width)


def _rows(chosen: Sequence[tuple[int, DispatchProfile]], total: float, common: str) -> list[tuple[str, ...]]:
    rows = []
    for number, d in chosen:
        m, share = d.modelled, f"{_share(d.us, total):.1%}"
        times = ("", "", d.reason, "") if m is None else (
            f"{m.us:.1f}", share, m.bound, f"{m.low:.1f} to {m.high:.1f}"
        )  # fmt: skip
        if d.depends:
            times = f"{times[0]} ?", times[1], f"depends on data: {d.depends}", ""
        counts = [f"{sum(d.counters.get(counter, 0) for counter in parts):,}" for parts in _COUNTED.values()]
        rows.append((_name(d, common), f"{number + 1}.", *times, "×".join(map(str, d.grid)), *counts))
    return rows


def _name(d: DispatchProfile, common: str) -> str:
    """Returns a description of a dispatch, with its module or source location."""
    does = d.part or _GENERATED.sub("", d.kernel)
    if not d.places:
        return d.kernel
    file = d.places[0].name.rpartition("/")[2]
    names = d.module.split(" + ") if d.module else [file.removesuffix(":0")]
    names = [name.removeprefix(common) for name in names]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    whose = " + ".join(names[:_NAMED]) + more
    return f"{does} of {whose}" if whose else does


def _share(us: float, total: float) -> float:
    return us / total if total else 0.0


def read(path: Path, places: Iterable[Launch] = (), function: str | None = None) -> Profile:
    """Returns the launches that the simulator's worker logged, a line of JSON each; nothing if it logged none.

    `places` are those of the program, of a report, and `function` is what was called: they say whose each launch is.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    noted = [msgspec.convert(json.loads(line), DispatchProfile) for line in lines]
    found = launches.assigned([each.kernel for each in noted], tuple(places), function)
    return Profile(tuple(replace(each, places=of) for each, of in zip(noted, found, strict=True)))
