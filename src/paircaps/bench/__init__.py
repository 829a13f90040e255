"""Benchmarks: ratios within one interleaved run, with the machine beside them."""
