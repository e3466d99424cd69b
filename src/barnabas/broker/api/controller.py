"""What the CONTROLLER listener serves: everything that the controller decides, and ApiVersions.

Requests come from other nodes and from tools that speak to controllers directly. The local broker does not come this
way: its channel goes straight to the controller's thread, with the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.api.api_versions import FIRST_VERSION_WITH_SOFTWARE_NAME, describe, names_software
from barnabas.broker.dispatch import Route
from barnabas.metadata.controller.decide import DECIDABLE
from barnabas.protocol import messages as m
from barnabas.protocol.api import APIS, ApiKey
from barnabas.protocol.errors import Error

if TYPE_CHECKING:
    from barnabas.broker.dispatch import Caller
    from barnabas.broker.server import Broker


async def decide(broker: Broker, request: Any, caller: Caller) -> Any:  # noqa: ARG001
    return await broker.controller.handle(request)


def api_versions(broker: Broker, request: m.ApiVersionsRequest, caller: Caller) -> m.ApiVersionsResponse:
    if caller.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not names_software(request):
        return m.ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
    return describe(broker.image, broker.metadata.kraft_version, caller.api_version, CONTROLLER_ROUTES)


CONTROLLER_ROUTES: dict[int, Route] = {
    api.key: Route(api.key, (api.min_version, api.max_version), decide, None)
    for api in APIS.values()
    if api.request in DECIDABLE and "controller" in api.listeners
}
CONTROLLER_ROUTES[ApiKey.API_VERSIONS] = Route(ApiKey.API_VERSIONS, (0, 4), api_versions, None)
