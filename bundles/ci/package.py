# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
Copy what of a trained bundle is shared, with MONAI's Model Zoo or on the Hugging Face Hub, and check the copy.

``python bundles/ci/package.py bundles/mae dist --url https://huggingface.co/USER/NAME/resolve/main`` writes the paths
of a clone of the zoo: ``models/<name>``, and ``ci/unit_tests`` with the bundle's test. ``monai.bundle.push_to_hf_hub
--bundle_dir dist/models`` uploads the copy. Images, results and checkpoints with an optimizer stay behind.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

from monai.bundle import verify_metadata, verify_net_in_out

# the zoo names a bundle by modality, organ and task
ZOO_NAMES = {
    "afire": "chest_xray_afire_pretraining",
    "peac": "chest_xray_peac_pretraining",
    "ace": "chest_xray_ace_pretraining",
    "mae": "chest_xray_mae_pretraining",
    "dino": "chest_xray_dino_pretraining",
    "radiograph_classification": "chest_xray_classification",
    "radiograph_segmentation": "chest_xray_segmentation",
    "radiograph_landmarks": "chest_xray_landmarks",
}
NEEDED = ("LICENSE", "configs/metadata.json", "docs/README.md", "models/model.pt")
FOLDERS = ("configs", "docs", "released")
LARGE = 25 * 2**20  # bytes that the zoo takes as one file
LINK_TO_ANOTHER_BUNDLE = re.compile(r"\[([^\]]*)\]\(\.\./\.\./[^)]*\)")


def copy_bundle(bundle: Path, target: Path, url: str = "") -> None:
    """
    Copy the public files of a bundle to a new folder, with a list of those that are large.

    Args:
        bundle: folder of a trained bundle.
        target: the new folder.
        url: address below which large files will be found under their paths in the bundle; "" for none yet.

    Raises:
        FileNotFoundError: when the bundle has no weights, metadata, license or documentation.
        FileExistsError: when the target is there.
    """
    for name in NEEDED:
        if not (bundle / name).is_file():
            raise FileNotFoundError(f"{bundle} has no {name}: give the folder of a trained bundle")
    (target / "models").mkdir(parents=True, exist_ok=False)
    for name in ("LICENSE", "NOTICE", "models/model.pt"):
        if (bundle / name).is_file():
            shutil.copy2(bundle / name, target / name)
    for name in FOLDERS:
        if (bundle / name).is_dir():
            hidden = shutil.ignore_patterns(".*", "__pycache__")
            shutil.copytree(bundle / name, target / name, ignore=hidden)
    _adapt_card(target)
    _list_large_files(target, url)


def _adapt_card(bundle: Path) -> None:
    """The hub shows the card one folder up, beside no other bundle: its pictures go there, too."""
    for picture in (*bundle.glob("docs/*.png"), *bundle.glob("docs/*.jpg")):
        shutil.copy2(picture, bundle)
    card = bundle / "docs" / "README.md"
    text = LINK_TO_ANOTHER_BUNDLE.sub(r"\1", card.read_text(encoding="utf-8"))
    card.write_text(text, encoding="utf-8")


def large_files(bundle: Path) -> list[Path]:
    """Files of a bundle that the zoo takes as links alone."""
    files = [path for path in sorted(bundle.rglob("*")) if path.is_file()]
    return [path for path in files if path.stat().st_size > LARGE]


def _list_large_files(bundle: Path, url: str) -> None:
    """Write ``large_files.yml``, from which ``monai.bundle.download_large_files`` brings them back."""
    entries = []
    for path in large_files(bundle):
        name = path.relative_to(bundle).as_posix()
        entries.append(
            {
                "path": name,
                "url": f"{url.rstrip('/')}/{name}" if url else "",
                "hash_val": hashlib.sha256(path.read_bytes()).hexdigest(),
                "hash_type": "sha256",
            }
        )
    if entries:  # JSON is YAML, too
        text = json.dumps({"large_files": entries}, indent=2) + "\n"
        (bundle / "large_files.yml").write_text(text, encoding="utf-8")


def check_bundle(bundle: Path, schema: Path) -> None:
    """Raise an error if the metadata breaks the zoo's schema, or the network does not do what they say."""
    metadata, inference = (
        bundle / "configs" / f"{name}.json" for name in ("metadata", "inference")
    )
    verify_metadata(meta_file=str(metadata), filepath=str(schema))
    verify_net_in_out("network_def", str(metadata), str(inference), bundle_root=str(bundle))


def main(words: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Copy what of a trained bundle is shared.")
    parser.add_argument("bundle", type=Path, help="its folder")
    parser.add_argument("output", type=Path, help="a folder, with the paths of a clone of the zoo")
    parser.add_argument("--url", default="", help="address below which large files will be found")
    parser.add_argument("--name", help="in the zoo (default: one with modality and task)")
    options = parser.parse_args(words)
    own_name = options.bundle.resolve().name
    name = options.name or ZOO_NAMES.get(own_name, own_name)
    target, tests = options.output / "models" / name, options.output / "ci" / "unit_tests"
    copy_bundle(options.bundle, target, options.url)
    tests.mkdir(parents=True, exist_ok=True)
    for test in (f"test_{name}.py", "radiograph_bundles.py"):
        if (source := Path(__file__).with_name("unit_tests") / test).is_file():
            shutil.copy2(source, tests)
    check_bundle(target, options.output / "metadata_schema.json")
    print(f"{target} is complete. For a pull request to the Model Zoo:")
    print(f'* add "{name}" to exclude_verify_torchscript_list in its ci/bundle_custom_data.py')
    for path in large_files(target):
        print(f"* upload {path}, and leave it out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
