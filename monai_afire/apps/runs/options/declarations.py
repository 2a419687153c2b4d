# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""
All options of the bundles, by section and by name.

The name of one that acts in a single place is its path there. All other settings are overridden by their paths, too.
"""

from __future__ import annotations

from monai_afire.apps.runs.options.kinds import (
    DEVICE,
    ENCODER,
    FILES,
    INTEGER,
    PATH,
    PATH_OR_EMPTY,
    PHANTOM,
    POSITIVE_INTEGER,
    SHARE,
    SHARES,
    SWITCH,
    TEXT,
    choice,
    integer,
    list_of,
    number,
    per_axis,
)
from monai_afire.apps.runs.options.option import Option
from monai_afire.data.cache.cached_dataset import CACHES
from monai_afire.detection.field_of_view import FIELDS_OF_VIEW
from monai_afire.detection.scores import SCORE_NAMES
from monai_afire.utils.uncertain_labels import LABEL_KINDS, UNCERTAIN_POLICIES
from monai_afire_cli.options.words import SAVED_KINDS

__all__ = ["ENCODER_OPTIONS", "OPTIONS", "SECTIONS"]

_DATA = (
    Option(
        "dataset_dir",
        PATH,
        "folder of radiographs, or one file",
        null="the datalist's paths, or the phantom",
    ),
    Option(
        "datalist",
        PATH,
        "MONAI datalist (JSON) with the images of each section",
        null="search dataset_dir",
    ),
    Option("section", TEXT, "section of the datalist to use: training, validation or test"),
    Option("label_key", TEXT, "key of the items that holds the label"),
    Option("bundle_root", PATH, "the bundle's folder, from which the other folders follow"),
    Option(
        "name", TEXT, "of the run, whose folder is runs/<bundle>/<name>", null="the present time"
    ),
    Option(
        "weights_of",
        PATH,
        "run whose weights to use: latest, its name or its folder",
        null="the weights of the bundle",
    ),
    Option("output_dir", PATH, "folder for results, pictures and curves, in place of the run's"),
    Option("ckpt_dir", PATH, "folder for model.pt and checkpoint.pt of a training"),
    Option("ckpt_path", PATH, "file of the weights to use"),
    Option("phantom_weights", SWITCH, "use weights of drawn phantoms alone for radiographs, too"),
    Option("export_path", PATH, "file to write with --run_id export: .onnx or .pt2"),
    Option("cache", choice(CACHES), "where decoded images are kept: disk16 and disk8 round them"),
    Option("cache_dir", PATH, "folder of the cache on disk"),
    Option(
        "items::phantom::folder",
        PATH,
        "folder of the phantom, which is drawn there if it is missing",
    ),
    Option(
        "phantom",
        PHANTOM,
        "the phantom that replaces data: arguments of monai_afire.apps.phantom.export_phantom",
    ),
)
_INPUT = (
    Option(
        "standardize",
        SWITCH,
        "give every neighborhood of an image the same brightness and contrast",
    ),
    Option("channels", integer(1, 3), "channels of pictures: 1 for gray, 3 for color"),
    Option("image_size", per_axis(POSITIVE_INTEGER), "side of the network's input in pixels"),
)
_OF_THE_WEIGHTS = "as the weights to start from say; else {}"
_NETWORK = (
    Option(
        "encoder",
        ENCODER,
        "an encoder of Hugging Face, with its weights (:random for without), or timm (:pretrained for with)",
        null="as the weights to start from say; else residual to fine-tune, vit to pre-train",
    ),
    Option(
        "patch_size",
        per_axis(POSITIVE_INTEGER),
        "side of a patch, which becomes one token, in pixels",
        null=_OF_THE_WEIGHTS.format(16),
    ),
    Option(
        "encoder_def::hidden_size",
        POSITIVE_INTEGER,
        "width of a token in the ViT",
        null=_OF_THE_WEIGHTS.format(192),
    ),
    Option(
        "encoder_def::num_layers",
        POSITIVE_INTEGER,
        "number of transformer blocks of the ViT",
        null=_OF_THE_WEIGHTS.format(5),
    ),
    Option(
        "encoder_def::num_heads",
        POSITIVE_INTEGER,
        "number of attention heads of the ViT, a divisor of hidden_size",
        null=_OF_THE_WEIGHTS.format(6),
    ),
)
_BF16 = "compute in bfloat16 where the device has it"

SECTIONS: dict[str, tuple[Option, ...]] = {
    "Data and folders": _DATA,
    "Machine": (
        Option("device", DEVICE, "where the network computes"),
        Option(
            "num_workers", INTEGER, "processes that load images, 0 for none beside the main one"
        ),
        Option("train::inferer::enabled", SWITCH, _BF16),
        Option("inferer::enabled", SWITCH, _BF16),
        Option("seed", integer(0, 2**32 - 1), "of all random numbers"),
    ),
    "Input": _INPUT,
    "Network": _NETWORK,
    "Training": (
        Option("epochs", POSITIVE_INTEGER, "passes over the training images"),
        Option("batch_size", POSITIVE_INTEGER, "images in a batch of one process"),
        Option(
            "accumulation_steps",
            POSITIVE_INTEGER,
            "batches per optimizer step, at most those of an epoch",
        ),
        Option(
            "learning_rate", number("a number >= 0", ge=0), "of the optimizer after the warm-up"
        ),
        Option("train::run::val_interval", POSITIVE_INTEGER, "epochs between two validations"),
        Option("resume", SWITCH, "continue an interrupted run of the same command"),
        Option(
            "grid",
            POSITIVE_INTEGER,
            "PEAC, ACE: cells on a side of the grid that crops are cut from",
        ),
        Option("cell", POSITIVE_INTEGER, "ACE: side of a cell in pixels (PEAC: patch_size)"),
        Option(
            "crop_scale",
            SHARES,
            "MAE: smallest and largest random crop as shares of the image's area",
        ),
        Option("flip_prob", SHARE, "probability of mirrored training images"),
    ),
    "Fine-tuning": (
        Option(
            "encoder_weights",
            PATH,
            "pre-trained encoder: file, released, released_224, released_cnn",
            null="start from scratch",
        ),
        Option(
            "encoder_branch",
            choice(("teacher", "student")),
            "which of two encoders in the file to use",
        ),
        Option(
            "num_classes",
            POSITIVE_INTEGER,
            "number of classes or landmarks",
            null="as the datalist names them",
        ),
        Option("class_names", list_of(TEXT), "names of the classes or landmarks"),
        Option(
            "label_kind",
            choice(LABEL_KINDS),
            "any number of findings per image, or one class per image",
        ),
        Option("uncertain", choice(UNCERTAIN_POLICIES), "what the label -1 counts as"),
        Option("fit_masks", SWITCH, "resize masks to the size of their images"),
        Option(
            "window", POSITIVE_INTEGER, "side of a heat map's window in pixels of the input, odd"
        ),
        Option(
            "items::num_folds",
            integer(2),
            "folds of a cross-validation by patient",
            null="the list's sections",
        ),
        Option("items::fold", INTEGER, "number of the fold to test on, from 0"),
        Option(
            "train::dataloader::min_batches",
            POSITIVE_INTEGER,
            "smallest number of steps in an epoch of few images",
        ),
    ),
    "Anomaly detection": (
        Option(
            "pretrained",
            PATH_OR_EMPTY,
            'weights to adapt; "" starts from scratch',
            null="start from scratch",
        ),
        Option(
            "score_fusion",
            list_of(choice(SCORE_NAMES[:-1])),
            "scores whose standardized mean is the fused score",
        ),
        Option(
            "field_of_view",
            choice(FIELDS_OF_VIEW),
            "use the whole image, or the square around the lungs",
        ),
        Option(
            "specificity",
            number("a number in (0, 1)", gt=0, lt=1),
            "of the threshold on normal images",
            null="best F1; of a fitted one: as it is",
        ),
        Option(
            "calibrate",
            PATH,
            "folder, datalist or file of your own normal images, which scores are compared with",
            null="those that come with the detector",
        ),
        Option(
            "saved", list_of(choice(SAVED_KINDS)), "what to write for each image beside its scores"
        ),
    ),
    "Results": (
        Option("picture_size", POSITIVE_INTEGER, "side of the pictures in pixels"),
        Option(
            "weights",
            FILES,
            "encoders to compare: name and file, or null for an untrained one",
        ),
        Option("classifier_weights", FILES, "classifiers to examine: name and file"),
        Option(
            "stride", POSITIVE_INTEGER, "pixels between two dense features, a divisor of patch_size"
        ),
        Option(
            "sliding_windows",
            SWITCH,
            "find landmarks also by windows that are encoded alone (ACE, Fig. 7): slow",
        ),
    ),
}
OPTIONS: dict[str, Option] = {
    option.name: option for options in SECTIONS.values() for option in options
}
ENCODER_OPTIONS = tuple(option.name for option in (*_INPUT, *_NETWORK))
"""What a training takes from the file of the encoder that it starts from, since the weights fit nothing else."""
