"""FlyDSL kernels of the corpus. Matrices are row-major, the right operand of a product is stored as [N, K].

A product's operands move as bytes, as FlyDSL 0.4 takes offsets of 4-bit elements in LDS for offsets in bytes.
"""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx

ELEMENTS = {"e2m1": fx.Float4E2M1FN, "e4m3": fx.Float8E4M3FN}
TILE, BLOCK_K, THREADS = 64, 256, 256
BLOCKS = BLOCK_K // 32
LOG2_E = 1.4426950408889634


def buffer(pointer, rows, columns):
    """[rows, columns] in memory. Elements past the end of the last row read as zero and are not written."""
    size = fx.Int64(rows) * columns * (pointer.element_type.width // 8)
    matrix = fx.make_view(pointer, fx.make_layout((rows, columns), (columns, 1)))
    return fx.rocdl.make_buffer_tensor(matrix, num_records_bytes=size)


def tiles(pointer, rows, columns, shape, row):
    """[..., steps]: the tiles of a row of tiles."""
    return fx.flat_divide(buffer(pointer, rows, columns), shape)[None, None, row, None]


def part_of(thread, atom, columns, width):
    """A thread's part of a copy of rows of so many elements, `width` at a time."""
    across = columns // width
    threads = fx.make_layout((THREADS // across, across), (across, 1))
    return fx.make_tiled_copy_tv(atom, threads, fx.make_layout((1, width), (1, 1))).get_slice(thread)


def allocate(allocator, size):
    """Bytes of LDS."""
    return allocator.allocate(fx.Array[fx.Uint8, size, 16]).peek().ptr


def operand_layout(element, stride):
    """Where the operands of 2×2 instructions along the rows and K lie in a tile whose rows are `stride` bytes apart.

    The modes are the bytes of a lane, its (row, group of lanes, wave), and the two instructions along each axis. An
    instruction takes 32 elements of a row from each group: for 4 bits those that follow each other, for 8 bits two
    parts of 16, of which the second lies 64 elements further.
    """
    shape = (16, element.width // 4), (16, 4, 2), 2, 2
    return fx.make_layout(shape, ((1, 64), (stride, 16, 16 * stride), 32 * stride, 16 * element.width))


def place(wave):
    """The mode (row, group of lanes, wave) of `operand_layout` for this lane."""
    return fx.thread_idx.x % 64 + 64 * wave


def scaled_mma(a, b, i=0, j=0):
    """A scaled instruction that takes byte i of the left and byte j of the right scales."""
    return fx.make_mma_atom(fx.rocdl.cdna4.MFMAScale(16, 16, 128, a, b, opsel_a=i, opsel_b=j))


def tiled_mma(atom):
    """2×2 waves."""
    return fx.make_tiled_mma(atom, fx.make_layout((2, 2, 1), (1, 2, 0)))


def take(operands, fragment):
    """LDS to the registers of a product."""
    atom = fx.make_copy_atom(fx.UniversalCopy128b(), fx.Uint8)
    for i in range(2):
        for j in range(2):
            registers = fx.recast_iter(fx.Uint8, fragment[None, i, j].iter)
            source = operands[None, i, j]
            fx.copy(atom, source, fx.make_view(registers, fx.make_layout(source.shape, (1, 16))))


def write(mma, sums, result):
    """Sums to memory."""
    atom = fx.make_copy_atom(fx.rocdl.BufferCopy32b(), fx.Float32)
    copy = fx.make_tiled_copy_C(atom, mma).get_slice(fx.thread_idx.x)
    fx.copy(atom, copy.retile(sums), copy.partition_D(result))


class Tile:
    """[64, 256] elements of an operand on their way from memory over registers to LDS and to the product.

    Between rows in LDS, there is room that spreads them over its banks.
    """

    def __init__(self, pointer, element, rows, k, index, allocator, wave):
        width = BLOCK_K * element.width // 8
        stride = width + 16
        lds = allocate(allocator, TILE * stride)
        self.load = fx.make_copy_atom(fx.rocdl.BufferCopy128b(), fx.Uint8)
        copy = part_of(fx.thread_idx.x, self.load, width, 16)
        self.source = copy.partition_S(tiles(pointer, rows, k * element.width // 8, (TILE, width), index))
        self.target = copy.partition_D(fx.make_view(lds, fx.make_layout((TILE, width), (stride, 1))))
        self.registers = fx.make_fragment_like(self.target)
        self.operands = fx.make_view(lds, operand_layout(element, stride))[None, place(wave), None, None]
        self.fragment = fx.make_rmem_tensor((32, 2, 2), element)

    def keep(self):
        fx.copy(fx.make_copy_atom(fx.UniversalCopy128b(), fx.Uint8), self.registers, self.target)


class Scales:
    """[64, 8] scales of an operand. In LDS, each lane finds the four it has to supply in one word.

    Row 32·i + 16·wave + r and block 4·j + g are byte i + 2·j of the word for lane 16·g + r of a wave.
    """

    def __init__(self, pointer, rows, k, index, allocator, wave):
        lds = allocate(allocator, TILE * BLOCKS)
        self.load = fx.make_copy_atom(fx.rocdl.BufferCopy16b(), fx.Uint8)
        copy = part_of(fx.thread_idx.x, self.load, BLOCKS, 2)
        self.source = copy.partition_S(tiles(pointer, rows, k // 32, (TILE, BLOCKS), index))
        self.target = copy.partition_D(fx.make_view(lds, fx.make_layout(((16, 2, 2), (4, 2)), ((4, 256, 1), (64, 2)))))
        self.registers = fx.make_fragment_like(self.target)
        self.word = fx.recast_iter(fx.Int32, lds) + place(wave)

    def keep(self):
        for i in range(2):
            self.target[i] = self.registers[i]


def fetch(parts, step):
    """Memory to registers."""
    for part in parts:
        fx.copy(part.load, part.source[None, None, None, step], part.registers)


def keep(parts):
    """Registers to LDS."""
    for part in parts:
        part.keep()


def multiply(mma, atoms, sums, x, y, x_scales, y_scales):
    """Adds a tile's product to the sums, with the operands and scales in LDS."""
    take(x.operands, x.fragment)
    take(y.operands, y.fragment)
    words = {"scale_a": x_scales.word.load(), "scale_b": y_scales.word.load()}

    def scaled(_, at):
        i, j, block = at
        return atoms[i + 2 * block, j + 2 * block].set_value(words)

    fx.gemm(mma, sums, x.fragment, y.fragment, sums, atom_callback=scaled)


@flyc.kernel(name="scaled_matmul")
def scaled_matmul(
    a: fx.Pointer,
    b: fx.Pointer,
    a_scale: fx.Pointer,
    b_scale: fx.Pointer,
    c: fx.Pointer,
    m: fx.Int32,
    n: fx.Int32,
    k: fx.Int32,
    a_format: fx.Constexpr[str],
    b_format: fx.Constexpr[str],
):
    """c = a · bᵀ of MX operands: one E8M0 scale for 32 elements along K. Four waves compute 32×32 elements each.

    a [M, K] and b [N, K] are bytes with one element of 8 or two of 4 bits, the scales bytes [M, K/32] and [N, K/32],
    c is f32 [M, N]. N is a multiple of 64 and K of 256.
    """
    row, column, _ = fx.block_idx
    row_wave, column_wave = fx.thread_idx.x // 64 % 2, fx.thread_idx.x // 128
    a_type, b_type = ELEMENTS[a_format], ELEMENTS[b_format]
    allocator = fx.SharedAllocator()
    x = Tile(a, a_type, m, k, row, allocator, row_wave)
    y = Tile(b, b_type, n, k, column, allocator, column_wave)
    x_scales = Scales(a_scale, m, k, row, allocator, row_wave)
    y_scales = Scales(b_scale, n, k, column, allocator, column_wave)
    atoms = {(i, j): scaled_mma(a_type, b_type, i, j) for i in range(4) for j in range(4)}
    mma = tiled_mma(atoms[0, 0])
    result = fx.flat_divide(buffer(c, m, n), (TILE, TILE))[None, None, row, column]
    sums = mma.get_slice(fx.thread_idx.x).make_fragment_C(result)
    sums.fill(0)
    for step in range(k // BLOCK_K):
        fetch((x, y, x_scales, y_scales), step)
        keep((x, y, x_scales, y_scales))
        fx.gpu.barrier()
        multiply(mma, atoms, sums, x, y, x_scales, y_scales)
        fx.gpu.barrier()
    write(mma, sums, result)


class Staged:
    """Two [64, 256] tiles of an operand in LDS, which memory fills without registers between.

    That leaves no room between rows. Instead, 16 bytes of a row lie in LDS at their place ⊕ (row mod 8).
    """

    def __init__(self, pointer, element, rows, k, index, allocator, wave):
        width = BLOCK_K * element.width // 8
        across = width // 16
        lds = allocate(allocator, 2 * TILE * width)
        thread = fx.thread_idx.x
        self.load = fx.make_copy_atom(fx.rocdl.cdna4.BufferLoadAsyncLDS128b(), fx.Uint8)
        source = part_of(thread ^ thread // across % 8, self.load, width, 16)
        self.source = source.partition_S(tiles(pointer, rows, k * element.width // 8, (TILE, width), index))
        stages = fx.make_view(lds, fx.make_layout((TILE, width, 2), (width, 1, TILE * width)))
        self.target = part_of(thread, self.load, width, 16).partition_D(stages)
        swizzle = fx.static(fx.SwizzleType.get(3, 4, 3 if element.width == 4 else 4))
        stages = fx.append(operand_layout(element, width), fx.make_layout(2, TILE * width))
        self.operands = fx.make_view(lds, fx.make_composed_layout(swizzle, stages))[None, place(wave), None, None, None]
        self.fragment = fx.make_rmem_tensor((32, 2, 2), element)


class Bytes:
    """[64, 8] scales of an operand, of which each lane loads those it has to supply byte by byte."""

    def __init__(self, pointer, rows, k, index, wave):
        self.source = tiles(pointer, rows, k // 32, (TILE, BLOCKS), index)
        self.row, self.block = fx.thread_idx.x % 16 + 16 * wave, fx.thread_idx.x % 64 // 16
        self.words = fx.make_rmem_tensor((2, 2), fx.Int32)


def start(parts, step):
    """Memory to LDS, without a wait."""
    for part in parts:
        fx.copy(part.load, part.source[None, None, None, step], part.target[None, None, None, step % 2])
    fx.rocdl.asyncmark()


def load_scales(parts, step):
    """Memory to registers, each scale to the low byte of a word."""
    for part in parts:
        for i in range(2):
            for j in range(2):
                part.words[i, j] = fx.Int32(part.source[part.row + 32 * i, part.block + 4 * j, step])


def multiply_staged(mma, atom, sums, x, y, x_scales, y_scales, step):
    """Adds a tile's product to the sums, with the operands in LDS and the scales in registers."""
    take(x.operands[None, None, None, step % 2], x.fragment)
    take(y.operands[None, None, None, step % 2], y.fragment)

    def scaled(_, at):
        i, j, block = at
        return atom.set_value({"scale_a": x_scales.words[i, block], "scale_b": y_scales.words[j, block]})

    fx.gemm(mma, sums, x.fragment, y.fragment, sums, atom_callback=scaled)


@flyc.kernel(name="scaled_matmul_staged")
def scaled_matmul_staged(
    a: fx.Pointer,
    b: fx.Pointer,
    a_scale: fx.Pointer,
    b_scale: fx.Pointer,
    c: fx.Pointer,
    m: fx.Int32,
    n: fx.Int32,
    k: fx.Int32,
    a_format: fx.Constexpr[str],
    b_format: fx.Constexpr[str],
):
    """As `scaled_matmul`, with loads from memory to LDS that run while the tile before is multiplied."""
    row, column, _ = fx.block_idx
    row_wave, column_wave = fx.thread_idx.x // 64 % 2, fx.thread_idx.x // 128
    a_type, b_type = ELEMENTS[a_format], ELEMENTS[b_format]
    allocator = fx.SharedAllocator()
    x = Staged(a, a_type, m, k, row, allocator, row_wave)
    y = Staged(b, b_type, n, k, column, allocator, column_wave)
    x_scales, y_scales = Bytes(a_scale, m, k, row, row_wave), Bytes(b_scale, n, k, column, column_wave)
    atom = scaled_mma(a_type, b_type)
    mma = tiled_mma(atom)
    result = fx.flat_divide(buffer(c, m, n), (TILE, TILE))[None, None, row, column]
    sums = mma.get_slice(fx.thread_idx.x).make_fragment_C(result)
    sums.fill(0)
    start((x, y), fx.Int32(0))
    last = k // BLOCK_K - 1
    for step in range(last):
        load_scales((x_scales, y_scales), step)
        start((x, y), step + 1)
        fx.rocdl.wait_asyncmark(1)
        fx.gpu.barrier()
        multiply_staged(mma, atom, sums, x, y, x_scales, y_scales, step)
        fx.gpu.barrier()
    load_scales((x_scales, y_scales), last)
    fx.rocdl.wait_asyncmark(0)
    fx.gpu.barrier()
    multiply_staged(mma, atom, sums, x, y, x_scales, y_scales, last)
    write(mma, sums, result)


def reduce(allocator, value, operation):
    """The sum or maximum of the threads' f32 values, known to all of them: inside each wave, then over LDS."""
    slots = fx.recast_iter(fx.Float32, allocate(allocator, 4 * THREADS // 64))
    slots[fx.thread_idx.x // 64] = fx.coop.warp_reduce(value, operation)
    fx.gpu.barrier()
    value = slots[0]
    for i in range(1, THREADS // 64):
        value = value + slots[i] if operation is fx.ReductionOp.ADD else fx.max(value, slots[i])
    return value


@flyc.kernel(name="softmax")
def softmax(x: fx.Pointer, y: fx.Pointer, columns: fx.Int32, per_thread: fx.Constexpr[int]):
    """A row of y is the softmax of that of x, both f32 [rows, columns]. One workgroup computes it."""
    start_of_row = fx.block_idx.x * columns
    allocator = fx.SharedAllocator()
    values = fx.make_rmem_tensor(per_thread, fx.Float32)
    for i in fx.range_constexpr(per_thread):
        at = fx.thread_idx.x + THREADS * i
        values[i] = fx.Float32(float("-inf"))
        if at < columns:
            values[i] = x[start_of_row + at]
    largest = values[0]
    for i in fx.range_constexpr(1, per_thread):
        largest = fx.max(largest, values[i])
    largest = reduce(allocator, largest, fx.ReductionOp.MAX)
    total = fx.Float32(0)
    for i in fx.range_constexpr(per_thread):
        values[i] = fx.exp2((values[i] - largest) * LOG2_E, fastmath="afn")
        total = total + values[i]
    total = reduce(allocator, total, fx.ReductionOp.ADD)
    for i in fx.range_constexpr(per_thread):
        at = fx.thread_idx.x + THREADS * i
        if at < columns:
            y[start_of_row + at] = values[i] / total


@flyc.kernel(name="rms_norm")
def rms_norm(x: fx.Pointer, weight: fx.Pointer, y: fx.Pointer, rows: fx.Int32, epsilon: fx.Float32):
    """y = x / √(mean of x² + ε) · weight by row: x and y bf16 [rows, 512], weight f32 [512]. A wave computes a row."""
    lane = fx.thread_idx.x % 64
    row = fx.block_idx.x * (THREADS // 64) + fx.thread_idx.x // 64
    load = fx.make_copy_atom(fx.rocdl.BufferCopy128b(), fx.BFloat16)
    source = fx.flat_divide(buffer(x, rows, 512), (1, 8))[0, None, row, lane]
    target = fx.flat_divide(buffer(y, rows, 512), (1, 8))[0, None, row, lane]
    loaded = fx.make_rmem_tensor(8, fx.BFloat16)
    fx.copy(load, source, loaded)
    values = loaded.load().to(fx.Float32)
    total = fx.Float32(0)
    for i in fx.range_constexpr(8):
        total = total + values[i] * values[i]
    for distance in fx.range_constexpr(6):
        total = total + fx.gpu.shuffle_xor(total, 1 << distance, 64)
    factor = fx.rsqrt(total / 512 + epsilon)
    weights = fx.make_rmem_tensor(8, fx.Float32)
    for i in fx.range_constexpr(8):
        weights[i] = weight[lane * 8 + i]
    loaded.store((values * factor * weights.load()).to(fx.BFloat16))
    fx.copy(load, loaded, target)


# FlyDSL compiles kernels by their launches. The grid counts at run time only, and is in the manifest.


@flyc.jit
def launch_scaled_matmul(
    a: fx.Pointer,
    b: fx.Pointer,
    a_scale: fx.Pointer,
    b_scale: fx.Pointer,
    c: fx.Pointer,
    m: fx.Int32,
    n: fx.Int32,
    k: fx.Int32,
    a_format: fx.Constexpr[str],
    b_format: fx.Constexpr[str],
    staged: fx.Constexpr[bool],
):
    kernel = scaled_matmul_staged if staged else scaled_matmul
    kernel(a, b, a_scale, b_scale, c, m, n, k, a_format, b_format).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@flyc.jit
def launch_softmax(x: fx.Pointer, y: fx.Pointer, columns: fx.Int32, per_thread: fx.Constexpr[int]):
    softmax(x, y, columns, per_thread).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


@flyc.jit
def launch_rms_norm(x: fx.Pointer, weight: fx.Pointer, y: fx.Pointer, rows: fx.Int32, epsilon: fx.Float32):
    rms_norm(x, weight, y, rows, epsilon).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))
