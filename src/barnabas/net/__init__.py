"""Connections, seen from either end, on any event loop.

From the bottom up:

- `endpoint`: an address that something listens on.
- `frames`: requests and responses as they travel; `buffers`, `parts`: the bytes on their way in and out.
- `connection`: one client, frames in, replies out; `listener`: accepting, limits, what connections share.
- `purgatory`, `pending`: answers that come later.
- `dispatch`, `api_versions`: from a frame to its handler, and what a listener says it speaks.
- `peer_link`: one connection to another node, requests out, responses in; `peer`: that node, connected when it is asked
  something, and again after every loss; `tls_stream`: the same encrypted.
"""
