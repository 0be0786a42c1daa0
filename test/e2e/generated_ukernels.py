"""Ukernel files for any data-tiled layout: enough to be chosen and linked, with an empty body.

`mxcomp.verify` replaces inner tiles by their meaning, so it needs the layout of a ukernel, not its code.
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from mxcomp.layout import OPERAND_NAMES, DataTiledLayout

TYPES = ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")
FILE = Template("""\
util.func private @$name($arguments) -> $result attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    layout = {$layout},
    workgroup_size = [$threads, 1, 1]
  }
} {
  util.return %acc : $result
}
""")


def write(directory: Path, name: str, layout: DataTiledLayout) -> Path:
    """Writes `<name>.mlir` with ukernel @name for `layout`; returns its path."""
    outer = [(1, "?")] * 4 + [(1, 1)]
    types = []
    for operand, (sizes, element) in enumerate(zip(outer, TYPES, strict=True)):
        shape = "x".join(map(str, (*sizes, *layout.packed_shape(operand, ()))))
        types.append(f"tensor<{shape}x{element}>")
    fields = {field: getattr(layout, field) for field in layout.__dataclass_fields__}
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()}
    path = directory / f"{name}.mlir"
    text = FILE.substitute(
        name=name,
        arguments=", ".join(f"%{operand}: {kind}" for operand, kind in zip(OPERAND_NAMES, types, strict=True)),
        result=types[-1],
        layout=", ".join(
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
            for key, value in fields.items()
            if value not in (None, [], False)
        ),
        threads=layout.threads,
    )
    path.write_text(text)
    return path
