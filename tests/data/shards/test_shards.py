# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Shards: the same bytes, items, patients and batches as the files, and errors that name shard and image."""

from __future__ import annotations

import json
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import DataLoader
from PIL import Image
from torch.utils.data import RandomSampler
from transforms.radiograph_files import write_dicom

from monai_afire.apps.readers.__main__ import main
from monai_afire.data import (
    DatalistError,
    bundle_items,
    cached_dataset,
    item_patients,
    labeled_items,
    verify_shards,
    write_shards,
)
from monai_afire.data.shards import writing
from monai_afire.transforms import LoadRadiograph, LoadRadiographd
from monai_afire.transforms.radiograph_io.common import RadiographError
from monai_afire.transforms.radiograph_io.shards import forget_shards, read_member, without_shard

SECTIONS = ("training", "validation", "test")


def pictures(folder: Path, count: int = 30, side: int = 40) -> Path:
    """Two of each patient, in names that tell patients apart and in others."""
    generator = np.random.default_rng(0)
    for number in range(count):
        name = f"p{number // 2:08d}/s1/{number}.png" if number % 3 else f"other {number}/é {number}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (side, side), dtype=np.uint8)).save(folder / name)
    return folder


def write_list(path: Path, folder: Path, **sections: Any) -> Path:
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.png"))
    items = [{"image": f"{folder.name}/{name}", "label": number % 2} for number, name in enumerate(names)]
    path.write_text(json.dumps({"training": items, "finding_names": ["none", "some"], **sections}))
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return pictures(tmp_path / "files")


@pytest.fixture
def shards(files: Path, tmp_path: Path) -> Path:
    write_shards(tmp_path / "shards", files, progress=False)
    return tmp_path / "shards"


def names_of(items: list[dict[str, Any]], base: Path) -> list[str]:
    return [Path(without_shard(item["image"])).relative_to(base).as_posix() for item in items]


def test_a_folder_is_the_same_folder_in_shards(files: Path, shards: Path) -> None:
    for section in (*SECTIONS[:2], "test", "all"):
        expected, items = bundle_items(section, str(files)), bundle_items(section, str(shards))
        assert names_of(items, shards) == names_of(expected, files)
        assert item_patients(items) == item_patients(expected)
        for item, original in zip(items, expected, strict=True):
            assert read_member(item["image"]) == Path(original["image"]).read_bytes()


def test_shards_are_plain_tar_files_of_the_wanted_size(tmp_path: Path) -> None:
    files, output = pictures(tmp_path / "files", 12, side=512), tmp_path / "shards"
    write_shards(output, files, shard_megabytes=1, progress=False)
    shards = sorted(output.glob("*.tar"))
    assert len(shards) == 4, "three pictures of a quarter of a megabyte each"
    found = {}
    for shard in shards:
        assert shard.stat().st_size <= 1_000_000 + 1024
        with tarfile.open(shard) as archive:
            found.update({member.name: archive.extractfile(member).read() for member in archive})  # type: ignore[union-attr]
    assert found == {path.relative_to(files).as_posix(): path.read_bytes() for path in files.rglob("*.png")}
    assert "12 files in 4 shards" in verify_shards(output, progress=False)


@pytest.mark.parametrize("divided", [True, False])
def test_a_list_keeps_its_items_sections_and_header(files: Path, tmp_path: Path, divided: bool) -> None:
    source = write_list(tmp_path / "list.json", files)
    if divided:
        items = json.loads(source.read_text())["training"]
        items[0]["mask"] = items[1]["image"]
        items[1]["organs"] = [items[2]["image"], items[1]["image"]]
        source = write_list(source, files, training=items[:20], validation=items[20:24], test=items[24:])
    output = tmp_path / "shards"
    write_shards(output, None, source, progress=False)
    for section in SECTIONS if divided else SECTIONS[:2]:
        expected = bundle_items(section, None, str(source))
        for items in (bundle_items(section, str(output)), bundle_items(section, None, str(output / "datalist.json"))):
            assert names_of(items, output) == names_of(expected, files)
            for item, original in zip(items, expected, strict=True):
                assert item.keys() == original.keys()
                assert item["label"] == original["label"]
                for path, file in zip(item.get("organs", []), original.get("organs", []), strict=True):
                    assert read_member(path) == Path(file).read_bytes()
                if "mask" in item:
                    assert read_member(item["mask"]) == Path(original["mask"]).read_bytes()
    labeled = labeled_items("training", str(output))
    assert len(labeled) == len(bundle_items("training", None, str(source)))


