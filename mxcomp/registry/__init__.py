"""The ukernel registry: hand-written `.mlir` files, each carrying its own match rule, and the family's instances.

A file in `ukernels/<arch>/`, or in a user's directory given by flag, adds a ukernel. It contains one `util.func private
@NAME` with a dictionary attribute `mxcomp.ukernel`; `ukernels/README.md` lists its entries. A user's directory may also
contain kernels in Python (`own`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TypeVar

from mxcomp.errors import UkernelError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout.problem import Problem
from mxcomp.registry import own
from mxcomp.registry.reading import accepts, read
from mxcomp.registry.renamed import renamed
from mxcomp.registry.rules import Constraint, Ukernel, ukernel_from
from mxcomp.target import Target
from mxcomp.ukernels import KINDS, PLAIN_KINDS, family

__all__ = ["Constraint", "Registry", "Ukernel", "accepts", "read"]

_NEAREST, _LIKENESS = 3, 0.7
"""The largest number of names that are proposed for an unknown one, and their least similarity (of 1)."""


AnyInstance = TypeVar("AnyInstance", bound=family.Instance)


class Registry:
    """All ukernels for a GPU, of the package and of `directories`, by name. Needs a current context.

    Files are read for their rules, those of the package once in a process; instances of the family are written
    when they are linked. `stock`: for a compiler without mxcomp-unmask-stores, `Instance.stock` of them. `excluded` are
    those that the GPU cannot run, as their `objection` says. Raises UkernelError.
    """

    def __init__(self, target: Target, directories: Iterable[str | Path] = (), stock: bool = False) -> None:
        self.target, self._directories = target, frozenset(map(Path, directories))
        found = dict(_package(target, stock))
        for directory in map(Path, directories):
            _add(found, directory, target)
        self.excluded = {name: each for name, each in found.items() if each.objection}
        self.ukernels = {name: each for name, each in found.items() if name not in self.excluded}

    def is_foreign(self, ukernel: Ukernel) -> bool:
        """Returns whether a ukernel comes from one of the directories, not from the package."""
        return ukernel.path.parent in self._directories

    def runnable(self, instances: Iterable[AnyInstance]) -> list[AnyInstance]:
        """Returns the ukernels that the GPU can run."""
        return [each for each in instances if each.name in self.ukernels]

    def unsupported(self, instances: Iterable[family.Instance]) -> str:
        """Returns why the GPU cannot run the first unsupported ukernel; "" if it can run all."""
        return next((self.excluded[each.name].objection for each in instances if each.name in self.excluded), "")

    def __getitem__(self, name: str) -> Ukernel:
        try:
            return self.ukernels[name]
        except KeyError:
            if name in self.excluded:
                raise UkernelError(f"ukernel '{name}': {self.excluded[name].objection}") from None
            raise UkernelError(f"unknown ukernel '{name}': {self.nearest(name)}known are {self._names()}") from None

    def nearest(self, name: str) -> str:
        """Returns a proposal of similar names for an unknown one, as the beginning of a hint; "" if there is none."""
        if (now := renamed(name)) in self.ukernels:
            return f"it is called {now} now; "
        found = get_close_matches(name, self.ukernels, _NEAREST, _LIKENESS)
        return f"is {' or '.join(found)} meant? " if found else ""

    def _names(self) -> str:
        """Returns all names, those of the family by their pattern."""
        files = [ukernel.name for ukernel in self.ukernels.values() if ukernel.instance is None]
        instances = [ukernel for ukernel in self.ukernels.values() if ukernel.instance is not None]
        if not instances:
            return ", ".join(files)
        patterns = (
            tile.pattern.replace("LHS", "<lhs>").replace("RHS", "<rhs>") for kind in PLAIN_KINDS for tile in kind.TILES
        )
        return (
            f"{', '.join([*files, *patterns])}, where <lhs> and <rhs> are each one of {', '.join(ELEMENT_TYPES)}: "
            f"for example {instances[1].name}"
        )

    def select(self, operands: str, problem: Problem, name: str | None = None) -> tuple[Ukernel | None, str]:
        """Returns the matching ukernel of highest benefit (or `name`, if it matches), else None and the reasons."""
        pool = [self[name]] if name else list(self.ukernels.values())
        reasons: list[str] = []
        matches: list[Ukernel] = []
        for ukernel in pool:
            reason = ukernel.mismatch(problem)
            if ukernel.operands != operands:
                if name:
                    reasons.append(f"{ukernel.name}: it takes {ukernel.operands} operands, not {operands}")
            elif reason:
                reasons.append(f"{ukernel.name}: {reason}")
            else:
                matches.append(ukernel)
        if matches:
            return max(matches, key=lambda ukernel: ukernel.benefit), ""
        for ukernel in self.excluded.values():
            if ukernel.operands == operands and not ukernel.mismatch(problem):
                reasons.append(f"{ukernel.name}: {ukernel.objection}")
        return None, "; ".join(reasons) or f"no ukernel takes {operands} operands"


@cache
def _package(target: Target, stock: bool) -> Mapping[str, Ukernel]:
    """Returns the ukernels of this package, in the order in which they are tried."""
    folder = Path(str(resources.files("mxcomp") / "ukernels" / target.arch))
    instances: Iterable[family.Instance] = chain.from_iterable(kind.INSTANCES for kind in KINDS)
    instances = (each.stock for each in instances) if stock else instances
    members = (ukernel_from(member.name, member.path, target, member.rule, member) for member in instances)
    found = {ukernel.name: ukernel for ukernel in members}
    if folder.is_dir():
        _add(found, folder, target, strict=False)
    return found


_READERS: Mapping[str, Callable[[Path, Target, bool], Iterable[Ukernel]]] = {
    ".mlir": lambda path, target, strict: (read(path, target, strict),),
    ".py": lambda path, target, _: own.read(path, target),
}
"""The functions that read a file, by its suffix."""

_HIDDEN = "_"
"""The prefix of Python files that contain no kernels, and are at most imported by others."""


def _add(ukernels: dict[str, Ukernel], directory: Path, target: Target, strict: bool = True) -> None:
    """Reads the files of a directory. Raises UkernelError."""
    if not directory.is_dir():
        raise UkernelError(f"ukernel directory {directory} does not exist")
    for path in sorted(directory.iterdir()):
        if path.suffix not in _READERS or (path.suffix == ".py" and path.name.startswith(_HIDDEN)):
            continue
        for ukernel in _READERS[path.suffix](path, target, strict):
            if ukernel.name in ukernels:
                raise UkernelError(f"{path}: ukernel @{ukernel.name} exists already in {ukernels[ukernel.name].path}")
            ukernels[ukernel.name] = ukernel
