# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Runs of several processes; a package, for there is a library of this name."""
