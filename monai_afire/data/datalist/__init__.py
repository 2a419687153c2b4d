# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Datalists: read, checked, divided by patient, labeled; from files, folders or the phantom."""