def every_format(folder: Path) -> Path:
    folder.mkdir()
    values = np.random.default_rng(1).integers(0, 4096, (40, 48), dtype=np.uint16)
    write_dicom(folder / "a.dcm", values)
    write_dicom(folder / "1.2.840.1", values)
    Image.fromarray(values).save(folder / "b.png")
    Image.fromarray((values >> 4).astype(np.uint8)).save(folder / "c.jpg")
    Image.fromarray(values).save(folder / "d.tif")
    for name in ("e.nii", "f.nii.gz"):
        nib.save(nib.Nifti1Image(values.astype(np.int16)[..., None], np.eye(4)), folder / name)
    return folder


def test_every_format_is_read_as_from_its_file(tmp_path: Path) -> None:
    files, shards = every_format(tmp_path / "files"), tmp_path / "shards"
    write_shards(shards, files, progress=False)
    load = LoadRadiograph()
    items, expected = bundle_items("all", str(shards)), bundle_items("all", str(files))
    assert len(items) == 7
    for item, original in zip(items, expected, strict=True):
        image, reference = load(item["image"]), load(original["image"])
        assert torch.equal(image.as_tensor(), reference.as_tensor()), original
        assert image.meta["filename_or_obj"] == item["image"]
        assert torch.equal(image.affine, reference.affine)


def test_what_is_read_through_itk_is_read_from_a_copy(tmp_path: Path) -> None:
    itk = pytest.importorskip("itk")
    files, shards = tmp_path / "files", tmp_path / "shards"
    files.mkdir()
    values = np.random.default_rng(1).integers(0, 4096, (40, 48), dtype=np.uint16)
    itk.imwrite(itk.image_from_array(values), str(files / "a.mha"))
    (files / "b.mha").write_bytes((files / "a.mha").read_bytes()[:-100])
    write_shards(shards, files, progress=False)
    items, expected = bundle_items("all", str(shards)), bundle_items("all", str(files))
    assert torch.equal(LoadRadiograph()(items[0]["image"]), LoadRadiograph()(expected[0]["image"]))
    with pytest.raises(RadiographError, match=r"shards/radiographs-000000\.tar/b\.mha: is cut or damaged"):
        LoadRadiograph()(items[1]["image"])


@pytest.mark.parametrize("cache", ["none", "disk"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_those_of_the_files(
    files: Path, shards: Path, tmp_path: Path, cache: str, num_workers: int
) -> None:
    def batches(folder: Path) -> list[torch.Tensor]:
        items = bundle_items("training", str(folder))
        dataset = cached_dataset(items, LoadRadiographd("image"), cache, tmp_path / "cache")
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(3))
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=num_workers)
        return [batch["image"].as_tensor() for batch in loader]

    for batch, expected in zip(batches(shards), batches(files), strict=True):
        assert torch.equal(batch, expected)


def test_a_cache_on_disk_notices_other_content_under_the_same_name(tmp_path: Path) -> None:
    def first_pixels() -> torch.Tensor:
        items = bundle_items("all", str(tmp_path / "shards"))
        return cached_dataset(items, LoadRadiographd("image"), "disk", tmp_path / "cache")[0]["image"].as_tensor()

    files = pictures(tmp_path / "files", 2)
    write_shards(tmp_path / "shards", files, progress=False)
    before = first_pixels()
    Image.new("L", (40, 40), 7).save(next(files.rglob("*0.png")))
    (tmp_path / "shards/shards.json").unlink()
    write_shards(tmp_path / "shards", files, progress=False)
    assert not torch.equal(first_pixels(), before)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1500])


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("radiographs-000000.tar", Path.unlink, r"1 of 1 shards .*: radiographs-000000\.tar does not exist"),
        ("radiographs-000000.tar", cut, r"radiographs-000000\.tar has [\d,]+ bytes of [\d,]+; copy"),
        ("shards.npy", Path.unlink, r"shards\.npy: the index .* cannot be read"),
        ("shards.npy", cut, r"shards\.npy: the index .* (damaged|cannot be read)"),
        ("shards.npy", damage, r"shards\.npy: the index .* is damaged"),
        ("shards.json", Path.unlink, r"writing or copying them was interrupted"),
        ("shards.json", lambda path: path.write_text("[1]"), r"shards\.json: is of version None"),
        ("shards.json", lambda path: path.write_text('{"version": 1}'), r"shards\.json: is not as it was written"),
        ("files.json", lambda path: path.write_text('{"files": []}'), r"files\.json: does not name the 30 images"),
        ("files.json", Path.unlink, r"files\.json: the names of the images cannot be read"),
    ],
)
def test_what_is_missing_or_cut_is_an_error_before_training(shards: Path, name: str, change: Any, words: str) -> None:
    change(shards / name)
    with pytest.raises(DatalistError, match=words):
        bundle_items("training", str(shards))


