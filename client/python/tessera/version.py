"""The client's version; that of the repository."""

__version__ = "0.1.0"
