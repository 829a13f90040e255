"""The two GPU kernels of FM agreement, in Triton; :mod:`triton_sums` calls them. Importing this file needs Triton.

A program is one warp, 32 threads, and the images are the last axis of every tensor it holds: a thread has an image or
two, and all values of their votes in its registers. So sums over the pose and over the values of a child need no other
thread, loads of 32 neighbouring images are one access, and votes never leave the registers. Nothing is added by several
programs at once, so the same numbers come out every time.

The sizes P and R are padded to powers of two (P2, R2), as Triton wants them, and Q comes in chunks of such a power;
what is padded is loaded as zero.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

SIZES = ["images", "children", "parents", "child_step", "parent_step", "image_step"]
"""Arguments that change from layer to layer.

Triton would compile again for multiples of 16, and spread four images a thread over several threads of a vote.
"""

# pyright: reportArgumentType=false, reportOptionalSubscript=false, reportIndexIssue=false, reportGeneralTypeIssues=false
# Triton's functions are traced, not called: to a type checker, their tensors look like pointers and numbers.


@triton.jit
def _over_pose(values):
    """Sum over the pose, (P, R, B) to (1, 1, B)."""
    return tl.sum(tl.sum(values, 0), 0)[None, None, :]


@triton.jit
def _inverse_length(votes, softness_at, SHORTEST: tl.constexpr, SOFT: tl.constexpr):
    """Inverse lengths r = 1/√(‖v‖² + c) of votes, (P, R, B) to (1, 1, B) (E4, E15)."""
    squares = _over_pose(votes * votes)
    if SOFT:
        squares += tl.load(softness_at)
    return tl.rsqrt(tl.maximum(squares, SHORTEST * SHORTEST))


@triton.jit
def _children(u_at, images, there, start, END: tl.constexpr, CHUNK: tl.constexpr):
    """Some values of each row of a child, (P, CHUNK, B), from pointers to the first, (P, 1, B)."""
    q = start + tl.arange(0, CHUNK)[None, :, None]
    return tl.load(u_at + q * images, mask=there & (q < END), other=0.0)


@triton.jit
def _weights(start, END: tl.constexpr, R: tl.constexpr, R2: tl.constexpr, CHUNK: tl.constexpr):
    """Places of some rows in a weight matrix, (CHUNK, R), and which of them are there."""
    q = start + tl.arange(0, CHUNK)[:, None]
    r = tl.arange(0, R2)[None, :]
    return q * R + r, (q < END) & (r < R)


@triton.jit
def _product(u, weight):
    """Votes of one child for one parent from some rows of the weights: (P, Q, B) and (Q, R) to (P, R, B) (E1)."""
    return tl.sum(u[:, :, None, :] * weight[None, :, :, None], 1)


@triton.jit
def _add_votes(
    votes,
    u_at,
    weight_at,
    images,
    there,
    START: tl.constexpr,
    END: tl.constexpr,
    R: tl.constexpr,
    R2: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Add what the rows START to END of the weights contribute to the votes, a chunk of rows at a time."""
    for start in range(START, END, CHUNK):
        of_rows, in_matrix = _weights(start, END, R, R2, CHUNK)
        u = _children(u_at, images, there, start, END, CHUNK)
        votes += _product(u, tl.load(weight_at + of_rows, mask=in_matrix, other=0.0))
    return votes


