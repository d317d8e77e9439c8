"""The service: predictions and explanations of one run over HTTP."""
