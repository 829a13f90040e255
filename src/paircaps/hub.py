"""Trained networks to and from the Hugging Face Hub, in the conventions of its ``PyTorchModelHubMixin``.

What is stored there is what a training writes: ``model.safetensors`` and ``model.json``, with a model card. Needs the
package ``huggingface_hub``, which ``paircaps[hub]`` brings, where a network is uploaded or downloaded; saving and
loading a folder needs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from paircaps._utils.extras import require_extra
from paircaps._utils.files import write_whole
from paircaps._utils.model_folder import CARD, WEIGHTS, read_metadata
from paircaps._utils.shipped import METADATA, is_name, path_or_shipped
from paircaps._utils.words import first_line
from paircaps.errors import ModelFileError, PaircapsError
from paircaps.model_card import model_card
from paircaps.model_files import Precision, load, save_model, weights_as_bytes, write_metadata
from paircaps.network import Network

__all__ = [
    "from_pretrained",
    "push_to_hub",
    "save_pretrained",
]

_FILES = (WEIGHTS, METADATA, CARD)
_OF_THE_TEST = ("test_", "validation_")
"""What the keys of section ``trained`` begin with that say what the weights reach."""


def save_pretrained(network: Network, folder: Path | str) -> Path:
    """Write a network to a folder, with a model card; :func:`from_pretrained` and :func:`paircaps.load` read it.

    A network that was loaded and not changed keeps all that its files say. The numbers of one whose weights were
    changed since are left out, because they are no longer true.

    Args:
        network: the network.
        folder: where to write; it is made if it is not there.

    Returns:
        the folder.
    """
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    precision = _stored_precision(network)
    weights = weights_as_bytes(network, precision)
    if hashlib.sha256(weights).hexdigest() == network.origin.get("sha256"):
        metadata = {**network.origin, **network.spec.as_dict()}
        write_whole(folder / WEIGHTS, weights)
        _write_card(folder, metadata)
        write_metadata(folder, metadata)
    else:
        save_model(folder, network, _without_numbers(network))
        _write_card(folder, read_metadata(folder))
    return folder


def _stored_precision(network: Network) -> Precision:
    """How the weights lay in the file that a network was loaded from."""
    card = network.origin.get("card")
    return "bf16" if isinstance(card, dict) and card.get("stored") == "bf16" else "fp32"


def _without_numbers(network: Network) -> dict[str, object]:
    """Section ``trained`` of a network whose weights were changed."""
    trained = network.origin.get("trained")
    if not isinstance(trained, dict):
        return {}
    kept = {key: value for key, value in trained.items() if not key.startswith(_OF_THE_TEST)}
    return {**kept, "changed_since": True}


def _write_card(folder: Path, metadata: dict[str, Any]) -> None:
    try:
        text = model_card(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"what its {METADATA} says is too damaged for a card: {first_line(error)}") from None
    write_whole(folder / CARD, text.encode())


def from_pretrained(
    name: Path | str,
    *,
    revision: str | None = None,
    cache_dir: Path | str | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
    device: torch.device | str = "cpu",
) -> Network:
    """Load a network from a folder, from the Hub, or of those that come with the project.

    Nothing that is downloaded can contain code; a damaged or foreign file is refused.

    Args:
        name: an existing folder; ``"owner/name"`` of a repository on the Hub; or a name that ``paircaps weights``
            lists.
        revision: branch, tag or commit of the repository; its main branch by default.
        cache_dir: folder of the Hub's cache; the usual one by default.
        force_download: whether to download what is in the cache already.
        local_files_only: whether to use the cache alone.
        token: token of the Hub; the one that ``hf auth login`` stored by default.
        device: device to load it on.

    Raises:
        PaircapsError: if there is no such folder or repository, it cannot be reached, or its files are no network.
    """
    folder = path_or_shipped(name)
    if folder.exists() or is_name(str(name)):
        return load(folder, device)
    require_extra("loading a network from the Hub", extra="hub")
    from huggingface_hub import snapshot_download

    with _in_words(str(name), "download"):
        found = snapshot_download(
            str(name),
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            library_name="paircaps",
            allow_patterns=list(_FILES),
        )
    return load(Path(found), device)


def push_to_hub(
    network: Network,
    repo_id: str,
    *,
    commit_message: str = "Network trained with paircaps",
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool = False,
) -> str:
    """Upload a network with its model card to a repository of the Hub, which is made if it is not there.

    Args:
        network: the network.
        repo_id: ``"owner/name"`` of the repository.
        commit_message: message of the commit.
        private: whether a new repository is private; as the owner has set it by default.
        token: token of the Hub; the one that ``hf auth login`` stored by default.
        branch: branch to upload to; the main one by default.
        create_pr: whether to open a pull request in place of a commit.

    Returns:
        address of the commit.

    Raises:
        PaircapsError: if the Hub cannot be reached or refuses it.
    """
    require_extra("uploading a network to the Hub", extra="hub")
    from huggingface_hub import HfApi

    with TemporaryDirectory() as folder:
        save_pretrained(network, folder)
        with _in_words(repo_id, "upload"):
            api = HfApi(token=token, library_name="paircaps")
            made = api.create_repo(repo_id, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=made.repo_id,
                folder_path=folder,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
            )
    return str(done.commit_url)


@contextmanager
def _in_words(name: str, what: str) -> Iterator[None]:
    """Turn errors of the Hub's client into one sentence that names the repository."""
    try:
        yield
    except PaircapsError:
        raise
    except Exception as error:  # of the client, of its HTTP library, of the system
        raise PaircapsError(f"{name}: cannot {what} it: {type(error).__name__}: {first_line(error)}") from error
