# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Readers of single radiograph files, one module per family of formats, and the scaling of intensities they share."""
