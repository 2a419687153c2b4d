# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""One small picture, files of it, and how the tests of radiograph loading read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from monai.data import MetaTensor
from pydicom import uid

from monai_afire.transforms import LoadRadiograph, RadiographError

HEIGHT, WIDTH = 40, 56


def picture() -> np.ndarray:
    """An 8-bit picture without any symmetry, so that a turned or mirrored one differs."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return (3 * rows + 2 * columns + 20 * (rows // 7 % 2)).astype(np.uint8)


GRAY8 = picture()
GRAY12 = GRAY8.astype(np.uint16) * 16
GRAY16 = GRAY8.astype(np.uint16) * 257
UNIT = GRAY8 / 255.0


def load(path: Path, **arguments: Any) -> np.ndarray:
    image = LoadRadiograph(**arguments)(path)
    assert isinstance(image, MetaTensor)
    assert image.shape[0] == 1
    return np.asarray(image)[0]


def metadata(name: Any, **arguments: Any) -> dict[str, Any]:
    image = LoadRadiograph(**arguments)(name)
    assert isinstance(image, MetaTensor)
    return image.meta


def refused(path: Path, **arguments: Any) -> str:
    with pytest.raises(RadiographError) as caught:
        LoadRadiograph(**arguments)(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def write_dicom(
    path: Any,
    pixels: np.ndarray,
    syntax: str = uid.ExplicitVRLittleEndian,
    bits: int | None = None,
    frame: bytes | None = None,
    **elements: Any,
) -> Any:
    """A minimal DICOM file of these stored numbers, at a path or in a stream; ``frame`` has compressed ones."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = uid.UID(syntax)
    dataset.SOPClassUID, dataset.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", "1.2.3"
    dataset.Rows, dataset.Columns = pixels.shape[:2]
    dataset.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    if pixels.ndim == 3:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = pixels.dtype.itemsize * 8
    dataset.BitsStored = bits or dataset.BitsAllocated
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.PhotometricInterpretation = "MONOCHROME2"
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    if frame is None:
        order: Any = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        dataset.PixelData = pixels.astype(pixels.dtype.newbyteorder(order)).tobytes()
        dataset["PixelData"].VR = "OW"
    else:
        dataset.PixelData = pydicom.encaps.encapsulate([frame])
        dataset["PixelData"].VR = "OB"
    dataset.save_as(path, enforce_file_format=True)
    return path
