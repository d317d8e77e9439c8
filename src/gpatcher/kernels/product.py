"""Products, transposes and rows of small matrices in single precision, for functions that stay in cache."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from gpatcher.kernels.compile import Array, jit

ROWS, COLUMNS = 8, 16  # of the tile that is kept in registers; matrices have multiples of these
WIDE = 32 if get_host_cpu_features().get("avx512f") else COLUMNS  # with 32 registers of 16 numbers
_BYTE = ir.IntType(8).as_pointer()


def _constant(lanes: list[int]) -> ir.Constant:
    """Return a choice of lanes for a shuffle."""
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def _make_tile(columns: int) -> Any:
    """Return a function that writes start + a · b for the first 8 rows of a and the first columns of b.

    Numba's own loops keep sums in memory, at a sixth of the speed.
    """
    number, index = ir.FloatType(), ir.IntType(64)
    vector = ir.VectorType(number, columns)
    lanes = _constant([0] * columns)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(signature.args[:4], args[:4], strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in pairs]
        strides = [cgutils.unpack_tuple(builder, array.strides) for array in arrays]

        def place(array: int, i: Any, j: Any, kind: Any) -> Any:
            offset = builder.add(builder.mul(i, strides[array][0]), builder.mul(j, strides[array][1]))
            data = builder.gep(builder.bitcast(arrays[array].data, _BYTE), [offset])
            return builder.bitcast(data, kind.as_pointer())

        function = ir.FunctionType(vector, [vector] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{columns}f32")
        sums = [cgutils.alloca_once(builder, vector) for _ in range(ROWS)]
        for i, total in enumerate(sums):
            builder.store(builder.load(place(2, index(i), index(0), vector), align=4), total)
        with cgutils.for_range(builder, args[4]) as loop:
            row = builder.load(place(1, loop.index, index(0), vector), align=4)
            for i, total in enumerate(sums):
                factor = builder.load(place(0, index(i), loop.index, number))
                first = builder.insert_element(ir.Constant(vector, ir.Undefined), factor, ir.IntType(32)(0))
                repeated = builder.shuffle_vector(first, first, lanes)
                builder.store(builder.call(multiply_add, [repeated, row, builder.load(total)]), total)
        for i, total in enumerate(sums):
            builder.store(builder.load(total), place(3, index(i), index(0), vector), align=4)
        return context.get_dummy_value()

    @intrinsic
    def write_tile(_: Any, a: Any, b: Any, start: Any, out: Any, inner: Any) -> Any:
        return types.void(a, b, start, out, types.int64), generate

    return write_tile


_write_tile, _write_wide_tile = _make_tile(COLUMNS), _make_tile(WIDE)


@jit
def add_product(a: Array, b: Array, out: Array) -> None:
    """Add a · b to ``out``, as `write_product`."""
    write_product(a, b, out, out)


@jit
def write_product(a: Array, b: Array, start: Array, out: Array) -> None:
    """Write start + a · b; the rows of b, ``start`` and ``out`` are contiguous, those of a need not be.

    ``out`` has a multiple of 8 rows and of 16 columns. ``start`` is repeated if it is smaller: it has a multiple of 8
    rows, and the columns of ``out`` or `WIDE` of them.
    """
    wide = out.shape[1] // WIDE * WIDE
    for j in range(0, wide, WIDE):  # these columns of b stay in the first cache
        columns = start[:, j % start.shape[1] :]
        for i in range(0, out.shape[0], ROWS):
            _write_wide_tile(a[i:], b[:, j:], columns[i % start.shape[0] :], out[i:, j:], b.shape[0])
    for j in range(wide, out.shape[1], COLUMNS):
        columns = start[:, j % start.shape[1] :]
        for i in range(0, out.shape[0], ROWS):
            _write_tile(a[i:], b[:, j:], columns[i % start.shape[0] :], out[i:, j:], b.shape[0])


@intrinsic
def _transpose_tile(_: Any, a: Any, out: Any) -> Any:
    """Write the transpose of the first 16 rows and columns of a matrix."""
    vector = ir.VectorType(ir.FloatType(), COLUMNS)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = []
        for kind, value in zip(signature.args, args, strict=True):
            array = context.make_array(kind)(context, builder, value)
            start, stride = builder.bitcast(array.data, _BYTE), cgutils.unpack_tuple(builder, array.strides)[0]
            offsets = [builder.mul(stride, ir.IntType(64)(i)) for i in range(COLUMNS)]
            places.append([builder.bitcast(builder.gep(start, [o]), vector.as_pointer()) for o in offsets])
        rows = [builder.load(place, align=4) for place in places[0]]
        for step in (1, 2, 4, 8):  # exchange the off-diagonal blocks of this size
            for i in range(COLUMNS):
                if i & step:
                    continue
                pair = rows[i], rows[i + step]
                lanes = [j + (COLUMNS - step) * bool(j & step) for j in range(COLUMNS)]
                rows[i] = builder.shuffle_vector(*pair, _constant(lanes))
                rows[i + step] = builder.shuffle_vector(*pair, _constant([j + step for j in lanes]))
        for row, place in zip(rows, places[1], strict=True):
            builder.store(row, place, align=4)
        return context.get_dummy_value()

    return types.void(a, out), generate


@jit
def transpose(a: Array, out: Array) -> None:
    """Write the transpose of a matrix with multiples of 16 rows and columns; rows are contiguous."""
    for i in range(0, a.shape[0], COLUMNS):
        for j in range(0, a.shape[1], COLUMNS):
            _transpose_tile(a[i:, j:], out[j:, i:])


@intrinsic
def _add_lanes(_: Any, factor: Any, a: Any, i: Any, out: Any, o: Any, j: Any) -> Any:
    """Add 16 numbers of row i of a times a factor to those of row o of ``out``, from column j on."""
    vector = ir.VectorType(ir.FloatType(), COLUMNS)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        factor, column = args[0], builder.mul(args[5], ir.IntType(64)(4))
        places = []
        for array, row in ((1, 2), (3, 4)):
            part = context.make_array(signature.args[array])(context, builder, args[array])
            stride = cgutils.unpack_tuple(builder, part.strides)[0]
            offset = builder.add(builder.mul(args[row], stride), column)
            places.append(
                builder.bitcast(builder.gep(builder.bitcast(part.data, _BYTE), [offset]), vector.as_pointer())
            )
        function = ir.FunctionType(vector, [vector] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{COLUMNS}f32")
        first = builder.insert_element(ir.Constant(vector, ir.Undefined), factor, ir.IntType(32)(0))
        repeated = builder.shuffle_vector(first, first, _constant([0] * COLUMNS))
        numbers, total = (builder.load(place, align=4) for place in places)
        builder.store(builder.call(multiply_add, [repeated, numbers, total]), places[1], align=4)
        return context.get_dummy_value()

    return types.void(types.float32, a, types.int64, out, types.int64, types.int64), generate


@jit
def add_row(factor: float, a: Array, i: int, out: Array, o: int) -> None:
    """Add row i of a times a factor to row o of ``out``; both have a multiple of 16 columns, and contiguous rows.

    For rows as short as these, a loop that Numba vectorises is mostly its scalar remainder.
    """
    for j in range(0, out.shape[1], COLUMNS):
        _add_lanes(factor, a, i, out, o, j)
