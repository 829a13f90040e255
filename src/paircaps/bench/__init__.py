"""Benchmarks of speed and memory, and estimates of both; results name the machine they were measured on."""
