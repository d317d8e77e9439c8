"""The `gpatcher` command as ``python -m gpatcher``."""

from gpatcher.cli import main

if __name__ == "__main__":
    main()
