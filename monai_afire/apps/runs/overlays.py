# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Which configs of a bundle go together, and in which order: no overlay undoes another one silently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any

from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY, MERGE_KEY

from monai_afire.apps.runs.door import files_text
from monai_afire.utils.text import first_few
from monai_afire_cli.bundles.configs import read_json

FOLLOWS = "_follows"
"""In an overlay: names of files, or patterns of them, that come before it where both are given."""

Layers = Mapping[str, Mapping[str, Any]]
"""Content of each config of a run, by its path, in the order of the run."""

_SHOWN = 3


def wrong_order(layers: Layers) -> str | None:
    """
    What is wrong with the order of configs, and the right one.

    Args:
        layers: the configs of a run. What an overlay names in ``_follows`` and the config that it changes come first.

    Returns:
        A line; None for a right order.

    Example:
        >>> wrong_order({"late.json": {"_follows": ["a.json"]}, "a.json": {}})
        'a.json must come before late.json, which changes it; give "[\\'a.json\\',\\'late.json\\']"'
    """
    paths = list(layers)
    for place, path in enumerate(paths):
        rest = paths[place + 1 :]
        late = [other for other in rest if _must_follow(layers, path, other)]
        if late:
            others = [other for other in paths[place:] if other not in late]
            order = files_text([*paths[:place], *late, *others])
            names = " and ".join(Path(other).name for other in late)
            return f"{names} must come before {Path(path).name}, which changes it; give {order}"
    return None


def undone_settings(layers: Layers, given: Collection[str] = ()) -> str | None:
    """
    Settings of one overlay that another one silently undoes.

    Two overlays of a bundle may set the same entry differently if the later one names the earlier in ``_follows``, or
    if something after both sets it: another config, or the command line. Configs outside of the bundle's folder are the
    user's own, which may change anything.

    Args:
        layers: the configs of a run, in a right order.
        given: ids of what the command line sets.

    Returns:
        A line with the remedy; None where nothing is undone.

    Example:
        >>> layers = {"train.json": {"imports": []}, "long.json": {"epochs": 9}, "short.json": {"epochs": 1}}
        >>> print(undone_settings(layers))
        long.json and short.json set epochs differently; leave one out, or add a config of your own that sets it
        >>> undone_settings(layers, given=["epochs"])
    """
    undone = next(_undone(layers, given), None)
    if undone is None:
        return None
    first, second, ids = undone
    settled = _settling_config(first, second, ids)
    if settled:
        remedy = f"add {settled.name} after both"
    else:
        them = "it" if len(ids) == 1 else "them"
        remedy = f"leave one out, or add a config of your own that sets {them}"
    names = f"{Path(first).name} and {Path(second).name}"
    return f"{names} set {first_few(ids, _SHOWN)} differently; {remedy}"


def completed(paths: Sequence[str]) -> list[str]:
    """
    Configs of a run, with those that settle what two of them set differently.

    Args:
        paths: of JSON configs, in a right order.

    Returns:
        The same paths and, at the end, those of the bundle that are needed and not yet there.

    Example:
        >>> completed([])
        []
    """
    layers = {path: read_json(Path(path)) for path in paths}
    settling = [_settling_config(*undone) for undone in _undone(layers)]
    added = dict.fromkeys(str(path) for path in settling if path is not None)
    return [*paths, *(path for path in added if path not in paths)]


def _undone(layers: Layers, given: Collection[str] = ()) -> Iterator[tuple[str, str, list[str]]]:
    """Each two overlays of the bundle, and what the second silently undoes of the first."""
    paths = list(layers)
    for first, second in combinations(_overlays_of_bundle(layers), 2):
        if _must_follow(layers, second, first):
            continue
        after = [id for path in paths[paths.index(second) + 1 :] for id in layers[path]]
        settled = {ReferenceResolver.normalize_id(id) for id in (*after, *given)}
        ids = [id for id in _clashes(layers[first], layers[second]) if id not in settled]
        if ids:
            yield first, second, ids


def _overlays_of_bundle(layers: Layers) -> list[str]:
    """Overlays in the folder of the config that they change, or below it."""
    complete = [path for path, content in layers.items() if "imports" in content]
    folders = {Path(path).resolve().parent for path in complete}
    overlays = [path for path in layers if path not in complete]
    return [path for path in overlays if not folders.isdisjoint(Path(path).resolve().parents)]


def _must_follow(layers: Layers, path: str, other: str) -> bool:
    """Whether a config comes after another one, wherever both are given."""
    is_overlay, is_complete = "imports" not in layers[path], "imports" in layers[other]
    return (is_overlay and is_complete) or _names(layers[path].get(FOLLOWS, ()), other)


def _names(patterns: Sequence[str], path: str) -> bool:
    return any(fnmatchcase(Path(path).name, pattern) for pattern in patterns)


def _clashes(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Ids that both set to different values, or of which one is inside of the other."""
    values, others = _set_values(first), _set_values(second)
    clashes = []
    for id, value in others.items():
        is_other = id in values and values[id] != value
        if is_other or any(_is_inside(id, each) or _is_inside(each, id) for each in values):
            clashes.append(id)
    return sorted(clashes)


def _set_values(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a config sets by id, without remarks and additions to lists."""
    set_ids = [id for id in content if not id.startswith(("_", MERGE_KEY))]
    return {ReferenceResolver.normalize_id(id): content[id] for id in set_ids}


def _is_inside(id: str, other: str) -> bool:
    return id.startswith(other + ID_SEP_KEY)


def _settling_config(first: str, second: str, ids: Sequence[str]) -> Path | None:
    """A config beside the second that follows both and sets what they set differently."""
    for path in sorted(Path(second).parent.glob("*.json")):
        content = read_json(path)
        follows = content.get(FOLLOWS, ())
        if _names(follows, first) and _names(follows, second) and content.keys() >= set(ids):
            return path
    return None
