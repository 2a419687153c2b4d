# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""A run of a bundle: its options, declared once and checked before it starts, and what it says at its end."""

from __future__ import annotations

from monai_afire.apps.runs.call import BundleCall, bundle_call, bundle_root
from monai_afire.apps.runs.closing_message import ClosingMessage, TrainingMessage
from monai_afire.apps.runs.cpu import tune_cpu
from monai_afire.apps.runs.options.check import OptionError, check_call
from monai_afire.apps.runs.options.declarations import ENCODER_OPTIONS, OPTIONS, SECTIONS
from monai_afire.apps.runs.options.help_text import describe_default, help_text
from monai_afire.apps.runs.options.option import Option
from monai_afire.apps.runs.process_end import show_cause_last
from monai_afire.apps.runs.run_folder import run_folder
from monai_afire.apps.runs.running import (
    finish_run,
    run_inference,
    run_once,
)
from monai_afire.apps.runs.start import start_bundle
from monai_afire.apps.runs.weights import checked_items, run_weights

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
    "checked_items",
    "describe_default",
    "finish_run",
    "help_text",
    "start_bundle",
    "run_folder",
    "run_inference",
    "run_once",
    "run_weights",
    "show_cause_last",
    "tune_cpu",
]
