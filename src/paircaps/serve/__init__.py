"""Web page for trained networks, with its JSON interface; needs the extra ``serve``."""
