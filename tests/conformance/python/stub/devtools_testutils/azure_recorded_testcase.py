"""Credentials for real accounts; a local server is reached with its key."""


def get_credential(is_async=False):
    raise NotImplementedError("the tests ask for this only when the endpoint is not https://localhost:8081/")
