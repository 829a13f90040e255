"""Where ``paircaps predict`` writes masks: a folder of indexed PNG files, one for each picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from paircaps._utils.colours import palette
from paircaps._utils.extras import require_extra
from paircaps._utils.files import write_whole
from paircaps.errors import PaircapsError
from paircaps.network import Network, Prediction

_ENDING = "-mask.png"


class MaskOutput:
    """Folder of masks.

    Args:
        folder: where masks are written; it is made if it is not there.
        network: segmentation network whose masks are written.
        pictures: names of all pictures whose masks will be written.

    Raises:
        PaircapsError: if the network gives no masks, there is a file of the folder's name, two pictures have one name,
            or a mask would overwrite a picture.
    """

    def __init__(self, folder: Path, network: Network, pictures: Sequence[str]) -> None:
        if not network.has_masks:
            raise PaircapsError(f"--masks {folder}: {network.spec.model} classifies pictures, it gives no masks")
        if folder.exists() and not folder.is_dir():
            raise PaircapsError(f"--masks {folder}: is a file; masks are written into a folder")
        self.folder, self.classes = folder, len(network.classes)
        self._require_free(pictures)
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, picture: str) -> Path:
        """File of the mask of a picture: NAME-mask.png."""
        return self.folder / f"{Path(picture).stem}{_ENDING}"

    def _require_free(self, pictures: Sequence[str]) -> None:
        """Raise an error if two masks would have one name, or one would overwrite a picture."""
        inputs, planned = {Path(name).resolve() for name in pictures}, {}
        for name in pictures:
            path = self.path(name)
            if path.resolve() in inputs:
                raise PaircapsError(f"{path}: is a picture to predict, which would be overwritten")
            if path in planned:
                raise PaircapsError(
                    f"{path}: would be the mask of {planned[path]} and of {name}, which has the same name; "
                    "predict them one after the other, into two folders"
                )
            planned[path] = name

    def write(self, prediction: Prediction) -> Path:
        """Write the mask of a prediction, in place of an earlier one; returns its file."""
        assert prediction.mask is not None
        path = self.path(prediction.name)
        write_whole(path, indexed_png(prediction.mask, self.classes))
        return path


def indexed_png(index: Tensor, classes: int) -> bytes:
    """An indexed PNG file of classes of pixels, (H, W) in uint8, with a colour for each class."""
    require_extra("writing masks", "PIL")
    from PIL import Image

    picture = Image.fromarray(index.numpy(), mode="P")
    picture.putpalette(palette(classes))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
