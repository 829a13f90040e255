"""A local page, and the small JSON interface it is built on; needs the extra ``serve``."""
