# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Loading of radiographs from MetaImage and NRRD files."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from radiograph_files import GRAY8, GRAY12, GRAY16, HEIGHT, UNIT, WIDTH, load, metadata, refused

from monai_afire.data.datalist.scanning import scan_radiographs

pytestmark = pytest.mark.filterwarnings(
    "error::monai_afire.transforms.radiograph_io.common.RadiographWarning"
)

META_TYPES = {
    "uint8": "UCHAR",
    "int8": "CHAR",
    "uint16": "USHORT",
    "int16": "SHORT",
    "int32": "INT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
NRRD_TYPES = {"float32": "float", "float64": "double"}


def write_meta(
    path: Path, pixels: np.ndarray, data: str = "LOCAL", compressed: bool = False, **fields: str
) -> Path:
    """A MetaImage file; axes of the array are in the order of NumPy. Pixels that are not LOCAL are written beside."""
    content = pixels.tobytes()
    content = zlib.compress(content) if compressed else content
    header = {
        "ObjectType": "Image",
        "NDims": str(pixels.ndim),
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": str(compressed),
        "DimSize": " ".join(map(str, pixels.shape[::-1])),
        "ElementType": f"MET_{META_TYPES[pixels.dtype.name]}",
    }
    header |= {"CompressedDataSize": str(len(content))} if compressed else {}
    text = "".join(
        f"{key} = {value}\n" for key, value in (header | fields | {"ElementDataFile": data}).items()
    )
    path.write_bytes(text.encode() + (content if data == "LOCAL" else b""))
    if data != "LOCAL":
        (path.parent / data).write_bytes(content)
    return path


def write_nrrd(path: Path, pixels: np.ndarray, **fields: str) -> Path:
    """An NRRD file with raw pixels; underscores in the names of further fields are spaces."""
    header = {
        "type": NRRD_TYPES.get(pixels.dtype.name, pixels.dtype.name),
        "dimension": str(pixels.ndim),
        "sizes": " ".join(map(str, pixels.shape[::-1])),
        "endian": "little",
        "encoding": "raw",
    } | {key.replace("_", " "): value for key, value in fields.items()}
    text = (
        "NRRD0004\n# of a test\n"
        + "".join(f"{key}: {value}\n" for key, value in header.items())
        + "\n"
    )
    path.write_bytes(text.encode() + pixels.tobytes())
    return path


@pytest.mark.parametrize(
    ("pixels", "divisor"),
    [
        (GRAY8, 255),
        (GRAY12, 4095),
        (GRAY16, 65535),
        (GRAY12.astype(np.int16), 4095),
        (GRAY16.astype(np.int32), 65535),
        (UNIT.astype(np.float32), 1),
        (UNIT, 1),
    ],
    ids=["uint8", "12 bits", "uint16", "int16", "int32", "float32", "float64"],
)
def test_numbers_are_scaled_as_those_of_other_formats(
    tmp_path: Path, pixels: np.ndarray, divisor: float
) -> None:
    paths = [
        write_meta(tmp_path / "a.mha", pixels),
        write_meta(tmp_path / "b.mha", pixels, compressed=True),
        write_meta(tmp_path / "c.mhd", pixels, data="c pixels.raw"),
        write_nrrd(tmp_path / "a.nrrd", pixels),
    ]
    for path in paths:
        np.testing.assert_allclose(load(path), pixels / divisor, atol=1e-6)
        assert metadata(path)["file_format"] == ("NRRD" if path.suffix == ".nrrd" else "MetaImage")
        assert metadata(path)["bits"] == 8 * pixels.dtype.itemsize
    assert scan_radiographs(tmp_path) == sorted(path.name for path in paths)


def test_geometry_is_that_of_nifti(tmp_path: Path) -> None:
    """Signs turn the picture: in the plane of x and y, and in a coronal one, here with rows from foot to head."""
    flat = write_meta(tmp_path / "a.mha", GRAY16, ElementSpacing="0.2 0.3")
    np.testing.assert_allclose(load(flat), UNIT, atol=1e-6)
    np.testing.assert_allclose(metadata(flat)["spacing"], (0.3, 0.2))
    turned = write_meta(tmp_path / "b.mha", GRAY16[::-1, ::-1].copy(), TransformMatrix="-1 0 0 -1")
    np.testing.assert_allclose(load(turned), UNIT, atol=1e-6)
    coronal = GRAY16[::-1, None]
    for path in (
        write_meta(tmp_path / "c.mha", coronal),
        write_nrrd(
            tmp_path / "c.nrrd",
            coronal,
            space="left-posterior-superior",
            space_directions="(1,0,0) (0,1,0) (0,0,1)",
            space_origin="(0,0,0)",
        ),
        write_nrrd(
            tmp_path / "d.nrrd",
            coronal,
            space="right-anterior-superior",
            space_directions="(-1,0,0) (0,-1,0) (0,0,1)",
            space_origin="(0,0,0)",
        ),
    ):
        np.testing.assert_allclose(load(path), UNIT, atol=1e-6)


def test_volumes_and_sizes_are_refused(tmp_path: Path) -> None:
    volume = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    for path in (write_meta(tmp_path / "a.mha", volume), write_nrrd(tmp_path / "a.nrrd", volume)):
        assert (
            f"has the shape {WIDTH} x {HEIGHT} x 2, where one 2-D picture is expected"
            in refused(path)
        )
    for path in (
        write_meta(tmp_path / "b.mha", GRAY8, DimSize="60000 60000"),
        write_nrrd(tmp_path / "b.nrrd", GRAY8, sizes="60000 60000"),
    ):
        assert "max_pixels" in refused(path)


def test_other_than_one_real_number_per_pixel_is_refused(tmp_path: Path) -> None:
    colors = np.stack([GRAY8] * 3, axis=-1)
    path = write_nrrd(tmp_path / "a.nrrd", colors, kinds="RGB-color domain domain")
    assert "holds 3 numbers per pixel" in refused(path)
    path = write_meta(tmp_path / "a.mha", GRAY8, ElementNumberOfChannels="3")
    assert "holds 3 numbers per pixel" in refused(path)
    message = refused(write_meta(tmp_path / "b.mha", (GRAY8 // 2).astype(np.int8)))
    assert "holds 2 axes of numbers of the type char" in message
    assert "save it as 16-bit integers" in message


@pytest.mark.parametrize("compressed", [False, True])
def test_cut_files_are_refused(
    tmp_path: Path, compressed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = [
        write_meta(tmp_path / "a.mha", GRAY16, compressed=compressed),
        write_nrrd(tmp_path / "a.nrrd", GRAY16),
    ]
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[:-100])
        assert "cut or damaged" in refused(path)
        path.write_bytes(content[:60])
        assert "header has no end" in refused(path)
    assert capfd.readouterr() == ("", "")


def test_pixels_are_taken_from_no_other_place(tmp_path: Path) -> None:
    """A header may name any file of the machine."""
    secret = tmp_path / "secret.raw"
    secret.write_bytes(GRAY8.tobytes())
    (tmp_path / "sent").mkdir()
    for data in ("../secret.raw", str(secret), "LIST", "absent.raw"):
        path = write_meta(tmp_path / "sent" / "a.mhd", GRAY8)
        header = path.read_bytes().partition(b"ElementDataFile")[0]
        path.write_bytes(header + f"ElementDataFile = {data}\n".encode())
        assert "is no file beside it" in refused(path)
    for fields in (
        {"data_file": str(secret)},
        {"byte_skip": "-1"},
        {"line_skip": "3"},
        {"datafile": "LIST"},
    ):
        path = write_nrrd(tmp_path / "sent" / "a.nrrd", GRAY8, **fields)
        assert "has its pixels elsewhere than behind its header" in refused(path)


def test_damaged_headers_are_refused_in_one_line(tmp_path: Path) -> None:
    for path in (
        write_meta(tmp_path / "a.mha", GRAY8, ElementType="MET_NOTHING"),
        write_meta(tmp_path / "b.mha", GRAY8, DimSize="-4 x"),
        write_nrrd(tmp_path / "a.nrrd", GRAY8, type="nothing"),
        write_nrrd(tmp_path / "b.nrrd", GRAY8, sizes="-4 x"),
        write_nrrd(tmp_path / "c.nrrd", GRAY8, encoding="bzip2"),
    ):
        message = refused(path)
        assert "damaged" in message
        assert "ITK" not in message
