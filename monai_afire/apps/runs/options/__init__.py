# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What can be set in a run of a bundle: each option declared once, checked before the run starts, and its help."""
