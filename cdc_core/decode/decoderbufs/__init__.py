"""decoderbufs: Protobuf messages, one a row, each with names and types of its columns."""
