"""All that distributes work: threads, processes, Ray, sorting on disk."""