def test_a_list_of_damaged_shards_or_absent_members_is_refused(files: Path, tmp_path: Path) -> None:
    output = tmp_path / "shards"
    write_shards(output, None, write_list(tmp_path / "list.json", files), progress=False)
    listed = output / "datalist.json"
    content = json.loads(listed.read_text())
    content["training"][0]["image"] = "radiographs-000000.tar/no such.png"
    (output / "other.json").write_text(json.dumps(content))
    with pytest.raises(DatalistError, match=r"item 0 is not in its shard: .*/radiographs-000000\.tar/no such\.png"):
        bundle_items("training", None, str(output / "other.json"))
    cut(output / "radiographs-000000.tar")
    with pytest.raises(DatalistError, match=r"radiographs-000000\.tar has"):
        bundle_items("training", None, str(listed))


def test_bytes_that_changed_are_found_when_read_and_when_verified(shards: Path) -> None:
    items = bundle_items("all", str(shards))
    shard = shards / "radiographs-000000.tar"
    content = shard.read_bytes()
    place = content.rindex(b"IDAT") + 200
    shard.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    forget_shards()
    bundle_items("all", str(shards))  # not seen by its size
    with pytest.raises(RadiographError, match=r"radiographs-000000\.tar/p\d+/s1/.*: is damaged within its shard"):
        [LoadRadiograph()(item["image"]) for item in items]
    with pytest.raises(DatalistError, match=r"1 of 30 files are damaged: radiographs-000000\.tar at byte \d+;"):
        verify_shards(shards, progress=False)


def test_a_shard_cut_under_a_run_is_an_error_with_its_name(shards: Path) -> None:
    last = bundle_items("all", str(shards))[-1]["image"]
    with open(shards / "radiographs-000000.tar", "rb+") as stream:
        stream.truncate(5000)
    with pytest.raises(RadiographError, match=r"radiographs-000000\.tar/.*: its shard is cut: 0 bytes of \d+"):
        LoadRadiograph()(last)


def test_what_cannot_be_stored_is_refused(files: Path, shards: Path, tmp_path: Path) -> None:
    with pytest.raises(DatalistError, match="holds shards already"):
        write_shards(shards, files)
    with pytest.raises(DatalistError, match="is in a shard already"):
        write_shards(tmp_path / "none", shards, progress=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatalistError, match="no radiographs found"):
        write_shards(tmp_path / "none", tmp_path / "empty", progress=False)
    with pytest.raises(DatalistError, match="give the folder"):
        write_shards(tmp_path / "none")
    with pytest.raises(DatalistError, match="at least 1"):
        write_shards(tmp_path / "none", files, shard_megabytes=0)
    with pytest.raises(DatalistError, match="shards contain 2D images only"):
        bundle_items("training", str(shards), spatial_dims=3)
    (files / "a.mhd").write_text("NDims = 2")
    with pytest.raises(DatalistError, match=r"a\.mhd: has its pixels in another file"):
        write_shards(tmp_path / "half", files, progress=False)
    assert not list((tmp_path / "half").glob("*.tar")), "refused before anything is written"
    shutil.copytree(shards, tmp_path / "cut")
    (tmp_path / "cut/shards.json").unlink()
    with pytest.raises(DatalistError, match="interrupted"):
        bundle_items("training", str(tmp_path / "cut"))
    (files / "a.mhd").unlink()
    write_shards(tmp_path / "half", files, progress=False)
    assert len(bundle_items("all", str(tmp_path / "half"))) == 30


@pytest.mark.parametrize("name", ["datalist.json", "files.json", "a.png", "notes"])
def test_a_folder_with_files_of_the_user_is_left_alone(files: Path, name: str) -> None:
    (files / name).write_text("mine")
    before = sorted(files.rglob("*"))
    assert main(["shards", "--dataset_dir", str(files), "--output", str(files)]) == 1
    with pytest.raises(DatalistError, match=r"files: is not empty: .*give a folder that is empty"):
        write_shards(files, files, progress=False)
    assert (files / name).read_text() == "mine"
    assert sorted(files.rglob("*")) == before


