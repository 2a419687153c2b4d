# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Adds to ``setup.cfg`` what it cannot say: the top-level folder ``bundles`` is a part of the installed package."""

from setuptools import find_packages, setup

setup(
    py_modules=["monai_afire_cli"],
    packages=[*find_packages(include=["monai_afire*"]), "monai_afire.bundles"],
)