@triton.jit(do_not_specialize=SIZES)
def sums_kernel(
    u_at,  # children, (I, P, Q, B)
    weight_at,  # vote weights, (I, J, Q, R)
    scale_at,  # scale of the batch norm, (P, R) or (I, J, P, R)
    shift_at,  # its shift, of the same shape
    softness_at,  # c, one value
    child_weight_at,  # x, (I, B)
    total_at,  # Σ x û of each range of children, (ranges, J, P, R, B)
    squares_at,  # Σ (x û)² of each range of children, of the same shape
    images,  # B
    children,  # I
    parents,  # J
    child_step,  # children of a range
    P: tl.constexpr,
    Q: tl.constexpr,
    R: tl.constexpr,
    P2: tl.constexpr,
    R2: tl.constexpr,
    SCALED: tl.constexpr,  # first rows of the weights, those that batch norm scales
    CHUNK: tl.constexpr,  # rows of the weights at a time
    EXEMPT_CHUNK: tl.constexpr,  # the same of those that have no scale
    BLOCK: tl.constexpr,  # images of a program
    NORM: tl.constexpr,  # 0 without batch norm, 1 for one scale per pose dimension, 2 for one per vote
    NORMALIZE: tl.constexpr,
    SOFT: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SHORTEST: tl.constexpr,
):
    """Sums over a range of children, for one parent and a block of images."""
    # neighbouring programs read the same children and weights
    blocks = tl.cdiv(images, BLOCK)
    block = tl.program_id(0) % blocks
    parent = tl.program_id(0) // blocks % parents
    part = tl.program_id(0) // blocks // parents
    image = block * BLOCK + tl.arange(0, BLOCK)
    p = tl.arange(0, P2)
    r = tl.arange(0, R2)
    here = (image < images)[None, None, :]
    in_rows = (p < P)[:, None, None] & here
    of_row = p[:, None, None] * Q * images + image[None, None, :]
    of_pose = p[:, None] * R + r[None, :]
    in_pose = (p < P)[:, None] & (r < R)[None, :]

    total = tl.zeros((P2, R2, BLOCK), tl.float32)
    squares = tl.zeros((P2, R2, BLOCK), tl.float32)
    for child in range(part * child_step, min(children, (part + 1) * child_step)):
        pair = child * parents + parent
        u_of = u_at + child * P * Q * images + of_row
        weight_of = weight_at + pair * Q * R
        votes = tl.zeros((P2, R2, BLOCK), tl.float32)
        votes = _add_votes(votes, u_of, weight_of, images, in_rows, 0, SCALED, R, R2, CHUNK)
        if NORM > 0:
            affine = of_pose if NORM == 1 else pair * P * R + of_pose
            scale = tl.load(scale_at + affine, mask=in_pose, other=0.0)[:, :, None]
            votes = votes * scale + tl.load(shift_at + affine, mask=in_pose, other=0.0)[:, :, None]
        votes = _add_votes(votes, u_of, weight_of, images, in_rows, SCALED, Q, R, R2, EXEMPT_CHUNK)
        if NORMALIZE:
            votes = votes * _inverse_length(votes, softness_at, SHORTEST, SOFT)
        if WEIGHTED:
            votes *= tl.load(child_weight_at + child * images + image, mask=image < images, other=0.0)[None, None, :]
        total += votes
        squares += votes * votes
    of_sum = ((part * parents + parent) * P * R + of_pose[:, :, None]) * images + image[None, None, :]
    tl.store(total_at + of_sum, total, mask=in_pose[:, :, None] & here)
    tl.store(squares_at + of_sum, squares, mask=in_pose[:, :, None] & here)


@triton.jit
def _add(at, value, mask, FIRST):
    """Write a value, or add it to what this program wrote before."""
    if not FIRST:
        value += tl.load(at, mask=mask, other=0.0)
    tl.store(at, value, mask=mask)


@triton.jit
def _weight_gradient(u, grad, ROWS: tl.constexpr, DOT: tl.constexpr):
    """Gradient of weights from children, (P, Q, B), and gradients of votes, (P, R, B): (Q, R)."""
    if not DOT:  # threads add up what their images give: five steps for each of Q·R values
        return tl.sum(tl.sum(u[:, :, None, :] * grad[:, None, :, :], 0), 2)
    # with many values it is faster to exchange images for values, through shared memory
    columns = tl.reshape(tl.permute(u, (1, 0, 2)), (u.shape[1], ROWS))
    rows = tl.reshape(tl.permute(grad, (0, 2, 1)), (ROWS, grad.shape[1]))
    return tl.dot(columns, rows, input_precision="ieee")


@triton.jit
def _child_gradient(grad, at, in_matrix):
    """Gradient of children, (P, Q, B), from gradients of votes, (P, R, B), and pointers to weights, (Q, R).

    The weights are read again, past the compiler: it would keep them in registers, which nothing else would fit beside.
    """
    weight = tl.load(at, mask=in_matrix, other=0.0, volatile=True)
    return tl.sum(weight[None, :, :, None] * grad[:, None, :, :], 2)


