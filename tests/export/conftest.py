"""A page without a server, of small networks, written once."""

import pytest
from explain.small import saved, small_network

from paircaps.errors import PaircapsError
from paircaps.export import export_page
from paircaps.export.web_runtime import runtime_files


@pytest.fixture(scope="session")
def web_runtime():
    """Files of ONNX Runtime Web; where they are not and npm cannot fetch them, tests of pages are skipped."""
    try:
        return runtime_files()
    except PaircapsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def page_networks(tmp_path_factory):
    place = tmp_path_factory.mktemp("networks")
    networks = {
        "fm": small_network("fm"),
        "colour": small_network(size=40, crop=32, channels=3, decoder="none", classes=("cat", "dog", "ship")),
        "masks": small_network(model="unet-twin", size=36, decoder="none", labels=2),
    }
    return {name: saved(place / name, network) for name, network in networks.items()}


@pytest.fixture(scope="session")
def exported(tmp_path_factory, page_networks, web_runtime):
    """Report of a page that lies somewhere below the root of its web server."""
    root = tmp_path_factory.mktemp("web")
    (root / "some where").mkdir()
    return export_page(page_networks, root / "some where" / "page", samples=12)
