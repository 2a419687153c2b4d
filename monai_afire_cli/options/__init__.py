# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Words of a bundle's options, and what is wrong with them before anything is loaded."""
