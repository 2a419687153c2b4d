# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""Contact sheets, by the colors of their pixels and the artists on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from monai_afire.apps.results.pictures.contact_sheet import contact_sheet, heat_range
from monai_afire.apps.results.pictures.heat_map import overlay_heat_map
from monai_afire.visualize.figures import figure_to_array

CYAN = (0, 229, 255)


def picture(level: float, height: int = 40, width: int = 40) -> np.ndarray:
    return np.full((height, width), level)


def sheet(count: int = 1, targets: Any = None, **changes: Any) -> Figure:
    arguments: dict[str, Any] = {
        "images": [picture(0.1 * i) for i in range(count)],
        "heat_maps": [picture(0.5)] * count,
        "titles": [f"image {i}" for i in range(count)],
        "path": None,
        "masks_or_boxes": targets,
        "low": 0.0,
        "high": 1.0,
    }
    return contact_sheet(**arguments | changes)


def middles(figure: Figure, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Colors in the middle of radiograph and overlay of each pair."""
    pixels = figure_to_array(figure)
    found = []
    for axis in figure.axes[:count]:
        box = axis.get_window_extent()
        row = len(pixels) - 1 - round((box.y0 + box.y1) / 2)
        places = [round(box.x0 + share * box.width) for share in (0.25, 0.75)]
        found.append(tuple(tuple(int(c) for c in pixels[row, column]) for column in places))
    return found  # type: ignore[return-value]


def test_pairs_stand_in_the_order_given(tmp_path: Path) -> None:
    levels = [0.9, 0.1, 0.5, 0.3, 0.7]
    heats = [picture(heat) for heat in (0.0, 0.25, 0.5, 1.0, 0.0)]
    figure = contact_sheet(
        [picture(level) for level in levels],
        heats,
        list("abcde"),
        tmp_path / "a.png",
        low=0,
        high=1,
    )
    assert [axis.get_title() for axis in figure.axes[:5]] == list("abcde")
    for level, heat, (left, right) in zip(levels, heats, middles(figure, 5), strict=True):
        assert left == pytest.approx([255 * level] * 3, abs=1)
        assert right == tuple(overlay_heat_map(picture(level), heat, 0, 1)[0, 0])
    boxes = [axis.get_position() for axis in figure.axes[:6]]
    assert boxes[0].y0 == pytest.approx(boxes[3].y0)
    assert boxes[0].y0 > boxes[4].y0
    assert boxes[0].x0 == pytest.approx(boxes[4].x0)
    assert boxes[0].x0 < boxes[1].x0
    assert not figure.axes[5].get_visible()
    with Image.open(tmp_path / "a.png") as saved:
        np.testing.assert_array_equal(np.asarray(saved.convert("RGB")), figure_to_array(figure))


def test_heat_is_shared_by_all_pictures() -> None:
    heats = [np.linspace(0, 1, 1600).reshape(40, 40), np.linspace(3, 4, 1600).reshape(40, 40)]
    low, high = heat_range(heats)
    figure = sheet(2, heat_maps=heats, low=None, high=None)
    cold, hot = (pair[1] for pair in middles(figure, 2))
    assert cold == (0, 0, 0)
    assert hot == pytest.approx(
        overlay_heat_map([[0.1]], [[heats[1][20, 20]]], low, high)[0, 0], abs=1
    )
    bar = figure.axes[-1]
    assert bar.get_ylim() == pytest.approx((low, high))
    assert bar.get_ylabel() == "anomaly per pixel"
    labels = [text.get_text() for text in bar.get_yticklabels()]
    assert (labels[0], labels[-1]) == (f"≤ {low:.3g}", f"≥ {high:.3g}")


def test_the_meaning_of_the_heat_fits_beside_its_bar() -> None:
    for count in (1, 2):
        figure = sheet(count, meaning="standard deviations of normal images")
        pixels = figure_to_array(figure)
        words = figure.axes[-1].yaxis.label
        assert words.get_text().split() == ["standard", "deviations", "of", "normal", "images"]
        box = words.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
        assert 0 < box.y0 < box.y1 < len(pixels)
        assert box.x1 < pixels.shape[1]


def test_heat_range() -> None:
    rng = np.random.default_rng(0)
    maps = [rng.normal(size=(30, 20)), rng.normal(size=(5, 7))]
    pixels = np.concatenate([x.ravel() for x in maps])
    assert heat_range(maps) == tuple(np.quantile(pixels, [0.5, 0.995]))
    assert heat_range([np.append(maps[0].ravel(), [np.inf, -np.inf, np.nan])]) == heat_range(
        maps[:1]
    )
    one_spot = np.zeros((30, 30))
    one_spot[3, 3] = 7
    assert heat_range([one_spot]) == (0, 7)
    for level in (0.0, -3.0, 1e20):
        low, high = heat_range([np.full((4, 4), level)])
        assert low == level < high < np.inf
    assert heat_range([np.full((2, 2), np.nan)]) == (0, 1)


def outlines(figure: Figure) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in figure.axes[0].lines]


def test_boxes_are_x_y_width_height() -> None:
    left, right = outlines(sheet(1, [[4, 8, 10, 20]]))
    assert left.tolist() == [[4, 8], [14, 8], [14, 28], [4, 28], [4, 8]]
    np.testing.assert_allclose(right - left, [[40.8, 0]] * 5)
    assert len(outlines(sheet(1, [[[4, 8, 10, 20], [0.5, 0.5, 3, 3]]]))) == 4
    for nothing in (None, np.zeros(0), np.zeros((0, 4)), np.zeros((40, 40))):
        assert outlines(sheet(1, [nothing])) == []


def test_masks_are_outlined_where_their_box_is() -> None:
    mask = np.zeros((40, 40), dtype=bool)
    mask[8:28, 4:14] = True
    mask[35:40, 36:40] = True  # closed although it touches the border
    first, second = outlines(sheet(1, [mask]))[:2]
    for line, (x0, y0, x1, y1) in ((first, (4, 8, 14, 28)), (second, (36, 35, 40, 40))):
        np.testing.assert_array_equal(line[0], line[-1])
        np.testing.assert_allclose([*line.min(0), *line.max(0)], [x0, y0, x1, y1], atol=0.01)
    pixels = figure_to_array(sheet(1, [mask]))
    cyan = (np.abs(pixels.astype(int) - CYAN).max(-1) < 40).sum()
    assert 100 < cyan < 3000
    assert not (np.abs(figure_to_array(sheet(1)).astype(int) - CYAN).max(-1) < 40).any()


def test_a_mask_that_looks_like_boxes_is_a_mask() -> None:
    images = [picture(0.5, 6, 4)]
    assert len(outlines(sheet(1, [np.ones((6, 4))], images=images, heat_maps=images))) == 2


def test_large_and_oblong_pictures_are_reduced() -> None:
    images = [picture(0.5, 3000, 900), picture(0.2, 20, 60)]
    figure = sheet(
        2,
        [[0, 0, 900, 3000], None],
        images=images,
        heat_maps=[picture(1.0, 3000, 900), picture(0, 20, 60)],
    )
    shown = [axis.images[0].get_array() for axis in figure.axes[:2]]
    assert [array.shape[:2] for array in shown if array is not None] == [(570, 171), (20, 60)]
    assert figure.axes[0].get_xlim()[1] == pytest.approx(2.02 * 900)
    assert middles(figure, 2)[0][1] == tuple(overlay_heat_map([[0.5]], [[1.0]], 0, 1)[0, 0])


def test_titles_are_shown_as_they_are_and_fit() -> None:
    long = "a_name_without_any_space_" * 20
    titles = [r"$\frac{$ and _x_", long, "one\ntwo", "word " * 80, ""]
    figure = sheet(5, titles=titles, title=r"$\frac$", meaning=r"in $\frac$")
    shown = [axis.get_title() for axis in figure.axes[:5]]
    assert shown[0] == titles[0]
    assert shown[2] == titles[2]
    assert all(text.endswith("…") and text.count("\n") == 2 for text in (shown[1], shown[3]))
    pixels = figure_to_array(figure)
    assert pixels.shape[1] < 4 * 700
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    for axis in figure.axes[:5]:
        words, below = axis.title.get_window_extent(renderer), axis.get_window_extent(renderer)
        assert words.y0 >= below.y1
        assert words.width < below.width * 1.05
        assert words.y1 < len(pixels)


def test_a_long_title_is_broken_and_stands_above_the_pictures() -> None:
    figure = sheet(
        2, title="how the images were chosen, in many words. " * 6 + "\nwhat the colors mean"
    )
    pixels = figure_to_array(figure)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    [words] = figure.texts
    assert words.get_text().splitlines()[-1] == "what the colors mean"
    assert words.get_text().count("\n") >= 2
    box = words.get_window_extent(renderer)
    assert 0 < box.x0 < box.x1 < pixels.shape[1]
    assert box.y1 < len(pixels)
    assert box.y0 > figure.axes[0].title.get_window_extent(renderer).y1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": []}, "0 images: a sheet shows 1 to 400"),
        ({"images": [picture(0)] * 401}, "401 images"),
        ({"heat_maps": []}, "2 images, but 0 heat maps"),
        ({"titles": ["a"]}, "2 images, but 1 titles"),
        ({"targets": [None]}, "2 images, but 1 masks or boxes"),
        (
            {"heat_maps": [picture(0), picture(0)[:3]]},
            r"image 1 \(image 1\): .*resize the heat map",
        ),
        ({"images": [picture(0), picture(7)]}, r"image 1 \(image 1\): .*from 7 to 7"),
        (
            {"targets": [None, np.zeros((3, 3))]},
            r"image 1 \(image 1\): lesions of shape \(3, 3\) are neither a mask",
        ),
        ({"targets": [[1, 2, 3], None]}, r"image 0 .*neither a mask"),
        ({"targets": [[1, 2, 0, 4], None]}, "sides above 0"),
        ({"targets": [[1, 2, np.nan, 4], None]}, "must be finite"),
        ({"low": 2.0}, "low must be below high"),
    ],
)
def test_hostile_input(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sheet(2, path=tmp_path / "a.png", **changes)
    assert not list(tmp_path.iterdir())
