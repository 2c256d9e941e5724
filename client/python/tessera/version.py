"""The version of the client, which is the version of the repository."""

__version__ = "0.1.0"
