# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of one method, task or run: pre-training, fine-tuning, detection, inference, analysis."""

from __future__ import annotations

from monai_afire.anomaly import MAP_NAMES, SCORE_NAMES
from monai_afire.anomaly.field_of_view import FIELDS_OF_VIEW, MAX_VIEWS
from monai_afire.anomaly.scores import AGGREGATIONS
from monai_afire.anomaly.token_features import LAYERS
from monai_afire.handlers.writers.anomaly_writer import SAVED_KINDS
from monai_afire.networks.weights.swin import SWIN_SOURCES
from monai_afire.networks.weights.vit import VIT_SOURCES
from monai_afire.options.kinds import Choice, Integer, ListOf, Mapping, Number, Path, Switch, Text
from monai_afire.options.option import Option
from monai_afire.utils.labels import LABEL_KINDS, UNCERTAIN_POLICIES

__all__ = ["METHOD_SECTIONS"]

_AT_LEAST_1 = Integer(minimum=1)
_PROBABILITY = Number(0, 1)
_WEIGHT = Number(minimum=0)
_POSITIVE = Number(above=0)
_SHARE = Number(above=0, maximum=1)
_CONTROLLED_LESIONS = Mapping({"kinds": (), "contrasts": (), "sizes": ()})
_BRANCH = Choice(("teacher", "student"))

METHOD_SECTIONS = {
    "AFiRe": (
        Option(
            "lesion_options", Mapping(), "arguments of synth_lesion_masks for lesions on the device and for studies"
        ),
    ),
    "PEAC and ACE": (
        Option("grid", _AT_LEAST_1, "cells on a side of the grid that crops are cut from", travels="result"),
        Option("cell", _AT_LEAST_1, "ACE: side of a cell in pixels (PEAC: patch_size)", travels="result"),
    ),
    "DINO": (),
    "MAE": (
        Option(
            "crop_scale",
            ListOf(Number(above=0, maximum=1), 2, ascending=True),
            "smallest and largest random crop as shares of the image's area",
        ),
    ),
    "Fine-tuning": (
        Option("encoder_weights", Path(), "file of a pre-trained encoder, or released", null="start from scratch"),
        Option("encoder_source", Choice(tuple(VIT_SOURCES | SWIN_SOURCES)), "whose names the weights bear"),
        Option("encoder_branch", _BRANCH, "which of two encoders in the file to take"),
        Option(
            "num_classes",
            _AT_LEAST_1,
            "number of classes or landmarks",
            null="as the datalist names them",
            travels="network",
        ),
        Option("class_names", ListOf(Text()), "names of the classes or landmarks", travels="names"),
        Option(
            "label_kind",
            Choice(LABEL_KINDS),
            "findings, any number per image, or exclusive classes, one per image",
            travels="network",
        ),
        Option("uncertain", Choice(UNCERTAIN_POLICIES), "what the label -1 counts as"),
        Option("fit_masks", Switch(), "bring masks of another resolution to the image's"),
        Option("window", _AT_LEAST_1, "side of a heat map's window in pixels of the input, odd", travels="result"),
        Option("flip_prob", _PROBABILITY, "probability of mirrored training images (MAE, too)"),
        Option("patience", _AT_LEAST_1, "validations without improvement that end the run"),
        Option("num_folds", Integer(minimum=2), "folds of a cross-validation by patient", null="the list's sections"),
        Option("fold", Integer(minimum=0), "number of the fold to test on, from 0"),
        Option("min_steps_per_epoch", _AT_LEAST_1, "smallest number of steps in an epoch of few images"),
    ),
    "Anomaly detection": (
        Option("pretrained", Path(), 'weights to adapt; "" starts from scratch', null="start from scratch"),
        Option("fusion", ListOf(Choice(MAP_NAMES)), "token maps whose mean is the heat map", travels="result"),
        Option("aggregation", Choice(AGGREGATIONS), "how a token map becomes one score", travels="result"),
        Option(
            "k_fraction",
            Number(above=0, maximum=1),
            "share of the tokens that top_k takes the mean of",
            travels="result",
        ),
        Option(
            "score_fusion",
            ListOf(Choice(SCORE_NAMES[:-1])),
            "scores whose standardised mean is the fused score",
            travels="result",
        ),
        Option(
            "copies",
            Integer(minimum=0),
            "of each normal image with another field of view, added to the statistics",
            travels="result",
        ),
        Option(
            "views",
            Integer(minimum=1, maximum=MAX_VIEWS),
            "fields of view to judge in; the most normal result counts",
            travels="result",
        ),
        Option(
            "field_of_view",
            Choice(FIELDS_OF_VIEW),
            "what of an image is judged: all of it, or the square around the lungs",
            travels="result",
        ),
        Option("memory_size", _AT_LEAST_1, "normal images whose tokens are remembered", travels="network"),
        Option(
            "feature_layers",
            Choice(LAYERS),
            "layers of the encoder that tokens are compared by",
            travels="result",
        ),
        Option(
            "specificity",
            Number(above=0, below=1),
            "of the threshold on normal images",
            null="best F1; of a fitted one: as it is",
        ),
        Option("validation_lesions", _CONTROLLED_LESIONS, "lesions to paint where validation has no abnormal image"),
        Option("lesions", _CONTROLLED_LESIONS, "lesions to paint into normal images for the evaluation"),
        Option("saved", ListOf(Choice(SAVED_KINDS)), "what to write for each image beside its scores"),
        Option(
            "patient_identifiers", Switch(), "have ID, name and birth date of the patients in the work-list, from DICOM"
        ),
        Option(
            "strict_view", Switch(), "reject DICOM files whose headers say that they are no frontal chest radiographs"
        ),
    ),
    "Evaluation and inference": (
        Option("num_bootstraps", Integer(minimum=0), "samples for the intervals of the metrics, 0 for none"),
        Option("picture_size", _AT_LEAST_1, "side of the pictures in pixels"),
    ),
    "Property studies": (
        Option("weights", Mapping(), "encoders to compare: name and file, or null for an untrained one"),
        Option("classifier_weights", Mapping(), "classifiers to look into: name and file"),
        Option("max_images", _AT_LEAST_1, "number of images, evenly spaced in the list", null="all"),
        Option("stride", _AT_LEAST_1, "pixels between two places of dense features, a divisor of patch_size"),
        Option(
            "sliding_windows",
            Switch(),
            "find landmarks by windows that are encoded alone, too (ACE, Fig. 7): a pass for each place",
        ),
        Option("title", Text(), "title of the report"),
    ),
}
