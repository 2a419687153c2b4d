# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Pictures of reports: grids, what is drawn onto radiographs, heat maps, plots, maps of points, and their style."""
