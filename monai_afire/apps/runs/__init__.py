# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run of a bundle: its options, declared once and checked before it starts, and what it says at its end."""

from __future__ import annotations

from monai_afire.apps.runs.bundle_folder import bundle_root
from monai_afire.apps.runs.call import BundleCall
from monai_afire.apps.runs.check import OptionError, check_call, start_bundle
from monai_afire.apps.runs.closing_message import ClosingMessage
from monai_afire.apps.runs.command_line import bundle_call
from monai_afire.apps.runs.cpu import tune_cpu
from monai_afire.apps.runs.declarations import ENCODER_OPTIONS, OPTIONS, SECTIONS
from monai_afire.apps.runs.help_text import describe_default, help_text
from monai_afire.apps.runs.inference import run_inference
from monai_afire.apps.runs.option import Option
from monai_afire.apps.runs.phantom_weights import checked_items
from monai_afire.apps.runs.process_end import show_cause_last
from monai_afire.apps.runs.run_folder import run_folder
from monai_afire.apps.runs.run_record import finish_run
from monai_afire.apps.runs.run_weights import run_weights
from monai_afire.apps.runs.training import check_folders, run_training
from monai_afire.apps.runs.training_message import TrainingMessage
from monai_afire.apps.runs.whole_run import run_once

__all__ = [
    "ENCODER_OPTIONS",
    "OPTIONS",
    "SECTIONS",
    "BundleCall",
    "ClosingMessage",
    "Option",
    "OptionError",
    "TrainingMessage",
    "bundle_call",
    "bundle_root",
    "check_call",
    "check_folders",
    "checked_items",
    "describe_default",
    "finish_run",
    "help_text",
    "start_bundle",
    "run_folder",
    "run_inference",
    "run_once",
    "run_training",
    "run_weights",
    "show_cause_last",
    "tune_cpu",
]
