"""The decorator of all compiled functions, and some instructions that Numba lacks."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Array = npt.NDArray[Any]
# Not parallel=True: Numba's threads share OpenMP with torch and change the number of threads that torch trains with.
# The loops release the GIL instead, so that callers can run blocks of them on their own threads.
jit = nb.njit(cache=True, nogil=True)


@intrinsic
def pointer(_: Any, array: Any) -> Any:
    """Return the address of an array's first entry, which is indexed like the array; None stays None.

    Where arrays are passed on in a loop, compiled code may count references to each of them, which can take longer
    than the loop. The array must be an argument of the function, which its caller keeps.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(array)(context, builder, args[0]).data

    if array is types.none:
        return array(array), lambda context, builder, signature, args: context.get_dummy_value()
    return types.CPointer(array.dtype)(array), generate  # type: ignore[attr-defined]


@intrinsic
def prefetch(_: Any, array: Any, position: Any) -> Any:
    """Load the cache line of ``array[position]`` while the code goes on; a position beyond the array does nothing."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = args[0]
        if isinstance(array, types.Array):
            data = context.make_array(array)(context, builder, data).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0i8")
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        builder.call(call, [place, word(0), word(3), word(1)])  # to read, into all levels, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


@intrinsic
def count_bits(_: Any, word: Any) -> Any:
    """Return the number of bits of a uint64 that are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@intrinsic
def load_word(_: Any, array: Any, position: Any) -> Any:
    """Return the 8 bytes of a uint8 array from a position on as a uint64, which need not be aligned."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(array, types.uint64), generate
