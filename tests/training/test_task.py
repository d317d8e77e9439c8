"""Classes and numbers: what the training loop asks of each."""

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from gpatcher.training.task import Classification, Regression, task_of


def test_labels_tell_the_task_and_the_scale_comes_from_training_nodes():
    y = np.array([1.0, 3.0, np.nan, 100.0])
    task = task_of(y, np.array([0, 1]))
    assert task == Regression(mean=2.0, scale=1.0)
    assert torch.equal(task.target(y).isnan(), torch.tensor([False, False, True, False]))
    assert task.answer(np.array([[1.0], [-1.0]], np.float32)).tolist() == [[3.0], [1.0]]
    assert isinstance(task_of(np.array([0, 1, -1]), np.array([0])), Classification)


def test_equal_labels_have_a_scale():
    assert task_of(np.array([5.0, 5.0]), np.array([0, 1])).scale == 1.0


def test_metrics_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    y, answers = rng.normal(size=50), rng.normal(size=(50, 1))
    found = Regression(0.0, 1.0).measure_all(answers, y)
    assert found["r2"] == pytest.approx(r2_score(y, answers[:, 0]))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y, answers[:, 0]))
    assert found["mae"] == pytest.approx(mean_absolute_error(y, answers[:, 0]))
    assert Regression(0.0, 1.0).measure_all(answers, np.ones(50))["r2"] is None


def test_the_loss_is_the_squared_error():
    outputs, target = torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 4.0])
    assert float(Regression(7.0, 3.0).loss(outputs, target)) == 2.5
