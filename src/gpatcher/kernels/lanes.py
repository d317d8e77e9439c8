"""Steps of a push and of its ranking for 16 nodes at a time, by instructions of AVX-512 that Numba lacks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

LANES = 16
_FEATURES = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
HAS_LANES = {"+avx512f", "+avx512cd", "+avx512dq"} <= set(_FEATURES.split(","))  # else these functions do not compile

_BIT, _SHORT, _LONG, _BYTE = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
_SHORTS, _MASK = ir.VectorType(_SHORT, LANES), ir.VectorType(_BIT, LANES)
_HALF = LANES // 2  # numbers of 64 bits are in two vectors
_LONGS, _HALF_SHORTS, _HALF_MASK = (ir.VectorType(kind, _HALF) for kind in (_LONG, _SHORT, _BIT))
_NUMBER_LANES = ir.Constant(_SHORTS, list(range(LANES)))


def _call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call an instruction."""
    function = ir.FunctionType(result, [value.type for value in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, function, name), args)


def _repeat(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector with the value in all lanes."""
    first = builder.insert_element(ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value, _SHORT(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_SHORT, lanes), [0] * lanes))


def _half(builder: Any, vector: Any, which: int) -> Any:
    """Return the first or the last lanes of a vector."""
    lanes = range(which * _HALF, (which + 1) * _HALF)
    return builder.shuffle_vector(vector, vector, ir.Constant(_HALF_SHORTS, list(lanes)))


def _join(builder: Any, halves: list[Any]) -> Any:
    """Return both halves as one vector."""
    return builder.shuffle_vector(*halves, ir.Constant(_SHORTS, list(range(LANES))))


def _place(builder: Any, pointer: Any, position: Any) -> Any:
    """Return the address of 16 numbers of 32 bits from a position on."""
    return builder.bitcast(builder.gep(pointer, [position]), _SHORTS.as_pointer())


def _store_chosen(builder: Any, vector: Any, mask: Any, place: Any) -> None:
    """Store the lanes in a mask next to each other; what follows them, up to 16 lanes in all, is overwritten."""
    # a compression straight into memory takes ten times as long on Zen 4
    chosen = _call(builder, "llvm.x86.avx512.mask.compress.v16i32", _SHORTS, vector, vector, mask)
    builder.store(chosen, place, align=4)


def _bits(builder: Any, mask: Any) -> Any:
    """Return a mask as an integer."""
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), _LONG)


@intrinsic
def enter_lanes(
    _: Any, row: Any, first: Any, table: Any, hash_factor: Any, hash_shift: Any, step: Any, low: Any, tag: Any,
    used: Any, found: Any, count: Any, limit: Any,
) -> Any:  # fmt: skip
    """Enter the new ones of 16 nodes into the hash table of a push; see `gpatcher.kernels.ppr_push` for its words.

    The nodes, without their codes in the upper byte, are distinct. Each is sought in one slot only, ``step`` slots
    behind its own. New nodes have the positions from ``used`` on; the positions of the ones that are found are added
    to ``found`` at ``count``. A node is neither new nor found if another one has the slot.

    Returns
    -------
    new, again, low : uint64
        The bits of the nodes that are new, found, and with an entry below ``limit``.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, first, table, hash_factor, hash_shift, step, low, tag, used, found, count, limit = args
        base = builder.bitcast(table, _BYTE)
        entries = builder.load(_place(builder, row, first), align=4)
        nodes = builder.and_(entries, ir.Constant(_SHORTS, [0xFFFFFF] * LANES))
        hashed = builder.mul(nodes, _repeat(builder, hash_factor, LANES))
        slots = builder.add(builder.lshr(hashed, _repeat(builder, hash_shift, LANES)), _repeat(builder, step, LANES))
        slots = builder.and_(slots, _repeat(builder, builder.lshr(_SHORT(0xFFFFFFFF), hash_shift), LANES))
        tags, lows = _repeat(builder, tag, _HALF), _repeat(builder, low, _HALF)
        other = _repeat(builder, builder.shl(_LONG(1), low), _HALF)
        words, places, empty, same, positions = [], [], [], [], []
        for half in range(2):
            place = _half(builder, slots, half)
            node = builder.zext(_half(builder, nodes, half), _LONGS)
            word = builder.or_(builder.shl(node, lows), tags)
            nothing, everywhere = ir.Constant(_LONGS, None), ir.Constant(_HALF_MASK, [1] * _HALF)
            old = _call(
                builder, "llvm.x86.avx512.mask.gather.dpq.512", _LONGS, nothing, base, place, everywhere, _SHORT(8)
            )
            position = builder.xor(old, word)
            words.append(word)
            places.append(place)
            empty.append(builder.icmp_unsigned("<", old, tags))
            same.append(builder.icmp_unsigned("<", position, other))
            positions.append(builder.trunc(position, _HALF_SHORTS))
        free, again = _join(builder, empty), _join(builder, same)
        # of new nodes with the same slot, the first takes it
        earlier = _call(builder, "llvm.x86.avx512.conflict.d.512", _SHORTS, slots)
        taking = _repeat(builder, builder.trunc(_bits(builder, free), _SHORT), LANES)
        alone = builder.icmp_unsigned("==", builder.and_(earlier, taking), ir.Constant(_SHORTS, [0] * LANES))
        new = builder.and_(free, alone)
        numbers = builder.add(_NUMBER_LANES, _repeat(builder, builder.trunc(used, _SHORT), LANES))
        numbers = _call(builder, "llvm.x86.avx512.mask.expand.v16i32", _SHORTS, numbers, numbers, new)
        for half in range(2):
            word = builder.or_(words[half], builder.zext(_half(builder, numbers, half), _LONGS))
            _call(
                builder, "llvm.x86.avx512.mask.scatter.dpq.512", ir.VoidType(),
                base, _half(builder, new, half), places[half], word, _SHORT(8),
            )  # fmt: skip
        _store_chosen(builder, _join(builder, positions), again, _place(builder, found, count))
        below = builder.icmp_unsigned("<", entries, _repeat(builder, limit, LANES))
        masks = [_bits(builder, mask) for mask in (new, again, below)]
        return context.make_tuple(builder, signature.return_type, masks)

    short, long = types.uint32, types.uint64
    masks = types.UniTuple(long, 3)  # type: ignore[attr-defined]
    return masks(row, long, table, short, short, short, long, long, long, found, long, short), generate


@intrinsic
def keep_lanes(_: Any, source: Any, first: Any, mask: Any, target: Any, at: Any) -> Any:
    """Copy those of 16 entries of a uint32 array that are in a mask, next to each other; up to 16 are overwritten."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, first, mask, target, at = args
        vector = builder.load(_place(builder, source, first), align=4)
        chosen = builder.bitcast(builder.trunc(mask, ir.IntType(LANES)), _MASK)
        _store_chosen(builder, vector, chosen, _place(builder, target, at))
        return context.get_dummy_value()

    return types.void(source, types.uint64, types.uint64, target, types.uint64), generate


@intrinsic
def fill_lanes(_: Any, target: Any, first: Any, value: Any) -> Any:
    """Write a number to 16 entries of a float64 array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, first, value = args
        vector = _repeat(builder, value, LANES)
        builder.store(vector, builder.bitcast(builder.gep(target, [first]), vector.type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(target, types.uint64, types.float64), generate


@intrinsic
def shifted(_: Any, pointer: Any, position: Any) -> Any:
    """Return the address of an entry of 32 bits, as one of uint32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return types.CPointer(types.uint32)(pointer, types.uint64), generate  # type: ignore[attr-defined]


@intrinsic
def compare_lanes(_: Any, received: Any, entries: Any, first: Any, factor: Any, most: Any) -> Any:
    """Return the bits of those of 16 positions where (factor · received)² is at least the code of the entry.

    Codes above ``most`` count as this. In single precision, so that ``factor`` needs a margin.
    """
    number = ir.FloatType()
    numbers = ir.VectorType(number, LANES)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        received, entries, first, factor, most = args
        place = builder.bitcast(builder.gep(received, [first]), ir.VectorType(ir.DoubleType(), LANES).as_pointer())
        values = builder.fptrunc(builder.load(place, align=8), numbers)
        values = builder.fmul(values, _repeat(builder, builder.fptrunc(factor, number), LANES))
        codes = builder.lshr(builder.load(_place(builder, entries, first), align=4), ir.Constant(_SHORTS, [24] * LANES))
        limit = _repeat(builder, most, LANES)
        codes = builder.select(builder.icmp_unsigned("<", codes, limit), codes, limit)
        return _bits(builder, builder.fcmp_ordered(">=", builder.fmul(values, values), builder.uitofp(codes, numbers)))

    return types.uint64(received, entries, types.uint64, types.float64, types.uint32), generate


@intrinsic
def list_lanes(_: Any, first: Any, mask: Any, target: Any, at: Any) -> Any:
    """Write the numbers of the lanes in a mask, from ``first`` on, to a uint32 array; up to 16 are overwritten."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, mask, target, at = args
        numbers = builder.add(_NUMBER_LANES, _repeat(builder, builder.trunc(first, _SHORT), LANES))
        chosen = builder.bitcast(builder.trunc(mask, ir.IntType(LANES)), _MASK)
        _store_chosen(builder, numbers, chosen, _place(builder, target, at))
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, target, types.uint64), generate
