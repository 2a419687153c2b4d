# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pre-trained encoder weights: in from other formats (:func:`load_encoder_weights`)."""
