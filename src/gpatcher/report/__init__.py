"""Pages and figures: they read results and never compute them."""
