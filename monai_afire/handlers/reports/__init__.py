# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What a network is worth on labelled images: a table with a row per image, figures, pictures."""
