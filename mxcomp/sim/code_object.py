"""AMD code objects: ELF, MessagePack metadata, kernel descriptors (LLVM's AMDGPUUsage, "Code Object V3 and Above")."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from mxcomp.sim.errors import CodeObjectError

_ELF, _MACHINE_AMDGPU = b"\x7fELF", 224
ARCH, _PROCESSOR = "gfx950", 0x4F
"""The architecture whose code objects are read, and its number in the ELF header."""
_DESCRIPTOR_BYTES = 64
_MOST_BYTES = 1 << 30
"""The largest image of a code object in memory, with the gaps between segments; device memory has as many marks."""
_KERNARG_ALIGNMENT = 16
"""The alignment of kernel argument segments in bytes (AMDGPU backend guide)."""
_MOST_KERNARG_BYTES = 65536
PRELOAD_ENTRY = 256
"""The distance in bytes from a kernel's entry to the one used when the hardware preloads kernel arguments."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A kernel descriptor, 64 bytes at the symbol ``<name>.kd``.

    Attributes:
        lds_bytes: Static LDS.
        scratch_bytes: Private memory per lane.
        kernarg_bytes: Size of the argument segment.
        entry: Virtual address of the first instruction, without argument preload.
        rsrc1, rsrc2, rsrc3: The compute_pgm_rsrc words.
        properties: Which SGPRs are set up.
        preload_count, preload_offset: Arguments preloaded into SGPRs, in dwords.
    """

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload_count: int
    preload_offset: int

    @classmethod
    def unpack(cls, data: bytes, address: int) -> Descriptor:
        lds, scratch, kernarg = struct.unpack_from("<III", data, 0)
        entry = address + struct.unpack_from("<q", data, 16)[0]
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", data, 44)
        return cls(lds, scratch, kernarg, entry, rsrc1, rsrc2, rsrc3, properties, preload & 0x7F, preload >> 7)

    @property
    def user_sgprs(self) -> int:
        return self.rsrc2 >> 1 & 31

    @property
    def work_item_dims(self) -> int:
        """Dimensions of the work-item ID that are in v0 (ENABLE_VGPR_WORKITEM_ID): x, with y from bit 10 on, z from 20.

        LLVM takes all of v0 for x where a kernel asks for no more (`allocateSpecialEntryInputVGPRs`).
        """
        return 1 + (self.rsrc2 >> 11 & 3)

    @property
    def vgprs(self) -> int:
        """Vector registers per lane, architectural and accumulation, in granules of 8."""
        return 8 * ((self.rsrc1 & 63) + 1)

    @property
    def mode(self) -> int:
        """Initial MODE register: rounding and denormal modes, and FP16_OVFL."""
        return self.rsrc1 >> 12 & 0xFF | (self.rsrc1 >> 26 & 1) << 23


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel argument as the metadata describes it; its offset may be invalid (`Kernel.check_arguments`)."""

    name: str = msgspec.field(name=".name", default="")
    offset: int = msgspec.field(name=".offset")
    size: int = msgspec.field(name=".size")
    kind: str = msgspec.field(name=".value_kind")

    @property
    def is_hidden(self) -> bool:
        return self.kind.startswith("hidden")


class Metadata(msgspec.Struct, frozen=True):
    """The fields of a kernel's metadata entry that are read; without a symbol where a kernel has none."""

    symbol: str = msgspec.field(name=".symbol")
    arguments: tuple[Argument, ...] = msgspec.field(name=".args", default=())
    workgroup_size: tuple[int, int, int] | None = msgspec.field(name=".reqd_workgroup_size", default=None)
    argument_bytes: int = msgspec.field(name=".kernarg_segment_size", default=0)
    most_threads: int = msgspec.field(name=".max_flat_workgroup_size", default=1024)
    vgprs: int = msgspec.field(name=".vgpr_count", default=0)
    sgprs: int = msgspec.field(name=".sgpr_count", default=0)
    vgpr_spills: int = msgspec.field(name=".vgpr_spill_count", default=0)
    sgpr_spills: int = msgspec.field(name=".sgpr_spill_count", default=0)


