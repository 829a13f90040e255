"""Table of contents of the site.

Pages are Markdown that GitHub shows too, where a table of contents of Sphinx would be a block of code. It is appended
here, when a page is read.
"""

from sphinx.application import Sphinx

CONTENTS = {
    "README": {
        "Start": ["docs/capsules", "docs/tutorials/capsule-layer", "docs/tutorials/own-pictures", "docs/lesson"],
        "Guides": [
            *("docs/training", "docs/fast-training", "docs/data", "docs/weights", "docs/look-inside"),
            *("docs/static-page", "docs/export"),
            *("docs/models", "docs/grid", "docs/segmentation", "docs/add-a-routing", "docs/plug-ins", "docs/streaming"),
        ],
        "Reference": [
            *("docs/api/README", "docs/command-line", "docs/run-folder"),
            *("docs/equations", "docs/architecture"),
        ],
        "Results": ["results/report", "docs/experiments/README", "results/README", "LOG"],
        "Project": ["CONTRIBUTING", "SECURITY", "CHANGELOG"],
    },
    "docs/experiments/README": {
        "": ["fig4", "fig5", "table1", "table2", "table3", "table5", "table6", "routings", "queue"]
    },
    "docs/api/README": {
        "": [
            *("paircaps", "functional", "layers", "votes", "routing", "models", "networks", "losses", "testing"),
            *("data", "training", "explain", "export", "errors"),
        ],
    },
    "results/README": {
        "": [
            *(
                "One longer training <longer/report>",
                "Fast trainings <fast/runs>",
                "Accuracy over minutes <fast/minutes>",
                "Capsules on a grid <grid/runs>",
                "Masks <segment/runs>",
                "New viewpoints <viewpoints/runs>",
                "Familiar viewpoints <viewpoints/familiar>",
            ),
            *("The demonstration <bench/demo>", "Equivariance <bench/equivariance>"),
            *("Poses <poses/equivariance>", "Depth <bench/depth>"),
            *("bench/table1", "bench/layer", "bench/scaling", "bench/tiles", "bench/triton"),
            "Training speed <bench/train>",
            *("Precision <bench/train-precision>", "Profile <bench/train-profile>", "bench/channels_last"),
            *("A busy machine <bench/busy>", "Data <bench/data>", "Exported networks <bench/export>"),
            "The page <bench/serve>",
            "The page under attack <bench/serve-soak>",
        ],
    },
}


def append_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the table of contents of the page ``name`` to its source."""
    for caption, pages in CONTENTS.get(name, {}).items():
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *options, "", *pages, "```", ""])


def setup(app: Sphinx) -> dict[str, bool]:
    """Append contents whenever a page is read."""
    app.connect("source-read", append_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
