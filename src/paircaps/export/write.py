"""Export of a trained network: its files are made, run against the network, and only then written, all together."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from paircaps._utils.checks import require_positive
from paircaps._utils.extras import require_extra
from paircaps._utils.files import write_together
from paircaps._utils.words import as_size
from paircaps.errors import DataError, PaircapsError, os_data_error
from paircaps.export.compare import (
    LIMIT,
    MOST_LOSS,
    Samples,
    Score,
    differences,
    load_samples,
    load_test_images,
    outputs,
    score,
)
from paircaps.export.formats import DECODER, FORMATS, Files, Format, Trained
from paircaps.export.graphs import DECODER_OUTPUTS, Answers, Drawings, output_names, require_decoder
from paircaps.losses import is_right
from paircaps.model_files import FORMAT as MODEL_FORMAT
from paircaps.model_files import load, read_metadata
from paircaps.network import most_active

IMAGES = 256
"""Images that an export is compared on unless another number is given."""


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how near it is to the network.

    Args:
        files: bytes of each file by its path.
        network: greatest difference of each output of the network, by its name, divided by the greatest value of that
            output if it is above 1; of an export in 8 bits too, for which no bound is set.
        decoder: the same of the decoder's output; empty if the decoder was not asked for.
        images: number of images that the two were compared on.
        same: number of them of which both say the same class, or the same two.
        source: name of their dataset.
        score: accuracy of an export in 8 bits and of the original; None of other exports.
    """

    files: dict[Path, int]
    network: dict[str, float]
    decoder: dict[str, float]
    images: int
    same: int
    source: str
    score: Score | None = None

    def as_dict(self) -> dict[str, object]:
        """All fields, for JSON."""
        return {**asdict(self), "files": {str(path): size for path, size in self.files.items()}}

    def lines(self) -> list[str]:
        """The report as lines of text."""
        lines = [f"{path}: {as_size(size)}" for path, size in self.files.items()]
        allowed = "" if self.score is not None else f", {LIMIT:g} allowed"
        lines.append(
            f"greatest difference from the network on {self.images:,} images of {self.source}: "
            f"{_listed(self.network)}{allowed}; the same classes in {self.same:,}"
        )
        if self.decoder:
            lines.append(f"of the decoder: {_listed(self.decoder)}, {LIMIT:g} allowed")
        if self.score is not None:
            lines.append(f"8-bit weights: {self.score}, {MOST_LOSS} points less allowed")
        return lines


def export_network(
    folder: Path | str,
    path: Path | str,
    *,
    with_decoder: bool = False,
    quantize: bool = False,
    samples: int = IMAGES,
    data_dir: Path | None = None,
) -> ExportReport:
    """Export a trained network to a file that other programs run.

    The export is run at once against the network, on test images of its run if they are on this machine and on glyphs
    else. If an output differs by more than 1e-4, nothing is written.

    Args:
        folder: the ``--out`` of a finished training, or any folder that :func:`paircaps.load` reads.
        path: file to write, which ends in ``.onnx``, ``.pt2`` or ``.safetensors``. Beside the last lies its ``.json``.
        with_decoder: whether to write the decoder too, to ``NAME-decoder.onnx`` or ``NAME-decoder.pt2``.
        quantize: whether weights are stored in 8 bits; refused if that costs more than 0.1 points of accuracy on the
            test images of the run.
        samples: images to compare on.
        data_dir: folder to search first for datasets.

    Returns:
        what was written, and the greatest differences.

    Raises:
        PaircapsError: if the folder has no trained network, the file cannot be written or has another ending, a package
            is missing, or the export does not do what the network does.
    """
    folder, path = Path(folder).expanduser(), Path(path).expanduser()
    require_positive(samples=samples)
    form = _format(path)
    metadata = read_metadata(folder)
    if form.packages:
        require_extra(f"export to {form.ending}", *form.packages, extra="export")
    if quantize and not form.quantizes:
        raise PaircapsError(f"{path}: 8-bit weights are there for .onnx and .pt2, not for {form.ending}")
    _require_places(path, with_decoder)
    trained = Trained(folder, load(folder), metadata)
    if with_decoder:
        require_decoder(trained.network)
    tested = load_test_images(trained.network, folder, data_dir) if quantize else None
    images = load_samples(trained.network, folder, samples, data_dir)

    # the network
    names = output_names(trained.network)
    original = outputs(Answers(trained.network), [images.images])
    files = form.network_files(trained)
    answers = outputs(form.run(files[form.ending], files), [images.images])
    require_near(differences(answers, original, names), path, "the network", images)
    found = None
    if tested is not None:
        files = form.rounded_files(trained, files)
        run = form.run(files[form.ending], files)
        found = score(trained.network, tested, run)
        if found.loss > MOST_LOSS + 1e-9:
            raise PaircapsError(f"{path}: not written: 8-bit weights cost more than {MOST_LOSS} points: {found}")
        answers = outputs(run, [images.images])
    same = _same_labels(answers[0], original[0], trained.network.spec.labels_per_image)

    # the decoder
    decoder: dict[str, float] = {}
    if with_decoder and (drawn := form.decoder_files(trained)):
        decoder = decoder_differences(form, drawn, trained, original[2])
        require_near(decoder, path, "the decoder", images)
        files = {**files, **drawn}

    written = {path.with_name(path.stem + ending): content for ending, content in files.items()}
    try:
        write_together(written)
    except OSError as error:
        raise os_data_error("write", error.filename or path, error) from None
    sizes = {name: len(content) for name, content in written.items()}
    network = differences(answers, original, names)
    return ExportReport(sizes, network, decoder, len(images.images), same, images.source, found)