class _Note(msgspec.Struct):
    kernels: list[Metadata] = msgspec.field(name="amdhsa.kernels", default_factory=list)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel in a module.

    Attributes:
        module: Where it is defined.
        name: Symbol without ``.kd``.
        descriptor: What hardware is told.
        metadata: What the runtime is told: the kernel's entry of ``amdhsa.kernels``.
    """

    module: Module = field(repr=False)
    name: str
    descriptor: Descriptor
    metadata: Metadata = field(repr=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return self.metadata.arguments

    @property
    def argument_bytes(self) -> int:
        """The size of the argument segment by the metadata, as runtimes take it: AITER's hand-written descriptors say
        0.

        Its metadata may leave out the padding behind the last argument, which it lists and passes all the same.
        """
        stated = max(self.descriptor.kernarg_bytes, self.metadata.argument_bytes)
        end = max((each.offset + each.size for each in self.arguments), default=0)
        return end if stated < end <= -(-stated // _KERNARG_ALIGNMENT) * _KERNARG_ALIGNMENT else stated

    def check_arguments(self) -> None:
        """Raises CodeObjectError where arguments do not lie in a segment of sensible size."""
        segment = self.argument_bytes
        if segment > _MOST_KERNARG_BYTES:
            raise CodeObjectError(f"kernel {self.name}: {segment} bytes of arguments, at most {_MOST_KERNARG_BYTES}")
        for each in self.arguments:
            if min(each.offset, each.size) < 0 or each.offset + each.size > segment:
                place = f"argument {each.name or each.kind}, {each.size} bytes at {each.offset}"
                raise CodeObjectError(f"kernel {self.name}: {place}, lies outside of {segment} bytes")

    @property
    def workgroup_size(self) -> tuple[int, int, int] | None:
        """The size the kernel was compiled for, if fixed."""
        return self.metadata.workgroup_size

    @property
    def entries(self) -> tuple[int, ...]:
        """Virtual addresses: the plain entry, and the one with preloaded arguments if there are any."""
        plain = self.descriptor.entry
        return (plain, plain + PRELOAD_ENTRY) if self.descriptor.preload_count else (plain,)


Segments: TypeAlias = tuple[tuple[int, bytes, int], ...]
"""Virtual address, bytes, and size in memory of each segment."""


@dataclass(frozen=True, eq=False)
class Module:
    """A loaded code object.

    Attributes:
        text: Machine code, and its virtual address.
        segments: (virtual address, bytes, size in memory) of what is loaded.
        functions: Virtual addresses of function symbols.
        variables: Virtual addresses and sizes of those that others may ask for.
        is_mutable: It has data that kernels may change, so that each load needs its own copy.
    """

    text: bytes = field(repr=False)
    text_address: int
    segments: Segments = field(repr=False)
    functions: Mapping[str, int] = field(repr=False)
    variables: Mapping[str, tuple[int, int]] = field(repr=False)
    is_mutable: bool
    kernels: dict[str, Kernel] = field(default_factory=dict, repr=False)

    @property
    def image_bytes(self) -> int:
        """The size of the loaded image, up to the end of the last segment."""
        return _end(self.segments)

    def bytes_at(self, address: int, count: int) -> bytes:
        """Returns bytes of the file at a virtual address. Raises CodeObjectError outside the file's segments."""
        for start, data, _ in self.segments:
            if start <= address and address + count <= start + len(data):
                return data[address - start : address - start + count]
        raise CodeObjectError(f"no segment holds {count} bytes at {address:#x}")


def _end(segments: Segments) -> int:
    return max((start + in_memory for start, _, in_memory in segments), default=0)


def images(data: bytes) -> Iterator[bytes]:
    """Yields the code objects in a program, each with what is behind it."""
    at = data.find(_ELF)
    while at >= 0:
        yield data[at:]
        at = data.find(_ELF, at + len(_ELF))


def load(data: bytes) -> Module:
    """Reads a code object. Raises CodeObjectError for anything that is not one of `ARCH`."""
    try:
        return _load(data)
    except CodeObjectError:
        raise
    except Exception as error:  # pyelftools, msgspec and struct each raise their own kinds on broken files
        raise CodeObjectError(f"malformed code object: {type(error).__name__}: {error}") from error


def _load(data: bytes) -> Module:
    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(data))
    machine = elf.header["e_machine"]
    if machine not in (_MACHINE_AMDGPU, "EM_AMDGPU"):
        raise CodeObjectError(f"machine {machine}: expected an AMD GPU code object")
    if elf.header["e_flags"] & 0xFF != _PROCESSOR:
        raise CodeObjectError(f"processor {elf.header['e_flags'] & 0xFF:#x}: expected {ARCH} ({_PROCESSOR:#x})")
    text = elf.get_section_by_name(".text")
    if text is None:
        raise CodeObjectError("no .text section: expected a linked code object")
    segments = tuple((s["p_vaddr"], s.data(), s["p_memsz"]) for s in elf.iter_segments() if s["p_type"] == "PT_LOAD")
    if (end := _end(segments)) > _MOST_BYTES:
        raise CodeObjectError(f"segments up to byte {end:#x}: expected at most {_MOST_BYTES:#x}")
    dynamic: Any = elf.get_section_by_name(".dynsym")
    symbols: Any = elf.get_section_by_name(".symtab") or dynamic
    if symbols is None or not segments:
        raise CodeObjectError("no symbols or no loadable segments: expected a linked code object")
    named = {symbol.name: symbol for symbol in symbols.iter_symbols()}
    functions = {name: s["st_value"] for name, s in named.items() if s["st_info"]["type"] == "STT_FUNC"}
    exported = dynamic.iter_symbols() if dynamic else ()
    variables = {s.name: (s["st_value"], s["st_size"]) for s in exported if s["st_info"]["type"] == "STT_OBJECT"}
    is_mutable = any(elf.get_section_by_name(name) is not None for name in (".data", ".bss"))
    module = Module(text.data(), text["sh_addr"], segments, functions, variables, is_mutable)
    described = {each.symbol: each for each in _metadata(elf)}
    for name, symbol in named.items():
        if name.endswith(".kd"):
            address = symbol["st_value"]
            descriptor = Descriptor.unpack(module.bytes_at(address, _DESCRIPTOR_BYTES), address)
            module.kernels[name[:-3]] = Kernel(module, name[:-3], descriptor, described.get(name, Metadata("")))
    return module


def _metadata(elf: Any) -> list[Metadata]:
    for section in elf.iter_sections():
        for note in section.iter_notes() if section["sh_type"] == "SHT_NOTE" else ():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA"):
                content = note["n_desc"]
                raw = content.encode("latin1") if isinstance(content, str) else content
                try:
                    return msgspec.msgpack.decode(raw, type=_Note).kernels
                except msgspec.ValidationError as error:
                    raise CodeObjectError(f"malformed metadata: {error}") from None
    return []
