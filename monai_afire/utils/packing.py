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

__all__ = ["pack_bundle"]

PUBLIC = ("LICENSE", "configs", "docs", "models")
PRIVATE = ("checkpoint*.pt", "*_previous*.pt", ".*", "*.tmp", "__pycache__")  # of runs: optimizer, older weights
LARGE = 25 * 2**20  # bytes that the Model Zoo takes as one file
LINK_TO_ANOTHER_BUNDLE = re.compile(r"\[([^\]]*)\]\(\.\./\.\./[^)]*\)")


def pack_bundle(bundle: str | os.PathLike, folder: str | os.PathLike, url: str = "") -> Path:
    """
    Copy what of a bundle is to be shared, to be zipped, downloaded or pushed to a hub.

    Taken are LICENSE, configs, docs and the weights; left out are images, outputs and the checkpoints with optimizer.
    ``monai.bundle.push_to_hf_hub`` shows docs/README.md as the page of the hub, one folder up: the pictures are copied
    there too, and links to other bundles become text.

    Files above 25 MiB, the limit of the Model Zoo, are listed with their SHA-256 in ``large_files.yml``, from which
    ``monai.bundle.download_large_files`` brings them back: a pull request to the zoo leaves the files themselves out.

    Args:
        bundle: the bundle's folder, with ``models/model.pt``.
        folder: where the copy, ``<folder>/<name of the bundle>``, and ``<name>_v<version>.zip`` are written.
        url: address below which large files will be found under their paths in the bundle, such as
            "https://huggingface.co/USER/NAME/resolve/main". Empty: left to be filled in.

    Returns:
        The copy, which replaces an earlier one.

    Raises:
        FileNotFoundError: when the bundle has no weights, metadata, licence or documentation.

    Example:
        >>> pack_bundle("no/bundle", "dist")
        Traceback (most recent call last):
        FileNotFoundError: no/bundle has no configs/metadata.json: ...
    """
    source, target = Path(bundle), Path(folder) / Path(bundle).resolve().name
    for name in ("configs/metadata.json", "LICENSE", "docs/README.md", "models/model.pt"):
        if not (source / name).is_file():
            raise FileNotFoundError(
                f"{source} has no {name}: give a bundle's folder, and train it first, since its weights are shared too"
            )
    shutil.rmtree(target, ignore_errors=True)
    for name in PUBLIC:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(*PRIVATE))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)
    for picture in (target / "docs").glob("*.png"):
        shutil.copy2(picture, target)
    card = target / "docs" / "README.md"
    card.write_text(LINK_TO_ANOTHER_BUNDLE.sub(r"\1", card.read_text(encoding="utf-8")), encoding="utf-8")
    _list_large_files(target, url)
    version = json.loads((target / "configs/metadata.json").read_text(encoding="utf-8"))["version"]
    shutil.make_archive(str(target.parent / f"{target.name}_v{version}"), "zip", target.parent, target.name)
    return target


def _list_large_files(bundle: Path, url: str) -> None:
    """Write ``large_files.yml`` if there are any."""
    large = sorted(path for path in bundle.rglob("*") if path.is_file() and path.stat().st_size > LARGE)
    lines = ["large_files:"]
    for path in large:
        name = path.relative_to(bundle).as_posix()
        digest = _sha256(path)
        address = f"{url.rstrip('/')}/{name}" if url else ""
        fields = {"path": name, "url": address, "hash_val": digest, "hash_type": "sha256"}
        entry = [f"{key}: {json.dumps(value)}" for key, value in fields.items()]  # JSON's strings are YAML's, too
        lines.append("  - " + "\n    ".join(entry))
    if large:
        (bundle / "large_files.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()
