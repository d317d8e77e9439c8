"""Metrics by hand, against scikit-learn, and where classes are missing."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from gpatcher.errors import InputError
from gpatcher.training.metrics import METRICS, measure, measure_all


def test_all_metrics_by_hand():
    y = [0, 0, 0, 1]
    probability = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    metrics = measure_all(y, probability)
    assert list(metrics) == list(METRICS)
    assert metrics["accuracy"] == 0.75
    assert metrics["balanced_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert metrics["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert metrics["roc_auc"] == 1.0
    assert metrics["pr_auc"] == 1.0


def test_agreement_with_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    probability = rng.dirichlet(np.ones(3), 200)
    metrics = measure_all(y, probability)
    assert metrics["roc_auc"] == pytest.approx(roc_auc_score(y, probability, multi_class="ovr"))
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, probability.argmax(1)))
    assert metrics["pr_auc"] == pytest.approx(average_precision_score(np.eye(3)[y], probability))


def test_a_class_absent_from_the_labels_does_not_count():
    probability = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.2, 0.7, 0.1]])
    metrics = measure_all([0, 0, 1], probability)  # class 2 is predicted, but absent
    assert metrics["balanced_accuracy"] == 0.75
    assert metrics["roc_auc"] == pytest.approx((0.5 + 1) / 2)
    assert metrics["macro_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)  # but in macro F1 it does


def test_one_vs_rest_metrics_need_two_classes():
    metrics = measure_all([1, 1], [[0.4, 0.6], [0.7, 0.3]])
    assert metrics["roc_auc"] is None
    assert metrics["pr_auc"] is None
    assert metrics["accuracy"] == 0.5


def test_an_unknown_metric_is_refused():
    with pytest.raises(InputError, match="unknown metric 'f2'; choose one of accuracy, macro_f1"):
        measure("f2", [0], [[1.0]])
