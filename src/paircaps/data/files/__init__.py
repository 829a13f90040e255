"""Files of datasets: find, download and verify them, and read their formats."""
