# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Options of ``audit``, ``compare`` and ``watch``, and what is wrong with their words."""
