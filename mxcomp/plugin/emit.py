"""Writes files that make a stock iree-compile compile one model's scaled matmuls as mxcomp does, without Python.

    match.mlir    a transform spec for preprocessing: finds each scaled matmul of the model by its operations and calls
                  a function that holds its packing and matmul, as dispatches that are ready to compile
    link.mlir     a transform spec for executables: puts in the ukernels
    mxcomp.rsp    the flags: `iree-compile @DIR/mxcomp.rsp model.mlir -o model.vmfb`; they name the directory
    compile.sh    the same call, with which the directory may be moved: `sh DIR/compile.sh model.mlir -o model.vmfb`

The functions come from the same passes as in-process compilation, and are inlined where they are called: a call left
standing would make IREE copy every operand. Specs are per shape: a model with other shapes needs files of its own.
A function that IREE can match as a whole is taken whole (`dags`), and has as many dispatches as in process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from iree.compiler import ir

from mxcomp.compiler import Program, Source, compile_with
from mxcomp.errors import CompileError, InputError, MxcompError
from mxcomp.matching.contraction import Candidate
from mxcomp.matching.symmetry import are_alike
from mxcomp.mlir import graph
from mxcomp.mlir.attributes import UKERNEL, ukernel_descriptor
from mxcomp.mlir.graph import location_text
from mxcomp.mlir.session import NamedSource, Session, read_source
from mxcomp.options import Options
from mxcomp.passes.link_ukernels import descriptor_name, function, target_with_provider
from mxcomp.passes.recognise import find
from mxcomp.plugin import dags, stock
from mxcomp.plugin.dags import Dag
from mxcomp.plugin.library import key, library
from mxcomp.plugin.response_file import LINK, MATCH, RESPONSE, response_file
from mxcomp.plugin.script import SCRIPT, script
from mxcomp.registry import Registry
from mxcomp.report.report import Report
from mxcomp.support import files


def emit_plugin(
    source: Source, options: Options, directory: Path, flags: Sequence[str], session_flags: Sequence[str] = ()
) -> Report:
    """Writes the plugin for `source` to `directory` and returns the report of compiling it, as far as that is the same.

    `flags` go into the response file; they are expected to be in force here too, globally or by `session_flags`.
    Raises InputError if no scaled matmul is ours, if a stock iree-compile would not serve the rest of the model (it is
    wrong or fails for some of what mxcomp rewrites) or cannot be told the directory's name, and the errors of
    `mxcomp.compile`. Errors have the report once there is one.
    """
    directory, options = directory.absolute(), replace(options, versions=False, reads_in_place=False, strict=True)
    response = response_file(directory, flags)
    program = compile_with(source, options, session_flags, "executable-sources")
    try:
        texts = _specs(source, options, program, session_flags)
    except MxcompError as error:
        raise error.with_report(program.report, program.report.warnings) from None
    files.folder(directory, "a plugin")
    lines = response if LINK in texts else response[:-1]
    texts[RESPONSE] = "\n".join(lines) + "\n"
    texts[SCRIPT] = script(flags, LINK in texts)
    files.write({directory / file: text.encode() for file, text in texts.items()})
    return program.report


def _specs(source: Source, options: Options, program: Program, session_flags: Sequence[str]) -> dict[str, str]:
    """Returns the specs, by the names of their files."""
    data, name = read_source(source)
    session = Session(session_flags)
    session.load(data, name)
    session.run("start", "input")
    session.run_passes("canonicalize")  # as stock IREE does before it matches anything
    with session.context, ir.Location.unknown():
        candidates = find(session.module)
        if not candidates:
            raise InputError(f"{name}: no scaled matmul to emit a plugin for: --report says why")
        found = dags.whole_functions(candidates)
        spec = _match_spec(found, options) if found else None
        where = NamedSource.of(data, name)
        if spec is None or not _serves(str(spec), where, session_flags):
            _check_apart(candidates)
            found = [dags.of_matmul(each) for each in candidates]
            spec = _match_spec(found, options)
            program.report.take_alone()
            try:
                left = [place for place in _left_over(str(spec), where, session_flags) if _SPEC not in place]
            except CompileError:
                stock.check(session.module, candidates, {op for each in found for op in each.ops})
                raise
            if left:
                raise InputError(
                    f"{left[0]}: a stock iree-compile rewrites this scaled matmul, or what it reads, before a "
                    "plugin can match it: compile the model with mxcomp-compile"
                )
        stock.check(session.module, candidates, {op for each in found for op in each.ops})
        names = sorted({descriptor_name(op) for op in graph.walk(spec.operation) if UKERNEL in op.attributes})
        texts = {MATCH: str(spec)}
        if names:
            compiled = ir.Module.parse(program.vmfb)
            texts[LINK] = str(_link_spec(names, compiled.operation, options))
    return texts


def _check_apart(candidates: Sequence[Candidate]) -> None:
    """Raises InputError where IREE may make one tensor of LHS and RHS: kernels of a matmul alone take two."""
    for each in candidates:
        lhs, rhs = each.lhs.element.value, each.rhs.element.value
        if lhs != rhs and are_alike(lhs, rhs):
            raise InputError(
                f"{location_text(each.root.location)}: LHS and RHS are computed alike, and may become one tensor, "
                "which a plugin's kernels cannot be given: compile the model with mxcomp-compile"
            )


_SPEC = "mxcomp.tried.mlir"
"""The file name of the spec in locations, unlike any file of a user's."""


