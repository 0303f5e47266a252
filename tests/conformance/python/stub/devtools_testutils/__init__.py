"""Stands in for the test tools of the SDK's own repository, which are not published.

The SDK's tests import two names from them, and only to find out whether they run against a real account.
"""
