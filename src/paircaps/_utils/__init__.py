"""Small helpers of both floors: checks of arguments, files, numbers in words, registries."""
