# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pairs of overlapping crops on a common grid, and which of their patches show the same place (PEAC, ACE)."""
