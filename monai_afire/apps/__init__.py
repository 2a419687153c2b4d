# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Applications built on the core: nothing in the core imports them."""

__all__: list[str] = []  # each is imported by its own name
