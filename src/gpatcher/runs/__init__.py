"""One run: settings, job, record, predictions, evaluation."""
