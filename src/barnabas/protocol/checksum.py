"""CRC-32C, the checksum of record batches, producer snapshots and everything else for which Kafka has a checksum.

It comes from the package `crc32c`. When imported, that package also looks up its own version, for which Python loads
its e-mail parser, its zip reader and more: that takes a tenth of a node's startup time. So only its compiled module is
loaded; if a release has it elsewhere, the whole package is imported.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_PACKAGE = "crc32c"
_COMPILED = f"{_PACKAGE}._crc32c"


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec(_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    compiled = PathFinder.find_spec(_COMPILED, places) if places else None
    if compiled is None or compiled.loader is None:
        from crc32c import crc32c as of_the_package

        return of_the_package
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _load()
"""The checksum of some bytes; pass the checksum of the preceding bytes to continue it."""
