"""mxcomp-bench of models: models a layer of each kind and the head, at real dimensions without weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from mxcomp.errors import InputError
from mxcomp.measuring import models, pictures, records
from mxcomp.measuring.models import HBM_GIGABYTES, KINDS, TOKEN, Entry, Setting
from mxcomp.profiling import Profile
from mxcomp.support import files, tables
from mxcomp.support.progress import Bar
from mxcomp.support.tables import Column
from mxcomp.tools import common

_LEFT_OUT = ("aiter", "configurations", "jobs", "moe", "result", "rows", "subjects")
"""The arguments that have no meaning for models."""


def run(name: str, args: argparse.Namespace) -> int:
    """Prints and writes entries; returns the exit code. Raises InputError."""
    _check(args)
    settings = [
        Setting(batch, context, tuple(args.types))
        for context, batch in product(_numbers("context", args.context), _numbers("batch", args.batch))
    ]
    for setting in settings:
        models.check(setting)
    models.configuration(args.model)
    before = records.from_json(args.json, Entry, name)
    found = {(each.model, each.setting, each.piece): each for each in before}
    profiles: dict[Any, Profile] = {}
    with Bar(args.model, len(settings), ticking=True) as bar:
        for setting in settings:
            bar.begin(f"batch {setting.batch}, context {setting.context}")
            if (args.model, setting, TOKEN) not in found:
                for entry in models.modelled(args.model, setting, profiles):
                    found[args.model, setting, entry.piece] = entry
                    bar.begin(f"batch {setting.batch}, context {setting.context}, behind {entry.piece}")
                records.write(list(found.values()), Entry, args.json, args.csv)
            bar.advance()
    records.write(list(found.values()), Entry, args.json, args.csv)
    shown = [
        each for setting in settings for each in found.values() if (each.model, each.setting) == (args.model, setting)
    ]
    _print(name, shown)
    if args.picture:
        stem = args.model.strip("/.").replace("/", "-").removesuffix(".json")
        files.write({args.picture / f"{stem}.png": pictures.decoding(shown)})
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises InputError for arguments that do not go with --model."""
    used = "--batch, --context, --types, --json, --csv and --picture"
    common.check_modelled(args, "--model", "layers of models", _LEFT_OUT, used)
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise InputError(f'--model needs PyTorch and transformers: pip install "mxcomp[models]" ({error})') from None


def _numbers(name: str, text: str) -> list[int]:
    """Parses `1,16,64`. Raises InputError."""
    parts = text.split(",")
    if not all(each.strip().isdecimal() for each in parts):
        raise InputError(f"--{name}={text}: expected whole numbers with commas between, for example 1,16,64")
    return list(dict.fromkeys(map(int, parts)))


def _share(kind: str) -> Callable[[Entry], str]:
    return lambda e: f"{getattr(e, kind) / e.us:.0%}"


_COLUMNS = (
    Column("batch", right=True, text=lambda e: str(e.batch)),
    Column("context", right=True, text=lambda e: str(e.context)),
    Column("piece", fold=18, text=lambda e: e.piece if e.count == 1 else f"{e.count} × {e.piece}"),
    Column("µs", right=True, text=lambda e: f"{e.us:.1f}"),
    Column("floor", right=True, text=lambda e: f"{e.floor_us:.1f}"),
    Column("× floor", right=True, text=lambda e: f"{e.us / e.floor_us:.2f}"),
    Column("tokens/s", right=True, text=lambda e: f"{e.tokens_per_second:.0f}" if e.piece == TOKEN else ""),
    *(Column(kind, right=True, text=_share(kind)) for kind in KINDS),
    Column("dispatches", right=True, optional=True, text=lambda e: str(e.dispatches)),
    Column("80 % between", right=True, optional=True, text=lambda e: f"{e.low:.1f} to {e.high:.1f}"),
)


def _print(name: str, shown: Sequence[Entry]) -> None:
    first = shown[0]
    title = (
        f"{first.model}, {first.activations} × {first.weights}: one more token for each sequence, modelled µs on MI355X"
    )
    tables.show(sys.stdout, _COLUMNS, tables.rows(_COLUMNS, shown), title)
    tables.say(sys.stdout, "floor: bytes that must move at the modelled HBM rate, and launches; shares are of the time")
    for each in shown:
        where = f"{name}: batch {each.batch}, context {each.context}"
        gigabytes = each.stored_bytes / 1e9
        if each.piece == TOKEN and gigabytes > HBM_GIGABYTES:
            print(
                f"{where}: {gigabytes:.0f} GB of weights and cache, more than the {HBM_GIGABYTES} GB of one GPU: "
                "the token's time is that of a GPU which has them",
                file=sys.stderr,
            )
        if each.piece != TOKEN and each.unmodelled:
            print(f"{where}, {each.piece}: {each.unmodelled} dispatches are not modelled, and missing", file=sys.stderr)
