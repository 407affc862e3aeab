"""Dependencies of FastAPI's operations: rights, parameters, and the parts of the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import APIKeyQuery, HTTPBearer, SecurityScopes

from ..services import Services
from .access import Access
from .models import Model, names_of, validate
from .parameters import read_parameters, texts_of_query
from .request import REQUEST, Refusal


def _services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


#: The parts of the gateway.
Parts = Annotated[Services, Depends(_services_of)]


def parameters_of(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """Return a dependency that reads a model's parameters from the query or the body."""
    names = names_of(model)

    async def read(request: Request) -> Model:
        return validate(model, await read_parameters(request.scope[REQUEST], names))

    return read


def find_bearer(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the secret in the header Authorization; "" if it is none, None without the header."""
    header = headers.get(b"authorization")
    if header is None:
        return None
    scheme, _, secret = header.partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def check_token(access: Access, secret: str | None, right: str) -> None:
    """Raise Refusal 401 for a missing or wrong secret, 403 for one without the right."""
    rights = access.rights_of(secret)
    if right in rights:
        return
    if rights:
        raise Refusal(403, f"this token does not carry the right to {right}")
    challenge = 'Bearer realm="jsonbus"'
    if secret is None:
        reason = "a token is needed: send the header Authorization: Bearer TOKEN"
    else:
        challenge += ', error="invalid_token"'
        reason = "the token is wrong"
    raise Refusal(401, reason, {"www-authenticate": challenge})


# These document the places of a token. `find_bearer` reads it: HTTPBearer does not tell a missing
# header from a wrong one.
_IN_HEADER = HTTPBearer(scheme_name="token", auto_error=False)
_IN_QUERY = APIKeyQuery(name="access_token", scheme_name="token_in_query", auto_error=False)


async def need_token(
    request: Request, scopes: SecurityScopes, _: Annotated[Any, Depends(_IN_HEADER)]
) -> None:
    """Check the token of a request: it must carry the rights that the operation has as scopes."""
    _check(request, scopes, find_bearer(request.scope[REQUEST].headers))


async def need_token_anywhere(
    request: Request,
    scopes: SecurityScopes,
    _: Annotated[Any, Depends(_IN_HEADER)],
    __: Annotated[Any, Depends(_IN_QUERY)],
) -> None:
    """Like `need_token`, but the token may be in the query: EventSource sends no headers."""
    secret = find_bearer(request.scope[REQUEST].headers)
    if secret is None:
        found = texts_of_query(request.scope[REQUEST], "access_token")
        if len(found) > 1:
            raise Refusal(400, "the parameter access_token comes twice: send it once")
        secret = found[0] if found else None
    _check(request, scopes, secret)


def _check(request: Request, scopes: SecurityScopes, secret: str | None) -> None:
    for right in scopes.scopes:
        check_token(request.app.state.services.access, secret, right)
