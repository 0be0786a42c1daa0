"""Exports PyTorch models as MLIR or as compiled programs, with weights as constants or as named parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
from iree.compiler import ir

import mxcomp.compiler
from mxcomp.compiler import Program
from mxcomp.errors import InputError
from mxcomp.passes import import_torch
from mxcomp.report.table import floats_lines
from mxcomp.torch import linear, torchao
from mxcomp.torch.floats import left_in_floats
from mxcomp.torch.importing import imported
from mxcomp.torch.parameters import Parameters
from mxcomp.weights import archive, checkpoint

Exported: TypeAlias = torch.export.ExportedProgram
Model: TypeAlias = torch.nn.Module | Exported | Mapping[str, Exported]

_ENDING = ".irpa"


def export(
    model: Model,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    function: str = "main",
    parameters: str | Path | None = None,
) -> ir.Module:
    """Returns a model as an MLIR module for `mxcomp.compile`; `str` of it is what `mxcomp-compile` takes.

    Args:
        model: A module; or an `ExportedProgram`, or several by the names of their functions, and then no arguments.
        args, kwargs, dynamic_shapes: As of `torch.export.export`.
        function: Name of the function in the module.
        parameters: None: weights are constants of the module. "model", or a path such as "out/model": they are
            parameters with their names in torch, of the scope "model", and are written to out/model.irpa.

    Returns:
        A module in torch's dialect, every `scaled_linear` already in linalg.

    Raises InputError for a `scaled_linear` or a layer of torchao's that cannot be compiled, and what `torch.export`
    raises.
    """
    store, path = _store(parameters)
    module = module_of(model, args, kwargs, dynamic_shapes, function, store)
    if path is not None:
        archive.save(path, store.plain())
    return module


def compile(
    model: Model,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    function: str = "main",
    parameters: str | Path | None = None,
    **options: Any,
) -> Program:
    """Combines `export` and `mxcomp.compile`: parameters are written as the program reads them, packed for its matmuls.

    One tensor at a time is packed. `options` are those of `mxcomp.compile`. Raises what the two raise.
    """
    store, path = _store(parameters)
    module = module_of(model, args, kwargs, dynamic_shapes, function, store)
    program = mxcomp.compiler.compile(module, packed_parameters=path is not None, **options)
    if isinstance(model, torch.nn.Module):
        program.report.floats = dict(left_in_floats(model))
    else:
        program.report.floats = torchao.exported(_programs(model).values())
    manifest = program.report.manifest
    if path is not None and manifest is not None:
        read = checkpoint.pack(manifest, store.checkpoint()) if manifest.parameters else {}
        archive.save(path, read)
    return program


def _store(parameters: str | Path | None) -> tuple[Parameters, Path | None]:
    """Returns the archive of weights, whose name is their scope. Raises InputError for an invalid name."""
    if parameters is None:
        return Parameters(None), None
    path = Path(str(parameters).removesuffix(_ENDING) + _ENDING)
    scope = path.name.removesuffix(_ENDING)
    if not scope:
        raise InputError(f"parameters={str(parameters)!r}: expected a name such as 'model', or a path that ends in one")
    return Parameters(scope), path


def module_of(
    model: Model,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    function: str,
    parameters: Parameters,
) -> ir.Module:
    """Exports without an archive: `parameters` has the tensors, whose data are not read."""
    if isinstance(model, torch.nn.Module):
        with _scaled(model) as scaled, torch.no_grad():
            model = torch.export.export(
                scaled, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
    elif args or kwargs or dynamic_shapes:
        raise InputError("an exported program has its arguments: expected no args, kwargs or dynamic_shapes")
    programs = _programs(model, function)
    found = torchao.exported(programs.values())
    for line in floats_lines(found):
        warnings.warn(line, UserWarning, stacklevel=3)
    try:
        module = imported(programs, parameters)
    except Exception as error:
        if not found:
            raise
        raise InputError(f"{'; '.join(floats_lines(found))} ({type(error).__name__}: {error})") from error
    import_torch.run(module.operation)
    module.operation.verify()
    return module


def _programs(model: Exported | Mapping[str, Exported], function: str = "") -> dict[str, Exported]:
    """Returns exported programs by the names of their functions."""
    return dict(model) if isinstance(model, Mapping) else {function: model}


@contextmanager
def _scaled(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yields the model with layers of torchao's as `ScaledLinear`s, for the time of the context."""
    replacements = linear.torchao_linears(model)
    originals = {name: model.get_submodule(name) for name in replacements}
    try:
        yield linear.put(model, replacements)
    finally:
        linear.put(model, originals)
