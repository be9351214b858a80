"""Triton kernels of the stacked LSTM, whose tensors :mod:`suite.frameworks.pytorch.stacked_lstm` describes.

A wave is one step of every layer. ``forward`` and ``backward`` compute one wave in a launch; ``forward_all``
and ``backward_all`` compute all waves in one launch: before each wave a program waits until all programs have
finished the last one. This needs all programs to run at the same time. They hold their weights in shared
memory from wave to wave.
"""

from __future__ import annotations

import triton
import triton.language as tl

from suite.frameworks.pytorch.kernels import add_product, tanh

PARTS = tl.constexpr(8)  # sums that do not wait for each other, of a held sum over all gates
AHEAD = tl.constexpr(7)  # blocks of slopes loaded before the first one is used: shared memory has room for 8


@triton.jit
def _split_gates(gates, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gates i, f, g and o of ``gates`` [rows, 4 units]."""
    ig, fo = tl.split(tl.reshape(gates, (rows, units, 2, 2)))
    i, g = tl.split(ig)
    f, o = tl.split(fo)
    return i, f, g, o


@triton.jit
def _join_gates(i, f, g, o, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """The opposite of :func:`_split_gates`."""
    return tl.reshape(tl.join(tl.join(i, g), tl.join(f, o)), (rows, 4 * units))


@triton.jit
def _tile(batch, width: tl.constexpr, rows: tl.constexpr, units: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of this program: rows of the batch, units and columns of gates; which rows, units and columns exist."""
    row = tl.program_id(2) * rows + tl.arange(0, rows)[:, None]
    unit = tl.program_id(0) * units + tl.arange(0, units)[None, :]
    column = tl.program_id(0) * (4 * units) + tl.arange(0, 4 * units)[None, :]
    present = row < batch
    return row, unit, column, present, present & (unit < width), present & (column < 4 * width)


@triton.jit
def _append(blocks, block):  # type: ignore[no-untyped-def]
    """The tuple ``blocks`` with one more."""
    return blocks + (block,)  # noqa: RUF005 - Triton unpacks no tuple


@triton.jit
def _arrive(counter, wave):  # type: ignore[no-untyped-def]
    """Add 1 to ``counter``: the program has stored all of the wave before ``wave``."""
    if wave > 0:
        tl.debug_barrier()
        tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def _await(counter, wave):  # type: ignore[no-untyped-def]
    """Wait until all programs have arrived at ``wave``.

    Every thread may then load what any program stored before it arrived: barriers order the threads of a
    program, the release and the acquire order the programs (PTX ISA, memory consistency model).
    """
    target = wave * (tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2))
    arrived = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    while arrived < target:
        arrived = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()


