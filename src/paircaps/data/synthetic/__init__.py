"""Images that are drawn: glyphs, affine warps, digits on a canvas, noise."""
