# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What TensorBoard's web server gives a browser, which is less than what was written."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.application import TensorBoardWSGI
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.image.images_plugin import ImagesPlugin
from werkzeug.test import Client

__all__ = ["served_pictures"]


def served_pictures(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Step and PNG file of the last picture of each name, of a folder of event files."""
    events = EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    provider = MultiplexerDataProvider(events, str(folder))
    context = TBContext(logdir=str(folder), data_provider=provider)
    client, route = (
        Client(TensorBoardWSGI([ImagesPlugin(context)], data_provider=provider)),
        "/data/plugin/images",
    )
    pictures = {}
    for tag in client.get(f"{route}/tags").get_json().get(".", {}):
        listed = client.get(
            f"{route}/images", query_string={"run": ".", "tag": tag, "sample": 0}
        ).get_json()
        picture = client.get(f"{route}/individualImage?{listed[-1]['query']}").data
        pictures[tag] = (listed[-1]["step"], picture)
    return pictures
