# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Bases of the transforms: array transforms that repeat a draw, and dictionary transforms around an array transform."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from monai.config import KeysCollection
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import TransformBackends

from monai_afire.transforms.argument_checks import check_prob

Self = TypeVar("Self", bound="RandomArrayTransformd")


def no_last_draw(transform: object, image: str) -> RuntimeError:
    """The error of a transform that cannot repeat its last draw for an image like this one."""
    return RuntimeError(
        f"{type(transform).__name__} cannot repeat its last draw: there is none for {image}. Call it with "
        "randomize=True first; images that share one draw must have the same spatial shape."
    )


class OccasionalTransform(RandomizableTransform):
    """Base of the random array transforms that act with a probability, and can repeat their last draw."""

    backend = [TransformBackends.TORCH]  # noqa: RUF012  MONAI declares it so

    def __init__(self, prob: float = 1.0) -> None:
        super().__init__(check_prob("prob", prob))

    def draw_whether(self) -> None:
        """Draw whether to act. A probability of 1 takes no random number, so that it does not change later draws."""
        if self.prob < 1:
            super().randomize(None)


class ArrayTransformd(MapTransform):
    """
    Base of the dictionary transforms around one array transform, of the class ``array_class``.

    A dictionary transform passes its ``settings`` on to its array transform, which alone defines them. The signature
    that ``help`` and the checks of configs show names them one by one.

    Args:
        keys: keys of the images.
        settings: arguments of the array transform.
        allow_missing_keys: do not raise an error if a key is missing.
    """

    array_class: ClassVar[Any]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take the backend and the names of the settings from the array transform."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "array_class"):
            cls.backend = cls.array_class.backend
            cls.__signature__ = _signature(cls)

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = self.array_class(*settings, **named_settings)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Transform the entries of one item. The item itself does not change."""
        item = dict(data)
        for key in self.key_iterator(item):
            item[key] = self.transform(item[key])
        return item


class RandomArrayTransformd(RandomizableTransform, ArrayTransformd):
    """
    Base of the dictionary transforms around one random array transform, which makes the draws.

    The array transform has an argument ``randomize``, which repeats the last draw if False. A subclass stores in its
    ``__call__`` what :meth:`transformed` gives. All keys of one dictionary share one draw. The array transform is a
    plain attribute: MONAI's ``Compose`` and ``DataLoader`` seed this object, which seeds the array transform. It draws
    whether to act, too: ``prob`` is that of the array transform, or 1 where it has none, as a random crop.

    Args:
        keys: keys of the images.
        settings: arguments of the array transform.
        new_keys: keys that are going to be added.
        allow_missing_keys: do not raise an error if a key is missing.

    Raises:
        ValueError: when two of keys and new keys are the same.

    Example:
        >>> import torch
        >>> from monai_afire.transforms.patch_distortion import ShufflePatches
        >>> class Shuffled(RandomArrayTransformd):
        ...     array_class = ShufflePatches
        ...     def __call__(self, data):
        ...         return dict(data) | {key: shuffled for key, (shuffled, order) in self.transformed(data)}
        >>> transform = Shuffled(["a", "b"], patch_size=2).set_random_state(seed=0)
        >>> image = torch.rand(1, 8, 8)
        >>> data = transform({"a": image, "b": image})
        >>> torch.equal(data["a"], data["b"]), torch.equal(data["a"], image)
        (True, False)
    """

    def __init__(
        self,
        keys: KeysCollection,
        *settings: Any,
        new_keys: Sequence[Hashable] = (),
        allow_missing_keys: bool = False,
        **named_settings: Any,
    ) -> None:
        ArrayTransformd.__init__(
            self, keys, *settings, allow_missing_keys=allow_missing_keys, **named_settings
        )
        RandomizableTransform.__init__(self, prob=getattr(self.transform, "prob", 1.0))
        if len({*self.keys, *new_keys}) != len(self.keys) + len(new_keys):
            rule = "each key may be named once, and all new keys must differ from them and from each other"
            raise ValueError(
                f"keys {self.keys} and new keys {tuple(new_keys)} must all differ: {rule}."
            )

    def set_random_state(
        self: Self, seed: int | None = None, state: np.random.RandomState | None = None
    ) -> Self:
        """Seed the array transform, which makes the random draws."""
        super().set_random_state(seed, state)
        self.transform.set_random_state(seed, state)
        return self

    def randomize(self, data: Any) -> None:
        """
        Make the random draws that all keys share.

        Args:
            data: what the array transform's ``randomize`` takes.
        """
        self.transform.randomize(data)

    def transformed(self, data: Mapping[Hashable, Any]) -> Iterator[tuple[Hashable, Any]]:
        """
        Transform the image of each key, all of them with one new draw.

        Args:
            data: dictionary with the images; it does not change.

        Yields:
            Key, and what the array transform returns for its image.

        Raises:
            KeyError: when a key is missing and ``allow_missing_keys`` is False.
        """
        drawn = False
        for key in self.key_iterator(dict(data)):
            yield key, self.transform(data[key], randomize=not drawn)
            drawn = True


def _signature(cls: type[ArrayTransformd]) -> inspect.Signature:
    """The arguments of a dictionary transform: its own, and those of its array transform if it passes some on."""
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]
    named = [each for each in own if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if len(named) < len(own):
        settings = inspect.signature(cls.array_class).parameters.values()
        named += [each.replace(kind=each.KEYWORD_ONLY) for each in settings]
    return inspect.Signature(sorted(named, key=lambda each: each.kind))
