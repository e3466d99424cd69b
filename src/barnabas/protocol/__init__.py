"""Apache Kafka's wire protocol and record formats, as data and pure functions.

Nothing here opens a socket or a file, reads a clock or draws a random number: bytes come in, objects go out, and
the other way round. The modules, from the bottom up:

- `varint`, `uuids`, `errors`: the small vocabulary.
- `schema`: Kafka's message definitions (`schemas.json`) as plain objects.
- `structs`, `messages`: one class per message, built on first use.
- `codegen`, `encoder`, `decoder`, `codec`: a (message, version) turned into Python functions that write and read it.
- `api`, `headers`: which APIs exist, and what precedes the body of a request or response.
- `compression`, `record`, `batch`: record batches of magic 2.
- `metadata_records`, `control_records`: what the records of the metadata log and of control batches contain.
- `refusals`: responses that carry one error for everything that their request asks for.
"""