@triton.jit
def _forward_weights(  # type: ignore[no-untyped-def]
    weights, padded: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):
    """The weights of a program: a tuple of blocks [depth, 4 units]."""
    at_matrix = tl.program_id(1).to(tl.int64) + 1
    column = tl.program_id(0) * (4 * units) + tl.arange(0, 4 * units)[None, :]
    right = weights + at_matrix * (4 * padded * padded) + column * padded + tl.arange(0, depth)[:, None]
    blocks = ()
    for at in tl.static_range(padded // depth):
        blocks = _append(blocks, tl.load(right + at * depth))
    return blocks


@triton.jit
def _forward_rows(  # type: ignore[no-untyped-def]
    left, present, blocks: tl.constexpr, depth: tl.constexpr
):
    """The rows at ``left``: a tuple of blocks [rows, depth]."""
    loaded = ()
    for at in tl.static_range(blocks):
        a = tl.load(left + at * depth, mask=present, other=0, cache_modifier=".cg")
        loaded = _append(loaded, a)
    return loaded


@triton.jit
def _forward_product(loaded, held, total, blocks: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total``, of zeros, plus the ``loaded`` rows times the ``held`` weights."""
    other = total  # a second sum: the additions of one wait for each other
    for at in tl.static_range(blocks):
        if at % 2 == 0:
            total = add_product(total, loaded[at], held[at])
        else:
            other = add_product(other, loaded[at], held[at])
    return total + other


@triton.jit
def _forward_wave(  # type: ignore[no-untyped-def]
    wave, counter, held, weights, biases, first, later, masks, states, cells, gates, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr, keep: tl.constexpr,
    wide: tl.constexpr, hold: tl.constexpr, one_launch: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One wave forward; program (tile of units, matrix - 1, tile of rows).

    An odd matrix, of a hidden state, makes a step of its layer. The product of the layer's input is in
    ``first`` for layer 0, and in ``later`` for the others, where an even matrix writes it. If its matrix has
    no step in this wave, a program stores nothing. ``hold``: the weights are ``held``. ``one_launch``: it
    computes all waves, and the programs count at ``counter``.
    """
    at_matrix = tl.program_id(1).to(tl.int64) + 1  # int64: a large batch has more elements than int32 counts
    layer = at_matrix // 2
    recurrent = at_matrix % 2 == 1
    step = wave + 1 - at_matrix
    row, unit, column, present, inside, every = _tile(batch, width, rows, units)
    active = (step >= 0) & (step < steps)
    present, inside, every = present & active, inside & active, every & active
    size = batch * padded  # of a step
    if one_launch:
        _arrive(counter, wave)
    # These loads come before the wait and the products, which hide their latency: other programs write none
    # of what they read.
    in_first = first + step * (4 * size) + row * (4 * padded) + column
    from_first = tl.load(in_first, mask=every & (at_matrix == 1), other=0)
    bias = tl.load(biases + layer * (4 * width) + column, mask=(column < 4 * width) & recurrent, other=0)
    cell = cells + (layer * (steps + 1) + step) * size + row * padded + unit
    c = tl.load(cell, mask=inside & recurrent, other=0)
    if masked:
        mask = masks + ((layer * steps + step) * batch + row) * width + unit
        factor = tl.load(mask, mask=inside & recurrent, other=0)
    if one_launch:
        _await(counter, wave)

    # Other programs wrote the rest in earlier waves: ".cg" loads it from L2, which they share, past the
    # multiprocessor's own L1.
    own = states + (at_matrix * (steps + 1) + step) * size + row * padded
    left = own + tl.arange(0, depth)[None, :]
    if hold:
        loaded = _forward_rows(left, present, padded // depth, depth)
    in_later = later + ((layer - 1) * steps + step) * (4 * size) + row * (4 * padded) + column
    from_later = tl.load(in_later, mask=every & recurrent & (layer > 0), other=0, cache_modifier=".cg")
    total = tl.zeros((rows, 4 * units), wide)
    if hold:
        total = _forward_product(loaded, held, total, padded // depth)
    else:
        right = weights + at_matrix * (4 * padded * padded) + column * padded + tl.arange(0, depth)[:, None]
        for k in range(0, padded, depth):
            a = tl.load(left + k, mask=present, other=0, cache_modifier=".cg")
            total = add_product(total, a, tl.load(right + k))

    if recurrent:
        i, f, g, o = _split_gates(total + from_first.to(wide) + from_later + bias, rows, units)
        i = tl.sigmoid(i)
        f = tl.sigmoid(f)
        g = tanh(g)
        o = tl.sigmoid(o)
        c = f * c + i * g
        tl.store(cell + size, c, mask=inside)
        h = o * tanh(c)
        tl.store(own + size + unit, h.to(states.dtype.element_ty), mask=inside)
        if masked:
            h *= factor
        tl.store(own + (steps + 1) * size + unit, h.to(states.dtype.element_ty), mask=inside)
        if keep:
            kept = gates + (layer * steps + step) * (4 * size) + row * (4 * padded) + column
            value = _join_gates(i, f, g, o, rows, units)
            tl.store(kept, value.to(gates.dtype.element_ty), mask=every)
    else:
        tl.store(in_later, total, mask=every)


@triton.jit(do_not_specialize=["wave"])
def forward(  # type: ignore[no-untyped-def]
    wave, weights, biases, first, later, masks, states, cells, gates, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr, keep: tl.constexpr,
    wide: tl.constexpr, hold: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One wave. ``hold``: compute as :func:`forward_all` does, for tests where programs run one by one."""
    step = wave - tl.program_id(1)
    if (step >= 0) & (step < steps):
        held = _forward_weights(weights, padded, units, depth) if hold else ()
        _forward_wave(
            wave, None, held, weights, biases, first, later, masks, states, cells, gates, steps, batch,
            width, padded, masked, keep, wide, hold, False, rows, units, depth
        )  # fmt: skip


@triton.jit(do_not_specialize=["waves"])
def forward_all(  # type: ignore[no-untyped-def]
    waves, counter, weights, biases, first, later, masks, states, cells, gates, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr, keep: tl.constexpr,
    wide: tl.constexpr, rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """All waves, in half precision; ``counter`` is an int32, 0."""
    held = _forward_weights(weights, padded, units, depth)
    wave = 0
    while wave < waves:  # not a for loop, whose loads the compiler may move to an earlier wave
        _forward_wave(
            wave, counter, held, weights, biases, first, later, masks, states, cells, gates, steps, batch,
            width, padded, masked, keep, wide, True, True, rows, units, depth
        )  # fmt: skip
        wave += 1


@triton.jit
def _parts(padded: tl.constexpr, depth: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first gate of each part of a held sum, [parts, 1, 1], and the gates of a block of one part."""
    return tl.arange(0, PARTS)[:, None, None] * (4 * padded // PARTS), tl.arange(0, 4 * depth // PARTS)


@triton.jit
def _backward_weights(  # type: ignore[no-untyped-def]
    turned, layers, padded: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):
    """The weights of a program: a tuple of blocks [parts, 4 depth / parts, units]."""
    at_matrix = 2 * layers - 1 - tl.program_id(1).to(tl.int64)
    unit = tl.program_id(0) * units + tl.arange(0, units)[None, None, :]
    begin, gate = _parts(padded, depth)
    right = turned + at_matrix * (4 * padded * padded) + unit * (4 * padded) + begin + gate[None, :, None]
    blocks = ()
    for at in tl.static_range(padded // depth):
        blocks = _append(blocks, tl.load(right + at * (4 * depth // PARTS)))
    return blocks


@triton.jit
def _backward_product(  # type: ignore[no-untyped-def]
    rows, present, held, sums, padded: tl.constexpr, depth: tl.constexpr
):
    """The slopes at ``rows`` [1, rows, 1] times the ``held`` weights, by ``sums``, one for each part."""
    begin, gate = _parts(padded, depth)
    left = rows + begin + gate[None, None, :]
    loaded = ()
    for at in tl.static_range(padded // depth + AHEAD):
        if at < padded // depth:
            a = tl.load(left + at * (4 * depth // PARTS), mask=present, other=0, cache_modifier=".cg")
            loaded = _append(loaded, a)
        if at >= AHEAD:
            sums = tl.dot(loaded[at - AHEAD], held[at - AHEAD], sums, out_dtype=sums.dtype)
    return tl.sum(sums, 0)


@triton.jit
def _streamed_product(  # type: ignore[no-untyped-def]
    left, present, right, zero, padded: tl.constexpr, depth: tl.constexpr
):
    """The slopes at ``left`` times the weights at ``right``.

    It has four sums of a quarter: the additions of one wait for each other.
    """
    s0, s1, s2, s3 = zero, zero, zero, zero
    for k in range(0, padded, depth):
        a = tl.load(left + k, mask=present, other=0, cache_modifier=".cg")
        s0 = add_product(s0, a, tl.load(right + k))
        a = tl.load(left + (padded + k), mask=present, other=0, cache_modifier=".cg")
        s1 = add_product(s1, a, tl.load(right + (padded + k)))
        a = tl.load(left + (2 * padded + k), mask=present, other=0, cache_modifier=".cg")
        s2 = add_product(s2, a, tl.load(right + (2 * padded + k)))
        a = tl.load(left + (3 * padded + k), mask=present, other=0, cache_modifier=".cg")
        s3 = add_product(s3, a, tl.load(right + (3 * padded + k)))
    return (s0 + s1) + (s2 + s3)


@triton.jit
def _backward_wave(  # type: ignore[no-untyped-def]
    wave, counter, held, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr,
    wide: tl.constexpr, hold: tl.constexpr, one_launch: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One wave back in time; program (tile of units, 2 L - 1 - matrix, tile of rows).

    ``turned``: the weights, transposed. An odd matrix makes the slopes of its layer at a step from ``given``,
    the gradient of the output, or from ``passed`` [L - 1, T, B, P], which an even matrix writes for the layer
    below. ``carried`` [L, B, P] is the gradient of the cell, ``slopes`` are zero behind the last step.
    Otherwise as :func:`_forward_wave`.
    """
    turn = tl.program_id(1).to(tl.int64)  # int64: a large batch has more elements than int32 counts
    at_matrix = 2 * layers - 1 - turn
    layer = at_matrix // 2
    recurrent = at_matrix % 2 == 1
    step = steps - 1 - wave + turn
    row, unit, column, present, inside, every = _tile(batch, width, rows, units)
    active = (step >= 0) & (step < steps)
    present, inside, every = present & active, inside & active, every & active
    used = inside & recurrent
    size = batch * padded
    at_unit = row * padded + unit
    if one_launch:
        _arrive(counter, wave)
    # As in _forward_wave, other programs write none of what these loads read.
    from_given = tl.load(given + step * size + at_unit, mask=used & (layer == layers - 1), other=0)
    if masked:
        mask = masks + ((layer * steps + step) * batch + row) * width + unit
        factor = tl.load(mask, mask=used, other=0)
    kept = gates + (layer * steps + step) * (4 * size) + row * (4 * padded) + column
    activated = tl.load(kept, mask=every & recurrent, other=0)
    cell = cells + (layer * (steps + 1) + step) * size + at_unit
    before = tl.load(cell, mask=used, other=0)
    after = tl.load(cell + size, mask=used, other=0)
    carry = carried + layer * size + at_unit
    dc = tl.load(carry, mask=used, other=0)
    if one_launch:
        _await(counter, wave)

    # Other programs wrote the rest in earlier waves.
    in_passed = passed + (layer * steps + step) * size + at_unit
    from_next = tl.load(in_passed, mask=used & (layer < layers - 1), other=0, cache_modifier=".cg")
    # The slopes of the next step for a hidden state, of this one for an input.
    own = slopes + (layer * (steps + 1) + step) * (4 * size) + row * (4 * padded)
    at_slope = (at_matrix % 2) * (4 * size)
    if hold:
        line = tl.program_id(2) * rows + tl.arange(0, rows)[None, :, None]
        left = slopes + (layer * (steps + 1) + step) * (4 * size) + at_slope + line * (4 * padded)
        sums = tl.zeros((PARTS, rows, units), wide)
        total = _backward_product(left, (line < batch) & active, held, sums, padded, depth)
    else:
        left = own + at_slope + tl.arange(0, depth)[None, :]
        right = (
            turned + at_matrix * (4 * padded * padded) + unit * (4 * padded) + tl.arange(0, depth)[:, None]
        )
        total = _streamed_product(left, present, right, tl.zeros((rows, units), wide), padded, depth)

    if recurrent:
        i, f, g, o = _split_gates(activated.to(wide), rows, units)
        above = from_next + from_given
        if masked:
            above *= factor
        dh = total + above
        squashed = tanh(after)
        dc += dh * o * (1 - squashed * squashed)
        tl.store(carry, dc * f, mask=inside)
        di, df = dc * g * i * (1 - i), dc * before * f * (1 - f)
        dg, do = dc * i * (1 - g * g), dh * squashed * o * (1 - o)
        value = _join_gates(di, df, dg, do, rows, units)
        tl.store(own + column, value.to(slopes.dtype.element_ty), mask=every)
    else:
        tl.store(passed + ((layer - 1) * steps + step) * size + at_unit, total, mask=inside)


@triton.jit(do_not_specialize=["wave"])
def backward(  # type: ignore[no-untyped-def]
    wave, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr,
    wide: tl.constexpr, hold: tl.constexpr,
    rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """One wave. ``hold``: compute as :func:`backward_all` does, for tests where programs run one by one."""
    step = steps - 1 - wave + tl.program_id(1)
    if (step >= 0) & (step < steps):
        held = _backward_weights(turned, layers, padded, units, depth) if hold else ()
        _backward_wave(
            wave, None, held, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps,
            batch, width, padded, masked, wide, hold, False, rows, units, depth
        )  # fmt: skip


@triton.jit(do_not_specialize=["waves"])
def backward_all(  # type: ignore[no-untyped-def]
    waves, counter, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps, batch,
    width: tl.constexpr, padded: tl.constexpr, masked: tl.constexpr,
    wide: tl.constexpr, rows: tl.constexpr, units: tl.constexpr, depth: tl.constexpr
):  # fmt: skip
    """All waves; see :func:`forward_all`."""
    held = _backward_weights(turned, layers, padded, units, depth)
    wave = 0
    while wave < waves:  # not a for loop, whose loads the compiler may move to an earlier wave
        _backward_wave(
            wave, counter, held, turned, masks, cells, gates, given, passed, slopes, carried, layers, steps,
            batch, width, padded, masked, wide, True, True, rows, units, depth
        )  # fmt: skip
        wave += 1
