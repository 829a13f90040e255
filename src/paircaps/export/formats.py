"""The formats of exported files: for each ending, how a trained network becomes bytes, and how these bytes are run."""

from __future__ import annotations

import io
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.export import ExportedProgram

from paircaps.errors import PaircapsError
from paircaps.export.about import about
from paircaps.export.graphs import (
    Answers,
    decoder_program,
    network_program,
    quiet_exporter,
    refused,
    require_decoder,
)
from paircaps.export.onnx_files import METADATA_KEY, PACKAGES, onnx_decoder, onnx_graph
from paircaps.export.quantise import RoundedModule, with_rounded_weights
from paircaps.model_files import METADATA, WEIGHTS, load
from paircaps.network import Network

Run = Callable[..., tuple[Tensor, ...]]
"""From the inputs of a graph to its outputs."""

Files = dict[str, bytes]
"""Content of files by the end of their names, which follows the stem that all have: ``.onnx``, ``-decoder.onnx``."""

METADATA_FILE = f"{METADATA_KEY}.json"
"""File within a ``.pt2`` file that says what the network is."""

DECODER = "-decoder"


@dataclass(frozen=True)
class Trained:
    """A trained network to export.

    Args:
        folder: where it is.
        network: the network, in eval mode.
        metadata: content of its ``model.json``.
    """

    folder: Path
    network: Network
    metadata: Mapping[str, Any]


class Format(ABC):
    """A format of exported files.

    Attributes:
        ending: ending of the file's name.
        packages: top-level modules that it needs beside those of every command.
        quantizes: whether weights can be stored in 8 bits.
    """

    ending: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    quantizes: ClassVar[bool] = True

    @abstractmethod
    def network_files(self, trained: Trained) -> Files:
        """Files of a network."""

    @abstractmethod
    def rounded_files(self, trained: Trained, files: Files) -> Files:
        """Files of a network with weights in 8 bits.

        Args:
            trained: the network.
            files: its files with weights in full precision.
        """

    @abstractmethod
    def decoder_files(self, trained: Trained) -> Files:
        """Files of the decoder; none where it is in those of the network."""

    @abstractmethod
    def run(self, content: bytes, files: Files) -> Run:
        """Function that runs a file on the CPU.

        Args:
            content: content of the file.
            files: all files of the export.
        """


class Onnx(Format):
    """Graphs that ONNX Runtime and other programs run."""

    ending = ".onnx"
    packages = (*PACKAGES, "onnxruntime")

    def network_files(self, trained: Trained) -> Files:
        """The graph of a network; see :func:`onnx_graph`."""
        return {self.ending: onnx_graph(trained.network, trained.metadata)}

    def rounded_files(self, trained: Trained, files: Files) -> Files:
        """The graph with weights in 8 bits."""
        return {self.ending: with_rounded_weights(files[self.ending])}

    def decoder_files(self, trained: Trained) -> Files:
        """The graph of the decoder; see :func:`onnx_decoder`."""
        return {DECODER + self.ending: onnx_decoder(trained.network, trained.metadata)}

    def run(self, content: bytes, files: Files) -> Run:
        """Function that runs a graph in ONNX Runtime, with as many threads as PyTorch."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors alone
        with refused("ONNX Runtime refuses the graph"):
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]

        def run(*inputs: Tensor) -> tuple[Tensor, ...]:
            given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
            return tuple(torch.from_numpy(value) for value in session.run(None, given))

        return run


class Pt2(Format):
    """Programs of ``torch.export``, which run where PyTorch is, without this library."""

    ending = ".pt2"

    def network_files(self, trained: Trained) -> Files:
        """The program of a network."""
        return {self.ending: _saved(network_program(trained.network), trained)}

    def rounded_files(self, trained: Trained, files: Files) -> Files:
        """The program with weights in 8 bits."""
        return {self.ending: _saved(network_program(trained.network, RoundedModule), trained)}

    def decoder_files(self, trained: Trained) -> Files:
        """The program of the decoder."""
        return {DECODER + self.ending: _saved(decoder_program(trained.network), trained)}

    def run(self, content: bytes, files: Files) -> Run:
        """Function that runs a program."""
        with quiet_exporter():
            return torch.export.load(io.BytesIO(content)).module()


class Safetensors(Format):
    """Weights as they are, with the JSON that says what network they are of: the two files of a trained network."""

    ending = ".safetensors"
    quantizes = False

    def network_files(self, trained: Trained) -> Files:
        """Copies of ``model.safetensors`` and ``model.json``."""
        return {self.ending: (trained.folder / WEIGHTS).read_bytes(), ".json": (trained.folder / METADATA).read_bytes()}

    def rounded_files(self, trained: Trained, files: Files) -> Files:
        """None are there."""
        raise PaircapsError("weights of 8 bits are there for .onnx and .pt2, not for .safetensors")

    def decoder_files(self, trained: Trained) -> Files:
        """None, since the weights of the decoder are among those of the network, which must have one."""
        require_decoder(trained.network)
        return {}

    def run(self, content: bytes, files: Files) -> Run:
        """Function that runs the network that the files describe."""
        with tempfile.TemporaryDirectory() as folder:
            for name, ending in ((WEIGHTS, self.ending), (METADATA, ".json")):
                (Path(folder) / name).write_bytes(files[ending])
            return Answers(load(folder))


FORMATS: dict[str, Format] = {each.ending: each for each in (Onnx(), Pt2(), Safetensors())}
"""All formats by the endings of their files."""


def _saved(program: ExportedProgram, trained: Trained) -> bytes:
    """Content of a ``.pt2`` file."""
    for node in program.graph.nodes:  # where in the code it comes from, with paths of this machine
        for note in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"):
            node.meta.pop(note, None)
    program._example_inputs = None  # pyright: ignore[reportAttributeAccessIssue] (random images, which nobody needs)
    facts = json.dumps(about(trained.network, trained.metadata), ensure_ascii=False)
    buffer = io.BytesIO()
    with quiet_exporter():
        torch.export.save(program, buffer, extra_files={METADATA_FILE: facts})
    return buffer.getvalue()
