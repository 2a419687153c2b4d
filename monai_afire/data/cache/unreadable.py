# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Data sets that name all files that cannot be read, not one in each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monai.data import CacheDataset, Dataset

from monai_afire.transforms.radiograph_files import RadiographError

_SHOWN = 20
_TRIED = 200  # items from a failed one on: to read all of a large set would keep the error back for hours


def unreadable_error(reasons: Sequence[str], num_tried: int) -> RadiographError:
    """One error for the files that cannot be read."""
    if len(reasons) == 1:
        return RadiographError(reasons[0])
    lines = [f"{len(reasons):,} of {num_tried:,} items cannot be read:", *reasons[:_SHOWN]]
    if len(reasons) > _SHOWN:
        lines.append(f"and {len(reasons) - _SHOWN:,} more")
    return RadiographError(
        "\n  ".join(lines) + "\nMend these files, or leave them out of the data."
    )


class UnreadableNamingDataset(Dataset):
    """A data set that, where a file cannot be read, tries the items behind it and names all such files in one error."""

    def _transform(self, index: int) -> Any:
        try:
            return super()._transform(index)
        except Exception as error:
            if (first := _rejection_of(error)) is None:
                raise
            reasons, last = [str(first)], min(index + _TRIED, len(self.data))
            for number in range(index + 1, last):
                try:
                    super()._transform(number)
                except Exception as another:  # of another kind: it comes when this one is mended
                    if (rejection := _rejection_of(another)) is not None:
                        reasons.append(str(rejection))
            raise unreadable_error(reasons, last - index) from error


class MemoryCachedDataset(UnreadableNamingDataset, CacheDataset):
    """:py:class:`monai.data.CacheDataset`, which is filled to the end and then names all files that cannot be read."""

    def _fill_cache(self, indices: Sequence[int] | None = None) -> list:
        self._unreadable: dict[int, str] = {}
        cache = super()._fill_cache(indices)
        if self._unreadable:
            raise unreadable_error(
                [reason for _, reason in sorted(self._unreadable.items())], len(cache)
            )
        return cache

    def _load_cache_item(self, idx: int) -> Any:
        try:
            return super()._load_cache_item(idx)
        except Exception as error:
            if (rejection := _rejection_of(error)) is None:
                raise
            self._unreadable[idx] = str(rejection)
            return None


def _rejection_of(error: BaseException | None) -> RadiographError | None:
    """The reader's error behind that of MONAI's ``Compose``, None if it is another one."""
    while error is not None and not isinstance(error, RadiographError):
        error = error.__cause__
    return error
