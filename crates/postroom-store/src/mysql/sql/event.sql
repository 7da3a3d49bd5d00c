-- What an event is remembered by. With the lengths of its parts, so that no two read the same.
UNHEX(LEFT(SHA2(CONCAT(
    CHAR_LENGTH(m.source_event_id), ':', m.source_event_id,
    CHAR_LENGTH(m.source_stream_id), ':', m.source_stream_id,
    CHAR_LENGTH(m.integration_type), ':', m.integration_type, m.copy), 256), 32))
