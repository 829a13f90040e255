"""Synthetic images: glyphs, affine warps, digits on a canvas, noise."""
