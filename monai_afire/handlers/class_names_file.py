# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""The names of a model's classes beside its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ignite.engine import Engine, Events

from monai_afire.data.datalist.labels import save_class_names


class ClassNamesFile:
    """
    Write the names of the classes into the folder of a model when its training starts.

    Not when the config is read: ``monai.bundle.load`` and ``create_workflow`` build a bundle's engines, too, and
    should write nothing.

    Args:
        names: see ``save_class_names``.
        model_dir: folder of the weights.

    Example:
        >>> import tempfile
        >>> folder, engine = tempfile.mkdtemp(), Engine(lambda engine, batch: None)
        >>> ClassNamesFile(["effusion", "nodule"], folder).attach(engine)
        >>> _ = engine.run([0])
        >>> os.listdir(folder)
        ['class_names.json']
    """

    def __init__(self, names: Sequence[str], model_dir: str | os.PathLike) -> None:
        self.names = list(names)
        self.model_dir = model_dir

    def attach(self, engine: Engine) -> None:
        """Register with a trainer."""
        engine.add_event_handler(Events.STARTED, self)

    def __call__(self, engine: Engine) -> None:
        """Write the file."""
        save_class_names(self.names, self.model_dir)
