"""Tiles fit the cache of a processor; on a graphics card they are few, because each is several launches."""

import itertools

import pytest
import torch

from paircaps.votes import grid_sums
from paircaps.votes.layout import LAUNCHED_PASSES, LAUNCHED_TILES, LEAST_CHILDREN, TILE_BYTES, Layout, pass_columns
from paircaps.votes.tiled_sums import SumArguments

SIZES = list(itertools.product([1, 8, 128, 4096], [1, 97, 2048, 65_536], [1, 10, 1000]))


def tiles(layout, device):
    chunks = list(layout.parent_chunks(device))
    return len(chunks) * -(-layout.children // layout.tile_children(device))


@pytest.mark.parametrize(("batch", "children", "parents"), SIZES)
def test_a_graphics_card_gets_few_tiles_that_are_a_share_of_the_votes(batch, children, parents):
    layout = Layout(batch, children, parents, 1, 8, 16)
    # children and parents are both rounded up; parents of few children come in chunks as if there were eight
    times = 4 if children >= LEAST_CHILDREN else 2 * LEAST_CHILDREN
    assert tiles(layout, "cuda") <= times * LAUNCHED_TILES
    widest = max(chunk.stop - chunk.start for chunk in layout.parent_chunks("cuda"))
    tile = 4 * batch * min(children, layout.tile_children("cuda")) * widest * 16
    one = 4 * batch * 16  # the votes of one child for one parent do not divide
    assert tile <= max(TILE_BYTES, layout.votes_bytes / LAUNCHED_TILES + 1, one)


def test_a_layer_of_hundreds_of_tiles_on_a_processor_has_sixteen_on_a_graphics_card():
    layout = Layout(128, 2048, 100, 1, 8, 16)
    assert tiles(layout, "cpu") > 600
    assert tiles(layout, "cuda") == LAUNCHED_TILES


@pytest.mark.parametrize("device", ["cpu", "meta", "mps"])
def test_elsewhere_a_tile_fits_the_cache(device):
    assert Layout(128, 65_536, 1000, 1, 8, 16).tile_bytes(device) == TILE_BYTES


def test_a_grid_is_few_passes_on_a_graphics_card():
    assert pass_columns(100_000, 1024, "cpu") == 1024
    assert pass_columns(100_000, 1024, "cuda") == 100_000 / LAUNCHED_PASSES
    assert pass_columns(100, 1024, "cuda") == 1024


@pytest.mark.parametrize("window", [None, (3, 1, 1)])
def test_the_passes_follow_the_device(window, monkeypatch):
    """The meta device stands for a graphics card, which is not there."""
    u = torch.empty(128, 1024 * 4, 16) if window is None else torch.empty(128, 32, 32, 4, 16)
    weight = torch.empty(4 if window is None else 9 * 4, 10, 16, 16)
    job = SumArguments(u.to("meta"), weight.to("meta"), None, None, 1, True, window=window)
    places = 1 if window is None else 9
    assert len(list(grid_sums._plan(job)[1])) > 20 * places
    columns = grid_sums.pass_columns
    monkeypatch.setattr(grid_sums, "pass_columns", lambda count, least, _: columns(count, least, "cuda"))
    assert len(list(grid_sums._plan(job)[1])) <= LAUNCHED_PASSES * places
