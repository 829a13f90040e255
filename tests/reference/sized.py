"""Routings by name, of whatever sizes they ask their layer for."""

from paircaps import create_routing, testing
from paircaps.routing import layer_sizes


def sized_routing(name, out_capsules, *, children=testing.CHILDREN, pose_dim=testing.POSE_DIM, **options):
    """A registered routing, built for votes of these sizes, and for children as those of the shipped checks.

    Args:
        name: registered name.
        out_capsules: J, the number of parents.
        children: I, the number of children.
        pose_dim: K, the dimensions of a vote.
        options: options of the routing.
    """
    sizes = {"in_capsules": children, "in_dim": testing.IN_DIM, "pose_dim": pose_dim}
    return create_routing(name, out_capsules, **{size: sizes[size] for size in layer_sizes(name)}, **options)