def _left_over(spec: str, source: NamedSource, session_flags: Sequence[str]) -> list[str]:
    """Returns the locations of scaled matmuls that remain after IREE has applied a match spec.

    Places are of the module, or of a file `_SPEC`: those that the spec's functions leave to IREE.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / _SPEC
        path.write_text(spec)
        trial = Session((*session_flags, f"--iree-preprocessing-transform-spec-filename={path}"))
        trial.load(source, source.name)
        trial.run("start", "preprocessing")
    with trial.context, ir.Location.unknown():
        return [location_text(each.root.location) for each in find(trial.module)]


def _serves(spec: str, source: NamedSource, session_flags: Sequence[str]) -> bool:
    """Returns whether IREE can apply a match spec, and no scaled matmul remains."""
    try:
        return not _left_over(spec, source, session_flags)
    except CompileError:
        return False


def _template(name: str) -> ir.Module:
    return ir.Module.parse((resources.files("mxcomp.plugin") / "templates" / name).read_text())


def _symbol(module: ir.Module, name: str) -> ir.Operation:
    symbols = (view.operation for view in module.body.operations)
    return next(op for op in symbols if graph.symbol_name(op) == name)


def _below(op: ir.Operation, name: str) -> ir.Operation:
    return next(inner for inner in graph.walk(op) if inner.name == name)


def _match_spec(found: list[Dag], options: Options) -> ir.Module:
    """Returns a copy of the match template with a matcher, an action and a function for each distinct matmul."""
    module = _template("match.mlir")
    match, call = _symbol(module, "match"), _symbol(module, "call")
    _symbol(module, "matmul").erase()
    matchers: list[str] = []
    seen: set[str] = set()
    for dag in found:
        if (same := key(dag)) in seen:
            continue
        seen.add(same)
        name = f"mxcomp_matmul_{len(matchers)}"
        _add_matcher(match.clone(ip=ir.InsertionPoint(module.body)), name, dag)
        made = library(name, dag, options)
        symbols = [view.operation for view in made.body.operations]
        _add_action(call.clone(ip=ir.InsertionPoint(module.body)), name, symbols)
        for symbol in symbols:
            ir.InsertionPoint.at_block_begin(module.body).insert(symbol.detach_from_parent())
        matchers.append(name)
    for template in (match, call):
        template.erase()
    each = _below(_symbol(module, "__transform_main"), "transform.foreach_match")
    each.attributes["matchers"] = ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(f"match_{name}") for name in matchers])
    each.attributes["actions"] = ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(f"call_{name}") for name in matchers])
    module.operation.verify()
    return module


def _add_matcher(sequence: ir.Operation, name: str, dag: Dag) -> None:
    sequence.attributes["sym_name"] = ir.StringAttr.get(f"match_{name}")
    names = ir.ArrayAttr.get([ir.StringAttr.get(dag.root.name)])
    _below(sequence, "transform.match.operation_name").attributes["op_names"] = names
    body = _below(sequence, "transform.iree.match.cast_compatible_dag_from_root").regions[0].blocks[0]
    body.operations[0].operation.erase()
    for value in dag.inputs:
        body.add_argument(value.type, value.location)
    dag.clone(list(body.arguments), ir.InsertionPoint.at_block_terminator(body))


def _add_action(sequence: ir.Operation, name: str, symbols: list[ir.Operation]) -> None:
    sequence.attributes["sym_name"] = ir.StringAttr.get(f"call_{name}")
    load = _below(sequence, "transform.util.import_symbol")
    for symbol in symbols:
        imported = graph.symbol_name(symbol)
        if imported != name:
            copy = load.clone(ip=ir.InsertionPoint(load))
            copy.attributes["symbol"] = ir.FlatSymbolRefAttr.get(imported)
    load.attributes["symbol"] = ir.FlatSymbolRefAttr.get(name)


def _link_spec(names: list[str], compiled: ir.Operation, options: Options) -> ir.Module:
    """Returns a copy of the link template for the ukernels `names`; the target is read from a compiled module."""
    module = _template("link.mlir")
    registry = Registry(options.target, options.ukernel_dirs, stock=not options.reads_in_place)
    _symbol(module, "ukernel").erase()
    main = _symbol(module, "__transform_main")
    variant = _below(compiled, "hal.executable.variant")
    target = target_with_provider(variant)
    _below(main, "transform.param.constant").attributes["value"] = target
    match, each = _below(main, "transform.structured.match"), _below(main, "transform.foreach")
    for name in names:
        users = match.clone(ip=ir.InsertionPoint(match))
        users.attributes["op_attrs"] = ir.DictAttr.get({UKERNEL: ukernel_descriptor(name)})
        loop = each.clone(ip=ir.InsertionPoint(match))
        loop.operands[0] = users.results[0]
        _below(loop.operation, "transform.util.import_symbol").attributes["symbol"] = ir.FlatSymbolRefAttr.get(name)
        ir.InsertionPoint.at_block_begin(module.body).insert(function(registry, name))
    for template in (each, match):
        template.erase()
    module.operation.verify()
    return module
