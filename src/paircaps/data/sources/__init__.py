"""Datasets, one file each with its metadata, its reader (files to tensors) and its registration.

Importing this package registers them all, in the order in which ``paircaps data list`` shows them.
"""
# ruff: noqa: I001

from __future__ import annotations

from paircaps.data.sources import mnist
from paircaps.data.sources import cifar10
from paircaps.data.sources import svhn
from paircaps.data.sources import smallnorb
from paircaps.data.sources import toys
from paircaps.data.sources import affnist
from paircaps.data.sources import synthetic_digits
from paircaps.data.sources import folder

__all__ = ["affnist", "cifar10", "folder", "mnist", "smallnorb", "svhn", "synthetic_digits", "toys"]
