# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of every run: data, machine, network and training."""

from __future__ import annotations

from monai_afire.data.cache.cached_dataset import CACHES
from monai_afire.options.kinds import (
    Choice,
    Device,
    Encoder,
    Integer,
    ListOf,
    Mapping,
    Number,
    Path,
    PerAxis,
    Switch,
    Text,
)
from monai_afire.options.option import Option

__all__ = ["RUN_SECTIONS"]

_SECTIONS = ("training", "validation", "test")
_AT_LEAST_1 = Integer(minimum=1)
_AT_LEAST_0 = Integer(minimum=0)

RUN_SECTIONS = {
    "Data and folders": (
        Option(
            "dataset_dir", Path(), "folder of radiographs, or one file", null="the datalist's paths, or the phantom"
        ),
        Option("datalist", Path(), "MONAI datalist (JSON) with the images of each section", null="search dataset_dir"),
        Option("section", Text(), "section of the datalist to take: training, validation or test"),
        Option("label_key", Text(), "key of the items that holds the label"),
        Option("bundle_root", Path(), "the bundle's folder, from which the other folders follow"),
        Option("output_dir", Path(), "folder for results, pictures and curves"),
        Option("ckpt_dir", Path(), "folder for model.pt and checkpoint.pt of a training"),
        Option("ckpt_path", Path(), "file of the weights to use"),
        Option("export_path", Path(), "file to write with --run_id export: .onnx or .pt2"),
        Option("cache", Choice(CACHES), "where decoded images are kept: disk16 and disk8 round them"),
        Option("cache_dir", Path(), "folder of the cache on disk"),
        Option("phantom_dir", Path(), "folder of the phantom, drawn there where it is missing"),
        Option(
            "phantom",
            Mapping(
                {
                    "num_patients": _SECTIONS,
                    "image_size": (),
                    "abnormal_fraction": _SECTIONS,
                    "lesion_kinds": (),
                    "seed": (),
                    "num_processes": (),
                    "progress": (),
                }
            ),
            "the phantom that stands in for data: arguments of monai_afire.data.export_phantom",
        ),
        Option(
            "spacing",
            PerAxis(Number(above=0)),
            "millimetres between the voxels of volumes, which are then padded or cropped to the input",
            null="resize the whole volume",
            travels="encoder",
        ),
        Option(
            "cover_volume",
            Switch(),
            "segmentation: cover volumes of this spacing by windows of the input's size instead of cropping them",
            travels="network",
        ),
        Option(
            "window_overlap",
            Number(minimum=0, below=1),
            "share of a window's side that the next window covers, too, where cover_volume is true",
        ),
        Option(
            "intensity_window",
            ListOf(Number(), 2, ascending=True),
            "numbers in the files of volumes that become 0 and 1, such as Hounsfield units",
            null="each volume's own range",
            travels="encoder",
        ),
        Option(
            "standardize",
            Switch(),
            "give every neighbourhood of an image the same brightness and contrast",
            travels="encoder",
        ),
    ),
    "Machine": (
        Option("device", Device(), "where the network computes"),
        Option("num_workers", _AT_LEAST_0, "processes that load images, 0 for none beside the main one"),
        Option("bf16", Switch(), "compute in bfloat16 where the device has it"),
        Option("seed", Integer(0, 2**32 - 1), "of everything that is drawn at random"),
    ),
    "Network": (
        Option(
            "encoder",
            Encoder(),
            "an encoder of Hugging Face, with its weights (:random for without), or timm (:pretrained for with)",
            null="a ViT of the sizes below",
            travels="encoder",
        ),
        Option("spatial_dims", Integer(2, 3), "axes of the images: 2 for pictures, 3 for volumes", travels="encoder"),
        Option("channels", Integer(1, 3), "channels of pictures: 1 for gray, 3 for colour", travels="encoder"),
        Option(
            "image_size",
            PerAxis(_AT_LEAST_1),
            "side of the network's input in pixels",
            travels="encoder",
            fitted=True,
        ),
        Option(
            "patch_size",
            PerAxis(_AT_LEAST_1),
            "side of a patch, which becomes one token, in pixels",
            travels="encoder",
            fitted=True,
        ),
        Option("hidden_size", _AT_LEAST_1, "width of a token in the ViT", travels="encoder"),
        Option("num_layers", _AT_LEAST_1, "number of transformer blocks of the ViT", travels="encoder"),
        Option(
            "num_heads",
            _AT_LEAST_1,
            "number of attention heads of the ViT, a divisor of hidden_size",
            travels="encoder",
        ),
        Option(
            "decoder_channels",
            Integer(minimum=2),
            "segmentation, landmarks: width of the UPerNet head",
            travels="network",
        ),
    ),
    "Training": (
        Option("epochs", _AT_LEAST_1, "passes over the training images"),
        Option("batch_size", _AT_LEAST_1, "images in a batch of one process"),
        Option("accumulation_steps", _AT_LEAST_1, "batches whose gradients make one optimizer step, at most an epoch"),
        Option("learning_rate", Number(minimum=0), "of the optimizer after the warm-up"),
        Option("val_interval", _AT_LEAST_1, "epochs between two validations"),
        Option("resume", Switch(), "go on where an interrupted run of the same command stopped"),
    ),
}
