#!/usr/bin/env python3
"""Prints a line for `nvme tls-key --import`: tls_psk.py KEY HOSTNQN SUBNQN VERSION

KEY is a configured key in the interchange format (NVMe/TCP Transport Specification 1.1, section 3.6.1), VERSION 0 or 1 that of the
identity. Debian's nvme-cli 2.13 derives another key than the specification says, so the guest's kernel is given what it should be.
"""

import base64
import hashlib
import hmac
import sys
import zlib

HASHES = {"01": "sha256", "02": "sha384"}


def expand_label(name, key, label, context, size):
    """HKDF-Expand-Label (RFC 8446, 7.1) of one block, after HKDF-Extract with a salt of zeroes."""
    extracted = hmac.new(bytes(size), key, name).digest()
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.new(extracted, info + b"\1", name).digest()[:size]


def main():
    key, host, subsystem, version = sys.argv[1:]
    _, code, text, _ = key.split(":")
    name = HASHES[code]
    raw = base64.b64decode(text)
    configured, checksum = raw[:-4], raw[-4:]
    assert zlib.crc32(configured).to_bytes(4, "little") == checksum, "the key's checksum is wrong"
    size = hashlib.new(name).digest_size
    retained = expand_label(name, configured, b"HostNQN", host.encode(), size)
    identity = f"NVMe{version}R{code} {host} {subsystem}"
    context = identity
    if version == "1":
        message = f"{host} {subsystem} NVMe-over-Fabrics".encode()
        digest = base64.b64encode(hmac.new(retained, message, name).digest()).decode()
        identity, context = f"{identity} {digest}", f"{code} {digest}"
    derived = expand_label(name, retained, b"nvme-tls-psk", context.encode(), size)
    text = base64.b64encode(derived + zlib.crc32(derived).to_bytes(4, "little")).decode()
    print(f"{identity} NVMeTLSkey-1:{code}:{text}:")


main()
