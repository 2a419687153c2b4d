# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Packing of a bundle's public files into an archive, without what runs have written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

PUBLIC = ("LICENSE", "NOTICE", "configs", "docs", "models")
PRIVATE = (
    "checkpoint*.pt",
    ".*",
    "*.tmp",
    "__pycache__",
)  # of runs that were told to write here
PICTURES = (".png", ".jpg")  # of the card, which is copied beside it
LARGE = 25 * 2**20  # bytes that the Model Zoo takes as one file
LINK_TO_ANOTHER_BUNDLE = re.compile(r"\[([^\]]*)\]\(\.\./\.\./[^)]*\)")


def pack_bundle(bundle: str | os.PathLike, folder: str | os.PathLike, url: str = "") -> Path:
    """
    Copy what of a bundle is to be shared, to be zipped, downloaded or pushed to a hub.

    Taken are LICENSE, NOTICE, configs, docs, the weights, and ``released/`` where a config reads it. Left out are
    images, outputs and the checkpoints with optimizer. ``monai.bundle.push_to_hf_hub`` shows docs/README.md as the page
    of the hub, one folder up: the pictures are copied there too, and links to other bundles become text.

    Files above 25 MiB, the limit of the Model Zoo, are listed with their SHA-256 in ``large_files.yml``, from which
    ``monai.bundle.download_large_files`` brings them back: a pull request to the zoo leaves the files themselves out.

    Args:
        bundle: the bundle's folder, with ``models/model.pt``.
        folder: where the copy, ``<folder>/<name of the bundle>``, and ``<name>_v<version>.zip`` are written.
        url: address below which large files will be found under their paths in the bundle, such as
            "https://huggingface.co/USER/NAME/resolve/main". Empty: left to be filled in.

    Returns:
        The copy.

    Raises:
        FileNotFoundError: when the bundle has no weights, metadata, license or documentation.
        FileExistsError: when there is a copy or an archive already. Nothing is overwritten.
        shutil.Error: when the copy would lie in the bundle itself.

    Example:
        >>> pack_bundle("no/bundle", "dist")
        Traceback (most recent call last):
        FileNotFoundError: no/bundle has no configs/metadata.json: ...
    """
    target = Path(folder) / Path(bundle).resolve().name
    version = read_metadata(bundle)["version"]
    archive = target.with_name(f"{target.name}_v{version}.zip")
    refuse_existing(archive)
    copy_public_files(Path(bundle), target, url)
    shutil.make_archive(str(archive.with_suffix("")), "zip", target.parent, target.name)
    return target


def read_metadata(bundle: str | os.PathLike) -> dict[str, Any]:
    """The content of ``configs/metadata.json``; FileNotFoundError says which folder has none."""
    path = Path(bundle, "configs", "metadata.json")
    if not path.is_file():
        raise FileNotFoundError(f"{bundle} has no configs/metadata.json: give a bundle's folder")
    return json.loads(path.read_text(encoding="utf-8"))


def refuse_existing(path: Path) -> None:
    """Raise FileExistsError, rather than overwrite what somebody may want to keep."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(
            f"{path} is there already, and nothing is overwritten: name another folder, or remove it"
        )


def copy_public_files(source: Path, target: Path, url: str) -> None:
    """Copy what :func:`pack_bundle` takes of a bundle to a new folder, with the list of large files."""
    for name in ("LICENSE", "docs/README.md", "models/model.pt"):
        if not (source / name).is_file():
            raise FileNotFoundError(
                f"{source} has no {name}: give the folder of a bundle that is trained"
            )
    refuse_existing(target)
    if target.resolve().is_relative_to(source.resolve()):
        raise shutil.Error(
            f"{target} lies in the bundle that is copied: name a folder outside of {source}"
        )
    for path in _public_paths(source):
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns(*PRIVATE))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / path.name)
    for picture in (target / "docs").iterdir():
        if picture.suffix in PICTURES:
            shutil.copy2(picture, target)
    card = target / "docs" / "README.md"
    card.write_text(
        LINK_TO_ANOTHER_BUNDLE.sub(r"\1", card.read_text(encoding="utf-8")), encoding="utf-8"
    )
    _list_large_files(target, url)


def _public_paths(bundle: Path) -> list[Path]:
    """Files and folders to share: ``released`` only where a config or the card names a file of it."""
    texts = [path.read_text(encoding="utf-8") for path in (bundle / "configs").glob("*.json")]
    texts.append((bundle / "docs" / "README.md").read_text(encoding="utf-8"))
    # "'/released/" in a config and "`released/" on a card are of this bundle, "../afire/released/" is of another
    is_named = any(start in text for text in texts for start in ("'/released/", "`released/"))
    names = (*PUBLIC, "released") if is_named else PUBLIC
    return [bundle / name for name in names if (bundle / name).exists()]


def _list_large_files(bundle: Path, url: str) -> None:
    """Write ``large_files.yml`` if there are any."""
    large = sorted(
        path for path in bundle.rglob("*") if path.is_file() and path.stat().st_size > LARGE
    )
    lines = ["large_files:"]
    for path in large:
        name = path.relative_to(bundle).as_posix()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        address = f"{url.rstrip('/')}/{name}" if url else ""
        fields = {"path": name, "url": address, "hash_val": digest, "hash_type": "sha256"}
        # JSON's strings are YAML's, too
        entry = [f"{key}: {json.dumps(value)}" for key, value in fields.items()]
        lines.append("  - " + "\n    ".join(entry))
    if large:
        (bundle / "large_files.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
