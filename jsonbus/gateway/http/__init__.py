"""The gateway over HTTP: FastAPI operations, served by uvicorn.

Promises: every error is `{"error": "one sentence"}` with a fitting status; heads, bodies, waiting
requests, event streams and the time for each are bounded; no web page of another site can use the
gateway through a browser; the OpenAPI document describes every operation as it is.

In the order in which a request meets them:

- `server.py`: the TCP port, and a bounded end. `accept_errors.py` counts and limits the log of
  connections that cannot be accepted.
- `connection.py`: one connection; limits of heads, framing and pipelined requests.
- `origins.py`: which web pages and hosts may call the gateway (a middleware, also for WebSockets).
- `app.py`: the table of routes, and the answers to exceptions.
- `endpoint.py`: the guard of every route: methods, tokens, figures, unread bodies, errors.
- `request.py`: headers and body of a request, with limits of size, time and memory.
- `access.py`: tokens and their rights.
- `parameters.py`: parameters from the query, forms and JSON. `models.py`: Pydantic models that
  check them, and models of the answers.
- `publish.py`: the two fast routes, `/publish` and `POST /v1/topics/{topic}`.
- `operations.py`: all other operations. `events.py`: the streams behind `GET /events`.
- `answers.py`: answers, and errors turned into answers.
- `openapi.py`: completes the OpenAPI document. `docs_page.py`: Swagger UI at
  /docs, and the page at / without a dashboard.

Called by `Gateway`, which passes the parts that operations need as `Services`. Calls the hub,
the webhooks and the metrics through these; serves the dashboard, which has its own `Auth`.
"""
