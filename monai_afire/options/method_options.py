# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of one method, task or run: pre-training, fine-tuning, detection, inference, analysis."""

from __future__ import annotations

from monai_afire.anomaly import MAP_NAMES, SCORE_NAMES
from monai_afire.anomaly.field_of_view import MAX_VIEWS
from monai_afire.anomaly.lung_view import FIELDS_OF_VIEW
from monai_afire.anomaly.scores import AGGREGATIONS
from monai_afire.anomaly.token_features import LAYERS
from monai_afire.anomaly.writer import SAVED_KINDS
from monai_afire.losses.peac import SWAPPED_SAMPLES
from monai_afire.losses.reductions import REDUCTIONS
from monai_afire.losses.token_similarity import SIMILARITIES
from monai_afire.networks.nets.afire import CONTRAST_SPACES
from monai_afire.networks.nets.dino import TEACHER_BALANCES
from monai_afire.networks.nets.peac import GLOBAL_BALANCES
from monai_afire.networks.weights.swin import SWIN_SOURCES
from monai_afire.networks.weights.vit_filters import VIT_SOURCES
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
        Option("num_masks", _AT_LEAST_1, "lesion variants of each image"),
        Option("num_lesions", ListOf(_AT_LEAST_1, 2, ascending=True), "smallest and largest number of lesions"),
        Option(
            "lesion_size",
            ListOf(_POSITIVE, 2, ascending=True),
            "lesion diameters in pixels of an image of 224, or as shares of the side",
        ),
        Option("lesion_amplitude", ListOf(_POSITIVE, 2, ascending=True), "contrast of the lesions"),
        Option("augmentation", Choice(("SynthLesionMask", "AnatPaste", "CutPaste")), "what the lesions are made by"),
        Option("lesions_on_device", Switch(), "make the lesions of a whole batch on the training device"),
        Option(
            "lesion_options", Mapping(), "arguments of synth_lesion_masks for lesions on the device and for studies"
        ),
        Option("contrast_weight", _WEIGHT, "of both consistency terms in the loss; 0 leaves head and prototypes out"),
        Option("structure_weight", _WEIGHT, "of the structure consistency: tokens and the prototype of their position"),
        Option("category_weight", _WEIGHT, "of the category consistency: normal tokens and other patients'"),
        Option("restoration_weight", _WEIGHT, "of the restoration in the loss (PEAC, too); 0 leaves the decoder out"),
        Option(
            "loss_reduction",
            Choice(REDUCTIONS),
            "mean, or sum as printed, of the restoration (AFiRe, PEAC), of order and local consistency (PEAC)",
        ),
        Option("abnormal_weight", _POSITIVE, "weight of lesion patches against normal ones in the restoration"),
        Option(
            "contrast_space",
            Choice(CONTRAST_SPACES),
            "what is compared: cluster probabilities or features",
            travels="network",
        ),
        Option("similarity", Choice(SIMILARITIES), "measure of the similarity of tokens", travels="result"),
        Option("similarity_temperature", _POSITIVE, "temperature of the similarities in the contrast"),
        Option("prototype_momentum", Number(0, below=1), "moving average of the prototypes"),
        Option(
            "use_prototypes",
            Switch(),
            "contrast with prototypes; false with the teacher's tokens of the same image",
        ),
        Option("use_mask_tokens", Switch(), "replace lesion tokens by mask tokens before the decoder"),
        Option("include_abnormal_pairs", Switch(), "count pairs of abnormal tokens in the category consistency"),
        Option(
            "student_temperature",
            _POSITIVE,
            "softmax temperature of the student (ACE, DINO, too)",
            travels="result",
        ),
        Option(
            "teacher_temperature",
            _POSITIVE,
            "softmax temperature of the teacher at the start (DINO, too; ACE: always)",
        ),
        Option("final_teacher_temperature", _POSITIVE, "softmax temperature of the teacher after the ramp"),
        Option("teacher_temperature_epochs", _AT_LEAST_1, "epochs of the ramp between the two"),
        Option("frozen_last_layer_epochs", Integer(minimum=0), "epochs in which the head's last layer does not learn"),
    ),
    "PEAC and ACE": (
        Option("grid", _AT_LEAST_1, "cells on a side of the grid that crops are cut from", travels="result"),
        Option("cell", _AT_LEAST_1, "ACE: side of a cell in pixels (PEAC: patch_size)", travels="result"),
        Option("global_weight", _WEIGHT, "of the global consistency in the loss; 0 leaves it out"),
        Option(
            "global_balance",
            Choice(GLOBAL_BALANCES),
            "PEAC: what keeps embeddings of whole crops from a collapse; none as printed",
            travels="network",
        ),
        Option("local_weight", _WEIGHT, "PEAC: of the local consistency in the loss; 0 leaves it out"),
        Option(
            "swapped_samples",
            Choice(SWAPPED_SAMPLES),
            "PEAC: whose local consistency counts in the swapped pass",
        ),
        Option("order_weight", _WEIGHT, "PEAC: of the patch order in the loss; 0 leaves it out"),
        Option("shuffle_prob", _PROBABILITY, "PEAC: probability of shuffled patches"),
        Option("num_blocks", Integer(minimum=0), "PEAC: blocks in which pixels are shuffled"),
        Option("curve_prob", _PROBABILITY, "PEAC: probability of another gray-level curve"),
        Option("invert_prob", _PROBABILITY, "PEAC: probability that this curve falls"),
        Option("paint_prob", _PROBABILITY, "PEAC: probability of in- or out-painting"),
        Option("outpaint_prob", _PROBABILITY, "PEAC: probability that painting is out-painting"),
        Option("composition_weight", _WEIGHT, "ACE: of the composition in the loss; 0 leaves it out"),
        Option("decomposition_weight", _WEIGHT, "ACE: of the decomposition in the loss; 0 leaves it out"),
        Option("composition_alpha", Number(above=0, below=1), "ACE: weight of matching pairs in the composition"),
        Option("decomposition_alpha", Number(above=0, below=1), "ACE: weight of matching pairs in the decomposition"),
        Option("center_momentum", Number(0, below=1), "moving average of the teacher's centre (DINO, too)"),
    ),
    "DINO": (
        Option("num_local_crops", Integer(minimum=0), "small crops of each image, beside two large ones"),
        Option("local_size", _AT_LEAST_1, "side of a small crop in pixels, a multiple of patch_size"),
        Option("global_crop_scale", ListOf(_SHARE, 2, ascending=True), "share of the image's area in a large crop"),
        Option("local_crop_scale", ListOf(_SHARE, 2, ascending=True), "share of the image's area in a small crop"),
        Option(
            "num_prototypes",
            Integer(minimum=2),
            "outputs of the head, over which distributions are compared",
            travels="network",
        ),
        Option("bottleneck_dim", _AT_LEAST_1, "width before the head's last layer", travels="network"),
        Option("norm_last_layer", Switch(), "keep the gains of the head's last layer at 1", travels="network"),
        Option("teacher_balance", Choice(TEACHER_BALANCES), "what keeps the teacher from a collapse"),
    ),
    "MAE": (
        Option("mask_ratio", Number(above=0, below=1), "share of the patches that the encoder does not see"),
        Option("normalize_target", Switch(), "reconstruct patches normalised by their own mean and deviation"),
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
        Option("freeze_encoder", Switch(), "train all but the encoder"),
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
        Option("sigma", _POSITIVE, "standard deviation of a landmark's heat map in pixels of the input"),
        Option("window", _AT_LEAST_1, "side of a heat map's window in pixels of the input, odd", travels="result"),
        Option("positive_weight", _POSITIVE, "weight of a landmark's pixel against one far from it"),
        Option("dropout_rate", Number(0, below=1), "dropout before the last layer"),
        Option(
            "standardize_features",
            Switch(),
            "standardise the encoder's features before the linear layer",
            travels="network",
        ),
        Option("flip_prob", _PROBABILITY, "probability of mirrored training images (MAE, too)"),
        Option("layer_decay", Number(above=0, maximum=1), "learning rate of a layer against that of the next one"),
        Option("patience", _AT_LEAST_1, "validations without improvement that end the run"),
        Option("label_fraction", Number(above=0, maximum=1), "share of the training patients to learn from"),
        Option("num_shots", _AT_LEAST_1, "training items to learn from", null="all"),
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
