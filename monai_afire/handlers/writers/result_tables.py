# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Base of the writers: tables that grow while a network runs, of results and of files that failed."""

from __future__ import annotations

import csv
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from ignite.engine import Engine, Events

from monai_afire.utils.files import check_writable

__all__ = ["EXIT_CODE_REJECTED", "OUTPUT_IS_NAN", "ResultTables"]

EXIT_CODE_REJECTED = 2
OUTPUT_IS_NAN = "the network's output is NaN or infinite: look at the image's intensities and at the weights"


class ResultTables(ABC):
    """
    Base of the handlers that write what a network says of each image as soon as it is there.

    A subclass names the columns of its table in :meth:`header` and adds a row per image in :meth:`collect`.
    ``rejected.csv`` has one row per file that could not be read, with the reason. Both tables grow by whole batches, so
    that an interrupted run keeps what it has, and memory does not depend on the number of images. Attach it to an
    evaluator, whose batches need "index" (the number in ``items``) and may have "rejected" (per image a reason, empty
    for none), see :class:`monai_afire.transforms.LoadRadiographd`.

    Args:
        items: the data set's items, for the names of the files.
        output_dir: where to write; a previous run's tables are kept as ``*_previous.csv``.
        table_name: file name of the table.

    Raises:
        OSError: when the run starts and ``output_dir`` cannot be written to.

    Example:
        >>> import tempfile, torch
        >>> class Brightness(ResultTables):
        ...     def header(self):
        ...         return ["image", "brightness"]
        ...     def collect(self, engine):
        ...         for row, source in self.accepted(engine.state.batch):
        ...             self.add_row([source, float(engine.state.output[row])])
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: batch["image"].mean((1, 2, 3)))
        >>> tables = Brightness([{"image": "a.png"}, {"image": "b.png"}], folder, "brightness.csv")
        >>> tables.attach(engine)
        >>> batch = {"image": torch.ones(2, 1, 4, 4), "index": torch.arange(2), "rejected": ["", "no image"]}
        >>> _ = engine.run([batch])
        >>> (Path(folder) / "brightness.csv").read_text().split(), tables.num_rejected
        (['image,brightness', 'a.png,1.0'], 1)
    """

    def __init__(self, items: Sequence[Mapping[str, Any]], output_dir: str, table_name: str) -> None:
        self.items = items
        self.output_dir = Path(output_dir)
        self.table_name = table_name
        self.num_rejected = 0
        self.resources = ExitStack()

    def attach(self, engine: Engine) -> None:
        """Register with an evaluator."""
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.write)
        engine.add_event_handler(Events.COMPLETED, self.close)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.close_after_error)

    def start(self, engine: Engine) -> None:
        """Open the files."""
        check_writable(self.output_dir)
        self.num_rejected = 0
        self.table = self._open(self.table_name, self.header())
        self.rejected = self._open("rejected.csv", ["image", "reason"])

    @abstractmethod
    def header(self) -> Sequence[str]:
        """Titles of the table's columns."""

    @abstractmethod
    def collect(self, engine: Engine) -> None:
        """Add the rows of a batch, of those images that :meth:`accepted` gives."""

    def write(self, engine: Engine) -> None:
        """Write the rows of a batch."""
        self.collect(engine)
        self.table.flush()
        self.rejected.flush()

    def accepted(self, batch: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
        """
        Go through the images of a batch; the rejected ones are written down, not given.

        Args:
            batch: the evaluator's batch.

        Yields:
            Place in the batch and file of each image that could be read.
        """
        indices = batch["index"].tolist()
        reasons = batch.get("rejected", [""] * len(indices))
        for row, (index, reason) in enumerate(zip(indices, reasons, strict=True)):
            source = self.items[index]["image"]
            if reason:
                self.reject(source, reason)
            else:
                yield row, source

    def add_row(self, cells: Iterable[Any]) -> None:
        """Add a row to the table."""
        csv.writer(self.table).writerow(cells)

    def reject(self, source: str, reason: str) -> None:
        """Count a file among the rejected ones and write the reason down."""
        self.num_rejected += 1
        csv.writer(self.rejected).writerow([source, reason])

    def close(self, engine: Engine) -> None:
        """Close the files."""
        self.resources.close()

    def close_after_error(self, engine: Engine, error: BaseException) -> None:
        """Close the files and go on with the error."""
        self.resources.close()
        raise error

    def exit_if_rejected(self) -> None:
        """
        End the process with exit code 2 if files were rejected, after saying so; for the command line.

        Raises:
            SystemExit: with code 2.
        """
        if self.num_rejected:
            path = self.output_dir / "rejected.csv"
            print(f"{self.num_rejected} of {len(self.items)} files were rejected: see {path}", file=sys.stderr)
            raise SystemExit(EXIT_CODE_REJECTED)

    def _open(self, name: str, header: Sequence[str]) -> TextIO:
        path = self.output_dir / name
        if path.exists():
            path.replace(path.with_stem(f"{path.stem}_previous"))
        # names of files need not be valid text
        file = self.resources.enter_context(path.open("w", newline="", encoding="utf-8", errors="backslashreplace"))
        csv.writer(file).writerow(header)
        return file