def _format(path: Path) -> Format:
    """The format of a file by its ending."""
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: ends in {path.suffix or 'nothing'}; {', '.join(FORMATS)} are there")
    return FORMATS[path.suffix]


def _require_places(path: Path, with_decoder: bool) -> None:
    """Refuse files that cannot be written, and a JSON file of somebody else, before the work."""
    if not path.parent.is_dir():
        raise DataError(f"{path}: {'is in a file' if path.parent.exists() else 'no such folder'}")
    names = [path.name, *([f"{path.stem}{DECODER}{path.suffix}"] if with_decoder else [])]
    for place in (path.with_name(name) for name in names):
        if place.exists() and not place.is_file():
            raise DataError(f"{place}: is {'a folder' if place.is_dir() else 'not an ordinary file'}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # a read-only disk shows here, even for root
            pass
    except OSError as error:
        raise os_data_error("write to this folder", path.parent, error) from None
    if path.suffix == ".safetensors":
        _require_own_json(path.with_name(f"{path.stem}.json"))


def _require_own_json(path: Path) -> None:
    """Refuse to replace a JSON file that nobody named, unless it describes a network."""
    if not path.exists():
        return
    try:
        described = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        described = None
    if not isinstance(described, dict) or described.get("format") != MODEL_FORMAT:
        raise DataError(f"{path}: would be replaced, and does not describe a network of paircaps: give another name")


def decoder_differences(form: Format, files: Files, trained: Trained, pose: Tensor) -> dict[str, float]:
    """Greatest difference of images drawn from poses (N, J, K), of all classes in turn."""
    (content,) = files.values()
    inputs = [pose, torch.arange(len(pose)) % pose.shape[1]]
    original = Drawings(require_decoder(trained.network))
    return differences(outputs(form.run(content, files), inputs), outputs(original, inputs), DECODER_OUTPUTS)


def _same_labels(one: Tensor, other: Tensor, count: int) -> int:
    """Number of images whose ``count`` most active classes are the same in two tensors of activations, (N, J)."""
    return int(is_right(one, most_active(other, count)).sum())


def require_near(found: dict[str, float], path: Path, what: str, images: Samples) -> None:
    """Raise an error if an output differs by more than is allowed, or is no number."""
    if not all(difference <= LIMIT for difference in found.values()):
        raise PaircapsError(
            f"{path}: not written: the export differs from {what} by {_listed(found)} on {len(images.images):,} images "
            f"of {images.source}, {LIMIT:g} is allowed"
        )


def _listed(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {difference:.1e}" for name, difference in found.items())
