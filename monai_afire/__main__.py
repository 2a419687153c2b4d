# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""``python -m monai_afire``: the command ``monai-afire``, which starts faster."""

from __future__ import annotations

import sys

from monai_afire_cli import main

if __name__ == "__main__":
    sys.exit(main())
