"""Classify every picture of a folder, and write the answers as a table.

    python examples/predict_folder.py runs/pictures ./pictures answers.csv

The first is a network: the folder of a training. The table has a row for each picture, subfolders included: its file,
the class, how certain the network is, and of a picture that cannot be read the reason instead. Pictures are read a few
at a time, so that there may be any number of them. ``pip install 'paircaps[train]'`` brings what reads pictures.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import paircaps
from paircaps.errors import PaircapsError
from paircaps.pictures import find_pictures


def rows(network: str, folder: Path) -> Iterator[list[str]]:
    """Rows of the table: file, class, certainty, error; where a picture shows two classes, both with a + between."""
    if not folder.is_dir():
        raise NotADirectoryError(20, "not a folder of pictures", str(folder))
    for answer in paircaps.load(network).predict_sources(find_pictures([str(folder)])):
        certain = [f"{answer.certainties[label]:.4f}" for label in answer.labels]
        yield [answer.name, "+".join(answer.labels), "+".join(certain), answer.error]


def main(network: str, folder: Path, table: Path) -> int:
    """Write the table; the number of pictures that could not be read decides the exit code."""
    found = list(rows(network, folder))
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["file", "class", "certainty", "error"], *found])
    unread = sum(bool(error) for *_, error in found)
    print(f"{table}: {len(found) - unread} pictures classified, {unread} could not be read")
    return 1 if unread else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify the pictures of a folder.")
    parser.add_argument("network", help="folder of a trained network")
    parser.add_argument("folder", type=Path, help="pictures, in subfolders too")
    parser.add_argument("table", type=Path, help="CSV file to write")
    options = parser.parse_args()
    try:
        sys.exit(main(options.network, options.folder, options.table))
    except PaircapsError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
