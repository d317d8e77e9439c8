"""Products of small matrices in single precision, for compiled functions that keep everything in cache."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from gpatcher.kernels.compile import Array, jit

ROWS, COLUMNS = 8, 16  # of the tile that is kept in registers; matrices have multiples of these
_WIDE = 32 if get_host_cpu_features().get("avx512f") else COLUMNS  # with 32 registers of 16 numbers


def _make_tile(columns: int) -> Any:
    """Return a function that adds the product of the first 8 rows of a and the first columns of b to ``out``.

    Numba's own loops keep sums in memory, at a sixth of the speed.
    """
    number, index, byte = ir.FloatType(), ir.IntType(64), ir.IntType(8).as_pointer()
    vector = ir.VectorType(number, columns)
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), columns), [0] * columns)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(signature.args[:3], args[:3], strict=True)
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in pairs]
        strides = [cgutils.unpack_tuple(builder, array.strides) for array in arrays]

        def place(array: int, i: Any, j: Any, kind: Any) -> Any:
            offset = builder.add(builder.mul(i, strides[array][0]), builder.mul(j, strides[array][1]))
            data = builder.gep(builder.bitcast(arrays[array].data, byte), [offset])
            return builder.bitcast(data, kind.as_pointer())

        function = ir.FunctionType(vector, [vector] * 3)
        multiply_add = cgutils.get_or_insert_function(builder.module, function, f"llvm.fma.v{columns}f32")
        sums = [cgutils.alloca_once(builder, vector) for _ in range(ROWS)]
        for i, total in enumerate(sums):
            builder.store(builder.load(place(2, index(i), index(0), vector), align=4), total)
        with cgutils.for_range(builder, args[3]) as loop:
            row = builder.load(place(1, loop.index, index(0), vector), align=4)
            for i, total in enumerate(sums):
                factor = builder.load(place(0, index(i), loop.index, number))
                first = builder.insert_element(ir.Constant(vector, ir.Undefined), factor, ir.IntType(32)(0))
                repeated = builder.shuffle_vector(first, first, lanes)
                builder.store(builder.call(multiply_add, [repeated, row, builder.load(total)]), total)
        for i, total in enumerate(sums):
            builder.store(builder.load(total), place(2, index(i), index(0), vector), align=4)
        return context.get_dummy_value()

    @intrinsic
    def add_tile(_: Any, a: Any, b: Any, out: Any, inner: Any) -> Any:
        return types.void(a, b, out, types.int64), generate

    return add_tile


_add_tile, _add_wide_tile = _make_tile(COLUMNS), _make_tile(_WIDE)


@jit
def add_product(a: Array, b: Array, out: Array) -> None:
    """Add a · b to ``out``; the rows of b and of ``out`` are contiguous, those of a need not be.

    ``out`` has a multiple of 8 rows and of 16 columns.
    """
    wide = out.shape[1] // _WIDE * _WIDE
    for i in range(0, out.shape[0], ROWS):
        for j in range(0, wide, _WIDE):
            _add_wide_tile(a[i:], b[:, j:], out[i:, j:], b.shape[0])
        for j in range(wide, out.shape[1], COLUMNS):
            _add_tile(a[i:], b[:, j:], out[i:, j:], b.shape[0])
