SELECT id::text, is_new
FROM {ledger}.enqueue(
    integration => $1, event_type => $2, payload => $3::jsonb, stream => $4, event_id => $5, headers => $6::jsonb,
    tenant => $7, user_id => $8, correlation => $9, due_at => $10, max_attempts => coalesce($11, 10),
    ordering_key => $12, causation => $13, source => $14, schema_version => $15, occurred_at => $16, copy => $17)
