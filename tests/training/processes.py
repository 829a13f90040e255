"""Processes of this machine, as Linux lists them."""


def children(pid):
    """Processes that another one started, the oldest first."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def alive(pid):
    """True while a process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