@triton.jit
def _add_gradients(
    grad,
    u_at,
    weight_at,
    grad_u_at,
    grad_weight_at,
    images,
    there,
    first_parent,
    first_block,
    START: tl.constexpr,
    END: tl.constexpr,
    R: tl.constexpr,
    R2: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    DOT: tl.constexpr,
):
    """Add the gradients of the rows START to END of the weights, and of the values of children they multiply."""
    for start in range(START, END, CHUNK):
        of_rows, in_matrix = _weights(start, END, R, R2, CHUNK)
        u = _children(u_at, images, there, start, END, CHUNK)
        _add(grad_weight_at + of_rows, _weight_gradient(u, grad, ROWS, DOT), in_matrix, first_block)
        q = start + tl.arange(0, CHUNK)[None, :, None]
        of_children = _child_gradient(grad, weight_at + of_rows, in_matrix)
        _add(grad_u_at + q * images, of_children, there & (q < END), first_parent)


@triton.jit(do_not_specialize=SIZES)
def gradients_kernel(
    u_at,  # children, (I, P, Q, B)
    weight_at,  # vote weights, (I, J, Q, R)
    scale_at,  # scale of the batch norm, (P, R) or (I, J, P, R)
    shift_at,  # its shift, of the same shape
    softness_at,  # c, one value
    child_weight_at,  # x, (I, B)
    slope_at,  # A, the gradient of S, (J, P, R, B)
    curve_at,  # 2 D, twice the gradient of Z, (J, P, R, B)
    grad_u_at,  # gradient of the children from each range of parents, (ranges, I, P, Q, B)
    grad_weight_at,  # gradient of the weights from each range of images, (ranges, I, J, Q, R)
    grad_scale_at,  # gradient of each pair's scale, likewise, (ranges, I, J, P, R)
    grad_shift_at,  # gradient of each pair's shift, likewise
    along_at,  # gradient of the children's weights, (ranges of parents, I, B)
    soft_at,  # −2 times the gradient of c, likewise
    images,  # B
    children,  # I
    parents,  # J
    parent_step,  # parents of a range
    image_step,  # blocks of images of a range
    P: tl.constexpr,
    Q: tl.constexpr,
    R: tl.constexpr,
    P2: tl.constexpr,
    R2: tl.constexpr,
    SCALED: tl.constexpr,
    CHUNK: tl.constexpr,
    EXEMPT_CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,  # images held at a time
    NORM: tl.constexpr,
    NORMALIZE: tl.constexpr,
    SOFT: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SHORTEST: tl.constexpr,
    HELD: tl.constexpr,  # whether a child is one chunk, which stays in the registers
    DOT: tl.constexpr,  # whether gradients of the weights are a product in shared memory
    INTERPRETED: tl.constexpr,
):
    """Gradients of one child and of its weights, over a range of images and a range of parents."""
    image_ranges = tl.cdiv(tl.cdiv(images, BLOCK), image_step)
    parent_ranges = tl.cdiv(parents, parent_step)
    image_range = tl.program_id(0) % image_ranges
    parent_range = tl.program_id(0) // image_ranges % parent_ranges
    child = tl.program_id(0) // image_ranges // parent_ranges
    p = tl.arange(0, P2)
    r = tl.arange(0, R2)
    of_pose = p[:, None] * R + r[None, :]
    in_pose = (p < P)[:, None] & (r < R)[None, :]
    first_block = image_range * image_step
    first_parent = parent_range * parent_step
    of_range = parent_range * children + child

    for block in range(first_block, min(tl.cdiv(images, BLOCK), first_block + image_step)):
        image = block * BLOCK + tl.arange(0, BLOCK)
        here = (image < images)[None, None, :]
        in_rows = (p < P)[:, None, None] & here
        of_row = p[:, None, None] * Q * images + image[None, None, :]
        u_of = u_at + child * P * Q * images + of_row
        grad_u_of = grad_u_at + of_range * P * Q * images + of_row
        if HELD:
            u = _children(u_of, images, in_rows, 0, Q, CHUNK)
            grad_u = tl.zeros((P2, CHUNK, BLOCK), tl.float32)
        if WEIGHTED:
            x = tl.load(child_weight_at + child * images + image, mask=image < images, other=0.0)[None, None, :]
        of_child = tl.zeros((1, 1, BLOCK), tl.float32)
        soft = tl.zeros((1, 1, BLOCK), tl.float32)
        for parent in range(first_parent, min(parents, first_parent + parent_step)):
            pair = child * parents + parent
            weight_of = weight_at + pair * Q * R
            # the votes again
            if HELD:
                of_rows, in_matrix = _weights(0, Q, R, R2, CHUNK)
                raw = _product(u, tl.load(weight_of + of_rows, mask=in_matrix, other=0.0))
            else:
                raw = tl.zeros((P2, R2, BLOCK), tl.float32)
                raw = _add_votes(raw, u_of, weight_of, images, in_rows, 0, SCALED, R, R2, CHUNK)
            votes = raw
            if NORM > 0:
                affine = of_pose if NORM == 1 else pair * P * R + of_pose
                scale = tl.load(scale_at + affine, mask=in_pose, other=0.0)[:, :, None]
                votes = raw * scale + tl.load(shift_at + affine, mask=in_pose, other=0.0)[:, :, None]
            votes = _add_votes(votes, u_of, weight_of, images, in_rows, SCALED, Q, R, R2, EXEMPT_CHUNK)
            if NORMALIZE:
                inverse = _inverse_length(votes, softness_at, SHORTEST, SOFT)
                votes = votes * inverse  # û
            # A + 2 D x û, the product rounded: fused, it would not cancel where votes have nothing to agree with
            of_parent = (parent * P * R + of_pose[:, :, None]) * images + image[None, None, :]
            curve = tl.load(curve_at + of_parent, mask=in_pose[:, :, None] & here, other=0.0)
            if INTERPRETED:  # the interpreter calls no functions of CUDA, and fuses nothing
                grad = votes * curve
                if WEIGHTED:
                    grad = grad * x
            else:
                grad = libdevice.mul_rn(votes, curve)
                if WEIGHTED:
                    grad = libdevice.mul_rn(grad, x)
            grad += tl.load(slope_at + of_parent, mask=in_pose[:, :, None] & here, other=0.0)
            if NORMALIZE or WEIGHTED:
                along = _over_pose(votes * grad)  # ⟨û, A + 2 D x û⟩
            if WEIGHTED:
                of_child += along
                grad *= x  # dû
                along *= x  # ⟨û, dû⟩
            if NORMALIZE:
                if SOFT:
                    soft += along * inverse * inverse
                # what is absent is divided by a constant, not by its length, so that ⟨û, dû⟩ drops out
                along = tl.where(inverse < 0.999 / SHORTEST, along, 0.0)
                grad = (grad - votes * along) * inverse  # dv = r (dû − û ⟨û, dû⟩)
            # v = g ⊙ (u W) + h: the gradients of h and g, of W, and of u
            of_pair = image_range * children * parents + pair
            grad_weight_of = grad_weight_at + of_pair * Q * R
            _add_gradients(
                grad,
                u_of,
                weight_of,
                grad_u_of,
                grad_weight_of,
                images,
                in_rows,
                parent == first_parent,
                block == first_block,
                SCALED,
                Q,
                R,
                R2,
                EXEMPT_CHUNK,
                P2 * BLOCK,
                DOT,
            )
            if NORM > 0:
                of_affine = of_pair * P * R + of_pose
                _add(grad_shift_at + of_affine, tl.sum(grad, 2), in_pose, block == first_block)
                _add(grad_scale_at + of_affine, tl.sum(grad * raw, 2), in_pose, block == first_block)
                grad = grad * scale
            if HELD:
                of_weights = _weight_gradient(u, grad, P2 * BLOCK, DOT)
                _add(grad_weight_of + of_rows, of_weights, in_matrix, block == first_block)
                grad_u += _child_gradient(grad, weight_of + of_rows, in_matrix)
            else:
                _add_gradients(
                    grad,
                    u_of,
                    weight_of,
                    grad_u_of,
                    grad_weight_of,
                    images,
                    in_rows,
                    parent == first_parent,
                    block == first_block,
                    0,
                    SCALED,
                    R,
                    R2,
                    CHUNK,
                    P2 * BLOCK,
                    DOT,
                )
                tl.debug_barrier()  # the next parent adds to what all threads have written
        if HELD:
            q = tl.arange(0, CHUNK)[None, :, None]
            tl.store(grad_u_of + q * images, grad_u, mask=in_rows & (q < Q))
        if WEIGHTED:
            tl.store(along_at + of_range * images + image[None, None, :], of_child, mask=here)
        if SOFT:
            tl.store(soft_at + of_range * images + image[None, None, :], soft, mask=here)
        tl.debug_barrier()  # and so does the next block
