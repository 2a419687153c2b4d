# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What MONAI's engines need to run the methods."""

from __future__ import annotations

from monai_afire.engines.prepare_batch import PrepareInputs, PrepareLesionBatch
from monai_afire.engines.tracked_trainer import TrackedTrainer

__all__ = ["PrepareInputs", "PrepareLesionBatch", "TrackedTrainer"]
