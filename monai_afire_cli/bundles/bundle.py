# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Where bundles are, and what is in them."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from monai_afire_cli.bundles.configs import merged_config, read_json
from monai_afire_cli.options.suggestions import did_you_mean
from monai_afire_cli.process.starting import quoted

__all__ = [
    "Bundle",
    "BundleError",
    "bundle_word",
    "bundles_folder",
    "find_bundle",
    "find_local_bundle",
    "packaged_bundles",
]

_METADATA = Path("configs", "metadata.json")
_SUFFIXES = (".json", ".yaml", ".yml")
_OPTIONS = {".pt": "ckpt_path", ".csv": "datalist"}
"""Options that take files by their endings, rather than images."""
_COPIED = ("LICENSE", "NOTICE", "configs", "docs", "released", "models/model.pt")


class BundleError(ValueError):
    """A bundle or config that is not there, or a folder that cannot take one."""


@dataclass(frozen=True)
class Bundle:
    """
    A bundle in a folder.

    Args:
        folder: with the folder ``configs`` in it.

    Example:
        >>> Bundle(bundles_folder() / "afire").name
        'afire'
    """

    folder: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def title(self) -> str:
        """What the bundle is, in a line."""
        return read_json(self.folder / _METADATA)["name"]

    def configs(self) -> tuple[list[str], list[str]]:
        """
        Names of the configs.

        Returns:
            Those that a run starts with, and the overlays, which change one of those.

        Example:
            >>> Bundle(bundles_folder() / "afire").configs()[0]
            ['inference', 'train']
        """
        complete: list[str] = []
        overlays: list[str] = []
        folder = self.folder / "configs"
        for path in sorted(folder.rglob("*.json")):
            if path.name != _METADATA.name:
                # an overlay leaves it to the config before it to import what it needs
                kind = complete if '"imports"' in path.read_text(encoding="utf-8") else overlays
                kind.append(path.relative_to(folder).with_suffix("").as_posix())
        return complete, overlays

    def config_files(self, names: list[str]) -> list[Path]:
        """
        Files of a run, of which each changes those before it.

        Args:
            names: of configs in the bundle, with or without ``.json``; anything else is the path of a file.

        Returns:
            The files.

        Raises:
            BundleError: when there is no such config, the first is an overlay, or another one is not.
            ValueError: when a JSON file is no config.

        Example:
            >>> [path.name for path in Bundle(bundles_folder() / "afire").config_files(["train", "paper.json"])]
            ['train.json', 'paper.json']
        """
        complete, overlays = self.configs()
        choice = f"{self.name} has {' and '.join(complete)} to start with, and to add to these {', '.join(overlays)}"
        if not names:
            raise BundleError(f"say which config is to run: {choice}")
        files = []
        for name in names:
            stem = name.removesuffix(".json")
            path = (
                self.folder / "configs" / f"{stem}.json"
                if stem in (*complete, *overlays)
                else Path(name)
            )
            if not path.is_file() or path.suffix not in _SUFFIXES:
                raise BundleError(self._no_config(name, choice))
            files.append(path)
        first, *others = names
        if first.removesuffix(".json") in overlays:
            raise BundleError(
                f"{first!r} changes another config, which must come before it: {choice}"
            )
        if second := [name for name in others if name.removesuffix(".json") in complete]:
            raise BundleError(f"{first!r} and {second[0]!r} are two runs, start one: {choice}")
        merged_config([path for path in files if path.suffix == ".json"])  # says what is wrong
        return files

    def _no_config(self, name: str, choice: str) -> str:
        """What is wrong with a name, and what was meant, before what there is."""
        path = Path(name)
        if path.exists() and path.suffix not in _SUFFIXES:
            option = _OPTIONS.get(path.suffix.lower(), "dataset_dir")
            reason = "neither a config nor a JSON or YAML file"
            return f"{name!r} is {reason}; did you mean --{option} {shlex.quote(name)}?"
        complete, overlays = self.configs()
        meant = did_you_mean(name.removesuffix(".json"), [*complete, *overlays])
        text = f"{name!r} is neither a config of {self.name} nor a file"
        return f"{text}{meant} {choice}" if meant else f"{text}: {choice}"

    def copy_to(self, folder: str | os.PathLike) -> Bundle:
        """
        Copy license, configs, documentation and weights, without other outputs of runs.

        Args:
            folder: that holds the copy: a new or an empty one.

        Returns:
            The copy.

        Raises:
            BundleError: when the folder has anything in it.
        """
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise BundleError(
                f"{target} is there already, and nothing is overwritten: name another folder"
            )
        target.mkdir(parents=True, exist_ok=True)
        for name in _COPIED:
            # content only: files of an installation may be write-protected, the copy is there to be edited
            if (self.folder / name).is_dir():
                shutil.copytree(self.folder / name, target / name, copy_function=shutil.copyfile)
            elif (self.folder / name).is_file():
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(self.folder / name, target / name)
        return Bundle(target)


def bundles_folder() -> Path:
    """
    The folder of the bundles that come with the package: inside of an installation, or of the clone it runs from.

    Raises:
        FileNotFoundError: when neither has them.

    Example:
        >>> (bundles_folder() / "afire" / "configs" / "train.json").is_file()
        True
    """
    root = Path(__file__).resolve().parents[2]
    candidates = [root / "monai_afire" / "bundles", root / "bundles"]
    for folder in candidates:
        if (folder / "afire" / _METADATA).is_file():
            return folder
    raise FileNotFoundError(
        f"no bundles in {' or '.join(map(str, candidates))}: install monai-afire again"
    )


def packaged_bundles() -> dict[str, Bundle]:
    """The bundles that come with the package, by name."""
    folders = sorted(path.parents[1] for path in bundles_folder().glob(f"*/{_METADATA.as_posix()}"))
    return {folder.name: Bundle(folder) for folder in folders}


def find_local_bundle(name: str) -> Bundle | None:
    """
    A bundle of the user's own.

    Args:
        name: its folder, or the name of one in ``./bundles``.

    Returns:
        The bundle; None when neither is one.
    """
    for folder in (Path(name), Path("bundles", name)):
        if (folder / _METADATA).is_file():
            return Bundle(folder)
    return None


def find_bundle(name: str) -> Bundle:
    """
    A bundle of the user's own or, where there is none, one that comes with the package.

    Args:
        name: folder of a bundle, or its name.

    Raises:
        BundleError: when there is none of this name.
    """
    if local := find_local_bundle(name):
        return local
    packaged = packaged_bundles()
    if name not in packaged:
        raise BundleError(
            f"{name!r} is neither a bundle's folder nor one of {', '.join(packaged)}"
            f"{did_you_mean(name, list(packaged))}"
        )
    return packaged[name]


def bundle_word(bundle: Path) -> str:
    """
    How ``monai-afire run`` finds a bundle: by its name, or else by its folder.

    Args:
        bundle: its folder.

    Returns:
        A word for a shell.

    Example:
        >>> bundle_word(Path("somewhere/else"))
        'somewhere/else'
    """
    name = bundle.resolve().name
    found = find_local_bundle(name) or packaged_bundles().get(name)
    is_found = found is not None and found.folder.resolve() == bundle.resolve()
    return quoted(name if is_found else str(bundle))
