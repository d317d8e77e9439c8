"""Graph and Split, their checks, conversion and storage, and unseen nodes."""
