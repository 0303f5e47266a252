"""Fetches the certificate of the authority that signed the server's, for tests that check whom they talk to."""

import ssl
import urllib.request


def fetch_authority(path):
    # This is the one request that cannot be checked: it asks for what to check with.
    unchecked = ssl._create_unverified_context()
    with urllib.request.urlopen("https://localhost:8081/_explorer/emulator.pem", context=unchecked) as response:
        path.write_bytes(response.read())
