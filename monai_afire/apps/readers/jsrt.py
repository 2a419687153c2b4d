# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""JSRT with the organ masks of SCR."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from monai_afire.apps.phantom.anatomy import ORGAN_NAMES
from monai_afire.apps.readers.images import progress_bar, stem_of
from monai_afire.apps.readers.label_reader import LabeledImage, LabeledSet, LabelReader, option
from monai_afire.data.datalist.datalist_checks import DatalistError
from monai_afire.transforms.radiograph_files import SUPPORTED_EXTENSIONS, extension_of
from monai_afire.utils.files import save_png
from monai_afire.utils.text import counted

_NAME = re.compile(r"JPC(?:LN|NN)(\d{3})")
_RAW_SIDE = 2048
_RAW_MAXIMUM = 4095  # 12 bits, in which dense tissue is dark
_PUBLISHED = 247
# names of the folders of SCR, and of conversions of it
_ORGAN_FOLDERS = {
    **{name.replace("_", " "): name for name in ORGAN_NAMES},
    **{" ".join(reversed(name.split("_"))): name for name in ORGAN_NAMES},
}


@dataclass
class JSRTReader(LabelReader):
    """
    Lung nodule or none, and, with the masks of SCR, "organs".

    From http://db.jsrt.or.jp/eng.php, masks: SCR database (https://www.isi.uu.nl/Research/Databases/SCR) ::

        ROOT/**/JPCLN001.IMG ... JPCNN093.IMG       nodules (LN) and none (NN); raw with --png_dir, or converted (.png)
        ROOT/**/fold1/masks/left lung/JPCLN001.gif  if there: masks; also "heart", "right clavicle" ...
    """

    png_dir: str = option(
        "",
        "write the images and masks to this folder as PNG: the raw .IMG are read by nothing else",
    )

    title = "JSRT"
    reference = (
        "Shiraishi et al., AJR 174 (2000); van Ginneken et al., Medical Image Analysis 10 (2006)"
    )
    has_split = True

    def read(self, root: Path, labels: Path, official: bool) -> LabeledSet:
        """See :meth:`LabelReader.read`."""
        folder = Path(self.png_dir).expanduser() if self.png_dir else None
        pictures, organs = _find(root, folder)
        if not pictures:
            raise DatalistError(
                f"{root}: no images such as JPCLN001.IMG or JPCLN001.png; check --root."
            )
        raw = sum(path.upper().endswith(".IMG") for path in pictures.values())
        if raw and folder is None:
            remedy = "have them written as PNG with --png_dir FOLDER"
            raise DatalistError(f"{root}: {counted(raw, 'raw .IMG file')}; {remedy}.")
        known = [name for name in ORGAN_NAMES if any(name in masks for masks in organs.values())]
        images = []
        for name in sorted({*pictures, *organs}, key=lambda name: (name[3:5], name)):
            label = int(name.startswith("JPCLN"))
            item = {"label": label, "abnormal": label, "patient_id": name, "view": "PA"}
            section = "training" if int(name[-3:]) % 2 else "test"
            image = LabeledImage(name, pictures.get(name), item, section if official else None)
            if organs:
                _add_organs(image, organs.get(name, {}), known)
            images.append(image)
        if folder:
            _convert(images, folder, known)
        header = {
            "labels": {"0": "no nodule", "1": "nodule"},
            **({"organ_names": known} if organs else {}),
        }
        return LabeledSet(images, header, _notes(len(pictures), known))


def _notes(found: int, organs: Sequence[str]) -> list[str]:
    notes = (
        [] if found == _PUBLISHED else [f"{found} of the {_PUBLISHED} published images are there"]
    )
    absent = [name.replace("_", " ") for name in ORGAN_NAMES if name not in organs]
    if not organs:
        return [*notes, "no organ masks are there"]
    return (
        [*notes, f"no masks of {', '.join(absent)} are there: organ_names lacks them"]
        if absent
        else notes
    )


def _find(root: Path, written: Path | None) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Image of each name, and mask of each name and organ; nothing of what an earlier run wrote."""
    pictures: dict[str, str] = {}
    raw: dict[str, str] = {}
    organs: dict[str, dict[str, str]] = {}
    skipped = os.path.abspath(written) if written else None
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if os.path.abspath(os.path.join(folder, name)) != skipped
        )
        organ = _ORGAN_FOLDERS.get(os.path.basename(folder).lower().replace("_", " "))
        for file in sorted(files):
            stem, extension = os.path.splitext(file)
            path = os.path.join(folder, file)
            if not _NAME.fullmatch(stem):
                continue
            if organ and (
                extension.lower() == ".gif" or extension_of(file) in SUPPORTED_EXTENSIONS
            ):
                _enter(organs.setdefault(stem, {}), organ, path)
            elif extension_of(file) in SUPPORTED_EXTENSIONS:
                _enter(pictures, stem, path)
            elif extension.upper() == ".IMG":
                raw.setdefault(stem, path)
    return {**raw, **pictures}, organs  # a converted image goes before a raw one


def _enter(paths: dict[str, str], key: str, path: str) -> None:
    if key in paths:
        raise DatalistError(
            f"{paths[key]} and {path} are copies of one picture; set --root to one of them."
        )
    paths[key] = path


def _add_organs(image: LabeledImage, organs: Mapping[str, str], known: Sequence[str]) -> None:
    """Add the masks of the organs that have any; an image without one of them counts as absent, by the mask's name."""
    absent = [name for name in known if name not in organs]
    if absent and image.file is not None:
        image.name, image.file = f"{absent[0]} mask of {image.name}", None
    image.item["organs"] = [organs.get(name, "") for name in known]


def _convert(images: list[LabeledImage], folder: Path, known: Sequence[str]) -> None:
    """Write images and masks as PNG."""
    for image in progress_bar([image for image in images if image.file is not None], "converting"):
        target = folder / "images" / f"{image.item['patient_id']}.png"
        save_png(_read_picture(str(image.file)), target)
        image.file = str(target)
        for number, (organ, path) in enumerate(
            zip(known, image.item.get("organs", ()), strict=False)
        ):
            target = folder / "masks" / organ / f"{stem_of(image.item['patient_id'])}.png"
            save_png((_read_picture(path) > 0).astype(np.uint8) * 255, target)
            image.item["organs"][number] = str(target)


def _read_picture(path: str) -> np.ndarray:
    """Pixels: of a raw image in 16 bits with dense tissue bright, of another file its gray levels."""
    try:
        if not path.upper().endswith(".IMG"):
            with Image.open(path) as picture:
                return np.asarray(picture if picture.mode.startswith("I") else picture.convert("L"))
        raw = np.fromfile(path, dtype=">u2")
    except OSError as error:
        raise DatalistError(f"{path}: cannot be read ({error}); download it again.") from error
    if raw.size != _RAW_SIDE**2 or raw.max() > _RAW_MAXIMUM:
        expected = f"{_RAW_SIDE} x {_RAW_SIDE} values of 12 bits"
        raise DatalistError(
            f"{path}: holds {raw.size} values up to {raw.max(initial=0)}, not {expected}."
        )
    dense = (_RAW_MAXIMUM - raw.astype(np.uint32)) * 65535 // _RAW_MAXIMUM
    return dense.astype(np.uint16).reshape(_RAW_SIDE, _RAW_SIDE)
