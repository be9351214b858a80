"""Signatures over results: Ed25519 keys, DSSE envelopes, in-toto statements, Merkle roots of RFC 6962."""
