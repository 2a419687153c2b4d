# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of the bundles: declared once, checked before a run, listed by ``--help`` and in the documentation."""

from __future__ import annotations

from monai_afire.apps.options.call import BundleCall
from monai_afire.apps.options.check import OptionError, check, check_call, start_bundle
from monai_afire.apps.options.declarations import ENCODER_OPTIONS, OPTIONS, SECTIONS
from monai_afire.apps.options.described_options import described_options
from monai_afire.apps.options.help_text import describe_default, help_text
from monai_afire.apps.options.option import Option
from monai_afire.apps.options.running import current_call

__all__ = [
    "ENCODER_OPTIONS",
    "OPTIONS",
    "SECTIONS",
    "BundleCall",
    "Option",
    "OptionError",
    "check",
    "check_call",
    "current_call",
    "describe_default",
    "help_text",
    "start_bundle",
    "described_options",
]
