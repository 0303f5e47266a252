"""Whether the tests run against a real account."""


def is_live():
    return False
