"""Compiled loops over a graph in CSR form: plain arrays in, preallocated arrays out.

``indptr`` has n + 1 offsets, ``indices`` the neighbours of node v at ``indptr[v]:indptr[v + 1]``,
``weights`` one value per entry of ``indices`` or None. Nothing here judges its input; ``gpatcher.graph`` does.
"""

import math
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Not parallel=True: numba's threads share OpenMP with torch and change the number of threads it trains with. The loops
# release the interpreter's lock, so that callers can run blocks of them on threads of their own.
_jit = nb.njit(cache=True, nogil=True)


# The small letter or the digit that a byte stands for within a word; 0 where it is no part of one. What is beyond ASCII
# stays as it is.
_LETTER = np.array([c if c > 127 else ord(chr(c).lower()) if chr(c).isalnum() or c == 95 else 0 for c in range(256)])


@_jit
def _mixed(block: int) -> int:
    """Return four bytes as murmur3 mixes them before they enter the hash."""
    block = (block * 0xCC9E2D51) & 0xFFFFFFFF
    block = (block << 15 | block >> 17) & 0xFFFFFFFF
    return (block * 0x1B873593) & 0xFFFFFFFF


@_jit
def hash_words(start: Array, text: Array, width: int, entries: Array, column: Array, value: Array) -> None:
    """Hash the words of each row by murmur3 to columns with a sign, add them up and scale the row to length 1.

    Row v is ``text[start[v]:start[v + 1]]`` in UTF-8; a word is two bytes or more for which `_LETTER` has no 0. Its
    entries go to ``entries[v]:entries[v + 1]`` of ``column`` and ``value``, which have room for one per three bytes.
    """
    total = np.zeros(width)
    met = np.empty(width, np.int32)
    seen = np.zeros(width, np.bool_)
    at = 0
    entries[0] = 0
    for v in range(start.size - 1):
        count = 0
        state = block = length = 0
        for i in range(start[v], start[v + 1] + 1):
            code = _LETTER[text[i]] if i < start[v + 1] else 0
            if code:
                block |= code << (8 * (length & 3))
                length += 1
                if length & 3 == 0:
                    state ^= _mixed(block)
                    state = (state << 13 | state >> 19) & 0xFFFFFFFF
                    state = (state * 5 + 0xE6546B64) & 0xFFFFFFFF
                    block = 0
            elif length:
                if length > 1:
                    state ^= _mixed(block) ^ length
                    state = ((state ^ state >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
                    state = ((state ^ state >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
                    state ^= state >> 16
                    negative = state >> 31  # as a signed number; without a branch, which would be taken at random
                    j = np.uint32((state ^ -negative) + negative) % np.uint32(width)
                    if not seen[j]:
                        seen[j] = True
                        met[count] = j
                        count += 1
                    total[j] += 1 - 2 * negative
                state = block = length = 0
        square = 0.0
        for e in range(count):
            square += total[met[e]] ** 2
        norm = math.sqrt(square)
        for e in range(count):
            j = met[e]
            if total[j] != 0:
                column[at] = j
                value[at] = total[j] / norm
                at += 1
            total[j] = 0.0
            seen[j] = False
        entries[v + 1] = at


@_jit
def mean_and_deviation(numbers: Array) -> tuple[int, float, float]:
    """Return how many numbers are not NaN, their mean and their standard deviation; zeros where there are none."""
    count, total = 0, 0.0
    for x in numbers:
        if not np.isnan(x):
            count += 1
            total += x
    if count == 0:
        return 0, 0.0, 0.0
    mean, squares = total / count, 0.0
    for x in numbers:
        if not np.isnan(x):
            squares += (x - mean) ** 2
    return count, mean, np.sqrt(squares / count)


@_jit
def standardise(numbers: Array, mean: float, factor: float, limit: float, out: Array) -> int:
    """Write (x - mean) · factor, cut off at ± limit and 0 for NaN; return how many were cut off."""
    far = 0
    for v in range(numbers.size):
        place = (numbers[v] - mean) * factor
        if np.isnan(place):
            place = 0.0
        elif abs(place) > limit:
            far += 1
            place = limit if place > 0 else -limit
        out[v] = place
    return far


@_jit
def append_columns(values: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Put the columns of a dense table (d, n) into a sparse one as its first columns; ``cursor[v]`` moves on.

    Return how many of the values are not 0.
    """
    filled = 0
    for v in range(cursor.size):
        at = cursor[v]
        for j in range(values.shape[0]):
            indices[at + j] = j
            data[at + j] = values[j, v]
            filled += values[j, v] != 0
        cursor[v] = at + values.shape[0]
    return filled


@_jit
def append_categories(codes: Array, offsets: Array, cursor: Array, indices: Array, data: Array) -> int:
    """Put a one at column ``offsets[c] + codes[c, v]`` of each row, for each c; a stored zero where the code is -1.

    Return the number of ones.
    """
    filled = 0
    for v in range(cursor.size):
        at = cursor[v]
        for c in range(offsets.size):
            code = codes[c, v]
            indices[at + c] = offsets[c] + max(code, 0)
            data[at + c] = 1.0 if code >= 0 else 0.0
            filled += code >= 0
        cursor[v] = at + offsets.size
    return filled


@_jit
def append_words(
    entries: Array, column: Array, value: Array, offset: int, cursor: Array, indices: Array, data: Array
) -> None:
    """Put the hashed words of each row, as `hash_words` wrote them, into a sparse table from column ``offset`` on."""
    for v in range(cursor.size):
        at = cursor[v] - entries[v]
        for e in range(entries[v], entries[v + 1]):
            indices[at + e] = offset + column[e]
            data[at + e] = value[e]
        cursor[v] = at + entries[v + 1]


@_jit
def count_edges(source: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the number of edges that start at v."""
    for e in range(source.size):
        degree[source[e]] += 1


@_jit
def place_edges(
    source: Array, target: Array, weight: Array | None, cursor: Array, indices: Array, weights: Array | None
) -> None:
    """Write each edge into the row of its source; ``cursor[v]`` is where v's next entry goes."""
    for e in range(source.size):
        v = source[e]
        at = cursor[v]
        cursor[v] = at + 1
        indices[at] = target[e]
        if weight is not None and weights is not None:
            weights[at] = weight[e]


@_jit
def count_reversed(indptr: Array, indices: Array, degree: Array) -> None:
    """Add to ``degree[v]`` the edges that v needs so that each of its edges runs both ways."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                degree[indices[e]] += 1


@_jit
def place_both_ways(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    cursor: Array,
    out_indices: Array,
    out_weights: Array | None,
) -> None:
    """Write each edge into the rows of both its ends, a self-loop once."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            at = cursor[v]
            cursor[v] = at + 1
            out_indices[at] = u
            if weights is not None and out_weights is not None:
                out_weights[at] = weights[e]
            if u != v:
                at = cursor[u]
                cursor[u] = at + 1
                out_indices[at] = v
                if weights is not None and out_weights is not None:
                    out_weights[at] = weights[e]


@_jit
def sort_rows(indptr: Array, indices: Array, weights: Array | None) -> None:
    """Sort each row by neighbour id, in place, its weights along with it."""
    for v in range(indptr.size - 1):
        lo, hi = indptr[v], indptr[v + 1]
        e = lo + 1
        while e < hi and indices[e - 1] <= indices[e]:
            e += 1
        if e >= hi:
            continue  # sorted already, as many files are
        if weights is None:
            indices[lo:hi].sort()
        else:
            # stable, so that the sum over equal edges does not depend on the sort
            order = np.argsort(indices[lo:hi], kind="mergesort")
            indices[lo:hi] = indices[lo:hi][order]
            weights[lo:hi] = weights[lo:hi][order]


@_jit
def merge_rows(indptr: Array, indices: Array, weights: Array | None, add: bool) -> int:
    """Merge equal neighbours within each sorted row, in place; return how many entries went.

    Weights of merged entries are added, or the larger one stays. ``indptr`` is rewritten; what lies
    beyond its last offset is left over.
    """
    kept = 0
    lo = indptr[0]
    for v in range(indptr.size - 1):
        hi = indptr[v + 1]
        first = kept
        for e in range(lo, hi):
            if kept > first and indices[kept - 1] == indices[e]:
                if weights is not None:
                    if add:
                        weights[kept - 1] += weights[e]
                    else:
                        weights[kept - 1] = max(weights[kept - 1], weights[e])
            else:
                indices[kept] = indices[e]
                if weights is not None:
                    weights[kept] = weights[e]
                kept += 1
        lo = hi
        indptr[v + 1] = kept
    return int(indices.size - kept)


@_jit
def merge_directions(
    indptr: Array,
    start: int,
    codes: Array,
    weights: Array | None,
    indices: Array,
    out_weights: Array | None,
    counts: Array,
) -> int:
    """Merge the entries of each sorted row that lead to the same neighbour; return how many are left.

    The rows are those of nodes start, start + 1, ... A code is 2u for an edge as it was given and 2u + 1 for one
    turned round. Weights of equal edges are added; where the two directions differ the larger one counts. ``indptr``
    is rewritten. To ``counts`` are added the edges given more than once, the self-loops, and the entries whose
    directions differ in weight.
    """
    kept = 0
    lo = indptr[0]
    for v in range(indptr.size - 1):
        hi = indptr[v + 1]
        e = lo
        while e < hi:
            u = codes[e] >> 1
            first = e
            there = back = 0.0
            while e < hi and codes[e] == 2 * u:
                there += 1.0 if weights is None else weights[e]
                e += 1
            counts[0] += max(0, e - first - 1)
            while e < hi and codes[e] == 2 * u + 1:
                back += 1.0 if weights is None else weights[e]
                e += 1
            counts[1] += u == start + v
            counts[2] += there > 0 and back > 0 and there != back
            indices[kept] = u
            if out_weights is not None:
                out_weights[kept] = max(there, back)
            kept += 1
        lo = hi
        indptr[v + 1] = kept
    return kept


@_jit
def sum_rows(indptr: Array, weights: Array, out: Array) -> None:
    """Add to ``out[v]`` the weights of v's row, one after the other."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            out[v] += weights[e]


@_jit
def count_self_loops(indptr: Array, indices: Array) -> int:
    """Count the entries on the diagonal."""
    count = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                count += 1
    return count


@_jit
def count_one_way(indptr: Array, indices: Array, weights: Array | None, cursor: Array, most: int) -> int:
    """Count the edges of sorted rows whose reverse is missing or has another weight, up to ``most`` of them.

    ``cursor`` starts as a copy of ``indptr[:-1]``. Sources come in rising order, and so do the entries
    of every row, so the reverse of each edge is met by moving one cursor per row forward: O(m).
    """
    count = 0
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            while cursor[u] < indptr[u + 1] and indices[cursor[u]] < v:
                cursor[u] += 1
            back = cursor[u]
            missing = back == indptr[u + 1] or indices[back] != v
            if missing or (weights is not None and weights[back] != weights[e]):
                count += 1
                if count >= most:
                    return count
    return count


@_jit
def count_components(indptr: Array, indices: Array, parent: Array) -> int:
    """Count the connected components by union-find; ``parent`` starts as 0 … n - 1.

    SciPy's routine copies the whole adjacency as float64 first; this one needs n integers.
    """
    count = parent.size
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            a, b = v, indices[e]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            if a != b:
                # the smaller id becomes the root
                if a < b:
                    parent[b] = a
                else:
                    parent[a] = b
                count -= 1
    return count


@_jit
def clear_diagonal(indptr: Array, indices: Array, data: Array) -> None:
    """Set the entries on the diagonal to 0."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] == v:
                data[e] = 0.0


@_jit
def scale_both_sides(indptr: Array, indices: Array, data: Array, scale: Array) -> None:
    """Multiply each entry by scale_v · scale_u, in place: D^-1/2 A D^-1/2 where scale = d^-1/2."""
    for v in range(indptr.size - 1):
        for e in range(indptr[v], indptr[v + 1]):
            data[e] *= scale[v] * scale[indices[e]]


@_jit
def label_agreement(indptr: Array, indices: Array, y: Array, same: Array, known: Array) -> None:
    """Count, for each labelled node, its labelled neighbours and those among them with its own label."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                known[v] += 1
                if label == y[v]:
                    same[v] += 1


@_jit
def class_pairs(indptr: Array, indices: Array, y: Array, counts: Array) -> None:
    """Count the stored edges between each pair of classes, both ends labelled."""
    for v in range(indptr.size - 1):
        if y[v] < 0:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            label = y[indices[e]]
            if label >= 0:
                counts[y[v], label] += 1


@_jit
def _mix(value: np.uint64) -> np.uint64:
    # the finaliser of splitmix64: every bit of the output depends on every bit of the input
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


@_jit
def neighbourhood_hashes(indptr: Array, indices: Array, y: Array, out: Array) -> None:
    """Fill ``out`` (n,) with a 64-bit hash of each node's row and label: twins have equal hashes."""
    for v in range(indptr.size - 1):
        key = _mix(np.uint64(0x9E3779B97F4A7C15) + np.uint64(y[v]))
        for e in range(indptr[v], indptr[v + 1]):
            key = _mix(key ^ _mix(np.uint64(0xD1B54A32D192ED03) + np.uint64(indices[e])))
        out[v] = key


@_jit
def draw_rmat(keys: Array, seed: np.uint64, start: int, n: int, levels: int, a: float, ab: float, abc: float) -> None:
    """Fill ``keys`` with R-MAT draws ``start``, ``start + 1``, ...: an edge u < v as u · 2^32 + v.

    A self-loop or an id from n on becomes the largest int64. Each of the ``levels`` bits of the ids is
    drawn with the quarters (0, 0) up to a, (0, 1) up to ab, (1, 0) up to abc and (1, 1) above. The random
    numbers are splitmix64 at a place set by the number of the draw, so blocks may be drawn in any order.
    """
    words = (levels + 1) // 2  # one word has 32 random bits for each of two levels
    low = np.uint64(0xFFFFFFFF)
    for e in range(keys.size):
        u = 0
        v = 0
        word = np.uint64(0)
        for level in range(levels):
            if level % 2 == 0:
                place = np.uint64((start + e) * words + level // 2 + 1)
                word = _mix(seed + place * np.uint64(0x9E3779B97F4A7C15))
            else:
                word >>= np.uint64(32)
            r = float(word & low) / 4294967296.0
            u = 2 * u + (1 if r >= ab else 0)
            v = 2 * v + (1 if (a <= r < ab or r >= abc) else 0)
        first, last = min(u, v), max(u, v)
        keys[e] = (first << 32) | last if first < last < n else 9223372036854775807


# Rows added to a graph without copying it: (rows, indptr, indices, weights, degree) of the few nodes, in rising order,
# that are new or have new neighbours. The row of an old node goes on in its added one; ``degree`` counts both.
Added = tuple[Array, Array, Array, Array | None, Array] | None


@_jit
def _added_row(rows: Array, node: int) -> int:
    """Return the place of a node among the rows added, -1 where it is not."""
    at = np.searchsorted(rows, node)
    return at if at < rows.size and rows[at] == node else -1  # type: ignore[return-value]


@_jit
def _degree(indptr: Array, weights: Array | None, degree: Array, added: Added, node: int) -> float:
    if added is not None:
        at = _added_row(added[0], node)
        if at >= 0:
            return added[4][at]  # type: ignore[no-any-return]
    elif weights is None:
        return float(indptr[node + 1] - indptr[node])  # which a push of the node reads anyway
    return degree[node]  # type: ignore[no-any-return]


@_jit
def _entries(indptr: Array, added: Added, node: int) -> int:
    """Count the entries of a node's row."""
    count = 0
    if node < indptr.size - 1:
        count = indptr[node + 1] - indptr[node]
    if added is not None:
        at = _added_row(added[0], node)
        if at >= 0:
            count += added[1][at + 1] - added[1][at]
    return count


@_jit
def _spread(
    indices: Array,
    weights: Array | None,
    first: int,
    last: int,
    amount: float,
    place: Array,
    met: Array,
    count: int,
    sums: Array,
) -> int:
    """Add ``amount`` times its weight to each neighbour; one met for the first time gets a place. Return the count."""
    for e in range(first, last):
        u = indices[e]
        at = place[u]
        if at == 0:
            met[count] = u
            count += 1
            at = count
            place[u] = at
        sums[at - 1] += amount if weights is None else amount * weights[e]
    return count


@_jit
def _largest_within(value: Array, cost: Array, count: int, budget: int, bins: Array) -> float:
    """Return the size above which values may be kept so that their costs add up to the budget at most.

    Sizes are told apart by a quarter of their octave, down to 2^-128 of the largest, so no sort is needed.
    """
    total = 0
    largest = 0.0
    for i in range(count):
        if value[i] != 0.0:
            total += cost[i]
            largest = max(largest, abs(value[i]))
    if total <= budget:
        return 0.0
    bins[:] = 0
    for i in range(count):
        if value[i] != 0.0:
            mantissa, exponent = math.frexp(abs(value[i]) / largest)  # mantissa from 1/2 on
            below = 7 - int(8.0 * mantissa) - 4 * (exponent - 1)
            bins[min(below, bins.size - 1)] += cost[i]
    at = 0
    while bins[at] <= budget:
        budget -= bins[at]
        at += 1
    # just below the smallest size of the last bin that is kept
    return largest * math.ldexp((8.0 - at % 4) / 8.0, 1 - at // 4) * (1.0 - 1e-12)


@_jit
def chebyshev_pairs(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    sources: Array,
    around: Array,
    budget: int,
    out: Array,
    added: Added = None,
) -> None:
    """Write T_k(Ã)[v, u] for k = 1 … K, v each source and u those around it, by walks from the source.

    The column T_k(Ã)e_v is kept as y_k = D^-1/2 T_k(Ã) e_v / sqrt(d_v), which the recurrence takes to
    y_{k+1} = 2 D^-1 A y_k - y_{k-1}. From the second step on only so many nodes pass their value on that their rows
    have at most ``budget`` entries: those of the largest |y|, which is what they add, squared, per entry walked.

    ``around`` (sources, candidates) has -1 where there are no more, ``out`` is (sources, candidates, K).
    """
    n = indptr.size - 1
    if added is not None:
        n = max(n, added[0][-1] + 1)
    # zeros that the system hands out when they are first touched, so their cost is that of the nodes met
    place = np.zeros(n, np.int32)  # 1 + a node's place in the arrays below
    met = np.zeros(n, np.int32)
    entries = np.zeros(n, np.int64)
    now = np.zeros(n)
    before = np.zeros(n)
    sums = np.zeros(n)
    bins = np.zeros(512, np.int64)
    for s in range(sources.size):
        v = sources[s]
        own = _degree(indptr, weights, degree, added, v)
        if own == 0:
            for j in range(around.shape[1]):
                if around[s, j] == v:
                    for k in range(1, out.shape[2]):
                        out[s, j, k] = (k % 2) * (k % 4 - 2)  # T_2, T_4, ... at 0: -1, 1, ...
            continue
        met[0] = v
        place[v] = 1
        entries[0] = _entries(indptr, added, v)
        now[0] = 1.0 / own
        count = 1
        for k in range(out.shape[2]):
            least = 0.0 if k == 0 else _largest_within(now, entries, count, budget, bins)
            known = count
            for i in range(known):
                if abs(now[i]) > least:
                    u = met[i]
                    if u < indptr.size - 1:
                        count = _spread(indices, weights, indptr[u], indptr[u + 1], now[i], place, met, count, sums)
                    if added is not None:
                        at = _added_row(added[0], u)
                        if at >= 0:
                            first, last = added[1][at], added[1][at + 1]
                            count = _spread(added[2], added[3], first, last, now[i], place, met, count, sums)
            factor = 1.0 if k == 0 else 2.0
            for i in range(count):
                u = met[i]
                if i >= known:
                    entries[i] = _entries(indptr, added, u)
                after = factor * sums[i] / _degree(indptr, weights, degree, added, u) - before[i]
                before[i] = now[i]
                now[i] = after
                sums[i] = 0.0
            for j in range(around.shape[1]):
                u = around[s, j]
                if u >= 0 and place[u] > 0:
                    out[s, j, k] = now[place[u] - 1] * math.sqrt(own * _degree(indptr, weights, degree, added, u))
        for i in range(count):
            place[met[i]] = 0
            now[i] = 0.0
            before[i] = 0.0


@_jit
def _comes_before(score: float, node: int, other_score: float, other_node: int) -> bool:
    return score > other_score or (score == other_score and node < other_node)


@_jit
def _insert(score: float, node: int, scores: Array, nodes: Array, count: int) -> int:
    """Insert a node into a list kept by falling score, then by rising id; return the new length."""
    size = nodes.size
    if size == 0:
        return 0
    if count == size:
        if not _comes_before(score, node, scores[size - 1], nodes[size - 1]):
            return count
        count -= 1
    at = count
    while at > 0 and _comes_before(score, node, scores[at - 1], nodes[at - 1]):
        scores[at] = scores[at - 1]
        nodes[at] = nodes[at - 1]
        at -= 1
    scores[at] = score
    nodes[at] = node
    return count + 1


@_jit
def top_of_rows(rows: Array, first: int, least: float, index: Array, score: Array) -> None:
    """Write the patch of each row of scores: the ego node, then the others by falling score and rising id.

    ``rows`` (b, n) are the scores of nodes first, first + 1, ...; ``index`` and ``score`` (b, p) come filled
    with -1 and 0. A node whose score is at most ``least`` times the row's largest in size is left out.
    """
    for r in range(rows.shape[0]):
        ego = first + r
        largest = 0.0
        for u in range(rows.shape[1]):
            largest = max(largest, abs(rows[r, u]))
        floor = least * largest
        index[r, 0] = ego
        score[r, 0] = rows[r, ego]
        count = 0
        for u in range(rows.shape[1]):
            s = rows[r, u]
            if u != ego and abs(s) > floor:
                count = _insert(s, u, score[r, 1:], index[r, 1:], count)


@_jit
def top_of_candidates(around: Array, score: Array, places: Array) -> None:
    """Write where the first of each row stand, by falling score, then by rising id.

    ``around`` and ``score`` are (b, candidates), ``places`` (b, p) with p at most the candidates.
    """
    size = places.shape[1]
    for v in range(places.shape[0]):
        for j in range(around.shape[1]):
            at = min(j, size)
            while at > 0:
                other = places[v, at - 1]
                if not _comes_before(score[v, j], around[v, j], score[v, other], around[v, other]):
                    break
                if at < size:
                    places[v, at] = other
                at -= 1
            if at < size:
                places[v, at] = j


# Degrees by a byte each, as they are read at random for every edge: code k stands for a degree of 2^((k - 128) / 4) or
# more, 0 for any.
_CODES = 256
_FIRST_TABLE = 1 << 17  # places at first; with fewer, a source near a hub moves its table again and again


def degree_codes(degree: Array) -> Array:
    """Return a byte for each degree that bounds it from below to a quarter of its octave."""
    with np.errstate(divide="ignore"):
        octave = np.log2(degree)
    codes: Array = np.clip(np.floor(4 * octave) + 128, 0, _CODES - 1).astype(np.uint8)
    return codes


@_jit
def _least_degree(code: int) -> float:
    return 2.0 ** ((code - 128) / 4) * (1.0 - 1e-9) if code > 0 else 0.0  # less than it by what rounding may do


@_jit
def _code(codes: Array, added: Added, node: Any) -> int:
    if added is not None and np.int64(node) >= codes.size:
        return 0
    return codes[node]  # type: ignore[no-any-return]


@_jit
def _slot(keys: Array, mask: np.uint64, node: Any) -> Any:
    """Find a node's place among the first mask + 1, a power of two, of a table of open addresses.

    Places are unsigned, for which compiled code need not ask whether they count from the end. The hash has 25 bits.
    """
    at = np.uint64(np.uint32(np.uint32(node) * np.uint32(0x9E3779B1)) >> np.uint32(7)) & mask
    while keys[at] != -1 and keys[at] != np.int32(node):
        at = (at + np.uint64(1)) & mask
    return at


@_jit
def _give(
    indices: Array,
    weights: Array | None,
    first: int,
    last: int,
    share: float,
    indptr: Array,
    degree: Array,
    codes: Array,
    added: Added,
    sure: Array,
    eps: float,
    keys: Array,
    residual: Array,
    mask: np.uint64,
    touched: Array,
    met: Array,
    queue: Array,
    used: int,
    tail: int,
) -> tuple[int, int]:
    """Give each neighbour its share; return the places used and the end of the queue."""
    for e in range(first, last):
        w = np.uint64(indices[e])
        at = _slot(keys, mask, w)
        code = _code(codes, added, w)
        before = 0.0
        if keys[at] == -1:
            keys[at] = np.int32(w)
            touched[used] = at
            met[used] = code
            used += 1
        else:
            before = residual[at]
        now = before + (share if weights is None else share * weights[e])
        residual[at] = now
        if now > sure[code]:
            limit = eps * _degree(indptr, weights, degree, added, np.int64(w))
            if before <= limit < now:  # it was not waiting yet
                queue[tail] = np.int32(w)
                tail += 1
    return used, tail


@_jit
def _push_all(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    codes: Array,
    added: Added,
    sure: Array,
    c: float,
    eps: float,
    keys: Array,
    residual: Array,
    mask: np.uint64,
    touched: Array,
    met: Array,
    queue: Array,
    amount: Array,
    state: Array,
) -> bool:
    """Push until no residual is left to push, or until a row might not fit into the arrays; tell which.

    A function of its own because it must not change its arrays for others: compiled code then counts no references
    in its loops.
    """
    used, head, tail = state[0], state[1], state[2]
    while head < tail:
        u = queue[head]
        row = _entries(indptr, added, u)
        if used + row > (np.int64(mask) + 1) // 2 or tail + row > queue.size:
            break
        at = _slot(keys, mask, u)
        amount[head] = residual[at]
        share = c * residual[at] / _degree(indptr, weights, degree, added, u)
        residual[at] = 0.0
        head += 1
        if u < indptr.size - 1:
            first, last = indptr[u], indptr[u + 1]
            used, tail = _give(
                indices, weights, first, last, share, indptr, degree, codes, added, sure, eps,
                keys, residual, mask, touched, met, queue, used, tail,
            )  # fmt: skip
        if added is not None:
            own = _added_row(added[0], u)
            if own >= 0:
                first, last = added[1][own], added[1][own + 1]
                used, tail = _give(
                    added[2], added[3], first, last, share, indptr, degree, codes, added, sure, eps,
                    keys, residual, mask, touched, met, queue, used, tail,
                )  # fmt: skip
    state[0], state[1], state[2] = used, head, tail
    return head == tail  # type: ignore[no-any-return]


@_jit
def _rank(
    v: int,
    indptr: Array,
    weights: Array | None,
    degree: Array,
    added: Added,
    most: Array,
    c: float,
    keys: Array,
    received: Array,
    touched: Array,
    met: Array,
    used: int,
    index: Array,
    score: Array,
) -> None:
    """Write the patch of v from the nodes touched, and empty the table."""
    index[0] = v
    score[0] = (1.0 - c) * received[touched[0]]
    keys[touched[0]] = -1
    scale = (1.0 - c) * np.sqrt(_degree(indptr, weights, degree, added, v))
    above = scale * (1.0 + 1e-6)  # with it no score is larger than its bound, rounding included
    members, values = index[1:], score[1:]
    count = 0
    floor = 0.0
    for i in range(1, used):
        at = touched[i]
        if above * received[at] * most[met[i]] >= floor:
            u = keys[at]
            count = _insert(
                np.float32(scale * received[at] / np.sqrt(_degree(indptr, weights, degree, added, u))),
                u,
                values,
                members,
                count,
            )
            if 0 < count == values.size:
                floor = values[count - 1]
        keys[at] = -1


@_jit
def push_ppr(
    indptr: Array,
    indices: Array,
    weights: Array | None,
    degree: Array,
    codes: Array,
    sources: Array,
    c: float,
    eps: float,
    index: Array,
    score: Array,
    added: Added = None,
) -> None:
    """Write the patches of the sources by personalised PageRank on the symmetric Ã, found by local pushes.

    From a residual of 1 at the source v, each push moves (1 - c) of a node's residual to its estimate and
    shares the rest among its neighbours, until no residual exceeds eps · degree. The estimate, plus what the
    residual is sure to add, is a lower bound of the random walk's π_v; r_v[u] = π_v[u] sqrt(d_v / d_u) makes it
    that of Ã, and only then are the largest taken. Cost and memory per source do not depend on n.

    A node's estimate plus (1 - c) times its residual is (1 - c) times all that it ever received: what it pushed,
    which the queue keeps, and its residual, which the table holds.

    ``codes`` are those of `degree_codes`; most nodes touched neither push nor rank by any degree that theirs allow,
    and it is never read. ``index`` and ``score`` (sources, p) come filled with -1 and 0; the source itself goes first.
    """
    sure, most = np.empty(_CODES), np.empty(_CODES)
    for code in range(_CODES):
        least = _least_degree(code)
        sure[code] = eps * least
        most[code] = 1.0 / np.sqrt(least) if least > 0 else np.inf
    fewest = 16
    while fewest < min(4 * indptr.size, _FIRST_TABLE):
        fewest *= 2
    keys, residual = np.full(fewest, -1, np.int32), np.empty(fewest)
    touched = np.empty(fewest // 2, np.uint32)  # the places in use, the source's first, in the order of their use
    met = np.empty(fewest // 2, np.uint8)  # the codes of the nodes there
    queue, amount = np.empty(fewest, np.int32), np.empty(fewest)  # nodes to push, and what those before the head pushed
    state = np.zeros(3, np.int64)
    for s in range(sources.size):
        v = sources[s]
        if not _degree(indptr, weights, degree, added, v) > 0:
            index[s, 0] = v
            score[s, 0] = 1.0 - c
            continue
        mask = np.uint64(fewest - 1)
        at = _slot(keys, mask, v)
        keys[at], residual[at] = v, 1.0
        touched[0], met[0], queue[0] = at, _code(codes, added, v), v
        state[0], state[1], state[2] = 1, 0, 1  # places used, head of the queue, its end
        while not _push_all(
            indptr, indices, weights, degree, codes, added, sure, c, eps,
            keys, residual, mask, touched, met, queue, amount, state,
        ):  # fmt: skip
            used, head, tail = state[0], state[1], state[2]
            row = _entries(indptr, added, queue[head])
            if tail + row > queue.size:
                old_queue, old_amount = queue, amount
                queue, amount = np.empty(2 * (tail + row), np.int32), np.empty(2 * (tail + row))
                queue[:tail] = old_queue[:tail]
                amount[:head] = old_amount[:head]
            had = np.int64(mask) + 1
            places = had
            while places // 2 < used + row:
                places *= 2
            if places > had:
                # move every entry to its place in a table with room for the next row
                nodes, values = keys[touched[:used]], residual[touched[:used]]
                keys[touched[:used]] = -1
                if places > keys.size:
                    keys, residual = np.full(places, -1, np.int32), np.empty(places)
                    old_met = met
                    touched, met = np.empty(places // 2, np.uint32), np.empty(places // 2, np.uint8)
                    met[:used] = old_met[:used]
                mask = np.uint64(places - 1)
                for i in range(used):
                    at = _slot(keys, mask, nodes[i])
                    keys[at], residual[at], touched[i] = nodes[i], values[i], at
        for i in range(state[1]):
            residual[_slot(keys, mask, queue[i])] += amount[i]
        _rank(v, indptr, weights, degree, added, most, c, keys, residual, touched, met, state[0], index[s], score[s])
