"""Arguments of every command, one file a command. Nothing here imports PyTorch, so help and completion are instant."""
