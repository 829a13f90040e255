"""The datasets, one file each: metadata, reader, registration."""
