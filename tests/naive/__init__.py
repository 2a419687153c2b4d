# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Slow reference implementations, written from the papers alone: what the package's results are compared with."""
