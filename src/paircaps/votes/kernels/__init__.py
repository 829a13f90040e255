"""Faster paths to the two sums of FM agreement, behind the operators of ``votes``.

The tiles of ``tiled_sums`` run everywhere and are the reference of what stands here. ``choice`` decides between the
paths, by device, precision, sizes and what is installed; layers, routings and models know nothing of it.

- ``votes.c``: both passes in plain C, for processors.
- ``native_build``: compiles it at first use, into the user's cache.
- ``native``: calls it.
- ``triton_sums``: the same two passes on graphics cards, and ``triton_code`` their kernels.
- ``choice``: which path runs, and why.
"""