def test_an_interrupted_writing_is_begun_again(files: Path, tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/radiographs-000007.tar").write_bytes(b"cut")
    (tmp_path / "shards/.shards.npy.abcd.tmp").write_bytes(b"cut")
    write_shards(tmp_path / "shards", files, progress=False)
    names = sorted(path.name for path in (tmp_path / "shards").iterdir())
    assert names == ["files.json", "radiographs-000000.tar", "shards.json", "shards.npy"]


def test_shards_that_another_process_has_finished_meanwhile_stay(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, listed = tmp_path / "shards", writing.load_radiograph_datalist

    def slow(*arguments: Any, **settings: Any) -> Any:
        monkeypatch.setattr(writing, "load_radiograph_datalist", listed)
        write_shards(output, files, progress=False)
        return listed(*arguments, **settings)

    output.mkdir()
    (output / "radiographs-000000.tar").write_bytes(b"half")
    monkeypatch.setattr(writing, "load_radiograph_datalist", slow)
    with pytest.raises(DatalistError, match="holds shards already"):
        write_shards(output, files, progress=False)
    verify_shards(output)


def renamed(names: list[Any], change: str) -> list[Any]:
    first, second, *others = names
    changed = {
        "twice": [first, first],
        "elsewhere": ["radiographs-000000.tar/../secret.png", second],
        "outside": ["../secret.png", second],
        "no text": [7, second],
        "huge": ["radiographs-000000.tar/" + 10**6 * "x", second],
    }
    return [*changed[change], *others]


@pytest.mark.parametrize("change", ["twice", "elsewhere", "outside", "no text", "huge"])
def test_names_that_are_not_those_of_the_shards_are_refused(shards: Path, change: str) -> None:
    listed = shards / "files.json"
    content = json.loads(listed.read_text())
    listed.write_text(json.dumps({**content, "files": renamed(content["files"], change)}))
    for check in (lambda: verify_shards(shards, progress=False), lambda: bundle_items("training", str(shards))):
        with pytest.raises(
            DatalistError, match=r"files\.json: (1 of 30 names are of no image|names an image twice)"
        ) as error:
            check()
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("name", ["radiographs-000000.tar/../secret.png", "../secret.png", "/secret.png"])
def test_a_list_that_names_other_files_is_not_verified(files: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "shards"
    write_shards(output, None, write_list(tmp_path / "list.json", files), progress=False)
    verify_shards(output, progress=False)
    content = json.loads((output / "datalist.json").read_text())
    content["training"][0]["image"] = name
    (output / "datalist.json").write_text(json.dumps(content))
    with pytest.raises(DatalistError, match=r"datalist\.json: 1 of \d+ names are of no image: .*secret"):
        verify_shards(output, progress=False)


def test_an_index_that_is_not_sorted_is_refused(shards: Path) -> None:
    index = np.load(shards / "shards.npy")[::-1]
    np.save(shards / "shards.npy", index)
    manifest = json.loads((shards / "shards.json").read_text())
    manifest["index_crc"] = zlib.crc32((shards / "shards.npy").read_bytes())
    (shards / "shards.json").write_text(json.dumps(manifest))
    with pytest.raises(DatalistError, match=r"shards\.npy: the index .* damaged"):
        verify_shards(shards, progress=False)


def test_the_command_writes_and_verifies(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "shards")
    assert main(["shards", "--dataset_dir", str(files), "--output", output]) == 0
    assert "30 files in 1 shards" in capsys.readouterr().out
    assert main(["shards", "--output", output, "--verify"]) == 0
    assert "as they were written" in capsys.readouterr().out
    cut(tmp_path / "shards/radiographs-000000.tar")
    assert main(["shards", "--output", output, "--verify"]) == 1
    assert "error: " in capsys.readouterr().err


def test_webdataset_reads_the_shards(files: Path, shards: Path) -> None:
    webdataset = pytest.importorskip("webdataset", reason="WebDataset is not installed")
    samples = list(webdataset.WebDataset(str(shards / "radiographs-000000.tar"), shardshuffle=False))
    assert sorted(sample["png"] for sample in samples) == sorted(path.read_bytes() for path in files.rglob("*.png"))
