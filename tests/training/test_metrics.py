import numpy as np
import pytest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from gpatcher.errors import InputError
from gpatcher.training.metrics import METRICS, measure, measure_all


def test_all_metrics_on_a_case_by_hand():
    y = [0, 0, 0, 1]
    probability = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    found = measure_all(y, probability)
    assert list(found) == list(METRICS)
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert found["roc_auc"] == 1.0
    assert found["pr_auc"] == 1.0


def test_agreement_with_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    probability = rng.dirichlet(np.ones(3), 200)
    found = measure_all(y, probability)
    assert found["roc_auc"] == pytest.approx(roc_auc_score(y, probability, multi_class="ovr"))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, probability.argmax(1)))
    assert found["pr_auc"] == pytest.approx(average_precision_score(np.eye(3)[y], probability))


def test_a_class_that_is_not_there_is_left_out():
    probability = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.2, 0.7, 0.1]])
    found = measure_all([0, 0, 1], probability)  # class 2 is predicted, but not there
    assert found["balanced_accuracy"] == 0.75
    assert found["roc_auc"] == pytest.approx((0.5 + 1) / 2)


def test_one_class_has_no_curve():
    found = measure_all([1, 1], [[0.4, 0.6], [0.7, 0.3]])
    assert found["roc_auc"] is None
    assert found["pr_auc"] is None
    assert found["accuracy"] == 0.5


def test_an_unknown_metric():
    with pytest.raises(InputError, match="no metric 'f2'; there are accuracy, macro_f1"):
        measure("f2", [0], [[1.0]])
