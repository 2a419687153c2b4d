# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Synthetic lesions in normal images: AFiRe's Synthetic Lesion Masks and the pasting methods it is compared with."""
