# Copyright (c) monai_afire contributors
# Licensed under the Apache License, Version 2.0 (see LICENSE).
"""What encoders are asked: stored tokens give what images give, and each answer is of the right images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from monai_afire.apps.compare import Cohort, questions
from monai_afire.apps.compare.cohort import CHOOSE, EVALUATE, LEARN
from monai_afire.detection import AnomalyDetector
from monai_afire.networks import ViTEncoder

LEARNED, CHOSEN, EVALUATED = 60, 20, 40
COUNT = LEARNED + CHOSEN + EVALUATED


def made(seed: int = 0, **columns: Any) -> Cohort:
    """A cohort with one finding; two images per patient."""
    abnormal = np.random.default_rng(seed).integers(0, 2, COUNT)
    patients = [f"p{number // 2}" for number in range(COUNT)]
    items = [
        {"image": f"{number}.png", "label": int(label), "patient_id": patient}
        for number, (label, patient) in enumerate(zip(abnormal, patients, strict=True))
    ]
    roles = np.repeat([LEARN, CHOOSE, EVALUATE], [LEARNED, CHOSEN, EVALUATED])
    table = pd.DataFrame(
        {"role": roles, "patient": patients, "abnormal": abnormal.astype(float), "view": "PA"}
    )
    return Cohort(items, table.assign(**columns), abnormal[:, None].astype(np.float32), ["finding"])


def found_auc(cohort: Cohort, question: str, scores: np.ndarray) -> float:
    labels, _ = questions.truth(cohort, question)
    return float(np.mean([roc_auc_score(labels[:, 0], own[:, 0]) for own in scores]))


def test_probe_and_neighbors_find_what_tells_and_draw_more_of_few_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cohort = made()
    assert questions.asked_fractions(cohort) == [1]  # of 30 patients
    monkeypatch.setattr(questions, "_LEAST_LEARNED", 3)
    features = np.random.default_rng(1).normal(size=(COUNT, 6)).astype(np.float32)
    features[:, 2] += 6 * cohort.labels[:, 0]
    answers = list(questions.classification(cohort, "mine", features))
    assert [answer[:2] for answer in answers] == [
        (question, f"{share} % of the labels")
        for share in (10, 100)
        for question in ("Linear probe", "Nearest neighbors")
    ]
    assert questions.unasked_settings(cohort) == ["1 % of the labels"]
    assert [len(scores) for *_, scores in answers] == [3, 3, 1, 1]
    assert all(found_auc(cohort, question, scores) > 0.95 for question, _, _, scores in answers[2:])


def test_labels_of_evaluated_images_are_not_learned() -> None:
    cohort = made()
    features = np.random.default_rng(1).normal(size=(COUNT, 3)).astype(np.float32)
    # what tells is the other way round where it is evaluated
    signs = np.where(cohort.table["role"] == EVALUATE, 3, -3)
    features[:, 0] += signs * (2 * cohort.labels[:, 0] - 1)
    for question, _, _, scores in list(questions.classification(cohort, "mine", features)):
        assert found_auc(cohort, question, scores) < 0.2


@pytest.mark.filterwarnings("ignore")
def test_a_detector_of_stored_tokens_is_that_of_the_images() -> None:
    cohort = made()
    torch.manual_seed(0)
    encoder = ViTEncoder(
        img_size=32, patch_size=8, hidden_size=24, num_layers=1, num_heads=2
    ).eval()
    images = torch.rand(COUNT, 1, 32, 32)
    painted = torch.rand(4 * len(cohort.painted_rows()), 1, 32, 32)
    tokens, of_painted = (encoder(part).detach().half() for part in (images, painted))
    answers = list(
        questions.detection(cohort, "mine", encoder.grid_size, tokens.numpy(), of_painted.numpy())
    )
    detector = AnomalyDetector(encoder).eval()
    detector.fit([images[cohort.rows(LEARN, CHOOSE, abnormal=0)]])
    expected, copies = detector(images)["scores"].numpy(), detector(painted)["scores"].numpy()
    names = detector.score_names
    np.testing.assert_allclose(
        answers[0][3][0, :, 0],
        expected[cohort.rows(EVALUATE), names.index("fused")],
        rtol=0.05,
        atol=0.05,
    )
    assert [answer[1] for answer in answers[1:]] == [
        f"size {size}, contrast {contrast}" for size in (0.1, 0.2) for contrast in (0.2, 0.4)
    ]
    focal = names.index("focal")
    shown = np.concatenate([expected[cohort.painted_rows(), focal], copies[2::4, focal]])
    np.testing.assert_allclose(answers[3][3][0, :, 0], shown, rtol=0.05, atol=0.05)


def test_nodules_lie_in_the_normal_images_in_the_order_of_the_answers() -> None:
    cohort = made()
    items = questions.nodule_items(cohort)
    rows = cohort.painted_rows()
    assert (cohort.table["abnormal"][rows] == 0).all()
    assert set(cohort.table["role"][rows]) == {EVALUATE}
    assert [item["image"] for item in items[:5]] == [*[f"{rows[0]}.png"] * 4, f"{rows[1]}.png"]
    kinds = [(item["lesion"]["size"], item["lesion"]["contrast"]) for item in items[:4]]
    assert kinds == [(0.1, 0.2), (0.1, 0.4), (0.2, 0.2), (0.2, 0.4)]
    labels, patients = questions.truth(cohort, "Painted nodules")
    assert labels[:, 0].tolist() == [0] * len(rows) + [1] * len(rows)
    assert patients[: len(rows)].tolist() == patients[len(rows) :].tolist()
    cohort.table.loc[cohort.rows(LEARN, CHOOSE), "abnormal"] = 1.0
    assert questions.nodule_items(cohort) == []  # no normal ones to learn from


def test_controls_are_turned_by_other_images() -> None:
    cohort = made()
    abnormal = cohort.table["abnormal"].to_numpy()
    pictures = (
        np.random.default_rng(0).normal(0, 1e-3, (COUNT, 8, 8)) + 0.1 * abnormal[:, None, None]
    )  # bright
    views = np.where(abnormal == 1, "AP", "PA")
    views[: LEARNED // 3] = "PA"
    found = {name: scores for _, _, name, scores in questions.controls(made(view=views), pictures)}
    assert list(found) == ["darkness", "sharpness", "view alone"]
    assert found_auc(cohort, "Detection", found["darkness"]) == 1.0
    assert found_auc(cohort, "Detection", found["view alone"]) == 1.0
    turned = pictures.copy()
    turned[-EVALUATED:] *= -1  # dark where it was learned, from few images, that bright is abnormal
    cohort.table.loc[: LEARNED + CHOSEN - 10, "abnormal"] = np.nan
    found = {name: scores for _, _, name, scores in questions.controls(cohort, turned)}
    assert found_auc(cohort, "Detection", found["darkness"]) == 0.0


def test_errors_of_principal_components_are_those_off_the_normal_subspace() -> None:
    rng = np.random.default_rng(0)
    normal = np.hstack([rng.normal(size=(200, 32)), np.zeros((200, 8))])
    off = np.zeros((1, 40))
    off[0, 35] = 2.0
    assert questions.pca_errors(normal, np.vstack([normal[:1], off])) == pytest.approx(
        [0.0, 4.0 / 40], abs=1e-3
    )
    assert questions.pca_errors(normal, off, strongest=0.05) == pytest.approx([4.0 / 2], abs=1e-3)
