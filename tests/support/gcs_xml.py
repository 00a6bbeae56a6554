"""Google Cloud Storage's XML API, which obstore and delta-rs use, before fake-gcs-server, which has the JSON API only.

Each request becomes one of the JSON API, and what decides is the server's: a PUT with x-goog-if-generation-match is an
upload with ifGenerationMatch. Parts of an upload are held here until it is completed. Requests of the JSON API, which
Hadoop's driver sends, are relayed as they are; the tokens that it asks for are no account's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import uuid
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.support.store_proxy import Message, Relay

TOKENS = "/-tokens-"
_JSON = (TOKENS, "/storage/", "/upload/", "/download/", "/batch/", "/resumable/")
_CONDITION = b"x-goog-if-generation-match"


class XmlRelay(Relay):
    """A relay that carries requests out by the JSON API."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, 0.0)
        self._host = f"{host}:{port}".encode()
        self._uploads: dict[str, dict[int, bytes]] = {}

    async def _ask(self, asked: Message) -> Message:
        method, target, _ = asked.first.decode("latin-1").split(" ", 2)
        told = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(told.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(told.path).lstrip("/").partition("/")
        if told.path.startswith(_JSON):
            return await self._json(method, target, asked.body, asked.headers)
        if {"uploads", "uploadId"} & set(query):
            return await self._in_parts(method, bucket, key, query, asked.body)
        if method == "PUT":
            return await self._upload(bucket, key, asked.body, asked.headers.get(_CONDITION, b"").decode())
        if method == "DELETE":
            return await self._json("DELETE", f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}", b"", {})
        if not key:
            return await self._listed(bucket, query)
        # Its own downloads have the XML API's headers.
        return await self._json(method, f"/{bucket}/{quote(key)}", b"", asked.headers)

    async def _in_parts(self, method: str, bucket: str, key: str, query: dict[str, str], body: bytes) -> Message:
        number = query.get("uploadId", "")
        if number and number not in self._uploads:
            return _answer(b"404 Not Found", _xml("Error", "<Code>NoSuchUpload</Code>"))
        if method == "PUT":
            self._uploads[number][int(query["partNumber"])] = body
            return _answer(b"200 OK", etag=f'"{uuid.uuid4().hex}"'.encode())
        if method == "DELETE":
            self._uploads.pop(number, None)
            return _answer(b"204 No Content")
        if not number:
            number = uuid.uuid4().hex
            self._uploads[number] = {}
            return _answer(b"200 OK", _xml("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>"))
        parts = self._uploads.pop(number)
        done = await self._upload(bucket, key, b"".join(parts[place] for place in sorted(parts)), "")
        etag = escape(done.headers.get(b"etag", b"").decode())
        done.body = _xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>")
        return done

    async def _upload(self, bucket: str, key: str, content: bytes, generation: str) -> Message:
        mark = uuid.uuid4().hex
        # Of the kinds of uploads this one obeys the condition.
        body = b"\r\n".join(
            [
                f"--{mark}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': key})}".encode(),
                f"--{mark}\r\nContent-Type: application/octet-stream\r\n".encode(),
                content,
                f"--{mark}--\r\n".encode(),
            ]
        )
        condition = {"ifGenerationMatch": generation} if generation else {}
        query = urlencode({"uploadType": "multipart", **condition})
        kind = {b"content-type": f"multipart/related; boundary={mark}".encode()}
        done = await self._json("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", body, kind)
        if done.first.split()[1] != b"200":
            return done
        made = json.loads(done.body)
        return _answer(b"200 OK", etag=made["etag"].encode(), x_goog_generation=str(made["generation"]).encode())

    async def _listed(self, bucket: str, query: dict[str, str]) -> Message:
        asked = {name: query[name] for name in ("prefix", "delimiter") if query.get(name)}
        if query.get("continuation-token"):
            asked["pageToken"] = query["continuation-token"]
        done = await self._json("GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}", b"", {})
        if done.first.split()[1] != b"200":
            return done
        found: dict[str, Any] = json.loads(done.body)
        items = "".join(
            f"<Contents><Key>{escape(each['name'])}</Key><LastModified>{each['updated']}</LastModified>"
            f"<ETag>{escape(each['etag'])}</ETag><Size>{each['size']}</Size></Contents>"
            for each in found.get("items", [])
            if each["name"] > query.get("start-after", "")
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in found.get("prefixes", [])
        )
        more = found.get("nextPageToken", "")
        rest = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        return _answer(b"200 OK", _xml("ListBucketResult", items + folders + rest))

    async def _json(self, method: str, target: str, body: bytes, headers: dict[bytes, bytes]) -> Message:
        if target == TOKENS:
            return _answer(b"200 OK", b'{"access_token":"any","token_type":"Bearer","expires_in":3600}')
        kept = {name: value for name, value in headers.items() if name != b"accept-encoding"}
        first = f"{method} {target} HTTP/1.1".encode("latin-1")
        return await super()._ask(Message(first, kept | {b"host": self._host}, body))


def _answer(status: bytes, body: bytes = b"", **headers: bytes) -> Message:
    kind = {b"content-type": b"application/json" if body.startswith(b"{") else b"application/xml"}
    told = kind | {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Message(b"HTTP/1.1 " + status, told, body)


def _xml(kind: str, content: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{kind}>{content}</{kind}>'.encode()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    asyncio.run(XmlRelay(sys.argv[1], int(sys.argv[2])).run())
